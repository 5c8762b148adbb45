// Package sandboxcmd lets a program start itself as a child that renders charts and builds kustomizations.
package sandboxcmd

import (
	"os"

	"github.com/spf13/cobra"

	"github.com/wherry-dev/wherry/bundle/child"
	"github.com/wherry-dev/wherry/publisher/sandbox"
)

// Command is the program, with its argument, by which a program that has the command of New calls sandbox.Child. Nil means
// that the program does not know where it lies.
func Command() []string { return child.Self(sandbox.Name) }

// New returns the command, which people are not shown. It ends the process.
func New() *cobra.Command {
	return &cobra.Command{
		Use: sandbox.Name, Short: "Do the jobs that standard input describes", Hidden: true, Args: cobra.NoArgs,
		Run: func(*cobra.Command, []string) { os.Exit(sandbox.Child(os.Stdin, os.Stdout)) },
	}
}
