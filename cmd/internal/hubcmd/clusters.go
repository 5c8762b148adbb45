package hubcmd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/wherry-dev/wherry/bundle/duration"
	"github.com/wherry-dev/wherry/bundle/show"
	"github.com/wherry-dev/wherry/cmd/internal/cli"
	"github.com/wherry-dev/wherry/hub/store"
)

func newClustersCommand(dir *location) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "clusters",
		Short: "Manage registered clusters",
	}
	cmd.AddCommand(newClustersAddCommand(dir), newClustersListCommand(dir), newClustersRemoveCommand(dir), newClustersRetireCommand(dir), newClustersUnshareCommand(dir))
	return cmd
}

func newClustersListCommand(dir *location) *cobra.Command {
	return listing[store.Registration]{
		kind:  "clusters",
		short: "List registered clusters",
		long:  "List what is registered, and what was retired. How the clusters are is shown by \"wherry get clusters\".",
		read:  func(ctx context.Context, at registrar) ([]store.Registration, error) { return at.AllRegistrations(ctx) },
		table: registrationTable,
	}.command(dir)
}

func registrationTable(w io.Writer, all []store.Registration) {
	fmt.Fprintln(w, "CLUSTER\tUID\tENVIRONMENT\tTYPE\tRING\tKEY\tREPORTS EVERY\tADDED\tRETIRED")
	for _, r := range all {
		var keys []string
		for _, id := range r.KeyIDs {
			keys = append(keys, id[:12])
		}
		every := (*duration.Value)(&r.ExpectedInterval).String()
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
func (a *administrator) change(cmd *cobra.Command, name string, do func(registrar) (c store.Identity, outcome string, err error)) error {
	return a.registrations(cmd, true, func(at registrar) error {
		c, outcome, err := do(at)
		if err != nil {
			return withNearest(cmd.Context(), at, name, err)
		}
		a.printCluster(cmd, c, outcome)
		return nil
	})
}

// printCluster prints what has happened to a cluster of the hub.
func (a *administrator) printCluster(cmd *cobra.Command, c store.Identity, outcome string) {
	cmd.PrintErrf("%s: cluster %s (uid %s) %s\n", a.name(), c.Name, c.UID, outcome)
}

// withNearest gives the error of an unknown cluster a hint with the nearest name or uid.
func withNearest(ctx context.Context, at registrar, name string, err error) error {
	if !errors.Is(err, store.ErrUnknownCluster) {
		return err
	}
	all, failed := at.AllRegistrations(ctx)
	if failed != nil {
		return err
	}
	var known []string
	for _, r := range all {
		if r.RetiredAt == nil {
			known = append(known, r.Name, r.UID)
		}
	}
	if near := show.Nearest(name, known); near != "" {
		return cli.Fail(cli.No, err, fmt.Sprintf("did you mean %s?", near))
	}
	return err
}
