// Package deltacmd lets a program start itself to make or apply a delta, whose memory goes with the process.
package deltacmd

import (
	"os"

	"github.com/spf13/cobra"

	"github.com/wherry-dev/wherry/bundle/child"
	"github.com/wherry-dev/wherry/bundle/delta"
)

const name = "delta-child"

// Command is the program, with its arguments, by which a program that has the command of New calls delta.Child.
// Nil means that the program does not know where it lies.
func Command() []string { return child.Self(name) }

// New returns the command, which people are not shown. It ends the process. The maker is nil in a program that only
// applies deltas.
func New(maker delta.Maker) *cobra.Command {
	return &cobra.Command{
		Use: name, Short: "Make or apply the delta that standard input describes", Hidden: true, Args: cobra.NoArgs,
		Run: func(*cobra.Command, []string) { os.Exit(delta.Child(os.Stdin, os.Stdout, maker)) },
	}
}
