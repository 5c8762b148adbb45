package content_test

import (
	"flag"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/wherry-dev/wherry/bundle/ledger"
	"github.com/wherry-dev/wherry/bundle/sweeptest"
	"github.com/wherry-dev/wherry/rollout/content"
	"github.com/wherry-dev/wherry/rollout/gate"
	"github.com/wherry-dev/wherry/scheduler/promotion"
)

// Chains of three environments, in which teams push, clusters report or are silent, people undo and freeze, and base commits move, in any
// order. A model that knows what clusters said holds: stage and prod never take a revision that was not proved below, admitted, or left as it is.
// And if all is well for long enough and nobody pushes, each workload is in prod.
func TestRandomChains(t *testing.T) {
	walks := "200"
	if sweeptest.Full() {
		walks = "5000"
	}
	require.NoError(t, flag.Set("rapid.checks", walks))
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(t)
		for range rapid.IntRange(10, 100).Draw(t, "steps") {
			w.step()
		}
		w.settle()
	})
}

const soakOfWalk = 2 * time.Hour

// files are what a release has of a workload: a version, rendered with a base commit.
type files struct {
	version int // 0 for none
	base    string
}

// town is an environment with its clusters.
type town struct {
	name   string
	below  *town // nil for the first
	ledger *ledger.Ledger
	base   string
	frozen bool
	last   int64 // the sequence of the newest record
	runs   map[ledger.Key]files
	// versions are what revisions of the environment are.
	versions map[digest.Digest]int
	// past are the stays that an undo may give back.
	past map[ledger.Key][]ledger.Revision
	// said is what each cluster reported last.
	said [2]map[ledger.Key]said

	// The model: since is how long the workload has its version, goods has the files that all clusters said they run well while the
	// environment had them, and proved the versions that did so when the soak was over. taken are revisions that are out.
	since  map[ledger.Key]time.Time
	goods  map[ledger.Key]map[files]bool
	proved map[ledger.Key]map[int]bool
}

type said struct {
	files
	well bool
}

type world struct {
	t     *rapid.T
	now   time.Time
	chain []*town
	head  map[ledger.Key]int // versions in git; 0 is removed
	bad   map[int]bool       // versions that fail
	bases int
	next  int
}

var walked = []ledger.Key{{Workload: "own"}, {Registration: "shop", Workload: "basket"}, {Registration: "shop", Workload: "cart"}}

func newWorld(t *rapid.T) *world {
	w := &world{t: t, now: now, head: map[ledger.Key]int{}, bad: map[int]bool{}, bases: 1}
	var below *town
	for _, name := range []string{"dev", "stage", "prod"} {
		e := &town{
			name: name, below: below, base: "base1", runs: map[ledger.Key]files{}, versions: map[digest.Digest]int{}, past: map[ledger.Key][]ledger.Revision{}, since: map[ledger.Key]time.Time{},
			goods: map[ledger.Key]map[files]bool{}, proved: map[ledger.Key]map[int]bool{}, said: [2]map[ledger.Key]said{{}, {}},
		}
		for _, k := range walked {
			e.goods[k], e.proved[k] = map[files]bool{}, map[int]bool{}
		}
		e.ledger = &ledger.Ledger{Schema: ledger.Schema}
		w.chain, below = append(w.chain, e), e
	}
	return w
}

func (w *world) step() {
	k, e := pick(w.t, "workload", walked...), pick(w.t, "environment", w.chain...)
	switch pick(w.t, "what", "push", "publish", "publish", "publish", "report", "report", "report", "time", "time", "remove", "undo", "undo", "freeze", "look", "look", "base", "gate", "lost", "again", "round", "round") {
	case "round":
		w.round(w.chain[:rapid.IntRange(1, 3).Draw(w.t, "environments")]...)
	case "look": // a proof is seen, and does not come yet
		frozen := e.frozen
		e.frozen = true
		w.publish(e)
		e.frozen = frozen
	case "push":
		w.next++
		w.head[k] = w.next
		w.bad[w.next] = rapid.IntRange(0, 3).Draw(w.t, "bad") == 0
	case "remove":
		w.head[k] = 0
	case "again": // a revert in git
		if v := rapid.IntRange(0, w.next).Draw(w.t, "version"); v > 0 {
			w.head[k] = v
		}
	case "publish":
		w.publish(e)
	case "report":
		w.report(e, rapid.IntRange(0, 1).Draw(w.t, "cluster"))
	case "lost": // a report that does not arrive: what counts is too old
		e.said[rapid.IntRange(0, 1).Draw(w.t, "cluster")] = map[ledger.Key]said{}
	case "time":
		w.now = w.now.Add(pick(w.t, "time", time.Minute, 30*time.Minute, soakOfWalk))
	case "undo":
		w.undo(e, k)
		if rapid.Bool().Draw(w.t, "a round after it") {
			w.round(w.chain...)
		}
	case "freeze":
		e.frozen = !e.frozen
	case "base":
		w.bases++
		w.chain[0].base = fmt.Sprint("base", w.bases)
	case "gate": // the base commit's own gate passes
		if e.below != nil {
			e.base = e.below.base
		}
	}
	w.observe()
}

// round lets all go its way for a while, so that walks go deep.
func (w *world) round(chain ...*town) {
	for _, e := range chain {
		w.publish(e)
		w.report(e, 0)
		w.report(e, 1)
		w.observe()
		w.now = w.now.Add(soakOfWalk)
		w.observe()
	}
}

func pick[T any](t *rapid.T, name string, from ...T) T {
	return from[rapid.IntRange(0, len(from)-1).Draw(t, name)]
}

// report lets a cluster run what its environment has, and say how that is.
func (w *world) report(e *town, cluster int) {
	all := map[ledger.Key]said{}
	for k, f := range e.runs {
		all[k] = said{f, !w.bad[f.version]}
	}
	e.said[cluster] = all
}

// well counts the clusters that said that they have files of a workload, and run them well.
func (e *town) well(k ledger.Key) (n int) {
	for _, c := range e.said {
		if s, is := c[k]; is && s.files == e.runs[k] && s.well {
			n++
		}
	}
	return n
}

// observe notes what the model takes for proved.
func (w *world) observe() {
	for _, e := range w.chain {
		for k, f := range e.runs {
			if e.well(k) < len(e.said) {
				continue
			}
			e.goods[k][f] = true
			if w.now.Sub(e.since[k]) >= soakOfWalk {
				e.proved[k][f.version] = true
			}
		}
	}
}

// question is what is asked before an environment is published.
func (w *world) question(e *town) content.Question {
	g := promotion.Default()
	g.Soak, g.Content.Held, g.MinReported = soakOfWalk, true, 100
	q := content.Question{
		Policy: promotion.Policy{Environment: e.name, Chain: []string{"dev", "stage", "prod"}, Gate: g}, Own: e.ledger, BaseCommit: e.base, Workloads: slices.Collect(maps.Keys(w.head)), Now: w.now,
	}
	if e.frozen {
		q.Closed = "frozen"
	}
	if e.below == nil {
		return q
	}
	q.Below, q.Counts, q.Workloads = e.below.ledger, map[ledger.Key]content.Count{}, nil
	for _, k := range walked {
		well, unknown := e.below.well(k), 0
		for _, c := range e.below.said {
			if s, is := c[k]; !is || s.files != e.below.runs[k] {
				unknown++
			}
		}
		if e.below.runs[k].version == 0 { // removed: clusters that report have it no more
			well, unknown = 0, 0
			for _, c := range e.below.said {
				if s, has := c[k]; !has && len(c) > 0 || has && s.version == 0 {
					well++
				} else {
					unknown++
				}
			}
		}
		q.Counts[k] = content.Count{Cohort: gate.Cohort{Clusters: 2, Compliant: well, Unknown: unknown, Failed: 2 - well - unknown}}
	}
	return q
}

// rendered is the revision of a version in an environment.
func (e *town) rendered(k ledger.Key, version int) ledger.Revision {
	r := revision(e.name, fmt.Sprint(k, " ", version), ledger.Stay{})
	r.In = nil
	e.versions[r.Revision] = version
	return r
}

// publish decides, renders, and writes the next ledger.
func (w *world) publish(e *town) {
	d := content.Decide(w.question(e))
	require.Empty(w.t, d.Refused())
	record := ledger.Record{Epoch: 1, Sequence: max(e.last+1, w.now.Unix())}
	next := &ledger.Ledger{Schema: ledger.Schema, Undone: e.ledger.Undone}
	runs := map[ledger.Key]files{}
	passes := func(k ledger.Key, version int) bool { // as the publisher has it
		r := e.rendered(k, version)
		return d.Check(r, k).Passes() && !slices.ContainsFunc(e.ledger.Rejected("", time.Time{}), func(u ledger.Undone) bool {
			return u.Key == k && u.Revision == r.Revision
		})
	}
	for _, k := range walked {
		take := d.Take(k)
		written := ledger.Workload{Key: k, Proofs: d.Proofs[k]}
		var mine *ledger.Revision
		var stay ledger.Stay
		if had := e.ledger.Find(k); had != nil {
			mine, stay = had.In("")
		}
		gone := e.ledger.FindRemoved(k)
		version, base, from := 0, e.base, ledger.From{}
		if mine != nil {
			version, from = e.versions[mine.Revision], stay.From
		}
		switch {
		case take == nil || take.Kind == content.LeftOut:
			version = 0
		case take.Kind == content.Head:
			version = w.head[k]
			if version > 0 && !passes(k, version) {
				version = 0 // undone: what is there stays
				if mine != nil {
					version = e.versions[mine.Revision]
				}
			}
		case take.Kind == content.Proved:
			version, from = 0, ledger.From{Environment: e.below.name, Revision: take.Proof.Revision, Record: take.Proof.Record}
			if !take.Removed {
				version = e.below.versions[take.Proof.Revision]
			}
		case take.Kind == content.FilesStay:
			base = stay.BaseCommit
		}
		if take != nil && version > 0 && take.Kind != content.FilesStay && !passes(k, version) && take.Kind != content.Head {
			version, base, from = e.versions[mine.Revision], stay.BaseCommit, stay.From
		}
		w.hold(e, k, files{version, base}, take)
		switch {
		case version > 0:
			r := e.rendered(k, version)
			new := mine == nil || mine.Revision != r.Revision
			if new {
				stay = ledger.Stay{Since: w.now, Record: record}
				e.since[k] = w.now
				if mine != nil {
					e.past[k] = append(e.past[k], *mine)
				}
			} else if from.Record.Compare(stay.From.Record) > 0 {
				stay.Record = record
			}
			stay.BaseCommit, stay.From = base, from
			r.In = []ledger.Stay{stay}
			written.Revisions, runs[k] = []ledger.Revision{r}, files{version, base}
		case mine != nil:
			e.past[k] = append(e.past[k], *mine)
			next.Removed = append(next.Removed, ledger.Removed{Key: k, In: []ledger.Stay{{Since: w.now, Record: record, BaseCommit: base, From: from}}, Assignments: map[string][]string{"drone": {k.Workload + "-live"}}})
		case gone != nil:
			next.Removed = append(next.Removed, *gone)
		}
		if len(written.Revisions)+len(written.Proofs) > 0 {
			next.Workloads = append(next.Workloads, written)
		}
	}
	next.Sort()
	e.ledger, e.runs, e.last = next, runs, record.Sequence
}

// hold checks that an environment may get these files of a workload.
func (w *world) hold(e *town, k ledger.Key, f files, take *content.Take) {
	had := e.runs[k]
	if e.below == nil || f == had || f.version == 0 && had.version == 0 {
		return
	}
	if f.version == 0 {
		require.True(w.t, take.Kind == content.Proved && take.Removed && e.below.runs[k].version == 0, "%s loses %s, which %s has", e.name, k, e.below.name)
		return
	}
	if f.version != had.version {
		if found := e.ledger.Find(k); found != nil {
			_, stay := found.In("")
			require.Positive(w.t, take.Proof.Record.Compare(stay.From.Record), "%s goes back to %v of %s", e.name, f, k)
		}
		require.True(w.t, e.below.proved[k][f.version], "%s gets %v of %s, which %s has not proved", e.name, f, k, e.below.name)
		require.False(w.t, e.frozen, "%s gets %v of %s in a freeze", e.name, f, k)
		r := e.rendered(k, f.version)
		for _, u := range e.ledger.Undone {
			if found := e.ledger.Find(k); u.Key == k && u.Revision == r.Revision && found != nil {
				_, stay := found.In("")
				require.Positive(w.t, stay.Record.Compare(u.Record), "%s gets %v of %s, which it has undone", e.name, f, k)
			}
		}
		for _, u := range e.below.ledger.Undone {
			require.False(w.t, u.Key == k && e.below.versions[u.Revision] == f.version && e.below.runs[k].version != f.version && take.Proof.Record.Compare(u.Record) <= 0,
				"%s gets %v of %s, which %s has undone", e.name, f, k, e.below.name)
		}
	}
	require.True(w.t, e.below.goods[k][f], "%s gets %v of %s, which never ran well in %s", e.name, f, k, e.below.name)
}

// undo gives a workload back what it had before.
func (w *world) undo(e *town, k ledger.Key) {
	had := e.ledger.Find(k)
	past := e.past[k]
	if had == nil || len(past) == 0 {
		return
	}
	mine, stay := had.In("")
	if mine == nil {
		return
	}
	earlier := past[len(past)-1]
	if earlier.Revision == mine.Revision {
		return
	}
	e.past[k] = past[:len(past)-1]
	e.last = max(e.last+1, w.now.Unix())
	back := earlier.In[0]
	back.Since = w.now
	earlier.In = []ledger.Stay{back}
	next := *e.ledger
	next.Workloads = slices.Clone(next.Workloads)
	next.Find(k).Revisions = []ledger.Revision{earlier}
	next.Undone = append(slices.Clone(next.Undone), ledger.Undone{Key: k, At: w.now, Record: ledger.Record{Epoch: 1, Sequence: e.last}, Revision: mine.Revision, From: stay.From.Revision})
	e.ledger, e.since[k] = &next, w.now
	e.runs = maps.Clone(e.runs)
	e.runs[k] = files{e.versions[earlier.Revision], back.BaseCommit}
	delete(e.proved[k], e.versions[mine.Revision]) // an undo takes proofs back
}

// settle lets all be well, and nobody push: then each workload reaches prod.
func (w *world) settle() {
	for _, k := range walked {
		w.next++
		w.head[k] = w.next
	}
	for _, e := range w.chain {
		e.frozen = false
	}
	for range 2 * len(w.chain) {
		for _, e := range w.chain {
			if e.below != nil {
				e.base = e.below.base
			}
			w.round(e)
		}
	}
	for _, e := range w.chain {
		_, err := e.ledger.Marshal()
		require.NoError(w.t, err)
		for _, k := range walked {
			want := files{w.head[k], w.chain[0].base}
			if e.runs[k] != want {
				d := content.Decide(w.question(e))
				require.Equal(w.t, want, e.runs[k], "%s in %s: %s", k, e.name, d.Take(k).Waits)
			}
		}
	}
}
