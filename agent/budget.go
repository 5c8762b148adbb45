package agent

import (
	"cmp"
	"context"
	"fmt"
	"io/fs"
	"os"
	"path"
	"strings"
	"sync"

	"github.com/wherry-dev/wherry/agent/assignments"
	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/yamlvalues"
	"github.com/wherry-dev/wherry/reconcilers"
)

// budget bounds the manifests of one assignment before anything decodes them: that a release is signed does not make it small.
type budget struct {
	bytes int64
	mu    sync.Mutex
	sizes map[string]int64 // by folder, which has its content for its name
}

// maxSizes bounds the folders whose size is known. Measuring again costs little.
const maxSizes = 10_000

// check returns an error if the manifests of an assignment are more than the agent decodes.
func (b *budget) check(_ context.Context, _ assignments.Record, a *reconcilers.Assignment) error {
	if bundle.CopiesFiles(a.Adapter) || a.Dir == "" {
		return nil
	}
	b.mu.Lock()
	defer b.mu.Unlock() // one at a time, as a file is in memory meanwhile
	limit := cmp.Or(b.bytes, yamlvalues.MaxBytes)
	size, known := b.sizes[a.Dir]
	if !known {
		var err error
		if size, err = sizeOf(a.Dir, limit); err != nil {
			return nil // the engine says so
		}
		if b.sizes == nil || len(b.sizes) >= maxSizes {
			b.sizes = map[string]int64{}
		}
		b.sizes[a.Dir] = size
	}
	if size <= limit {
		return nil
	}
	err := fmt.Errorf("its manifests come to more than %d bytes, with each YAML alias counted as what it stands for and each value as some more: split it, or raise --max-manifests where there is enough memory", limit)
	return &reconcilers.Error{Reason: assignments.ReasonTooLarge, Fault: reconcilers.FaultRelease, Err: err}
}

// sizeOf returns the size of the manifests in a folder; the result is larger than limit, or exact.
func sizeOf(dir string, limit int64) (size int64, err error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return 0, err
	}
	defer root.Close()
	err = fs.WalkDir(root.FS(), ".", func(name string, d fs.DirEntry, err error) error {
		if ext := strings.ToLower(path.Ext(name)); err != nil || d.IsDir() || ext != ".yaml" && ext != ".yml" && ext != ".json" {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		if info.Size() > limit-size {
			size = limit + 1
			return fs.SkipAll
		}
		data, err := root.ReadFile(name)
		if err != nil {
			return err
		}
		n, _ := yamlvalues.Size(data, limit-size) // what cannot be parsed is decoded up to there
		if size += n; size > limit {
			return fs.SkipAll
		}
		return nil
	})
	return size, err
}
