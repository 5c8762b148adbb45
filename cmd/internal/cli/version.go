package cli

import (
	"fmt"
	"io"
	"runtime"
	"runtime/debug"

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

// NewVersionCommand returns the version command of both binaries.
func NewVersionCommand() *cobra.Command {
	var format string
	cmd := &cobra.Command{
		Use:     "version",
		Short:   "Print the version",
		Example: "  wherry version -o json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
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
	return cmd
}
