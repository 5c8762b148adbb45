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
		return failure(err, dir)
	}
	err = use(h)
	return failure(errors.Join(err, h.Close()), dir)
}

// WithFolder opens the hub of a folder, which has to exist, for the time of use.
func WithFolder(folder string, use func(*hub.Hub) error) error {
	return withHub(location{folder: folder}, hub.Options{MustExist: true}, use)
}

// registryFailure gives errors about what is registered their exit codes and hints.
func registryFailure(err error) error {
	switch {
	case errors.Is(err, store.ErrExists):
		return cli.Fail(cli.No, err, "give --replace to change what is registered for its uid, or remove the other cluster first")
	case errors.Is(err, store.ErrUnknownCluster):
		return cli.Fail(cli.No, err, fmt.Sprintf("%q shows those that are", "wherry hub clusters list"))
	case errors.Is(err, store.ErrUnknownToken):
		return cli.Fail(cli.No, err, fmt.Sprintf("%q shows those that there are", "wherry hub tokens list"))
	}
	return err
}

// failure gives an error of the hub at dir its exit code and a hint.
func failure(err error, dir location) error {
	var said *cli.Error
	var refused *hubapi.Error
	switch {
	case err == nil || errors.As(err, &said):
		return err
	case errors.Is(err, hub.ErrNoHub) && !dir.isServer() && dir.hasKey():
		return cli.Fail(cli.Usage, err, fmt.Sprintf("it has a hub's key and no database: if that is on PostgreSQL, give its URL in $%s", databaseVariable))
	case errors.Is(err, hub.ErrNoHub):
		return cli.Fail(cli.Usage, err, fmt.Sprintf("give its folder with --data, or make a hub with %q", "wherry hub serve"))
	case errors.Is(err, store.ErrOtherKey):
		return cli.Fail(cli.Usage, err, "give the key of the hub that the database belongs to with --key, or another database")
	case errors.Is(err, hub.ErrNoKey):
		return cli.Fail(cli.Usage, err, "copy hub.key from the folder of a hub that has it, or give it with --key")
	case errors.Is(err, store.ErrInvalid):
		return cli.Fail(cli.Usage, err, "")
	case errors.Is(err, store.ErrExists), errors.Is(err, store.ErrUnknownCluster), errors.Is(err, store.ErrUnknownToken):
		return registryFailure(err)
	case errors.As(err, &refused):
		return cli.Fail(cli.Denied, err, "")
	case errors.Is(err, store.ErrNewer):
		return cli.Fail(cli.Failed, err, "use that version, or a newer one")
	case errors.Is(err, store.ErrUnavailable):
		return cli.Fail(cli.Failed, err, "see whether the database server runs and can be reached from here, and try again; nothing that was acknowledged is lost")
	case errors.Is(err, fs.ErrPermission) && dir.isServer() && !errors.As(err, new(*fs.PathError)):
		return cli.Fail(cli.Failed, err, "the database's user needs to log in, to write, and to make tables the first time; --database-file and PGPASSFILE give a password")
	case errors.Is(err, store.ErrCorrupt):
		return cli.Fail(cli.Failed, err, fmt.Sprintf("restore %s from a backup; agents still hold what was not acknowledged", dir))
	case errors.Is(err, fs.ErrPermission), errors.Is(err, syscall.EROFS), errors.Is(err, syscall.ENOTDIR), errors.Is(err, fs.ErrNotExist):
		return cli.Fail(cli.Failed, err, fmt.Sprintf("make %s a folder that can be written, or choose another with --data", dir))
	case errors.Is(err, syscall.ENOSPC):
		return cli.Fail(cli.Failed, err, fmt.Sprintf("make room for %s", dir))
	}
	return cli.Fail(cli.Failed, err, "")
}
