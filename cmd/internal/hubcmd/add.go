package hubcmd

import (
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/wherry-dev/wherry/cmd/internal/cli"
	"github.com/wherry-dev/wherry/hub"
	"github.com/wherry-dev/wherry/hub/store"
	"github.com/wherry-dev/wherry/publisher/roster"
	"github.com/wherry-dev/wherry/scheduler"
)

func newClustersAddCommand(dir *location) *cobra.Command {
	a := administrator{dir: dir}
	var r registration
	var request requestFlags
	var replace bool
	var roster string
	cmd := &cobra.Command{
		Use:   "add [NAME] --key FILE|- --uid UID --type TYPE --environment ENV | --from FILE|- | --request FILE|- | --roster DIR",
		Short: "Register a cluster and its key",
		Long: `Register a cluster and the key that its agent signs reports with. The agent prints all of it with
"wherry-agent status -o json": give that with --from, or value by value. A flag is preferred. --request takes
what "wherry-agent enroll --request" wrote, which proves that the agent has the key, and --answer writes what
tells the agent that this is its hub; a request may also replace the key of a registered cluster by a new one.
--roster registers all Cluster objects of an environment's folder that have a key or "reporting: none". A cluster with
--reporting none sends no reports: it has no key, and gates list it apart.

Registering the same again changes nothing. To change a registration, or to take a new key after an agent
has lost its old one, give --replace; previous keys are then refused.`,
		Example: `  wherry-agent status -o json | wherry hub clusters add --from -
  wherry hub clusters add --request plant-7.request --answer plant-7.answer
  wherry hub clusters add plant-7 --uid 4be1c9 --type drone --environment dev --key plant-7.pub
  wherry hub clusters add --from plant-7.json --hub https://hub.example.com
  wherry hub clusters add cellar --uid 7d20aa --type drone --environment dev --reporting none`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if request.file != "" {
				return request.register(cmd, &a, &r, args, replace)
			}
			if roster != "" {
				return addRoster(cmd, &a, roster, &r, args, replace)
			}
			if request.answer != "" {
				return cli.Usagef("--answer needs --request")
			}
			c, err := r.cluster(cmd, args)
			if err != nil {
				return err
			}
			return a.registrations(cmd, false, func(at registrar) error {
				_, err := a.addCluster(cmd, at, c, nil, replace)
				return err
			})
		},
	}
	a.addTo(cmd)
	r.flags(cmd)
	request.add(cmd)
	cmd.Flags().StringVar(&roster, "roster", "", "register the Cluster objects of this `FOLDER`, in the environment of --environment")
	cmd.MarkFlagsMutuallyExclusive("roster", "request")
	cmd.MarkFlagsMutuallyExclusive("roster", "from")
	cmd.Flags().BoolVar(&replace, "replace", false, "change what is registered for this uid, its key included")
	return cmd
}

// addCluster registers a cluster, and returns the hub's answer to the request if there is one.
func (a *administrator) addCluster(cmd *cobra.Command, at registrar, c store.Cluster, request []byte, replace bool) ([]byte, error) {
	changed, answer, err := at.Register(cmd.Context(), c, request, replace)
	if err != nil {
		return nil, err
	}
	what := "registered"
	if !changed {
		what = "was registered already"
	}
	a.printCluster(cmd, c.Identity, what)
	return answer, nil
}

// addRoster registers the clusters of an environment's folder, but for those that are to report and have no key.
func addRoster(cmd *cobra.Command, a *administrator, folder string, flags *registration, args []string, replace bool) error {
	if flags.environment == "" || len(args) > 0 || flags.uid+flags.keyFile+flags.clusterType != "" || flags.reporting != "expected" {
		return cli.Usagef("--roster needs --environment, and takes NAME, uid, type and key from the objects")
	}
	listed, err := roster.Read(cmd.Context(), folder)
	if err != nil {
		return err
	}
	listed = slices.DeleteFunc(listed, func(c scheduler.Cluster) bool {
		if c.Reporting && c.PublicKey == "" {
			cmd.PrintErrf("%s: cluster %s left out, for it has no publicKey\n", c.Position, c.Name)
		}
		return c.Reporting && c.PublicKey == ""
	})
	if len(listed) == 0 {
		return cli.Fail(cli.No, fmt.Errorf("%s: it has no Cluster object with a key, or without reports", folder), `"wherry roster add" writes them`)
	}
	return a.registrations(cmd, false, func(at registrar) error {
		for _, c := range listed {
			known := store.Cluster{Identity: store.Identity{UID: c.UID, Name: c.Name, Type: c.ClusterType, Ring: c.Ring, Labels: c.Labels}}
			if c.Reporting {
				if known.Key, err = hub.ParseReportKey([]byte(c.PublicKey)); err != nil {
					return fmt.Errorf("%s: cluster %s: %w", c.Position, c.Name, err)
				}
			} else {
				known.Reporting = store.NotReporting
			}
			flags.override(&known, nil)
			if _, err := a.addCluster(cmd, at, known, nil, replace); err != nil {
				return err
			}
		}
		return nil
	})
}
