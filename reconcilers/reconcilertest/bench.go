package reconcilertest

import (
	"cmp"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/reconcilers"
)

// pollTime is the time between two looks at an engine.
const pollTime = 100 * time.Millisecond

// bench is the set-up of one case.
type bench struct {
	Engine
	adapter Adapter
	dirs    string
	n       int
	open    io.Closer // the reconciler that is in use, if it wants to be closed
}

func newBench(t *testing.T, a Adapter) *bench {
	t.Helper()
	a.Patience = cmp.Or(a.Patience, Patience)
	b := &bench{Engine: a.Start(t), adapter: a, dirs: t.TempDir()}
	t.Cleanup(func() { b.close(t) })
	return b
}

// values is the content of an assignment.
type values = map[string]string

// can reports whether the engine supports case c, for other cases that need it too.
func (b *bench) can(c Case) bool { return b.adapter.Without[c] == "" }

// Reconciler simulates a restart of the agent.
func (b *bench) Reconciler(t *testing.T) reconcilers.Reconciler {
	t.Helper()
	return b.restart(t, b.Engine.Reconciler)
}

func (b *bench) restart(t *testing.T, begin func(*testing.T) reconcilers.Reconciler) reconcilers.Reconciler {
	t.Helper()
	b.close(t)
	r := begin(t)
	b.open, _ = r.(io.Closer)
	return r
}

// close ends the reconciler as an agent does that exits: its programs end with it.
func (b *bench) close(t *testing.T) {
	t.Helper()
	if b.open == nil {
		return
	}
	require.NoError(t, b.open.Close())
	b.open = nil
	b.requireNoneRunning(t)
}

func (b *bench) requireNoneRunning(t *testing.T) {
	t.Helper()
	if r, ok := b.Engine.(Runner); ok {
		require.Zero(t, r.Running(t), "nothing is left running")
	}
}

// assign returns an assignment with its files on disk, in a folder of its own.
func (b *bench) assign(t *testing.T, name string, content values) reconcilers.Assignment {
	t.Helper()
	b.n++
	a := reconcilers.Assignment{Dir: filepath.Join(b.dirs, name, strconv.Itoa(b.n))}
	a.Name, a.Workload, a.Target, a.Namespace, a.Adapter = name, "conformance", "suite", b.Namespace(), b.adapter.Name
	require.NoError(t, os.MkdirAll(a.Dir, 0o755))
	for _, f := range b.Files(t, name, content) {
		path := filepath.Join(a.Dir, filepath.FromSlash(f.Path))
		mode := os.FileMode(0o644)
		if f.Executable {
			mode = 0o755
		}
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, f.Data, mode))
	}
	return sealed(t, a)
}

// sealed returns a with the digest of the files that it has now.
func sealed(t *testing.T, a reconcilers.Assignment) reconcilers.Assignment {
	t.Helper()
	var err error
	a.Content, err = bundle.ContentDigestOf(os.DirFS(filepath.Dir(a.Dir)), filepath.Base(a.Dir))
	require.NoError(t, err)
	return a
}

func (b *bench) broken(t *testing.T, name string, content values) (a reconcilers.Assignment, reason string) {
	t.Helper()
	a = b.assign(t, name, content)
	reason = b.Break(t, a)
	return sealed(t, a), reason
}

func (b *bench) failing(t *testing.T, name string, content values) (a reconcilers.Assignment, reason, words string) {
	t.Helper()
	f, ok := b.Engine.(Failer)
	require.True(t, ok, "%T is no Failer, and the case is not declared as one that it cannot have", b.Engine)
	a = b.assign(t, name, content)
	reason, words = f.Fail(t, a)
	return sealed(t, a), reason, words
}

func (b *bench) stalled(t *testing.T, content values) (a reconcilers.Assignment, words string, finish func()) {
	t.Helper()
	s, ok := b.Engine.(Staller)
	require.True(t, ok, "%T is no Staller, and the case is not declared as one that it cannot have", b.Engine)
	a = b.assign(t, "drone-east", content)
	words, finish = s.Stall(t, a)
	t.Cleanup(finish)
	return sealed(t, a), words, finish
}

// apply applies a, waits until it is compliant, and returns the last result, with the changes of all calls.
func (b *bench) apply(t *testing.T, r reconcilers.Reconciler, a reconcilers.Assignment) reconcilers.Result {
	t.Helper()
	return b.settle(t, r, a, r.Apply(t.Context(), a))
}

// settle waits until a is compliant.
func (b *bench) settle(t *testing.T, r reconcilers.Reconciler, a reconcilers.Assignment, res reconcilers.Result) reconcilers.Result {
	t.Helper()
	res = b.wait(t, r, a, res)
	require.Equal(t, bundle.Compliant, res.State, "%s: %s", res.Reason, res.Message)
	require.Empty(t, res.Fault)
	revision := a.Content.String()
	if own, ok := b.Engine.(Reviser); ok {
		revision = own.Revision(t, a)
	}
	require.Equal(t, revision, res.Revision, "a compliant assignment names the content that it holds")
	return res
}

// wait handles a result as the agent does: it observes a progressing assignment and applies a pending one,
// until it is neither or Patience has passed. It returns the last result, with the changes of all calls.
func (b *bench) wait(t *testing.T, r reconcilers.Reconciler, a reconcilers.Assignment, res reconcilers.Result) reconcilers.Result {
	t.Helper()
	for end := time.Now().Add(b.adapter.Patience); time.Now().Before(end); time.Sleep(pollTime) {
		before := res.Changes
		switch res.State {
		case bundle.Progressing:
			res = r.Observe(t.Context(), a)
		case bundle.Pending:
			res = r.Apply(t.Context(), a)
		default:
			return res
		}
		res.Changes = append(before, res.Changes...)
	}
	return res
}

// remove removes the named assignment and waits until it is gone.
func (b *bench) remove(t *testing.T, r reconcilers.Reconciler, name string) []reconcilers.Change {
	t.Helper()
	var changes []reconcilers.Change
	var a reconcilers.Assignment
	a.Name = name // the only field that is sure to be set
	for end := time.Now().Add(b.adapter.Patience); ; time.Sleep(pollTime) {
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

// requireChanges fails t unless changes are exactly want, by a part of their names.
func (b *bench) requireChanges(t *testing.T, changes []reconcilers.Change, want map[string]reconcilers.Action) {
	t.Helper()
	if b.adapter.Whole != "" {
		require.LessOrEqual(t, len(changes), 1)
		for _, c := range changes {
			require.Contains(t, c.Object, b.adapter.Whole)
			require.NotEqual(t, reconcilers.Unchanged, c.Action)
		}
		return
	}
	got := map[string]reconcilers.Action{}
	for _, c := range changes {
		name := c.Object
		for w := range want {
			if strings.Contains(c.Object, w) {
				name = w
			}
		}
		got[name] = c.Action
	}
	require.Equal(t, want, got)
}

// requireDrift fails t unless a is observed as drifted, in the value name.
func (b *bench) requireDrift(t *testing.T, r reconcilers.Reconciler, a reconcilers.Assignment, name string) {
	t.Helper()
	res := r.Observe(t.Context(), a)
	for end := time.Now().Add(b.adapter.Patience); b.adapter.Lags && res.State != bundle.Drifted && time.Now().Before(end); time.Sleep(pollTime) {
		require.Contains(t, []bundle.State{bundle.Compliant, bundle.Progressing}, res.State, "%s: %s", res.Reason, res.Message)
		res = r.Observe(t.Context(), a)
	}
	require.Equal(t, bundle.Drifted, res.State, "%s: %s", res.Reason, res.Message)
	require.NotEmpty(t, res.Reason)
	require.Contains(t, res.Message, cmp.Or(b.adapter.Whole, name), "the message says what has drifted")
	require.Empty(t, res.Changes)
}

// requireFailed fails t unless a fails for the reason and by the release's fault, with the words in its message, and is observed so.
func (b *bench) requireFailed(t *testing.T, r reconcilers.Reconciler, a reconcilers.Assignment, reason, words string) (changes []reconcilers.Change) {
	t.Helper()
	first := r.Apply(t.Context(), a)
	for _, res := range []reconcilers.Result{b.wait(t, r, a, first), b.wait(t, r, a, r.Observe(t.Context(), a))} {
		require.Equal(t, bundle.Failed, res.State, "%s: %s", res.Reason, res.Message)
		require.Equal(t, reason, res.Reason, res.Message)
		require.Equal(t, reconcilers.FaultRelease, res.Fault, res.Message)
		require.NotEmpty(t, res.Message)
		require.Contains(t, res.Message, words)
		require.LessOrEqual(t, len(res.Message), bundle.MaxMessageBytes)
	}
	return first.Changes
}

// requireUnderWay fails t unless res reports that a call or the engine is at work, with the words in its message. A call
// that its context has ended need not have a message.
func requireUnderWay(t *testing.T, res reconcilers.Result, words string) {
	t.Helper()
	require.Equal(t, bundle.Progressing, res.State, "%s: %s", res.Reason, res.Message)
	require.NotEmpty(t, res.Reason)
	require.LessOrEqual(t, len(res.Message), bundle.MaxMessageBytes)
	if res.Reason != reconcilers.ReasonInterrupted {
		require.Contains(t, res.Message, words, "the message says what is waited for")
	}
}

func requireNoSuccess(t *testing.T, res reconcilers.Result) {
	t.Helper()
	require.Contains(t, []bundle.State{bundle.Progressing, bundle.Failed}, res.State)
	require.Empty(t, res.Changes)
}
