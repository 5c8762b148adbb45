package hubcmd

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/wherry-dev/wherry/cmd/internal/cli"
)

// listing is the command that lists everything of one kind at a hub.
type listing[T any] struct {
	// kind is the parent command's name, and that of the rows in the JSON.
	kind, short, long string
	read              func(context.Context, registrar) ([]T, error)
	table             func(io.Writer, []T)
}

func (l listing[T]) command(dir *location) *cobra.Command {
	a := administrator{dir: dir}
	var format string
	cmd := &cobra.Command{
		Use:     "list",
		Short:   l.short,
		Long:    l.long,
		Example: fmt.Sprintf("  wherry hub %s list -o json\n  wherry hub %s list --hub https://hub.example.com", l.kind, l.kind),
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var rows []T
			err := a.registrations(cmd, true, func(at registrar) (err error) {
				rows, err = l.read(cmd.Context(), at)
				return err
			})
			if err != nil {
				return err
			}
			return cli.Print(cmd.OutOrStdout(), format, map[string][]T{l.kind: rows}, func(w io.Writer) { l.table(w, rows) })
		},
	}
	a.addTo(cmd)
	cli.OutputFlag(cmd, &format)
	return cmd
}
