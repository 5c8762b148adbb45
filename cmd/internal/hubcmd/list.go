package hubcmd

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/wherry-dev/wherry/cmd/internal/cli"
	"github.com/wherry-dev/wherry/hub"
)

// listing is the command that lists everything of one kind in a hub's folder.
type listing[T any] struct {
	// kind is the parent command's name, and that of the rows in the JSON.
	kind, short, long string
	read              func(context.Context, *hub.Hub) ([]T, error)
	table             func(io.Writer, []T)
}

func (l listing[T]) command(dir *location) *cobra.Command {
	var format string
	cmd := &cobra.Command{
		Use:     "list",
		Short:   l.short,
		Long:    l.long,
		Example: fmt.Sprintf("  wherry hub %s list -o json", l.kind),
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var rows []T
			err := withHub(*dir, hub.Options{MustExist: true}, func(h *hub.Hub) (err error) {
				rows, err = l.read(cmd.Context(), h)
				return err
			})
			if err != nil {
				return err
			}
			return cli.Print(cmd.OutOrStdout(), format, map[string][]T{l.kind: rows}, func(w io.Writer) { l.table(w, rows) })
		},
	}
	cli.OutputFlag(cmd, &format)
	return cmd
}
