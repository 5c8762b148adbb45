// Package failure knows what the errors of the packages below mean for a person: one table from an error's kind to the exit code
// and to the hint of a command.
//
// A command returns the errors of a platform and of its settings as they are: [cli.Main] asks Everywhere. Errors about something whose name
// the hint needs, or that means another thing elsewhere, pass At (a location), Reference (a release), Hub or Git. A command puts rows
// of its own before the table if it knows better. Errors that have an exit code stay as they are.
package failure

import (
	"context"
	"errors"
	"fmt"

	"oras.land/oras-go/v2/errdef"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/oci"
	"github.com/wherry-dev/wherry/cmd/internal/cli"
	"github.com/wherry-dev/wherry/published"
)

// Of gives err the exit code and the hint of its kind.
func Of(err error, first ...cli.Kind) error { return Everywhere.Of(cli.Kinds(first).Of(err)) }

// Input is Of for what a person has written: an error of an unknown kind is a mistake in it.
func Input(err error) error { return cli.Otherwise(Of(err), cli.Usage, "") }

// At is Of for errors about the content of loc.
func At(err error, loc oci.Location, first ...cli.Kind) error {
	return atRegistry.Of(Of(err, first...), "{host}", loc.Host)
}

// Reference is At for the bundle or record at ref. It adds ref to a refusal, which does not name it. If there is no such bundle, the
// hint suggests one with a similar name.
func Reference(ctx context.Context, err error, ref oci.Reference, opts oci.Options) error {
	if cli.HasCode(err) {
		return err
	}
	if errors.As(err, new(*bundle.Refusal)) {
		err = fmt.Errorf("%s: %w", ref, err)
	}
	if errors.Is(err, errdef.ErrNotFound) && !errors.Is(err, oci.ErrNoLayout) && !errors.As(err, new(*published.UnknownReleaseError)) {
		if near, ok := published.NearestBundle(ctx, ref, opts); ok {
			return cli.Fail(cli.Failed, err, fmt.Sprintf("did you mean %s?", near))
		}
	}
	return At(err, ref.Location)
}

// Hub is Of for the answer of the hub at a URL.
func Hub(err error, url string, first ...cli.Kind) error {
	return atHub.Of(Of(err, first...), "{hub}", url)
}

// HubRequest is Hub, with a hint also for a hub that cannot be reached.
func HubRequest(err error, url string) error {
	if errors.Is(err, oci.ErrUnreachable) { // that is a registry
		return Of(err)
	}
	return beforeHub.Of(Hub(err, url), "{hub}", url)
}

// Git is Of for the git repository of a forge, also if it is a source of the platform. Token is the hint for a repository that asks for a login, and denied the one for a
// branch that takes no push.
func Git(err error, token, denied string, first ...cli.Kind) error {
	return Of(atForge.Of(cli.Kinds(first).Of(err), "{token}", token, "{denied}", denied))
}
