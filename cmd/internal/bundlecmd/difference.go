package bundlecmd

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/wherry-dev/wherry/bundle/oci"
	"github.com/wherry-dev/wherry/bundle/show"
	"github.com/wherry-dev/wherry/cmd/internal/cli"
	"github.com/wherry-dev/wherry/cmd/internal/flags"
	"github.com/wherry-dev/wherry/published"
	"github.com/wherry-dev/wherry/publisher/catalog"
	"github.com/wherry-dev/wherry/publisher/diff/view"
	"github.com/wherry-dev/wherry/publisher/platform"
)

// differing holds the flags of diff.
type differing struct {
	from     flags.Published
	patches  bool
	rendered bool
	exitCode bool
	format   string
}

// Diff returns the command wherry diff.
func Diff() *cobra.Command {
	var d differing
	cmd := &cobra.Command{
		Use:   "diff RELEASE [RELEASE] | diff environments/NAME environments/NAME",
		Short: "Show how two releases differ",
		Long: `Show how two releases of a cluster type differ: assignments that are added, removed and changed, and changed values, or
with -p the files as text. One release alone is compared with the newest one, or with --rendered with what the
platform around the current folder would publish. environments/dev and environments/prod compare two environments.

Values that look like secrets are masked. For the causes of a difference before it is published, see "wherry plan".
With --exit-code, the exit code is 1 if something differs.

More: wherry help release-names`,
		Example: `  wherry diff drone:11 drone:12
  wherry diff drone:11 -p
  wherry diff prod/drone --rendered -e prod
  wherry diff environments/dev environments/prod`,
		Args: cobra.RangeArgs(1, 2),
		RunE: d.run,
	}
	d.from.AddTo(cmd)
	cli.OutputFlag(cmd, &d.format)
	f := cmd.Flags()
	f.BoolVarP(&d.patches, "patch", "p", false, "show the files that differ as texts, as diff -u does")
	f.BoolVar(&d.patches, "files", false, "the same as --patch")
	f.BoolVar(&d.rendered, "rendered", false, "compare with what the platform renders now")
	f.BoolVar(&d.exitCode, "exit-code", false, "exit with 1 if something differs, as git diff does")
	return cmd
}

func (d *differing) run(cmd *cobra.Command, args []string) error {
	if err := d.from.Open(); err != nil {
		return err
	}
	var refs []oci.Reference
	for _, text := range args {
		ref, err := d.from.Reference(cmd, text)
		if err != nil {
			return err
		}
		refs = append(refs, ref)
	}
	records := 0
	for _, ref := range refs {
		if _, is := published.EnvironmentOf(ref.Repository); is {
			records++
		}
	}
	switch {
	case records == 2:
		return d.environments(cmd, refs[0], refs[1])
	case records > 0:
		return cli.Usagef("compare two environments, environments/NAME environments/NAME, or two releases")
	case d.rendered && len(refs) == 2:
		return cli.Usagef("--rendered goes with one release")
	case d.rendered:
		return d.withRendered(cmd, refs[0])
	case len(refs) == 2:
		return d.between(cmd, refs[0], refs[1])
	}
	newest, err := catalog.Newest(cmd.Context(), oci.Reference{Location: refs[0].Location, Repository: refs[0].Repository}, time.Now(), d.from.Registry.Options())
	if err != nil {
		return d.from.Failure(cmd.Context(), err, refs[0])
	}
	if refs[0].Tag == "" && refs[0].Digest == "" {
		return cli.Fail(cli.Usage, fmt.Errorf("%s is the newest release itself", args[0]), fmt.Sprintf("name an older one, such as %s:RELEASE; %q lists them", args[0], "wherry releases "+args[0]))
	}
	return d.between(cmd, refs[0], newest)
}

func (d *differing) between(cmd *cobra.Command, old, now oci.Reference) error {
	return openReference(cmd, &d.from, old, func(a *catalog.Released) error {
		signers, err := d.from.Again(cmd, now)
		if err != nil {
			return err
		}
		b, err := catalog.OpenReleased(cmd.Context(), now, signers, d.from.Registry.Options())
		if err != nil {
			return d.from.Failure(cmd.Context(), err, now)
		}
		defer b.Close()
		difference, err := catalog.Between(a, b, d.patches)
		if err != nil {
			return err
		}
		return d.print(cmd, difference)
	})
}

// withRendered compares with what the platform around the current folder renders for the release's environment.
func (d *differing) withRendered(cmd *cobra.Command, ref oci.Reference) error {
	return openReference(cmd, &d.from, ref, func(a *catalog.Released) error {
		source := flags.Source{Environment: a.Release.Environment}
		source.Defaults()
		place, err := source.Resolve(cmd, nil)
		if err != nil {
			return err
		}
		built, err := source.Build(cmd, place, "", platform.Options{ToSign: true})
		if err != nil {
			return err
		}
		if err := source.PrintProblems(cmd, built.Loaded, built.Result.Warnings, built.Result); err != nil {
			return err
		}
		difference, err := catalog.Rendered(a, built.Result, d.patches)
		if err != nil {
			return err
		}
		return d.print(cmd, difference)
	})
}

func (d *differing) print(cmd *cobra.Command, difference *catalog.Difference) error {
	out := cmd.OutOrStdout()
	if d.format != "table" {
		if err := cli.Print(out, d.format, difference, nil); err != nil {
			return err
		}
	} else if err := differenceText(out, difference, d.patches); err != nil {
		return err
	}
	if d.exitCode && (len(difference.Changes) > 0 || difference.SiteValues != nil) {
		return cli.Exit(cli.No)
	}
	return nil
}

// differenceText writes a difference for a terminal, the totals first.
func differenceText(w io.Writer, d *catalog.Difference, patches bool) error {
	var b bytes.Buffer
	fmt.Fprintf(&b, "%s %s → %s: %s\n", show.Line(d.ClusterType), d.Old.Name(), d.New.Name(), view.ChangeCounts(d.Changes, d.Unchanged))
	for _, s := range []catalog.Side{d.Old, d.New} {
		fmt.Fprintf(&b, "  %s: %s\n", s.Name(), show.Line(sideText(s)))
	}
	if len(d.Changes) > 0 {
		b.WriteByte('\n')
	}
	if _, err := w.Write(b.Bytes()); err != nil {
		return err
	}
	if err := view.Changes(w, d.ClusterType, d.Changes, patches); err != nil {
		return err
	}
	return view.SiteChanges(w, d.ClusterType, d.SiteValues)
}

// sideText says when and of which commit a release is, and what for.
func sideText(s catalog.Side) string {
	var parts []string
	if !s.IssuedAt.IsZero() {
		parts = append(parts, "published "+show.Time(s.IssuedAt))
	}
	if s.BaseCommit != "" {
		parts = append(parts, "commit "+shortCommit(s.BaseCommit))
	}
	if s.Message != "" {
		parts = append(parts, s.Message)
	}
	if len(parts) == 0 {
		return "from this platform, now"
	}
	return strings.Join(parts, ", ")
}

func (d *differing) environments(cmd *cobra.Command, old, now oci.Reference) error {
	signers, err := d.from.Trust(cmd, old)
	if err != nil {
		return err
	}
	difference, err := catalog.Environments(cmd.Context(), old, now, signers, d.from.Registry.Options(), d.patches)
	if err != nil {
		return d.from.Failure(cmd.Context(), err, old)
	}
	if err := cli.Print(cmd.OutOrStdout(), d.format, difference, func(w io.Writer) { environmentsTable(w, difference) }); err != nil {
		return err
	}
	differs := false
	for _, t := range difference.ClusterTypes {
		differs = differs || t.Result != catalog.Same
		if d.format == "table" && len(t.Changes) > 0 {
			fmt.Fprintln(cmd.OutOrStdout())
			if err := view.Changes(cmd.OutOrStdout(), t.ClusterType, t.Changes, d.patches); err != nil {
				return err
			}
		}
		if d.format == "table" {
			if err := view.SiteChanges(cmd.OutOrStdout(), t.ClusterType, t.SiteValues); err != nil {
				return err
			}
		}
	}
	if d.exitCode && differs {
		return cli.Exit(cli.No)
	}
	return nil
}

func environmentsTable(w io.Writer, d *catalog.EnvironmentDifference) {
	fmt.Fprintf(w, "CLUSTER TYPE\t%s\t%s\tRESULT\n", strings.ToUpper(show.Cell(d.Old.Environment)), strings.ToUpper(show.Cell(d.New.Environment)))
	for _, t := range d.ClusterTypes {
		result := string(t.Result)
		if len(t.Changes) > 0 {
			result = view.ChangeCounts(t.Changes, t.Unchanged)
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", show.Cell(t.ClusterType), nameOf(t.Old), nameOf(t.New), result)
	}
}

func nameOf(s *catalog.Side) string {
	if s == nil {
		return "-"
	}
	return s.Name()
}
