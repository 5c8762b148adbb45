package agentcmd

import (
	"os"

	"github.com/spf13/cobra"

	"github.com/wherry-dev/wherry/cmd/internal/cli"
)

func newSupportCommand() *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use:   "support-bundle -o FILE",
		Short: "Collect diagnostics without secrets",
		Long: `Collect what those who help with an agent need to know, in a tar with gzip: the version, the configuration, what "doctor"
and "status" say. Keys, tokens and passwords are in no file of it, nor are site values or manifests. Names of assignments are in
it: look through it before you send it.`,
		Example: example("support-bundle --config agent.yaml -o support.tar.gz"),
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, report, err := examined(cmd)
			if err != nil {
				return err
			}
			var s cli.Support
			s.Add("doctor.json", report, nil)
			status, err := c.Status(cmd.Context())
			s.Add("status.json", status, err)
			if c.File != "" {
				text, err := os.ReadFile(c.File)
				if s.AddText("config.yaml", text); err != nil {
					s.Add("config.yaml", nil, err)
				}
			}
			return s.Write(cmd, output)
		},
	}
	cli.OutputSupport(cmd, &output)
	return cmd
}
