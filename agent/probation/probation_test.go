package probation

import (
	"testing"
	"time"

	"github.com/opencontainers/go-digest"
	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/agent/state"
	"github.com/wherry-dev/wherry/bundle"
)

const deadline = 5 * time.Minute

var (
	began  = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	r1, r2 = digest.FromString("1"), digest.FromString("2")

	good   = Assignment{Proved: true}
	moving = Assignment{}
	fails  = Assignment{Failed: true, Blamed: true, Reason: "Broken", Message: "it does not start"}
	site   = Assignment{Failed: true, Reason: "NoCluster"}
	held   = Assignment{Failed: true, Blamed: true, Hold: true, Reason: "Broken"}
)

func TestAPassIsTakenAccountOf(t *testing.T) {
	failing := func(n int) map[string]Failing { return map[string]Failing{"a": {n, began}} }
	for _, tc := range []struct {
		name   string
		before Probation
		found  map[string]Assignment
		want   map[string]Failing
	}{
		{"nothing fails", Probation{Release: r1}, map[string]Assignment{"a": good, "b": moving}, nil},
		{"the first failure", Probation{Release: r1}, map[string]Assignment{"a": fails}, map[string]Failing{"a": {1, began.Add(time.Hour)}}},
		{"the next one", Probation{Release: r1, Failing: failing(1)}, map[string]Assignment{"a": fails}, failing(2)},
		{"no more than needed", Probation{Release: r1, Failing: failing(MaxAttempts)}, map[string]Assignment{"a": fails}, failing(MaxAttempts)},
		{"in progress again keeps its count", Probation{Release: r1, Failing: failing(2)}, map[string]Assignment{"a": moving}, failing(2)},
		{"compliant at last", Probation{Release: r1, Failing: failing(2)}, map[string]Assignment{"a": good}, map[string]Failing{}},
		{"it is the site after all", Probation{Release: r1, Failing: failing(2)}, map[string]Assignment{"a": site}, map[string]Failing{}},
		{"not listed any more", Probation{Release: r1, Failing: failing(2)}, nil, map[string]Failing{}},
		{"another release begins anew", Probation{Release: r2, Failing: failing(2), Interrupted: 2}, map[string]Assignment{"a": fails}, map[string]Failing{"a": {1, began.Add(time.Hour)}}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := tc.before.After(r1, tc.found, began.Add(time.Hour))
			require.Equal(t, Probation{Release: r1, Failing: tc.want}, got)
		})
	}
}

func TestAReleaseIsJudged(t *testing.T) {
	late := began.Add(deadline)
	for _, tc := range []struct {
		name    string
		count   int
		now     time.Time
		found   map[string]Assignment
		changed []string // nil: there is no good release
		want    Verdict
		says    string
	}{
		{"not often enough", MaxAttempts - 1, late, map[string]Assignment{"a": fails}, []string{"a"}, Undecided, ""},
		{"not for long enough", MaxAttempts, late.Add(-time.Second), map[string]Assignment{"a": fails}, []string{"a"}, Undecided, ""},
		{"often and long enough", MaxAttempts, late, map[string]Assignment{"a": fails}, []string{"a"}, GiveUp, "fails again and again: a (Broken: it does not start)"},
		{"the clock was set back", MaxAttempts, began.Add(-deadline), map[string]Assignment{"a": fails}, []string{"a"}, GiveUp, "fails again and again: a (Broken: it does not start)"},
		{"in progress just now", MaxAttempts, late, map[string]Assignment{"a": moving}, []string{"a"}, Undecided, ""},
		{"not of what the release has changed", MaxAttempts, late, map[string]Assignment{"a": fails}, []string{"b"}, Undecided, ""},
		{"no good release", MaxAttempts, late, map[string]Assignment{"a": fails}, nil, NoGoodRelease, "fails again and again: a (Broken: it does not start)"},
		{"on hold", MaxAttempts, late, map[string]Assignment{"a": held}, []string{"a"}, OnHold, "fails again and again: a (Broken)"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			asked := false
			changed := func() (func(string) bool, bool) {
				asked = true
				return func(name string) bool { return len(tc.changed) > 0 && tc.changed[0] == name }, tc.changed != nil
			}
			p := Probation{Release: r1, Failing: map[string]Failing{"a": {tc.count, began}}}
			verdict, says := p.Judge(tc.found, changed, deadline, tc.now)
			require.Equal(t, tc.want, verdict)
			require.Equal(t, tc.says, says)
			require.Equal(t, tc.want != Undecided || tc.changed != nil && tc.changed[0] == "b", asked, "the good release is read only where it matters")
		})
	}
}

// release returns a release of a stream, epoch and content.
func release(id, clusterType string, epoch int64, content string) *state.Release {
	r := &state.Release{Release: bundle.Release{Platform: "default", Environment: "dev", ClusterType: clusterType, Epoch: epoch}}
	r.Manifest.Digest, r.Release.Content.DiffID = digest.FromString(id), digest.FromString(content)
	return r
}

func TestThereIsAReleaseToGoBackTo(t *testing.T) {
	running := release("2", "drone", 1, "new")
	for _, tc := range []struct {
		name    string
		running *state.Release
		good    *state.Release
		q       Quarantine
		want    bool
	}{
		{"a good one", running, release("1", "drone", 1, "old"), nil, true},
		{"none runs", nil, release("1", "drone", 1, "old"), nil, false},
		{"none was good", running, nil, nil, false},
		{"of the same content", running, release("1", "drone", 1, "new"), nil, false},
		{"of an epoch that is over", running, release("1", "drone", 0, "old"), nil, false},
		{"of another stream", running, release("1", "till", 1, "old"), nil, false},
		{"both of a stream that is not followed any more", release("2", "till", 1, "new"), release("1", "till", 1, "old"), nil, false},
		{"given up itself", running, release("1", "drone", 1, "old"), Quarantine{{Digest: digest.FromString("1")}}, false},
		{"given up in its content", running, release("1", "drone", 1, "old"), Quarantine{{Content: digest.FromString("old")}}, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			require.Equal(t, tc.want, MayGiveUp(tc.running, tc.good, running.Release.Stream(), tc.q))
		})
	}
}

func TestAnAgentThatDiesAgainAndAgainRests(t *testing.T) {
	running := release("1", "drone", 0, "x")
	for _, tc := range []struct {
		name      string
		p         Probation
		now       time.Time
		crashing  bool
		restsLess bool
	}{
		{"twice", Probation{Release: running.Digest(), Interrupted: MaxAttempts - 1, At: began}, began, false, true},
		{"of another release", Probation{Release: r2, Interrupted: MaxAttempts, At: began}, began, false, true},
		{"three times", Probation{Release: running.Digest(), Interrupted: MaxAttempts, At: began}, began.Add(time.Minute), true, false},
		{"an hour ago", Probation{Release: running.Digest(), Interrupted: MaxAttempts, At: began}, began.Add(CrashRest), true, true},
		{"by a clock that was ahead", Probation{Release: running.Digest(), Interrupted: MaxAttempts, At: began}, began.Add(-time.Minute), true, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			require.Equal(t, tc.crashing, tc.p.Crashing(running))
			require.Equal(t, tc.restsLess, tc.p.RestsUntil(running, tc.now).IsZero())
		})
	}
	require.False(t, Probation{}.Crashing(nil))
}
