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

// tree is the files of a folder, by slash-separated path. Empty folders do not count.
type tree map[string]file

// file has the properties by which two files are equal. One that is not regular has no digest and equals no other.
type file struct {
	executable bool
	size       int64
	content    digest.Digest
}

func (f file) regular() bool { return f.content != "" }

// seen is a file whose content was read, and how it looked from outside then.
type seen struct {
	ID      identity
	Content digest.Digest
}

// readTree reads all of dir. Contents are digested as they stream by, except of files that look as they
// did in known: a file may be a model of some gigabytes. The second result says how each file looks.
func readTree(ctx context.Context, dir *os.Root, known map[string]seen) (tree, map[string]identity, error) {
	t, ids := tree{}, map[string]identity{}
	err := fs.WalkDir(dir.FS(), ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		if !d.Type().IsRegular() {
			t[name] = file{}
			return nil
		}
		t[name], ids[name], err = readFile(ctx, dir, name, known[name])
		return err
	})
	return t, ids, err
}

func readFile(ctx context.Context, dir *os.Root, name string, known seen) (file, identity, error) {
	in, err := dir.Open(name)
	if err != nil {
		return file{}, identity{}, err
	}
	defer in.Close()
	info, err := in.Stat()
	if err != nil {
		return file{}, identity{}, err
	}
	f, id := file{executable: info.Mode()&0o100 != 0, size: info.Size()}, identify(info)
	if id.certain() && id == known.ID {
		f.content = known.Content
		return f, id, nil
	}
	f.content, err = digest.Canonical.FromReader(reader{ctx, in})
	return f, id, err
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
