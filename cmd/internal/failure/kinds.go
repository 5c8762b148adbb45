package failure

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"strings"
	"syscall"

	"oras.land/oras-go/v2/errdef"
	"oras.land/oras-go/v2/registry/remote/errcode"

	"github.com/wherry-dev/wherry/airgap/export"
	"github.com/wherry-dev/wherry/airgap/medium"
	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/delta"
	"github.com/wherry-dev/wherry/bundle/hubapi"
	"github.com/wherry-dev/wherry/bundle/oci"
	"github.com/wherry-dev/wherry/bundle/oci/archive"
	"github.com/wherry-dev/wherry/bundle/show"
	"github.com/wherry-dev/wherry/cmd/internal/cli"
	"github.com/wherry-dev/wherry/hub"
	"github.com/wherry-dev/wherry/hub/fleet"
	"github.com/wherry-dev/wherry/hub/store"
	"github.com/wherry-dev/wherry/published"
	"github.com/wherry-dev/wherry/publisher"
	"github.com/wherry-dev/wherry/publisher/author"
	"github.com/wherry-dev/wherry/publisher/codeowners"
	"github.com/wherry-dev/wherry/publisher/forge"
	"github.com/wherry-dev/wherry/publisher/gitrepo"
	"github.com/wherry-dev/wherry/publisher/migrate"
	"github.com/wherry-dev/wherry/publisher/outgit"
	"github.com/wherry-dev/wherry/publisher/platform"
	"github.com/wherry-dev/wherry/publisher/roster"
	"github.com/wherry-dev/wherry/publisher/settings"
	"github.com/wherry-dev/wherry/publisher/trust"
	"github.com/wherry-dev/wherry/publisher/usage"
	"github.com/wherry-dev/wherry/rollout/facts"
	"github.com/wherry-dev/wherry/rollout/promote"
	"github.com/wherry-dev/wherry/rollout/undo"
	"github.com/wherry-dev/wherry/scheduler/finding"
)

// neverPublished is the hint for an environment without any release at a location.
const neverPublished = `check the location and --environment; "wherry publish" makes the first release`

// Everywhere are the errors that mean the same everywhere.
var Everywhere = cli.Kinds{
	// Settings and the platform.
	cli.Is(settings.ErrNoPlatform, cli.Usage, "give PLATFORM, a folder or a git repository, or run the command inside a platform repository"),
	cli.As[*settings.WhichError](cli.Usage, `pass -e NAME, run the command in the folder or branch of an environment, or set "environment" in wherry.yaml`),
	cli.AsBy(func(e *settings.UnknownError) (int, string) {
		return cli.Usage, near(e.Near, "known: "+show.Line(show.List(e.Known, maxKnown)))
	}),
	cli.AsBy(func(e *settings.UnknownContextError) (int, string) {
		return cli.Usage, near(e.Near, `"wherry context set NAME" makes one, and "wherry context ls" lists them`)
	}),
	cli.AsBy(func(e *settings.Error) (int, string) { return cli.Usage, e.Hint }),
	cli.As[*platform.WhichEnvironmentError](cli.Usage, "pass --environment NAME"),
	cli.AsBy(lostPolicy),
	cli.AsBy(source),
	cli.AsBy(func(e *author.Error) (int, string) {
		if e.Refused || errors.Is(e, fs.ErrExist) {
			return cli.No, e.Hint
		}
		return cli.Usage, e.Hint
	}),
	cli.AsBy(func(e *roster.Error) (int, string) {
		if e.Conflict {
			return cli.No, e.Hint
		}
		return cli.Usage, e.Hint
	}),
	cli.Is(codeowners.ErrNoPlatform, cli.Usage, "add one, or say with --base where it is"),
	cli.Is(codeowners.ErrNoOwners, cli.Usage, `write the platform team: spec: {owners: ["@ORG/TEAM"]}`),
	cli.As[*codeowners.OwnerError](cli.Usage, "it would ignore the line; write @ORG/TEAM, @USER or a mail address"),
	cli.Is(codeowners.ErrTooLarge, cli.Usage, "keep a team's registrations in fewer files"),
	cli.Is(migrate.ErrNotEmpty, cli.Usage, "give -o a folder that is not there yet"),
	cli.Is(migrate.ErrNothing, cli.Usage, `see which objects the system needs with "wherry import --help"`),
	cli.As[*migrate.InputError](cli.Usage, ""),
	cli.Is(promote.ErrNoChain, cli.Usage, "the chain of a PromotionPolicy lists the environments; it is read at the commit that BaseRepo main pins: pin one that has it"),
	cli.Is(promote.ErrNoBase, cli.Usage, `each environment of a chain needs a BaseRepo called main: "wherry new base-repo -e NAME" makes one`),
	cli.Is(promote.ErrNoBranch, cli.Usage, "give PLATFORM as URL#BRANCH or URL#BRANCH:FOLDER"),
	cli.Is(promote.ErrNoCommit, cli.Usage, "give --commit more of its digits, and push it to the base's branch first"),
	cli.Is(facts.ErrNoCommit, cli.Usage, "give more digits"),
	func(err error) *cli.Error {
		if len(finding.In(err)) == 0 {
			return nil
		}
		return &cli.Error{Code: cli.Usage, Err: err}
	},

	// Releases and trust.
	cli.AsBy(func(e *published.NoEnvironmentError) (int, string) {
		return cli.Failed, near(show.Nearest(e.Environment, e.Others), neverPublished)
	}),
	cli.As[*bundle.AmbiguousError](cli.Usage, "write more digits of the digest"),
	cli.AsBy(func(e *published.UnknownReleaseError) (int, string) {
		return cli.Failed, fmt.Sprintf("%q lists its releases", "wherry bundle ls "+e.Repository.String())
	}),
	cli.Is(bundle.ErrTrustExpired, cli.Denied, `"wherry trust rotate" begins a version with a new validity`),
	cli.AsBy(func(e *bundle.Refusal) (int, string) { return cli.Denied, refusals[e.Reason] }),
	cli.Is(trust.ErrNoReleaseKey, cli.Usage, `sign with one of those; "wherry trust add-key" begins a version with another one`),
	cli.Is(publisher.ErrUnproved, cli.NotYet, `"wherry publish" lets in what is proved, with --unproved "REASON" all of it`),
	cli.Is(publisher.ErrUnfinished, cli.Failed, "publish again, which completes it"),
	cli.AsBy(func(e *undo.EmptiesError) (int, string) {
		if e.Workload != "" {
			return cli.No, "--allow-empty deletes them"
		}
		return cli.No, "--allow-empty deletes them, --cluster-type gives back another cluster type alone"
	}),
	cli.As[*usage.Error](cli.Usage, ""),

	// Packages for sites.
	cli.Is(archive.ErrDamaged, cli.Failed, cli.DamagedHint),
	cli.As[*export.UnpinnedError](cli.Denied, "publish with wherry.dev/pin: commit on the cluster type, which resolves them; --skip-unpinned leaves them out"),
	cli.As[*export.SpaceError](cli.Failed, "--since leaves out what the site has; --dry-run prints what takes the space"),
	cli.As[*export.FileSizeError](cli.Failed, "--split fat32 writes it in parts"),
	cli.Is(medium.ErrFileTooLarge, cli.Failed, "--split fat32 writes it in parts"),
	cli.Is(medium.ErrBusy, cli.Failed, "wait for the other export, or write to another file"),

	// Hubs.
	cli.AsBy(func(e *fleet.UnknownNameError) (int, string) { return cli.Failed, Near(e.Name, e.Near) }),
	cli.Is(store.ErrForgotten, cli.Failed, "ask about a later moment; the hub's --history says how long it keeps changes, --retention how long reports"),
	cli.Is(store.ErrOtherKey, cli.Usage, "give the key of the hub that the database belongs to with --key, or another database"),
	cli.Is(hub.ErrNoKey, cli.Usage, "copy hub.key from the folder of a hub that has it, or give it with --key"),
	cli.Is(store.ErrInvalid, cli.Usage, ""),
	cli.Is(store.ErrExists, cli.No, "give --replace to change what is registered for its uid, or remove the other cluster first"),
	cli.Is(store.ErrUnknownCluster, cli.No, `"wherry hub clusters list" shows those that are`),
	cli.Is(store.ErrUnknownToken, cli.No, `"wherry hub tokens list" shows those that there are`),
	cli.Is(store.ErrNewer, cli.Failed, "use that version, or a newer one"),
	cli.Is(store.ErrUnavailable, cli.Failed, "see whether the database server runs and can be reached from here, and try again; nothing that was acknowledged is lost"),

	// Output to git.
	cli.Is(outgit.ErrWorkBranch, cli.Usage, "name another one with --work-branch"),
	cli.As[*outgit.EmptyError](cli.No, "pass --allow-empty to commit that anyway"),
	cli.Is(outgit.ErrForeign, cli.Usage, "name another branch or folder, or give --force to write into this one"),
	cli.As[*outgit.MissingBranchError](cli.Failed, "make the branch first, or pass --direct, which makes it"),
	cli.Is(forge.ErrUnknownKind, cli.Usage, "name it with --forge"),
}

// atRegistry are the errors about a location, whose host is {host}.
var atRegistry = cli.Kinds{
	cli.Is(oci.ErrReadOnly, cli.Usage, "name a registry, oci://HOST/PREFIX, or a folder, oci-layout:DIR"),
	cli.Is(oci.ErrAuthHost, cli.Usage, "--auth-host and WHERRY_AUTH_HOST take hosts such as auth.example.com or auth.example.com:8443"),
	cli.As[*oci.WithheldError](cli.Denied, `"wherry login {host}" records that host once it has worked`),
	func(err error) *cli.Error {
		if !errors.Is(err, oci.ErrNoLayout) || !errors.Is(err, errdef.ErrNotFound) {
			return nil
		}
		return &cli.Error{Code: cli.Failed, Err: err, Hint: "is that the folder? wherry publish makes one"}
	},
	cli.Is(oci.ErrNoLayout, cli.Usage, "name a new or an empty folder"),
	cli.Is(http.ErrSchemeMismatch, cli.Failed, "the registry has no TLS: pass --plain-http if that is intended"),
	cli.Is(oci.ErrUnauthorized, cli.Denied, `run "wherry login {host}"`),
	cli.Is(oci.ErrUnreachable, cli.Failed, "is {host} the registry's address, and is it running? The command can be repeated at any time"),
	cli.As[*delta.MissingError](cli.Failed, "agents serve releases without their deltas: name the registry that the release was published to, or a copy of it"),
	cli.Is(published.ErrNothingPublished, cli.Failed, neverPublished),
	cli.Is(errdef.ErrNotFound, cli.Failed, `"wherry bundle ls LOCATION" lists what is there`),
	cli.AsBy(func(e *errcode.ErrorResponse) (int, string) {
		if e.StatusCode != http.StatusMethodNotAllowed {
			return cli.OK, ""
		}
		return cli.Failed, "the registry takes nothing; the endpoint of an agent never does: name the registry to publish to"
	}),
	cli.Is(syscall.ENOSPC, cli.Failed, "make room, and run the command again: nothing incomplete has a tag"),
	cli.Is(fs.ErrPermission, cli.Failed, "the folder must be writable for the user who runs the command"),
}

// atHub are the answers of the hub at {hub}.
var atHub = cli.Kinds{
	cli.AsBy(func(e *hubapi.Error) (int, string) {
		switch {
		case e.Code == hubapi.CodeUnauthenticated && (e.Kind == hubapi.KindSession || e.Kind == hubapi.KindEndedSession):
			return cli.Denied, "sign in again: wherry login hub {hub}"
		case e.Code == hubapi.CodeUnauthenticated:
			return cli.Denied, `give --token-file or $WHERRY_HUB_TOKEN, or run "wherry login hub {hub}"; for a hub on this machine, $WHERRY_HUB_DATA names its folder`
		case e.Code == hubapi.CodeForbidden:
			return cli.Denied, `ask an admin of the hub for a token that may; "wherry hub access create" makes one`
		case e.Code.Status() == http.StatusForbidden:
			return cli.Denied, ""
		}
		return cli.OK, ""
	}),
	certificate,
}

// beforeHub are the errors of reaching the hub at {hub}.
var beforeHub = cli.Kinds{
	cli.AsBy(func(net.Error) (int, string) {
		return cli.Failed, "is {hub} the hub's address, and is the hub running? The command can be repeated at any time"
	}),
}

// atForge are the errors of git and of forges.
var atForge = cli.Kinds{
	cli.As[*outgit.ForeignBranchError](cli.Failed, "merge or delete that branch"),
	cli.As[*outgit.RefusedError](cli.Denied, "{denied}"),
	cli.Is(outgit.ErrBusy, cli.NotYet, "run the command again"),
	cli.Is(outgit.ErrNoGit, cli.Failed, "install git 2.36 or newer"),
	cli.Is(outgit.ErrDenied, cli.Denied, "{token}"),
	cli.Is(forge.ErrUnauthorized, cli.Denied, "{token}"),
	cli.Is(forge.ErrForbidden, cli.Denied, "the token must be allowed to write to the repository, to its change requests and to commit statuses"),
	func(err error) *cli.Error {
		if !errors.Is(err, forge.ErrRateLimited) {
			return nil
		}
		when := "later"
		if answer := (*forge.Error)(nil); errors.As(err, &answer) && !answer.Until.IsZero() {
			when = "after " + show.Time(answer.Until)
		}
		return &cli.Error{Code: cli.NotYet, Err: err, Hint: "run the command again " + when}
	},
	cli.Is(forge.ErrNotFound, cli.Failed, "is the URL right, and may the token see the repository?"),
	cli.Is(forge.ErrUnavailable, cli.Failed, "run the command again: it goes on where this run ended"),
	cli.As[*outgit.GitError](cli.Failed, "is the repository there, and can it be reached? The command can be repeated at any time"),
}

// refusals are the hints for what is not trusted.
var refusals = map[bundle.Reason]string{
	bundle.Unsigned:              "nobody has signed it: publish it again with wherry publish --key",
	bundle.UntrustedKey:          "was it published with another key than --key, or the trust document, names?",
	bundle.BelowThreshold:        `"wherry sign" adds the signatures that are missing`,
	bundle.OldEpoch:              "a trust document says which epoch counts, and --trust takes version 1 of it; what is of an older epoch has to be published again",
	bundle.TrustDocumentRejected: `"wherry trust show" shows what is there; agents take nothing new before the one that follows is there`,
	bundle.UnsupportedSchema:     "a newer wherry has published it: use one as new here",
	bundle.Expired:               "publish it again: that renews a release in the last third of its life",
}

// lostPolicy returns the exit code and the hint of a policy that cannot be read; no code while it may be read later.
func lostPolicy(e *platform.LostPolicyError) (code int, hint string) {
	if !gitrepo.IsGone(e.Err) {
		return cli.OK, ""
	}
	return cli.Usage, fmt.Sprintf(`wherry publish -e %s --unproved "REASON" goes on by the policy that it pins`, e.Environment)
}

// source returns the exit code and the hint of a source of a platform that cannot be read.
func source(e *platform.SourceError) (code int, hint string) {
	instead := map[platform.Part]string{
		platform.PlatformPart: "the folder of the environment's objects as PLATFORM",
		platform.BasePart:     "--base DIR",
		platform.WorkloadPart: fmt.Sprintf("--workload %s=DIR", e.Name),
	}[e.Part]
	repository, _, _ := strings.Cut(e.Place, "#")
	switch {
	case e.Unreachable:
		return cli.Failed, fmt.Sprintf("make %s reachable, or give %s", repository, instead)
	case e.At.File != "":
		return cli.Usage, fmt.Sprintf("correct %s, or give %s", e.At, instead)
	case e.Part == platform.PlatformPart && errors.Is(e, fs.ErrNotExist):
		return cli.Usage, fmt.Sprintf(`make this folder, or give %s; "wherry init" makes a platform`, instead)
	}
	return cli.Usage, ""
}

// certificate is the row of certificates that are not trusted.
func certificate(err error) *cli.Error {
	hint := oci.CertificateHint(err)
	if hint == "" {
		return nil
	}
	return &cli.Error{Code: cli.Failed, Err: err, Hint: hint}
}

// maxKnown and maxNames bound the names in a hint.
const (
	maxKnown = 10
	maxNames = 8
)

// near is the hint for a name with a mistake; otherwise is the one if no name is near.
func near(name, otherwise string) string {
	if name == "" {
		return otherwise
	}
	return fmt.Sprintf("did you mean %s?", name)
}

// Near is the hint for a name that is none of those that are known.
func Near(name string, known []string) string {
	all := ""
	if n := len(known); n > 0 && n <= maxNames {
		all = "known: " + strings.Join(known, ", ")
	}
	return near(show.Nearest(name, known), all)
}
