package hubcmd

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/wherry-dev/wherry/bundle/duration"
	"github.com/wherry-dev/wherry/cmd/internal/cli"
	"github.com/wherry-dev/wherry/hub/store"
)

func newAuditCommand(dir *location) *cobra.Command {
	a := administrator{dir: dir}
	format, times := "table", map[string]*string{"since": new(string), "until": new(string)}
	var q store.AuditQuery
	cmd := &cobra.Command{
		Use:   "audit",
		Short: "Show the audit log",
		Long: `Show who has changed what is registered, when and why, the oldest first: clusters that were registered, enrolled,
retired, unshared or removed, tokens that were made or revoked, releases that were sent to the hub, imports of
reports, and sign-ins with access tokens. What is read is not in the log.

The actor is the name of an access token with its id; "local" for a command on the hub's folder; or the uid
of an agent.`,
		Example: `  wherry hub audit --since 7d
  wherry hub audit --action promotion --object prod
  wherry hub audit -o ndjson --hub https://hub.example.com > audit.ndjson`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if _, err := store.ParseAuditQuery(q.Values(), time.Now()); err != nil {
				return cli.Usagef("%w", err)
			}
			for name, into := range map[string]*time.Time{"since": &q.Since, "until": &q.Until} {
				if text := *times[name]; text != "" {
					var err error
					if *into, err = duration.Moment(text, time.Now()); err != nil {
						return cli.Usagef("--%s: %w", name, err)
					}
				}
			}
			all := []store.AuditEntry{}
			err := a.with(cmd, func(of administration) error {
				for {
					page, err := of.AuditLog(cmd.Context(), q)
					all = append(all, page.Entries...)
					if err != nil || page.Next == 0 || q.Before != 0 && page.Next >= q.Before { // the last one is another hub's mistake
						return err
					}
					q.Before = page.Next
				}
			})
			if err != nil {
				return err
			}
			slices.Reverse(all)
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
	cmd.Flags().StringVar(&q.Actor, "actor", "", "only what somebody did whose name has this `TEXT`, whatever the case")
	cmd.Flags().StringVar(&q.Action, "action", "", "only actions that have this `TEXT`, such as approve, revoke or sign-in")
	cmd.Flags().StringVar(&q.Decision, "decision", "", "only decisions about promotion: `ACTION` is approve, reject, override, pause, resume, or any")
	cmd.Flags().StringVar(&q.Object, "object", "", "only what was done to something whose name has this `TEXT`")
	cmd.Flags().StringVar(times["since"], "since", "", "only what happened at or after this `TIME`, RFC 3339, a day, or a duration back from now such as 7d")
	cmd.Flags().StringVar(times["until"], "until", "", "only what happened before this `TIME`")
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

func auditTable(w io.Writer, all []store.AuditEntry) {
	fmt.Fprintln(w, "TIME\tACTOR\tACTION\tOBJECT\tREASON\tDETAIL")
	for _, e := range all {
		cli.Row(w, e.At.UTC().Format(time.RFC3339), e.Actor, e.Action, e.Object, e.Reason, e.Detail)
	}
}
