package main

import (
	"errors"
	"fmt"
	"log/slog"
	"net"

	"github.com/spf13/cobra"

	"github.com/wherry-dev/wherry/airgap/registry"
	"github.com/wherry-dev/wherry/bundle/oci"
	"github.com/wherry-dev/wherry/cmd/internal/cli"
)

func newRegistryCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "registry", Short: "Run a small registry"}
	cmd.AddCommand(newRegistryServeCommand())
	return cmd
}

func newRegistryServeCommand() *cobra.Command {
	var addr string
	var insecure, verbose bool
	cmd := &cobra.Command{
		Use:   "serve DIR",
		Short: "Serve an OCI registry from a folder",
		Long: `Serve an OCI registry from a folder until interrupted, for demonstrations and small sites. Its location
is printed once it listens.

It has no users, no passwords and no TLS: it listens on this machine's own addresses only, unless
--insecure-any says otherwise. Bundles are signed, so whoever reaches it may delete or withhold them, but
cannot forge any.`,
		Example: "  wherry registry serve ./registry --addr 127.0.0.1:5000",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			host, _, err := net.SplitHostPort(addr)
			if err != nil {
				return cli.Fail(cli.Usage, fmt.Errorf("--addr: %w", err), "it looks like 127.0.0.1:5000; port 0 takes a free one")
			}
			if !insecure && !oci.IsLoopback(host) {
				return cli.Fail(cli.Usage, fmt.Errorf("--addr %s: other machines can reach it, and the registry lets everybody write", addr),
					"listen on 127.0.0.1, or give --insecure-any")
			}
			if args[0] == "" {
				return cli.Usagef("DIR is empty: it names the registry's folder")
			}
			level := slog.LevelWarn
			if verbose {
				level = slog.LevelDebug
			}
			log := slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), &slog.HandlerOptions{Level: level}))
			reg, err := registry.Open(args[0], registry.Options{Log: log})
			if err != nil {
				return cli.Fail(cli.Failed, err, "the folder must exist or be creatable, and be writable")
			}
			l, err := cli.Listen("addr", addr)
			if err != nil {
				return errors.Join(err, reg.Close())
			}
			if _, err := fmt.Fprintf(cmd.OutOrStdout(), "oci://%s\n", l.Addr()); err != nil {
				return errors.Join(err, l.Close(), reg.Close())
			}
			return reg.Serve(cmd.Context(), l)
		},
	}
	cmd.Flags().StringVar(&addr, "addr", "127.0.0.1:5000", "the `ADDRESS` to listen on; port 0 takes a free one")
	cmd.Flags().BoolVar(&insecure, "insecure-any", false, "listen on an address that other machines can reach")
	cmd.Flags().BoolVarP(&verbose, "verbose", "v", false, "log every request")
	return cmd
}
