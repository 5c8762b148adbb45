// Package authorcmd holds the commands that define a platform in a folder: wherry init, new, edit, rename, rm and fmt. Package
// publisher/author does the work. Begin with New.
package authorcmd

import (
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/wherry-dev/wherry/bundle/show"
	"github.com/wherry-dev/wherry/cmd/internal/cli"
	"github.com/wherry-dev/wherry/publisher/author"
)

// place holds the flags that lead to a platform and an environment of it.
type place struct {
	dir         string
	environment string
	dryRun      bool
}

func (p *place) addTo(cmd *cobra.Command) {
	cmd.Flags().StringVar(&p.dir, "platform", "", "the platform's `FOLDER`; without it, the nearest one from here upwards with wherry.yaml or .environments")
	cmd.Flags().BoolVar(&p.dryRun, "dry-run", false, "show what would be written, and write nothing")
	cli.NotEmpty(cmd, "platform")
}

func (p *place) addEnvironment(cmd *cobra.Command, usage string) {
	cmd.Flags().StringVarP(&p.environment, "environment", "e", "", usage)
	cli.NotEmpty(cmd, "environment")
	complete(cmd, "environment", "Environment")
}

// open reads the platform.
func (p *place) open(cmd *cobra.Command) (*author.Platform, error) {
	if p.dir == "" {
		p.dir = author.Top(".")
	}
	opened, err := author.Open(cmd.Context(), p.dir)
	if err != nil {
		return nil, err
	}
	if len(opened.Objects) == 0 && opened.Settings == nil && opened.Own == "" {
		return nil, cli.Fail(cli.Usage, fmt.Errorf("%s has no object of a platform", p.dir), `go to a platform's folder, or name it with --platform; "wherry init" makes one`)
	}
	return opened, nil
}

// apply writes a plan and prints its edits, or with --dry-run prints the difference.
func (p *place) apply(cmd *cobra.Command, plan *author.Plan) error {
	out := cmd.OutOrStdout()
	if p.dryRun {
		fmt.Fprint(out, plan.Diff())
		printNotes(cmd, plan)
		return nil
	}
	if plan.Empty() {
		cmd.PrintErrln("nothing changes")
		return nil
	}
	if err := plan.Apply(); err != nil {
		return err
	}
	for _, e := range plan.Edits {
		fmt.Fprintf(out, "%s: %s\n", show.Line(e.Position.String()), show.Cell(e.Text))
	}
	for _, m := range plan.Moves {
		fmt.Fprintf(out, "%s -> %s\n", show.Line(plan.Path(m.From)), show.Line(plan.Path(m.To)))
	}
	printNotes(cmd, plan)
	return nil
}

func printNotes(cmd *cobra.Command, plan *author.Plan) {
	for _, w := range plan.Warnings {
		cmd.PrintErrf("warning: %s\n", cli.Indented(w.String()))
	}
	for _, n := range plan.Notes {
		cmd.PrintErrf("note: %s\n", cli.Indented(n))
	}
}

// complete completes a flag with the names of a kind's objects.
func complete(cmd *cobra.Command, flag, kind string) {
	_ = cmd.RegisterFlagCompletionFunc(flag, func(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
		return names(cmd, kind), cobra.ShellCompDirectiveNoFileComp
	})
}

// names returns the names of a kind's objects in the platform around the current folder, or in that of --platform.
func names(cmd *cobra.Command, kind string) []string {
	dir := author.Top(".")
	if f := cmd.Flags().Lookup("platform"); f != nil && f.Changed {
		dir = f.Value.String()
	}
	p, err := author.Open(cmd.Context(), dir)
	if err != nil {
		return nil
	}
	return p.Names(kind)
}

// completeObject completes KIND NAME.
func completeObject(more ...string) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		switch len(args) {
		case 0:
			return append(author.Words(), more...), cobra.ShellCompDirectiveNoFileComp
		case 1:
			if kind, err := author.Kind(args[0]); err == nil {
				return names(cmd, kind), cobra.ShellCompDirectiveNoFileComp
			}
		}
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
}

// kindOf returns the kind of an object that a command can change.
func kindOf(word string) (string, error) {
	kind, err := author.Kind(word)
	if err == nil && (kind == author.Workspace || kind == author.Ring || kind == author.Group) {
		return "", cli.Fail(cli.Usage, fmt.Errorf("a %s is not a separate object", kind), "edit the Platform or PromotionPolicy that lists it, or rename it")
	}
	return kind, err
}

// editor returns the person's editor, as git and kubectl find it.
func editor() string {
	for _, name := range []string{"VISUAL", "EDITOR"} {
		if value := strings.TrimSpace(os.Getenv(name)); value != "" {
			return value
		}
	}
	return "vi"
}
