package sandbox

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"path"
	"runtime/debug"
	"sync/atomic"
	"time"

	"github.com/wherry-dev/wherry/bundle/child"
	"github.com/wherry-dev/wherry/publisher/embed/chart"
)

// Name is the argument that makes a program a child, which calls [Child].
const Name = "sandbox-child"

// alive is the time between two signs of life of a job.
const alive = 5 * time.Second

// Engines do the jobs of a child.
type Engines struct {
	Chart         func(files fs.FS, job chart.Job) (*chart.Done, error)
	Kustomization func(files fs.FS, dir string, argo []byte, remote func(url, commit string) (fs.FS, error)) (yaml []byte, read []string, err error)
}

// Child does the jobs that come over the process's standard input, until that ends, and returns the process's exit code.
func Child(stdin io.Reader, stdout io.Writer, engines Engines) (code int) {
	debug.SetGCPercent(gcPercent)
	slog.SetDefault(slog.New(slog.DiscardHandler)) // Helm's library logs what it passes over
	c := &served{engines: engines, conn: newConn(stdin, stdout)}
	first, err := c.conn.receive()
	if err != nil || first.Setup == nil {
		return 1
	}
	c.meter = child.Bound(first.Setup.Memory, time.Duration(first.Setup.CPU))
	confined := child.Confine()
	if confined == nil {
		confined = []string{}
	}
	go c.tellAlive()
	if err := c.conn.send(message{Ready: append([]string{"process"}, confined...)}); err != nil {
		return 1
	}
	for {
		m, err := c.conn.receive()
		if errors.Is(err, io.EOF) {
			return 0
		}
		if err != nil || m.Job == nil {
			return 1
		}
		c.meter.Begin()
		c.working.Store(true)
		result := c.do(m)
		c.working.Store(false)
		c.meter.End()
		result.Outcome.CPU = int64(child.ProcessorTime())
		if c.conn.send(result) != nil {
			return 1
		}
	}
}

// gcPercent lets the heap of a child grow more than Go does by itself: most jobs are short.
const gcPercent = 400

// served is a child's side.
type served struct {
	engines Engines
	conn    *conn
	meter   *child.Meter
	working atomic.Bool
}

// tellAlive tells the parent from time to time that a job is using a processor.
func (c *served) tellAlive() {
	last := child.ProcessorTime()
	for range time.Tick(alive) {
		now := child.ProcessorTime()
		if c.working.Load() && now-last > alive/100 {
			_ = c.conn.send(message{Alive: true}) // without a parent, the process ends by itself
		}
		last = now
	}
}

func (c *served) do(m message) message {
	result, err := c.result(m)
	if err == nil {
		return *result
	}
	o := outcome{Failed: true, Err: err.Error()}
	var theirs *parentError
	if errors.As(err, &theirs) {
		o.Cause = theirs.number
	}
	return message{Outcome: &o}
}

func (c *served) result(m message) (*message, error) {
	files := remoteFS{c, 0}
	switch work := m.Job.Kustomization; {
	case work != nil:
		var remote func(url, commit string) (fs.FS, error)
		if work.Remote {
			remote = c.remote
		}
		yaml, read, err := c.engines.Kustomization(files, work.Dir, work.Argo, remote)
		if err != nil {
			return nil, err
		}
		return &message{Outcome: &outcome{Kustomization: &builtKustomization{read}}, blobs: [][]byte{yaml}}, nil
	case m.Job.Chart != nil:
		job, err := m.Job.unpack(m.blobs)
		if err != nil {
			return nil, err
		}
		result, err := c.engines.Chart(files, job)
		if err != nil {
			return nil, err
		}
		return packResult(result), nil
	}
	return nil, errors.New("the job is not known")
}

// parentError is an error of the parent.
type parentError struct {
	text    string
	number  int
	missing bool
}

func (e *parentError) Error() string        { return e.text }
func (e *parentError) Is(target error) bool { return e.missing && target == fs.ErrNotExist }

// ask asks the parent and waits for the answer.
func (c *served) ask(q question) (*answer, []byte, error) {
	if err := c.conn.send(message{Question: &q}); err != nil {
		return nil, nil, err
	}
	m, err := c.conn.receive()
	switch {
	case err != nil:
		return nil, nil, err
	case m.Answer == nil:
		return nil, nil, errors.New("the parent does not answer")
	case m.Answer.Err > 0:
		return nil, nil, &parentError{m.Answer.Text, m.Answer.Err, m.Answer.Missing}
	case len(m.blobs) > 0:
		return m.Answer, m.blobs[0], nil
	}
	return m.Answer, nil, nil
}

func (c *served) remote(url, commit string) (fs.FS, error) {
	a, _, err := c.ask(question{Remote: &place{url, commit}})
	if err != nil {
		return nil, err
	}
	return remoteFS{c, a.Tree}, nil
}

// remoteFS is a tree of the parent.
type remoteFS struct {
	of   *served
	tree int
}

func (t remoteFS) Stat(name string) (fs.FileInfo, error) {
	a, _, err := t.of.ask(question{Stat: &file{t.tree, name}})
	if err != nil {
		return nil, err
	}
	if a.Stat == nil {
		return nil, fmt.Errorf("%s: the parent does not answer", name)
	}
	return fileInfo{*a.Stat}, nil
}

func (t remoteFS) ReadDir(name string) ([]fs.DirEntry, error) {
	a, _, err := t.of.ask(question{List: &file{t.tree, name}})
	if err != nil {
		return nil, err
	}
	all := make([]fs.DirEntry, len(a.Entries))
	for i, e := range a.Entries {
		all[i] = dirEntry{fs.FileInfoToDirEntry(fileInfo{e}), t, path.Join(name, e.Name)}
	}
	return all, nil
}

// dirEntry is a file or folder whose size is asked for when it is needed.
type dirEntry struct {
	fs.DirEntry
	of   remoteFS
	path string
}

func (e dirEntry) Info() (fs.FileInfo, error) { return e.of.Stat(e.path) }

// Open returns a file with all of its content, or a folder.
func (t remoteFS) Open(name string) (fs.File, error) {
	a, data, err := t.of.ask(question{Read: &file{t.tree, name}})
	if err != nil {
		return nil, err
	}
	if a.Stat == nil {
		return nil, fmt.Errorf("%s: the parent does not answer", name)
	}
	return &openFile{*bytes.NewReader(data), fileInfo{*a.Stat}}, nil
}

type openFile struct {
	bytes.Reader
	info fs.FileInfo
}

// Read reads from a file's content.
func (f *openFile) Read(p []byte) (int, error) {
	if f.info.IsDir() {
		return 0, &fs.PathError{Op: "read", Path: f.info.Name(), Err: fs.ErrInvalid}
	}
	return f.Reader.Read(p)
}

func (f *openFile) Stat() (fs.FileInfo, error) { return f.info, nil }
func (f *openFile) Close() error               { return nil }

type fileInfo struct{ entry }

func (i fileInfo) Name() string       { return i.entry.Name }
func (i fileInfo) Size() int64        { return i.entry.Size }
func (i fileInfo) Mode() fs.FileMode  { return i.entry.Mode }
func (i fileInfo) ModTime() time.Time { return time.Time{} }
func (i fileInfo) IsDir() bool        { return i.entry.Mode.IsDir() }
func (i fileInfo) Sys() any           { return nil }
