package flags

import (
	"context"
	"fmt"
	"log/slog"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/wherry-dev/wherry/bundle/child"
	"github.com/wherry-dev/wherry/bundle/duration"
	"github.com/wherry-dev/wherry/cmd/internal/cli"
	"github.com/wherry-dev/wherry/cmd/internal/failure"
	"github.com/wherry-dev/wherry/publisher/gitrepo"
	"github.com/wherry-dev/wherry/publisher/platform"
	"github.com/wherry-dev/wherry/publisher/sandbox"
	"github.com/wherry-dev/wherry/publisher/settings"
	"github.com/wherry-dev/wherry/publisher/sources"
	"github.com/wherry-dev/wherry/scheduler"
)

// Source holds the flags for reading a platform, for all commands that take PLATFORM.
type Source struct {
	Environment string   // empty for the one that the platform suggests
	Strict      bool     // problems are errors
	StrictEnd   string   // the end of that error; empty for one where nothing is done
	Assignments string   // file of another scheduler's decision; empty for none
	Dropped     []string // TYPE/TARGET that may fail
	Cache       Cache
	Verbose     bool   // log to stderr what is read, and how content of others is rendered
	Shared      bool   // compare what is read from commits with the work trees that are here
	BaseAt      string // the commit at which the base is read; empty for the one that is pinned
	// WorkloadsAt and SourcesAt say at which state sources are read; nil reads heads. See platform.Source and sources.Options.
	WorkloadsAt func(registration, repo, branch string) string
	SourcesAt   func(registration string, s sources.Source) sources.Source
	Named       string // the place that bundles go to, of which sources may be at the same host; may be empty

	bases, workloads, mirrors []string
	logins                    map[string]string // URLs with logins, by the same without
	commit                    string
	timeout                   time.Duration

	settings *settings.Settings // nil before Resolve
	located  bool               // the platform was found from the current folder, and not given
	clone    *gitrepo.Clone     // the repository around the current folder, if the platform is found in it
}

// AddTo adds --environment, --strict, the flags of AddReplacements and those of the cache.
func (f *Source) AddTo(cmd *cobra.Command) {
	f.AddEnvironment(cmd)
	cmd.Flags().BoolVar(&f.Strict, "strict", false, "take warnings for errors, and do nothing if there is any")
	f.AddReplacements(cmd)
	f.Cache.AddTo(cmd)
}

// Defaults sets what flags would set, for a command that has none of them.
func (f *Source) Defaults() { f.timeout = defaultTimeout }

// defaultTimeout bounds the reading of a remote repository.
const defaultTimeout = 2 * time.Minute

// AddEnvironment adds --environment.
func (f *Source) AddEnvironment(cmd *cobra.Command) {
	EnvironmentFlag(cmd, &f.Environment, "the environment's `NAME`; without it, the one whose folder or branch PLATFORM is, or the only one")
}

// EnvironmentFlag adds -e, --environment, which is not empty if it is given.
func EnvironmentFlag(cmd *cobra.Command, value *string, usage string) {
	cmd.Flags().StringVarP(value, "environment", "e", "", usage)
	cli.NotEmpty(cmd, "environment")
	_ = cmd.RegisterFlagCompletionFunc("environment", CompleteEnvironments)
}

// AddReplacements adds the flags that say where the rest of a platform is read from.
func (f *Source) AddReplacements(cmd *cobra.Command) {
	flags := cmd.Flags()
	f.AddBases(cmd)
	flags.StringArrayVar(&f.workloads, "workload", nil, "`REGISTRATION=DIR`: read DIR in place of what this WorkloadRegistration names; may be repeated")
	f.AddReading(cmd)
	flags.StringVar(&f.commit, "commit", "", "the `COMMIT` that --base stands for, where neither git nor BaseRepo main says it")
	cli.Rare(cmd, "commit")
}

// AddBases adds --base.
func (f *Source) AddBases(cmd *cobra.Command) {
	cmd.Flags().StringArrayVar(&f.bases, "base", nil, "read this `SOURCE` in place of what the BaseRepo objects name; may be repeated, order counts")
}

// AddReading adds --mirror and --timeout, the flags for reading remote repositories.
func (f *Source) AddReading(cmd *cobra.Command) {
	f.AddMirrors(cmd)
	cmd.Flags().Var((*duration.Value)(&f.timeout), "timeout", "give up reading a remote repository after this `TIME`")
	cli.Rare(cmd, "timeout")
}

// AddMirrors adds --mirror alone, for a command whose --timeout is about something else.
func (f *Source) AddMirrors(cmd *cobra.Command) {
	cmd.Flags().StringArrayVar(&f.mirrors, "mirror", nil, "`URL=PLACE`: read git repositories whose URL begins like this from this folder or URL; may be repeated")
	f.timeout = defaultTimeout
	cli.Rare(cmd, "mirror")
}

// LogIn has the repository at a URL be read with a login, unless a mirror stands for it.
func (f *Source) LogIn(repository, user, password string) {
	u, err := url.Parse(repository)
	if err != nil || u.Scheme != "https" && u.Scheme != "http" || user+password == "" {
		return
	}
	u.User = nil
	plain := u.String()
	u.User = url.UserPassword(user, password)
	f.logins = map[string]string{plain: u.String()}
}

// Of returns the source of an environment with the same settings, which is not read from the clone around the current folder but
// from where the platform says that it is.
func (f *Source) Of(environment string) *Source {
	other := *f
	other.Environment, other.clone = environment, nil
	return &other
}

// AddAssignments adds --assignments.
func (f *Source) AddAssignments(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.Assignments, "assignments", "",
		"take what is assigned from this `FILE`, or - for stdin, in the form of \"wherry schedule -o json\", and not from the scheduling policies")
	cli.NotEmpty(cmd, "assignments")
	cli.Rare(cmd, "assignments")
}

// Load reads the platform at place, and prints its environment if no flag gives one. Nothing is read from the folder
// output, which may be empty.
func (f *Source) Load(cmd *cobra.Command, place, output string) (*platform.Loaded, error) {
	options, err := f.Options(place, output)
	if err != nil {
		return nil, err
	}
	loaded, err := platform.Load(cmd.Context(), options)
	if err != nil {
		return nil, failure.Input(err)
	}
	PrintInferred(cmd, loaded)
	return loaded, nil
}

// Build loads the platform at place, renders it and pins artifacts. It prints no problems. Nothing is read from the
// folder output, which may be empty.
func (f *Source) Build(cmd *cobra.Command, place, output string, opts platform.Options) (platform.Built, error) {
	decision, err := f.decision(cmd)
	if err != nil {
		return platform.Built{}, err
	}
	source, err := f.Options(place, output)
	if err != nil {
		return platform.Built{}, err
	}
	source.Log = f.Log(cmd)
	opts.Decision = decision
	opts.Pin = &sources.Options{Timeout: f.timeout, Mirrors: source.Mirrors, OCI: new(Registry).Options(), At: f.SourcesAt}
	after := opts.AfterLoad
	opts.AfterLoad = func(ctx context.Context, loaded *platform.Loaded, opts *platform.Options) error {
		PrintInferred(cmd, loaded)
		if f.settings != nil && f.Cache.dir == "" && !f.Cache.off {
			f.Cache.dir = f.settings.Cache.Text
		}
		if err := f.Cache.open(cmd, place); err != nil {
			return err
		}
		if opts.Cache = f.Cache.Get(); after != nil {
			return after(ctx, loaded, opts)
		}
		return nil
	}
	defer f.Cache.Trim()
	built, err := platform.Build(cmd.Context(), source, opts)
	return built, failure.Input(err)
}

// Log returns the log of what is read; nil without --verbose.
func (f *Source) Log(cmd *cobra.Command) *slog.Logger {
	if !f.Verbose {
		return nil
	}
	return slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), &slog.HandlerOptions{Level: slog.LevelDebug}))
}

// Render is Build and PrintProblems.
func (f *Source) Render(cmd *cobra.Command, place, output string, opts platform.Options) (platform.Built, error) {
	built, err := f.Build(cmd, place, output, opts)
	if err != nil {
		return built, err
	}
	return built, f.PrintProblems(cmd, built.Loaded, built.Result.Warnings, built.Result)
}

// Timeout returns the value of --timeout.
func (f *Source) Timeout() time.Duration { return f.timeout }

// mirrorMap reads --mirror.
func (f *Source) mirrorMap() (map[string]string, error) {
	mirrors := map[string]string{}
	for _, m := range f.mirrors {
		at, place, found := strings.Cut(m, "=")
		if !found || at == "" || place == "" {
			return nil, cli.Usagef("--mirror must be URL=PLACE") // without the value, which may hold credentials
		}
		mirrors[at] = place
	}
	if f.settings != nil {
		for at, place := range f.settings.Mirrors {
			if _, ok := mirrors[at]; !ok {
				mirrors[at] = place.Text
			}
		}
	}
	for at, place := range f.logins {
		if gitrepo.Mirrors(mirrors).Of(at) == at {
			mirrors[at] = place
		}
	}
	return mirrors, nil
}

// decision reads another scheduler's decision; nil without --assignments.
func (f *Source) decision(cmd *cobra.Command) (*scheduler.Decision, error) {
	if f.Assignments == "" {
		return nil, nil
	}
	name, from, err := cli.OpenInput(cmd, f.Assignments)
	if err != nil {
		return nil, cli.Fail(cli.Usage, fmt.Errorf("--assignments: %w", err), `"wherry schedule -o json" writes such a file`)
	}
	defer from.Close()
	decision, err := scheduler.ReadDecision(name, from)
	if err != nil {
		return nil, cli.Fail(cli.Usage, fmt.Errorf("--assignments: %w", err), "")
	}
	return decision, nil
}

// Replaced reports whether a flag says where the platform, or a part of it, is read from.
func (f *Source) Replaced() bool {
	return f.Environment != "" || len(f.bases) > 0 || len(f.workloads) > 0 || f.commit != ""
}

// OptionsOf returns the source of any environment of the platform at place, which Resolve has returned.
func (f *Source) OptionsOf(environment, place string) (platform.Source, error) {
	if f.settings != nil && f.settings.Platform != nil && environment != f.Environment {
		_, inside := f.settings.Platform.Inside()
		if f.located || inside { // place is one environment
			at, err := f.settings.Locate(environment)
			if err != nil {
				return platform.Source{}, err
			}
			place = at.Platform
		}
	}
	o, err := f.Options(place, "")
	o.Environment, o.Workloads, o.Commit = environment, nil, ""
	return o, err
}

// Options returns the source of the platform at place. Nothing is read from the folder output, which may be empty.
func (f *Source) Options(place, output string) (platform.Source, error) {
	o := platform.Source{
		Platform: place, Environment: f.Environment, Bases: f.bases, Workloads: map[string]string{},
		Commit: f.commit, BaseAt: f.BaseAt, WorkloadsAt: f.WorkloadsAt, CompareShared: f.Shared, Output: output, Timeout: f.timeout,
		Sandbox: child.Self(sandbox.Name),
	}
	if f.timeout <= 0 {
		return o, cli.Usagef("--timeout %s: must be more than nothing", f.timeout)
	}
	var err error
	if o.Mirrors, err = f.mirrorMap(); err != nil {
		return o, err
	}
	for _, w := range f.workloads {
		name, place, found := strings.Cut(w, "=")
		if !found || name == "" || place == "" || strings.ContainsAny(name, "/:@") {
			return o, cli.Usagef("--workload must be REGISTRATION=DIR") // without the value, which may hold credentials
		}
		if _, twice := o.Workloads[name]; twice {
			return o, cli.Usagef("--workload %s is given twice", name)
		}
		o.Workloads[name] = place
	}
	o.Named = []string{f.Named}
	if o.Clone = f.clone; f.settings != nil {
		o.Named = append(o.Named, f.settings.Registry.Text)
		o.Checkouts = map[string]string{}
		for name, place := range f.settings.Workloads {
			o.Checkouts[name] = place.Text
		}
	}
	return o, nil
}
