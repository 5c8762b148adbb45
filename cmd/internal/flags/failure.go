package flags

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"strings"
	"syscall"

	"github.com/wherry-dev/wherry/bundle/oci/archive"

	"oras.land/oras-go/v2/errdef"
	"oras.land/oras-go/v2/registry/remote/errcode"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/delta"
	"github.com/wherry-dev/wherry/bundle/oci"
	"github.com/wherry-dev/wherry/bundle/similar"
	"github.com/wherry-dev/wherry/cmd/internal/cli"
	"github.com/wherry-dev/wherry/published"
	"github.com/wherry-dev/wherry/publisher/platform"
	"github.com/wherry-dev/wherry/publisher/trust"
	"github.com/wherry-dev/wherry/publisher/usage"
)

// RegistryFailure gives an error about the content of loc its exit code and a hint.
func RegistryFailure(err error, loc oci.Location) error {
	var refusal *bundle.Refusal
	var option *usage.Error
	var unknown *published.UnknownReleaseError
	var environment *published.NoEnvironmentError
	var answer *errcode.ErrorResponse
	switch {
	case errors.As(err, &environment):
		near := similar.To(environment.Environment, environment.Others)
		if near == "" {
			return err
		}
		return cli.Fail(cli.Failed, err, fmt.Sprintf("did you mean %s?", near))
	case errors.As(err, new(*bundle.AmbiguousError)):
		return cli.Fail(cli.Usage, err, "write more digits of the digest")
	case errors.As(err, &unknown):
		return cli.Fail(cli.Failed, err, fmt.Sprintf("%q lists its releases", "wherry bundle ls "+unknown.Repository.String()))
	case errors.Is(err, bundle.ErrTrustExpired):
		return cli.Fail(cli.Denied, err, `"wherry trust rotate" begins a version with a new validity`)
	case errors.As(err, &refusal):
		return cli.Fail(cli.Denied, err, refusalHint(refusal.Reason))
	case errors.Is(err, trust.ErrNoReleaseKey):
		return cli.Fail(cli.Usage, err, `sign with one of those; "wherry trust add-key" begins a version with another one`)
	case errors.As(err, &option):
		return cli.Fail(cli.Usage, err, "")
	case errors.Is(err, archive.ErrDamaged):
		return cli.Fail(cli.Failed, err, cli.DamagedHint)
	case errors.Is(err, oci.ErrReadOnly):
		return cli.Fail(cli.Usage, err, "name a registry, oci://HOST/PREFIX, or a folder, oci-layout:DIR")
	case errors.Is(err, oci.ErrAuthHost):
		return cli.Fail(cli.Usage, err, "--auth-host and "+authHostVariable+" take hosts such as auth.example.com or auth.example.com:8443")
	case errors.As(err, new(*oci.WithheldError)):
		return cli.Fail(cli.Denied, err, fmt.Sprintf("%q records that host once it has worked", "wherry login "+loc.Host))
	case errors.Is(err, oci.ErrNoLayout) && errors.Is(err, errdef.ErrNotFound):
		return cli.Fail(cli.Failed, err, "is that the folder? wherry publish makes one")
	case errors.Is(err, oci.ErrNoLayout):
		return cli.Fail(cli.Usage, err, "name a new or an empty folder")
	case errors.Is(err, http.ErrSchemeMismatch):
		return cli.Fail(cli.Failed, err, "the registry has no TLS: give --plain-http if that is meant to be so")
	case errors.Is(err, oci.ErrUnauthorized):
		return cli.Fail(cli.Denied, err, fmt.Sprintf("run %q", "wherry login "+loc.Host))
	case errors.Is(err, oci.ErrUnreachable):
		return cli.Fail(cli.Failed, err, fmt.Sprintf("is %s the registry's address, and is it running? The command can be repeated at any time", loc.Host))
	case errors.As(err, new(*delta.MissingError)):
		return cli.Fail(cli.Failed, err, "agents serve releases without their deltas: name the registry that the release was published to, or a copy of it")
	case errors.Is(err, errdef.ErrNotFound):
		return cli.Fail(cli.Failed, err, `"wherry bundle ls LOCATION" lists what is there`)
	case errors.As(err, &answer) && answer.StatusCode == http.StatusMethodNotAllowed:
		return cli.Fail(cli.Failed, err, "the registry takes nothing; the endpoint of an agent never does: name the registry to publish to")
	case errors.Is(err, syscall.ENOSPC):
		return cli.Fail(cli.Failed, err, "make room, and run the command again: nothing incomplete has a tag")
	case errors.Is(err, fs.ErrPermission):
		return cli.Fail(cli.Failed, err, "the folder must be writable for the user who runs the command")
	}
	return err
}

// ReferenceFailure is RegistryFailure for the bundle or record at ref. It adds ref to a refusal, which does not name it. If
// there is no such bundle, the hint suggests one with a similar name.
func ReferenceFailure(ctx context.Context, err error, ref oci.Reference, opts oci.Options) error {
	if errors.As(err, new(*bundle.Refusal)) {
		err = fmt.Errorf("%s: %w", ref, err)
	}
	if errors.Is(err, errdef.ErrNotFound) && !errors.Is(err, oci.ErrNoLayout) && !errors.As(err, new(*published.UnknownReleaseError)) {
		if near, ok := published.NearestBundle(ctx, ref, opts); ok {
			return cli.Fail(cli.Failed, err, fmt.Sprintf("did you mean %s?", near))
		}
	}
	return RegistryFailure(err, ref.Location)
}

func refusalHint(reason bundle.Reason) string {
	switch reason {
	case bundle.Unsigned:
		return "nobody has signed it: publish it again with wherry publish --key"
	case bundle.UntrustedKey:
		return "was it published with another key than --key, or the trust document, names?"
	case bundle.BelowThreshold:
		return `"wherry sign" adds the signatures that are missing`
	case bundle.OldEpoch:
		return "a trust document says which epoch counts, and --trust takes version 1 of it; what is of an older epoch has to be published again"
	case bundle.TrustDocumentRejected:
		return `"wherry trust show" shows what is there; agents take nothing new before the one that follows is there`
	case bundle.UnsupportedSchema:
		return "a newer wherry has published it: use one as new here"
	case bundle.Expired:
		return "publish it again: that renews a release in the last third of its life"
	}
	return ""
}

// SourceFailure gives an error of platform.Load its exit code and a hint.
func SourceFailure(err error) error {
	var which *platform.WhichEnvironmentError
	if errors.As(err, &which) {
		return cli.Fail(cli.Usage, err, "pass --environment NAME")
	}
	var source *platform.SourceError
	if !errors.As(err, &source) {
		return cli.Fail(cli.Usage, err, "")
	}
	instead := map[platform.Part]string{
		platform.PlatformPart: "the folder of the environment's objects as PLATFORM",
		platform.BasePart:     "--base DIR",
		platform.WorkloadPart: fmt.Sprintf("--workload %s=DIR", source.Name),
	}[source.Part]
	repository, _, _ := strings.Cut(source.Place, "#")
	switch {
	case source.Unreachable:
		return cli.Fail(cli.Failed, err, fmt.Sprintf("make %s reachable, or give %s", repository, instead))
	case source.At.File != "":
		return cli.Fail(cli.Usage, err, fmt.Sprintf("correct %s, or give %s", source.At, instead))
	}
	return cli.Fail(cli.Usage, err, "")
}
