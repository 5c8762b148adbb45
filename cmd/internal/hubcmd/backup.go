package hubcmd

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/wherry-dev/wherry/bundle/show"
	"github.com/wherry-dev/wherry/cmd/internal/cli"
	"github.com/wherry-dev/wherry/hub"
	"github.com/wherry-dev/wherry/hub/store"
)

func newBackupCommand(dir *location) *cobra.Command {
	return &cobra.Command{
		Use:   "backup FILE|-",
		Short: "Write the hub to a file, also while it serves",
		Long: `Write the hub's database, as of one moment, and its key to a file, which is replaced, or to standard
output. The hub may serve meanwhile. It takes room for a copy of the database in the hub's folder.

The backup holds the hub's private key and is not encrypted: whoever has it can acknowledge reports as this
hub, and agents would delete them. It holds no secret of an access token. The file gets mode 0600.

For a hub with --database use PostgreSQL's own tools, such as pg_dump or continuous archiving, and keep a
copy of hub.key beside them.`,
		Example: `  wherry hub backup /var/backups/hub.tar.gz
  wherry hub backup - | age -r age1… > hub.tar.gz.age`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if args[0] == "-" && term.IsTerminal(int(os.Stdout.Fd())) {
				return cli.Fail(cli.Usage, errors.New("a backup is no text for a terminal"), "redirect it, or name a file")
			}
			return withHub(*dir, hub.Options{MustExist: true}, func(h *hub.Hub) error {
				size, err := backUp(cmd, h, args[0])
				if errors.Is(err, hub.ErrOnServer) {
					return cli.Fail(cli.Usage, err, "back PostgreSQL up with its own tools, such as pg_dump --format=custom, and keep a copy of hub.key")
				}
				if err == nil && args[0] != "-" {
					cmd.PrintErrf("%s: %s\n", args[0], show.Size(size))
				}
				return err
			})
		},
	}
}

// backUp writes the backup to a file, or to standard output.
func backUp(cmd *cobra.Command, h *hub.Hub, to string) (size int64, err error) {
	if to == "-" {
		return 0, h.Backup(cmd.Context(), os.Stdout) // not the command's, which escapes
	}
	f, err := os.CreateTemp(filepath.Dir(to), "."+filepath.Base(to)+".*") // of mode 0600
	if err != nil {
		return 0, cli.Fail(cli.Failed, err, "choose a folder that can be written")
	}
	defer os.Remove(f.Name()) // gone already if all went well
	w := &counting{Writer: f, progress: cli.NewProgress("backing up to " + filepath.Base(to))}
	err = errors.Join(h.Backup(cmd.Context(), w), f.Sync(), f.Close())
	w.progress.End()
	if err != nil {
		return 0, err
	}
	if err := os.Rename(f.Name(), to); err != nil {
		return 0, cli.Fail(cli.Failed, err, "")
	}
	folder, err := os.Open(filepath.Dir(to))
	if err != nil {
		return 0, cli.Fail(cli.Failed, err, "")
	}
	return w.n, errors.Join(folder.Sync(), folder.Close())
}

// counting counts the bytes that are written.
type counting struct {
	io.Writer
	progress *cli.Progress
	n        int64
}

func (c *counting) Write(b []byte) (int, error) {
	n, err := c.Writer.Write(b)
	c.n += int64(n)
	c.progress.Update(c.n, 0)
	return n, err
}

func newRestoreCommand(dir *location) *cobra.Command {
	var force bool
	cmd := &cobra.Command{
		Use:   "restore FILE|-",
		Short: "Make the hub of a backup",
		Long: `Make the hub that "wherry hub backup" has written, in the folder --data. The whole backup is read and
checked before anything is changed. A hub that is there is replaced with --force only, and not while it serves.

Reports that came after the backup are not in it, and agents have deleted them: the history lacks them, and the
present is right again with the next report of each cluster. Clusters that were registered after the backup
have to be registered again.`,
		Example: `  wherry hub restore /var/backups/hub.tar.gz --data /var/lib/wherry-hub
  wherry hub verify --data /var/lib/wherry-hub`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			o, err := dir.options(hub.Options{})
			if err != nil {
				return err
			}
			if o.Database != "" {
				return cli.Fail(cli.Usage, fmt.Errorf("restore: %w", hub.ErrOnServer), "restore PostgreSQL with its own tools, such as pg_restore, and put hub.key into the folder")
			}
			if o.KeyFile != "" {
				return cli.Usagef("restore takes the key of the backup, and not --key")
			}
			var in io.Reader = cmd.InOrStdin()
			if args[0] != "-" {
				f, err := os.Open(args[0])
				if err != nil {
					return cli.Fail(cli.Usage, err, "")
				}
				defer f.Close()
				in = f
			}
			newest, err := hub.Restore(cmd.Context(), dir.folder, in, force)
			if err != nil {
				return restoreFailure(err, args[0], *dir)
			}
			since := "it has no reports"
			if !newest.IsZero() {
				since = "its newest report is of " + newest.UTC().Format(time.RFC3339)
			}
			cmd.PrintErrf("restored %s: %s\n", dir.folder, since)
			return nil
		},
	}
	cmd.Flags().BoolVar(&force, "force", false, "replace the hub that is there")
	return cmd
}

func restoreFailure(err error, file string, dir location) error {
	switch {
	case errors.Is(err, hub.ErrHubThere):
		return cli.Fail(cli.No, err, "give --force to replace it, or another folder with --data")
	case errors.Is(err, hub.ErrInUse):
		return cli.Fail(cli.Failed, err, "stop the hub and all commands that use it")
	case errors.Is(err, hub.ErrNoBackup):
		return cli.Fail(cli.Usage, fmt.Errorf("%s: %w", file, err), `give a file that "wherry hub backup" has written`)
	case errors.Is(err, store.ErrCorrupt):
		return cli.Fail(cli.Failed, fmt.Errorf("%s: %w", file, err), "take an older backup")
	case errors.Is(err, fs.ErrNotExist):
		return cli.Fail(cli.Failed, err, "")
	}
	return failure(err, dir)
}
