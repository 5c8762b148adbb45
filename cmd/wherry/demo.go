package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/wherry-dev/wherry/cmd/internal/cli"
	"github.com/wherry-dev/wherry/cmd/internal/failure"
	"github.com/wherry-dev/wherry/cmd/internal/flags"
	"github.com/wherry-dev/wherry/examples/demo"
	"github.com/wherry-dev/wherry/publisher/platform"
	"github.com/wherry-dev/wherry/scheduler/finding"
)

func newDemoCommand() *cobra.Command {
	var (
		source flags.Source
		place  string
		format string
		keep   bool
	)
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Run a demo on this machine",
		Long: `Demo publishes a platform to a registry of its own, runs three agents that bring it to
folders (one of them by tarballs alone), changes a platform value, changes a bundle in the
registry's storage, and shows what became of each agent. It needs no cluster and no network.

With --platform it does so with your own Kalypso repository. Nothing in it is changed: the
value that changes is a ConfigMap beside yours.`,
		Example: `  wherry demo
  wherry demo --keep -o json
  wherry demo --platform ./control-plane/dev --base ./control-plane/main --workload shop=./shop`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if place == "" && source.Replaced() {
				return cli.Usagef("--environment, --base, --workload and --commit need --platform")
			}
			options := demo.Options{Talk: cmd.ErrOrStderr(), Version: cli.Version()}
			if options.Sources, err = source.Options(place, ""); err != nil {
				return err
			}
			dir, err := os.MkdirTemp("", "wherry-demo-")
			if err != nil {
				return err
			}
			if !keep {
				defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
			}
			result, err := demo.Run(cmd.Context(), dir, options)
			var input *finding.Error
			wrong := errors.As(err, &input)
			if errors.Is(err, demo.ErrNothingAssigned) || wrong && input.Code == finding.CodeUnknownEnvironment {
				return cli.Fail(cli.Usage, err, "name the environment with --environment")
			}
			if errors.As(err, new(*platform.SourceError)) || wrong {
				return failure.Input(err)
			}
			if err != nil {
				return err
			}
			return printDemo(cmd, format, result, dir, keep)
		},
	}
	cli.OutputFlag(cmd, &format)
	cmd.Flags().StringVar(&place, "platform", "", "show your own `PLATFORM`: a folder, or a git repository as URL#BRANCH")
	cmd.Flags().StringVarP(&source.Environment, "environment", "e", "", "your environment's `NAME`; the branch's or folder's, else dev, if empty")
	source.AddReplacements(cmd)
	cmd.Flags().BoolVar(&keep, "keep", false, "keep the folder with platform, registry, agents and hub")
	return cmd
}

func printDemo(cmd *cobra.Command, format string, result *demo.Result, dir string, keep bool) error {
	out := cmd.OutOrStdout()
	err := cli.Print(out, format, result, func(w io.Writer) {
		fmt.Fprintln(w, "AGENT\tENVIRONMENT\tTYPE\tLINK\tSTATE\tREASON\tRUNNING\tASSIGNMENTS")
		for _, a := range result.Agents {
			running := "-"
			if a.Release.Running != nil {
				running = a.Release.Running.Name()
			}
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%d\n", a.Name, a.Environment, a.ClusterType, a.Link, a.State, cmp.Or(a.Reason, "-"), running, a.Assignments)
		}
	})
	if err != nil {
		return err
	}
	if format == "table" {
		writeAddresses(out, result, dir, keep)
	}
	if result.AsExpected() {
		return nil
	}
	for _, a := range result.Agents {
		if a.Unexpected != "" {
			fmt.Fprintf(cmd.ErrOrStderr(), "agent %s: %s\n", a.Name, a.Unexpected)
		}
	}
	return cli.Exit(cli.No)
}

func writeAddresses(w io.Writer, result *demo.Result, dir string, keep bool) {
	if !keep {
		fmt.Fprintln(w, "\nRun it with --keep to look at the platform, the registry and what each agent applied.")
		return
	}
	fmt.Fprintln(w, "\nWhere to look:")
	for _, a := range result.Agents {
		fmt.Fprintf(w, "  %s  # what %s keeps in place\n", filepath.Join(dir, "sites", a.Name, "applied"), a.Name)
	}
	fmt.Fprintf(w, "  wherry get clusters --data %s\n", filepath.Join(dir, "hub"))
	fmt.Fprintf(w, "  wherry-agent status --state-dir %s\n", filepath.Join(dir, "sites", result.Agents[0].Name, "state"))
}
