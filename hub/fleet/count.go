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

// MaxDimensions is how many of them rows can be counted by at once.
const MaxDimensions = 4

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
	if len(by) < 1 || len(by) > MaxDimensions {
		return answer, fmt.Errorf("count by %d dimensions: %w: one to %d", len(by), store.ErrInvalid, MaxDimensions)
	}
	if err := checkRows(of); err != nil {
		return answer, err
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
	answer.AsOf, answer.ReadAt = m.asOf, m.readAt
	if answer.Rows = m.count(of, dimensions, c); q.mayHaveSlip(len(answer.Rows)) {
		return answer, m.checkNames(ctx, q)
	}
	return answer, nil
}

func checkRows(of string) error {
	if of != "clusters" && of != "deployments" {
		return fmt.Errorf("count of %q: %w: clusters or deployments", store.Plain(store.Clip(of)), store.ErrInvalid)
	}
	return nil
}

// count counts the chosen rows by their values.
func (m *moment) count(of string, by []dimension, c *choice) []Count {
	n := &counter{m: m, dimensions: by, codes: map[string]uint32{}}
	if of == "clusters" {
		n.clusters(c)
	} else {
		n.deployments(c)
	}
	return n.rows()
}

// codes are the values of a row in the dimensions: handles of texts, or above those the codes of other values.
type codes [MaxDimensions]uint32

func (c codes) key() key {
	return key{uint64(c[0])<<32 | uint64(c[1]), uint64(c[2])<<32 | uint64(c[3])}
}

func (k key) codes() codes {
	return codes{uint32(k[0] >> 32), uint32(k[0]), uint32(k[1] >> 32), uint32(k[1])} //nolint:gosec // its halves
}

// counter counts rows by their codes.
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

func (n *counter) deployments(c *choice) {
	var fixed codes // of the cluster
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
		all := fixed
		for i, of := range n.dimensions {
			if of.ofDeployment != nil {
				all[i] = of.ofDeployment(r, d)
			}
		}
		n.counts.add(all.key(), 1)
	}
}

func (n *counter) clusters(c *choice) {
	var had []key
	for r := range c.clusters() {
		var fixed codes
		perDeployment := false
		for i, of := range n.dimensions {
			if of.ofClusters() {
				fixed[i] = n.code(of, r)
			} else {
				perDeployment = true
			}
		}
		if !perDeployment {
			n.counts.add(fixed.key(), 1)
			continue
		}
		had = had[:0]
		for d := range r.all() {
			if !c.deployment(r, d) {
				continue
			}
			all := fixed
			for i, of := range n.dimensions {
				if !of.ofClusters() {
					all[i] = of.ofDeployment(r, d)
				}
			}
			had = append(had, all.key())
		}
		slices.SortFunc(had, key.compare)
		for _, k := range slices.Compact(had) {
			n.counts.add(k, 1)
		}
	}
}

// rows returns the counts, by their values.
func (n *counter) rows() []Count {
	type ranked struct {
		ranks, key key
		count      uint64
	}
	var ranks [MaxDimensions][]uint32
	for i := range n.dimensions {
		ranks[i] = n.ranks(i)
	}
	all := make([]ranked, 0, n.counts.used)
	for k, count := range n.counts.all() {
		of := k.codes()
		for i := range n.dimensions {
			of[i] = ranks[i][of[i]]
		}
		all = append(all, ranked{of.key(), k, count})
	}
	slices.SortFunc(all, func(a, b ranked) int { return a.ranks.compare(b.ranks) })
	rows := make([]Count, 0, len(all))
	values := make([]string, 0, len(all)*len(n.dimensions))
	for _, r := range all {
		from, of := len(values), r.key.codes()
		for i := range n.dimensions {
			values = append(values, n.value(of[i]))
		}
		rows = append(rows, Count{values[from:len(values):len(values)], int(r.count)}) //nolint:gosec // of rows
	}
	return rows
}

// ranks returns, by code, the place of each value of a dimension among all of it.
func (n *counter) ranks(dimension int) []uint32 {
	type named struct {
		name string
		code uint32
	}
	ranks, all := make([]uint32, len(n.m.texts)+len(n.values)), []named{}
	for k := range n.counts.all() {
		if code := k.codes()[dimension]; ranks[code] == 0 {
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

func (k key) compare(o key) int { return cmp.Or(cmp.Compare(k[0], o[0]), cmp.Compare(k[1], o[1])) }

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
