package main

import (
	"github.com/spf13/cobra"

	"github.com/wherry-dev/wherry/cmd/internal/agentcmd"
)

func newAgentCommand(defaultConfig string) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "agent",
		Short: "Keep a cluster at the newest release that is meant for it",
		Long:  agentcmd.Long,
		Args:  cobra.NoArgs,
		// The program wherry-agent is what people install; this is the same in one program.
		Hidden: true,
	}
	agentcmd.Add(cmd, defaultConfig)
	return cmd
}
