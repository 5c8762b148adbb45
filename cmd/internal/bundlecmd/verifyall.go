package bundlecmd

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/oci"
	"github.com/wherry-dev/wherry/bundle/show"
	"github.com/wherry-dev/wherry/cmd/internal/cli"
	"github.com/wherry-dev/wherry/cmd/internal/failure"
	"github.com/wherry-dev/wherry/publisher/diff/view"
	"github.com/wherry-dev/wherry/publisher/verify"
)

// all verifies all releases of the environment.
func (v *verifying) all(cmd *cobra.Command, loc oci.Location) error {
	one, err := v.verifier(cmd, loc)
	if err != nil {
		return err
	}
	done, err := verify.Environment(loc, v.environment, one)
	if err != nil {
		return failure.Reference(cmd.Context(), err, oci.Reference{Location: loc, Repository: bundle.EnvironmentRepository(v.environment)}, v.registry.Options())
	}
	if err := cli.Print(cmd.OutOrStdout(), v.format, done, func(w io.Writer) { verifiedTable(w, done) }); err != nil {
		return err
	}
	failed, refused := done.Failed()
	switch {
	case refused > 0:
		return cli.Fail(cli.Denied, fmt.Errorf("%d of %s not to be trusted", failed, show.Count(len(done.Bundles), "release")), "")
	case failed > 0:
		return cli.Fail(cli.Failed, fmt.Errorf("%d of %s could not be verified", failed, show.Count(len(done.Bundles), "release")), "")
	}
	cmd.PrintErrf("%s and the record of %s are trusted\n", show.Count(len(done.Bundles), "release"), v.environment)
	return nil
}

func verifiedTable(w io.Writer, done *verify.VerifiedEnvironment) {
	fmt.Fprintln(w, "CLUSTER TYPE\tTRUSTED\tRELEASE\tRINGS\tASSIGNMENTS\tEXPIRES\tPROBLEM")
	for _, b := range done.Bundles {
		if t := b.Bundle; t != nil {
			cli.Row(w, b.ClusterType, "yes", bundle.ReleaseName(t.Number, t.Digest), view.Rings(t.Rings), fmt.Sprint(*t.Assignments), show.Time(t.ExpiresAt), "")
		} else {
			cli.Row(w, b.ClusterType, "no", bundle.ReleaseName(0, b.Digest), "", "", "", b.Error)
		}
	}
}
