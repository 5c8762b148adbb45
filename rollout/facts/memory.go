package facts

import (
	"sync"

	"github.com/opencontainers/go-digest"

	"github.com/wherry-dev/wherry/bundle"
)

// maxTrees bounds the trees of which a Memory keeps something.
const maxTrees = 4096

// Memory keeps what one look at a location has read for the next ones of the same process, which then make one request for each
// cluster that has no new report. It keeps the envelopes of one artifact of reports a cluster, whose signatures are verified at
// each look, and the assignments of a tree. The zero value is empty. Several goroutines may use a Memory.
type Memory struct {
	mu      sync.Mutex
	reports map[string]artifact // by the cluster's uid
	moving  map[digest.Digest]bundle.Moving
}

// artifact is one of reports.
type artifact struct {
	tag       string
	envelopes [][]byte
}

// reportsOf returns the envelopes of a cluster under a tag; none if they are not known.
func (m *Memory) reportsOf(uid, tag string) [][]byte {
	if m == nil {
		return nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if a := m.reports[uid]; a.tag == tag {
		return a.envelopes
	}
	return nil
}

func (m *Memory) keepReports(uid string, a artifact) {
	if m == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.reports == nil {
		m.reports = map[string]artifact{}
	}
	m.reports[uid] = a
}

func (m *Memory) movingOf(tree digest.Digest) (bundle.Moving, bool) {
	if m == nil {
		return bundle.Moving{}, false
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	found, ok := m.moving[tree]
	return found, ok
}

func (m *Memory) keepMoving(tree digest.Digest, found bundle.Moving) {
	if m == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.moving == nil || len(m.moving) >= maxTrees {
		m.moving = map[digest.Digest]bundle.Moving{}
	}
	m.moving[tree] = found
}
