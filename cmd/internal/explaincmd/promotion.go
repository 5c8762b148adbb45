package explaincmd

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/wherry-dev/wherry/bundle/show"
	"github.com/wherry-dev/wherry/cmd/internal/cli"
	"github.com/wherry-dev/wherry/cmd/internal/flags"
	"github.com/wherry-dev/wherry/scheduler/promotion/policy"
)

// newPromotionCommand returns the command wherry explain promotion.
func newPromotionCommand() *cobra.Command {
	var source flags.Source
	var format string
	cmd := &cobra.Command{
		Use:   "promotion [PLATFORM]",
		Short: "Say what has to hold before an environment gets a commit, and its rings a release",
		Long: `Say in words what the PromotionPolicy has for an environment: where its commits come from, what has to hold before one
enters it, and what before a release goes to its next ring. Each rule has the file and line that it is written in, or
is a default. The policy is that of the sources; "wherry gate explain" also says what is missing now.

The exit code is 0, also without a policy; 2 for a mistake in the platform, and 3 if a repository cannot be reached.

` + flags.PlatformHelp,
		Example: `  wherry explain promotion --environment prod
  wherry explain promotion ./prod --environment prod --base ./main -o json`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			place, err := source.Resolve(cmd, args)
			if err != nil {
				return err
			}
			loaded, err := source.Load(cmd, place, "")
			if err != nil {
				return err
			}
			x, err := loaded.Model.ExplainPromotion()
			if err != nil {
				return cli.Fail(cli.Usage, err, "")
			}
			return cli.Print(cmd.OutOrStdout(), format, x, func(w io.Writer) { printPromotion(w, x) })
		},
	}
	source.AddEnvironment(cmd)
	source.AddReplacements(cmd)
	cli.OutputFlag(cmd, &format)
	return cmd
}

func printPromotion(w io.Writer, x *policy.Explanation) {
	environment := show.Line(x.Environment)
	if x.Policy == nil {
		fmt.Fprintf(w, "No PromotionPolicy names environment %s.\n", environment)
	} else {
		fmt.Fprintf(w, "Environment %s is in PromotionPolicy %s (%s).\n", environment, show.Line(x.Policy.Name), show.Line(x.Policy.Position.String()))
	}
	rules := func(title string, rules []policy.Rule) {
		if len(rules) == 0 {
			return
		}
		fmt.Fprintf(w, "\n%s\n\n", title)
		fmt.Fprintln(w, "FIELD\tMEANING\tPLACE")
		for _, r := range rules {
			place := "default"
			if !r.Default {
				place = show.Line(r.Position.String())
			}
			fmt.Fprintf(w, "%s\t%s\t%s\n", r.Field, show.Line(r.Says), place)
		}
	}
	rules("The order:", x.Order)
	rules(fmt.Sprintf("A commit of %s enters %s if all of this holds:", show.Line(x.Below), environment), x.Gate)
	rules("A release goes to the next ring if all of this holds:", x.RingGate)
}
