package main

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/wherry-dev/wherry/bundle/oci"
	"github.com/wherry-dev/wherry/cmd/internal/cli"
	"github.com/wherry-dev/wherry/publisher"
)

func newBundleCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "bundle", Short: "Show, copy and clean up what is published"}
	cmd.AddCommand(newBundleCopyCommand(), newBundleGCCommand(), newBundleInspectCommand(), newBundleListCommand())
	return cmd
}

func newBundleListCommand() *cobra.Command {
	var environment, format string
	var registry registryFlags
	cmd := &cobra.Command{
		Use:   "ls LOCATION",
		Short: "List the newest release of each cluster type",
		Long: `List the newest release of each cluster type at LOCATION, oci://HOST/PREFIX or oci-layout:DIR.

Who signed them is not asked: "wherry verify" does that. A registry that does not list its repositories
needs --environment, whose record is followed then. Where LOCATION has other environments and not that one,
the exit code is 3.`,
		Example: "  wherry bundle ls oci://127.0.0.1:5000/edge --environment dev",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			loc, err := oci.Parse(args[0])
			if err != nil {
				return cli.Fail(cli.Usage, err, "")
			}
			if environment != "" {
				if err := oci.CheckName(environment); err != nil {
					return cli.Fail(cli.Usage, fmt.Errorf("--environment: %w", err), "")
				}
			}
			list, err := publisher.List(cmd.Context(), loc, environment, registry.options())
			if errors.Is(err, errors.ErrUnsupported) && !errors.Is(err, oci.ErrUnauthorized) {
				return cli.Fail(cli.Failed, err, "the registry does not list repositories: name one environment with --environment")
			}
			if err != nil {
				return registryFailure(err, loc)
			}
			if len(list) == 0 {
				cmd.PrintErrf("no bundles at %s\n", loc)
			}
			return cli.Print(cmd.OutOrStdout(), format, list, func(w io.Writer) { listTable(w, list) })
		},
	}
	cmd.Flags().StringVar(&environment, "environment", "", "list the environment `NAME` only")
	cli.NotEmpty(cmd, "environment")
	registry.add(cmd)
	cli.OutputFlag(cmd, &format)
	return cmd
}

func listTable(w io.Writer, list []publisher.Listed) {
	fmt.Fprintln(w, "ENVIRONMENT\tCLUSTER TYPE\tSEQUENCE\tISSUED\tEXPIRES\tHELD\tBASE COMMIT\tDIGEST")
	for _, l := range list {
		fmt.Fprintf(w, "%s\t%s\t%d-%d\t%s\t%s\t%d\t%s\t%s\n", cell(l.Environment), cell(l.ClusterType), l.Epoch, l.Sequence,
			timeCell(l.IssuedAt), timeCell(l.ExpiresAt), l.Held, cell(l.BaseCommit), l.Digest)
	}
}

func newBundleInspectCommand() *cobra.Command {
	var format string
	var registry registryFlags
	cmd := &cobra.Command{
		Use:   "inspect REF",
		Short: "Show a bundle's release and assignments",
		Long: `Show a bundle's release and assignments, and with -o json its manifest.

` + referenceHelp + `

Who signed it is not asked, so what is shown may be anybody's words: "wherry verify" asks.`,
		Example: "  wherry bundle inspect oci://127.0.0.1:5000/edge/bundles/dev/drone -o json",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			ref, err := oci.ParseReference(args[0])
			if err != nil {
				return cli.Fail(cli.Usage, err, "")
			}
			i, err := publisher.Inspect(cmd.Context(), ref, registry.options())
			if err != nil {
				return referenceFailure(err, ref)
			}
			return cli.Print(cmd.OutOrStdout(), format, i, func(w io.Writer) { inspectTable(w, i) })
		},
	}
	registry.add(cmd)
	cli.OutputFlag(cmd, &format)
	return cmd
}

// deltaText says how large a delta is and what it starts from.
func deltaText(d publisher.Delta) string {
	if d.Base == "" {
		return fmt.Sprintf("%d bytes, from %s, which no newer release here has", d.Size, d.From)
	}
	return fmt.Sprintf("%d bytes, from %s", d.Size, d.Base)
}

func inspectTable(w io.Writer, i *publisher.Inspected) {
	r := i.Release
	fmt.Fprintf(w, "DIGEST\t%s\n", i.Digest)
	fmt.Fprintf(w, "SIGNATURES\t%d (not verified)\n", i.Signatures)
	fmt.Fprintf(w, "RELEASE\t%s of %s %s/%s, for rings: %s\n", r.Tag(), cell(r.Platform), cell(r.Environment), cell(r.ClusterType), cell(orAll(r.Rings)))
	fmt.Fprintf(w, "ISSUED\t%s\n", timeCell(r.IssuedAt))
	fmt.Fprintf(w, "EXPIRES\t%s\n", timeCell(r.ExpiresAt))
	fmt.Fprintf(w, "BASE COMMIT\t%s\n", cell(r.BaseCommit))
	fmt.Fprintf(w, "CONTENT\t%s, %s of %d bytes\n", r.Content.DiffID, cli.Count(r.Content.Files, "file"), r.Content.Size)
	fmt.Fprintf(w, "LAYER\t%s, %d bytes\n", cell(string(i.Manifest.Layers[0].Digest)), i.Manifest.Layers[0].Size)
	for _, d := range i.Deltas {
		fmt.Fprintf(w, "DELTA\t%s, %s\n", d.Digest, deltaText(d))
	}
	fmt.Fprintf(w, "ARTIFACTS\t%d, of %d bytes as far as is known\n\n", r.Artifacts.Count, r.Artifacts.Bytes)
	fmt.Fprintln(w, "ASSIGNMENT\tVERSION\tWORKSPACE\tADAPTER\tPOLICIES\tCONTENT\tHELD SINCE")
	for _, a := range i.Assignments {
		held := ""
		if a.HeldFrom != nil {
			held = heldText(*a.HeldFrom)
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n",
			cell(a.Name), cell(a.Version), cell(a.Workspace), cell(a.Adapter), cell(strings.Join(a.Policies, ",")), a.Content, cell(held))
	}
}
