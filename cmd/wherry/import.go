package main

import (
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/wherry-dev/wherry/bundle/show"
	"github.com/wherry-dev/wherry/cmd/internal/cli"
	"github.com/wherry-dev/wherry/publisher/migrate"
	"github.com/wherry-dev/wherry/scheduler/finding"
)

// importOptions are the flags of import.
type importOptions struct {
	output, format, environment string
	checkouts                   []string
}

func newImportCommand() *cobra.Command {
	var o importOptions
	cmd := &cobra.Command{
		Use:   "import SYSTEM DIR [-o OUT]",
		Short: "Import from Fleet, Ascent or Argo CD",
		Long: `Make a platform that assigns the same workloads to the same clusters as another system does, and report what has no
counterpart. SYSTEM is fleet, ascent or argocd-applicationset. DIR holds its objects in YAML or JSON, as they lie in git
or as kubectl prints them: with its clusters, since the rules are evaluated for each of them.

  fleet                    GitRepo, Cluster, ClusterGroup; fleet.yaml and fleet.yml where DIR or --checkout has the repository
  ascent                   Application, Cluster, TargetPolicy, Namespace, as the service answers with them
  argocd-applicationset    ApplicationSet; clusters by their Secrets, of which only name, server and labels are read, or
                           by a document {clusters: [{name: …, server: …, labels: {…}}]}

OUT must be empty or absent. Without -o, nothing is written and only the report is printed. Nothing is fetched, and no
foreign code is run.

It exits with 1 if something has no counterpart.`,
		Example: `  wherry import fleet ./fleet -o platform --checkout https://github.com/ORG/apps=./apps
  wherry import ascent ./export --format json
  wherry lint platform`,
		Args: cobra.ExactArgs(2),
		ValidArgsFunction: func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			if len(args) == 0 {
				return migrate.Systems, cobra.ShellCompDirectiveNoFileComp
			}
			return nil, cobra.ShellCompDirectiveFilterDirs
		},
		RunE: func(cmd *cobra.Command, args []string) error { return o.run(cmd, args[0], args[1]) },
	}
	f := cmd.Flags()
	f.StringVarP(&o.output, "output", "o", "", "write the platform to the folder `OUT`")
	f.StringVar(&o.format, "format", importFormats[0], "print the report as `FORMAT`, table, json or yaml")
	f.StringVarP(&o.environment, "environment", "e", migrate.DefaultEnvironment, "the `NAME` of the environment where the input names none")
	f.StringArrayVar(&o.checkouts, "checkout", nil, "`URL=DIR`: DIR is a copy of this git repository; may be repeated")
	_ = cmd.RegisterFlagCompletionFunc("format", cobra.FixedCompletions(importFormats, cobra.ShellCompDirectiveNoFileComp))
	cli.NotEmpty(cmd, "output", "environment", "checkout")
	return cmd
}

var importFormats = []string{"table", "json", "yaml"}

func (o *importOptions) run(cmd *cobra.Command, system, dir string) error {
	options := migrate.Options{Environment: o.environment, Checkouts: map[string]fs.FS{}}
	if !slices.Contains(migrate.Systems, system) {
		hint := "known: " + strings.Join(migrate.Systems, ", ")
		if near := show.Nearest(system, migrate.Systems); near != "" {
			hint = fmt.Sprintf("did you mean %s?", near)
		}
		return cli.Fail(cli.Usage, fmt.Errorf("unknown system %q", system), hint)
	}
	if !slices.Contains(importFormats, o.format) {
		return cli.Usagef("--format must be table, json or yaml, not %q", o.format)
	}
	for _, c := range o.checkouts {
		at := strings.LastIndex(c, "=")
		if at <= 0 || at == len(c)-1 {
			return cli.Usagef("--checkout must be URL=DIR") // without the value, which may hold credentials
		}
		if err := checkFolder(c[at+1:]); err != nil {
			return err
		}
		options.Checkouts[c[:at]] = os.DirFS(c[at+1:])
	}
	if err := checkFolder(dir); err != nil {
		return err
	}
	if o.output != "" {
		if err := migrate.CheckOutput(o.output); err != nil {
			return err
		}
	}
	result, err := migrate.Import(cmd.Context(), system, os.DirFS(dir), options)
	if err != nil {
		return err
	}
	if len(result.Files) == 0 {
		o.output = ""
	}
	if o.output != "" {
		if err := migrate.Write(o.output, result.Files); err != nil {
			return err
		}
	}
	if err := cli.Print(cmd.OutOrStdout(), o.format, result.Report, func(w io.Writer) { importTable(w, &result.Report) }); err != nil {
		return err
	}
	if o.output != "" {
		cmd.PrintErrf("wrote %s to %s; look at it with \"wherry lint %s\"\n", show.Count(len(result.Files), "file"), o.output, o.output)
	}
	if result.Report.Missing() > 0 {
		return cli.Exit(cli.No)
	}
	return nil
}

func checkFolder(dir string) error {
	info, err := os.Stat(dir)
	switch {
	case err != nil:
		return cli.Fail(cli.Usage, err, "")
	case !info.IsDir():
		return cli.Usagef("%s is not a folder", dir)
	}
	return nil
}

func importTable(w io.Writer, r *migrate.Report) {
	fmt.Fprintf(w, "%s in %s: %s, %s, %s, %s; %s, %s without counterpart\n",
		show.Count(r.Clusters, "cluster"), show.Count(r.Environments, "environment"), show.Count(r.ClusterTypes, "cluster type"),
		show.Count(r.Workloads, "workload"), show.Count(r.Targets, "target"), show.Count(r.Policies, "policy"),
		show.Count(r.Assignments, "assignment"), show.Count(r.Missing(), "thing"))
	if len(r.Findings) > 0 {
		fmt.Fprintln(w, "\nLEVEL\tPLACE\tOBJECT\tWHAT\tWHY")
		for _, f := range r.Findings {
			cli.Row(w, string(f.Level), finding.Position{File: f.File, Line: f.Line}.String(), show.Cell(f.Object), show.Cell(f.What), f.Why)
		}
	}
	fmt.Fprintln(w, "\nENVIRONMENT\tCLUSTER TYPE\tCLUSTERS\tTARGETS")
	for _, t := range r.Types {
		cli.Row(w, t.Environment, t.Name, show.List(t.Clusters, 5), show.List(t.Targets, 5))
	}
}
