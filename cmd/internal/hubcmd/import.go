package hubcmd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"

	"github.com/wherry-dev/wherry/bundle/oci/archive"

	"github.com/spf13/cobra"

	"github.com/wherry-dev/wherry/airgap"
	"github.com/wherry-dev/wherry/bundle/hubapi"
	"github.com/wherry-dev/wherry/bundle/oci"
	"github.com/wherry-dev/wherry/cmd/internal/cli"
	"github.com/wherry-dev/wherry/cmd/internal/failure"
	"github.com/wherry-dev/wherry/cmd/internal/flags"
	"github.com/wherry-dev/wherry/hub"
	"github.com/wherry-dev/wherry/hub/store"
)

// imported is a file and the outcome for its reports.
type imported struct {
	File string `json:"file"`
	hub.ImportResult
}

func newImportCommand(dir *location) *cobra.Command {
	var format string
	var registry flags.Registry
	cmd := &cobra.Command{
		Use:   "import FILE|FOLDER|LOCATION…",
		Short: "Import reports from media or a registry",
		Long: `Store the reports that "wherry-agent reports export" wrote, or those that the agents of all registered
clusters have pushed to a registry (--report-registry). The rules are those of reports over HTTP: a
report is stored if a key that is registered for its cluster signed it, repeats change nothing, and the
other reports are stored whatever becomes of one. Of a folder, such as a medium, all files of reports are taken.

What a registry holds is fetched once, and acknowledged there, beside it; agents delete what is
acknowledged. Run it as often as the present should be known, such as every quarter of an hour.

It exits with 0 if all reports are stored, 4 if some were signed by nobody registered, and 1 if others
were refused. "wherry hub export-ack" writes the acknowledgements for the way back.`,
		Example: `  wherry hub import /media/usb && wherry hub export-ack -o /media/usb/ack.tar
  wherry hub import oci://registry.example/edge`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			var list struct {
				Files []imported `json:"files"`
			}
			args, err := reportFiles(args)
			if err != nil {
				return err
			}
			failed := withHub(*dir, hub.Options{MustExist: true}, func(h *hub.Hub) error {
				for _, file := range args {
					result, err := importFrom(cmd.Context(), h, file, registry.Options())
					if err == nil || len(result.Clusters) > 0 {
						list.Files = append(list.Files, imported{file, result})
					}
					if err != nil {
						return err
					}
				}
				return nil
			})
			if len(list.Files) == 0 {
				return failed
			}
			// What came before a file that failed is stored, and said.
			if err := cli.Print(cmd.OutOrStdout(), format, list, func(w io.Writer) { importTable(w, list.Files) }); err != nil {
				return errors.Join(failed, err)
			}
			return cmp.Or(failed, refusedReports(cmd.ErrOrStderr(), list.Files))
		},
	}
	cli.OutputFlag(cmd, &format)
	registry.AddTo(cmd)
	return cmd
}

// reportFiles returns args with the files of reports in a folder in its place.
func reportFiles(args []string) (files []string, err error) {
	for _, arg := range args {
		if info, err := os.Stat(arg); err != nil || !info.IsDir() {
			files = append(files, arg)
			continue
		}
		listed, err := archive.List(archive.OS{}, arg)
		if err != nil {
			return nil, cli.Fail(cli.Failed, err, "")
		}
		before := len(files)
		for _, l := range listed {
			if l.Kind == archive.KindReports {
				files = append(files, l.Name)
			}
		}
		if len(files) == before {
			return nil, cli.Fail(cli.Usage, fmt.Errorf("%s has no file of reports", arg), `"wherry-agent reports export -o FOLDER" writes one`)
		}
	}
	return files, nil
}

// importFrom imports the reports of a file, or of a location.
func importFrom(ctx context.Context, h *hub.Hub, from string, opts oci.Options) (hub.ImportResult, error) {
	loc, err := oci.Parse(from)
	if err != nil {
		if strings.HasPrefix(from, "oci:") {
			return hub.ImportResult{}, cli.Fail(cli.Usage, err, "")
		}
		return importFile(ctx, h, from)
	}
	if loc.Dir != "" { // one that nobody has mounted is no layout without reports
		if _, err := os.Stat(loc.Dir); err != nil {
			return hub.ImportResult{}, cli.Fail(cli.Usage, err, "agents make the folder when they push their first report: is it mounted here, and is this its name?")
		}
	}
	store, err := loc.Open(opts)
	if err != nil {
		return hub.ImportResult{}, cli.Fail(cli.Usage, err, "")
	}
	result, err := h.Collect(ctx, from, store)
	if err != nil {
		err = failure.At(err, loc)
	}
	return result, err
}

func importFile(ctx context.Context, h *hub.Hub, file string) (hub.ImportResult, error) {
	var unread error
	result, err := h.ImportEach(ctx, file, func(take func([]byte) error) error {
		var failed error
		unread = airgap.EachReport(file, func(envelope []byte) error { failed = take(envelope); return failed })
		if failed != nil {
			unread = nil // it is the hub that failed
		}
		return cmp.Or(failed, unread)
	}, store.ViaMedia)
	switch {
	case unread == nil:
	case errors.Is(unread, archive.ErrDamaged):
		err = cli.Fail(cli.Failed, unread, cli.DamagedHint)
	case errors.Is(unread, airgap.ErrFormat):
		err = cli.Fail(cli.Usage, unread, `give a file that "wherry-agent reports export" wrote`)
	case errors.Is(unread, fs.ErrNotExist):
		err = cli.Fail(cli.Usage, unread, "")
	default:
		err = cli.Fail(cli.Failed, unread, "")
	}
	return result, err
}

func importTable(w io.Writer, all []imported) {
	fmt.Fprintln(w, "FILE\tCLUSTER\tNEW\tKNOWN\tREFUSED")
	for _, i := range all {
		refused := len(i.Rejected)
		for _, c := range i.Clusters {
			cli.Row(w, i.File, c.Name, fmt.Sprint(c.Accepted), fmt.Sprint(c.Duplicates), fmt.Sprint(c.Rejected))
			refused -= c.Rejected
		}
		if refused > 0 || len(i.Clusters) == 0 {
			cli.Row(w, i.File, "", "0", "0", fmt.Sprint(refused)) // of no cluster that is registered
		}
	}
}

// refusedReports prints why reports were refused, once for all with the same reason, and returns the exit code.
func refusedReports(w io.Writer, all []imported) error {
	type kind struct {
		file, cluster string
		reason        hubapi.Code
	}
	var kinds []kind
	alike := map[kind][]hubapi.Rejection{}
	code := cli.OK
	for _, i := range all {
		for _, r := range i.Rejected {
			k := kind{i.File, r.Cluster, r.Reason}
			if alike[k] == nil {
				kinds = append(kinds, k)
			}
			alike[k] = append(alike[k], r)
		}
		if len(i.Rejected) > 0 {
			code = max(code, cli.No)
		}
		if i.Untrusted() {
			code = cli.Denied
		}
		for _, c := range i.Clusters {
			if c.Left > 0 {
				fmt.Fprintf(w, "%s: %s: %d more to take: import again\n", i.File, c.Name, c.Left)
			}
		}
	}
	for _, k := range kinds {
		first := alike[k][0]
		fmt.Fprintf(w, "%s: %d refused as %s: %s\n", k.file, len(alike[k]), k.reason, first.Message)
	}
	if code == cli.OK {
		return nil
	}
	return cli.Exit(code)
}
