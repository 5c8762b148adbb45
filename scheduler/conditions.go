package scheduler

import (
	"encoding/binary"
	"iter"
	"slices"
)

// condition is one label of a ConfigMap or ConfigSchema, read as "applies where".
type condition struct{ key, value string }

// What Flux stamps on all that it applies: the Kustomization that it belongs to. Kalypso names that of an
// app team's source after environment and registration, and its templates see both labels.
const (
	fluxName      = "kustomize.toolkit.fluxcd.io/name"
	fluxNamespace = "kustomize.toolkit.fluxcd.io/namespace"
)

// Labels that are no conditions: the mark itself, and Flux's.
var unconditional = []string{platformConfig, fluxName, fluxNamespace}

func conditionsOf(labels map[string]string) []condition {
	var all []condition
	for _, key := range sortedKeys(labels) {
		if !slices.Contains(unconditional, key) {
			all = append(all, condition{key, labels[key]})
		}
	}
	return all
}

// holdsFor says whether a cluster type alone fulfils the condition. A label that is not there reads as
// empty.
func (c condition) holdsFor(ct *clusterType) bool {
	switch c.key {
	case "cluster-type":
		return c.value == ct.Metadata.Name
	case "deployment-target", "workload":
		return false
	default:
		return c.value == ct.Metadata.Labels[c.key]
	}
}

// targetsOf returns the targets that alone fulfil the condition, with the same reading.
func (c condition) targetsOf(targets []*target, ix *labelIndex) bitset {
	found := newBitset(len(targets))
	switch c.key {
	case "cluster-type":
	case "deployment-target":
		for i, t := range targets {
			if t.name == c.value {
				found.add(i)
			}
		}
	default: // the label workload is always the workload's name
		found.addAll(ix.values[c.key][c.value])
		if c.value == "" {
			absent := fullBitset(len(targets))
			absent.subtract(ix.with(c.key))
			found.union(absent)
		}
	}
	return found
}

// matcher finds, among members with conditions, those that apply to a pair of cluster type and target:
// the ones of which each condition holds for either.
type matcher struct {
	conditions [][]condition // of each member
	targets    map[condition]bitset
}

func newMatcher(conditions [][]condition, targets []*target, ix *labelIndex) *matcher {
	m := &matcher{conditions: conditions, targets: map[condition]bitset{}}
	for _, member := range conditions {
		for _, c := range member {
			if m.targets[c] == nil {
				m.targets[c] = c.targetsOf(targets, ix)
			}
		}
	}
	return m
}

// candidate is a member that applies to a cluster type and all targets that are in each of the sets.
type candidate struct {
	member int
	rest   []bitset
}

// forType leaves the members that can apply to a cluster type, and of their conditions those that
// remain for the target to fulfil.
func (m *matcher) forType(ct *clusterType) []candidate {
	var all []candidate
members:
	for i, conditions := range m.conditions {
		next := candidate{member: i}
		for _, c := range conditions {
			if c.holdsFor(ct) {
				continue
			}
			if m.targets[c].empty() {
				continue members
			}
			next.rest = append(next.rest, m.targets[c])
		}
		all = append(all, next)
	}
	return all
}

// appliesTo appends to key the members that apply to a target, as a list that can be a map's key.
func appliesTo(key []byte, candidates []candidate, target int) []byte {
next:
	for _, c := range candidates {
		for _, set := range c.rest {
			if !set.has(target) {
				continue next
			}
		}
		key = binary.AppendUvarint(key, uint64(c.member))
	}
	return key
}

// members yields what appliesTo wrote.
func members(key []byte) iter.Seq[int] {
	return func(yield func(int) bool) {
		for len(key) > 0 {
			member, n := binary.Uvarint(key)
			if key = key[n:]; !yield(int(member)) {
				return
			}
		}
	}
}
