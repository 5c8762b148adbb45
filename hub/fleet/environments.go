package fleet

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/hub/store"
)

// Environments implements Answers. There is a row for each environment of which the view sees a cluster, and for each one of
// which there is a record. Clusters that are registered without a platform count where they belong.
func (v *View) Environments(ctx context.Context, q Query) (Environments, error) {
	m, done, err := v.moment(ctx, q, false)
	if err != nil {
		return Environments{}, err
	}
	defer done()
	platform := q.Platform
	q.Platform = "" // some clusters are registered without
	chosen, err := m.choose(ctx, q)
	if err != nil {
		return Environments{}, err
	}
	type environment struct {
		*Environment
		tally tally
		types map[string]bool
	}
	rows := map[bundle.Stream]*environment{}
	row := func(at bundle.Stream) *environment {
		if rows[at] == nil {
			rows[at] = &environment{Environment: &Environment{Platform: at.Platform, Environment: at.Environment}, types: map[string]bool{}}
		}
		return rows[at]
	}
	for r := range chosen.clusters() {
		id := r.place()
		at := bundle.Stream{Platform: id.Platform, Environment: id.Environment}
		if e := m.published.index.environmentOf(id); e != nil {
			at = e.Stream
		}
		if platform != "" && at.Platform != platform {
			continue
		}
		e := row(at)
		e.types[id.Type] = true
		e.tally.add(m, r.state, 1)
		e.tally.relate(r.relation())
	}
	for at, e := range m.published.index.environments {
		wanted := (platform == "" || at.Platform == platform) && q.ofEnvironment(at.Environment)
		if rows[at] == nil && !(wanted && v.seesAll() && v.seesEnvironment(at.Environment)) {
			continue
		}
		record, shown := e.newest(), row(at)
		shown.Record, shown.BaseCommit, shown.EnvironmentCommit, shown.IssuedAt = record.Digest, record.BaseCommit, record.EnvironmentCommit, record.IssuedAt
		shown.Since, shown.PreviousCommit = e.since()
		if v.seesAll() {
			shown.Incomplete = record.Incomplete
			for _, typ := range record.Types() {
				shown.types[typ] = true
			}
		}
	}
	list := Environments{Environments: make([]Environment, 0, len(rows))}
	for at, e := range rows {
		if v.seesAll() && q.AsOf.IsZero() {
			e.Judged = v.judged(m.published, at)
		}
		e.Types, e.Totals = len(e.types), e.tally.totals()
		list.Environments = append(list.Environments, *e.Environment)
	}
	place := func(e *Environment) float64 {
		if j, i := m.published.judgedAt(bundle.Stream{Platform: e.Platform, Environment: e.Environment}); j != nil {
			return float64(i - len(j.Chain)) // before all others
		}
		if x := m.published.index.environments[bundle.Stream{Platform: e.Platform, Environment: e.Environment}]; x != nil {
			return x.place
		}
		return 0
	}
	slices.SortFunc(list.Environments, func(a, b Environment) int {
		return cmp.Or(strings.Compare(a.Platform, b.Platform), cmp.Compare(place(&a), place(&b)), strings.Compare(a.Environment, b.Environment))
	})
	if q.mayHaveSlip(len(list.Environments)) {
		return list, m.checkNames(ctx, q)
	}
	return list, nil
}

// judged returns what a judge has posted about an environment; nil if nobody has. The gate that it has to the environment before it is left
// out unless the view sees that one.
func (v *View) judged(p *published, at bundle.Stream) *Judged {
	j, i := p.judgedAt(at)
	if j == nil {
		return nil
	}
	e := j.Chain[i]
	if i > 0 && !v.seesEnvironment(j.Chain[i-1].Environment) {
		e.Gates = slices.DeleteFunc(slices.Clone(e.Gates), func(g store.JudgedGate) bool { return g.Ring == "" })
		e.Waits, e.People = nil, nil
	}
	return &Judged{JudgedAt: j.JudgedAt, NextLook: j.NextLook, Version: j.Version, Old: j.Old(v.fleet.now()), Place: i + 1, JudgedEnvironment: e}
}

// judgedAt returns what a judge has posted about the chain of an environment, and its place there; nil if nobody has.
func (p *published) judgedAt(at bundle.Stream) (j *store.Promotion, place int) {
	if j = p.judged[at.Platform]; j != nil {
		place = slices.IndexFunc(j.Chain, func(e store.JudgedEnvironment) bool { return e.Environment == at.Environment })
	}
	if place < 0 {
		return nil, 0
	}
	return j, place
}

// since returns when the environment got the commit that it has, and the commit before.
func (e *environmentIndex) since() (since time.Time, previous string) {
	now := e.newest()
	for _, r := range slices.Backward(e.records) {
		if commit := cmp.Or(r.BaseCommit, r.EnvironmentCommit); commit != cmp.Or(now.BaseCommit, now.EnvironmentCommit) {
			return since, commit
		}
		since = r.IssuedAt
	}
	return since, ""
}

// chain gives each environment its place among those of its platform. The hub has no policy that names a chain, but a commit moves along it:
// the place is how many others had a commit before, on average over the commits that several had.
func (x *desiredIndex) chain() {
	type commit struct{ platform, base string }
	type arrival struct {
		environment *environmentIndex
		at          time.Time
	}
	all := map[commit][]arrival{}
	for _, e := range x.environments {
		seen := map[string]bool{}
		for _, r := range e.records {
			if r.BaseCommit != "" && !seen[r.BaseCommit] {
				seen[r.BaseCommit] = true
				of := commit{e.Stream.Platform, r.BaseCommit}
				all[of] = append(all[of], arrival{e, r.IssuedAt})
			}
		}
	}
	before, commits := map[*environmentIndex]int{}, map[*environmentIndex]int{}
	for _, arrivals := range all {
		if len(arrivals) == 1 {
			continue
		}
		slices.SortFunc(arrivals, func(a, b arrival) int { return a.at.Compare(b.at) })
		earlier := 0
		for i, a := range arrivals {
			if a.at.After(arrivals[earlier].at) {
				earlier = i
			}
			before[a.environment] += earlier
			commits[a.environment]++
		}
	}
	for e, n := range commits {
		e.place = float64(before[e]) / float64(n)
	}
}
