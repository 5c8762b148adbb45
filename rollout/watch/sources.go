package watch

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

	"github.com/wherry-dev/wherry/publisher/egress"
	"github.com/wherry-dev/wherry/publisher/gitrepo"
)

// Git returns a source for each repository that refs name, with the branches and tags of it that they name; refs with a
// commit do not change. A repository is asked for the tips of branches alone, as by git ls-remote, by access.
func Git(refs []gitrepo.Ref, mirrors gitrepo.Mirrors, access *egress.Access) []Source {
	branches := map[string][]string{}
	for _, r := range refs {
		if r.Commit == "" {
			branches[mirrors.Of(r.URL)] = append(branches[mirrors.Of(r.URL)], r.Branch)
		}
	}
	var all []Source
	for _, repository := range slices.Sorted(maps.Keys(branches)) {
		names := slices.Compact(slices.Sorted(slices.Values(branches[repository])))
		all = append(all, Source{Name: gitrepo.Redact(repository), Host: hostOf(repository), State: func(ctx context.Context) (string, error) {
			tips, err := gitrepo.Tips(ctx, access, repository, names, pollTimeout)
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

// maxFolderEntries bounds what a source of [Folder] lists.
const maxFolderEntries = 200_000

// Folder returns a source for a folder of this machine. It looks at the names, sizes and times of the files, and leaves out
// those of git, and those below the folder output, which may be empty.
func Folder(dir, output string) Source {
	skip := ""
	if output != "" {
		from, err := filepath.Abs(dir)
		to, err2 := filepath.Abs(output)
		if rel, err3 := filepath.Rel(from, to); err == nil && err2 == nil && err3 == nil && rel != "." {
			skip = filepath.ToSlash(rel)
		}
	}
	return Source{Name: dir, State: func(ctx context.Context) (string, error) {
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
