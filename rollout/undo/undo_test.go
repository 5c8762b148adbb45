package undo_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/published"
	"github.com/wherry-dev/wherry/publisher"
	"github.com/wherry-dev/wherry/publisher/keys"
	"github.com/wherry-dev/wherry/publisher/keytest"
	"github.com/wherry-dev/wherry/publisher/releases"
	"github.com/wherry-dev/wherry/publisher/trust"
	"github.com/wherry-dev/wherry/rollout/undo"
)

func TestUndoGivesBackWhatWasThere(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		rings string
		plain bool
		steps string
		want  string
		err   string
	}{
		"the last change":                               {steps: "a;b;undo", want: "drone: a, large: a"},
		"without commits":                               {plain: true, steps: "a;b;undo", want: "drone: a, large: a"},
		"twice is once":                                 {steps: "a;b;c;undo;undo", want: "drone: b, large: b"},
		"twice is once, also after a renewal":           {steps: "a;b;c;undo;b;renew;undo", want: "drone: b, large: b"},
		"a renewal is no change":                        {steps: "a;b;renew;undo", want: "drone: a, large: a"},
		"a change after an undo":                        {steps: "a;b;undo;c;undo", want: "drone: a, large: a"},
		"never what was undone":                         {steps: "a;b;undo;c;undo;undo", want: "drone: a, large: a"},
		"a commit that changes nothing":                 {steps: "a;b;b2=x;undo", want: "drone: a, large: a"},
		"the first":                                     {steps: "a;undo", err: "there is no previous content"},
		"one cluster type":                              {steps: "a;b;undo type=drone", want: "drone: a, large: b"},
		"one cluster type, then all":                    {steps: "a;b;undo type=drone;undo", want: "drone: a, large: a"},
		"one cluster type, then the other":              {steps: "a;b;undo type=drone;undo type=large", want: "drone: a, large: a"},
		"one cluster type twice":                        {steps: "0;a;b;undo type=drone;undo type=drone", want: "drone: a, large: b"},
		"one cluster type, and a new commit is undone":  {steps: "a;b;undo type=drone;c;undo", want: "drone: a, large: a"},
		"a cluster type that did not change":            {steps: "a;b;drone=c;undo type=large", want: "drone: c, large: a"},
		"to a commit":                                   {steps: "a;b;c;undo to=" + commitOf("a")[:7], want: "drone: a, large: a"},
		"to a commit further back after an undo":        {steps: "a;b;c;undo;undo to=" + commitOf("a"), want: "drone: a, large: a"},
		"to the commit that is there":                   {steps: "a;b;undo to=" + commitOf("b"), want: "drone: b, large: b"},
		"to too few digits":                             {steps: "a;b;undo to=" + commitOf("a")[:6], err: "no record of environment prod is of"},
		"one type forward again":                        {steps: "a;b;undo type=drone;undo type=drone to=" + commitOf("b"), want: "drone: b, large: b"},
		"one type to a release":                         {steps: "a;b;c;undo type=drone to=1", want: "drone: a, large: c"},
		"not to what is incomplete":                     {steps: "a;fail;b;mend;c;undo", want: "drone: a, large: a"},
		"to what is incomplete if it is named":          {steps: "a;fail;b;mend;c;undo to=" + commitOf("b"), want: "drone: b, large: b"},
		"an unknown cluster type":                       {steps: "a;b;undo type=dron", err: `unknown cluster type "dron" (known: drone, large)`},
		"a ring where there are none":                   {steps: "a;b;undo ring=canary", err: "environment prod has no rings: leave out --ring"},
		"a cluster type that is new":                    {steps: "a;+small;b;undo", err: "the previous record does not have small"},
		"a cluster type that is new, if it may":         {steps: "a;+small;b;undo allow-empty", want: "drone: a, large: a"},
		"a cluster type that is gone":                   {steps: "a;-large;b;undo", want: "drone: a, large: a"},
		"rings: what the canary has":                    {rings: "y", steps: "a;b;undo", want: "drone: a a a a, large: a a a a"},
		"rings: a step to the next ring is no change":   {rings: "y", steps: "a;b;advance;advance;undo", want: "drone: a a a a, large: a a a a"},
		"rings: without commits":                        {rings: "y", plain: true, steps: "a;b;advance;undo", want: "drone: a a a a, large: a a a a"},
		"rings: back to the middle of a rollout":        {rings: "y", steps: "a;b;advance;c;undo", want: "drone: b b a a, large: b b a a"},
		"rings: twice is once":                          {rings: "y", steps: "a;b;advance;c;undo;undo", want: "drone: b b a a, large: b b a a"},
		"rings: one cluster type":                       {rings: "y", steps: "a;b;advance;undo type=drone", want: "drone: a a a a, large: b b a a"},
		"rings: the widest":                             {rings: "y", steps: "a;b@broad;c;advance;advance;undo ring=broad", want: "drone: c c b b, large: c c b b"},
		"rings: one in the middle":                      {rings: "y", steps: "a;b;advance;undo ring=early", want: "drone: b a a a, large: b a a a"},
		"rings: a narrow one takes wider ones along":    {rings: "y", steps: "a;b;advance;undo ring=canary", want: "drone: a a a a, large: a a a a"},
		"rings: an unknown one":                         {rings: "y", steps: "a;undo ring=canery", err: `unknown ring "canery" (known: canary, early, broad)`},
		"rings: abort":                                  {rings: "y", steps: "a;b;advance;c;abort", want: "drone: a a a a, large: a a a a"},
		"rings: abort twice":                            {rings: "y", steps: "a;b;abort;abort", want: "drone: a a a a, large: a a a a"},
		"rings: abort, and undo does not bring it back": {rings: "y", steps: "0;a@broad;b;abort;undo", want: "drone: a a a a, large: a a a a"},
		"rings: abort one cluster type":                 {rings: "y", steps: "a;b;advance;abort type=large", want: "drone: b b a a, large: a a a a"},
		"rings: nothing to abort":                       {rings: "y", steps: "a;abort", want: "drone: a a a a, large: a a a a"},
		"no rings to abort":                             {steps: "a;b;abort", err: "environment prod has no rings"},
		"what was undone is not released again":         {steps: "a;b;undo;b", want: "drone: a, large: a"},
		"nor without commits":                           {plain: true, steps: "a;b;undo;b", want: "drone: a, large: a"},
		"nor by another commit":                         {steps: "a;b;undo;drone=b", want: "drone: a, large: a"},
		"but with what mends it":                        {steps: "a;b;undo;drone=c", want: "drone: c, large: b"},
		"but if a person says so":                       {steps: "a;b;undo;again;b", want: "drone: b, large: b"},
		"but after an undo of the undo":                 {steps: "a;b;undo;undo to=" + commitOf("b") + ";b;renew", want: "drone: b, large: b"},
		"nor after another undo, the first":             {steps: "a;b;undo;c;undo;b", want: "drone: a, large: a"},
		"nor after another undo, the second":            {steps: "a;b;undo;c;undo;c", want: "drone: a, large: a"},
		"nor after a renewal":                           {steps: "a;b;undo;a;renew;b", want: "drone: a, large: a"},
		"nor of one cluster type":                       {steps: "a;b;undo type=drone;b", want: "drone: a, large: b"},
		"rings: what was aborted is not released again": {rings: "y", steps: "a;b;advance;abort;b", want: "drone: a a a a, large: a a a a"},
		"rings: a ring that has it keeps it":            {rings: "y", steps: "a;b;advance;undo ring=early;b", want: "drone: b a a a, large: b a a a"},
		"rings: to a commit that a ring never had":      {rings: "y", steps: "a;b;c;undo to=" + commitOf("b"), want: "drone: b a a a, large: b a a a"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			if tc.rings != "" {
				w.rings = ringsOfTest
			}
			w.plain = tc.plain
			if w.walk(tc.steps, tc.err) {
				require.Equal(t, tc.want, w.has())
			}
		})
	}
}

func TestAnUndoSaysWhatItDidAndPauses(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	require.NoError(t, w.do("a"))
	previous := w.record()
	require.NoError(t, w.do("b"))
	bad := w.record()
	w.now = w.now.Add(60 * 24 * time.Hour)
	rd := w.reader()
	before, err := rd.Type(t.Context(), "drone")
	require.NoError(t, err)
	done, err := undo.Undo(t.Context(), w.loc, w.keys, undo.Options{Environment: "prod", Reason: "because"}, w.opts)
	require.NoError(t, err)
	require.True(t, done.Undone)
	require.Equal(t, bad.Tag(), done.Left.Record)
	require.Equal(t, previous.Tag(), done.Previous.Record)
	require.Equal(t, "because", w.paused())
	require.Equal(t, []bundle.Undone{{At: w.record().IssuedAt, BaseCommit: commitOf("b"), Contents: w.record().Undone[0].Contents, Reason: "because"}}, w.record().Undone)

	r := w.record()
	require.Equal(t, previous.BaseCommit, r.BaseCommit)
	require.Equal(t, previous.Tag(), r.Former)
	after, err := rd.Type(t.Context(), "drone")
	require.NoError(t, err)
	release := after.Verified.Release
	require.Equal(t, commitOf("a"), release.BaseCommit, "it is as of the previous commit")
	require.Greater(t, release.Sequence, before.Verified.Release.Sequence)
	require.EqualValues(t, 3, release.Number)
	require.Equal(t, w.now.Add(90*24*time.Hour), release.ExpiresAt, "it is valid as long as a new one")
	first, _, err := after.Release(t.Context(), previous.ClusterTypes["drone"].String())
	require.NoError(t, err)
	require.Equal(t, first.Tree, after.Verified.Tree, "the same blob")

	again, err := undo.Undo(t.Context(), w.loc, w.keys, undo.Options{Environment: "prod", Reason: "because"}, w.opts)
	require.NoError(t, err)
	require.False(t, again.Undone)
	require.Nil(t, again.Pause)
}

// A cluster type of which only a part was undone is not as the commit says, so that no gate lets it on.
func TestAPartlyUndoneRecordIsIncomplete(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, step := range []string{"a", "b", "undo type=drone"} {
		require.NoError(t, w.do(step))
	}
	r := w.record()
	require.Equal(t, []string{"drone"}, r.Incomplete)
	require.Equal(t, commitOf("b"), r.BaseCommit)
	require.NoError(t, w.do("undo type=drone to="+commitOf("b")))
	require.Empty(t, w.record().Incomplete)
	require.NoError(t, w.do("undo to="+commitOf("a")))
	require.Equal(t, commitOf("a"), w.record().BaseCommit)
	require.Empty(t, w.record().Incomplete)
}

// An agent follows its ring while every request of an undo is the last of its publisher in turn: it never gets anything but the
// bad or the previous content, never an older release, and the next undo completes it.
func TestAnUndoThatIsCutOffAnywhereIsCompletedByTheNext(t *testing.T) {
	t.Parallel()
	for k, met := int64(1), true; met; k += 11 {
		w := newWorld(t, ringsOfTest...)
		for _, step := range []string{"a", "b", "advance"} {
			require.NoError(t, w.do(step))
		}
		require.Equal(t, "drone: b b a a, large: b b a a", w.has())
		agents := newAgents(w)
		agents.poll("before")
		w.count.Store(0)
		w.after = func(n int64) bool { return n >= k }
		err := w.do("undo")
		met, w.after = w.count.Load() >= k, nil
		require.Equal(t, met, err != nil, "%d: %v", k, err)
		at := fmt.Sprint("request ", k)
		agents.poll(at)
		require.NoError(t, w.do("undo"), at)
		agents.poll(at)
		require.Equal(t, "drone: a a a a, large: a a a a", w.has(), at)
		require.Equal(t, "because", w.paused(), at)
		require.Equal(t, commitOf("a"), w.record().BaseCommit, at)
		require.Less(t, k, int64(2000))
	}
}

// agents are one of each ring, and one without: none ever goes back, or gets what its ring is not to have.
type agents struct {
	*world
	highest map[string]bundle.Order
}

func newAgents(w *world) *agents { return &agents{w, map[string]bundle.Order{}} }

func (a *agents) poll(at string) {
	rd := a.reader()
	for _, name := range []string{"drone", "large"} {
		repo, err := rd.Store.Repository("bundles/prod/" + name)
		require.NoError(a.t, err)
		for _, ring := range []string{"canary", "early", "broad", ""} {
			desc, err := repo.Resolve(a.t.Context(), bundle.MovingTag(ring))
			require.NoError(a.t, err, at)
			v, err := bundle.Verify(a.t.Context(), repo, desc, rd.Trust.Trust)
			require.NoError(a.t, err, at)
			expect := bundle.Expect{Stream: v.Release.Stream(), Ring: ring, Highest: a.highest[name+ring], Now: a.now}
			require.NoError(a.t, expect.Check(v.Release, v.Descriptor.Digest), "%s: %s of ring %q", at, name, ring)
			a.highest[name+ring] = bundle.OrderOf(v.Release, v.Descriptor.Digest)
			text := a.textOf(rd, name, desc.Digest, "web-live")
			if ring == "broad" || ring == "" {
				require.Equal(a.t, "a", text, "%s: %s of ring %q", at, name, ring)
			}
		}
	}
}

// A publication is cut off anywhere: an undo brings back what was there before it, and never what was before that.
func TestAPublicationThatWasCutOffIsUndone(t *testing.T) {
	t.Parallel()
	for k, met := int64(1), true; met; k += 13 {
		w := newWorld(t, ringsOfTest...)
		for _, step := range []string{"0", "a@broad"} {
			require.NoError(t, w.do(step))
		}
		w.count.Store(0)
		w.after = func(n int64) bool { return n >= k }
		_ = w.do("b")
		met, w.after = w.count.Load() >= k, nil
		at := fmt.Sprint("request ", k)
		recorded := w.record().BaseCommit == commitOf("b")
		rd := w.reader()
		changed := false
		for _, name := range []string{"drone", "large"} {
			repo, err := rd.Store.Repository("bundles/prod/" + name)
			require.NoError(t, err)
			desc, err := repo.Resolve(t.Context(), "ring-canary")
			require.NoError(t, err)
			changed = changed || w.textOf(rd, name, desc.Digest, "web-live") == "b"
		}
		require.NoError(t, w.do("undo"), at)
		if changed || recorded {
			require.Equal(t, "drone: a a a a, large: a a a a", w.has(), at)
		}
		require.Less(t, k, int64(2000))
	}
}

// Where two keys have to sign, an undo by one of them waits, may be repeated, and is there once the other has signed.
func TestAnUndoWithSeveralSignersWaitsForTheOthers(t *testing.T) {
	t.Parallel()
	for _, rings := range [][]string{nil, ringsOfTest} {
		w := newWorld(t, rings...)
		anna, ben := keytest.New(t), keytest.New(t)
		root := bundle.Role{Threshold: 1, Keys: []bundle.TrustKey{keytest.Named(t, "anna", anna)}}
		envelope, err := trust.New("edge", root, bundle.Role{Threshold: 2, Keys: []bundle.TrustKey{keytest.Named(t, "anna", anna), keytest.Named(t, "ben", ben)}}, 1000*24*time.Hour, w.now)
		require.NoError(t, err)
		signed, err := trust.Sign(envelope, nil, []*keys.Key{anna})
		require.NoError(t, err)
		chain, err := trust.Begin(signed)
		require.NoError(t, err)
		w.opts.Trust, w.keys = published.Of(chain), []*keys.Key{anna, ben}
		for _, step := range []string{"a", "b"} {
			require.NoError(t, w.do(step))
		}
		before := w.has()
		w.keys = []*keys.Key{anna}
		require.NoError(t, w.do("c"), "it waits for ben, and stays so")
		for n := range 2 {
			done, err := undo.Undo(t.Context(), w.loc, w.keys, undo.Options{Environment: "prod", Reason: "because"}, w.opts)
			require.NoError(t, err)
			require.True(t, done.Undone)
			require.Equal(t, releases.OutcomePending, done.Result)
			if n == 0 {
				require.Len(t, done.Warnings, 1)
				require.Regexp(t, `what waits for signatures \(pending-1-\d+\) has not reached any cluster`, done.Warnings[0])
			} else {
				require.Empty(t, done.Warnings, "that is the undo itself")
			}
			require.Equal(t, &publisher.SignatureCount{Have: 1, Need: 2}, done.Signatures)
			require.Equal(t, before, w.has(), "agents see nothing of it")
			require.Equal(t, "because", w.paused(), "one key is enough to pause")
			w.now = w.now.Add(time.Minute)
		}
		pending, err := publisher.OpenPending(t.Context(), w.loc, "prod", w.opts.Trust, publisher.PendingOptions{OCI: w.opts.OCI, Now: w.opts.Now})
		require.NoError(t, err)
		require.Equal(t, 2, pending.Waiting())
		require.NoError(t, pending.Sign(t.Context(), []*keys.Key{ben}))
		require.True(t, pending.Complete())
		require.NotContains(t, w.has(), "b")
		done, err := undo.Undo(t.Context(), w.loc, w.keys, undo.Options{Environment: "prod", Reason: "because"}, w.opts)
		require.NoError(t, err)
		require.False(t, done.Undone)
	}
}

// Two people undo at once, each stopped at some of their requests: the previous content is there once.
func TestTwoUndosAtOnceEndAsOne(t *testing.T) {
	t.Parallel()
	for k := int64(10); k < 200; k += 30 {
		w := newWorld(t, ringsOfTest...)
		for _, step := range []string{"0", "a@broad", "b"} {
			require.NoError(t, w.do(step))
		}
		other := newWorld(t, ringsOfTest...)
		other.handler, other.keys, other.now = w.handler, w.keys, w.now
		w.count.Store(0)
		w.after = func(n int64) bool {
			if n == k { // in the middle of the one, the other does it all
				require.NoError(t, other.do("undo"))
			}
			return false
		}
		require.NoError(t, w.do("undo"))
		require.Equal(t, "drone: a a a a, large: a a a a", w.has(), k)
	}
}
