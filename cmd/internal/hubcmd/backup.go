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

	"github.com/wherry-dev/wherry/bundle/diskfile"
	"github.com/wherry-dev/wherry/bundle/show"
	"github.com/wherry-dev/wherry/cmd/internal/cli"
	"github.com/wherry-dev/wherry/hub"
	"github.com/wherry-dev/wherry/hub/store"
)

func newBackupCommand(dir *location) *cobra.Command {
	return &cobra.Command{
		Use:   "backup FILE|-",
		Short: "Back up a hub to a file",
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
	w := &counting{progress: cli.NewProgress("backing up to " + filepath.Base(to))}
	var failed error
	err = diskfile.ReplaceBy(to, 0o600, func(f io.Writer) error {
		w.Writer = f
		failed = h.Backup(cmd.Context(), w)
		return failed
	})
	w.progress.End()
	if err != nil && failed == nil {
		err = cli.Fail(cli.Failed, err, "choose a folder that can be written")
	}
	return w.n, err
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
	var o hub.RestoreOptions
	cmd := &cobra.Command{
		Use:   "restore FILE|-",
		Short: "Restore a hub from a backup",
		Long: `Restore a hub from a file of "wherry hub backup" into the folder --data. The whole backup is read and checked
before anything is changed. A hub that is there is replaced with --force only, and not while it serves.

A token that was revoked after the backup is not revoked in it. If the hub that is replaced can be read, its
revocations hold. Else all tokens of the backup are refused, for access and for enrollment, until you have
revoked those that must not come back ("wherry hub access revoke", "wherry hub tokens revoke") and give
--accept-tokens: with FILE, or later without. Agents' keys do not wait.

Reports that came after the backup are not in it, and agents have deleted them; each cluster's present is right
again with its next report. Register clusters that came after the backup again, and retire those that went.

More: wherry help hub-backup`,
		Example: `  wherry hub restore /var/backups/hub.tar.gz --data /var/lib/wherry-hub
  wherry hub restore --accept-tokens --data /var/lib/wherry-hub
  wherry hub verify --data /var/lib/wherry-hub`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			at, err := dir.options(hub.Options{})
			if err != nil {
				return err
			}
			if at.Database != "" {
				return cli.Fail(cli.Usage, fmt.Errorf("restore: %w", hub.ErrOnServer),
					"restore PostgreSQL with its own tools, such as pg_restore, put hub.key into the folder, and revoke again what was revoked after the backup")
			}
			if len(args) == 0 {
				return acceptTokens(cmd, *dir, o)
			}
			if at.KeyFile != "" {
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
			done, err := hub.Restore(cmd.Context(), dir.folder, in, o)
			if err != nil {
				if errors.Is(err, hub.ErrNoBackup) || errors.Is(err, store.ErrCorrupt) {
					err = fmt.Errorf("%s: %w", args[0], err)
				}
				return wrong(cli.Kinds{
					cli.Is(hub.ErrHubThere, cli.No, "give --force to replace it, or another folder with --data"),
					cli.Is(hub.ErrInUse, cli.Failed, "stop the hub and all commands that use it"),
					cli.Is(hub.ErrNoBackup, cli.Usage, `give a file that "wherry hub backup" has written`),
					cli.Is(store.ErrCorrupt, cli.Failed, "take an older backup"),
					cli.Is(fs.ErrNotExist, cli.Failed, ""),
				}.Of(err), *dir)
			}
			reportRestored(cmd, dir.folder, done)
			return nil
		},
	}
	cmd.Flags().BoolVar(&o.Force, "force", false, "replace the hub that is there")
	cmd.Flags().BoolVar(&o.AcceptTokens, "accept-tokens", false, "accept the backup's tokens although some may have been revoked after it; without FILE, those of a restored hub that wait")
	return cmd
}

// acceptTokens ends the wait of the tokens of a restored hub.
func acceptTokens(cmd *cobra.Command, dir location, o hub.RestoreOptions) error {
	if !o.AcceptTokens || o.Force {
		return cli.Usagef("restore needs FILE, or --accept-tokens alone")
	}
	return withHub(dir, hub.Options{MustExist: true}, func(h *hub.Hub) error {
		n, err := h.AcceptTokens(cmd.Context())
		if err == nil {
			cmd.PrintErrf("%s: %s accepted\n", dir, show.Count(n, "token"))
		}
		return err
	})
}

func reportRestored(cmd *cobra.Command, folder string, done hub.Restored) {
	since := "it has no reports"
	if !done.Newest.IsZero() {
		since = "its newest report is of " + done.Newest.UTC().Format(time.RFC3339)
	}
	cmd.PrintErrf("restored %s from the backup of %s: %s\n", folder, done.BackupAt.UTC().Format(time.RFC3339), since)
	if done.Revoked > 0 {
		cmd.PrintErrf("%s revoked after the backup stay revoked\n", show.Count(done.Revoked, "token"))
	}
	if done.Waiting > 0 {
		cmd.PrintErrf("%s refused for now: some may have been revoked after the backup\nhint: see \"wherry hub access list\" and \"wherry hub tokens list\", revoke those, and run \"wherry hub restore --accept-tokens --data %s\"\n",
			show.Count(done.Waiting, "token"), folder)
	}
}
