package fleet

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/wherry-dev/wherry/hub/store"
)

// Bounds of Facets.
const (
	// MaxFacets is how many dimensions can be asked for at once.
	MaxFacets = 16
	// MaxFacetValues bounds Facet.Values, and Facets.Labels.
	MaxFacetValues = 100
	// maxLabelFacets is how many keys EachLabel stands for.
	maxLabelFacets = 8
)

// EachLabel stands for the labels of Facets.Labels, at most 8, among the dimensions of Facets.
const EachLabel = "label:*"

// Facets counts rows by each of several dimensions.
type Facets struct {
	AsOf   time.Time `json:"asOf,omitzero"`
	ReadAt time.Time `json:"readAt,omitzero"` // see Clusters
	// Of is "clusters" or "deployments".
	Of     string  `json:"of"`
	Facets []Facet `json:"facets"`
	// Labels are the keys of the labels of the clusters that the query's other conditions leave, sorted.
	Labels []string `json:"labels"`
}

// Facet counts rows by one dimension. The query's condition on that dimension does not count: it is what one could choose.
type Facet struct {
	By string `json:"by"`
	// Values are the most frequent first.
	Values []FacetValue `json:"values"`
	// More is the number of values that are left out.
	More int `json:"more,omitempty"`
}

// FacetValue is one value of a Facet; empty for rows that have none.
type FacetValue struct {
	Value string `json:"value"`
	Count int    `json:"count"`
}

// Facets implements Answers.
func (v *View) Facets(ctx context.Context, of string, by []string, q Query) (Facets, error) {
	answer := Facets{Of: of, Facets: []Facet{}, Labels: []string{}}
	if len(by) < 1 || len(by) > MaxFacets {
		return answer, fmt.Errorf("facets by %d dimensions: %w: one to %d", len(by), store.ErrInvalid, MaxFacets)
	}
	if err := checkRows(of); err != nil {
		return answer, err
	}
	wide := q // a fleet of then is read once
	for _, name := range by {
		wide = wide.without(name)
	}
	m, done, err := v.moment(ctx, wide, of == "deployments")
	if err != nil {
		return answer, err
	}
	defer done()
	answer.AsOf, answer.ReadAt = m.asOf, m.readAt
	all, err := m.choose(ctx, wide)
	if err != nil {
		return answer, err
	}
	keys := all.labelKeys()
	answer.Labels = append(answer.Labels, keys[:min(len(keys), MaxFacetValues)]...)
	if i := slices.Index(by, EachLabel); i >= 0 {
		var each []string
		for _, key := range keys[:min(len(keys), maxLabelFacets)] {
			each = append(each, "label:"+key)
		}
		by = slices.Replace(slices.Clone(by), i, i+1, each...)
	}
	for _, name := range by {
		d, err := dimensionOf(name)
		if err != nil {
			return answer, err
		}
		c, err := m.choose(ctx, q.without(name))
		if err != nil {
			return answer, err
		}
		answer.Facets = append(answer.Facets, facetOf(name, m.count(of, []dimension{d}, c)))
	}
	if q.mayHaveSlip(0) {
		return answer, m.checkNames(ctx, q)
	}
	return answer, nil
}

func facetOf(name string, counts []Count) Facet {
	f := Facet{By: name, Values: make([]FacetValue, 0, min(len(counts), MaxFacetValues)), More: max(0, len(counts)-MaxFacetValues)}
	slices.SortStableFunc(counts, func(a, b Count) int { return cmp.Compare(b.Count, a.Count) })
	for _, c := range counts[:min(len(counts), MaxFacetValues)] {
		f.Values = append(f.Values, FacetValue{c.Values[0], c.Count})
	}
	return f
}

// labelKeys returns the keys of the labels of the chosen clusters, sorted.
func (c *choice) labelKeys() []string {
	keys := map[uint32]bool{}
	for r := range c.clusters() {
		for _, l := range r.labels {
			keys[l.key] = true
		}
	}
	names := map[string]bool{}
	for k := range keys {
		names[c.m.texts[k]] = true
	}
	return slices.Sorted(maps.Keys(names))
}

// without returns q without its condition on a dimension.
func (q Query) without(dimension string) Query {
	if key, is := strings.CutPrefix(dimension, "label:"); is {
		q.Selector = withoutLabel(q.Selector, key)
		return q
	}
	for _, p := range parameters() {
		if p.name == dimension && p.clear != nil {
			p.clear(&q)
		}
	}
	return q
}

// withoutLabel returns a selector without its requirements on a label, or with EachLabel's key on any.
func withoutLabel(s, key string) string {
	parsed, err := parseSelector(s)
	if err != nil || key == "*" {
		return "" // whoever uses s itself gets the error
	}
	var left []string
	for _, r := range parsed {
		if r.Key() != key {
			left = append(left, r.String())
		}
	}
	return strings.Join(left, ",")
}
