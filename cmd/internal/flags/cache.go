package flags

import (
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/wherry-dev/wherry/cmd/internal/cli"
	"github.com/wherry-dev/wherry/publisher/rendercache"
	"github.com/wherry-dev/wherry/scheduler"
)

// Cache holds the flags for the cache of rendered output.
type Cache struct {
	dir   string
	off   bool
	cache *rendercache.Cache // nil until open, and if there is none
}

// AddTo adds --cache and --no-cache.
func (f *Cache) AddTo(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&f.dir, "cache", "", "keep what was rendered, for the next time, in this `FOLDER` (default wherry/render in the user's cache folder)")
	flags.BoolVar(&f.off, "no-cache", false, "render everything, and keep nothing")
	cli.Rare(cmd, "cache", "no-cache")
}

// open opens the cache for the platform at place. A cache that cannot be used changes nothing but the time that it
// takes, so that is no error.
func (f *Cache) open(cmd *cobra.Command, place string) error {
	if f.off && f.dir != "" {
		return cli.Usagef("--cache and --no-cache exclude each other")
	}
	if f.off {
		return nil
	}
	dir, err := f.dir, error(nil)
	if dir == "" {
		if dir, err = rendercache.DefaultDir(); err != nil { // there is no home, as in many a container
			return nil
		}
	}
	if here, err := filepath.Abs(place); err == nil {
		place = here // whatever it is, this tells platforms of equal names apart
	}
	if f.cache, err = rendercache.Open(dir, rendercache.Options{Scope: place}); err != nil && f.dir != "" {
		cmd.PrintErrf("note: %v: everything is rendered\n", err)
	}
	return nil
}

// Open opens the cache for the platform at place, for commands that do not call Source.Build. It returns nil if there is
// none.
func (f *Cache) Open(cmd *cobra.Command, place string) (scheduler.Cache, error) {
	err := f.open(cmd, place)
	return f.Get(), err
}

// Get returns the cache that Open or Source.Build has opened, nil if there is none.
func (f *Cache) Get() scheduler.Cache {
	if f.cache == nil {
		return nil
	}
	return f.cache
}

// Trim removes the oldest entries beyond the cache's bounds, once a command has put all of its own.
func (f *Cache) Trim() {
	if f.cache != nil {
		f.cache.Trim()
	}
}
