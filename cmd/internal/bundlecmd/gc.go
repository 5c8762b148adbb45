package bundlecmd

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/wherry-dev/wherry/bundle/oci"
	"github.com/wherry-dev/wherry/bundle/show"
	"github.com/wherry-dev/wherry/cmd/internal/cli"
	"github.com/wherry-dev/wherry/cmd/internal/failure"
	"github.com/wherry-dev/wherry/cmd/internal/flags"
	"github.com/wherry-dev/wherry/publisher/garbage"
)

// collecting holds the flags of bundle gc.
type collecting struct {
	registry flags.Registry
	options  garbage.Options
	keepFor  string
	dryRun   bool
	format   string
}

func newGCCommand() *cobra.Command {
	var c collecting
	cmd := &cobra.Command{
		Use:   "gc [LOCATION]",
		Short: "Delete releases that are not needed",
		Long: `Delete what is not needed at LOCATION, oci://HOST/PREFIX or oci-layout:DIR: old releases and records with their
signatures, releases that waited for signatures when a newer one was accepted, and remains of interrupted
publications. The list is printed first. You can interrupt and repeat it, also while somebody publishes.

It keeps the newest --keep of each, everything younger than --keep-for, what the kept records and the tags latest and of
rings name, trust documents, pauses, and unknown tags. Decisions are deleted once the environment below has had 100
records with other commits.

A registry has to allow deletion, and frees the space at its own garbage collection. A folder frees it at once, except for
blobs of the last hour. The exit code is 3 if LOCATION has other environments and not that of --environment.

More: wherry help registries`,
		Example: `  wherry bundle gc oci://127.0.0.1:5000/edge --dry-run
  wherry bundle gc oci-layout:./out --environment dev --keep 3 --keep-for 0`,
		Args: cobra.MaximumNArgs(1),
		RunE: c.run,
	}
	f := cmd.Flags()
	flags.EnvironmentFlag(cmd, &c.options.Environment, "the environment `NAME` only")
	f.IntVar(&c.options.Keep, "keep", garbage.DefaultKeep, "keep the newest `N` releases of each cluster type, and records of each environment")
	f.StringVar(&c.keepFor, "keep-for", "7d", "keep what is younger than this `TIME` in any case; with 0 --keep alone counts")
	f.BoolVar(&c.dryRun, "dry-run", false, "print the list, and delete nothing")
	c.registry.AddTo(cmd)
	cli.OutputFlag(cmd, &c.format)
	return cmd
}

func (c *collecting) run(cmd *cobra.Command, args []string) (err error) {
	loc, _, err := flags.LocationArgument(args)
	if err != nil {
		return err
	}
	if c.options.Environment != "" {
		if err := flags.CheckName("environment", c.options.Environment); err != nil {
			return err
		}
	}
	if c.options.Keep < 1 {
		return cli.Usagef("--keep %d: the newest one is always kept", c.options.Keep)
	}
	if c.keepFor != "0" {
		if c.options.KeepFor, err = flags.ParseValidity("keep-for", c.keepFor); err != nil {
			return err
		}
	}
	c.options.OCI = c.registry.Options()
	found, err := garbage.Collect(cmd.Context(), loc, c.options)
	if err != nil {
		return listFailure(err, loc)
	}
	return c.carryOut(cmd, found, loc)
}

// carryOut deletes the garbage. It prints a table before that, and JSON or YAML afterwards, with the deleted items.
func (c *collecting) carryOut(cmd *cobra.Command, found *garbage.Collection, loc oci.Location) error {
	list := func() error {
		return cli.Print(cmd.OutOrStdout(), c.format, found, func(w io.Writer) { garbageTable(w, found) })
	}
	if len(found.Repositories) == 0 {
		cmd.PrintErrf("no bundles at %s\n", loc)
	}
	for _, r := range found.Repositories {
		if len(r.Foreign) > 0 {
			cmd.PrintErrf("left alone in %s, not wherry's: %s\n", r.Repository, show.Cell(strings.Join(r.Foreign, ", ")))
		}
	}
	if c.dryRun || c.format == "table" {
		if err := list(); err != nil {
			return err
		}
	}
	all, _ := found.Count()
	if c.dryRun {
		cmd.PrintErrf("%s to delete%s, nothing was deleted (--dry-run)\n", show.Count(all, "manifest"), freed(found))
		return nil
	}
	err := found.Delete(cmd.Context())
	if c.format != "table" {
		if err := list(); err != nil {
			return err
		}
	}
	_, deleted := found.Count()
	if err != nil {
		cmd.PrintErrf("%d of %s deleted\n", deleted, show.Count(all, "manifest"))
		return failure.At(err, loc, cli.Is(errors.ErrUnsupported, cli.Failed,
			`the registry does not delete: allow it there (distribution: storage.delete.enabled), or leave it to the registry's own retention; see "wherry help registries"`))
	}
	cmd.PrintErrf("%s deleted%s\n", show.Count(deleted, "manifest"), freed(found))
	return nil
}

func freed(found *garbage.Collection) string {
	if found.Blobs == nil || found.Blobs.Blobs == 0 {
		return ""
	}
	return fmt.Sprintf(", with %s of %d bytes", show.Count(found.Blobs.Blobs, "blob"), found.Blobs.Bytes)
}

func garbageTable(w io.Writer, found *garbage.Collection) {
	fmt.Fprintln(w, "REPOSITORY\tKIND\tTAG\tISSUED\tDIGEST")
	for _, r := range found.Repositories {
		for _, g := range r.Garbage {
			issued := "-"
			if !g.IssuedAt.IsZero() {
				issued = show.Time(g.IssuedAt)
			}
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", show.Cell(r.Repository), g.Kind, show.Cell(strings.Join(g.Tags, ",")), issued, show.Cell(g.Digest.String()))
		}
	}
}
