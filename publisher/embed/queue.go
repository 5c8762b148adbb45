package embed

import (
	"cmp"
	"slices"
	"strings"
	"sync"
	"time"
)

// turn is the processor time that a registration uses before others go first.
const turn = time.Second

// queue decides which content is next: one of the registration of which fewest are being made, then of the one that has used fewest
// turns, then of one that has begun. So what one registration has to do makes no other wait, and few children wait for their next job.
type queue struct {
	mu   sync.Mutex
	of   map[string]*turns // by registration
	left []*turns          // those with contents that wait, sorted by registration
}

// turns are the contents of one registration.
type turns struct {
	registration string
	waiting      []name
	running      int
	begun        int           // 1 once one was made
	used         time.Duration // in whole turns
}

func newQueue(all map[name]*content) *queue {
	q := &queue{of: map[string]*turns{}}
	for key, c := range all {
		if q.of[c.registration] == nil {
			q.of[c.registration] = &turns{registration: c.registration}
			q.left = append(q.left, q.of[c.registration])
		}
		t := q.of[c.registration]
		t.waiting = append(t.waiting, key)
	}
	slices.SortFunc(q.left, func(a, b *turns) int { return strings.Compare(a.registration, b.registration) })
	for _, t := range q.left {
		slices.SortFunc(t.waiting, func(a, b name) int {
			return cmp.Or(strings.Compare(a.clusterType, b.clusterType), strings.Compare(a.assignment, b.assignment))
		})
	}
	return q
}

// next returns the next content, and false if none waits.
func (q *queue) next() (key name, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.left) == 0 {
		return key, false
	}
	t := slices.MinFunc(q.left, func(a, b *turns) int {
		return cmp.Or(cmp.Compare(a.running, b.running), cmp.Compare(a.used, b.used), cmp.Compare(b.begun, a.begun))
	})
	key, t.waiting, t.begun = t.waiting[0], t.waiting[1:], 1
	if t.running++; len(t.waiting) == 0 {
		q.left = slices.DeleteFunc(q.left, func(o *turns) bool { return o == t })
	}
	return key, true
}

// done ends a content that next returned, of a registration that has used that much processor time by now. It reports whether others go
// first now, or all of the registration are made.
func (q *queue) done(registration string, used time.Duration) (last bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	t := q.of[registration]
	before := t.used
	t.running, t.used = t.running-1, used.Truncate(turn)
	return t.running == 0 && (len(t.waiting) == 0 || t.used > before && len(q.left) > 1)
}
