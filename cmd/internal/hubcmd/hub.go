// Package hubcmd holds the commands about the clusters of a fleet: wherry hub …, which works on a hub's folder, and wherry
// roster, for platforms without one. Begin with Command.
package hubcmd

import (
	"errors"
	"fmt"
	"io/fs"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/wherry-dev/wherry/bundle/hubapi"
	"github.com/wherry-dev/wherry/cmd/internal/cli"
	"github.com/wherry-dev/wherry/cmd/internal/failure"
	"github.com/wherry-dev/wherry/hub"
	"github.com/wherry-dev/wherry/hub/store"
)

// Command returns the command wherry hub.
func Command() *cobra.Command {
	var dir location
	cmd := &cobra.Command{
		Use:   "hub",
		Short: "Run and manage a hub",
		Long: `Collect compliance reports and show the fleet. A hub is one process and one folder, which holds its
database and its key. The other commands here work on that folder, also while the hub serves; with --hub, "access",
"audit", "clusters" and "tokens" work on the hub at a URL.

With --database the hub keeps its data in PostgreSQL, and the folder has the key alone. Several hubs may serve one database,
on several machines: give all of them the same key.`,
	}
	dir.flags(cmd)
	cmd.AddCommand(
		newAccessCommand(&dir),
		newAuditCommand(&dir),
		newBackupCommand(&dir),
		newClustersCommand(&dir),
		newDoctorCommand(&dir),
		newExportAckCommand(&dir),
		newForwardCommand(&dir),
		newImportCommand(&dir),
		newKeysCommand(&dir),
		newRestoreCommand(&dir),
		newServeCommand(&dir),
		newSupportCommand(&dir),
		newTokensCommand(&dir),
		newTrimCommand(&dir),
		newVerifyCommand(&dir),
	)
	return cmd
}

// withHub opens the hub at dir for the time of use.
func withHub(dir location, o hub.Options, use func(*hub.Hub) error) error {
	o, err := dir.options(o)
	if err != nil {
		return err
	}
	h, err := hub.Open(dir.folder, o)
	if err != nil {
		return wrong(err, dir)
	}
	err = use(h)
	return wrong(errors.Join(err, h.Close()), dir)
}

// WithFolder opens the hub of a folder, which has to exist, for the time of use.
func WithFolder(folder string, use func(*hub.Hub) error) error {
	return withHub(location{folder: folder}, hub.Options{MustExist: true}, use)
}

// wrong gives an error of the hub at dir its exit code and a hint.
func wrong(err error, dir location) error {
	absent := fmt.Sprintf("give its folder with --data, or make a hub with %q", "wherry hub serve")
	if !dir.isServer() && dir.hasKey() {
		absent = fmt.Sprintf("it has a hub's key and no database: if that is on PostgreSQL, give its URL in $%s", databaseVariable)
	}
	writable := fmt.Sprintf("make %s a folder that can be written, or choose another with --data", dir)
	denied := writable
	if dir.isServer() && !errors.As(err, new(*fs.PathError)) {
		denied = "the database's user needs to log in, to write, and to make tables the first time; --database-file and PGPASSFILE give a password"
	}
	return cli.Kinds{
		cli.Is(hub.ErrNoHub, cli.Usage, absent),
		cli.Is(hub.ErrServed, cli.Failed, "end the other one first, or give this one a --data of its own"),
		cli.As[*hubapi.Error](cli.Denied, ""),
		cli.Is(store.ErrCorrupt, cli.Failed, fmt.Sprintf("restore %s from a backup; agents still hold what was not acknowledged", dir)),
		cli.Is(fs.ErrPermission, cli.Failed, denied),
		cli.Is(syscall.EROFS, cli.Failed, writable),
		cli.Is(syscall.ENOTDIR, cli.Failed, writable),
		cli.Is(fs.ErrNotExist, cli.Failed, writable),
		cli.Is(syscall.ENOSPC, cli.Failed, fmt.Sprintf("make room for %s", dir)),
	}.Of(failure.Of(err))
}
