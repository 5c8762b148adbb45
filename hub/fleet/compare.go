package fleet

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"github.com/opencontainers/go-digest"

	"github.com/wherry-dev/wherry/hub/store"
)

// point is a deployment target, by texts: two moments have other handles.
type point struct{ workspace, workload, target string }

// variant is what runs, by texts.
type variant struct{ version, config, content string }

// number counts clusters.
type number struct{ clusters, compliant int }

// Comparable is what sides are compared by, beside what is missing on one of them.
var Comparable = []string{ChangedVersion, ChangedConfig, ChangedContent, ChangedState}

// ignores reports whether something is not compared.
func (o CompareOptions) ignores(what string) bool { return slices.Contains(o.Ignore, what) }

// of returns what counts of what runs.
func (o CompareOptions) of(v variant) variant {
	if o.ignores(ChangedVersion) {
		v.version, v.content = "", ""
	}
	if o.ignores(ChangedConfig) {
		v.config, v.content = "", ""
	}
	if o.ignores(ChangedContent) {
		v.content = ""
	}
	return v
}

// Compare implements Answers. The error wraps store.ErrInvalid for an unknown name in o.Ignore.
func (v *View) Compare(ctx context.Context, left, right Side, o CompareOptions) (Comparison, error) {
	c := Comparison{Left: left.Name, Right: right.Name, Rows: []ComparisonRow{}}
	for _, what := range o.Ignore {
		if !slices.Contains(Comparable, what) {
			return c, invalid("ignore %q: expected one of %s", store.Plain(store.Clip(what)), strings.Join(Comparable, ", "))
		}
	}
	var sides [2]map[point]map[variant]number
	for i, q := range []Query{left.Query, right.Query} {
		q.After, q.Sort, q.Limit = "", "", 0
		m, done, err := v.moment(ctx, q, true)
		if err != nil {
			return c, err
		}
		sides[i], err = m.variants(ctx, q, o)
		done()
		if err != nil {
			return c, err
		}
		if c.ReadAt.IsZero() {
			c.ReadAt = m.readAt
		}
	}
	for _, p := range matching(sides[0], sides[1]) {
		row := ComparisonRow{Workspace: p.workspace, Workload: p.workload, Target: p.target, RightTarget: p.right, Left: variants(sides[0][p.point]), Right: variants(sides[1][p.onRight()])}
		row.Differs = slices.DeleteFunc(differs(row.Left, row.Right, p.right == ""), o.ignores)
		if len(row.Differs) == 0 {
			c.Same++
			if o.OnlyDiff {
				continue
			}
		}
		c.Rows = append(c.Rows, row)
	}
	slices.SortFunc(c.Rows, func(a, b ComparisonRow) int {
		return cmp.Or(strings.Compare(a.Workspace, b.Workspace), strings.Compare(a.Workload, b.Workload), strings.Compare(a.Target, b.Target))
	})
	return c, nil
}

// counterpart is a deployment target, with its name on the right side if that is another.
type counterpart struct {
	point
	right string
}

func (p counterpart) onRight() point {
	if p.right == "" {
		return p.point
	}
	return point{p.workspace, p.workload, p.right}
}

// matching returns the deployment targets of both sides. Environments often have targets of their own: if a workload has one
// target that is on the left side alone and one that is on the right side alone, these are compared.
func matching(left, right map[point]map[variant]number) (all []counterpart) {
	type workload struct{ workspace, workload string }
	alone := map[workload][2][]string{}
	only := func(side int, of, other map[point]map[variant]number) {
		for p := range of {
			if _, both := other[p]; !both {
				w := workload{p.workspace, p.workload}
				names := alone[w]
				names[side] = append(names[side], p.target)
				alone[w] = names
			} else if side == 0 {
				all = append(all, counterpart{point: p})
			}
		}
	}
	only(0, left, right)
	only(1, right, left)
	for w, names := range alone {
		if len(names[0]) == 1 && len(names[1]) == 1 {
			all = append(all, counterpart{point{w.workspace, w.workload, names[0][0]}, names[1][0]})
			continue
		}
		for _, target := range slices.Concat(names[0], names[1]) {
			all = append(all, counterpart{point: point{w.workspace, w.workload, target}})
		}
	}
	return all
}

// variants counts what runs of each deployment target.
func (m *moment) variants(ctx context.Context, q Query, o CompareOptions) (map[point]map[variant]number, error) {
	c, err := m.choose(ctx, q)
	if err != nil {
		return nil, err
	}
	var all counts // of clusters, and above 32 bits of compliant ones
	for r, d := range c.deployments() {
		n := uint64(1)
		if r.stateOf(d) == compliantState {
			n += 1 << 32
		}
		all.add(codes{d.kind, d.version, d.config, d.content}.key(), n)
	}
	if q.mayHaveSlip(all.used) {
		if err := m.checkNames(ctx, q); err != nil || all.used == 0 {
			return nil, err
		}
	}
	points := map[point]map[variant]number{}
	for k, n := range all.all() {
		of := m.snapshot.kinds[k[0]>>32]
		p := point{m.texts[of.workspace], m.texts[of.workload], m.texts[of.target]}
		if points[p] == nil {
			points[p] = map[variant]number{}
		}
		v := o.of(variant{m.texts[uint32(k[0])], m.texts[k[1]>>32], m.texts[uint32(k[1])]}) //nolint:gosec // the halves
		sum := points[p][v]
		points[p][v] = number{sum.clusters + int(uint32(n)), sum.compliant + int(n>>32)} //nolint:gosec // of clusters
	}
	return points, nil
}

// variants returns what runs, the most frequent first.
func variants(of map[variant]number) []Variant {
	all := make([]Variant, 0, len(of))
	for v, n := range of {
		all = append(all, Variant{Version: v.version, ConfigDigest: digest.Digest(v.config), Content: digest.Digest(v.content), Clusters: n.clusters, Compliant: n.compliant})
	}
	slices.SortFunc(all, func(a, b Variant) int {
		return cmp.Or(cmp.Compare(b.Clusters, a.Clusters), strings.Compare(a.Version, b.Version), cmp.Compare(a.ConfigDigest, b.ConfigDigest), cmp.Compare(a.Content, b.Content))
	})
	return all
}

// differs names what differs between two sides of a deployment target. How many clusters run it does not count, nor the
// content of different targets, whose names are in it.
func differs(left, right []Variant, sameTarget bool) (names []string) {
	switch {
	case len(left) == 0:
		return []string{"missing left"}
	case len(right) == 0:
		return []string{"missing right"}
	}
	if !sameSet(left, right, func(v Variant) variant { return variant{version: v.Version} }) {
		names = append(names, "version")
	}
	if !sameSet(left, right, func(v Variant) variant { return variant{config: string(v.ConfigDigest)} }) {
		names = append(names, "config")
	}
	// Content differs wherever version or configuration do.
	if sameTarget && len(names) == 0 && !sameSet(left, right, func(v Variant) variant { return variant{v.Version, string(v.ConfigDigest), string(v.Content)} }) {
		names = append(names, "content")
	}
	if wellDone(left) != wellDone(right) {
		names = append(names, "state")
	}
	return names
}

// sameSet reports whether both sides have the same values.
func sameSet(left, right []Variant, of func(Variant) variant) bool {
	values := func(side []Variant) map[variant]bool {
		set := map[variant]bool{}
		for _, v := range side {
			set[of(v)] = true
		}
		return set
	}
	l, r := values(left), values(right)
	for v := range l {
		if !r[v] {
			return false
		}
	}
	return len(l) == len(r)
}

// wellDone reports whether all clusters of a side are compliant.
func wellDone(side []Variant) bool {
	return !slices.ContainsFunc(side, func(v Variant) bool { return v.Compliant < v.Clusters })
}
