// Package configcmd holds the commands about the settings of commands: wherry config, which shows them with their origins,
// and wherry context, which changes a person's contexts. Package publisher/settings does the work. Begin with Command.
package configcmd

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/wherry-dev/wherry/bundle/show"
	"github.com/wherry-dev/wherry/cmd/internal/cli"
	"github.com/wherry-dev/wherry/cmd/internal/flags"
	"github.com/wherry-dev/wherry/publisher/settings"
)

// Command returns the command wherry config.
func Command() *cobra.Command {
	cmd := &cobra.Command{Use: "config", Short: "Show the settings of commands", Args: cobra.NoArgs}
	cmd.AddCommand(newViewCommand())
	return cmd
}

// viewed is what config view prints. Its JSON form is an interface.
type viewed struct {
	Platform string         `json:"platform,omitempty"` // the folder; empty outside a platform repository
	Settings []settings.Row `json:"settings"`
}

func newViewCommand() *cobra.Command {
	var format string
	cmd := &cobra.Command{
		Use:   "view",
		Short: "Show every setting, its value and its origin",
		Long: `Show every setting that holds in the current folder, its value, and the flag, variable, file and line or context
that gives it.

Flags override environment variables, which override wherry.yaml, which overrides the context in use and then the
Platform object. Secrets are not shown: keys are names of files, and URLs are without credentials.`,
		Example: "  wherry config view\n  wherry config view -o json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			s, err := flags.Settings()
			if err != nil {
				return err
			}
			v := viewed{Settings: s.Rows()}
			if s.Platform != nil {
				v.Platform = s.Platform.Dir
				v.Settings[0] = environmentRow(s, v.Settings[0])
			}
			return cli.Print(cmd.OutOrStdout(), format, v, func(w io.Writer) { viewTable(w, v) })
		},
	}
	cli.OutputFlag(cmd, &format)
	return cmd
}

// environmentRow returns the row of the environment that a command would take here.
func environmentRow(s *settings.Settings, row settings.Row) settings.Row {
	if at, err := s.Locate(""); err == nil && at.Environment != "" {
		return settings.Row{Key: row.Key, Value: at.Environment, Origin: at.Because}
	}
	return row
}

func viewTable(w io.Writer, v viewed) {
	if v.Platform == "" {
		fmt.Fprint(w, "No platform repository is around the current folder.\n\n")
	} else {
		fmt.Fprintf(w, "Platform: %s\n\n", show.Line(v.Platform))
	}
	fmt.Fprintln(w, "SETTING\tVALUE\tORIGIN")
	for _, r := range v.Settings {
		cli.Row(w, r.Key, r.Value, r.Origin)
	}
}
