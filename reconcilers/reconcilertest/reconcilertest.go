// Package reconcilertest is the conformance suite of reconcilers: the agent's requirements, which are the same for every
// engine.
//
// An adapter's test calls Run for its engine, real or as near to real as the test can start. The suite
// sees the engine in two ways, through a Reconciler as the agent does, and directly, as another person
// who inspects and changes it; the two views have to agree. The test's TestMain begins
// with Child, which lets the suite kill a process in the middle of its work:
//
//	func TestMain(m *testing.M) {
//		reconcilertest.Child(open)
//		os.Exit(m.Run())
//	}
//
//	func TestConformance(t *testing.T) {
//		reconcilertest.Run(t, reconcilertest.Adapter{Name: "directory", On: "the file system", Start: start})
//	}
//
// The adapter declares each case that its engine cannot have, with the reason; none is skipped silently. The
// file testdata/conformance.txt of the adapter records the outcome, and the table in docs/reference/engines.md is made of
// these files: Run fails if the file differs, and writes it if WHERRY_CONFORMANCE=write is set.
package reconcilertest

import (
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/reconcilers"
)

// Patience is the default time that the suite waits for an engine to finish: far longer than engines take, even on a
// busy machine.
const Patience = 4 * time.Minute

// Adapter describes an adapter before its engine is started. Name, On and Start are required.
type Adapter struct {
	// Name is the one that assignments choose the adapter by.
	Name string
	// On is a few words for the engine in this run, such as "the file system".
	On string
	// Start starts an engine, empty, for one case. It cleans up by t.Cleanup.
	Start func(t *testing.T) Engine
	// Patience is the time that the engine gets to finish; zero means the constant Patience.
	Patience time.Duration
	// Lags is true if changes by others are noticed within Patience, and not by the next Observe.
	Lags bool
	// Whole is part of the name that changes and drift have where an adapter cannot tell the values of an
	// assignment apart. Its results list one change of that name, or none. Empty: each value is named.
	Whole string
	// Without gives the reason for each case that the engine cannot have.
	Without map[Case]string
	// Parallel runs the cases at the same time, as far as "go test -parallel" allows. Start then has to return an
	// engine for each case alone.
	Parallel bool
	// Record is the file with the outcome; empty means testdata/conformance.txt.
	Record string
}

// Engine is an engine for the suite. It holds named values: ConfigMaps, files, or other content of the engine's
// assignments. Its methods fail t if they cannot do their work.
type Engine interface {
	// Reconciler returns a new instance, as after a restart of the agent: with nothing in memory, on the
	// same engine and the same ledger. The one before has been closed, if it is an io.Closer.
	Reconciler(t *testing.T) reconcilers.Reconciler
	// Handle returns the argument with which the function given to Child opens such a reconciler in another process.
	// The ledger has to be on disk for that; see DiskLedger.
	Handle(t *testing.T) string
	// Namespace is the namespace of the assignments; empty if the engine has none.
	Namespace() string
	// Files returns the files that make the engine hold content for an assignment. Changes name a value by a
	// string that contains its name, unless the Adapter is a Whole one.
	Files(t *testing.T, assignment string, content map[string]string) []bundle.File
	// Value returns the assignment's value in the engine under name.
	Value(t *testing.T, assignment, name string) (value string, ok bool)
	// Writes identifies all writes and runs of the engine for an assignment: versions of objects,
	// identities of files, a count of runs. It changes whenever the adapter writes to the engine or starts it
	// again, even without an effect.
	Writes(t *testing.T, assignment string) string
	// Tamper changes a value as somebody else does.
	Tamper(t *testing.T, assignment, name, value string)
	// Delete deletes a value as somebody else does.
	Delete(t *testing.T, assignment, name string)
	// AddForeign puts somebody else's content beside the assignment's and, if the engine supports it, into the
	// assignment's object name.
	AddForeign(t *testing.T, assignment, name string)
	// CheckForeign fails t unless all content of AddForeign still exists. The object name may be gone.
	CheckForeign(t *testing.T, assignment, name string)
	// Break spoils the files in a.Dir, so that they cannot be applied at all, and returns the expected reason.
	Break(t *testing.T, a reconcilers.Assignment) (reason string)
}

// Failer is an Engine that may fail on content that the adapter accepts.
type Failer interface {
	// Fail changes the files in a.Dir such that the engine fails, and returns the expected reason and some words of
	// the engine that are expected in the message.
	Fail(t *testing.T, a reconcilers.Assignment) (reason, words string)
}

// Obstructer is an Engine whose site can make every release fail.
type Obstructer interface {
	// Obstruct changes the site such that no content of the assignment can be applied, and returns the expected
	// reason. Existing reconcilers need not notice. The function mend undoes the change.
	Obstruct(t *testing.T, assignment string) (reason string, mend func())
}

// Staller is an Engine that can be made slow.
type Staller interface {
	// Stall changes the files in a.Dir, or the engine, such that the engine does not finish with them before finish
	// is called. Until then the message has to contain words, and the engine has to go on reporting its former status,
	// if it had one. Calling finish again does nothing.
	Stall(t *testing.T, a reconcilers.Assignment) (words string, finish func())
}

// Reviser is an Engine with revisions of its own, which are not the content's digest.
type Reviser interface {
	// Revision returns the revision that a reports once it is compliant.
	Revision(t *testing.T, a reconcilers.Assignment) string
}

// Runner is an Engine whose adapter starts processes that work between calls.
type Runner interface {
	// Hasty is Reconciler with the adapter's own deadline for one assignment.
	Hasty(t *testing.T, deadline time.Duration) reconcilers.Reconciler
	// Running counts the running programs, including those of other processes.
	Running(t *testing.T) int
}

// complete lists the adapters for which every case is required.
var complete = []string{"kubernetes", "flux"}

// Run runs every case on an engine of its own, and compares the outcome with the one on record.
func Run(t *testing.T, a Adapter) {
	t.Helper()
	require.NoError(t, a.check())
	var ran atomic.Int64
	t.Cleanup(func() { a.compare(t, int(ran.Load()) == len(cases) && !t.Failed()) }) // when those in parallel are done
	for _, c := range cases {
		if why := a.Without[c.name]; why != "" {
			t.Logf("n/a: %s: %s", c.name, why)
			ran.Add(1)
			continue
		}
		t.Run(string(c.name), func(t *testing.T) {
			if a.Parallel {
				t.Parallel()
			}
			ran.Add(1)
			c.run(t, newBench(t, a))
		})
	}
}

func (a Adapter) column() column {
	col := column{Adapter: a.Name, On: a.On}
	for _, c := range cases {
		col.Cells = append(col.Cells, cell{c.name, a.Without[c.name]})
	}
	return col
}

// knows reports whether the suite has a case.
func knows(c Case) bool {
	return slices.ContainsFunc(cases, func(known testCase) bool { return known.name == c })
}
