package platform

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io/fs"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/wherry-dev/wherry/published/watch"
	"github.com/wherry-dev/wherry/publisher/egress"
	"github.com/wherry-dev/wherry/publisher/gitrepo"
)

// Sources returns what a loop looks at to see whether f changes, but for the folder output, which may be empty.
func (f Followed) Sources(output string) []watch.Source {
	all := repositories(f.Refs, f.Access)
	for _, dir := range f.Folders {
		all = append(all, folder(dir, output))
	}
	return all
}

// repositories returns a source for each repository that refs name, with the branches and tags of it that they name; refs with a
// commit do not change. A repository is asked for the tips of branches alone, as by git ls-remote, by access.
func repositories(refs []gitrepo.Ref, access *egress.Access) (all []watch.Source) {
	branches := map[string][]string{}
	for _, r := range refs {
		if r.Commit == "" {
			branches[r.URL] = append(branches[r.URL], r.Branch)
		}
	}
	for _, repository := range slices.Sorted(maps.Keys(branches)) {
		names := slices.Compact(slices.Sorted(slices.Values(branches[repository])))
		all = append(all, watch.Source{Name: gitrepo.Redact(repository), Host: hostOf(repository), State: func(ctx context.Context) (string, error) {
			tips, err := gitrepo.Tips(ctx, access, repository, names, watch.PollTimeout)
			if err != nil {
				return "", err
			}
			var state strings.Builder
			for _, name := range names { // one that is gone is a change too
				fmt.Fprintf(&state, "%s %s\n", name, tips[name])
			}
			return state.String(), nil
		}})
	}
	return all
}

// hostOf returns the host of a repository; empty for one of this machine.
func hostOf(repository string) string {
	if gitrepo.IsLocal(repository) {
		return ""
	}
	if u, err := url.Parse(repository); err == nil && u.Host != "" {
		return u.Host
	}
	host, _, _ := strings.Cut(repository, ":") // git's short form, HOST:PATH
	return host
}

// maxFolderEntries bounds what the source of a folder lists.
const maxFolderEntries = 200_000

// folder returns a source for a folder of this machine. It looks at the names, sizes and times of the files, and leaves out
// those of git, and those below the folder output, which may be empty.
func folder(dir, output string) watch.Source {
	skip := ""
	if output != "" {
		from, err := filepath.Abs(dir)
		to, err2 := filepath.Abs(output)
		if rel, err3 := filepath.Rel(from, to); err == nil && err2 == nil && err3 == nil && rel != "." {
			skip = filepath.ToSlash(rel)
		}
	}
	return watch.Source{Name: dir, State: func(ctx context.Context) (string, error) {
		hash, entries := sha256.New(), 0
		err := fs.WalkDir(os.DirFS(dir), ".", func(name string, e fs.DirEntry, err error) error {
			switch {
			case err != nil:
				return err
			case ctx.Err() != nil:
				return ctx.Err()
			case e.Name() == ".git" || name == skip:
				if e.IsDir() {
					return fs.SkipDir
				}
				return nil
			case e.IsDir():
				return nil
			}
			if entries++; entries > maxFolderEntries {
				return fmt.Errorf("%w: more than %d files", gitrepo.ErrTooLarge, maxFolderEntries)
			}
			info, err := e.Info()
			if os.IsNotExist(err) { // it has gone meanwhile
				return nil
			}
			if err != nil {
				return err
			}
			fmt.Fprintf(hash, "%q %d %s %s\n", name, info.Size(), info.Mode(), info.ModTime().UTC().Format(time.RFC3339Nano))
			return nil
		})
		return hex.EncodeToString(hash.Sum(nil)), err
	}}
}
