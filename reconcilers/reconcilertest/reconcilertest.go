// Package reconcilertest is the conformance suite: what the agent relies on, whatever the engine.
//
// An adapter's test calls Run with a Harness for its engine, real or as near to real as the test can
// start. The suite sees the engine in two ways, as the agent does through a Reconciler, and as another
// person does who looks at and changes the engine directly; what the two see has to agree.
package reconcilertest

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/reconcilers"
)

// Harness starts an engine, empty, for one case. It cleans up by t.Cleanup.
type Harness func(t *testing.T) Engine

// Engine is what the suite needs of an engine. It holds named values: ConfigMaps, files, whatever the
// engine's assignments are made of. Methods fail t when they cannot do what they say.
type Engine interface {
	// Reconciler returns a new instance, as after a restart of the agent: with nothing in memory, on the
	// same engine and the same ledger.
	Reconciler(t *testing.T) reconcilers.Reconciler
	// Namespace is that of the assignments; empty where the engine has none.
	Namespace() string
	// File returns the file that makes the engine hold value under name. Changes name it by a string
	// that contains name.
	File(name, value string) bundle.File
	// Value returns what the engine holds for the assignment under name.
	Value(t *testing.T, assignment, name string) (value string, ok bool)
	// Tamper changes a value as somebody else does.
	Tamper(t *testing.T, assignment, name, value string)
	// Delete deletes a value as somebody else does.
	Delete(t *testing.T, assignment, name string)
	// AddForeign puts somebody else's things beside the assignment's and, where the engine knows such
	// a thing, into its object name.
	AddForeign(t *testing.T, assignment, name string)
	// CheckForeign fails t unless all of that is still there. The object name may be gone.
	CheckForeign(t *testing.T, assignment, name string)
	// Break spoils the files of an assignment, given by their folder, so that they cannot be applied,
	// and returns the reason that Apply is to give.
	Break(t *testing.T, dir string) (reason string)
}

// Reviser is an Engine that names what it holds by a revision of its own, and not by the content's digest.
type Reviser interface {
	// Revision returns what a compliant assignment reports whose files are in dir.
	Revision(t *testing.T, dir string) string
}

// Patience is how long the suite waits for an engine to finish what it has begun.
const Patience = 60 * time.Second

// Run runs every case on an engine of its own.
func Run(t *testing.T, h Harness) {
	for _, c := range cases() {
		t.Run(c.name, func(t *testing.T) {
			c.run(t, &bench{Engine: h(t), dirs: t.TempDir()})
		})
	}
}

// bench is the set-up of one case.
type bench struct {
	Engine
	dirs string
	n    int
}

// values is the content of an assignment.
type values map[string]string

// assign returns an assignment with its files on disk, in a folder of its own.
func (b *bench) assign(t *testing.T, name string, content values) reconcilers.Assignment {
	t.Helper()
	b.n++
	a := reconcilers.Assignment{Dir: filepath.Join(b.dirs, name, strconv.Itoa(b.n))}
	a.Name, a.Workload, a.Target, a.Namespace = name, "conformance", "suite", b.Namespace()
	require.NoError(t, os.MkdirAll(a.Dir, 0o755))
	var files []bundle.File
	for name, value := range content {
		f := b.File(name, value)
		files = append(files, f)
		path := filepath.Join(a.Dir, filepath.FromSlash(f.Path))
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, f.Data, 0o644))
	}
	slices.SortFunc(files, func(x, y bundle.File) int { return strings.Compare(x.Path, y.Path) })
	a.Content = bundle.ContentDigest(files)
	return a
}

// apply applies a and waits until it is compliant.
func (b *bench) apply(t *testing.T, r reconcilers.Reconciler, a reconcilers.Assignment) reconcilers.Result {
	t.Helper()
	res := r.Apply(t.Context(), a)
	b.settle(t, r, a, res)
	return res
}

// settle waits until a is compliant, observing as the agent does.
func (b *bench) settle(t *testing.T, r reconcilers.Reconciler, a reconcilers.Assignment, res reconcilers.Result) {
	t.Helper()
	for end := time.Now().Add(Patience); res.State == bundle.Progressing && time.Now().Before(end); {
		time.Sleep(100 * time.Millisecond)
		res = r.Observe(t.Context(), a)
	}
	require.Equal(t, bundle.Compliant, res.State, "%s: %s", res.Reason, res.Message)
	revision := a.Content.String()
	if own, ok := b.Engine.(Reviser); ok {
		revision = own.Revision(t, a.Dir)
	}
	require.Equal(t, revision, res.Revision, "a compliant assignment names the content that it holds")
}

// remove removes the named assignment and waits until it is gone.
func (b *bench) remove(t *testing.T, r reconcilers.Reconciler, name string) []reconcilers.Change {
	t.Helper()
	var changes []reconcilers.Change
	var a reconcilers.Assignment
	a.Name = name // and nothing more: it is all that is sure to be known
	for end := time.Now().Add(Patience); ; time.Sleep(100 * time.Millisecond) {
		res := r.Remove(t.Context(), a)
		changes = append(changes, res.Changes...)
		if res.State != bundle.Progressing || time.Now().After(end) {
			require.Equal(t, bundle.Removed, res.State, "%s: %s", res.Reason, res.Message)
			return changes
		}
	}
}

// holds fails t unless the engine holds want for the assignment, and none of the absent names.
func (b *bench) holds(t *testing.T, assignment string, want values, absent ...string) {
	t.Helper()
	for name, w := range want {
		got, ok := b.Value(t, assignment, name)
		require.True(t, ok, "%s of %s is missing", name, assignment)
		require.Equal(t, w, got, "%s of %s", name, assignment)
	}
	for _, name := range absent {
		_, ok := b.Value(t, assignment, name)
		require.False(t, ok, "%s of %s is still there", name, assignment)
	}
}

// Ledger is a ledger in memory, for harnesses of reconcilers that need one. Its zero value is empty.
type Ledger struct {
	mu      sync.Mutex
	entries map[string][]byte
}

// Load returns the entry of an assignment.
func (l *Ledger) Load(assignment string) ([]byte, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.entries[assignment]), nil
}

// Save keeps the entry of an assignment.
func (l *Ledger) Save(assignment string, entry []byte) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.entries == nil {
		l.entries = map[string][]byte{}
	}
	l.entries[assignment] = slices.Clone(entry)
	return nil
}
