package hubcmd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/wherry-dev/wherry/bundle/similar"
	"github.com/wherry-dev/wherry/cmd/internal/cli"
	"github.com/wherry-dev/wherry/hub"
	"github.com/wherry-dev/wherry/hub/store"
)

func newClustersCommand(dir *string) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "clusters",
		Short: "Register the clusters whose reports the hub takes",
	}
	cmd.AddCommand(newClustersAddCommand(dir), newClustersListCommand(dir), newClustersRemoveCommand(dir), newClustersRetireCommand(dir), newClustersUnshareCommand(dir))
	return cmd
}

func newClustersListCommand(dir *string) *cobra.Command {
	return listing[store.Registration]{
		kind:  "clusters",
		short: "List what is registered",
		long:  "List what is registered, and what was retired. How the clusters are is shown by \"wherry get clusters\".",
		read:  registeredAndRetired,
		table: registrationTable,
	}.command(dir)
}

// registeredAndRetired returns both by name.
func registeredAndRetired(ctx context.Context, h *hub.Hub) ([]store.Registration, error) {
	all, err := h.Registrations(ctx)
	if err != nil {
		return nil, err
	}
	retired, err := h.RetiredClusters(ctx)
	all = append(all, retired...)
	slices.SortStableFunc(all, func(a, b store.Registration) int { return strings.Compare(a.Name, b.Name) })
	return all, err
}

func registrationTable(w io.Writer, all []store.Registration) {
	fmt.Fprintln(w, "CLUSTER\tUID\tENVIRONMENT\tTYPE\tRING\tKEY\tREPORTS EVERY\tADDED\tRETIRED")
	for _, r := range all {
		var keys []string
		for _, id := range r.KeyIDs {
			keys = append(keys, id[:12])
		}
		cli.Row(w, r.Name, r.UID, r.Environment, r.Type, r.Ring, strings.Join(keys, ","), r.ExpectedInterval.String(), r.AddedAt.Format(time.DateOnly), retired(r))
	}
}

func retired(r store.Registration) string {
	if r.RetiredAt == nil {
		return ""
	}
	return strings.TrimSuffix(r.RetiredAt.Format(time.DateOnly)+": "+r.RetiredReason, ": ")
}

func newClustersRetireCommand(dir *string) *cobra.Command {
	var reason string
	cmd := &cobra.Command{
		Use:   "retire NAME|UID",
		Short: "End the registration of a cluster that does not exist any more",
		Long: `End the registration of a cluster that does not exist any more. It is not expected to report, its name is
free, and an agent that still has its key is told that it was retired, and why. Its history stays, and
"clusters list" goes on to show it. "clusters add" brings it back.`,
		Example: `  wherry hub clusters retire plant-7 --reason "sold in May"`,
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return withHub(*dir, hub.Options{MustExist: true}, func(h *hub.Hub) error {
				r, err := h.RetireCluster(cmd.Context(), args[0], reason)
				if err != nil {
					return withNearest(cmd.Context(), h, args[0], err)
				}
				what := "retired"
				if r.RetiredAt != nil {
					what = "was retired already"
				}
				cmd.PrintErrf("%s: cluster %s (uid %s) %s\n", *dir, r.Name, r.UID, what)
				return nil
			})
		},
	}
	cmd.Flags().StringVar(&reason, "reason", "", "the `TEXT` that the agent and people are told")
	return cmd
}

func newClustersUnshareCommand(dir *string) *cobra.Command {
	return &cobra.Command{
		Use:   "unshare NAME|UID",
		Short: "Say that one agent alone has a cluster's identity again",
		Long: `Say that one agent alone has a cluster's identity again, which is shown as SharedIdentity while reports have come
from two, as after a disk was copied. See to it first: "wherry-agent enroll --new-identity" on the copy. If
reports show it again, it is marked again. A new key, by "wherry-agent enroll --rotate" on the original, ends
it as well, and has the copy refused.`,
		Example: "  wherry hub clusters unshare plant-7",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return withHub(*dir, hub.Options{MustExist: true}, func(h *hub.Hub) error {
				r, err := h.Unshare(cmd.Context(), args[0])
				if err != nil {
					return withNearest(cmd.Context(), h, args[0], err)
				}
				what := "has one agent again"
				if r.SharedSince == nil && r.Conflicts == 0 {
					what = "had one agent already"
				}
				cmd.PrintErrf("%s: cluster %s (uid %s) %s\n", *dir, r.Name, r.UID, what)
				return nil
			})
		},
	}
}

func newClustersRemoveCommand(dir *string) *cobra.Command {
	return &cobra.Command{
		Use:     "remove NAME|UID",
		Short:   "End a cluster's registration as if it had never been",
		Long:    "End a cluster's registration: its reports are refused from now on as a stranger's, and it is no longer listed.\nIts history stays in the database. For a cluster that existed and does no more, \"retire\" is better.",
		Example: "  wherry hub clusters remove plant-7",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return withHub(*dir, hub.Options{MustExist: true}, func(h *hub.Hub) error {
				removed, err := h.RemoveCluster(cmd.Context(), args[0])
				if err != nil {
					return withNearest(cmd.Context(), h, args[0], err)
				}
				cmd.PrintErrf("%s: cluster %s (uid %s) removed\n", *dir, removed.Name, removed.UID)
				return nil
			})
		},
	}
}

// withNearest gives the error of an unknown cluster a hint with the nearest name or uid.
func withNearest(ctx context.Context, h *hub.Hub, name string, err error) error {
	if !errors.Is(err, store.ErrUnknownCluster) {
		return err
	}
	all, failed := h.Registrations(ctx)
	if failed != nil {
		return err
	}
	var known []string
	for _, r := range all {
		known = append(known, r.Name, r.UID)
	}
	if near := similar.To(name, known); near != "" {
		return cli.Fail(cli.No, err, fmt.Sprintf("did you mean %s?", near))
	}
	return err
}
