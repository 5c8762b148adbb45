package main

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

func newHubClustersCommand(dir *string) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "clusters",
		Short: "Register the clusters whose reports the hub takes",
	}
	cmd.AddCommand(newHubClustersAddCommand(dir), newHubClustersListCommand(dir), newHubClustersRemoveCommand(dir), newHubClustersRetireCommand(dir), newHubClustersUnshareCommand(dir))
	return cmd
}

func newHubClustersAddCommand(dir *string) *cobra.Command {
	var r registration
	var request requestFlags
	var replace bool
	var roster string
	cmd := &cobra.Command{
		Use:   "add [NAME] --key FILE|- --uid UID --type TYPE --environment ENV | --from FILE|- | --request FILE|- | --roster DIR",
		Short: "Register a cluster and the key that its agent signs reports with",
		Long: `Register a cluster and the key that its agent signs reports with. The agent prints all of it with
"wherry-agent status -o json": give that with --from, or value by value. A flag is preferred. --request takes
what "wherry-agent enroll --request" wrote, which proves that the agent has the key, and --answer writes what
tells the agent that this is its hub; a request may also replace the key of a registered cluster by a new one.
--roster registers all Cluster objects with a key of an environment's folder.

Registering the same again changes nothing. To change a registration, or to take a new key after an agent
has lost its old one, give --replace; former keys are then refused.`,
		Example: `  wherry-agent status -o json | wherry hub clusters add --from -
  wherry hub clusters add --request plant-7.request --answer plant-7.answer
  wherry hub clusters add plant-7 --uid 4be1c9 --type drone --environment dev --key plant-7.pub`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if request.file != "" {
				return request.register(cmd, *dir, &r, args, replace)
			}
			if roster != "" {
				return addRoster(cmd, *dir, roster, &r, args, replace)
			}
			if request.answer != "" {
				return cli.Usagef("--answer needs --request")
			}
			c, err := r.cluster(cmd, args)
			if err != nil {
				return err
			}
			return withHub(*dir, hub.Options{}, func(h *hub.Hub) error {
				return addCluster(cmd, h, *dir, c, replace)
			})
		},
	}
	r.flags(cmd)
	request.add(cmd)
	cmd.Flags().StringVar(&roster, "roster", "", "register the Cluster objects of this `FOLDER`, in the environment of --environment")
	cmd.MarkFlagsMutuallyExclusive("roster", "request")
	cmd.MarkFlagsMutuallyExclusive("roster", "from")
	cmd.Flags().BoolVar(&replace, "replace", false, "change what is registered for this uid, its key included")
	return cmd
}

func addCluster(cmd *cobra.Command, h *hub.Hub, dir string, c store.Cluster, replace bool) error {
	add := h.AddCluster
	if replace {
		add = h.ReplaceCluster
	}
	changed, err := add(cmd.Context(), c)
	if err != nil {
		return err
	}
	what := "registered"
	if !changed {
		what = "was registered already"
	}
	cmd.PrintErrf("%s: cluster %s (uid %s) %s\n", dir, c.Name, c.UID, what)
	return nil
}

func newHubClustersListCommand(dir *string) *cobra.Command {
	return hubList[store.Registration]{
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

func newHubClustersRetireCommand(dir *string) *cobra.Command {
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

func newHubClustersUnshareCommand(dir *string) *cobra.Command {
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

// withNearest gives the error of a cluster that is not registered the hint of one whose name, or uid, is similar.
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

func newHubClustersRemoveCommand(dir *string) *cobra.Command {
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
