package embed

import (
	"bytes"
	"context"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/publisher/embed/kustomization"
	"github.com/wherry-dev/wherry/publisher/sources"
	"github.com/wherry-dev/wherry/scheduler"
)

// builtFile is the name of the file that a kustomization becomes.
const builtFile = "manifests.yaml"

// kustomize builds the kustomization of the folder, with what an Application asks for beside it.
func (b *built) kustomize(ctx context.Context, r *reader, t *tree, q request) error {
	var opts kustomization.Options
	if q.argo != nil && len(q.argo.Kustomize) > 0 {
		var err error
		if opts.Overlay, err = kustomization.ArgoOverlay(q.argo.Kustomize); err != nil {
			return err
		}
	}
	return b.kustomizeFolder(ctx, r, t, q, q.dir, bundle.ManifestsDir, opts)
}

// kustomizeFolder builds the kustomization in dir into a file in the folder to.
func (b *built) kustomizeFolder(ctx context.Context, r *reader, t *tree, q request, dir, to string, opts kustomization.Options) error {
	opts.Remote = func(ctx context.Context, url, commit string) (fs.FS, error) {
		if err := r.allowed(q, url); err != nil {
			return nil, err
		}
		if b.Remotes = append(b.Remotes, url); !slices.IsSorted(b.Remotes) {
			slices.Sort(b.Remotes)
		}
		s := sources.Source{Kind: bundle.ArtifactGit, URL: url, Revision: commit}
		found := r.Resolver.Of(ctx, s)
		if found.Err != nil {
			return nil, found.Err
		}
		from := scheduler.ContentSource{Type: string(bundle.ArtifactGit), Name: s.Name(), Revision: commit}
		if !slices.ContainsFunc(b.More, func(known scheduler.ContentSource) bool { return known.Name == from.Name && known.Revision == commit }) {
			b.More = append(b.More, from)
		}
		return sharedFS{found}, nil
	}
	result, err := kustomization.Build(ctx, t.FS, dir, opts)
	if err != nil {
		return err
	}
	for _, name := range result.Read {
		if !isBelow(name, b.Dir) {
			b.reads = append(b.reads, name)
		}
	}
	slices.SortFunc(b.More, func(a, b scheduler.ContentSource) int { return strings.Compare(a.Name+a.Revision, b.Name+b.Revision) })
	return b.add(scheduler.File{Path: path.Join(to, builtFile), Data: result.YAML})
}

// isBelow reports whether a path is that of a folder, or of something in it.
func isBelow(name, dir string) bool {
	return dir == "." || name == dir || strings.HasPrefix(name, dir+"/")
}

// sharedFS are the files of a commit that several builds read at the same time.
type sharedFS struct{ of *sources.Resolution }

// Open reads the whole file or folder, so that the repository is locked only meanwhile.
func (s sharedFS) Open(name string) (file fs.File, err error) {
	err = s.of.Read(func(files fs.FS) error {
		opened, err := files.Open(name)
		if err != nil {
			return err
		}
		defer func() { _ = opened.Close() }()
		info, err := opened.Stat()
		if err != nil {
			return err
		}
		f := &sharedFile{info: info}
		if list, ok := opened.(fs.ReadDirFile); ok && info.IsDir() {
			f.entries, err = list.ReadDir(-1)
		} else {
			var data []byte
			data, err = io.ReadAll(opened)
			f.Reader = *bytes.NewReader(data)
		}
		file = f
		return err
	})
	return file, err
}

// sharedFile is an open file or folder in memory.
type sharedFile struct {
	bytes.Reader
	info    fs.FileInfo
	entries []fs.DirEntry
}

func (f *sharedFile) Stat() (fs.FileInfo, error) { return f.info, nil }
func (f *sharedFile) Close() error               { return nil }

func (f *sharedFile) ReadDir(n int) ([]fs.DirEntry, error) {
	if n > 0 && len(f.entries) == 0 {
		return nil, io.EOF
	}
	if n <= 0 || n > len(f.entries) {
		n = len(f.entries)
	}
	list := f.entries[:n]
	f.entries = f.entries[n:]
	return list, nil
}
