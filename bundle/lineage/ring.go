package lineage

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/opencontainers/go-digest"

	"github.com/wherry-dev/wherry/bundle"
)

// RingStep is what a ring is to get from the ring before it: the releases of the cluster types that differ, with their trees, and the newest base
// commit and time of issue of these.
type RingStep struct {
	Releases, Contents map[string]digest.Digest
	BaseCommit         string
	IssuedAt           time.Time
	Incomplete         []string
}

// StepOf returns what a ring is to get by a record, of all cluster types or of one; nil if nothing differs. Release returns the release of a
// cluster type; nil if it is not there any more, which counts as other content.
func StepOf(record bundle.EnvironmentRecord, before, ring, clusterType string, release func(typ string, d digest.Digest) (*bundle.Release, error)) (*RingStep, error) {
	s := &RingStep{Releases: map[string]digest.Digest{}, Contents: map[string]digest.Digest{}}
	for _, typ := range slices.Sorted(maps.Keys(record.Rings)) {
		has, had := record.Rings[typ][before], record.Rings[typ][ring]
		if clusterType != "" && clusterType != typ || has == "" || has == had {
			continue
		}
		from, err := release(typ, has)
		if err != nil {
			return nil, err
		}
		if from == nil {
			return nil, fmt.Errorf("record %s of environment %s: the release of cluster type %s in ring %s is not there: publish again", record.Tag(), record.Environment, typ, before)
		}
		if had != "" {
			to, err := release(typ, had)
			if err != nil {
				return nil, err
			}
			if to != nil && from.SameContent(*to) {
				continue
			}
		}
		s.Releases[typ], s.Contents[typ] = has, from.Content.DiffID
		if from.IssuedAt.After(s.IssuedAt) {
			s.IssuedAt, s.BaseCommit = from.IssuedAt, cmp.Or(from.BaseCommit, s.BaseCommit)
		}
		if slices.Contains(record.Incomplete, typ) {
			s.Incomplete = append(s.Incomplete, typ)
		}
	}
	if len(s.Contents) == 0 {
		return nil, nil
	}
	return s, nil
}
