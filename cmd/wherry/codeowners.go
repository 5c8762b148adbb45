package main

import (
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/spf13/cobra"

	"github.com/wherry-dev/wherry/bundle/diskfile"
	"github.com/wherry-dev/wherry/bundle/show"
	"github.com/wherry-dev/wherry/cmd/internal/cli"
	"github.com/wherry-dev/wherry/cmd/internal/failure"
	"github.com/wherry-dev/wherry/cmd/internal/flags"
	"github.com/wherry-dev/wherry/publisher/codeowners"
	"github.com/wherry-dev/wherry/publisher/platform"
	"github.com/wherry-dev/wherry/scheduler/kinds"
)

// codeownersOptions are the flags of codeowners.
type codeownersOptions struct {
	source flags.Source
	format string
	out    string
	check  bool
}

func newCodeownersCommand() *cobra.Command {
	var o codeownersOptions
	cmd := &cobra.Command{
		Use:   "codeowners [FOLDER] [--format github|gitlab] [-o FILE | --check]",
		Short: "Write CODEOWNERS for a platform repository",
		Long: `Write CODEOWNERS for a platform repository, from the owners in its Platform object. FOLDER is the work tree of the
platform repository, or the platform's folder in a larger one; without it, the work tree that you are in.

A team owns each file whose objects all belong to its workspace: registrations, and ConfigMaps and ConfigSchemas with
the label workspace. The platform team, spec.owners of the Platform, owns all else, among it files with objects of
several teams, and files that do not exist yet.

Where FOLDER has no Platform object, as on a branch of an environment, it is looked for in what the BaseRepo objects name, or
in --base.

--check compares with the CODEOWNERS that the forge would read, or with -o FILE, and writes nothing. Run it in CI as a
required check: it is what notices that a team's file has got an object of somebody else.

It exits with 1 if --check finds a difference.`,
		Example: `  wherry codeowners --format github -o .github/CODEOWNERS
  wherry codeowners --check`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return o.run(cmd, args)
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.format, "format", string(codeowners.GitHub), "write for this `FORGE`, github or gitlab")
	f.StringVarP(&o.out, "output", "o", "", "write to this `FILE`; to stdout without it")
	f.BoolVar(&o.check, "check", false, "compare, and write nothing")
	cli.NotEmpty(cmd, "output")
	_ = cmd.RegisterFlagCompletionFunc("format", cobra.FixedCompletions([]string{"github", "gitlab"}, cobra.ShellCompDirectiveNoFileComp))
	o.source.AddEnvironment(cmd)
	o.source.AddReplacements(cmd)
	return cmd
}

func (o *codeownersOptions) run(cmd *cobra.Command, args []string) error {
	format := codeowners.Format(o.format)
	if !slices.Contains(codeowners.Formats(), format) {
		return cli.Usagef("unknown --format %q (known: github, gitlab)", o.format)
	}
	repo, err := codeowners.Open(append(args, "")[0])
	if err != nil {
		return cli.Fail(cli.Usage, err, "give the work tree of the platform repository: CODEOWNERS is about the files in it")
	}
	owned, err := repo.Derive(func() (*kinds.Platform, error) { return o.platformOf(cmd, args) })
	if err != nil {
		return failure.Input(err)
	}
	text, err := owned.Text(format)
	if err != nil {
		return failure.Input(err)
	}
	printOwned(cmd, owned)
	if o.check {
		return o.compare(cmd, repo, format, text)
	}
	if o.out == "" {
		_, err := cmd.OutOrStdout().Write(text)
		return err
	}
	if err := codeowners.Replaceable(o.out); err != nil {
		return cli.Fail(cli.Usage, err, "choose another file, or remove it: lines that people wrote would be lost")
	}
	err = diskfile.ReplaceBy(o.out, 0o644, func(w io.Writer) error {
		_, err := w.Write(text)
		return err
	})
	if err != nil {
		return cli.Fail(cli.Failed, err, "")
	}
	return nil
}

// platformOf reads the Platform object of the bases, for a folder that has none.
func (o *codeownersOptions) platformOf(cmd *cobra.Command, args []string) (*kinds.Platform, error) {
	place, err := o.source.ResolveAll(cmd, args)
	if err != nil {
		return nil, err
	}
	source, err := o.source.Options(place, "")
	if err != nil {
		return nil, err
	}
	loaded, err := platform.LoadPlatform(cmd.Context(), source)
	if errors.As(err, new(*platform.WhichEnvironmentError)) {
		return nil, codeowners.ErrNoPlatform // the folder has neither a Platform nor an environment
	}
	if err != nil {
		return nil, failure.Input(err)
	}
	return loaded.Model.Objects().Platform, nil
}

func printOwned(cmd *cobra.Command, o codeowners.Owned) {
	teams := map[string]bool{}
	for _, f := range o.Files {
		teams[f.Workspace] = true
	}
	cmd.PrintErrf("%s of %s; the platform team owns the rest\n", show.Count(len(o.Files), "file"), show.Count(len(teams), "workspace"))
	for _, name := range o.Unspeakable {
		cmd.PrintErrf("warning: %s stays with the platform team: CODEOWNERS has no safe way to write its name\n", show.Line(name))
	}
	for _, name := range o.Unbound {
		cmd.PrintErrf("warning: workspace %s owns its registrations and may name every repository in them: give it repositories\n", show.Line(name))
	}
}

func (o *codeownersOptions) compare(cmd *cobra.Command, repo *codeowners.Repository, format codeowners.Format, want []byte) error {
	name := o.out
	if name == "" {
		name = repo.Existing(format)
	}
	differences, err := codeowners.Compare(name, want)
	if err != nil {
		return cli.Fail(cli.Failed, err, "")
	}
	if len(differences) == 0 {
		cmd.PrintErrf("%s is up to date\n", name)
		return nil
	}
	for _, line := range differences {
		fmt.Fprintln(cmd.OutOrStdout(), show.Line(line))
	}
	return cli.Fail(cli.No, fmt.Errorf("%s differs from the platform", name), fmt.Sprintf("run \"wherry codeowners --format %s -o %s\"", format, name))
}
