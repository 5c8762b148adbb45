package explaincmd

import (
	"cmp"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/show"
	"github.com/wherry-dev/wherry/cmd/internal/cli"
	"github.com/wherry-dev/wherry/cmd/internal/flags"
	"github.com/wherry-dev/wherry/publisher/diff"
	"github.com/wherry-dev/wherry/publisher/embed"
	"github.com/wherry-dev/wherry/publisher/pack"
	"github.com/wherry-dev/wherry/publisher/platform"
	"github.com/wherry-dev/wherry/publisher/sources"
	"github.com/wherry-dev/wherry/scheduler"
)

// content is the embedded content of an assignment, with its sources.
type content struct {
	Sources []bundle.ContentSource `json:"sources,omitempty"`
	Objects []diff.EmbeddedObject  `json:"objects,omitempty"`
}

// readContent reads the content of an assignment with embedded delivery as publishing would, but asks no registry for its
// images. If it cannot be read, why gets the error.
func (x *question) readContent(cmd *cobra.Command, e *scheduler.Explainer, why *scheduler.Explanation) (c content, err error) {
	source, err := x.source.Options(x.platform, "")
	if err != nil {
		return c, err
	}
	resolver := sources.NewResolver(sources.Options{Timeout: source.Timeout, Mirrors: source.Mirrors, OCI: new(flags.Registry).Options(), Access: x.loaded.Access})
	defer func() { _ = resolver.Close() }() // removes temporary files only
	result := e.Alone(why)
	err = platform.Embed(cmd.Context(), source, x.loaded, result, nil, embed.Options{Resolver: resolver, KeepTags: true}, func() error { return nil })
	if err != nil {
		return c, cli.Fail(cli.Failed, err, "")
	}
	for _, f := range result.ClusterTypes[0].Failures {
		why.Error = f.Err.Error()
	}
	for _, a := range result.ClusterTypes[0].Assignments {
		var files []bundle.File
		for _, f := range a.Files {
			files = append(files, bundle.File{Path: f.Path, Data: f.Data})
		}
		why.Rendered, c.Sources = &a, pack.SourcesOf(a)
		c.Objects = diff.EmbeddedObjects(files, c.Sources)
	}
	return c, nil
}

// maxShown bounds the objects in a table; the JSON form has all.
const maxShown = 200

func (c content) table(w io.Writer) {
	if len(c.Sources) > 0 {
		fmt.Fprintf(w, "\nEmbedded from\n")
	}
	for _, s := range c.Sources {
		revision := strings.TrimPrefix(s.Revision, "sha256:")
		at := cmp.Or(strings.TrimSpace(s.Version+" "+revision), "-")
		fmt.Fprintf(w, "  %s\t%s\t%s\n", show.Cell(s.Type), show.Cell(diff.SourceName(s)), show.Cell(at))
	}
	if len(c.Objects) > 0 {
		fmt.Fprintf(w, "\nEmbedded objects\n")
	}
	for i, o := range c.Objects {
		if i == maxShown {
			fmt.Fprintf(w, "  and %d more\n", len(c.Objects)-maxShown)
			break
		}
		name := strings.TrimPrefix(o.Namespace+"/"+o.Name, "/")
		fmt.Fprintf(w, "  %s\t%s\t%s\t%s\n", show.Cell(o.Kind), show.Cell(name), show.Cell(o.File), show.Cell(strings.TrimSpace(o.Source+" "+o.Revision)))
	}
}
