package fleet

import (
	"cmp"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/hub/store"
)

// field is a value of rows that they are sorted by: a text or a number. The deployment is nil for rows of clusters.
type field struct {
	text   func(*row, *deployment) string
	number func(*row, *deployment) int64
}

// fieldOf returns the field of this name. The error wraps store.ErrInvalid.
func fieldOf(name string, deployments bool) (field, error) {
	known := ClusterSorts
	if deployments {
		known = DeploymentSorts
	}
	if key, is := strings.CutPrefix(name, "label:"); is {
		return field{text: func(r *row, _ *deployment) string { return r.m.texts[r.label(key)] }}, nil
	}
	if !slices.Contains(known, name) {
		return field{}, fmt.Errorf("sort %q: %w: expected one of %s, or label:KEY", store.Plain(store.Clip(name)), store.ErrInvalid, strings.Join(known, ", "))
	}
	switch name {
	case "lastSeen":
		return field{number: func(r *row, _ *deployment) int64 { return r.lastSeen }}, nil
	case "state":
		return field{number: func(r *row, d *deployment) int64 {
			h := r.state
			if d != nil {
				h = r.stateOf(d)
			}
			if at := h - firstState; at < uint32(len(knownStates)) { //nolint:gosec // there are few
				return severities[at]
			}
			return int64(Severity(bundle.State(r.m.texts[h])))
		}}, nil
	case "since":
		return field{number: func(r *row, d *deployment) int64 {
			if d != nil {
				return d.since
			}
			if !r.m.sight.whole() {
				return 0
			}
			return r.since
		}}, nil
	case "behind":
		return field{number: func(r *row, _ *deployment) int64 {
			if desired := r.desired(); desired != nil {
				return -int64(desired.Behind)
			}
			return 0
		}}, nil
	case "release":
		return field{number: func(r *row, _ *deployment) int64 { return r.m.snapshot.releases[r.observed].Sequence }}, nil
	case "deployments":
		return field{number: func(r *row, _ *deployment) int64 { return -int64(r.count()) }}, nil
	case "failures":
		return field{number: func(_ *row, d *deployment) int64 { return -int64(d.failures) }}, nil
	case "name", "cluster":
		return field{text: func(r *row, _ *deployment) string { return r.name }}, nil
	case "uid":
		return field{text: func(r *row, _ *deployment) string { return r.uid }}, nil
	}
	d, err := dimensionOf(name)
	if err != nil {
		return field{}, err
	}
	if d.ofDeployment != nil && deployments {
		return field{text: func(r *row, of *deployment) string { return r.m.texts[d.ofDeployment(r, of)] }}, nil
	}
	return field{text: func(r *row, _ *deployment) string { return d.value(r) }}, nil
}

// severities are Severity of knownStates.
var severities = func() (s []int64) {
	for _, known := range knownStates {
		s = append(s, int64(Severity(known)))
	}
	return s
}()

// cursor is the place of a row among all of a list, and the content of Next.
type cursor struct {
	Sort       string `json:"s,omitempty"`
	Text       string `json:"t,omitempty"`
	Number     int64  `json:"n,omitempty"`
	Cluster    string `json:"c"`
	Assignment string `json:"a,omitempty"`
	// At is the moment of the list, in milliseconds; zero for now. All its pages are of the same.
	At int64 `json:"m,omitempty"`
}

// maxCursor bounds Query.After, in bytes.
const maxCursor = 8192

func parseCursor(s, sort string) (*cursor, error) {
	if s == "" {
		return nil, nil
	}
	c := &cursor{}
	data, err := base64.RawURLEncoding.DecodeString(s[:min(len(s), maxCursor)])
	if err != nil || len(s) > maxCursor || json.Unmarshal(data, c) != nil || c.Cluster == "" || c.Sort != sort {
		return nil, fmt.Errorf("after: %w: expected the next of a page with this order", store.ErrInvalid)
	}
	return c, nil
}

func (c cursor) String() string {
	data, err := json.Marshal(c)
	if err != nil {
		panic(err) // texts and a number
	}
	return base64.RawURLEncoding.EncodeToString(data)
}

// found is a row of a list, or the place of one.
type found struct {
	text       string
	number     int64
	cluster    *cluster
	deployment *deployment
	assignment string // of a place
}

// pager keeps the rows of one page, of all that it is shown.
type pager struct {
	m       *moment
	name    string // of the order
	field   *field // nil if the rows come in order
	reverse bool
	limit   int
	after   *found
	rows    []found
	last    *found // no row after it is of this page; nil while it is not full
}

// newPager returns the pager of a query. The error wraps store.ErrInvalid.
func (m *moment) newPager(q Query, deployments bool) (*pager, error) {
	p := &pager{m: m, limit: q.Limit, name: q.Sort}
	if by, reverse := strings.CutPrefix(q.Sort, "-"); q.Sort != "" {
		f, err := fieldOf(by, deployments)
		if err != nil {
			return nil, err
		}
		p.field, p.reverse = &f, reverse
	}
	c, err := parseCursor(q.After, q.Sort)
	if c != nil {
		p.after = &found{text: c.Text, number: c.Number, cluster: &cluster{name: c.Cluster}, assignment: c.Assignment}
	}
	return p, err
}

// compare orders rows: by the field, then by cluster and assignment.
func (p *pager) compare(a, b *found) int {
	by := cmp.Compare(a.number, b.number)
	if by == 0 && a.text != b.text {
		by = strings.Compare(a.text, b.text)
	}
	if p.reverse {
		by = -by
	}
	if by != 0 {
		return by
	}
	return cmp.Or(strings.Compare(a.cluster.name, b.cluster.name), strings.Compare(p.assignment(a), p.assignment(b)))
}

func (p *pager) assignment(f *found) string {
	if f.deployment == nil {
		return f.assignment
	}
	return p.m.texts[p.m.snapshot.kinds[f.deployment.kind].assignment]
}

// add shows the pager a row. Without a field they come in order.
func (p *pager) add(r *row, d *deployment) {
	f := found{cluster: r.cluster, deployment: d}
	switch {
	case p.field == nil && p.limit > 0 && len(p.rows) > p.limit:
		return
	case p.field == nil:
	case p.field.text != nil:
		f.text = p.field.text(r, d)
	default:
		f.number = p.field.number(r, d)
	}
	if p.last != nil && p.compare(&f, p.last) > 0 || p.after != nil && p.compare(&f, p.after) <= 0 {
		return
	}
	p.rows = append(p.rows, f)
	if p.field != nil && p.limit > 0 && len(p.rows) >= 2*p.limit+16 {
		p.cut()
	}
}

// cut sorts the rows, and drops those that are too many: one more than the page tells that there are more.
func (p *pager) cut() {
	if p.field != nil {
		slices.SortFunc(p.rows, func(a, b found) int { return p.compare(&a, &b) })
	}
	if p.limit > 0 && len(p.rows) > p.limit {
		p.rows = p.rows[:p.limit+1]
		last := p.rows[p.limit]
		p.last = &last
	}
}

// page returns the rows of the page, and the place of the next one.
func (p *pager) page() (rows []found, next string) {
	p.cut()
	if p.limit == 0 || len(p.rows) <= p.limit {
		return p.rows, ""
	}
	rows = p.rows[:p.limit]
	last := &rows[p.limit-1]
	return rows, cursor{p.name, last.text, last.number, last.cluster.name, p.assignment(last), store.Millis(p.m.asOf)}.String()
}
