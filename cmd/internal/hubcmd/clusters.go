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

func newClustersCommand(dir *location) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "clusters",
		Short: "Register the clusters whose reports the hub takes",
	}
	cmd.AddCommand(newClustersAddCommand(dir), newClustersListCommand(dir), newClustersRemoveCommand(dir), newClustersRetireCommand(dir), newClustersUnshareCommand(dir))
	return cmd
}

func newClustersListCommand(dir *location) *cobra.Command {
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
		every := r.ExpectedInterval.String()
		if r.Reporting == store.NotReporting {
			every = store.NotReporting
		}
		cli.Row(w, r.Name, r.UID, r.Environment, r.Type, r.Ring, strings.Join(keys, ","), every, r.AddedAt.Format(time.DateOnly), retired(r))
	}
}

func retired(r store.Registration) string {
	if r.RetiredAt == nil {
		return ""
	}
	return strings.TrimSuffix(r.RetiredAt.Format(time.DateOnly)+": "+r.RetiredReason, ": ")
}

// change changes the registration of the cluster with this name or uid, and prints the outcome that do returns.
func change(cmd *cobra.Command, dir location, name string, do func(*hub.Hub) (c store.Identity, outcome string, err error)) error {
	return withHub(dir, hub.Options{MustExist: true}, func(h *hub.Hub) error {
		c, outcome, err := do(h)
		if err != nil {
			return withNearest(cmd.Context(), h, name, err)
		}
		printCluster(cmd, dir, c, outcome)
		return nil
	})
}

// printCluster prints what has happened to a cluster of the hub in dir.
func printCluster(cmd *cobra.Command, dir location, c store.Identity, outcome string) {
	cmd.PrintErrf("%s: cluster %s (uid %s) %s\n", dir, c.Name, c.UID, outcome)
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
