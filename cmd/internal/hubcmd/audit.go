package hubcmd

import (
	"encoding/json"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/wherry-dev/wherry/bundle/duration"
	"github.com/wherry-dev/wherry/cmd/internal/cli"
	"github.com/wherry-dev/wherry/hub/store"
)

// auditPage is the number of entries that are read at once.
const auditPage = 1000

func newAuditCommand(dir *location) *cobra.Command {
	a := administrator{dir: dir}
	format, since := "table", ""
	cmd := &cobra.Command{
		Use:   "audit",
		Short: "Show the audit log",
		Long: `Show who has changed what is registered, when and why, the oldest first: clusters that were registered, enrolled,
retired, unshared or removed, tokens that were made or revoked, releases that were sent to the hub, imports of
reports, and sign-ins with access tokens. What is read is not in the log.

The actor is the name of an access token with its id; "local" for a command on the hub's folder; or the uid
of an agent.`,
		Example: `  wherry hub audit --since 7d
  wherry hub audit -o ndjson --hub https://hub.example.com > audit.ndjson`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			from, err := sinceOf(since, time.Now())
			if err != nil {
				return err
			}
			all := []store.AuditEntry{}
			err = a.with(cmd, func(of administration) error {
				for after := int64(0); ; {
					page, err := of.AuditLog(cmd.Context(), after, auditPage)
					if err != nil || len(page) == 0 {
						return err
					}
					for _, e := range page {
						if !e.At.Before(from) {
							all = append(all, e)
						}
					}
					last := page[len(page)-1].Position
					if last <= after {
						return nil // another hub's mistake
					}
					after = last
				}
			})
			if err != nil {
				return err
			}
			if format == "ndjson" {
				enc := json.NewEncoder(cmd.OutOrStdout())
				enc.SetEscapeHTML(false)
				for _, e := range all {
					if err := enc.Encode(e); err != nil {
						return err
					}
				}
				return nil
			}
			return cli.Print(cmd.OutOrStdout(), format, store.AuditList{Entries: all}, func(w io.Writer) { auditTable(w, all) })
		},
	}
	a.addTo(cmd)
	formats := []string{"table", "json", "yaml", "ndjson"}
	cmd.Flags().VarP(&oneOf{&format, formats}, "output", "o", "print as `FORMAT`, table, json, yaml or ndjson")
	cmd.Flags().StringVar(&since, "since", "", "only what happened at or after this `TIME`, RFC 3339 or a duration back from now such as 7d")
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(formats, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

// oneOf is the value of a flag that takes one of some words.
type oneOf struct {
	value *string
	known []string
}

func (o *oneOf) String() string { return *o.value }
func (o *oneOf) Type() string   { return "format" }

// Set takes one of the words.
func (o *oneOf) Set(s string) error {
	for _, k := range o.known {
		if s == k {
			*o.value = s
			return nil
		}
	}
	return fmt.Errorf("must be table, json, yaml or ndjson")
}

func sinceOf(s string, now time.Time) (time.Time, error) {
	if s == "" {
		return time.Time{}, nil
	}
	if t, err := time.Parse(time.RFC3339, s); err == nil {
		return t, nil
	}
	d, err := duration.Parse(s)
	if err != nil {
		return time.Time{}, cli.Usagef("--since %.40q is neither a time such as 2026-03-01T12:00:00Z nor a duration such as 7d", s)
	}
	return now.Add(-d), nil
}

func auditTable(w io.Writer, all []store.AuditEntry) {
	fmt.Fprintln(w, "TIME\tACTOR\tACTION\tOBJECT\tREASON\tDETAIL")
	for _, e := range all {
		cli.Row(w, e.At.UTC().Format(time.RFC3339), e.Actor, e.Action, e.Object, e.Reason, e.Detail)
	}
}
