package cli

import (
	"fmt"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// rareAnnotation marks flags that help lists in a section of their own.
const rareAnnotation = "wherry.dev/rare"

// Rare has help list these flags of cmd after the others, as rarely used ones. Names that cmd does not have are passed
// over.
func Rare(cmd *cobra.Command, names ...string) {
	for _, name := range names {
		if f := cmd.Flags().Lookup(name); f != nil {
			if f.Annotations == nil {
				f.Annotations = map[string][]string{}
			}
			f.Annotations[rareAnnotation] = []string{"true"}
		}
	}
}

// IsRare reports whether Rare was called for a flag.
func IsRare(f *pflag.Flag) bool { return len(f.Annotations[rareAnnotation]) > 0 }

// SectionUsage has the usage of root and its subcommands list rarely used flags in a section of their own, at the end.
func SectionUsage(root *cobra.Command) {
	write := root.UsageFunc()
	root.SetUsageFunc(func(cmd *cobra.Command) error {
		rare := pflag.NewFlagSet(cmd.Name(), pflag.ContinueOnError)
		cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
			if IsRare(f) && !f.Hidden {
				rare.AddFlag(f)
			}
		})
		hide := func(hidden bool) { rare.VisitAll(func(f *pflag.Flag) { f.Hidden = hidden }) }
		hide(true)
		err := write(cmd)
		hide(false)
		if err == nil && rare.HasFlags() {
			_, err = fmt.Fprintf(cmd.OutOrStderr(), "\nRarely used flags:\n%s", rare.FlagUsages())
		}
		return err
	})
}
