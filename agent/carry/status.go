package carry

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/opencontainers/go-digest"
	"go.etcd.io/bbolt"

	"github.com/wherry-dev/wherry/agent/assignments"
	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/show"
)

// Status counts the carried artifacts of the running release and of the next one. Its JSON is an interface.
type Status struct {
	// Artifacts counts those that are wanted, and Missing those that are not in the store yet.
	Artifacts int `json:"artifacts"`
	Missing   int `json:"missing"`
	// MissingBytes is the size of the missing blobs. An artifact whose manifests are missing counts with the publisher's
	// figure, which is for all platforms: MissingAtMost is true then.
	MissingBytes  int64 `json:"missingBytes"`
	MissingAtMost bool  `json:"missingAtMost,omitempty"`
	// StoredBytes is the size of the carried artifacts in the store, with those of former releases.
	StoredBytes int64 `json:"storedBytes"`
	// BudgetBytes bounds them; zero if unknown.
	BudgetBytes int64 `json:"budgetBytes,omitempty"`
	// Assignments has those of the running release that wait for artifacts, sorted.
	Assignments []AssignmentStatus `json:"assignments,omitempty"`
}

// AssignmentStatus counts the artifacts that one assignment waits for.
type AssignmentStatus struct {
	Assignment   string `json:"assignment"`
	Artifacts    int    `json:"artifacts"`
	Missing      int    `json:"missing"`
	MissingBytes int64  `json:"missingBytes"`
	Reason       string `json:"reason"`
}

// ReadStatus returns the status that the last Look saved; nil if nothing is carried.
func ReadStatus(tx *bbolt.Tx) (*Status, error) {
	r, err := load(tx)
	if err != nil || len(r.Lists) == 0 {
		return nil, err
	}
	return &r.Status, nil
}

// Status returns the status, with what has arrived since the last Look; nil if nothing is carried.
func (c *Carrier) Status() *Status {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.view.artifacts) == 0 {
		return nil
	}
	s := c.view.status()
	s.MissingBytes = max(s.MissingBytes-c.job.arrived(), 0)
	return &s
}

func (v view) status() Status {
	s := Status{Artifacts: len(v.order), StoredBytes: v.stored, BudgetBytes: max(v.budget, 0)}
	s.Missing, s.MissingBytes, _ = v.missing(v.order)
	s.MissingAtMost = v.guessed(v.order)
	for _, name := range slices.Sorted(maps.Keys(v.assignments)) {
		keys := v.assignments[name]
		n, bytes, _ := v.missing(keys)
		if n == 0 {
			continue
		}
		s.Assignments = append(s.Assignments, AssignmentStatus{name, len(keys), n, bytes, v.wait(name).Reason})
	}
	return s
}

// missing counts the artifacts that are not whole, and the bytes that they lack. Blobs that they share count once. Known is
// false if the size of one is not known yet.
func (v view) missing(keys []key) (n int, bytes int64, known bool) {
	counted := map[digest.Digest]bool{}
	known = true
	for _, k := range keys {
		s := v.artifacts[k]
		if s.whole {
			continue
		}
		n++
		if s.graph == nil {
			known = known && s.missing > 0
			bytes += s.missing
			continue
		}
		for d, size := range s.lacks {
			if !counted[d] {
				counted[d] = true
				bytes += size
			}
		}
	}
	return n, bytes, known
}

// guessed reports whether the bytes that artifacts lack are known from the publisher alone, for all platforms.
func (v view) guessed(keys []key) bool {
	return slices.ContainsFunc(keys, func(k key) bool { s := v.artifacts[k]; return !s.whole && s.graph == nil && s.missing > 0 })
}

// rank orders the reasons: an assignment shows the last one that any of its artifacts has. A transfer that goes on comes
// last, so it is shown before any failure.
var rank = []string{
	"", ReasonArtifactUnreachable, ReasonArtifactForbidden, ReasonArtifactNotFound, ReasonArtifactMismatch, ReasonInvalidArtifact, ReasonStoreFailed, ReasonNoRoom,
	ReasonCarriedLater, ReasonCarrying,
}

// wait returns why an assignment of the running release has to wait.
func (v view) wait(name string) assignments.Wait {
	keys, known := v.assignments[name]
	if v.artifacts == nil { // no pass has looked
		return assignments.Wait{State: bundle.Pulling, Reason: ReasonCarrying, Message: "the store was not looked at yet", Moving: true}
	}
	n, missing, sized := v.missing(keys)
	if !known || n == 0 {
		return assignments.Wait{}
	}
	w := assignments.Wait{State: bundle.Pulling}
	var names, problems []string
	for _, k := range keys {
		s := v.artifacts[k]
		if s.whole {
			continue
		}
		names = append(names, s.name())
		reason, problem := s.reason(v)
		if slices.Index(rank, reason) > slices.Index(rank, w.Reason) {
			w.Reason = reason
		}
		if problem != "" {
			problems = append(problems, s.name()+": "+problem)
		}
	}
	size := show.Size(missing)
	switch guessed := v.guessed(keys); {
	case !sized && guessed:
		size = "some " + size
	case !sized:
		size = "at least " + size
	case guessed:
		size = "at most " + size
	}
	w.Message = fmt.Sprintf("%d of %d artifacts are missing, %s: %s", n, len(keys), size, strings.Join(names, ", "))
	if len(problems) > 0 {
		w.Message = strings.Join(problems, "; ") + "; " + w.Message
	}
	w.Moving = w.Reason == ReasonCarrying || w.Reason == ReasonCarriedLater
	return w
}

// reason returns why an artifact is not whole.
func (s *standing) reason(v view) (reason, problem string) {
	switch {
	case !s.fits:
		return ReasonNoRoom, fmt.Sprintf("it takes %s more, and of the budget %s are left", show.Size(s.missing), show.Size(max(v.room, 0)))
	case s.last.reason != "":
		return s.last.reason, s.last.message
	case v.closed != "":
		return ReasonCarriedLater, v.closed
	}
	return ReasonCarrying, ""
}
