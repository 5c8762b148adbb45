// Package reconcilertest is the conformance suite: what the agent relies on, whatever the engine.
//
// An adapter's test calls Run for its engine, real or as near to real as the test can start. The suite
// sees the engine in two ways, as the agent does through a Reconciler, and as another person does who
// looks at and changes the engine directly; what the two see has to agree. The test's TestMain begins
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
// A case that an engine cannot have is declared, with its reason; none is passed over in silence. The
// outcome is kept in testdata/conformance.txt of the adapter, of which the table in docs/adapters.md is
// made: Run fails where that file says something else, and writes it where WHERRY_CONFORMANCE=write.
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

// Patience is how long the suite waits for an engine to finish what it has begun, unless the Adapter says
// otherwise: far longer than it takes, on a machine that is busy, too.
const Patience = 4 * time.Minute

// Adapter describes an adapter before its engine is started. Name, On and Start are required.
type Adapter struct {
	// Name is the one that assignments choose the adapter by.
	Name string
	// On is a few words for the engine in this run, such as "the file system".
	On string
	// Start starts an engine, empty, for one case. It cleans up by t.Cleanup.
	Start func(t *testing.T) Engine
	// Patience is how long the engine gets to finish what it has begun; zero means the constant Patience.
	Patience time.Duration
	// Lags is true where what somebody else has changed is noticed within Patience, and not by the next
	// Observe.
	Lags bool
	// Whole is part of the name that changes and drift have where an adapter cannot tell the values of an
	// assignment apart. Its results list one change of that name, or none. Empty: each value is named.
	Whole string
	// Without gives the reason for each case that the engine cannot have.
	Without map[Case]string
	// Parallel runs the cases at the same time, as far as "go test -parallel" allows. What Start returns has
	// to be the case's alone then.
	Parallel bool
	// Record is the file with the outcome; empty means testdata/conformance.txt.
	Record string
}

// Engine is an engine for the suite. It holds named values: ConfigMaps, files, whatever the engine's
// assignments are made of. Methods fail t when they cannot do what they say.
type Engine interface {
	// Reconciler returns a new instance, as after a restart of the agent: with nothing in memory, on the
	// same engine and the same ledger. The one before has been closed, if it is an io.Closer.
	Reconciler(t *testing.T) reconcilers.Reconciler
	// Handle is what the function given to Child makes such a reconciler of in another process. The ledger
	// has to be on disk for that; see DiskLedger.
	Handle(t *testing.T) string
	// Namespace is that of the assignments; empty where the engine has none.
	Namespace() string
	// Files returns the files that make the engine hold content for an assignment. Changes name a value by a
	// string that contains its name, unless the Adapter is a Whole one.
	Files(t *testing.T, assignment string, content map[string]string) []bundle.File
	// Value returns what the engine holds for the assignment under name.
	Value(t *testing.T, assignment, name string) (value string, ok bool)
	// Writes identifies all that an adapter has the engine do for an assignment: versions of objects,
	// identities of files, a count of runs. It is another when the engine was written to or set to work
	// again, even if nothing came of it.
	Writes(t *testing.T, assignment string) string
	// Tamper changes a value as somebody else does.
	Tamper(t *testing.T, assignment, name, value string)
	// Delete deletes a value as somebody else does.
	Delete(t *testing.T, assignment, name string)
	// AddForeign puts somebody else's things beside the assignment's and, where the engine knows such
	// a thing, into its object name.
	AddForeign(t *testing.T, assignment, name string)
	// CheckForeign fails t unless all of that is still there. The object name may be gone.
	CheckForeign(t *testing.T, assignment, name string)
	// Break spoils the files in a.Dir, so that they cannot be applied at all, and returns the reason that is
	// to be given.
	Break(t *testing.T, a reconcilers.Assignment) (reason string)
}

// Failer is an Engine that may fail at what the adapter could hand over.
type Failer interface {
	// Fail makes the files in a.Dir such that the engine fails, and returns the reason that is to be given and
	// some of the engine's own words that are to be in the message.
	Fail(t *testing.T, a reconcilers.Assignment) (reason, words string)
}

// Obstructer is an Engine whose site can be in the way of every release.
type Obstructer interface {
	// Obstruct changes the site such that no content of the assignment can be applied, and returns the reason that is
	// to be given. Reconcilers that exist already need not notice. mend puts the site right again.
	Obstruct(t *testing.T, assignment string) (reason string, mend func())
}

// Staller is an Engine that takes its time.
type Staller interface {
	// Stall makes the files in a.Dir such that the engine, or the engine itself, does not get done with them
	// before finish is called. The message is to contain the words until then, and the engine to go on
	// reporting what it reported before, if it reported anything. Calling finish again does nothing.
	Stall(t *testing.T, a reconcilers.Assignment) (words string, finish func())
}

// Reviser is an Engine that names what it holds by a revision of its own, and not by the content's digest.
type Reviser interface {
	// Revision returns what a compliant assignment reports whose files are in a.Dir.
	Revision(t *testing.T, a reconcilers.Assignment) string
}

// Runner is an Engine whose work goes on in processes that the adapter has started.
type Runner interface {
	// Hasty is Reconciler with the adapter's own deadline for one assignment.
	Hasty(t *testing.T, deadline time.Duration) reconcilers.Reconciler
	// Running counts the runs that are at work, whoever started them.
	Running(t *testing.T) int
}

// complete are the adapters that cannot do without any case.
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
