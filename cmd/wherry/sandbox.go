package main

import (
	"os"

	"github.com/spf13/cobra"

	"github.com/wherry-dev/wherry/publisher/embed/chart/render"
	"github.com/wherry-dev/wherry/publisher/embed/kustomization"
	"github.com/wherry-dev/wherry/publisher/sandbox"
)

// newSandboxChild returns the command by which wherry starts itself to render charts and build kustomizations. It ends the process.
func newSandboxChild() *cobra.Command {
	return &cobra.Command{
		Use: sandbox.Name, Short: "Do the jobs that standard input describes", Hidden: true, Args: cobra.NoArgs,
		Run: func(*cobra.Command, []string) {
			os.Exit(sandbox.Child(os.Stdin, os.Stdout, sandbox.Engines{Chart: render.Do, Kustomization: kustomization.Do}))
		},
	}
}
