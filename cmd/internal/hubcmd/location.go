package hubcmd

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/wherry-dev/wherry/cmd/internal/cli"
	"github.com/wherry-dev/wherry/hub"
)

// The variables that say which hub where no flag does.
const (
	// dataVariable names the hub's folder.
	dataVariable = "WHERRY_HUB_DATA"
	// databaseVariable is the URL of its database.
	databaseVariable = "WHERRY_HUB_DATABASE"
	// keyVariable names the file with its key.
	keyVariable = "WHERRY_HUB_KEY"
)

// location is which hub a command works on: its folder and, unless the database is in there, the database.
type location struct {
	folder                 string
	database, databaseFile string
	key                    string
}

func (l *location) flags(cmd *cobra.Command) {
	f := cmd.PersistentFlags()
	f.StringVar(&l.folder, "data", cmp.Or(os.Getenv(dataVariable), "hub"), "the hub's `FOLDER`, else $"+dataVariable)
	f.StringVar(&l.database, "database", "", "the `URL` of a PostgreSQL database without a password, such as postgres://hub@db.example/hub, else $"+databaseVariable+"; default a file in the folder")
	f.StringVar(&l.databaseFile, "database-file", "", "a `FILE` with that URL, which may have a password")
	f.StringVar(&l.key, "key", "", "the hub's private key in PEM, a `FILE`, else $"+keyVariable+"; default hub.key in the folder. Hubs with one database have one key")
}

// isNamed reports whether a flag of cmd, or a variable, names the folder or the database.
func (l *location) isNamed(cmd *cobra.Command) bool {
	return cmd.Flags().Changed("data") || cmd.Flags().Changed("database") || cmd.Flags().Changed("database-file") ||
		os.Getenv(dataVariable) != "" || os.Getenv(databaseVariable) != ""
}

// maxURL bounds a file with a database's URL, in bytes.
const maxURL = 64 << 10

// options completes the options of a hub with what the flags and variables say.
func (l location) options(o hub.Options) (hub.Options, error) {
	if l.folder == "" {
		return o, cli.Usagef("--data is empty: it names the hub's folder")
	}
	o.KeyFile = cmp.Or(l.key, os.Getenv(keyVariable))
	switch {
	case l.database != "" && l.databaseFile != "":
		return o, cli.Usagef("--database and --database-file name two databases")
	case l.databaseFile != "":
		data, err := readURL(l.databaseFile)
		if err != nil {
			return o, cli.Fail(cli.Usage, fmt.Errorf("--database-file: %w", err), "expected one line, such as postgres://hub:PASSWORD@db.example/hub")
		}
		o.Database = data
	case l.database != "":
		if hasPassword(l.database) {
			return o, cli.Fail(cli.Usage, errors.New("--database: the URL has a password, which other users of this machine may see in the list of processes"),
				fmt.Sprintf("put the URL into a file and give it with --database-file, or into $%s", databaseVariable))
		}
		o.Database = l.database
	default:
		o.Database = os.Getenv(databaseVariable)
	}
	return o, nil
}

func readURL(file string) (string, error) {
	f, err := os.Open(file)
	if err != nil {
		return "", err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxURL))
	line := strings.TrimSpace(string(data))
	if err == nil && line == "" {
		err = fmt.Errorf("%s is empty", file)
	}
	return line, err
}

// hasPassword reports whether a database's URL has a password, or may have one.
func hasPassword(database string) bool {
	u, err := url.Parse(database)
	if err != nil {
		return strings.Contains(database, "@")
	}
	_, set := u.User.Password()
	return set || u.Query().Has("password") || u.Query().Has("sslpassword")
}

// String returns the hub as messages name it.
func (l location) String() string {
	o, err := l.options(hub.Options{})
	if err != nil || o.Database == "" {
		return l.folder
	}
	return hub.DatabaseName(o.Database)
}

// hasKey reports whether the folder has a hub's key.
func (l location) hasKey() bool {
	_, err := os.Stat(filepath.Join(l.folder, hub.KeyFile))
	return err == nil
}

// isServer reports whether the hub's database is on a server.
func (l location) isServer() bool {
	o, err := l.options(hub.Options{})
	return err == nil && o.Database != ""
}
