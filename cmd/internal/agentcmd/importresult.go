package agentcmd

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/wherry-dev/wherry/agent/config"
	"github.com/wherry-dev/wherry/bundle/show"
	"github.com/wherry-dev/wherry/cmd/internal/cli"
)

// resultPattern matches the names of results on a medium.
const resultPattern = "RESULT-*.txt"

// resultName is the name of the file in which a cluster says what came of an import, on any file system.
func resultName(cluster string) string { return "RESULT-" + cli.FileName(cluster) + ".txt" }

// inWords are the exit codes of an import for whoever reads the medium at home.
var inWords = map[int]string{
	cli.OK:          "All is well: the cluster has what this medium holds for it, and runs it.",
	cli.No:          "Not all is well: something was not taken, or an assignment has failed.",
	cli.Denied:      "Refused: nothing was changed for this, and what ran before keeps running.",
	cli.NotYet:      "Not finished yet: the release was taken, and the cluster is still getting there.",
	cli.Usage:       "Nothing was taken: there is no usable package.",
	cli.Interrupted: "Interrupted: the next import of this medium goes on from there.",
}

// reportResult writes what came of an import in plain words beside the reports, and returns failed, with its own error if it
// cannot. Without --reports it writes nothing.
func (f *importFlags) reportResult(cmd *cobra.Command, c *config.Config, done imported, failed error) error {
	if f.reports == "" || cmd.Context().Err() != nil {
		return failed
	}
	dir := f.reports
	if info, err := os.Stat(dir); err != nil || !info.IsDir() {
		dir = filepath.Dir(dir)
	}
	if done.status == nil {
		s, err := c.Status(cmd.Context())
		if err != nil {
			return failed // which says that there is no state either
		}
		done.status = &s
	}
	path := filepath.Join(dir, resultName(cmp.Or(done.status.Cluster.Name, done.status.Cluster.UID)))
	err := onMedium(path, func(w io.Writer) error { return writeResult(w, done, failed, time.Now()) }, func(string) error { return nil })
	if err != nil && failed == nil {
		return cli.Fail(cli.Failed, fmt.Errorf("the result was not written: %w", err), "everything else is done; mount the medium so that it can be written")
	}
	return failed
}

// writeResult writes the result of an import, of which failed is the error.
func writeResult(to io.Writer, done imported, failed error, now time.Time) error {
	w := show.NewWriter(to)
	s, e := done.status, &cli.Error{Code: cli.OK}
	if failed != nil && !errors.As(failed, &e) {
		e = &cli.Error{Code: cli.Failed, Err: failed}
	}
	fmt.Fprintf(w, "%s\n\n", cmp.Or(inWords[e.Code], "It failed: the medium, or this machine, is at fault."))
	if e.Err != nil {
		fmt.Fprintf(w, "Why: %s\n", cli.Indented(failed.Error()))
	}
	if e.Hint != "" {
		fmt.Fprintf(w, "What to do: %s\n", cli.Indented(e.Hint))
	}
	fmt.Fprintf(w, "Written at %s, by the clock of this machine.\n\n", now.UTC().Format("2006-01-02 15:04:05 UTC"))
	err := cli.Print(w, "table", nil, func(w io.Writer) {
		writeImport(w, summarize(done))
		writeTable(w, *s, now)
	})
	return errors.Join(err, w.Close())
}
