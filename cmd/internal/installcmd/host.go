package installcmd

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/wherry-dev/wherry/bundle/diskfile"
	"github.com/wherry-dev/wherry/cmd/internal/cli"
	"github.com/wherry-dev/wherry/deploy"
)

func newHostCommand() *cobra.Command {
	var root string
	var hostChanges bool
	parts := strings.Join(deploy.HostParts(), "|")
	cmd := &cobra.Command{
		Use:   "host {" + parts + "} [--root FOLDER]",
		Short: "Print or write systemd units",
		Long: `Print the systemd units of a part of wherry, the configuration that they read, and what else a host needs for it: for an
agent the rule that mounts media with the label WHERRY, for a hub its user. With --root they are written below that
folder, / being this host.

A configuration that is there stays as it is. The programs are looked for in /usr/bin and /usr/local/bin; the packages
wherry-agent and wherry-hub bring them and the same files.`,
		Example: `  wherry install host agent
  wherry install host hub --root /tmp/image
  wherry install host agent --host-changes --root /tmp/image`,
		Args: cobra.ExactArgs(1), ValidArgs: deploy.HostParts(),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := cobra.OnlyValidArgs(cmd, args); err != nil {
				return cli.Usagef("unknown part %q (known: %s)", args[0], strings.Join(deploy.HostParts(), ", "))
			}
			if hostChanges && args[0] != "agent" {
				return cli.Usagef("--host-changes is about the agent, not the %s", args[0])
			}
			files, start := deploy.Host(args[0], hostChanges)
			if root == "" {
				return printHost(cmd.OutOrStdout(), files)
			}
			if info, err := os.Stat(root); err != nil || !info.IsDir() {
				return cli.Fail(cli.Usage, fmt.Errorf("--root %s is not a folder", root), "make it first, or give / for this host")
			}
			if err := writeHost(cmd.OutOrStdout(), root, files); err != nil {
				return cli.Fail(cli.Failed, err, "")
			}
			config := slices.IndexFunc(files, func(f deploy.HostFile) bool { return f.Config })
			cmd.PrintErrf("next: edit %s, and run %s\n", files[config].Path, start)
			return nil
		},
	}
	cmd.Flags().StringVar(&root, "root", "", "write the files below this `FOLDER`, such as / or the root of an image, and print their names")
	cmd.Flags().BoolVar(&hostChanges, "host-changes", false, "let the agent's unit change the host itself, for the adapters ansible and zarf")
	cli.NotEmpty(cmd, "root")
	_ = cmd.MarkFlagDirname("root")
	return cmd
}

// printHost prints files as "systemctl cat" does.
func printHost(w io.Writer, files []deploy.HostFile) error {
	for i, f := range files {
		if i > 0 {
			fmt.Fprintln(w)
		}
		if _, err := fmt.Fprintf(w, "# %s\n%s", f.Path, f.Data); err != nil {
			return err
		}
	}
	return nil
}

// writeHost writes the files below root, and prints the paths of those that it has changed.
func writeHost(w io.Writer, root string, files []deploy.HostFile) error {
	for _, f := range files {
		path := filepath.Join(root, f.Path)
		before, err := os.ReadFile(path)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		if err == nil && (f.Config || bytes.Equal(before, f.Data)) {
			continue
		}
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := diskfile.Replace(path, 0o644, f.Data); err != nil {
			return err
		}
		if _, err := fmt.Fprintln(w, path); err != nil {
			return err
		}
	}
	return nil
}
