package bundlecmd

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/oci"
	"github.com/wherry-dev/wherry/bundle/show"
	"github.com/wherry-dev/wherry/cmd/internal/cli"
	"github.com/wherry-dev/wherry/cmd/internal/failure"
	"github.com/wherry-dev/wherry/cmd/internal/flags"
	"github.com/wherry-dev/wherry/publisher/diff/view"
	"github.com/wherry-dev/wherry/publisher/settings"
	"github.com/wherry-dev/wherry/publisher/verify"
)

// verifying holds the flags of verify.
type verifying struct {
	trust    flags.Trust
	identity identity
	registry flags.Registry

	environment, format string
}

// Verify returns the command wherry verify.
func Verify() *cobra.Command {
	var v verifying
	cmd := &cobra.Command{
		Use:   "verify [REF | TYPE] [--key FILE | --trust FILE | --certificate-identity ID --certificate-oidc-issuer URL]",
		Short: "Verify a bundle as an agent does",
		Long: `Verify a published bundle as an agent does: the signature, the release document, its expiry, and every byte of its
files. The exit code is 4 if it is not to be trusted.

Without an argument, it verifies the environment's record and every release that it names, with TYPE those of one cluster
type, with REF one bundle or record. Registry, environment and keys come from flags, variables or wherry.yaml.

The signer is a key, or an identity of a certificate: subject and issuer, exactly as in the certificate. Sigstore's trusted
root is that of this program, or of --trusted-root; no network is used for it. Agents take only keys, in cosign's own
format; this command also reads signatures in Sigstore bundles, as cosign 3 writes them, and says so.

More: wherry help release-names, signing`,
		Example: `  wherry verify -e dev
  wherry verify drone -e dev
  wherry verify oci://127.0.0.1:5000/edge/bundles/dev/drone --key cosign.pub
  wherry verify oci-layout:./out/bundles/dev/drone:s0-1795262400 --key cosign.pub -o json
  wherry verify oci://127.0.0.1:5000/edge/bundles/dev/drone --trust trust.v1.json
  wherry verify oci://ghcr.io/example/edge/bundles/dev/drone --certificate-oidc-issuer https://token.actions.githubusercontent.com \
    --certificate-identity https://github.com/example/platform/.github/workflows/release.yaml@refs/heads/main`,
		Args:              cobra.MaximumNArgs(1),
		RunE:              func(cmd *cobra.Command, args []string) error { return v.dispatch(cmd, strings.Join(args, "")) },
		ValidArgsFunction: flags.CompleteClusterTypes,
	}
	flags.EnvironmentFlag(cmd, &v.environment, "the environment's `NAME`, where the argument is no REF")
	v.trust.AddTo(cmd, "the `FILE` with the public key, or several, one of which must have signed")
	v.identity.addTo(cmd)
	cmd.MarkFlagsMutuallyExclusive("key", "certificate-identity")
	cmd.MarkFlagsMutuallyExclusive("trust", "certificate-identity")
	v.registry.AddTo(cmd)
	cli.OutputFlag(cmd, &v.format)
	return cmd
}

// dispatch verifies what the argument names: a reference, a cluster type, or nothing for the whole environment.
func (v *verifying) dispatch(cmd *cobra.Command, argument string) error {
	s, err := flags.Settings()
	if err != nil {
		return err
	}
	if err := v.check(s); err != nil {
		return err
	}
	if argument != "" {
		ref, err := flags.BundleArgument(cmd, s, argument, v.environment)
		if err != nil {
			return err
		}
		return v.one(cmd, ref)
	}
	loc, err := flags.Location(s, "", "")
	if err != nil {
		return err
	}
	if v.environment, err = flags.Environment(cmd, s, v.environment); err != nil {
		return err
	}
	return v.all(cmd, loc)
}

// check completes the flags by the settings, and refuses those that do not go together.
func (v *verifying) check(s *settings.Settings) error {
	if v.identity.subject == "" {
		v.trust.Default(s)
	}
	switch {
	case v.identity.root != "" && v.identity.subject == "":
		return cli.Usagef("--trusted-root goes with --certificate-identity")
	case v.identity.subject == "" && !v.trust.Given():
		return cli.Fail(cli.Usage, errors.New("missing --key, --trust or --certificate-identity"),
			`give one of them, or set "trust" or "keys" in wherry.yaml`)
	}
	return nil
}

func (v *verifying) one(cmd *cobra.Command, ref oci.Reference) error {
	var loc oci.Location
	if v.trust.First != "" {
		var err error
		if loc, err = flags.LocationOf(ref); err != nil {
			return err
		}
	}
	one, err := v.verifier(cmd, loc)
	if err != nil {
		return err
	}
	t, err := one(ref)
	if err != nil {
		return failure.Reference(cmd.Context(), err, ref, v.registry.Options())
	}
	cmd.PrintErrf("%s is trusted\n", ref)
	return cli.Print(cmd.OutOrStdout(), v.format, t, func(w io.Writer) { trustedTable(w, t) })
}

// verifier returns the function that verifies a bundle or record at loc by the keys or the identity of the flags.
func (v *verifying) verifier(cmd *cobra.Command, loc oci.Location) (func(oci.Reference) (*verify.Trusted, error), error) {
	if !v.trust.Given() {
		trust, err := v.identity.trust()
		return func(ref oci.Reference) (*verify.Trusted, error) {
			return verify.ByIdentity(cmd.Context(), ref, trust, time.Now(), v.registry.Options())
		}, err
	}
	trust, err := v.trust.Open(cmd.Context(), loc, v.registry.Options())
	return func(ref oci.Reference) (*verify.Trusted, error) {
		t, err := verify.ByKeys(cmd.Context(), ref, trust.Trust, time.Now(), v.registry.Options())
		if err == nil {
			err = trust.Check(t.Platform, time.Now())
		}
		return t, err
	}, err
}

func trustedTable(w io.Writer, t *verify.Trusted) {
	row := func(name, format string, args ...any) {
		fmt.Fprintf(w, "%s\t%s\n", name, show.Cell(fmt.Sprintf(format, args...)))
	}
	if t.Kind == "bundle" {
		row("RELEASE", "%s", bundle.ReleaseName(t.Number, t.Digest))
	}
	row("DIGEST", "%s", t.Digest)
	row("PLATFORM", "%s", t.Platform)
	row("ENVIRONMENT", "%s", t.Environment)
	if t.Kind == "bundle" {
		row("CLUSTER TYPE", "%s", t.ClusterType)
		row("RINGS", "%s", view.Rings(t.Rings))
	} else {
		row("CLUSTER TYPES", "%d", len(t.ClusterTypes))
		if len(t.Incomplete) > 0 {
			row("INCOMPLETE", "%s", strings.Join(t.Incomplete, ", "))
		}
	}
	row("SEQUENCE", "%d-%d", t.Epoch, t.Sequence)
	row("ISSUED", "%s", show.Time(t.IssuedAt))
	if t.Kind == "bundle" {
		row("EXPIRES", "%s, %s", show.Time(t.ExpiresAt), expiryText(bundle.ExpiryOf(t.IssuedAt, t.ExpiresAt, time.Now())))
	}
	row("BASE COMMIT", "%s", t.BaseCommit)
	if t.Message != "" {
		row("MESSAGE", "%s", t.Message)
	}
	if t.Kind == "bundle" {
		row("ASSIGNMENTS", "%d in %s of %d bytes", *t.Assignments, show.Count(t.Content.Files, "file"), t.Content.Size)
		for _, h := range t.Held {
			row("HELD", "%s since %s", h.Name, heldText(h.Held))
		}
		for _, h := range t.HeldSites {
			row("HELD", "site values of cluster %s since %s", h.Cluster, heldText(h.Held))
		}
	}
	for _, d := range t.Deltas {
		switch text := deltaText(d); {
		case d.Problem != "":
			row("DELTA", "%s: cannot be applied, so agents would fetch all: %s", text, d.Problem)
		case d.Applied:
			row("DELTA", "%s: gives these files", text)
		default:
			row("DELTA", "%s: not tried", text)
		}
	}
	if t.Identity != nil {
		row("SIGNED BY", "%s", t.Identity.Subject)
		row("KNOWN TO", "%s", t.Identity.Issuer)
		row("LOGGED", "%s", show.Time(t.Identity.LoggedAt))
		return
	}
	row("KEYS", "%s", strings.Join(t.Keys, " "))
	if t.SigstoreBundle {
		row("FORMAT", "Sigstore bundle, which agents refuse: sign with cosign sign --new-bundle-format=false too")
	}
}
