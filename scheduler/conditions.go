package scheduler

import (
	"encoding/binary"
	"iter"

	"github.com/wherry-dev/wherry/scheduler/kinds"
)

// targetsOf returns the targets that fulfil the condition by themselves, as HoldsForTarget reports.
func targetsOf(c kinds.Condition, targets []*target, ix *labelIndex) bitset {
	found := newBitset(len(targets))
	switch c.Key {
	case "cluster-type":
	case "deployment-target":
		for i, t := range targets {
			if t.Name == c.Value {
				found.add(i)
			}
		}
	default: // the label workload is always the workload's name
		found.addAll(ix.values[c.Key][c.Value])
		if c.Value == "" {
			absent := fullBitset(len(targets))
			absent.subtract(ix.with(c.Key))
			found.union(absent)
		}
	}
	return found
}

// matcher finds, among members with conditions, those that apply to a pair of cluster type and target:
// each of their conditions must hold for one of the two.
type matcher struct {
	conditions [][]kinds.Condition // of each member
	targets    map[kinds.Condition]bitset
}

func newMatcher(conditions [][]kinds.Condition, targets []*target, ix *labelIndex) *matcher {
	m := &matcher{conditions: conditions, targets: map[kinds.Condition]bitset{}}
	for _, member := range conditions {
		for _, c := range member {
			if m.targets[c] == nil {
				m.targets[c] = targetsOf(c, targets, ix)
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

// forType returns the members that can apply to a cluster type, with the targets that fulfil their remaining
// conditions.
func (m *matcher) forType(ct *kinds.ClusterType) []candidate {
	var all []candidate
members:
	for i, conditions := range m.conditions {
		next := candidate{member: i}
		for _, c := range conditions {
			if c.HoldsFor(ct) {
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
