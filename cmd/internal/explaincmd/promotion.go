package explaincmd

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/wherry-dev/wherry/bundle/show"
	"github.com/wherry-dev/wherry/cmd/internal/cli"
	"github.com/wherry-dev/wherry/cmd/internal/flags"
	"github.com/wherry-dev/wherry/scheduler/promotion"
)

// newPromotionCommand returns the command wherry explain promotion.
func newPromotionCommand() *cobra.Command {
	var source flags.Source
	var format string
	cmd := &cobra.Command{
		Use:   "promotion [PLATFORM]",
		Short: "Explain the promotion policy in words",
		Long: `Explain the PromotionPolicy of an environment in words: where its commits come from, what must hold before one enters it, and
what must hold before a release enters its next ring. Each rule has its file and line, or is a default. "wherry gate
explain" also says what is missing now.

Exit codes: 0 also without a policy, 2 a mistake in the platform, 3 a repository cannot be reached.

More: wherry help promoting, sources`,
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

func printPromotion(w io.Writer, x *promotion.Explanation) {
	environment := show.Line(x.Environment)
	if x.Policy == nil {
		fmt.Fprintf(w, "No PromotionPolicy names environment %s.\n", environment)
	} else {
		fmt.Fprintf(w, "Environment %s is in PromotionPolicy %s (%s).\n", environment, show.Line(x.Policy.Name), show.Line(x.Policy.Position.String()))
	}
	rules := func(title string, rules []promotion.Rule) {
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
			fmt.Fprintf(w, "%s\t%s\t%s\n", r.Field, show.Line(r.Meaning), place)
		}
	}
	rules("The order:", x.Order)
	rules(fmt.Sprintf("A commit of %s enters %s if all of this holds:", show.Line(x.Below), environment), x.Gate)
	rules("A release goes to the next ring if all of this holds:", x.RingGate)
}
