package main

import (
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/wherry-dev/wherry/publisher"
	"github.com/wherry-dev/wherry/scheduler"
)

// cacheFlags says where what was rendered is kept for the next time.
type cacheFlags struct {
	dir string
	off bool
}

func (f *cacheFlags) add(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&f.dir, "cache", "", "keep what was rendered, for the next time, in this folder (default wherry/render in the user's cache folder)")
	flags.BoolVar(&f.off, "no-cache", false, "render everything, and keep nothing")
	cmd.MarkFlagsMutuallyExclusive("cache", "no-cache")
}

// use gives opts the cache for platform, and returns what to do when rendering is done. A cache that
// cannot be used changes nothing but the time that it takes, so that is no error.
func (f *cacheFlags) use(cmd *cobra.Command, platform string, opts *scheduler.Options) (done func()) {
	done = func() {}
	if f.off {
		return done
	}
	dir := f.dir
	if dir == "" {
		var err error
		if dir, err = publisher.DefaultCacheDir(); err != nil { // there is no home, as in many a container
			return done
		}
	}
	if here, err := filepath.Abs(platform); err == nil {
		platform = here // whatever it is, this tells platforms of equal names apart
	}
	cache, err := publisher.OpenRenderCache(dir, publisher.RenderCacheOptions{Scope: platform})
	if err != nil {
		if f.dir != "" {
			cmd.PrintErrf("note: %v: everything is rendered\n", err)
		}
		return done
	}
	opts.Cache = cache
	return cache.Trim
}
