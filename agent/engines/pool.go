package engines

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/wherry-dev/wherry/agent/assignments"
	"github.com/wherry-dev/wherry/bundle"
)

// Workers bounds the calls of one engine that run at a time. Four hide the time that an API server takes to
// answer, and are no burden to a small one. Each engine has its own workers, so that one that hangs does not hold
// up the others.
const Workers = 4

// SaveEvery is the number of an engine's assignments that are recorded as begun at once, and of results that are saved at
// once. If a crash loses a result, the assignment is recorded as applying, and is applied again.
const SaveEvery = 32

// Guard decides whether the cluster may be changed. One goroutine at a time calls it.
type Guard interface {
	// MayChange reports whether changes may begin. It is called again before further changes begin. An
	// error ends the round.
	MayChange(ctx context.Context) (bool, error)
	// Allowed returns the permitted part of an operation for an assignment.
	Allowed(r assignments.Record, do assignments.Operation) assignments.Operation
}

// Changes sums up the changing calls of engines.
type Changes struct {
	// Called are the assignments that an engine was called to change.
	Called map[string]bool
	// Began is true if an engine got a new assignment, or a removal.
	Began bool
}

// Round runs the needed operation of each assignment: first for those that the release lists, and then for those that it no
// longer lists, so that an object that moves from one to the other always has an owner. Those at which the agent has died come
// last and one by one, so that the next end tells which one it was. It updates rollout and saves
// the record of each assignment before and after a call. It returns the changes of since together with its own, even with
// an error, once no call runs any more.
//
// If an engine observes drift, Round corrects it, unless an engine was called to change that assignment since.
func (s *Set) Round(ctx context.Context, rollout *assignments.Rollout, needed func(assignments.Record) assignments.Operation, guard Guard, since Changes) (Changes, error) {
	changes := Changes{Called: maps.Clone(since.Called), Began: since.Began}
	if changes.Called == nil {
		changes.Called = map[string]bool{}
	}
	for _, gone := range []bool{false, true} {
		var tasks []task
		var suspects []assignments.Record
		for r := range rollout.Sorted() {
			do := guard.Allowed(r, needed(r))
			switch {
			case r.Removing != gone || do == assignments.Nothing || r.Resting(s.opts.Now()):
			case r.Suspicion() > 0:
				suspects = append(suspects, r)
			default:
				tasks = append(tasks, task{name: r.Spec.Name, do: do, drift: r.Item.Message})
			}
		}
		before := len(changes.Called)
		if err := s.work(ctx, rollout, tasks, guard, &changes); err != nil {
			return changes, err
		}
		slices.SortStableFunc(suspects, func(a, b assignments.Record) int { return cmp.Compare(a.Suspicion(), b.Suspicion()) })
		for _, r := range suspects {
			if r.Guilty() && len(changes.Called) > before {
				break // others may be able to begin now
			}
			alone := []task{{name: r.Spec.Name, do: guard.Allowed(r, needed(r)), drift: r.Item.Message}}
			if err := s.work(ctx, rollout, alone, guard, &changes); err != nil {
				return changes, err
			}
		}
	}
	return changes, nil
}

type task struct {
	name  string
	do    assignments.Operation
	drift string             // the drift to correct, if that is the operation
	begun time.Time          // the time at which it was recorded as begun
	was   assignments.Record // the record before that
}

// queue holds the tasks of one engine.
type queue struct {
	todo    []task // in order; some may have to wait
	ready   []task // free to begin, and recorded as begun
	running int
}

// finished is the result of a task.
type finished struct {
	queue *queue
	task  task
	assignments.Record
}

// pool calls engines for one half of a round. Everything but the calls happens in one goroutine.
type pool struct {
	*Set
	rollout *assignments.Rollout
	guard   Guard
	changes *Changes
	queues  map[string]*queue // by engine
	answers chan finished
	running int
	unsaved map[string]assignments.Record
	due     bool  // the unsaved records have to be saved before another task begins
	err     error // ends the work, once no call runs any more
}

// work runs the tasks that need not wait, and then those that no longer have to, and saves the record
// of each assignment before and after. It returns when no call runs any more.
func (s *Set) work(ctx context.Context, rollout *assignments.Rollout, tasks []task, guard Guard, changes *Changes) error {
	c := &pool{
		Set: s, rollout: rollout, guard: guard, changes: changes,
		queues: map[string]*queue{}, answers: make(chan finished), unsaved: map[string]assignments.Record{},
	}
	for _, t := range tasks {
		q := c.queueOf(t)
		q.todo = append(q.todo, t)
	}
	for c.begin(ctx); c.running > 0; c.begin(ctx) {
		a := <-c.answers
		c.running, a.queue.running = c.running-1, a.queue.running-1
		if ctx.Err() == nil { // an interrupted one stays recorded as applying
			c.finish(a)
		}
	}
	if c.err == nil {
		c.err = c.save()
	}
	return errors.Join(c.err, ctx.Err())
}

// queueOf returns the queue of a task's engine.
func (c *pool) queueOf(t task) *queue {
	r := c.rollout.Of(t.name)
	engine := r.Adapter
	if !r.Removing {
		engine = c.For(r.Spec)
	}
	if c.queues[engine] == nil {
		c.queues[engine] = &queue{}
	}
	return c.queues[engine]
}

// begin starts calls while there are ready tasks and free workers.
func (c *pool) begin(ctx context.Context) {
	if c.err != nil || ctx.Err() != nil {
		return
	}
	if c.err = c.holdBack(ctx); c.err != nil {
		return
	}
	idle := slices.DeleteFunc(c.sortedQueues(), func(q *queue) bool {
		return len(q.todo) == 0 || len(q.ready) > 0 || q.running == Workers
	})
	if len(idle) > 0 {
		g := c.rollout.Gate(c.opts.Now())
		for _, q := range idle {
			c.admit(q, g)
		}
		now := c.opts.Now()
		g = c.rollout.Gate(now)
		for _, q := range idle {
			c.noteWaiting(q, g, now)
		}
	}
	if c.due || len(c.unsaved) >= SaveEvery {
		if c.err = c.save(); c.err != nil {
			return
		}
	}
	for _, q := range c.sortedQueues() {
		for len(q.ready) > 0 && q.running < Workers {
			c.send(ctx, q, q.ready[0])
			q.ready = q.ready[1:]
		}
	}
}

// holdBack removes from the queues the tasks that must not begin any more. A task that was recorded as begun and not yet
// given to an engine gets its former record back.
func (c *pool) holdBack(ctx context.Context) error {
	changes := func(t task) bool { return t.do.Changes() }
	if !slices.ContainsFunc(c.sortedQueues(), func(q *queue) bool {
		return slices.ContainsFunc(q.todo, changes) || slices.ContainsFunc(q.ready, changes)
	}) {
		return nil
	}
	if ok, err := c.guard.MayChange(ctx); ok || err != nil {
		return err
	}
	for _, q := range c.sortedQueues() {
		for _, t := range slices.DeleteFunc(slices.Clone(q.ready), func(t task) bool { return !changes(t) }) {
			c.note(t.was)
			c.due = true
		}
		var left []task
		for _, t := range slices.Concat(q.ready, q.todo) {
			if t.do = c.guard.Allowed(c.rollout.Of(t.name), t.do); t.do != assignments.Nothing {
				left = append(left, t)
			}
		}
		q.ready, q.todo = nil, left
	}
	return nil
}

func (c *pool) sortedQueues() (qs []*queue) {
	for _, name := range slices.Sorted(maps.Keys(c.queues)) {
		qs = append(qs, c.queues[name])
	}
	return qs
}

// admit records the tasks of a queue as begun that need not wait.
func (c *pool) admit(q *queue, g assignments.Gate) {
	q.todo = slices.DeleteFunc(q.todo, func(t task) bool {
		r := c.rollout.Of(t.name)
		if len(q.ready) == SaveEvery || g.Waits(r).Reason != "" {
			return false
		}
		if t.do.Changes() {
			t.begun, t.was = c.opts.Now(), r
			next := r.Begun(c.For(r.Spec), t.begun)
			c.changes.Began = c.changes.Began || !next.AppliedAt.Equal(r.AppliedAt)
			c.note(next)
			c.due = true
		}
		q.ready = append(q.ready, t)
		return true
	})
}

// noteWaiting records why the tasks of a queue that have to wait do so.
func (c *pool) noteWaiting(q *queue, g assignments.Gate, now time.Time) {
	for _, t := range q.todo {
		r := c.rollout.Of(t.name)
		if w := g.Waits(r); w.Reason != "" {
			next := r.Held(w, now)
			c.due = c.due || !next.Same(r)
			c.note(next)
		}
	}
}

// note keeps a record, to be saved if it has changed.
func (c *pool) note(next assignments.Record) {
	if !next.Same(c.rollout.Of(next.Spec.Name)) {
		c.unsaved[next.Spec.Name] = next
	}
	c.rollout.Put(next)
}

func (c *pool) save() error {
	var rs []assignments.Record
	for _, name := range slices.Sorted(maps.Keys(c.unsaved)) {
		rs = append(rs, c.unsaved[name])
	}
	clear(c.unsaved)
	c.due = false
	return assignments.Write(c.db, rs)
}

// send makes one call in a goroutine. The deadline counts from now, not from the time at which the task was recorded.
func (c *pool) send(ctx context.Context, q *queue, t task) {
	r := c.rollout.Of(t.name)
	if t.do.Changes() && r.AppliedAt.Equal(t.begun) {
		r.AppliedAt = c.opts.Now()
	}
	c.running, q.running = c.running+1, q.running+1
	c.opts.Alive()
	go func() { c.answers <- finished{q, t, c.perform(ctx, t, r)} }()
}

// finish handles the result of a task.
func (c *pool) finish(a finished) {
	name := a.task.name
	before := c.rollout.Of(name).Item.State
	c.opts.Alive()
	c.note(a.Record)
	if a.task.do.Changes() {
		c.changes.Called[name] = true
	}
	switch {
	case a.Removing && a.Item.State == bundle.Removed:
		c.rollout.Remove(name)
	case a.task.do == assignments.Observe && a.Item.State == bundle.Drifted && !c.changes.Called[name]:
		if before != bundle.Drifted || a.Corrected() {
			c.opts.Log.Info("drift found", "assignment", name, "reason", a.Item.Reason, "message", a.Item.Message)
		}
		if a.Corrected() && c.guard.Allowed(a.Record, assignments.Correct) == assignments.Correct {
			a.queue.todo = append(a.queue.todo, task{name: name, do: assignments.Correct, drift: a.Item.Message})
		}
	}
}
