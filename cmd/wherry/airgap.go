package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"
	"oras.land/oras-go/v2/errdef"

	"github.com/wherry-dev/wherry/airgap"
	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/oci"
	"github.com/wherry-dev/wherry/bundle/show"
	"github.com/wherry-dev/wherry/cmd/internal/cli"
	"github.com/wherry-dev/wherry/cmd/internal/flags"
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
	var environment, clusterType, from, path, allowExpired string
	var registry flags.Registry
	cmd := &cobra.Command{
		Use:   "export [--environment E] --cluster-type T [--from LOCATION] -o FILE",
		Short: "Write the newest bundle of a cluster type, with its signature, to a file",
		Long: `Write the newest bundle of a cluster type, with its signature, to a file for "wherry-agent import". The
file is an OCI layout in a tar, and the same each time for the same bundle. Where the platform has trust
documents, it holds all their versions too.

A release that has expired is refused with exit code 4, since no agent takes it that does not have it yet. With
--allow-expired REASON it is written all the same, such as for an agent that had taken it before; the file then
holds REASON, which "wherry-agent import" shows. A release that expires soon is written with a warning.`,
		Example: "  wherry airgap export --environment dev --cluster-type drone --from oci://127.0.0.1:5000/edge -o site.tar",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			s, err := flags.Settings()
			if err != nil {
				return err
			}
			loc, err := flags.Location(s, "from", from)
			if err != nil {
				return err
			}
			if environment, err = flags.Environment(cmd, s, environment); err != nil {
				return err
			}
			for flag, name := range map[string]string{"environment": environment, "cluster-type": clusterType} {
				if err := flags.CheckName(flag, name); err != nil {
					return err
				}
			}
			stream := bundle.Stream{Environment: environment, ClusterType: clusterType}
			repo, err := loc.Repository(stream.Repository(), registry.Options())
			if err != nil {
				return err
			}
			trust, err := loc.Repository(bundle.TrustRepository, registry.Options())
			if err != nil {
				return err
			}
			now := time.Now()
			var done airgap.Exported
			err = cli.WriteFile(path, func(w io.Writer) (err error) {
				done, err = airgap.ExportFrom(cmd.Context(), repo, trust, stream, w, airgap.Options{Now: now, AllowExpired: allowExpired})
				return err
			})
			if err != nil {
				if ref := (oci.Reference{Location: loc, Repository: stream.Repository()}); errors.Is(err, errdef.ErrNotFound) {
					return flags.ReferenceFailure(cmd.Context(), err, ref, registry.Options())
				}
				return exportError(err, loc)
			}
			expiry := done.Release.Expiry(now)
			switch {
			case expiry.Expired:
				cmd.PrintErrf("warning: release %s %s: only agents that have it already take it\n", done.Name(), expiry.Text)
			case expiry.Soon:
				cmd.PrintErrf("warning: release %s expires %s: it has to be imported by %s\n", done.Name(), expiry.Text, show.Time(done.Release.ExpiresAt))
			}
			info, err := os.Stat(path)
			if err != nil {
				return err
			}
			fmt.Fprintf(cmd.ErrOrStderr(), "wrote release %s of %s/%s to %s (%d bytes)\n", done.Name(), environment, clusterType, path, info.Size())
			return nil
		},
	}
	flags.EnvironmentFlag(cmd, &environment, "the environment's `NAME`")
	cmd.Flags().StringVar(&clusterType, "cluster-type", "", "the cluster type's `NAME`")
	cmd.Flags().StringVar(&from, "from", "", "where the bundle is, `LOCATION` as oci://HOST/PREFIX or oci-layout:DIR")
	cmd.Flags().StringVarP(&path, "output", "o", "", "write to `FILE`, which is replaced")
	cmd.Flags().StringVar(&allowExpired, "allow-expired", "", "write a release that has expired, and `REASON` with it")
	cli.NotEmpty(cmd, "output", "allow-expired")
	registry.AddTo(cmd)
	_ = cmd.RegisterFlagCompletionFunc("cluster-type", flags.CompleteClusterTypes)
	for _, f := range []string{"cluster-type", "output"} {
		_ = cmd.MarkFlagRequired(f)
	}
	return cmd
}

func exportError(err error, from oci.Location) error {
	code, hint := cli.Failed, ""
	var refusal *bundle.Refusal
	switch {
	case errors.As(err, &refusal) && refusal.Reason == bundle.Expired:
		code, hint = cli.Denied, "publish the environment again, which renews the release; --allow-expired REASON writes this one all the same"
	case refusal != nil:
		code, hint = cli.Denied, "no site would take it: publish it again with wherry publish --key"
	case errors.As(err, new(*oci.WithheldError)), errors.Is(err, oci.ErrAuthHost):
		return flags.RegistryFailure(err, from)
	case errors.Is(err, oci.ErrUnauthorized):
		hint = fmt.Sprintf("run %q", "wherry login "+from.Host)
	}
	return cli.Fail(code, err, hint)
}
