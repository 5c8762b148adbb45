package directory

import (
	"cmp"
	"context"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"

	"github.com/opencontainers/go-digest"

	"github.com/wherry-dev/wherry/reconcilers"
)

// tree is what a folder holds, by slash-separated path. Folders count only by what is in them.
type tree map[string]file

// file is what makes two files equal. What is no regular file has no digest and equals nothing.
type file struct {
	executable bool
	content    digest.Digest
}

func (f file) regular() bool { return f.content != "" }

// readTree reads all of dir. Contents are digested as they stream by: a file may be a model of several
// hundred megabytes.
func readTree(ctx context.Context, dir *os.Root) (tree, error) {
	t := tree{}
	err := fs.WalkDir(dir.FS(), ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		t[name], err = readFile(ctx, dir, name, d)
		return err
	})
	return t, err
}

func readFile(ctx context.Context, dir *os.Root, name string, d fs.DirEntry) (file, error) {
	if !d.Type().IsRegular() {
		return file{}, nil
	}
	info, err := d.Info()
	if err != nil {
		return file{}, err
	}
	in, err := dir.Open(name)
	if err != nil {
		return file{}, err
	}
	defer in.Close()
	content, err := digest.Canonical.FromReader(reader{ctx, in})
	return file{executable: info.Mode()&0o100 != 0, content: content}, err
}

// compare lists what leads from have to want, by path.
func compare(folder string, have, want tree) []reconcilers.Change {
	var changes []reconcilers.Change
	add := func(name string, action reconcilers.Action) {
		changes = append(changes, reconcilers.Change{Object: path.Join(folder, name), Action: action})
	}
	for name, w := range want {
		switch h, ok := have[name]; {
		case !ok:
			add(name, reconcilers.Created)
		case h != w:
			add(name, reconcilers.Configured)
		}
	}
	for name := range have {
		if _, ok := want[name]; !ok {
			add(name, reconcilers.Deleted)
		}
	}
	slices.SortFunc(changes, func(a, b reconcilers.Change) int { return cmp.Compare(a.Object, b.Object) })
	return changes
}

// reader ends with its context.
type reader struct {
	ctx context.Context // for one copy only
	in  io.Reader
}

func (r reader) Read(p []byte) (int, error) {
	if err := r.ctx.Err(); err != nil {
		return 0, err
	}
	return r.in.Read(p)
}
