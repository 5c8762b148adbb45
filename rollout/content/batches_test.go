package content_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"
	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/bundle/ledger"
	"github.com/wherry-dev/wherry/rollout/content"
	"github.com/wherry-dev/wherry/rollout/gate"
	"github.com/wherry-dev/wherry/scheduler/promotion"
)

// 50 teams, of which one pushes each minute for a day, a soak of an hour in stage, and three rings of prod, each of which has to have the
// same for an hour: what is proved reaches the last ring within the time of two batches. Without batches the first ring never has the same
// for an hour, and nothing reaches the last one.
func TestBatchesReachTheLastRing(t *testing.T) {
	const teams, most = 50, 4*time.Hour + 4*look
	for _, batches := range []bool{true, false} {
		c := newConveyor(teams)
		for range 24 * time.Hour / look {
			for range look / time.Minute {
				c.push()
			}
			c.look(t, batches)
		}
		if !batches {
			require.Less(t, c.reached, teams, "%d of %d proved revisions reached the last ring", c.reached, c.proved)
			continue
		}
		require.Greater(t, c.reached, 4*teams, "%d of %d proved revisions reached the last ring", c.reached, c.proved)
		for range (most + time.Hour) / look { // nobody pushes any more
			c.look(t, batches)
		}
		require.LessOrEqual(t, c.longest, most)
		for k, v := range c.heads {
			require.Equal(t, v, c.rings[2].has[k].version, k)
		}
		_, err := c.ledger().Marshal()
		require.NoError(t, err)
	}
}

// look is the time between two looks at both environments.
const look = 5 * time.Minute

// conveyor is stage, which takes heads at each look, and prod with its rings.
type conveyor struct {
	random *rand.Rand
	now    time.Time
	heads  map[ledger.Key]int
	stage  map[ledger.Key]delivered
	rings  []*ring
	// versions are what revisions are.
	versions map[digest.Digest]int
	proofs   map[ledger.Key][]ledger.Proof
	// open are proved revisions that are not in the last ring, with the times at which they were proved.
	open            map[ledger.Key]map[int]time.Time
	proved, reached int
	longest         time.Duration // from the proof to the last ring
}

// delivered is what an environment or ring has of a workload.
type delivered struct {
	version int
	stay    ledger.Stay
}

// ring has delivered since changed.
type ring struct {
	name    string
	has     map[ledger.Key]delivered
	changed time.Time
	batch   ledger.Record
}

func newConveyor(teams int) *conveyor {
	c := &conveyor{
		random: rand.New(rand.NewPCG(1, 2)), now: now, heads: map[ledger.Key]int{}, stage: map[ledger.Key]delivered{},
		versions: map[digest.Digest]int{}, proofs: map[ledger.Key][]ledger.Proof{}, open: map[ledger.Key]map[int]time.Time{},
	}
	for _, name := range []string{"canary", "early", "stable"} {
		c.rings = append(c.rings, &ring{name: name, has: map[ledger.Key]delivered{}, changed: now})
	}
	for i := range teams {
		k := ledger.Key{Registration: fmt.Sprint("team", i), Workload: "app"}
		c.heads[k], c.open[k] = 0, map[int]time.Time{}
		c.stage[k] = delivered{0, ledger.Stay{Since: now, Record: rec(0), BaseCommit: "b1"}}
		for _, r := range c.rings {
			of := ledger.From{Environment: "stage", Revision: c.revision("stage", k, c.stage[k]).Revision, Record: rec(0)}
			r.has[k] = delivered{0, ledger.Stay{Ring: r.name, Since: now, Record: rec(0), BaseCommit: "b1", From: of}}
		}
	}
	return c
}

func (c *conveyor) keys() []ledger.Key {
	return slices.SortedFunc(maps.Keys(c.heads), ledger.Key.Compare)
}

func (c *conveyor) revision(environment string, k ledger.Key, d delivered) ledger.Revision {
	r := revision(environment, fmt.Sprint(k, " ", d.version), d.stay)
	c.versions[r.Revision] = d.version
	return r
}

// push has one team push.
func (c *conveyor) push() { c.heads[c.keys()[c.random.IntN(len(c.heads))]]++ }

// look lets time pass until the next look, publishes both environments, and advances rings.
func (c *conveyor) look(t *testing.T, batches bool) {
	c.now = c.now.Add(look)
	record := ledger.Record{Epoch: 1, Sequence: c.now.Unix()}
	for k, v := range c.heads {
		if c.stage[k].version != v {
			c.stage[k] = delivered{v, ledger.Stay{Since: c.now, Record: record, BaseCommit: "b1"}}
		}
	}
	for k, s := range c.stage {
		if s.version > 0 && c.now.Sub(s.stay.Since) == time.Hour {
			c.open[k][s.version] = c.now
			c.proved++
		}
	}
	for i := len(c.rings) - 1; i > 0; i-- { // the widest first
		before, r := c.rings[i-1], c.rings[i]
		if c.now.Sub(before.changed) >= time.Hour && before.changed.After(r.changed) {
			r.has, r.changed, r.batch = maps.Clone(before.has), c.now, before.batch
			for k, d := range r.has {
				d.stay.Ring = r.name
				r.has[k] = d
			}
		}
	}
	c.publish(t, record, batches)
	for k, all := range c.open {
		for v, at := range all {
			if c.rings[2].has[k].version >= v {
				c.longest = max(c.longest, c.now.Sub(at))
				c.reached++
				delete(all, v)
			}
		}
	}
}

// publish decides, and gives the first ring what has moved.
func (c *conveyor) publish(t *testing.T, record ledger.Record, batches bool) {
	g := promotion.Default()
	g.Soak, g.Content.Held = time.Hour, true
	below := &ledger.Ledger{Schema: ledger.Schema}
	q := content.Question{
		Policy: promotion.Policy{Environment: "prod", Chain: []string{"stage", "prod"}, Gate: g}, Own: c.ledger(), Below: below, OwnRing: "canary",
		BaseCommit: "b1", Counts: map[ledger.Key]content.Count{}, Now: c.now,
	}
	for k, s := range c.stage {
		below.Workloads = append(below.Workloads, ledger.Workload{Key: k, Revisions: []ledger.Revision{c.revision("stage", k, s)}})
		q.Counts[k] = content.Count{Cohort: gate.Cohort{Clusters: 2, Compliant: 2}}
	}
	below.Sort()
	if batch, _ := q.Own.Batch([]string{"canary", "early", "stable"}); batches && batch != (ledger.Record{}) {
		q.Closed = "a batch is on its way"
	}
	d := content.Decide(q)
	require.Empty(t, d.Refused())
	c.proofs = d.Proofs
	first := c.rings[0]
	for _, take := range d.Takes {
		if take.Kind != content.Proved || !take.Moves {
			continue
		}
		first.changed, first.batch = c.now, record
		first.has[take.Key] = delivered{c.versions[take.Proof.Revision], ledger.Stay{
			Ring: "canary", Since: c.now, Record: record, BaseCommit: "b1", From: ledger.From{Environment: "stage", Revision: take.Proof.Revision, Record: take.Proof.Record},
		}}
	}
}

// ledger returns that of prod.
func (c *conveyor) ledger() *ledger.Ledger {
	l := &ledger.Ledger{Schema: ledger.Schema, Batches: map[string]ledger.Record{}}
	for _, r := range c.rings {
		if r.batch != (ledger.Record{}) {
			l.Batches[r.name] = r.batch
		}
	}
	for _, k := range c.keys() {
		w := ledger.Workload{Key: k, Proofs: c.proofs[k]}
		for _, r := range c.rings {
			made := c.revision("prod", k, r.has[k])
			if i := slices.IndexFunc(w.Revisions, func(o ledger.Revision) bool { return o.Revision == made.Revision }); i >= 0 {
				w.Revisions[i].In = append(w.Revisions[i].In, made.In...)
			} else {
				w.Revisions = append(w.Revisions, made)
			}
		}
		l.Workloads = append(l.Workloads, w)
	}
	l.Sort()
	return l
}
