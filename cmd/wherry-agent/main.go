// Command wherry-agent is the agent: what a cluster or a host needs to keep itself at the newest release for it, and
// no more.
package main

import (
	"os"

	"github.com/wherry-dev/wherry/cmd/internal/agentcmd"
	"github.com/wherry-dev/wherry/cmd/internal/cli"
)

func main() { os.Exit(cli.Main(agentcmd.Program(agentcmd.DefaultConfig), agentcmd.Kinds)) }
