package undo_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"
	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/ledger"
	"github.com/wherry-dev/wherry/published"
	"github.com/wherry-dev/wherry/publisher"
	"github.com/wherry-dev/wherry/publisher/garbage"
	"github.com/wherry-dev/wherry/publisher/keys"
	"github.com/wherry-dev/wherry/publisher/keytest"
	"github.com/wherry-dev/wherry/publisher/releases"
	"github.com/wherry-dev/wherry/publisher/trust"
	"github.com/wherry-dev/wherry/rollout/advance"
	"github.com/wherry-dev/wherry/rollout/facts"
	"github.com/wherry-dev/wherry/rollout/gate"
	"github.com/wherry-dev/wherry/rollout/undo"
	"github.com/wherry-dev/wherry/scheduler"
	"github.com/wherry-dev/wherry/scheduler/promotion"
)

var webKey = ledger.Key{Registration: "shop", Workload: "web"}

func TestUndoGivesOneWorkloadBack(t *testing.T) {
	t.Parallel()
	same := func(text string) string { return "drone: " + text + ", large: " + text }
	for name, tc := range map[string]struct {
		rings string
		steps string
		want  string // of web
		db    string // of the neighbour
		err   string
	}{
		"the last change":                       {steps: "a;b;undo workload=web", want: same("a"), db: same("1")},
		"by its registration":                   {steps: "a;b;undo workload=shop/web", want: same("a"), db: same("1")},
		"the neighbour keeps what it got since": {steps: "a;b;db=2;undo workload=web", want: same("a"), db: same("2")},
		"the other one":                         {steps: "a;b;db=2;undo workload=db", want: same("b"), db: same("1")},
		"twice is once":                         {steps: "0;a;b;undo workload=web;undo workload=web", want: same("a"), db: same("1")},
		"it is not brought again":               {steps: "a;b;undo workload=web;b", want: same("a"), db: same("1")},
		"nor with a new base commit, and the neighbour goes on": {steps: "a;b;undo workload=web;db=2", want: same("a"), db: same("2")},
		"nor after a renewal":                         {steps: "a;b;undo workload=web;renew;b", want: same("a"), db: same("1")},
		"but a newer one comes":                       {steps: "a;b;undo workload=web;c", want: same("c"), db: same("1")},
		"and after that it may come again":            {steps: "a;b;undo workload=web;c;b", want: same("b"), db: same("1")},
		"but if a person says so":                     {steps: "a;b;undo workload=web;again;b", want: same("b"), db: same("1")},
		"and is undone again":                         {steps: "a;b;undo workload=web;again;b;undo workload=web;b", want: same("a"), db: same("1")},
		"never what was undone":                       {steps: "a;b;undo workload=web;c;undo workload=web", want: same("a"), db: same("1")},
		"to a version":                                {steps: "a;b;c;undo workload=web to=a", want: same("a"), db: same("1")},
		"to a version further back after an undo":     {steps: "a;b;c;undo workload=web;undo workload=web to=a", want: same("a"), db: same("1")},
		"forward again, and then it stays":            {steps: "a;b;undo workload=web;undo workload=web to=b;b;db=2", want: same("b"), db: same("2")},
		"to the version that it has":                  {steps: "a;b;undo workload=web to=b", want: same("b"), db: same("1")},
		"to a version that never was":                 {steps: "a;b;c;undo workload=web to=z", err: `there is no previous content of shop/web that is "z": what is left is b, a`},
		"the first":                                   {steps: "a;undo workload=web", err: "there is no previous content of shop/web: it came with a"},
		"one that is not there":                       {steps: "a;undo workload=wep", err: `environment prod has no workload "wep"`},
		"of one cluster type":                         {steps: "a;b;undo workload=web type=drone", err: "on all cluster types at once"},
		"on a cluster type that is new":               {steps: "a;+small;b;undo workload=web", err: "small had nothing of shop/web then"},
		"on a cluster type that is new, if it may":    {steps: "a;+small;b;undo workload=web allow-empty", want: same("a") + ", small: empty", db: same("1") + ", small: 1"},
		"then all: nothing changed since":             {steps: "a;b;undo workload=web;undo", want: same("a"), db: same("1")},
		"then all: before the bad one":                {steps: "a;b;db=2;undo workload=web;undo", want: same("a"), db: same("1")},
		"all, and the mark is each workload's":        {steps: "a;b;undo;db=2", want: same("a"), db: same("2")},
		"all, and a person says so":                   {steps: "a;b;undo;again;db=2", want: same("b"), db: same("2")},
		"rings: all that have it":                     {rings: "y", steps: "a;b;advance;undo workload=web", want: same("a a a a"), db: same("1 1 1 1")},
		"rings: each gets what it had":                {rings: "y", steps: "a;b;c;advance;advance;undo workload=web", want: same("b a a a"), db: same("1 1 1 1")},
		"rings: one":                                  {rings: "y", steps: "a;b;advance;undo workload=web ring=early", want: same("b a a a"), db: same("1 1 1 1")},
		"rings: the last, with agents without a ring": {rings: "y", steps: "a;b@broad;undo workload=web ring=broad", want: same("b b a a"), db: same("1 1 1 1")},
		"rings: a ring that keeps it goes on":         {rings: "y", steps: "a;b;advance;undo workload=web ring=early;db=2", want: same("b a a a"), db: same("2 1 1 1")},
		"rings: one, then the others":                 {rings: "y", steps: "a;b@broad;undo workload=web ring=early;undo workload=web", want: same("a a a a"), db: same("1 1 1 1")},
		"rings: to a version that another ring has":   {rings: "y", steps: "a;b;undo workload=web ring=canary to=a", want: same("a a a a"), db: same("1 1 1 1")},
		"rings: not where it is not brought again":    {rings: "y", steps: "a;b;advance;undo workload=web;b;db=2@broad", want: same("a a a a"), db: same("2 2 2 2")},
		"rings: one that is not there":                {rings: "y", steps: "a;b;undo workload=web ring=canery", err: `unknown ring "canery"`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			if tc.rings != "" {
				w.rings = ringsOfTest
			}
			w.db = "1"
			if w.walk(tc.steps, tc.err) {
				require.Equal(t, tc.want, w.has())
				require.Equal(t, tc.db, w.hasOf("db-live"))
			}
		})
	}
}

func (w *world) ledger() *ledger.Ledger {
	w.t.Helper()
	rd := w.reader()
	r, err := rd.Record(w.t.Context())
	require.NoError(w.t, err)
	l, err := r.Ledger(w.t.Context(), r.Verified)
	require.NoError(w.t, err)
	return l
}

// newest returns the newest release of drone.
func (w *world) newest() *bundle.Verified {
	w.t.Helper()
	rd := w.reader()
	of, err := rd.Type(w.t.Context(), "drone")
	require.NoError(w.t, err)
	return of.Verified
}

func TestAnUndoneWorkloadHasItsFormerPlace(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.db = "1"
	w.walk("a", "")
	_, former := w.ledger().Find(webKey).In("")
	first := w.newest()
	w.walk("b", "")
	bad := w.newest()
	badRecord := w.record()
	w.now = w.now.Add(time.Hour)
	done, err := undo.Undo(t.Context(), w.loc, w.keys, undo.Options{Environment: "prod", Workload: "web", Reason: "orders fail"}, w.opts)
	require.NoError(t, err)
	require.True(t, done.Undone)
	require.Equal(t, "b", done.Workload.Left.Version)
	require.Equal(t, "a", done.Workload.Previous.Version)
	require.Nil(t, done.Pause, "the mark alone keeps it out")
	require.Empty(t, w.paused())

	v := w.newest()
	require.Equal(t, first.Release.Content, v.Release.Content, "only web had changed, so all is as it was, to the byte")
	require.Equal(t, first.Tree, v.Tree, "the same blob")
	require.Equal(t, bad.Release.BaseCommit, v.Release.BaseCommit)
	require.Equal(t, "shop/web back from b to a: orders fail", bundle.MessageOf(v.Manifest))
	require.Equal(t, badRecord.BaseCommit, w.record().BaseCommit)
	require.Empty(t, w.record().Incomplete)
	require.Empty(t, w.record().Undone, "the environment has the mark of the workload alone")

	l := w.ledger()
	r, stay := l.Find(webKey).In("")
	require.Equal(t, "a", r.Version)
	require.Equal(t, w.now, stay.Since)
	former.Since = w.now
	require.Equal(t, former, stay, "all but the time is as it was, so that nobody above takes it for new")
	mark := ledger.Undone{Key: webKey, At: w.now, Record: ledger.RecordOf(w.record()), Reason: "orders fail", Version: "b", Revision: done.Workload.Left.Revision}
	require.Equal(t, []ledger.Undone{mark}, l.Undone)
	require.Equal(t, []ledger.Undone{mark}, l.Rejected("", time.Time{}))

	// Automation publishes what git has: no byte changes.
	w.walk("b", "")
	require.Equal(t, v.Descriptor, w.newest().Descriptor)
	again, err := undo.Undo(t.Context(), w.loc, w.keys, undo.Options{Environment: "prod", Workload: "web", Reason: "orders fail"}, w.opts)
	require.NoError(t, err)
	require.False(t, again.Undone)
	require.Equal(t, releases.OutcomeUnchanged, again.Result)
	w.walk("renew", "")
	require.NotEqual(t, v.Descriptor, w.newest().Descriptor)
	require.Equal(t, []ledger.Undone{mark}, w.ledger().Undone, "the mark stays when all is signed anew")
}

// In a chain, the workload is again made of what the environment below had then, with its proof, and the mark names what was proved since.
func TestAnUndoneWorkloadHasItsFormerProof(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.db = "1"
	proofOf := func(text string, n int64) ledger.Proof {
		return ledger.Proof{
			Revision: digest.FromString("stage " + text), Record: ledger.Record{Sequence: n}, Proved: w.now,
			Met: []ledger.Met{{BaseCommit: commitOf("b2"), At: w.now, Clusters: 2, Compliant: 2}},
		}
	}
	for n, text := range []string{"a", "b"} {
		proof := proofOf(text, int64(n+1))
		w.opts.Admission = &publisher.Admission{
			Below: "stage", Proofs: map[ledger.Key][]ledger.Proof{webKey: {proof}},
			Waiting: func(map[ledger.Key]ledger.Revision) map[ledger.Key]string { return nil },
			From: func(k ledger.Key, _ ledger.Revision) (ledger.From, string) {
				if k != webKey {
					return ledger.From{}, ""
				}
				return ledger.From{Environment: "stage", Revision: proof.Revision, Record: proof.Record}, ""
			},
		}
		if n > 0 {
			rd := w.reader()
			r, err := rd.Record(t.Context())
			require.NoError(t, err)
			w.opts.Admission.Record = r.Verified.Descriptor.Digest
		}
		w.walk(text, "")
	}
	w.opts.Admission = nil
	w.walk("undo workload=web", "")
	l := w.ledger()
	_, stay := l.Find(webKey).In("")
	require.Equal(t, digest.FromString("stage a"), stay.From.Revision)
	require.Equal(t, digest.FromString("stage b"), l.Undone[0].From)
	require.Equal(t, []ledger.Proof{proofOf("b", 2), proofOf("a", 1)}, withTimes(l.Find(webKey).Proofs, proofOf("a", 1)))
}

// What came by an override of people, and not by a proof, comes back by it: the ledger names them again, in each ring that had it.
func TestAnUndoneWorkloadHasItsFormerOverride(t *testing.T) {
	t.Parallel()
	const override = "overridden by anna: orders fail"
	for name, rings := range map[string][]string{"without rings": nil, "in rings": ringsOfTest} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, rings...)
			w.db = "1"
			for n, text := range []string{"a", "b"} {
				from, why := ledger.From{Environment: "stage", Revision: digest.FromString("stage " + text), Record: ledger.Record{Sequence: int64(n + 1)}}, ""
				if text == "a" {
					why = override
				}
				w.opts.Admission = &publisher.Admission{
					Below: "stage", Waiting: func(map[ledger.Key]ledger.Revision) map[ledger.Key]string { return nil },
					From: func(k ledger.Key, _ ledger.Revision) (ledger.From, string) {
						if k != webKey {
							return ledger.From{}, ""
						}
						return from, why
					},
				}
				if n > 0 {
					rd := w.reader()
					r, err := rd.Record(t.Context())
					require.NoError(t, err)
					w.opts.Admission.Record = r.Verified.Descriptor.Digest
				}
				w.walk(text, "")
			}
			w.opts.Admission = nil
			in := []string{""}
			if rings != nil {
				w.walk("advance", "")
				in = []string{"canary", "early", "broad"}
			}
			_, stay := w.ledger().Find(webKey).In(in[0])
			require.Equal(t, digest.FromString("stage b"), stay.From.Revision)
			require.Empty(t, stay.Unproved)
			w.walk("undo workload=web", "")
			for _, ring := range in {
				r, stay := w.ledger().Find(webKey).In(ring)
				require.Equal(t, "a", r.Version, ring)
				require.Equal(t, override, stay.Unproved, ring)
				require.Equal(t, digest.FromString("stage a"), stay.From.Revision, ring)
			}
		})
	}
}

// withTimes returns proofs with the times of another one, since those here are about which proofs there are.
func withTimes(all []ledger.Proof, of ledger.Proof) []ledger.Proof {
	for i := range all {
		all[i].Proved, all[i].Met[0].At = of.Proved, of.Met[0].At
	}
	return all
}

// The earlier record is gone: whoever undoes is told what there is, and may go back to that.
func TestAWorkloadWhoseEarlierRecordIsGone(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		rings []string
		left  string
	}{{nil, "nothing else of it is left"}, {ringsOfTest, "what is left is a"}} {
		w := newWorld(t, tc.rings...)
		w.db = "1"
		w.walk("a", "")
		before := w.record().Tag()
		w.walk("b;db=2;db=3", "")
		w.now = w.now.Add(30 * 24 * time.Hour)
		c, err := garbage.Collect(t.Context(), w.loc, garbage.Options{Environment: "prod", OCI: w.opts.OCI, Now: w.opts.Now})
		require.NoError(t, err)
		require.NoError(t, c.Delete(t.Context()))
		w.walk("undo workload=web", "there is no previous content of shop/web: record "+before+", the last one before b, is not there any more: "+tc.left)
		if tc.rings != nil {
			w.walk("undo workload=web to=a", "")
			require.Equal(t, "drone: a a a a, large: a a a a", w.has())
			require.Equal(t, "drone: 3 1 1 1, large: 3 1 1 1", w.hasOf("db-live"))
		}
	}
}

// The line is cut at each request in turn: the next undo completes it, and nothing but web ever changes.
func TestAnUndoOfAWorkloadThatIsCutOffAnywhereIsCompletedByTheNext(t *testing.T) {
	t.Parallel()
	for k, met := int64(1), true; met; k += 11 {
		w := newWorld(t, ringsOfTest...)
		w.db = "1"
		w.walk("a;b;advance;db=2", "")
		agents := newAgents(w)
		agents.poll("before")
		w.count.Store(0)
		w.after = func(n int64) bool { return n >= k }
		err := w.do("undo workload=web")
		met, w.after = w.count.Load() >= k, nil
		require.Equal(t, met, err != nil, "%d: %v", k, err)
		at := fmt.Sprint("request ", k)
		agents.poll(at)
		require.NoError(t, w.do("undo workload=web"), at)
		agents.poll(at)
		require.Equal(t, "drone: a a a a, large: a a a a", w.has(), at)
		require.Equal(t, "drone: 2 1 1 1, large: 2 1 1 1", w.hasOf("db-live"), at)
		require.Len(t, w.ledger().Undone, 1, at)
		require.Less(t, k, int64(2000))
	}
}

// What was cut off before its record was written is in no ledger: it has to be completed first.
func TestAWorkloadIsNotUndoneInTheMiddleOfAPublication(t *testing.T) {
	t.Parallel()
	for k := int64(1); k < 500; k += 5 {
		w := newWorld(t)
		w.db = "1"
		w.walk("a;b", "")
		w.count.Store(0)
		w.after = func(n int64) bool { return n >= k }
		_ = w.do("c")
		w.after = nil
		if w.newest().Release.BaseCommit == commitOf("c") {
			require.Equal(t, commitOf("b"), w.record().BaseCommit)
			require.ErrorIs(t, w.do("undo workload=web"), publisher.ErrUnfinished)
			return
		}
	}
	t.Fatal("no release was there without a record")
}

// Where two keys have to sign, the undo waits, and repeating it makes nothing new.
func TestAnUndoOfAWorkloadWithSeveralSignersWaitsForTheOthers(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.db = "1"
	anna, ben := keytest.New(t), keytest.New(t)
	root := bundle.Role{Threshold: 1, Keys: []bundle.TrustKey{keytest.Named(t, "anna", anna)}}
	envelope, err := trust.New("edge", root, bundle.Role{Threshold: 2, Keys: []bundle.TrustKey{keytest.Named(t, "anna", anna), keytest.Named(t, "ben", ben)}}, 1000*24*time.Hour, w.now)
	require.NoError(t, err)
	signed, err := trust.Sign(envelope, nil, []*keys.Key{anna})
	require.NoError(t, err)
	chain, err := trust.Begin(signed)
	require.NoError(t, err)
	w.opts.Trust, w.keys = published.Of(chain), []*keys.Key{anna, ben}
	w.walk("a;b", "")
	w.keys = []*keys.Key{anna}
	var first int64
	for range 2 {
		w.now = w.now.Add(time.Minute)
		done, err := undo.Undo(t.Context(), w.loc, w.keys, undo.Options{Environment: "prod", Workload: "web", Reason: "because"}, w.opts)
		require.NoError(t, err)
		require.Equal(t, releases.OutcomePending, done.Result)
		require.Empty(t, done.Warnings)
		require.Equal(t, "drone: b, large: b", w.has(), "agents see nothing of it")
		pending, err := publisher.OpenPending(t.Context(), w.loc, "prod", w.opts.Trust, publisher.PendingOptions{OCI: w.opts.OCI, Now: w.opts.Now})
		require.NoError(t, err)
		if first == 0 {
			first = pending.Record.Sequence
		}
		require.Equal(t, first, pending.Record.Sequence)
	}
	pending, err := publisher.OpenPending(t.Context(), w.loc, "prod", w.opts.Trust, publisher.PendingOptions{OCI: w.opts.OCI, Now: w.opts.Now})
	require.NoError(t, err)
	require.NoError(t, pending.Sign(t.Context(), []*keys.Key{ben}))
	require.Equal(t, "drone: a, large: a", w.has())
	require.Len(t, w.ledger().Rejected("", time.Time{}), 1)
}

// A ring that keeps a workload does not pass it on to a ring that gave it up.
func TestARingDoesNotPassOnWhatTheNextOneUndid(t *testing.T) {
	t.Parallel()
	w := newWorld(t, ringsOfTest...)
	w.db = "1"
	w.walk("a;b;advance;undo workload=web ring=early;db=2", "")
	policy := promotion.Policy{
		Environment: "prod", Rings: ringsOfTest, RingGate: promotion.Gate{MinCompliant: 100, AllowEmptyCohort: true},
	}
	look := func() *advance.Done {
		t.Helper()
		from := &facts.Facts{
			Platform: "edge", Location: w.loc, Options: w.opts.OCI, Signers: trust.PinnedBy(w.keys), Now: w.opts.Now,
			Clusters: func(context.Context, string) ([]scheduler.Cluster, error) { return nil, nil },
		}
		judge := func(ctx context.Context, ask advance.Ask) (gate.Verdict, error) {
			return from.Judge(ctx, facts.Ask{Policy: policy, Ring: ask.Ring, Candidate: &ask.Candidate})
		}
		done, err := advance.Once(t.Context(), w.loc, w.keys, advance.Options{Environment: "prod", Ring: "early"}, judge, w.opts)
		require.NoError(t, err)
		return done
	}
	done := look()
	require.Equal(t, gate.Fail, done.Steps[0].Verdict.Rule(gate.RuleUndone).Result)
	require.Contains(t, done.Steps[0].Verdict.Rule(gate.RuleUndone).Has, "shop/web b was undone at ")
	require.Equal(t, "drone: b a a a, large: b a a a", w.has())

	w.walk("c", "") // what mends it
	require.True(t, look().Has(advance.Advanced))
	require.Equal(t, "drone: c c a a, large: c c a a", w.has())
}
