package releasecmd

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/wherry-dev/wherry/bundle/oci"
	"github.com/wherry-dev/wherry/bundle/show"
	"github.com/wherry-dev/wherry/cmd/internal/cli"
	"github.com/wherry-dev/wherry/cmd/internal/failure"
	"github.com/wherry-dev/wherry/cmd/internal/flags"
	"github.com/wherry-dev/wherry/published"
	"github.com/wherry-dev/wherry/publisher"
	"github.com/wherry-dev/wherry/publisher/diff"
	"github.com/wherry-dev/wherry/publisher/diff/view"
	"github.com/wherry-dev/wherry/publisher/impact"
	"github.com/wherry-dev/wherry/publisher/outdir"
	"github.com/wherry-dev/wherry/publisher/platform"
	"github.com/wherry-dev/wherry/publisher/settings"
)

// planning holds the flags of plan.
type planning struct {
	source      flags.Source
	registry    flags.Registry
	to, against string
	trust       flags.Trust
	format      string
	link        string
	failOn      []string
	limits      []impact.Limit
	fleet       flags.Fleet
	comment     commenting
	offline     offline
	exitCode    bool
	strict      error // with --strict, why publishing would do nothing; nil if it would
	options     publisher.PublishOptions
	warned      warned
}

// Plan returns the command wherry plan.
func Plan() *cobra.Command {
	p := planning{warned: warned{}}
	cmd := &cobra.Command{
		Use:   "plan [PLATFORM] [--environment NAME] [--to LOCATION (--key FILE | --trust FILE) | --against DIR | --offline]",
		Short: "Show what publishing would change",
		Long: `Show what publishing an environment would change: assignments that are added, removed and changed, configuration values that
change, and the policy or ConfigMap that causes it; how many clusters get new content, how many bytes each fetches,
and which pods restart. Nothing is written.

It compares with the newest releases at LOCATION, verified by --key or --trust, or with a folder that "wherry render" or
Kalypso wrote. Values that look like secrets are masked. --comment writes the plan to a change request. --offline shows
what a medium would carry to each site now.

The exit code is 1 if something fails or is refused, and 3 if the comment could not be posted. With --exit-code it is
also 1 if something would change, with --strict for warnings, and with --fail-on beyond a limit. The limits are
` + strings.Join(impact.LimitNames(), ", ") + `.

More: wherry help planning, sources, checks, forge-tokens`,
		Example: `  wherry plan ./dev --environment dev --base ./main --to oci://127.0.0.1:5000/edge --key cosign.pub
  wherry plan ./dev --environment dev --base ./main --against ./rendered -o markdown
  wherry plan -e dev
  wherry plan -e dev --link 512kbit --fail-on 'removed,clusters>10%' --comment auto
  wherry plan --offline -e prod --to oci://127.0.0.1:5000/edge --hub https://hub.example.com --link 512kbit`,
		Args: cobra.MaximumNArgs(1),
		RunE: p.run,
	}
	f := cmd.Flags()
	p.source.AddEnvironment(cmd)
	p.source.AddReplacements(cmd)
	p.source.AddAssignments(cmd)
	p.source.Cache.AddTo(cmd)
	p.registry.AddTo(cmd)
	f.StringVar(&p.to, "to", "", "compare with the releases at this `LOCATION`")
	p.trust.AddTo(cmd, "the public key `FILE` that must have signed them")
	f.StringVar(&p.against, "against", "", "compare with this `FOLDER` of rendered files")
	f.StringVar(&p.options.Platform, "platform-name", "", "the platform's `NAME` where it has no Platform object (default \"default\")")
	f.StringArrayVar(&p.options.Rings, "ring", nil, "plan a release to the ring `NAME`, with publish's flag of this name")
	f.StringArrayVar(&p.options.Drop, "drop", nil, "`TYPE/TARGET`: plan with publish's flag of this name; may be repeated")
	f.BoolVar(&p.options.AllowEmpty, "allow-empty", false, "plan with publish's flag of this name")
	f.BoolVar(&p.options.AllowRemovals, "allow-removals", false, "plan with publish's flag of this name")
	f.StringVar(&p.link, "link", "", "say how long a cluster's download takes at this `RATE`, such as 512kbit or 2.5Mbit")
	cli.NotEmpty(cmd, "link")
	f.StringSliceVar(&p.failOn, "fail-on", nil, "exit with 1 if the plan exceeds a `LIMIT`, such as removed or clusters>10%; may be repeated, or a list with commas")
	_ = cmd.RegisterFlagCompletionFunc("fail-on", cobra.FixedCompletions(impact.LimitNames(), cobra.ShellCompDirectiveNoFileComp))
	p.fleet.AddTo(cmd)
	p.comment.addTo(cmd)
	p.offline.addTo(cmd)
	f.BoolVar(&p.source.Strict, "strict", false, "exit with 1 also for warnings, with which publish --strict would do nothing")
	f.BoolVarP(&p.source.Verbose, "verbose", "v", false, "log what is read, and how charts and kustomizations are confined")
	f.BoolVar(&p.exitCode, "exit-code", false, "exit with 1 if something would change, as git diff does")
	f.StringVarP(&p.format, "output", "o", "table", "print as `FORMAT`, table, json or markdown")
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(planFormats, cobra.ShellCompDirectiveNoFileComp))
	cli.Rare(cmd, "platform-name", "drop", "allow-empty", "allow-removals")
	cmd.MarkFlagsMutuallyExclusive("to", "against")
	return cmd
}

var planFormats = []string{"table", "json", "markdown"}

func (p *planning) run(cmd *cobra.Command, args []string) error {
	if !slices.Contains(planFormats, p.format) {
		return cli.Usagef("-o %s: must be table, json or markdown", p.format)
	}
	var link impact.Link
	if p.link != "" {
		var err error
		if link, err = impact.ParseLink(p.link); err != nil {
			return cli.Usagef("--link: %w", err)
		}
	}
	if err := p.offline.check(cmd); err != nil {
		return err
	}
	if p.offline.asked {
		return p.runOffline(cmd, args, link)
	}
	for _, text := range p.failOn {
		l, err := impact.ParseLimit(text)
		if err != nil {
			return cli.Usagef("--fail-on: %w", err)
		}
		p.limits = append(p.limits, l)
	}
	if err := p.comment.open(); err != nil {
		return err
	}
	difference, err := p.compare(cmd, args)
	if err != nil {
		return err
	}
	difference.Impact.On(link)
	for _, w := range difference.Warnings {
		p.warned.printer(cmd)("%s", w)
	}
	switch out := cmd.OutOrStdout(); p.format {
	case "json":
		err = cli.Print(out, "json", plannedJSON{difference, difference.WouldChange(), difference.Incomplete()}, nil)
	case "markdown":
		_, err = out.Write(view.Markdown(difference))
	default:
		err = view.Table(out, difference)
	}
	if err != nil {
		return err
	}
	no := difference.Incomplete() || p.exitCode && difference.WouldChange()
	for _, l := range p.limits {
		if why := l.Exceeded(difference.Impact); why != "" {
			cmd.PrintErrf("exceeds --fail-on %s\n", why)
			no = true
		}
	}
	if err := p.comment.post(cmd, difference); err != nil {
		return err
	}
	if p.strict != nil || !no {
		return p.strict
	}
	return cli.Exit(cli.No)
}

// plannedJSON is what -o json prints: the difference, and what the exit code is made of.
type plannedJSON struct {
	*diff.Difference
	WouldChange bool `json:"wouldChange"`
	Incomplete  bool `json:"incomplete"`
}

// compare loads, renders and compares.
func (p *planning) compare(cmd *cobra.Command, args []string) (*diff.Difference, error) {
	place, err := p.source.Resolve(cmd, args)
	if err != nil {
		return nil, err
	}
	if err := p.take(p.source.Settings()); err != nil {
		return nil, err
	}
	var to oci.Location
	if p.to != "" {
		if to, err = flags.ParseLocation("to", p.to); err != nil {
			return nil, err
		}
	}
	switch given := p.trust.Given(); {
	case p.to != "" && !given:
		return nil, cli.Fail(cli.Usage, errors.New("missing --key or --trust"),
			fmt.Sprintf(`what is at %s counts as it is signed: give one, or set "trust" or "keys" in wherry.yaml; --against DIR compares with rendered files`, to))
	case p.to == "" && given:
		return nil, cli.Usagef("--key and --trust are for releases: leave them out with --against, whose files are not signed")
	}
	build := platform.Options{ToSign: true}
	opts := p.options
	opts.OCI = p.registry.Options()
	var trust published.Signers
	if p.to != "" {
		if trust, err = p.trust.Open(cmd.Context(), to, p.registry.Options()); err != nil {
			return nil, err
		}
		build.AfterLoad = lastReleases(to, trust, nil, opts)
		build.Pack = true // as Publish would, so that only what has changed is rendered, packed and read again
	}
	p.source.Shared = true
	p.source.Named = to.String()
	entering := entering{source: &p.source}
	if p.to != "" {
		if entering, err = p.enter(cmd, place, to, trust); err != nil {
			return nil, err
		}
		if entering.entry != nil {
			opts.Admission = entering.entry.Admission()
		}
		build.Platform = entering.read
	}
	planned, err := entering.source.Build(cmd, place, to.Dir+p.against, build)
	if err != nil {
		return nil, err
	}
	p.source.StrictEnd = "publishing would do nothing"
	p.strict = p.source.PrintProblems(cmd, planned.Loaded, planned.Result.Warnings, nil)
	if opts.Fleet, err = p.fleet.Of(cmd, planned, opts.Platform); err != nil {
		return nil, err
	}
	if p.against != "" {
		d, err := diff.Folder(cmd.Context(), planned, p.against, opts.Fleet)
		return d, folderFailure(err)
	}
	loaded := planned.Loaded
	opts.EnvironmentCommit, opts.BaseID, opts.Source, opts.Created = loaded.EnvironmentCommit, loaded.BaseID, loaded.Source, loaded.BaseTime
	if policy, err := loaded.Model.Promotion(); err == nil { // lint tells of mistakes
		if opts.Again, err = entering.facts.Again(cmd.Context(), policy, cmp.Or(loaded.Model.PlatformName(), opts.Platform)); err != nil {
			return nil, failure.At(err, to)
		}
	}
	opts.Parallel = publisher.DefaultParallel
	opts.Cache, opts.Packed, opts.DeltaCommand = p.source.Cache.Get(), planned.Packed, cli.DeltaCommand()
	defer p.source.Cache.Trim()
	d, err := publisher.Compare(cmd.Context(), planned, to, trust, opts)
	if err != nil {
		return nil, failure.At(err, to)
	}
	if policy, err := loaded.Model.Promotion(); err == nil && policy.Below() != "" && !policy.Gate.Content.Held { // lint tells of mistakes
		d.NotHeld = len(planned.Result.Workloads)
	}
	return d, nil
}

// enter asks what may enter the environment. That something has to wait is a warning.
func (p *planning) enter(cmd *cobra.Command, place string, to oci.Location, signers published.Signers) (entering, error) {
	from, err := factsOf(cmd, &p.source, place, to, p.registry, &p.fleet, signers, p.warned.printer(cmd))
	if err != nil {
		return entering{}, err
	}
	e, err := enter(cmd, &p.source, place, from, nil, false, false, Unproved{})
	var waits *cli.Error
	if refused := cmp.Or(err, e.refused); errors.As(refused, &waits) && waits.Code == cli.NotYet {
		cmd.PrintErrf("warning: publishing would be refused: %s\n", cli.Indented(refused.Error()))
		e, err = entering{source: &p.source}, nil
	}
	if e.waits != "" {
		cmd.PrintErrf("warning: base commit %s waits: %s\n", short(e.pinned), show.Line(e.waits))
	}
	e.facts = from
	return e, err
}

// take completes the flags by the settings, unless the comparison is with a folder.
func (p *planning) take(s *settings.Settings) error {
	p.fleet.Default(s)
	if p.against != "" {
		return nil
	}
	if p.to == "" {
		p.to = s.Registry.Text
	}
	if p.to == "" {
		return cli.Fail(cli.Usage, errors.New("missing --to or --against"), `give one of them, or set "registry" in wherry.yaml`)
	}
	p.trust.Default(s)
	return nil
}

func folderFailure(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		err = fmt.Errorf("--against: %w", err)
	}
	return failure.Of(err, cli.Is(outdir.ErrForeign, cli.Usage, "--against is a folder that wherry render or Kalypso wrote"),
		cli.Is(fs.ErrNotExist, cli.Usage, "name a folder that wherry render wrote; an empty one stands for nothing yet"))
}
