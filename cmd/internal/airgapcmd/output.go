package airgapcmd

import (
	"cmp"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/wherry-dev/wherry/airgap"
	"github.com/wherry-dev/wherry/airgap/export"
	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/show"
	"github.com/wherry-dev/wherry/cmd/internal/cli"
)

// printed is what --format json prints.
type printed struct {
	// Files are the paths that were written; absent with --dry-run.
	Files []string `json:"files,omitempty"`
	// FileBytes is the length of the package, as one file.
	FileBytes int64 `json:"fileBytes"`
	// LeftOutBytes is the sum of what is left out.
	LeftOutBytes int64 `json:"leftOutBytes"`
	airgap.Contents
	Warnings []string `json:"warnings,omitempty"`
}

func leftOutBytes(c airgap.Contents) (total int64) {
	for _, b := range c.LeftOut {
		total += b.Size
	}
	return total
}

func printedOf(plan *export.Plan, files []string) printed {
	return printed{files, plan.Bytes, leftOutBytes(plan.Contents), plan.Contents, plan.Warnings}
}

// print prints the list of contents.
func (x *exporting) print(cmd *cobra.Command, plan *export.Plan, files []string) error {
	p := printedOf(plan, files)
	return cli.Print(cmd.OutOrStdout(), cmp.Or(x.format, "table"), p, func(w io.Writer) {
		fmt.Fprintf(w, "%s in all: %s, %s%s\n\n", show.Size(plan.Bytes), show.Count(len(p.Releases), "release"), artifactCount(p.Contents), leftOut(p.LeftOutBytes))
		cli.Row(w, "RELEASE", "CLUSTER TYPE", "RING", "EXPIRES", "BUNDLE", "BASE")
		for _, r := range p.Releases {
			cli.Row(w, bundle.ReleaseName(r.Number, r.Digest), r.Environment+"/"+r.ClusterType, r.Ring, show.Time(r.ExpiresAt), show.Size(r.Bytes), r.BaseName)
		}
		if len(p.Artifacts) == 0 {
			return
		}
		fmt.Fprintln(w)
		cli.Row(w, "ARTIFACT", "TYPE", "SIZE", "REFERRERS", "FOR")
		for _, a := range p.Artifacts {
			name := a.Repository + ":" + a.Tag
			if a.Tag == "" {
				name = a.Repository + "@" + a.Digest.String()
			}
			referrers := ""
			if a.ReferrerCount > 0 {
				referrers = fmt.Sprintf("%d, %s", a.ReferrerCount, show.Size(a.ReferrerBytes))
			}
			cli.Row(w, name, string(a.Type), show.Size(a.Bytes), referrers, strings.Join(a.UsedBy, ", "))
		}
	})
}

// artifactCount is the number of artifacts, and the platforms that they are taken for.
func artifactCount(c airgap.Contents) string {
	text := show.Count(len(c.Artifacts), "artifact")
	if len(c.Artifacts) > 0 {
		text += " for " + strings.Join(c.ImagePlatforms, " and ")
	}
	if n, bytes := c.Referrers(); n > 0 {
		text += fmt.Sprintf(" with %s (%s)", show.Count(n, "referrer"), show.Size(bytes))
	}
	return text
}

func leftOut(bytes int64) string {
	if bytes == 0 {
		return ""
	}
	return fmt.Sprintf("; %s that the site has are left out", show.Size(bytes))
}

// summary says on standard error what was written, the totals first.
func summary(cmd *cobra.Command, plan *export.Plan, path string, files []string) {
	c := plan.Contents
	what := show.Count(len(c.Releases), "release")
	if len(c.Releases) == 1 {
		r := c.Releases[0]
		what = fmt.Sprintf("release %s of %s/%s", bundle.ReleaseName(r.Number, r.Digest), r.Environment, r.ClusterType)
	}
	if len(c.Artifacts) > 0 {
		what += " and " + artifactCount(c)
	}
	parts := ""
	if len(files) > 1 {
		parts = fmt.Sprintf(" in %s", show.Count(len(files)-2, "part"))
	}
	cmd.PrintErrf("wrote %s to %s%s (%d bytes)%s\n", what, path, parts, plan.Bytes, leftOut(leftOutBytes(c)))
}
