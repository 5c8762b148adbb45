package main

import (
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"
	"oras.land/oras-go/v2/errdef"

	"github.com/wherry-dev/wherry/airgap"
	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/oci"
	"github.com/wherry-dev/wherry/cmd/internal/cli"
)

func newAirgapCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "airgap",
		Short: "Carry bundles to sites without a network",
		Args:  cobra.NoArgs,
	}
	cmd.AddCommand(newAirgapExportCommand())
	return cmd
}

func newAirgapExportCommand() *cobra.Command {
	var environment, clusterType, from, path string
	var registry registryFlags
	cmd := &cobra.Command{
		Use:   "export --environment E --cluster-type T --from LOCATION -o FILE",
		Short: "Write the newest bundle of a cluster type, with its signature, to a file",
		Long: `Write the newest bundle of a cluster type, with its signature, to a file for "wherry-agent import". The
file is an OCI layout in a tar, and the same each time for the same bundle. Where the platform has trust
documents, it holds all their versions too.`,
		Example: "  wherry airgap export --environment dev --cluster-type drone --from oci://127.0.0.1:5000/edge -o site.tar",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			loc, err := oci.Parse(from)
			if err != nil {
				return cli.Fail(cli.Usage, fmt.Errorf("--from: %w", err), "")
			}
			for flag, name := range map[string]string{"environment": environment, "cluster-type": clusterType} {
				if err := oci.CheckName(name); err != nil {
					return cli.Fail(cli.Usage, fmt.Errorf("--%s: %w", flag, err), "")
				}
			}
			stream := bundle.Stream{Environment: environment, ClusterType: clusterType}
			repo, err := loc.Repository(stream.Repository(), registry.options())
			if err != nil {
				return err
			}
			trust, err := loc.Repository(bundle.TrustRepository, registry.options())
			if err != nil {
				return err
			}
			err = cli.WriteFile(path, func(w io.Writer) error { return airgap.ExportFrom(cmd.Context(), repo, trust, stream, w) })
			if err != nil {
				return exportError(err, loc)
			}
			info, err := os.Stat(path)
			if err != nil {
				return err
			}
			fmt.Fprintf(cmd.ErrOrStderr(), "wrote %s/%s to %s (%d bytes)\n", environment, clusterType, path, info.Size())
			return nil
		},
	}
	cmd.Flags().StringVar(&environment, "environment", "", "the environment's `NAME`")
	cmd.Flags().StringVar(&clusterType, "cluster-type", "", "the cluster type's `NAME`")
	cmd.Flags().StringVar(&from, "from", "", "where the bundle is, `LOCATION` as oci://HOST/PREFIX or oci-layout:DIR")
	cmd.Flags().StringVarP(&path, "output", "o", "", "write to `FILE`, which is replaced")
	cli.NotEmpty(cmd, "output")
	registry.add(cmd)
	for _, f := range []string{"environment", "cluster-type", "from", "output"} {
		_ = cmd.MarkFlagRequired(f)
	}
	return cmd
}

func exportError(err error, from oci.Location) error {
	code, hint := cli.Failed, ""
	switch {
	case errors.As(err, new(*bundle.Refusal)):
		code, hint = cli.Denied, "no site would take it: publish it again with wherry publish --key"
	case errors.Is(err, errdef.ErrNotFound):
		hint = fmt.Sprintf("%q lists what is published", "wherry bundle ls "+from.String())
	case errors.As(err, new(*oci.WithheldError)), errors.Is(err, oci.ErrAuthHost):
		return registryFailure(err, from)
	case errors.Is(err, oci.ErrUnauthorized):
		hint = fmt.Sprintf("run %q", "wherry login "+from.Host)
	}
	return cli.Fail(code, err, hint)
}
