package facts

import (
	"sync"
	"time"

	"github.com/wherry-dev/wherry/publisher/state"
	"github.com/wherry-dev/wherry/rollout/decisions"
)

// Look returns facts for the questions of one look: what the first of them reads of records, clusters, reports and decisions serves the others, which
// make no request for it. Those of a look are of the same one. Begin another after waiting, or after a publication.
func (f *Facts) Look() *Facts {
	of := *f
	if of.seen != nil {
		return &of
	}
	return of.Anew()
}

// Anew returns facts for another look, also if f are those of one.
func (f *Facts) Anew() *Facts {
	of := *f
	of.seen = &seen{histories: map[seenKey]*History{}, fleets: map[seenKey]*local{}, records: map[seenKey]state.Record{}, decisions: map[seenKey]*decisions.Reader{}}
	return &of
}

// seen is what one look has read. A nil one keeps nothing.
type seen struct {
	mu        sync.Mutex
	histories map[seenKey]*History
	fleets    map[seenKey]*local
	records   map[seenKey]state.Record
	decisions map[seenKey]*decisions.Reader
}

type seenKey struct {
	platform, environment string
	maxReportAge          time.Duration
}

// once returns what a look has read under a key, or reads it.
func once[T any](s *seen, kept func(*seen) map[seenKey]T, k seenKey, read func() (T, error)) (T, error) {
	if s == nil {
		return read()
	}
	s.mu.Lock()
	there, is := kept(s)[k]
	s.mu.Unlock()
	if is {
		return there, nil
	}
	there, err := read()
	if err == nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		kept(s)[k] = there
	}
	return there, err
}
