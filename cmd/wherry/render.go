package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/wherry-dev/wherry/bundle/show"
	"github.com/wherry-dev/wherry/cmd/internal/cli"
	"github.com/wherry-dev/wherry/cmd/internal/flags"
	"github.com/wherry-dev/wherry/publisher/outdir"
	"github.com/wherry-dev/wherry/publisher/platform"
)

func newRenderCommand() *cobra.Command {
	var source flags.Source
	var out string
	var opts outdir.Options
	var git gitOutput
	cmd := &cobra.Command{
		Use:   "render [PLATFORM] [--environment NAME] (-o DIR | --to-git URL#BRANCH)",
		Short: "Write rendered files to a folder or branch",
		Long: `Write an environment's rendered files to a folder in Kalypso's layout: a folder for each cluster type, in it one for each
deployment target, and the base commit in .github/tracking/Promoted_Commit_Id.

render owns the folders of cluster types and removes what is no longer assigned. Files at the root, folders that begin with
a dot and other folders stay. A failed assignment keeps the files that are there.

With --to-git the files go to a branch of a git repository, with --to-gitops-repo to the one that the GitOpsRepo object
names: through a change request from deployment/ENVIRONMENT, or with --direct to the branch itself. The same input gives
the same commit. A closed change request with the same content is not opened again without --again.

The exit code is 1 if assignments failed; the others are written.

More: wherry help rendering, git-output, sources, forge-tokens`,
		Example: `  wherry render examples/coffee/dev --environment dev --base examples/coffee/main \
    --workload storefront=examples/coffee/workloads/storefront \
    --workload roasting=examples/coffee/workloads/roasting -o rendered
  wherry render -e dev --to-git https://github.com/contoso/gitops#dev
  wherry render -e dev --to-gitops-repo --direct`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if cmd.Flags().Changed("output") && out == "" {
				return cli.Usagef("-o is empty")
			}
			if err := git.check(cmd); err != nil {
				return err
			}
			place, err := source.Resolve(cmd, args)
			if err != nil {
				return err
			}
			built, err := source.Render(cmd, place, out, platform.Options{WarnRefused: true})
			if err != nil {
				return err
			}
			loaded, result := built.Loaded, built.Result
			if err := source.WarnUncommitted(cmd, loaded.UncommittedBase, ", so no base commit is written"); err != nil {
				return err
			}
			opts.Keep = len(loaded.Unread)+len(result.FailedPolicies) > 0
			if out == "" {
				return git.run(cmd, place, built, opts, source.Timeout())
			}
			changes, err := outdir.Write(cmd.Context(), out, result, opts)
			if errors.Is(err, outdir.ErrForeign) {
				return cli.Fail(cli.Usage, err, "choose another folder, or give --force to write into this one")
			}
			if cmd.Context().Err() != nil {
				return cmd.Context().Err()
			}
			if err != nil {
				return cli.Fail(cli.Failed, err, fmt.Sprintf("make room and access in %s, or choose another folder", out))
			}
			cmd.PrintErrf("%s: %s written, %d removed, %d unchanged\n",
				out, show.Count(len(changes.Written), "file"), len(changes.Removed), changes.Unchanged)
			return flags.FailedAssignments(loaded, result, fmt.Sprintf("the rest is in %s", out))
		},
	}
	source.AddTo(cmd)
	source.AddAssignments(cmd)
	cmd.Flags().StringVarP(&out, "output", "o", "", "the `FOLDER` to write to")
	cmd.Flags().BoolVar(&opts.Force, "force", false, "write into a folder that holds other files")
	git.addTo(cmd)
	return cmd
}
