package cli

import (
	"os"

	"github.com/spf13/cobra"

	"github.com/wherry-dev/wherry/bundle/child"
	"github.com/wherry-dev/wherry/bundle/delta"
)

const deltaName = "delta-child"

// DeltaCommand is the program, with its arguments, by which a program that has the command of NewDelta calls delta.Child.
// Nil means that the program does not know where it lies.
func DeltaCommand() []string { return child.Self(deltaName) }

// NewDelta returns the command, which people are not shown. It ends the process. The maker is nil in a program that only
// applies deltas.
func NewDelta(maker delta.Maker) *cobra.Command {
	return &cobra.Command{
		Use: deltaName, Short: "Make or apply the delta that standard input describes", Hidden: true, Args: cobra.NoArgs,
		Run: func(*cobra.Command, []string) { os.Exit(delta.Child(os.Stdin, os.Stdout, maker)) },
	}
}
