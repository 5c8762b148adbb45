package fleet

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"

	"github.com/wherry-dev/wherry/hub/store"
)

// Bounds of a selector, so that none is slow.
const (
	maxSelectorBytes = 4096
	maxRequirements  = 32
)

// verdict is what is known about a handle.
type verdict uint8

const (
	unknown verdict = iota
	yes
	no
)

func verdictOf(b bool) verdict {
	if b {
		return yes
	}
	return no
}

// test is a condition on texts. Each text is looked at once.
type test struct {
	texts    []string
	verdicts []verdict
	holds    func(string) bool
}

func (s *snapshot) test(holds func(string) bool) *test {
	return &test{s.texts, make([]verdict, len(s.texts)), holds}
}

func (t *test) has(h uint32) bool {
	v := t.verdicts[h]
	if v == unknown {
		v = verdictOf(t.holds(t.texts[h]))
		t.verdicts[h] = v
	}
	return v == yes
}

// oneOf is a condition that a text is one of a few. Each text has one handle.
type oneOf struct {
	texts   []string
	wanted  []string
	handles []uint32 // of those that were found
}

func (s *snapshot) oneOf(wanted ...string) *oneOf { return &oneOf{texts: s.texts, wanted: wanted} }

func (o *oneOf) has(h uint32) bool {
	if slices.Contains(o.handles, h) {
		return true
	}
	if len(o.handles) == len(o.wanted) || !slices.Contains(o.wanted, o.texts[h]) {
		return false
	}
	o.handles = append(o.handles, h)
	return true
}

// selector is a label selector. The zero selector chooses all.
type selector []labels.Requirement

// parseSelector reads a selector in kubectl's form. The error wraps store.ErrInvalid.
func parseSelector(s string) (selector, error) {
	if len(s) > maxSelectorBytes {
		return nil, fmt.Errorf("selector: %w: it has %d bytes, at most %d", store.ErrInvalid, len(s), maxSelectorBytes)
	}
	parsed, err := labels.Parse(s)
	if err != nil {
		return nil, fmt.Errorf("selector %q: %w: %s", store.Plain(s), store.ErrInvalid, store.Plain(err.Error()))
	}
	all, _ := parsed.Requirements()
	if len(all) > maxRequirements {
		return nil, fmt.Errorf("selector: %w: it has %d requirements, at most %d", store.ErrInvalid, len(all), maxRequirements)
	}
	return selector(all), nil
}

// labelMatch is a selector on a snapshot.
type labelMatch []labelTest

// labelTest is a requirement on a snapshot.
type labelTest struct {
	key    *oneOf
	value  *test // of a label that is there
	absent bool  // whether the requirement is met without the label
}

func (s selector) on(snap *snapshot) *labelMatch {
	m := make(labelMatch, 0, len(s))
	for i := range s {
		r := &s[i]
		m = append(m, labelTest{snap.oneOf(r.Key()), snap.test(holds(r)), slices.Contains([]selection.Operator{selection.NotIn, selection.NotEquals, selection.DoesNotExist}, r.Operator())})
	}
	return &m
}

// holds returns the condition of a requirement on the value of a label that is there.
func holds(r *labels.Requirement) func(string) bool {
	values := r.Values()
	switch r.Operator() {
	case selection.In, selection.Equals, selection.DoubleEquals:
		return values.Has
	case selection.NotIn, selection.NotEquals:
		return func(v string) bool { return !values.Has(v) }
	case selection.Exists:
		return func(string) bool { return true }
	case selection.GreaterThan, selection.LessThan:
		return func(v string) bool {
			is, err := strconv.ParseInt(v, 10, 64)
			if err != nil || values.Len() != 1 {
				return false
			}
			bound, err := strconv.ParseInt(values.UnsortedList()[0], 10, 64)
			return err == nil && (r.Operator() == selection.GreaterThan && is > bound || r.Operator() == selection.LessThan && is < bound)
		}
	}
	return func(string) bool { return false } // DoesNotExist
}

func (m *labelMatch) matches(c *cluster) bool {
	for i := range *m {
		t := &(*m)[i]
		met := t.absent
		for _, l := range c.labels {
			if t.key.has(l.key) {
				met = t.value.has(l.value)
				break
			}
		}
		if !met {
			return false
		}
	}
	return true
}

// minBeginning is how many digits of a digest or a commit are enough.
const minBeginning = 7

// digestTest returns the condition that a text is a digest that begins so, with its algorithm or without. The error wraps
// store.ErrInvalid.
func digestTest(what, wanted string) (func(string) bool, error) {
	algorithm, digits, whole := strings.Cut(strings.ToLower(wanted), ":")
	if !whole {
		algorithm, digits = "", algorithm
	}
	if len(digits) < minBeginning || whole && strings.Trim(algorithm, "abcdefghijklmnopqrstuvwxyz0123456789") != "" || strings.Trim(digits, "0123456789abcdef") != "" {
		return nil, fmt.Errorf("%s %q: %w: expected a digest, or at least its first %d hexadecimal digits", what, store.Plain(store.Clip(wanted)), store.ErrInvalid, minBeginning)
	}
	return func(s string) bool {
		a, d, found := strings.Cut(s, ":")
		return found && strings.HasPrefix(d, digits) && (algorithm == "" || a == algorithm)
	}, nil
}

// commitTest returns the condition that a text is a commit that begins so. The error wraps store.ErrInvalid.
func commitTest(wanted string) (func(string) bool, error) {
	if len(wanted) < minBeginning {
		return nil, fmt.Errorf("commit %q: %w: it has at least %d digits", store.Plain(wanted), store.ErrInvalid, minBeginning)
	}
	wanted = strings.ToLower(wanted)
	return func(s string) bool { return strings.HasPrefix(strings.ToLower(s), wanted) }, nil
}
