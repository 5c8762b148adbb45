package cli

import (
	"bytes"
	"encoding/json"
	"io"

	"github.com/spf13/cobra"
)

// command is what manual pages are made of.
type command struct {
	Path     string    `json:"path"`
	Short    string    `json:"short"`
	Help     string    `json:"help"`
	Commands []command `json:"commands,omitempty"`
}

// printCommands prints all commands of a program with their help, as JSON, for the manual pages of packages.
func printCommands(w io.Writer, root *cobra.Command) error {
	var help bytes.Buffer
	root.SetOut(&help)
	defer root.SetOut(w)
	var describe func(cmd *cobra.Command) (command, error)
	describe = func(cmd *cobra.Command) (command, error) {
		help.Reset()
		cmd.InitDefaultHelpFlag()
		if err := cmd.Help(); err != nil {
			return command{}, err
		}
		described := command{Path: cmd.CommandPath(), Short: cmd.Short, Help: help.String()}
		for _, sub := range cmd.Commands() {
			if !sub.IsAvailableCommand() || sub.Name() == "completion" {
				continue
			}
			s, err := describe(sub)
			if err != nil {
				return command{}, err
			}
			described.Commands = append(described.Commands, s)
		}
		return described, nil
	}
	all, err := describe(root)
	if err != nil {
		return err
	}
	return json.NewEncoder(w).Encode(all)
}
