package cli

import (
	"fmt"
	"io"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"
)

// Version returns the module's version as the go command recorded it: v1.2.3 for an installed release,
// (devel) for a build from a work tree.
func Version() string {
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return info.Main.Version
	}
	return "(devel)"
}

// UserAgent returns the name of a program for servers. A build that is no release has only the commit as its version, which
// saves bytes in each request.
func UserAgent(program string) string { return program + "/" + short(Version()) }

// short returns the commit of a version such as v0.0.0-20261122035811-aca199daaddb+dirty, and other versions as they are.
func short(version string) string {
	stem, _, _ := strings.Cut(version, "+")
	if parts := strings.Split(stem, "-"); len(parts) > 2 && len(parts[len(parts)-1]) == 12 {
		return parts[len(parts)-1]
	}
	return version
}

// NewVersionCommand returns the version command of both binaries.
func NewVersionCommand() *cobra.Command {
	var format string
	var commands bool
	cmd := &cobra.Command{
		Use:     "version",
		Short:   "Print the version",
		Example: "  wherry version -o json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if commands {
				return printCommands(cmd.OutOrStdout(), cmd.Root())
			}
			v := struct {
				Version  string `json:"version"`
				Go       string `json:"go"`
				Platform string `json:"platform"`
			}{Version(), runtime.Version(), runtime.GOOS + "/" + runtime.GOARCH}
			return Print(cmd.OutOrStdout(), format, v, func(w io.Writer) {
				fmt.Fprintf(w, "%s\t%s\t%s\n", v.Version, v.Go, v.Platform)
			})
		},
	}
	OutputFlag(cmd, &format)
	cmd.Flags().BoolVar(&commands, "commands", false, "print all commands with their help as JSON, for manual pages")
	_ = cmd.Flags().MarkHidden("commands")
	return cmd
}
