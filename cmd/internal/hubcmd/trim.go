package hubcmd

import (
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/wherry-dev/wherry/bundle/duration"
	"github.com/wherry-dev/wherry/cmd/internal/cli"
	"github.com/wherry-dev/wherry/hub"
	"github.com/wherry-dev/wherry/hub/store"
	"github.com/wherry-dev/wherry/hub/upkeep"
)

// retentionFlags adds --retention and --history.
func retentionFlags(f *pflag.FlagSet, r *upkeep.Retention) {
	r.Envelopes, r.History = upkeep.DefaultEnvelopes, upkeep.DefaultHistory
	f.Var((*duration.Value)(&r.Envelopes), "retention", "keep signed reports for this `TIME`, such as 90d; 0 keeps all")
	f.Lookup("retention").DefValue = "90d"
	f.Var((*duration.Value)(&r.History), "history", "keep changes for this `TIME`, such as 400d; 0 keeps all")
	f.Lookup("history").DefValue = "400d"
}

// checkRetention returns an error of usage if reports would be kept for longer than the changes that they made.
func checkRetention(r upkeep.Retention) error {
	if r.History > 0 && (r.Envelopes == 0 || r.Envelopes > r.History) {
		return cli.Fail(cli.Usage, errors.New("--retention is longer than --history"),
			"keep changes for at least as long as the reports that they are from; --history 0 keeps all")
	}
	return nil
}

func newTrimCommand(dir *location) *cobra.Command {
	var r upkeep.Retention
	var format string
	cmd := &cobra.Command{
		Use:   "trim",
		Short: "Remove old reports and changes",
		Long: `Remove signed reports, and changes of the history, that are older than the retention. "wherry hub serve" does so
by itself every hour, with the same flags; this command is for other times, such as when a disk is filling up.

The present is never removed, nor are the numbers of reports, by which a repeat is known, nor a report whose
acknowledgement is owed. The history begins then with how each cluster was at that time. The database
file does not become smaller; its free room is used again.`,
		Example: "  wherry hub trim --retention 30d --history 400d",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := checkRetention(r); err != nil {
				return err
			}
			var done store.Trimmed
			err := withHub(*dir, hub.Options{MustExist: true}, func(h *hub.Hub) (err error) {
				done, err = h.Trim(cmd.Context(), r)
				return err
			})
			if err != nil {
				return err
			}
			out := struct {
				Envelopes int64 `json:"envelopes"`
				Changes   int64 `json:"changes"`
			}{done.Envelopes, done.Transitions}
			return cli.Print(cmd.OutOrStdout(), format, out, func(w io.Writer) {
				fmt.Fprintf(w, "removed %d signed reports and %d changes\n", out.Envelopes, out.Changes)
			})
		},
	}
	retentionFlags(cmd.Flags(), &r)
	cli.OutputFlag(cmd, &format)
	return cmd
}
