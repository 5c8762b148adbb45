package scheduler

import (
	"fmt"
	"math/bits"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"

	"github.com/wherry-dev/wherry/bundle/lazyregexp"
	"github.com/wherry-dev/wherry/scheduler/finding"
	"github.com/wherry-dev/wherry/scheduler/kinds"
)

// bitset is a set of small numbers, here of positions in a slice.
type bitset []uint64

func newBitset(n int) bitset { return make(bitset, (n+63)/64) }

func fullBitset(n int) bitset {
	b := newBitset(n)
	for i := range n {
		b.add(i)
	}
	return b
}

func (b bitset) add(i int) { b[i/64] |= 1 << (i % 64) }

func (b bitset) addAll(members []int) {
	for _, i := range members {
		b.add(i)
	}
}

func (b bitset) has(i int) bool { return b[i/64]&(1<<(i%64)) != 0 }

func (b bitset) union(other bitset) {
	for i, word := range other {
		b[i] |= word
	}
}

func (b bitset) intersect(other bitset) {
	for i, word := range other {
		b[i] &= word
	}
}

func (b bitset) subtract(other bitset) {
	for i, word := range other {
		b[i] &^= word
	}
}

func (b bitset) empty() bool {
	for _, word := range b {
		if word != 0 {
			return false
		}
	}
	return true
}

func (b bitset) count() int {
	n := 0
	for _, word := range b {
		n += bits.OnesCount64(word)
	}
	return n
}

// all yields the members in rising order.
func (b bitset) all(yield func(int) bool) {
	for i, word := range b {
		for ; word != 0; word &= word - 1 {
			if !yield(i*64 + bits.TrailingZeros64(word)) {
				return
			}
		}
	}
}

// labelIndex answers which members of a list carry a label, so that a selector costs one lookup for
// each of its requirements, however long the list is.
type labelIndex struct {
	size   int
	values map[string]map[string][]int // key, value: members; lists, since a team can have as many values as members
	keys   map[string][]int            // key: members
}

func newLabelIndex(members []map[string]string) *labelIndex {
	ix := &labelIndex{size: len(members), values: map[string]map[string][]int{}, keys: map[string][]int{}}
	for i, member := range members {
		for key, value := range member {
			if ix.values[key] == nil {
				ix.values[key] = map[string][]int{}
			}
			ix.keys[key] = append(ix.keys[key], i)
			ix.values[key][value] = append(ix.values[key][value], i)
		}
	}
	return ix
}

// selectBy returns the members that meet all requirements.
func (ix *labelIndex) selectBy(requirements labels.Requirements) bitset {
	found := fullBitset(ix.size)
	for _, r := range requirements {
		switch key := r.Key(); r.Operator() {
		case selection.Exists:
			found.intersect(ix.with(key))
		case selection.DoesNotExist:
			found.subtract(ix.with(key))
		case selection.NotIn, selection.NotEquals: // also meets those that lack the key
			found.subtract(ix.withAny(key, r.Values().UnsortedList()))
		default:
			found.intersect(ix.withAny(key, r.Values().UnsortedList()))
		}
	}
	return found
}

func (ix *labelIndex) with(key string) bitset {
	found := newBitset(ix.size)
	found.addAll(ix.keys[key])
	return found
}

func (ix *labelIndex) withAny(key string, values []string) bitset {
	found := newBitset(ix.size)
	for _, value := range values {
		found.addAll(ix.values[key][value])
	}
	return found
}

// pathIndex answers which cluster types lie below a place of a hierarchy.
type pathIndex struct {
	size  int
	below map[kinds.Under][]int
}

// newPathIndex reads the labels whose names are in keys as paths. Its errors name the label of a cluster type that is not
// one.
func newPathIndex(types []*kinds.ClusterType, keys map[string]bool) (*pathIndex, error) {
	ix := &pathIndex{size: len(types), below: map[kinds.Under][]int{}}
	var errs []error
	for i, ct := range types {
		for _, key := range sortedKeys(keys) {
			path, ok := ct.Metadata.Labels[key]
			if !ok {
				continue
			}
			if err := kinds.CheckPath(path); err != nil {
				errs = append(errs, finding.Errorf(finding.CodePath, ct.At, pathHint(path, ""),
					"ClusterType %q: label %s, which a policy reads as a path: %v", ct.Metadata.Name, key, err))
				continue
			}
			for place := range kinds.Ancestors(path) {
				at := kinds.Under{Key: key, Path: place}
				ix.below[at] = append(ix.below[at], i)
			}
		}
	}
	return ix, finding.Join(errs)
}

// places lists the known paths of a label.
func (ix *pathIndex) places(key string) []string {
	var all []string
	for at := range ix.below {
		if at.Key == key {
			all = append(all, at.Path)
		}
	}
	slices.Sort(all)
	return all
}

// under returns the cluster types at or below a place.
func (ix *pathIndex) under(at kinds.Under) bitset {
	found := newBitset(ix.size)
	found.addAll(ix.below[at])
	return found
}

// readAnnotations reads the annotations of a policy. One that is unknown, or has a wrong value, is a mistake of the policy:
// without it, the policy would select more.
func readAnnotations(p *kinds.SchedulingPolicy) {
	mistake := func(code, key, hint, format string, args ...any) {
		p.Mistakes = append(p.Mistakes, finding.Errorf(code, p.Position(p.Metadata.Annotations[key].Line), hint,
			"SchedulingPolicy %q: %s", p.Metadata.Name, fmt.Sprintf(format, args...)))
	}
	for _, key := range sortedKeys(p.Metadata.Annotations) {
		name, ours := strings.CutPrefix(key, kinds.AnnotationPrefix)
		switch {
		case !ours:
		case !slices.Contains(kinds.PolicyAnnotations, name):
			mistake(finding.CodeSelectorField, key, finding.DidYouMean(name, kinds.PolicyAnnotations), "unknown annotation %s", key)
		case key == kinds.UnderAnnotation:
			var err error
			if p.Under, err = kinds.ParseUnder(p.Metadata.Annotations[key].Value); err != nil {
				label, path, named := strings.Cut(p.Metadata.Annotations[key].Value, "=")
				if !named {
					label, path = "", label
				}
				mistake(finding.CodePath, key, pathHint(path, label), "annotation %s: %v", key, err)
			}
		}
	}
}

// pathHint says how a path that is none could be written, after the label that it is of; without one that is near, how paths look.
func pathHint(path, label string) string {
	names := strings.FieldsFunc(path, func(r rune) bool { return r == '/' })
	for i, name := range names {
		names[i] = strings.Trim(notInNames.ReplaceAllString(name, "-"), "-._")
	}
	near := strings.Join(slices.DeleteFunc(names, func(name string) bool { return name == "" }), "/")
	if kinds.CheckPath(near) != nil {
		return "a path looks like europe/plant-7"
	}
	if label != "" {
		near = label + "=" + near
	}
	return "write " + near
}

// notInNames are the characters that no name of a path has.
var notInNames = lazyregexp.New(`[^A-Za-z0-9._-]+`)

// requirements turns a selector as written into its parts. An empty one has none and so selects all.
func requirements(s *kinds.LabelSelector, o *kinds.Common) (labels.Requirements, error) {
	kube := metav1.LabelSelector{MatchLabels: s.MatchLabels}
	for _, e := range s.MatchExpressions {
		kube.MatchExpressions = append(kube.MatchExpressions, metav1.LabelSelectorRequirement{
			Key: e.Key, Operator: metav1.LabelSelectorOperator(e.Operator), Values: e.Values,
		})
	}
	selector, err := metav1.LabelSelectorAsSelector(&kube)
	if err != nil {
		return nil, finding.Errorf(finding.CodeSelector, o.Position(s.Line), "operators are In, NotIn, Exists and DoesNotExist", "%s %q: %v", o.Kind, o.Metadata.Name, err)
	}
	all, _ := selector.Requirements()
	return all, nil
}

// terms spells requirements as kubectl's --selector takes them.
func terms(requirements labels.Requirements) []string {
	var all []string
	for _, r := range requirements {
		all = append(all, r.String())
	}
	return all
}
