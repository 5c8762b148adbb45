package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/wherry-dev/wherry/bundle/duration"
	"github.com/wherry-dev/wherry/bundle/show"
	"github.com/wherry-dev/wherry/cmd/internal/cli"
	"github.com/wherry-dev/wherry/publisher/artifacts"
	"github.com/wherry-dev/wherry/publisher/platform"
	"github.com/wherry-dev/wherry/scheduler"
	"github.com/wherry-dev/wherry/scheduler/finding"
)

// platformHelp explains PLATFORM in the help of each command that takes it.
const platformHelp = `PLATFORM holds the environment's objects. It is a folder, or a git repository as URL#BRANCH or
URL#BRANCH:FOLDER. A git URL without a branch stands for the branch and path that the Environment object
which --environment names gives; it is looked for on the repository's default branch. Where the path that
it gives is a folder of PLATFORM, that folder is read. The folder or branch of another environment is refused.

What BaseRepo and WorkloadRegistration objects name is fetched by git, a base at the commit that its
object pins. --base and --workload take a folder, or a git repository as above, instead.`

// sourceFlags says where a platform is read from: the flags that all commands on PLATFORM share.
type sourceFlags struct {
	environment string
	bases       []string
	workloads   []string
	mirrors     []string
	commit      string
	timeout     time.Duration
	strict      bool
	assignments string          // where a decision is read from; empty for none
	dropped     map[string]bool // TYPE/TARGET that may fail
	cache       cacheFlags
}

func (f *sourceFlags) add(cmd *cobra.Command) {
	f.addEnvironment(cmd)
	cmd.Flags().BoolVar(&f.strict, "strict", false, "take warnings for errors, and do nothing if there is any")
	f.addReplacements(cmd)
	f.cache.add(cmd)
}

func (f *sourceFlags) addEnvironment(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.environment, "environment", "", "the environment's `NAME`; without it, the one whose folder or branch PLATFORM is, or the only one")
	cli.NotEmpty(cmd, "environment")
}

// addReplacements adds the flags that say where the rest of a platform is read from.
func (f *sourceFlags) addReplacements(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringArrayVar(&f.bases, "base", nil, "read this `SOURCE` in place of what the BaseRepo objects name; may be repeated, order counts")
	flags.StringArrayVar(&f.workloads, "workload", nil, "`REGISTRATION=DIR`: read DIR in place of what this WorkloadRegistration names; may be repeated")
	flags.StringArrayVar(&f.mirrors, "mirror", nil, "`URL=PLACE`: read git repositories whose URL begins like this from this folder or URL; may be repeated")
	flags.StringVar(&f.commit, "commit", "", "the `COMMIT` that --base stands for, where neither git nor BaseRepo main says it")
	f.timeout = 2 * time.Minute
	flags.Var((*duration.Value)(&f.timeout), "timeout", "give up reading a remote repository after this `TIME`")
}

// addAssignments adds the flag that takes what another scheduler has decided.
func (f *sourceFlags) addAssignments(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.assignments, "assignments", "",
		"take what is assigned from this `FILE`, or - for stdin, in the form of \"wherry schedule -o json\", and not from the scheduling policies")
	cli.NotEmpty(cmd, "assignments")
}

// load reads the platform at place, and says which environment that is where no flag does. Of output, which may be empty, nothing is
// read.
func (f *sourceFlags) load(cmd *cobra.Command, place, output string) (*platform.Loaded, error) {
	options, err := f.options(place, output)
	if err != nil {
		return nil, err
	}
	loaded, err := platform.Load(cmd.Context(), options)
	if err != nil {
		return nil, sourceFailure(err)
	}
	printInferred(cmd, loaded)
	return loaded, nil
}

func printInferred(cmd *cobra.Command, loaded *platform.Loaded) {
	if loaded.Inferred != "" {
		cmd.PrintErrf("environment: %s (%s)\n", show.Line(loaded.Model.EnvironmentName()), show.Line(loaded.Inferred))
	}
}

// build loads the platform at place, renders it and pins what asks for it. It prints no warnings. Of output, which may
// be empty, nothing is read.
func (f *sourceFlags) build(cmd *cobra.Command, place, output string, opts platform.Options) (platform.Built, error) {
	decision, err := f.decision(cmd)
	if err != nil {
		return platform.Built{}, err
	}
	source, err := f.options(place, output)
	if err != nil {
		return platform.Built{}, err
	}
	opts.Decision = decision
	opts.Pin = &artifacts.PinOptions{Timeout: f.timeout, Mirrors: source.Mirrors, OCI: new(registryFlags).options()}
	after := opts.AfterLoad
	opts.AfterLoad = func(ctx context.Context, loaded *platform.Loaded, opts *platform.Options) error {
		printInferred(cmd, loaded)
		if err := f.cache.open(cmd, place); err != nil {
			return err
		}
		if opts.Cache = f.cache.get(); after != nil {
			return after(ctx, loaded, opts)
		}
		return nil
	}
	defer f.cache.trim()
	built, err := platform.Build(cmd.Context(), source, opts)
	if err != nil && !errors.As(err, new(*cli.Error)) {
		err = sourceFailure(err)
	}
	return built, err
}

// render is build with warnings and what failed printed; the error is about what leaves nothing to go on with.
func (f *sourceFlags) render(cmd *cobra.Command, place, output string, opts platform.Options) (built platform.Built, err error) {
	if built, err = f.build(cmd, place, output, opts); err != nil {
		return built, err
	}
	loaded, result := built.Loaded, built.Result
	warnings := printFindings(cmd, append(loaded.Warnings, result.Warnings...))
	if len(result.ClusterTypes) == 0 {
		cmd.PrintErrln("note: the environment has no ClusterType (of a repository with a branch per environment, give the URL or PATH#BRANCH)")
	}
	unread, policies := printUnread(cmd, loaded), printFailedPolicies(cmd, loaded)
	failed := f.printFailures(cmd, result)
	if f.strict && warnings+unread+policies+failed > 0 {
		return built, strictFailure(warnings, unread, policies, failed)
	}
	return built, nil
}

// mirrorMap reads --mirror.
func (f *sourceFlags) mirrorMap() (map[string]string, error) {
	mirrors := map[string]string{}
	for _, m := range f.mirrors {
		url, place, found := strings.Cut(m, "=")
		if !found || url == "" || place == "" {
			return nil, cli.Usagef("--mirror must be URL=PLACE") // what it is may hold credentials
		}
		mirrors[url] = place
	}
	return mirrors, nil
}

// strictFailure says what --strict does not let pass.
func strictFailure(warnings, unread, policies, failed int) error {
	text := show.Count(warnings, "warning")
	if unread > 0 {
		text += ", " + show.Count(unread, "unread registration")
	}
	if policies > 0 {
		text += fmt.Sprintf(", %d failed %s", policies, policyWord(policies))
	}
	return cli.Fail(cli.No, fmt.Errorf("%s, %s: nothing is done (--strict)", text, show.Count(failed, "failed assignment")), "")
}

// decision reads what another scheduler has decided; nil where none is asked.
func (f *sourceFlags) decision(cmd *cobra.Command) (*scheduler.Decision, error) {
	if f.assignments == "" {
		return nil, nil
	}
	name, from, err := cli.OpenInput(cmd, f.assignments)
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

func (f *sourceFlags) options(place, output string) (platform.Source, error) {
	o := platform.Source{
		Platform: place, Environment: f.environment, Bases: f.bases, Workloads: map[string]string{},
		Commit: f.commit, Output: output, Timeout: f.timeout,
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
			return o, cli.Usagef("--workload must be REGISTRATION=DIR") // what it is may hold credentials
		}
		if _, twice := o.Workloads[name]; twice {
			return o, cli.Usagef("--workload %s is given twice", name)
		}
		o.Workloads[name] = place
	}
	return o, nil
}

// sourceFailure gives an error of platform.Load its exit code and says what to do.
func sourceFailure(err error) error {
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

// warnUncommitted says which files are in no commit, with what follows from it. With --strict that is an error.
func (f *sourceFlags) warnUncommitted(cmd *cobra.Command, files []string, consequence string) error {
	if len(files) == 0 {
		return nil
	}
	if f.strict {
		return cli.Fail(cli.No, fmt.Errorf("%s: nothing is done (--strict)", uncommitted(files, "")), "")
	}
	cmd.PrintErrf("warning: %s\n", uncommitted(files, consequence))
	return nil
}

// uncommitted names the first of the files that are in no commit.
func uncommitted(files []string, consequence string) string {
	const most = 5
	names := show.Line(strings.Join(files[:min(most, len(files))], ", "))
	if more := len(files) - most; more > 0 {
		names += fmt.Sprintf(" and %d more", more)
	}
	return fmt.Sprintf("%s not committed%s: %s", show.Count(len(files), "file"), consequence, names)
}

func printFindings(cmd *cobra.Command, findings []finding.Finding) (warnings int) {
	for _, f := range findings {
		kind := "warning"
		if f.Note {
			kind = "note"
		} else {
			warnings++
		}
		code := ""
		if f.Code != "" {
			code = " [" + f.Code + "]" // for "wherry explain"
		}
		cmd.PrintErrf("%s: %s%s\n", kind, show.Line(f.String()), code)
	}
	return warnings
}

// printUnread says which app teams' sources could not be read, and what to do.
func printUnread(cmd *cobra.Command, loaded *platform.Loaded) int {
	for _, u := range loaded.Unread {
		cmd.PrintErrf("failed: registration %s, with all its assignments: %s\n", show.Line(u.Registration), cli.Indented(u.Err.Error()))
		var e *cli.Error
		if errors.As(sourceFailure(u.Err), &e) && e.Hint != "" {
			cmd.PrintErrf("hint: %s\n", cli.Indented(e.Hint))
		}
	}
	return len(loaded.Unread)
}

// printFailedPolicies says of which policies is not known what they select.
func printFailedPolicies(cmd *cobra.Command, loaded *platform.Loaded) int {
	failed := loaded.Model.FailedPolicies()
	for _, f := range failed {
		cmd.PrintErrf("failed: policy %s, with all that it selects: %s\n", f.Name, cli.Indented(f.Err.Error()))
	}
	return len(failed)
}

func policyWord(n int) string {
	if n == 1 {
		return "policy"
	}
	return "policies"
}

func (f *sourceFlags) printFailures(cmd *cobra.Command, result *scheduler.Result) (failed int) {
	for _, ct := range result.ClusterTypes {
		for _, failure := range ct.Failures {
			if !f.dropped[ct.Name+"/"+failure.Name] { // those are told of when they are
				cmd.PrintErrf("failed: %s/%s: %s\n", show.Line(ct.Name), show.Line(failure.Name), cli.Indented(failure.Err.Error()))
				failed++
			}
		}
	}
	return failed
}

// failedAssignments is the error of a command that did its work except for what failed.
func failedAssignments(loaded *platform.Loaded, result *scheduler.Result, rest string) error {
	failed, all := 0, 0
	for _, ct := range result.ClusterTypes {
		failed, all = failed+len(ct.Failures), all+len(ct.Failures)+len(ct.Assignments)
	}
	var parts []string
	if n := len(loaded.Unread); n > 0 {
		parts = append(parts, show.Count(n, "registration")+" could not be read")
	}
	if n := len(loaded.Model.FailedPolicies()); n > 0 {
		parts = append(parts, fmt.Sprintf("%d %s failed", n, policyWord(n)))
	}
	if failed > 0 {
		parts = append(parts, fmt.Sprintf("%d of %s failed", failed, show.Count(all, "assignment")))
	}
	if len(parts) == 0 {
		return nil
	}
	return cli.Fail(cli.No, fmt.Errorf("%s, %s", strings.Join(parts, ", "), rest), "")
}
