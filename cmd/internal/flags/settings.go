package flags

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/oci"
	"github.com/wherry-dev/wherry/bundle/show"
	"github.com/wherry-dev/wherry/cmd/internal/cli"
	"github.com/wherry-dev/wherry/cmd/internal/failure"
	"github.com/wherry-dev/wherry/publisher/gitrepo"
	"github.com/wherry-dev/wherry/publisher/settings"
)

// Settings returns the settings for the platform around the current folder; without one, those of environment variables
// and of the context in use.
func Settings() (*settings.Settings, error) { return settingsFor(".") }

// settingsFor returns the settings for the platform around place, if that is a folder.
func settingsFor(place string) (*settings.Settings, error) {
	sources, err := settingsSources()
	if err != nil {
		return nil, err
	}
	if info, err := os.Stat(place); err == nil && info.IsDir() && !gitrepo.IsBare(place) {
		s, err := settings.Open(place, sources)
		if !errors.Is(err, settings.ErrNoPlatform) {
			return s, err
		}
	}
	return settings.Outside(sources)
}

// settingsSources returns the environment variables, and the context that WHERRY_CONTEXT names or that is in use.
func settingsSources() (settings.Sources, error) {
	sources := settings.Sources{Getenv: os.Getenv}
	file, err := settings.ContextsFile()
	if err != nil { // there is no home, as in many a container
		return sources, nil
	}
	contexts, err := settings.ReadContexts(file)
	if err != nil {
		return sources, err
	}
	if name := cmp.Or(os.Getenv(settings.ContextVariable), contexts.Current); name != "" {
		sources.Context, err = contexts.Get(name)
	}
	return sources, err
}

// Resolve returns the platform that a command works on, and completes the source by the settings. That is the argument,
// if there is one, else the place of the environment in the repository around the current folder.
func (f *Source) Resolve(cmd *cobra.Command, args []string) (place string, err error) {
	if len(args) > 0 {
		return args[0], f.complete(cmd, args[0], true)
	}
	return f.locate(cmd, (*settings.Settings).Locate)
}

// ResolveAll is Resolve for a command that looks at all environments unless one is named or is around the current folder.
func (f *Source) ResolveAll(cmd *cobra.Command, args []string) (place string, err error) {
	if len(args) > 0 {
		return args[0], f.complete(cmd, args[0], false)
	}
	return f.locate(cmd, (*settings.Settings).LocateAll)
}

func (f *Source) locate(cmd *cobra.Command, locate func(*settings.Settings, string) (settings.Place, error)) (string, error) {
	sources, err := settingsSources()
	if err != nil {
		return "", err
	}
	s, err := settings.Open(".", sources)
	if err != nil {
		return "", err
	}
	at, err := locate(s, f.Environment)
	if err != nil {
		return "", err
	}
	f.Environment, f.settings, f.clone, f.located = at.Environment, s, s.Platform.Clone, true
	if at.Because != "" {
		printEnvironment(cmd, at.Environment, at.Because)
	}
	return at.Platform, nil
}

// complete takes the settings for a platform that is an argument. Its environment is that of the variable, else the one
// that the folder or branch says, else, if one is needed, the default of the settings.
func (f *Source) complete(cmd *cobra.Command, place string, needed bool) (err error) {
	if f.settings, err = settingsFor(place); err != nil || f.Environment != "" {
		return err
	}
	named := f.settings.Environment
	if !named.Given() {
		return nil
	}
	if !strings.HasPrefix(named.Origin, "variable ") {
		if f.settings.Platform == nil || !needed && f.settings.Platform.HasEnvironments() {
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
	loc, err := ParseLocation(flag, text)
	if err == nil && flag == "to" && loc.Archive != "" {
		err = failure.At(fmt.Errorf("--to: %s: %w", loc, oci.ErrReadOnly), loc)
	}
	return loc, err
}

// MissingTrust is the error of a trust document that neither a flag nor a setting names.
func MissingTrust() error { return missing("--trust", "trust", settings.TrustVariable) }

// missing is the error of something that neither a flag nor a setting gives.
func missing(what, key, variable string) error {
	return cli.Fail(cli.Usage, errors.New("missing "+what), fmt.Sprintf("give it, set %q in wherry.yaml, or set %s", key, variable))
}

// LocationArgument reads the location that is the argument of a command, else the settings' registry. It returns the
// settings too.
func LocationArgument(args []string) (oci.Location, *settings.Settings, error) {
	s, err := Settings()
	if err != nil {
		return oci.Location{}, nil, err
	}
	text := ""
	if len(args) > 0 {
		text = args[0]
	}
	loc, err := Location(s, "", text)
	return loc, s, err
}

// Environment returns the environment that a flag names, else that of the settings, which it prints.
func Environment(cmd *cobra.Command, s *settings.Settings, name string) (string, error) {
	if name != "" {
		return name, nil
	}
	because := s.Environment.Origin
	if name = s.Environment.Text; s.Platform != nil {
		at, err := s.Locate("")
		if err != nil {
			return "", err
		}
		name, because = at.Environment, at.Because
	}
	if name == "" {
		return "", missing("--environment", "environment", settings.EnvironmentVariable)
	}
	printEnvironment(cmd, name, because)
	return name, nil
}

// BundleArgument returns the bundle that an argument names: by a REF, or by a cluster type of the environment, at the
// settings' registry.
func BundleArgument(cmd *cobra.Command, s *settings.Settings, argument, environment string) (oci.Reference, error) {
	if isReference(argument) || oci.CheckName(argument) != nil || strings.Contains(argument, "/") {
		ref, err := ParseReference(argument)
		if err == nil && environment != "" {
			err = cli.Usagef("%s names its environment: leave out --environment", ref)
		}
		return ref, err
	}
	loc, err := Location(s, "", "")
	if err != nil {
		return oci.Reference{}, err
	}
	if environment, err = Environment(cmd, s, environment); err != nil {
		return oci.Reference{}, err
	}
	stream := bundle.Stream{Environment: environment, ClusterType: argument}
	return oci.Reference{Location: loc, Repository: stream.Repository()}, nil
}

// isReference reports whether an argument is a location, or a reference below one, and no name.
func isReference(text string) bool {
	return strings.Contains(text, "://") || strings.HasPrefix(text, "oci-layout:") || strings.HasPrefix(text, "oci-archive:")
}
