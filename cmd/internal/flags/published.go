package flags

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/wherry-dev/wherry/bundle/lazyregexp"
	"github.com/wherry-dev/wherry/bundle/oci"
	"github.com/wherry-dev/wherry/cmd/internal/cli"
	"github.com/wherry-dev/wherry/cmd/internal/failure"
	"github.com/wherry-dev/wherry/published"
	"github.com/wherry-dev/wherry/publisher/settings"
)

// Published holds the flags for reading published releases. What no flag gives is taken from the settings.
type Published struct {
	Environment string
	Registry    Registry
	trust       Trust
	from        string
	settings    *settings.Settings
	current     string // environment, once it is known
}

// AddTo adds --environment, --from, --key, --trust, and the flags for access to a registry.
func (f *Published) AddTo(cmd *cobra.Command) {
	EnvironmentFlag(cmd, &f.Environment, "the `NAME` of the environment, for a release that names none")
	cmd.Flags().StringVar(&f.from, "from", "", "read the releases at this `LOCATION` (default the registry of the settings)")
	cli.NotEmpty(cmd, "from")
	f.trust.AddTo(cmd, "the public key `FILE` that must have signed them")
	f.Registry.AddTo(cmd)
}

// Open takes the settings. It comes before the other methods.
func (f *Published) Open() (err error) {
	if f.settings, err = Settings(); err != nil {
		return err
	}
	f.trust.Default(f.settings)
	return nil
}

// Settings returns the settings that Open took.
func (f *Published) Settings() *settings.Settings { return f.settings }

// Location returns the location of releases that are named without one.
func (f *Published) Location() (oci.Location, error) { return Location(f.settings, "from", f.from) }

// CurrentEnvironment returns the environment of releases that are named without one, and prints it if no flag gives it.
func (f *Published) CurrentEnvironment(cmd *cobra.Command) (name string, err error) {
	if f.current == "" {
		f.current, err = Environment(cmd, f.settings, f.Environment)
		if err == nil {
			err = CheckName("environment", f.current)
		}
	}
	return f.current, err
}

// shortReference is [ENVIRONMENT/]TYPE with :RELEASE or @DIGEST.
var shortReference = lazyregexp.New(`^(?:([^/:@]+)/)?([^/:@]+)((?::|@)[^/]+)?$`)

// Reference returns the bundle, or the environment's record environments/NAME, that a person has named.
func (f *Published) Reference(cmd *cobra.Command, text string) (oci.Reference, error) {
	if isReference(text) {
		ref, err := ParseReference(text)
		if err != nil {
			return ref, err
		}
		if own, ok := published.Split(ref); ok {
			ref = own
		}
		return ref, nil
	}
	m := shortReference.FindStringSubmatch(text)
	if m == nil {
		return oci.Reference{}, cli.Fail(cli.Usage, fmt.Errorf("%q does not name a release", text), "write TYPE:RELEASE or ENVIRONMENT/TYPE:RELEASE, such as drone:11")
	}
	loc, err := f.Location()
	if err != nil {
		return oci.Reference{}, err
	}
	repository := "environments/" + m[2]
	if m[1] != "environments" {
		environment := m[1]
		if environment == "" {
			if environment, err = f.CurrentEnvironment(cmd); err != nil {
				return oci.Reference{}, err
			}
		}
		repository = "bundles/" + environment + "/" + m[2]
	}
	ref, err := oci.ParseReference(strings.TrimSuffix(loc.String(), "/") + "/" + repository + m[3])
	if err != nil {
		return ref, cli.Fail(cli.Usage, err, "write TYPE:RELEASE or ENVIRONMENT/TYPE:RELEASE, such as drone:11")
	}
	ref.Location, ref.Repository = loc, repository
	return ref, nil
}

// Trust returns the trust for what ref names. It is published.AsItLies, and a note is printed, if nothing says who must have signed.
func (f *Published) Trust(cmd *cobra.Command, ref oci.Reference) (published.Signers, error) {
	if !f.trust.Given() {
		cmd.PrintErrln("note: signature not verified; pass --key or --trust to verify it")
		return published.AsItLies(), nil
	}
	return f.trust.OpenFor(cmd.Context(), ref, f.Registry.Options())
}

// Again is Trust for a further release, without the note.
func (f *Published) Again(cmd *cobra.Command, ref oci.Reference) (published.Signers, error) {
	if !f.trust.Given() {
		return published.AsItLies(), nil
	}
	return f.Trust(cmd, ref)
}

// Failure gives an error about what ref names its exit code and a hint.
func (f *Published) Failure(ctx context.Context, err error, ref oci.Reference) error {
	return failure.Reference(ctx, err, ref, f.Registry.Options())
}
