package directory

import (
	"context"
	"fmt"
	"path"
	"sync"
	"sync/atomic"
	"time"

	"github.com/opencontainers/go-digest"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/reconcilers"
)

// fetchesAtOnce bounds the assignments whose artifacts are fetched at the same time: they share one link.
const fetchesAtOnce = 2

// fetching is the work on one assignment's artifacts, which goes on between the calls of Apply and Observe.
type fetching struct {
	desired     digest.Digest
	done, total atomic.Int64

	mu         sync.Mutex
	assignment reconcilers.Assignment
	result     *reconcilers.Result // set by what did not succeed
	endedAt    time.Time
}

// latest returns the assignment of the newest call: its files may have moved with a newer release.
func (f *fetching) latest() reconcilers.Assignment {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.assignment
}

// status returns the progress of the work, or its result.
func (f *fetching) status() reconcilers.Result {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.result != nil {
		return *f.result
	}
	message := fmt.Sprintf("%s of %s of what is fetched", bytesText(f.done.Load()), bytesText(f.total.Load()))
	if f.total.Load() == 0 {
		message = "about to fetch " + f.assignment.Fetched[0].Reference
	}
	return reconcilers.Result{State: bundle.Pulling, Reason: Fetching, Message: reconcilers.Clip(message)}
}

// again reports whether an Apply should repeat work that did not succeed.
func (f *fetching) again(now time.Time) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.result != nil && (f.result.State != bundle.Failed || !costly[f.result.Reason] || now.Sub(f.endedAt) >= retryTime)
}

// costly are the failures that show only after bytes were fetched.
var costly = map[string]bool{ArtifactMismatch: true, InvalidArtifact: true}

// underway returns the work for exactly what a asks for, if there is any.
func (r *Reconciler) underway(a reconcilers.Assignment) *fetching {
	f, _ := r.fetches.Latest(a.Name)
	if f == nil || f.desired != a.Desired() {
		return nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.assignment = a
	return f
}

// begin starts to fetch for a.
func (r *Reconciler) begin(a reconcilers.Assignment) reconcilers.Result {
	f := &fetching{desired: a.Desired(), assignment: a}
	if err := r.fetches.Start(a.Name, f, func(ctx context.Context) { r.work(ctx, f) }); err != nil {
		return reconcilers.Interrupted(fmt.Errorf("apply %s: the agent is about to end", a.Name))
	}
	return f.status()
}

// work fetches and then replaces the folder.
func (r *Reconciler) work(ctx context.Context, f *fetching) {
	name := f.latest().Name
	var err error
	select {
	case r.slots <- struct{}{}:
		err = r.fetch(ctx, f)
		<-r.slots
	case <-ctx.Done():
		err = ctx.Err()
	}
	if err == nil {
		var changes []reconcilers.Change
		if changes, err = r.place(ctx, f.latest()); err == nil {
			r.logChanges(ctx, f.latest(), changes)
			r.log.InfoContext(ctx, "fetched files are in place", "assignment", name, "bytes", f.done.Load(), "files", len(changes))
			r.fetches.Forget(name, f)
			return
		}
	}
	result := r.failed(fmt.Errorf("apply %s: %w", name, err))
	f.mu.Lock()
	defer f.mu.Unlock()
	f.result, f.endedAt = &result, time.Now()
}

// Close ends all transfers. Files that are here already stay for the next process.
func (r *Reconciler) Close() error {
	r.fetches.Close()
	return nil
}

// discardFetched deletes the fetched files of an assignment.
func (s *site) discardFetched() error {
	if err := s.root.RemoveAll(s.fetched); err != nil {
		return err
	}
	s.root.Remove(path.Dir(s.fetched)) // which succeeds when nobody else is using it
	return nil
}
