package bundlecmd

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/show"
	"github.com/wherry-dev/wherry/cmd/internal/cli"
	"github.com/wherry-dev/wherry/cmd/internal/failure"
	"github.com/wherry-dev/wherry/cmd/internal/flags"
	"github.com/wherry-dev/wherry/publisher/catalog"
	"github.com/wherry-dev/wherry/publisher/diff/view"
)

func newInspectCommand() *cobra.Command {
	var environment, format string
	var registry flags.Registry
	cmd := &cobra.Command{
		Use:   "inspect REF|TYPE",
		Short: "Show the release and assignments of a bundle",
		Long: `Show a bundle's release and assignments, and with -o json its manifest.

Who signed it is not asked, so what is shown may be anybody's words: "wherry verify" asks. TYPE alone is a cluster type of the
environment, at the registry of the settings.

More: wherry help release-names`,
		Example: "  wherry bundle inspect oci://127.0.0.1:5000/edge/bundles/dev/drone -o json",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			s, err := flags.Settings()
			if err != nil {
				return err
			}
			ref, err := flags.BundleArgument(cmd, s, args[0], environment)
			if err != nil {
				return err
			}
			i, err := catalog.Inspect(cmd.Context(), ref, registry.Options())
			if err != nil {
				return failure.Reference(cmd.Context(), err, ref, registry.Options())
			}
			return cli.Print(cmd.OutOrStdout(), format, i, func(w io.Writer) { inspectTable(w, i) })
		},
	}
	flags.EnvironmentFlag(cmd, &environment, "the environment's `NAME`, where the argument is a cluster type")
	registry.AddTo(cmd)
	cli.OutputFlag(cmd, &format)
	return cmd
}

func inspectTable(w io.Writer, i *catalog.Inspected) {
	r := i.Release
	fmt.Fprintf(w, "RELEASE\t%s, %s of %s %s/%s, for rings: %s\n", bundle.ReleaseName(r.Number, i.Digest), r.Tag(), show.Cell(r.Platform), show.Cell(r.Environment), show.Cell(r.ClusterType), show.Cell(view.Rings(r.Rings)))
	fmt.Fprintf(w, "DIGEST\t%s\n", i.Digest)
	fmt.Fprintf(w, "SIGNATURES\t%d (not verified)\n", i.Signatures)
	fmt.Fprintf(w, "ISSUED\t%s\n", show.Time(r.IssuedAt))
	fmt.Fprintf(w, "EXPIRES\t%s, %s\n", show.Time(r.ExpiresAt), expiryText(r.Expiry(time.Now())))
	fmt.Fprintf(w, "BASE COMMIT\t%s\n", show.Cell(r.BaseCommit))
	if text := bundle.MessageOf(i.Manifest); text != "" {
		fmt.Fprintf(w, "MESSAGE\t%s\n", show.Cell(text))
	}
	fmt.Fprintf(w, "CONTENT\t%s, %s of %d bytes\n", r.Content.DiffID, show.Count(r.Content.Files, "file"), r.Content.Size)
	fmt.Fprintf(w, "LAYER\t%s, %d bytes\n", show.Cell(string(i.Manifest.Layers[0].Digest)), i.Manifest.Layers[0].Size)
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
			show.Cell(a.Name), show.Cell(bundle.ShownVersion(a.Version)), show.Cell(a.Workspace), show.Cell(a.Adapter), show.Cell(strings.Join(a.Policies, ",")), a.Content, show.Cell(held))
	}
}

// deltaText is a delta's size and the release that it starts from.
func deltaText(d catalog.Delta) string {
	if d.Base == "" {
		return fmt.Sprintf("%d bytes, from %s, which no newer release here has", d.Size, d.From)
	}
	return fmt.Sprintf("%d bytes, from %s", d.Size, d.Base)
}

// expiryText is an expiry for people.
func expiryText(e bundle.Expiry) string {
	if e.Soon {
		return e.Text + ", soon"
	}
	return e.Text
}

// heldText is the release of a held assignment's content, and the reason why it is no newer.
func heldText(h bundle.Held) string {
	if h.BaseCommit == "" {
		return fmt.Sprintf("sequence %d (%s)", h.Sequence, h.Reason)
	}
	return fmt.Sprintf("sequence %d, commit %s (%s)", h.Sequence, h.BaseCommit, h.Reason)
}
