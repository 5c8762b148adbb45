package fleet

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/wherry-dev/wherry/hub/store"
)

// Dimensions are what rows can be counted by, besides "label:KEY" for the value of a label. An empty value means that a row
// has none.
var Dimensions = []string{
	"environment", "type", "ring", "platform", "state", "relation", "release", "version", "workspace", "application", "workload", "target", "adapter",
	"reason", "commit", "config", "content", "agentVersion", "via",
}

// dimension is a value of rows.
type dimension struct {
	// ofCluster returns the value of a cluster; nil if only deployments have it.
	ofCluster func(*row) string
	// ofDeployment returns the handle of the value of a deployment; nil if it is the one of its cluster.
	ofDeployment func(*row, *deployment) uint32
}

// dimensionOf returns the dimension of this name. The error wraps store.ErrInvalid.
func dimensionOf(name string) (dimension, error) {
	if key, is := strings.CutPrefix(name, "label:"); is && key != "" && len(key) <= store.MaxText {
		return dimension{ofCluster: func(r *row) string { return r.label(key) }}, nil
	}
	ofKind := func(of func(kind) uint32) dimension {
		return dimension{ofDeployment: func(r *row, d *deployment) uint32 { return of(r.m.snapshot.kinds[d.kind]) }}
	}
	switch name {
	case "environment":
		return dimension{ofCluster: func(r *row) string { return r.m.texts[r.environment] }}, nil
	case "type":
		return dimension{ofCluster: func(r *row) string { return r.m.texts[r.typ] }}, nil
	case "ring":
		return dimension{ofCluster: func(r *row) string { return r.m.texts[r.ring] }}, nil
	case "platform":
		return dimension{ofCluster: func(r *row) string { return r.m.texts[r.platform] }}, nil
	case "relation":
		return dimension{ofCluster: func(r *row) string { return string(r.relation()) }}, nil
	case "release":
		return dimension{ofCluster: func(r *row) string { return string(r.m.snapshot.releases[r.observed].Digest) }}, nil
	case "commit":
		return dimension{ofCluster: func(r *row) string { base, _ := r.m.commits(r.observed); return base }}, nil
	case "agentVersion":
		return dimension{ofCluster: func(r *row) string { return r.m.texts[r.agentVersion] }}, nil
	case "via":
		return dimension{ofCluster: func(r *row) string { return r.m.texts[r.via] }}, nil
	case "state":
		return dimension{
			ofCluster:    func(r *row) string { return r.m.texts[r.state] },
			ofDeployment: func(r *row, d *deployment) uint32 { return r.stateOf(d) },
		}, nil
	case "reason":
		return dimension{
			ofCluster: func(r *row) string {
				if !r.m.sight.whole() {
					return ""
				}
				return r.m.texts[r.reason]
			},
			ofDeployment: func(_ *row, d *deployment) uint32 { return d.reason },
		}, nil
	case "version":
		return dimension{ofDeployment: func(_ *row, d *deployment) uint32 { return d.version }}, nil
	case "config":
		return dimension{ofDeployment: func(_ *row, d *deployment) uint32 { return d.config }}, nil
	case "content":
		return dimension{ofDeployment: func(_ *row, d *deployment) uint32 { return d.content }}, nil
	case "assignment":
		return ofKind(func(k kind) uint32 { return k.assignment }), nil
	case "workspace":
		return ofKind(func(k kind) uint32 { return k.workspace }), nil
	case "application":
		return ofKind(func(k kind) uint32 { return k.application }), nil
	case "workload":
		return ofKind(func(k kind) uint32 { return k.workload }), nil
	case "target":
		return ofKind(func(k kind) uint32 { return k.target }), nil
	case "adapter":
		return ofKind(func(k kind) uint32 { return k.adapter }), nil
	}
	return dimension{}, fmt.Errorf("count by %q: %w: it is one of %s, or label:KEY", store.Plain(store.Clip(name)), store.ErrInvalid, strings.Join(Dimensions, ", "))
}

// Count implements Answers. A cluster counts once for each value that it has; its state and reason are its own.
func (v *View) Count(ctx context.Context, of string, by []string, q Query) (Counts, error) {
	counts := Counts{Of: of, By: by, Rows: []Count{}}
	if len(by) < 1 || len(by) > 2 {
		return counts, fmt.Errorf("count by %d dimensions: %w: one or two", len(by), store.ErrInvalid)
	}
	if of != "clusters" && of != "deployments" {
		return counts, fmt.Errorf("count of %q: %w: clusters or deployments", store.Plain(store.Clip(of)), store.ErrInvalid)
	}
	dimensions := make([]dimension, 2)
	for i, name := range by {
		var err error
		if dimensions[i], err = dimensionOf(name); err != nil {
			return counts, err
		}
	}
	m, done, err := v.moment(ctx, q, of == "deployments")
	if err != nil {
		return counts, err
	}
	defer done()
	c, err := m.choose(ctx, q)
	if err != nil {
		return counts, err
	}
	n := &counter{m: m, codes: map[string]uint32{}}
	for i, d := range dimensions[:len(by)] {
		n.dimensions[i] = d
	}
	if of == "clusters" {
		n.clusters(c)
	} else {
		n.deployments(c)
	}
	counts.AsOf, counts.ReadAt = m.asOf, m.readAt
	if counts.Rows = n.rows(len(by)); len(counts.Rows) == 0 {
		return counts, m.checkNames(ctx, q)
	}
	return counts, nil
}

// counter counts pairs of codes: handles of texts, or above those the codes of other values.
type counter struct {
	m          *moment
	dimensions [2]dimension
	codes      map[string]uint32
	values     []string
	counts     pairs
}

// code returns the code of a value of a cluster.
func (n *counter) code(s string) uint32 {
	code, known := n.codes[s]
	if !known {
		code = uint32(len(n.m.texts) + len(n.values)) //nolint:gosec // less than 2^32 rows
		n.codes[s], n.values = code, append(n.values, s)
	}
	return code
}

func (n *counter) value(code uint32) string {
	if i := int(code) - len(n.m.texts); i >= 0 {
		return n.values[i]
	}
	return n.m.texts[code]
}

func (n *counter) deployments(c *choice) {
	var fixed [2]uint32 // of the cluster
	var last *cluster
	for r, d := range c.deployments() {
		if r.cluster != last {
			last = r.cluster
			for i, of := range n.dimensions {
				if of.ofDeployment == nil && of.ofCluster != nil {
					fixed[i] = n.code(of.ofCluster(r))
				}
			}
		}
		pair := fixed
		for i, of := range n.dimensions {
			if of.ofDeployment != nil {
				pair[i] = of.ofDeployment(r, d)
			}
		}
		n.counts.add(uint64(pair[0])<<32|uint64(pair[1]), 1)
	}
}

func (n *counter) clusters(c *choice) {
	var had []uint64
	for r := range c.clusters() {
		var fixed [2]uint32
		perDeployment := false
		for i, of := range n.dimensions {
			switch {
			case of.ofCluster != nil:
				fixed[i] = n.code(of.ofCluster(r))
			case of.ofDeployment != nil:
				perDeployment = true
			}
		}
		if !perDeployment {
			n.counts.add(uint64(fixed[0])<<32|uint64(fixed[1]), 1)
			continue
		}
		had = had[:0]
		for d := range r.all() {
			if !c.deployment(r, d) {
				continue
			}
			pair := fixed
			for i, of := range n.dimensions {
				if of.ofCluster == nil && of.ofDeployment != nil {
					pair[i] = of.ofDeployment(r, d)
				}
			}
			had = append(had, uint64(pair[0])<<32|uint64(pair[1]))
		}
		slices.Sort(had)
		for _, pair := range slices.Compact(had) {
			n.counts.add(pair, 1)
		}
	}
}

// rows returns the counts, by their values.
func (n *counter) rows(dimensions int) []Count {
	rows := []Count{}
	for i, count := range n.counts.counts {
		if count == 0 {
			continue
		}
		pair := n.counts.keys[i]
		values := []string{n.value(uint32(pair >> 32)), n.value(uint32(pair))} //nolint:gosec // its halves
		rows = append(rows, Count{values[:dimensions], count})
	}
	slices.SortFunc(rows, func(a, b Count) int {
		return slices.CompareFunc(a.Values, b.Values, cmp.Compare[string])
	})
	return rows
}

// pairs counts pairs in an open table, which is several times faster than a map.
type pairs struct {
	keys   []uint64
	counts []int
	used   int
	last   int // where the last pair is: rows that are near have the same
}

func (p *pairs) add(pair uint64, n int) {
	if len(p.keys) > 0 && p.keys[p.last] == pair && p.counts[p.last] > 0 {
		p.counts[p.last] += n
		return
	}
	if 2*p.used >= len(p.keys) {
		p.grow()
	}
	i := p.place(pair)
	if p.counts[i] == 0 {
		p.keys[i] = pair
		p.used++
	}
	p.counts[i] += n
	p.last = i
}

func (p *pairs) place(pair uint64) int {
	mask := len(p.keys) - 1
	i := int((pair*0x9E3779B97F4A7C15)>>32) & mask //nolint:gosec // a hash
	for p.counts[i] != 0 && p.keys[i] != pair {
		i = (i + 1) & mask
	}
	return i
}

func (p *pairs) grow() {
	keys, counts := p.keys, p.counts
	size := max(64, 2*len(keys))
	p.keys, p.counts, p.last = make([]uint64, size), make([]int, size), 0
	for i, n := range counts {
		if n > 0 {
			at := p.place(keys[i])
			p.keys[at], p.counts[at] = keys[i], n
		}
	}
}
