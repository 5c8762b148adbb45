// Command wherry brings workloads to fleets of clusters: it schedules, renders, signs and publishes
// them, and holds the hub.
package main

import (
	"os"
	"slices"
	"strings"
	"time"
	_ "time/tzdata" // schedules of gates name time zones, also where the machine has none

	"github.com/spf13/cobra"

	"github.com/wherry-dev/wherry/bundle/delta"
	"github.com/wherry-dev/wherry/cmd/internal/airgapcmd"
	"github.com/wherry-dev/wherry/cmd/internal/authorcmd"
	"github.com/wherry-dev/wherry/cmd/internal/bundlecmd"
	"github.com/wherry-dev/wherry/cmd/internal/cli"
	"github.com/wherry-dev/wherry/cmd/internal/configcmd"
	"github.com/wherry-dev/wherry/cmd/internal/explaincmd"
	"github.com/wherry-dev/wherry/cmd/internal/failure"
	"github.com/wherry-dev/wherry/cmd/internal/fleetcmd"
	"github.com/wherry-dev/wherry/cmd/internal/hubcmd"
	"github.com/wherry-dev/wherry/cmd/internal/installcmd"
	"github.com/wherry-dev/wherry/cmd/internal/promotecmd"
	"github.com/wherry-dev/wherry/cmd/internal/releasecmd"
	"github.com/wherry-dev/wherry/cmd/internal/rolloutcmd"
	"github.com/wherry-dev/wherry/cmd/internal/trustcmd"
)

func main() { os.Exit(cli.Main(newRootCommand(), failure.Everywhere)) }

// How long commands may go on after an interrupt, so that those that only read end within a second, and a publisher
// within ten.
const (
	stopReading    = 800 * time.Millisecond
	stopPublishing = 9 * time.Second
)

func newRootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:   "wherry",
		Short: "Bring workloads to fleets of clusters, often offline",
		Args:  cobra.NoArgs,
	}
	root.AddCommand(
		// One line per command, sorted.
		airgapcmd.New(),
		bundlecmd.Command(),
		newCodeownersCommand(),
		fleetcmd.Compare(),
		configcmd.Command(),
		configcmd.Context(),
		cli.NewDelta(delta.Make),
		newDemoCommand(),
		fleetcmd.Describe(),
		bundlecmd.Diff(),
		promotecmd.Doctor(),
		fleetcmd.Drift(),
		authorcmd.Edit(),
		fleetcmd.Events(),
		explaincmd.Command(),
		authorcmd.Format(),
		promotecmd.Gate(),
		fleetcmd.Get(),
		fleetcmd.History(),
		hubcmd.Command(),
		newImportCommand(),
		authorcmd.Init(),
		installcmd.Command(),
		newKeysCommand(),
		newLintCommand(),
		newLoginCommand(),
		newLogoutCommand(),
		authorcmd.New(),
		releasecmd.Plan(),
		promotecmd.Promote(),
		releasecmd.Publish(),
		newRegistryCommand(),
		authorcmd.Rename(),
		newRenderCommand(),
		authorcmd.Remove(),
		bundlecmd.Releases(),
		newRolloutCommand(),
		hubcmd.Roster(),
		newSandboxChild(),
		newScheduleCommand(),
		newSchemaCommand(),
		releasecmd.Sign(),
		newSimulateCommand(),
		promotecmd.Support(),
		trustcmd.Command(),
		bundlecmd.Verify(),
		cli.NewVersionCommand(),
	)
	root.AddCommand(newTopics()...)
	group(root)
	cli.SectionUsage(root)
	for _, cmd := range root.Commands() {
		switch cmd.Name() {
		case "render", "lint", "plan", "explain", "schedule", "gate", "compare", "describe", "drift", "events", "get", "history":
			cli.EndsWithin(stopReading, cmd)
		case "publish", "promote":
			cli.EndsWithin(stopPublishing, cmd)
		}
	}
	return root
}

// newRolloutCommand returns wherry rollout: what brings releases through rings, and how far they are.
func newRolloutCommand() *cobra.Command {
	cmd := releasecmd.Rollout()
	cmd.AddCommand(rolloutcmd.Commands()...)
	cmd.AddCommand(fleetcmd.Rollout()...)
	return cmd
}

// groups are the sections of the list of commands. Commands of none of them are listed at the end.
var groups = []struct{ id, title, commands string }{
	{"author", "Define and review a platform:", "codeowners config diff edit explain fmt import init lint new plan rename render rm schedule schema"},
	{"publish", "Publish:", "airgap bundle doctor gate promote publish registry releases rollout sign support-bundle verify"},
	{"fleet", "Install agents and watch the fleet:", "compare describe drift events get history hub install roster simulate"},
	{"access", "Keys and access:", "context keys login logout trust"},
}

// group sorts the commands into their groups.
func group(root *cobra.Command) {
	for _, g := range groups {
		root.AddGroup(&cobra.Group{ID: g.id, Title: g.title})
		for _, cmd := range root.Commands() {
			if slices.Contains(strings.Fields(g.commands), cmd.Name()) {
				cmd.GroupID = g.id
			}
		}
	}
}
