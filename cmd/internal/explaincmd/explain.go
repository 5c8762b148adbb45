// Package explaincmd holds the command wherry explain: the package scheduler explains from sources, publisher/catalog from
// a published bundle. Begin with Command.
package explaincmd

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/wherry-dev/wherry/bundle/lazyregexp"
	"github.com/wherry-dev/wherry/cmd/internal/cli"
	"github.com/wherry-dev/wherry/cmd/internal/flags"
	"github.com/wherry-dev/wherry/docs"
	"github.com/wherry-dev/wherry/publisher/catalog"
	"github.com/wherry-dev/wherry/scheduler"
)

// Command returns the command wherry explain.
func Command() *cobra.Command {
	x := &question{}
	cmd := &cobra.Command{
		Use:   "explain [PLATFORM] TYPE/TARGET [KEY] | CODE | REASON",
		Short: "Explain an assignment, value, code or reason",
		Long: `Explain why a deployment target is on a cluster type or not: each policy with the terms of its selectors, the ConfigMaps of its
configuration in merge order, its adapter, and its errors. TARGET is the full name, WORKLOAD-TARGET.

  with KEY          where the value of a configuration key comes from
  with --cluster    the site values of a cluster and where they come from
  with --from       a published bundle explains itself, without PLATFORM
  CODE or REASON    what a finding or a state means and what to do

Values that look like secrets are masked. "wherry explain promotion" explains the promotion policy.
The exit code is 1 if the target is not on the cluster type, or the key has no value.

More: wherry help sources, release-names`,
		Example: `  wherry explain shop/till-test
  wherry explain shop/till-test LOG_LEVEL -e dev
  wherry explain shop/till-test --cluster plant-7
  wherry explain shop/till-test dns --cluster plant-7
  wherry explain ./dev shop/till-test --environment dev --base ./main
  wherry explain shop/till-test --environment dev --from oci://127.0.0.1:5000/edge --key cosign.pub
  wherry explain promotion --environment prod
  wherry explain W1203
  wherry explain NotOurs`,
		Args: cobra.MaximumNArgs(3),
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case len(args) == 0:
				return cmd.Help()
			case len(args) > 1 || strings.Contains(args[0], "/"):
				return x.explain(cmd, args)
			case findingCode.MatchString(args[0]):
				return x.printCode(cmd, args[0])
			case docs.IsReason(args[0]):
				return x.printReason(cmd, args[0])
			}
			return cli.Fail(cli.Usage, fmt.Errorf("unknown command or code %q", args[0]), cli.HelpHint(cmd))
		},
		ValidArgsFunction: x.source.CompleteAssignments,
	}
	x.addFlags(cmd)
	x.addCluster(cmd)
	for _, old := range []*cobra.Command{newAssignmentCommand(), newConfigCommand(), newNoAssignmentCommand()} {
		old.Hidden = true
		cmd.AddCommand(old)
	}
	cmd.AddCommand(newPromotionCommand())
	return cmd
}

// findingCode is the form of the codes that "wherry lint" gives.
var findingCode = lazyregexp.New(`^[A-Za-z][0-9]+$`)

// explain answers about [PLATFORM] TYPE/TARGET [KEY]. A KEY has no slash, unlike TYPE/TARGET.
func (x *question) explain(cmd *cobra.Command, args []string) error {
	pair := len(args) - 1
	if !strings.Contains(args[pair], "/") {
		pair--
	}
	if pair > 1 || pair == 1 && x.from != "" || pair == 0 && len(args) > 2 {
		usage := "[PLATFORM] TYPE/TARGET [KEY]"
		if x.from != "" {
			usage = "TYPE/TARGET [KEY] with --from"
		}
		return cli.Fail(cli.Usage, fmt.Errorf("expected %s", usage), cli.HelpHint(cmd))
	}
	var slash bool
	if x.clusterType, x.target, slash = strings.Cut(args[pair], "/"); !slash || x.clusterType == "" || x.target == "" || strings.Contains(x.target, "/") {
		return cli.Fail(cli.Usage, fmt.Errorf("%q is not TYPE/TARGET", args[pair]), cli.HelpHint(cmd))
	}
	x.rest = args[pair+1:]
	if x.from != "" {
		s, err := flags.Settings()
		if err != nil {
			return err
		}
		x.trust.Default(s)
		if !strings.Contains(x.from, "/bundles/") {
			if x.source.Environment, err = flags.Environment(cmd, s, x.source.Environment); err != nil {
				return err
			}
		}
		return x.released(cmd, func(cmd *cobra.Command, r *catalog.Released) error {
			if x.cluster != "" {
				return x.releasedSite(cmd, r)
			}
			if len(x.rest) > 0 {
				return x.releasedConfig(cmd, r)
			}
			return x.line(cmd, r, true)
		})
	}
	place, err := x.source.Resolve(cmd, args[:pair])
	if err != nil {
		return err
	}
	x.platform = place
	return x.fromSources(cmd, func(cmd *cobra.Command, e *scheduler.Explainer) error {
		if x.cluster != "" {
			return x.site(cmd, e)
		}
		if len(x.rest) > 0 {
			return x.config(cmd, e)
		}
		return x.pair(cmd, e, true)
	})
}
