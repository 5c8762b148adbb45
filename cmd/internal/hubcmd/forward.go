package hubcmd

import (
	"crypto"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/wherry-dev/wherry/airgap"
	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/diskfile"
	"github.com/wherry-dev/wherry/bundle/oci"
	"github.com/wherry-dev/wherry/bundle/show"
	"github.com/wherry-dev/wherry/cmd/internal/cli"
	"github.com/wherry-dev/wherry/hub"
	"github.com/wherry-dev/wherry/hub/store"
	"github.com/wherry-dev/wherry/hub/upstream"
)

// upper is the flags that name an upper hub.
type upper struct {
	url, key, authorities string
}

func (u *upper) flags(f *pflag.FlagSet) {
	f.StringVar(&u.url, "upstream", "", "forward the signed reports to the hub at this `URL`")
	f.StringVar(&u.key, "upstream-key", "", "with --upstream: that hub's public key in PEM, a `FILE`, which its acknowledgements have to be signed by")
	f.StringVar(&u.authorities, "upstream-tls-ca", "", "with --upstream: authorities that are trusted beside the system's, a `FILE` in PEM")
}

// check returns an error of usage if the flags do not belong together.
func (u upper) check() error {
	switch {
	case u.url == "" && (u.key != "" || u.authorities != ""):
		return cli.Usagef("--upstream-key and --upstream-tls-ca are for --upstream")
	case u.url != "" && u.key == "":
		return cli.Fail(cli.Usage, errors.New("--upstream needs --upstream-key"), `"wherry hub keys show" prints it there`)
	}
	return nil
}

// forwarder returns the forwarder that the flags name.
func (u upper) forwarder(h *hub.Hub, anew bool) (*upstream.Forwarder, error) {
	key, err := readHubKey(u.key)
	if err != nil {
		return nil, err
	}
	client, err := oci.NewHTTPClient(oci.Network{CAFile: u.authorities})
	if err != nil {
		return nil, cli.Fail(cli.Usage, fmt.Errorf("--upstream-tls-ca: %w", err), "")
	}
	f, err := h.Forwarder(u.url, key, client, anew)
	if err != nil {
		return nil, cli.Fail(cli.Usage, err, "--upstream is a URL such as https://hub.example.com")
	}
	return f, nil
}

func readHubKey(file string) (crypto.PublicKey, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, cli.Fail(cli.Usage, fmt.Errorf("--upstream-key: %w", err), "")
	}
	keys, err := bundle.ParsePublicKeys(data)
	if err == nil && len(keys) != 1 {
		err = fmt.Errorf("%d keys in place of one", len(keys))
	}
	if err != nil {
		return nil, cli.Fail(cli.Usage, fmt.Errorf("--upstream-key %s: %w", file, err), `give what "wherry hub keys show" prints at the upper hub`)
	}
	return keys[0], nil
}

// Bounds of a file of reports, which those of package airgap are above.
const (
	maxFileReports = 50_000
	maxFileBytes   = 300 << 20
)

func newForwardCommand(dir *location) *cobra.Command {
	var u upper
	var file, format string
	var after int64
	var anew bool
	cmd := &cobra.Command{
		Use:   "forward {--upstream URL --upstream-key FILE | --to-file FILE}",
		Short: "Forward signed reports to another hub",
		Long: `Forward the signed reports that are kept to another hub: the same bytes that agents have signed. The upper
hub takes them as from the agents, so the clusters have to be registered there with the same keys. "wherry hub
serve --upstream" does the same all the time.

With --upstream it goes on from where it was before, and remembers only what the upper hub has acknowledged
with its signature; --anew forgets that. Reports of clusters that are not known there wait, and are tried again. What is refused for
good is printed, once.

With --to-file it writes a file for "wherry hub import" at the upper hub, and prints a position. The next file may
begin there, with --after. If a file is lost, write it again: importing reports twice changes nothing.

It exits with 0 if everything is forwarded, 5 if some reports wait, 1 if some were refused for good by this run,
and 3 if the upper hub cannot be reached.`,
		Example: `  wherry hub forward --upstream https://hub.example.com --upstream-key upper.pub
  wherry hub forward --to-file /media/usb/reports.tar --after 1024`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			switch {
			case (u.url == "") == (file == ""):
				return cli.Usagef("give --upstream or --to-file")
			case file != "" && anew:
				return cli.Usagef("--anew needs --upstream")
			case file == "" && cmd.Flags().Changed("after"):
				return cli.Usagef("--after is for --to-file")
			}
			if err := u.check(); err != nil {
				return err
			}
			return withHub(*dir, hub.Options{MustExist: true}, func(h *hub.Hub) error {
				if file != "" {
					return forwardToFile(cmd, h, file, store.Position(after))
				}
				return forwardOnce(cmd, h, u, anew, format)
			})
		},
	}
	u.flags(cmd.Flags())
	cmd.Flags().StringVar(&file, "to-file", "", "write the reports to `FILE`, which is replaced")
	cmd.Flags().BoolVar(&anew, "anew", false, "with --upstream: forward all reports that are kept, also those that the upper hub has acknowledged, such as when it has lost its database")
	cmd.Flags().Int64Var(&after, "after", 0, "with --to-file: only reports that were stored after this `POSITION`, as an earlier run has printed it")
	cli.NotEmpty(cmd, "upstream", "upstream-key", "upstream-tls-ca", "to-file")
	cli.OutputFlag(cmd, &format)
	return cmd
}

func forwardOnce(cmd *cobra.Command, h *hub.Hub, u upper, anew bool, format string) error {
	f, err := u.forwarder(h, anew)
	if err != nil {
		return err
	}
	before := f.Status()
	if err := f.Once(cmd.Context()); err != nil {
		hint := oci.CertificateHint(err)
		if hint == "" {
			hint = "see whether the upper hub runs, and whether --upstream-key is its key; what was acknowledged is remembered"
		}
		return cli.Fail(cli.Failed, err, hint)
	}
	s, waiting := f.Status(), 0
	for _, n := range s.Waiting {
		waiting += n
	}
	refused := s.RefusedCount - before.RefusedCount
	err = cli.Print(cmd.OutOrStdout(), format, s, func(w io.Writer) {
		fmt.Fprintf(w, "%d forwarded, %d refused for good, %s waiting\n", s.Forwarded-before.Forwarded, refused, show.Count(waiting, "cluster"))
		rows := s.Refused[max(0, int64(len(s.Refused))-refused):]
		if len(rows) > 0 {
			fmt.Fprintln(w, "CLUSTER\tREPORT\tREASON\tMESSAGE")
		}
		for _, r := range rows {
			cli.Row(w, r.UID, string(r.Report), string(r.Code), r.Message)
		}
	})
	switch {
	case err != nil:
		return err
	case refused > 0:
		return cli.Exit(cli.No)
	case waiting > 0:
		return cli.Exit(cli.NotYet)
	}
	return nil
}

// errFull ends a file that is as large as it may be.
var errFull = errors.New("the file is full")

// forwardToFile writes the reports after a position to a file, and prints the position at its end.
func forwardToFile(cmd *cobra.Command, h *hub.Hub, file string, after store.Position) error {
	var all []store.StoredEnvelope
	size := 0
	err := h.Envelopes(cmd.Context(), after, func(e store.StoredEnvelope) error {
		n := len(all)
		if n > 0 && e.Position != all[n-1].Position && (n >= maxFileReports || size >= maxFileBytes) {
			return errFull
		}
		all, size = append(all, e), size+len(e.Envelope)
		return nil
	})
	full := errors.Is(err, errFull)
	if err != nil && !full {
		return err
	}
	if len(all) == 0 {
		return cli.Fail(cli.No, fmt.Errorf("no report was stored after position %d", after), "")
	}
	envelopes, newest := make([][]byte, 0, len(all)), time.Time{}
	for _, e := range all {
		envelopes = append(envelopes, e.Envelope)
		if e.ReceivedAt.After(newest) {
			newest = e.ReceivedAt
		}
	}
	if err := diskfile.ReplaceBy(file, 0o644, func(w io.Writer) error { return airgap.WriteReports(w, envelopes) }); err != nil {
		return cli.Fail(cli.Failed, fmt.Errorf("write reports: %w", err), "")
	}
	end := all[len(all)-1].Position
	cmd.PrintErrf("%s: %s, received here up to %s\n", file, show.Count(len(all), "report"), show.Time(newest))
	if full {
		cmd.PrintErrf("there are more: write another file with --after %d\n", end)
	}
	_, err = fmt.Fprintln(cmd.OutOrStdout(), end)
	return err
}
