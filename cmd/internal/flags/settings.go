package flags

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/wherry-dev/wherry/bundle/oci"
	"github.com/wherry-dev/wherry/bundle/show"
	"github.com/wherry-dev/wherry/cmd/internal/cli"
	"github.com/wherry-dev/wherry/publisher/gitrepo"
	"github.com/wherry-dev/wherry/publisher/settings"
)

// Settings returns the settings for the platform around the current folder; without one, those of environment variables
// and of the context in use.
func Settings() (*settings.Settings, error) { return settingsFor(".") }

// settingsFor returns the settings for the platform around place, if that is a folder.
func settingsFor(place string) (*settings.Settings, error) {
	sources := settings.Sources{Getenv: os.Getenv}
	if info, err := os.Stat(place); err == nil && info.IsDir() && !gitrepo.IsBare(place) {
		s, err := settings.Open(place, sources)
		if !errors.Is(err, settings.ErrNoPlatform) {
			return s, settingsFailure(err)
		}
	}
	s, err := settings.Outside(sources)
	return s, settingsFailure(err)
}

// settingsFailure gives an error of package settings its exit code and a hint.
func settingsFailure(err error) error {
	var mistake *settings.Error
	var which *settings.WhichError
	var unknown *settings.UnknownError
	switch {
	case err == nil:
		return nil
	case errors.Is(err, settings.ErrNoPlatform):
		return cli.Fail(cli.Usage, err, "give PLATFORM, a folder or a git repository, or run the command inside a platform repository")
	case errors.As(err, &which):
		return cli.Fail(cli.Usage, err, `pass -e NAME, run the command in the folder or branch of an environment, or set "environment" in wherry.yaml`)
	case errors.As(err, &unknown) && unknown.Near != "":
		return cli.Fail(cli.Usage, err, fmt.Sprintf("did you mean %s?", unknown.Near))
	case errors.As(err, &unknown):
		return cli.Fail(cli.Usage, err, "known: "+show.Line(show.List(unknown.Known, maxKnown)))
	case errors.As(err, &mistake):
		return cli.Fail(cli.Usage, err, mistake.Hint)
	}
	return cli.Fail(cli.Failed, err, "")
}

// maxKnown bounds the names in a hint.
const maxKnown = 10

// Resolve returns the platform that a command works on, and completes the source by the settings. That is the argument,
// if there is one, else the place of the environment in the repository around the current folder.
func (f *Source) Resolve(cmd *cobra.Command, args []string) (place string, err error) {
	return f.resolve(cmd, args, (*settings.Settings).Locate)
}

// ResolveAll is Resolve for a command that looks at all environments unless one is named or is around the current folder.
func (f *Source) ResolveAll(cmd *cobra.Command, args []string) (place string, err error) {
	return f.resolve(cmd, args, (*settings.Settings).LocateAll)
}

func (f *Source) resolve(cmd *cobra.Command, args []string, locate func(*settings.Settings, string) (settings.Place, error)) (string, error) {
	if len(args) > 0 {
		return args[0], f.complete(cmd, args[0])
	}
	s, err := settings.Open(".", settings.Sources{Getenv: os.Getenv})
	if err != nil {
		return "", settingsFailure(err)
	}
	at, err := locate(s, f.Environment)
	if err != nil {
		return "", settingsFailure(err)
	}
	f.Environment, f.settings, f.clone = at.Environment, s, s.Platform.Clone
	if at.Because != "" {
		printEnvironment(cmd, at.Environment, at.Because)
	}
	return at.Platform, nil
}

// complete takes the settings for a platform that is an argument. Its environment is that of the variable, else the one
// that the folder or branch says, else the default of the settings.
func (f *Source) complete(cmd *cobra.Command, place string) (err error) {
	if f.settings, err = settingsFor(place); err != nil || f.Environment != "" {
		return err
	}
	named := f.settings.Environment
	if !named.Given() {
		return nil
	}
	if !strings.HasPrefix(named.Origin, "variable ") {
		if f.settings.Platform == nil {
			return nil
		}
		if _, ok := f.settings.Platform.Inside(); ok {
			return nil
		}
	}
	f.Environment = named.Text
	printEnvironment(cmd, named.Text, named.Origin)
	return nil
}

func printEnvironment(cmd *cobra.Command, name, because string) {
	cmd.PrintErrf("environment: %s (%s)\n", show.Line(name), show.Line(because))
}

// Settings returns the settings for the platform that Resolve has returned.
func (f *Source) Settings() *settings.Settings { return f.settings }

// Location reads a location that a flag or an argument gives, else the settings' registry. Without either, it is missing.
func Location(s *settings.Settings, flag, text string) (oci.Location, error) {
	if text == "" {
		text = s.Registry.Text
	}
	if text == "" {
		what := "LOCATION"
		if flag != "" {
			what = "--" + flag
		}
		return oci.Location{}, missing(what, "registry", settings.RegistryVariable)
	}
	return ParseLocation(flag, text)
}

// missing is the error of something that neither a flag nor a setting gives.
func missing(what, key, variable string) error {
	return cli.Fail(cli.Usage, errors.New("missing "+what), fmt.Sprintf("give it, set %q in wherry.yaml, or set %s", key, variable))
}
