package harness

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"go.etcd.io/bbolt"

	"github.com/wherry-dev/wherry/agent/artifact"
	"github.com/wherry-dev/wherry/agent/content"
	"github.com/wherry-dev/wherry/agent/serve"
	"github.com/wherry-dev/wherry/agent/state"
	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/reconcilers"
)

// Endpoint is an agent's endpoint without the agent, with a CA of its own.
type Endpoint struct {
	// Changed is the engine's reconcilers.Fetcher.EmbeddedFiles. Nil serves the files as they are.
	Changed func(bundle.Assignment, fs.FS) (map[string][]byte, error)

	db        *state.DB
	files     *content.Store
	artifacts *artifact.Store
	at        artifact.Endpoint
	wanted    map[string]artifact.Wanted
	mu        sync.Mutex
	cancel    context.CancelFunc
	done      chan struct{}
}

// StartEndpoint serves the artifacts of assignments from the folder dir, which is empty. The caller stops it.
func StartEndpoint(dir string) (*Endpoint, error) {
	db, err := state.Open(dir, content.BucketTrees, artifact.Bucket)
	if err != nil {
		return nil, err
	}
	e := &Endpoint{db: db, wanted: map[string]artifact.Wanted{}, done: make(chan struct{})}
	if err := e.start(dir); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return e, nil
}

func (e *Endpoint) start(dir string) error {
	if err := e.db.Init(state.CheckSchema, func(*bbolt.Tx) error { return nil }); err != nil {
		return err
	}
	e.files = content.New(e.db, content.Options{Named: []func(*bbolt.Tx) ([]content.Named, error){artifact.Named}})
	e.artifacts = artifact.New(e.db, e.files)
	ports, err := freePorts(1)
	if err != nil {
		return err
	}
	address := fmt.Sprintf("127.0.0.1:%d", ports[0])
	endpoint, err := serve.Open(serve.Options{Address: address, StateDir: dir})
	if err != nil {
		return err
	}
	server, err := endpoint.Listen(filepath.Join(dir, state.StoreDir), "default")
	if err != nil {
		return err
	}
	served := endpoint.Served()
	e.at = artifact.Endpoint{Host: served.Host, CA: served.CA, Platform: "default"}
	ctx, cancel := context.WithCancel(context.Background())
	e.cancel = cancel
	go func() {
		defer close(e.done)
		server.Serve(ctx)
	}()
	return nil
}

// Serve returns an assignment with the artifacts of its folder, which are served from now on.
func (e *Endpoint) Serve(ctx context.Context, a reconcilers.Assignment) (reconcilers.Assignment, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.wanted[a.Name] = artifact.Wanted{Assignment: a.Assignment, Dir: a.Dir, Folder: a.Content, Changed: e.Changed}
	var all []artifact.Wanted
	for _, w := range e.wanted {
		all = append(all, w)
	}
	if _, _, err := e.artifacts.Bring(ctx, all); err != nil {
		return a, err
	}
	if err := e.files.Index(); err != nil {
		return a, err
	}
	var err error
	a.Served, err = e.artifacts.Served(a.Assignment, a.Content, e.at)
	return a, err
}

// Stop ends the endpoint.
func (e *Endpoint) Stop() error {
	e.cancel()
	<-e.done
	return e.db.Close()
}

// Files writes files below dir.
func Files(dir string, files map[string]string) error {
	for name, data := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(path, []byte(data), 0o644); err != nil {
			return err
		}
	}
	return nil
}
