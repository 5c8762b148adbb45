package fleet

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"math/bits"
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
	// ofCluster returns the handle of the value of a cluster, and text the value itself where that is not among the texts.
	// Both are nil if only deployments have it.
	ofCluster func(*row) uint32
	text      func(*row) string
	// ofDeployment returns the handle of the value of a deployment; nil if it is the one of its cluster.
	ofDeployment func(*row, *deployment) uint32
}

// ofClusters reports whether clusters have a value of their own.
func (d dimension) ofClusters() bool { return d.ofCluster != nil || d.text != nil }

// value returns the value of a cluster.
func (d dimension) value(r *row) string {
	if d.text != nil {
		return d.text(r)
	}
	return r.m.texts[d.ofCluster(r)]
}

// dimensionOf returns the dimension of this name. The error wraps store.ErrInvalid.
func dimensionOf(name string) (dimension, error) {
	if key, is := strings.CutPrefix(name, "label:"); is && key != "" && len(key) <= store.MaxText {
		return dimension{ofCluster: func(r *row) uint32 { return r.label(key) }}, nil
	}
	ofKind := func(of func(kind) uint32) dimension {
		return dimension{ofDeployment: func(r *row, d *deployment) uint32 { return of(r.m.snapshot.kinds[d.kind]) }}
	}
	switch name {
	case "environment":
		return dimension{ofCluster: func(r *row) uint32 { return r.environment }}, nil
	case "type":
		return dimension{ofCluster: func(r *row) uint32 { return r.typ }}, nil
	case "ring":
		return dimension{ofCluster: func(r *row) uint32 { return r.ring }}, nil
	case "platform":
		return dimension{ofCluster: func(r *row) uint32 { return r.platform }}, nil
	case "relation":
		return dimension{text: func(r *row) string { return string(r.relation()) }}, nil
	case "release":
		return dimension{text: func(r *row) string { return string(r.m.snapshot.releases[r.observed].Digest) }}, nil
	case "commit":
		return dimension{text: func(r *row) string { base, _ := r.m.commits(r.observed); return base }}, nil
	case "agentVersion":
		return dimension{ofCluster: func(r *row) uint32 { return r.agentVersion }}, nil
	case "via":
		return dimension{ofCluster: func(r *row) uint32 { return r.via }}, nil
	case "state":
		return dimension{
			ofCluster:    func(r *row) uint32 { return r.state },
			ofDeployment: func(r *row, d *deployment) uint32 { return r.stateOf(d) },
		}, nil
	case "reason":
		return dimension{
			ofCluster:    func(r *row) uint32 { reason, _ := r.cause(); return reason },
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
	return dimension{}, fmt.Errorf("count by %q: %w: expected one of %s, or label:KEY", store.Plain(store.Clip(name)), store.ErrInvalid, strings.Join(Dimensions, ", "))
}

// Count implements Answers. A cluster counts once for each value that it has; its reason is that of its state, see row.cause.
func (v *View) Count(ctx context.Context, of string, by []string, q Query) (Counts, error) {
	answer := Counts{Of: of, By: by, Rows: []Count{}}
	if len(by) < 1 || len(by) > 2 {
		return answer, fmt.Errorf("count by %d dimensions: %w: one or two", len(by), store.ErrInvalid)
	}
	if of != "clusters" && of != "deployments" {
		return answer, fmt.Errorf("count of %q: %w: clusters or deployments", store.Plain(store.Clip(of)), store.ErrInvalid)
	}
	dimensions := make([]dimension, len(by))
	for i, name := range by {
		var err error
		if dimensions[i], err = dimensionOf(name); err != nil {
			return answer, err
		}
	}
	m, done, err := v.moment(ctx, q, of == "deployments")
	if err != nil {
		return answer, err
	}
	defer done()
	c, err := m.choose(ctx, q)
	if err != nil {
		return answer, err
	}
	n := &counter{m: m, dimensions: dimensions, codes: map[string]uint32{}}
	if of == "clusters" {
		n.clusters(c)
	} else {
		n.deployments(c)
	}
	answer.AsOf, answer.ReadAt = m.asOf, m.readAt
	if answer.Rows = n.rows(); q.mayHaveSlip(len(answer.Rows)) {
		return answer, m.checkNames(ctx, q)
	}
	return answer, nil
}

// counter counts pairs of codes: handles of texts, or above those the codes of other values.
type counter struct {
	m          *moment
	dimensions []dimension
	codes      map[string]uint32
	values     []string
	counts     counts
}

// code returns the code of the value of a cluster in a dimension.
func (n *counter) code(d dimension, r *row) uint32 {
	if d.ofCluster != nil {
		return d.ofCluster(r)
	}
	s := d.text(r)
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

// pair is two codes.
func pair(codes [2]uint32) uint64 { return uint64(codes[0])<<32 | uint64(codes[1]) }

func (n *counter) deployments(c *choice) {
	var fixed [2]uint32 // of the cluster
	var last *cluster
	for r, d := range c.deployments() {
		if r.cluster != last {
			last = r.cluster
			for i, of := range n.dimensions {
				if of.ofDeployment == nil {
					fixed[i] = n.code(of, r)
				}
			}
		}
		codes := fixed
		for i, of := range n.dimensions {
			if of.ofDeployment != nil {
				codes[i] = of.ofDeployment(r, d)
			}
		}
		n.counts.add(key{pair(codes)}, 1)
	}
}

func (n *counter) clusters(c *choice) {
	var had []uint64
	for r := range c.clusters() {
		var fixed [2]uint32
		perDeployment := false
		for i, of := range n.dimensions {
			if of.ofClusters() {
				fixed[i] = n.code(of, r)
			} else {
				perDeployment = true
			}
		}
		if !perDeployment {
			n.counts.add(key{pair(fixed)}, 1)
			continue
		}
		had = had[:0]
		for d := range r.all() {
			if !c.deployment(r, d) {
				continue
			}
			codes := fixed
			for i, of := range n.dimensions {
				if !of.ofClusters() {
					codes[i] = of.ofDeployment(r, d)
				}
			}
			had = append(had, pair(codes))
		}
		slices.Sort(had)
		for _, p := range slices.Compact(had) {
			n.counts.add(key{p}, 1)
		}
	}
}

// rows returns the counts, by their values.
func (n *counter) rows() []Count {
	type ranked struct {
		ranks uint64
		key   uint64
		count uint64
	}
	ranks := [2][]uint32{n.ranks(func(k key) uint32 { return uint32(k[0] >> 32) }), n.ranks(func(k key) uint32 { return uint32(k[0]) })} //nolint:gosec // its halves
	all := make([]ranked, 0, n.counts.used)
	for k, count := range n.counts.all() {
		high, low := uint32(k[0]>>32), uint32(k[0]) //nolint:gosec // its halves
		all = append(all, ranked{pair([2]uint32{ranks[0][high], ranks[1][low]}), k[0], count})
	}
	slices.SortFunc(all, func(a, b ranked) int { return cmp.Compare(a.ranks, b.ranks) })
	rows := make([]Count, 0, len(all))
	values := make([]string, 0, len(all)*len(n.dimensions))
	for _, r := range all {
		codes := [2]uint32{uint32(r.key >> 32), uint32(r.key)} //nolint:gosec // its halves
		from := len(values)
		for i := range n.dimensions {
			values = append(values, n.value(codes[i]))
		}
		rows = append(rows, Count{values[from:len(values):len(values)], int(r.count)}) //nolint:gosec // of rows
	}
	return rows
}

// ranks returns, by code, the place of each value among all of its dimension.
func (n *counter) ranks(of func(key) uint32) []uint32 {
	type named struct {
		name string
		code uint32
	}
	ranks, all := make([]uint32, len(n.m.texts)+len(n.values)), []named{}
	for k := range n.counts.all() {
		if code := of(k); ranks[code] == 0 {
			ranks[code], all = 1, append(all, named{n.value(code), code})
		}
	}
	slices.SortFunc(all, func(a, b named) int { return strings.Compare(a.name, b.name) })
	for i, v := range all {
		ranks[v.code] = uint32(i) //nolint:gosec // less than 2^32 rows
	}
	return ranks
}

// key is up to four handles.
type key [2]uint64

// counts counts keys in an open table, which is several times faster than a map.
type counts struct {
	keys   []key
	counts []uint64
	used   int
	last   int // the place of the last key: rows that are near have the same
}

// all returns the keys with their counts.
func (p *counts) all() iter.Seq2[key, uint64] {
	return func(yield func(key, uint64) bool) {
		for i, n := range p.counts {
			if n > 0 && !yield(p.keys[i], n) {
				return
			}
		}
	}
}

func (p *counts) add(k key, n uint64) {
	if p.used > 0 && p.keys[p.last] == k {
		p.counts[p.last] += n
		return
	}
	if 2*p.used >= len(p.keys) {
		p.grow()
	}
	i := p.place(k)
	if p.counts[i] == 0 {
		p.keys[i] = k
		p.used++
	}
	p.counts[i] += n
	p.last = i
}

func (p *counts) place(k key) int {
	mask := len(p.keys) - 1
	high, low := bits.Mul64(k[0]^0x9E3779B97F4A7C15, k[1]^0xBF58476D1CE4E5B9)
	i := int(high^low) & mask //nolint:gosec // a hash
	for p.counts[i] != 0 && p.keys[i] != k {
		i = (i + 1) & mask
	}
	return i
}

func (p *counts) grow() {
	keys, counts := p.keys, p.counts
	size := max(64, 2*len(keys))
	p.keys, p.counts = make([]key, size), make([]uint64, size)
	for i, n := range counts {
		if n > 0 {
			at := p.place(keys[i])
			p.keys[at], p.counts[at] = keys[i], n
		}
	}
	if p.used > 0 {
		p.last = p.place(keys[p.last])
	}
}
