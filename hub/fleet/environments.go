package fleet

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"github.com/wherry-dev/wherry/bundle"
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
		if v.seesAll() {
			shown.Incomplete = record.Incomplete
			for _, typ := range record.Types() {
				shown.types[typ] = true
			}
		}
	}
	list := Environments{Environments: make([]Environment, 0, len(rows))}
	for _, e := range rows {
		e.Types, e.Totals = len(e.types), e.tally.totals()
		list.Environments = append(list.Environments, *e.Environment)
	}
	slices.SortFunc(list.Environments, func(a, b Environment) int {
		return cmp.Or(strings.Compare(a.Platform, b.Platform), strings.Compare(a.Environment, b.Environment))
	})
	if q.mayHaveSlip(len(list.Environments)) {
		return list, m.checkNames(ctx, q)
	}
	return list, nil
}
