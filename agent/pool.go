package agent

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/wherry-dev/wherry/agent/assignments"
	"github.com/wherry-dev/wherry/bundle"
)

// workers is how many calls of one engine run at a time. Four hide the time that an API server takes to
// answer, and are no burden to a small one. Each engine has its own, so that one that hangs does not hold
// up the others.
const workers = 4

// saveEvery is how many assignments of an engine are written as begun at once, and how many results. A
// result that a crash loses belongs to an assignment that is written as applying, and is applied again.
const saveEvery = 32

// operation is what an engine is called for.
type operation int

const (
	doNothing operation = iota
	doObserve           // how it stands
	doChange            // move it toward what it should be, or take it away
	doCorrect           // give again what has drifted
)

type task struct {
	name  string
	do    operation
	drift string             // what is to be corrected, where that is the operation
	begun time.Time          // when it was written as begun
	was   assignments.Record // before it was
}

// engineQueue is what is to be done by one engine.
type engineQueue struct {
	todo    []task // in order; some may have to wait
	ready   []task // free to begin, and written so
	running int
}

// finished is how an assignment stands after a task.
type finished struct {
	engineQueue *engineQueue
	task        task
	assignments.Record
}

// pool calls engines for one step of a pass. Everything but the calls happens in one goroutine.
type pool struct {
	*pass
	queues  map[string]*engineQueue // by adapter
	answers chan finished
	running int
	unsaved map[string]assignments.Record
	due     bool  // what is unsaved has to be saved before anything is begun
	err     error // ends the work, once no call runs any more
}

// runTasks does the tasks that nothing holds back, and then those that have become free by it, and writes
// how each assignment stands, before and after. It returns when no call runs any more.
func (p *pass) runTasks(ctx context.Context, tasks []task) error {
	c := &pool{pass: p, queues: map[string]*engineQueue{}, answers: make(chan finished), unsaved: map[string]assignments.Record{}}
	for _, t := range tasks {
		l := c.engineQueue(t)
		l.todo = append(l.todo, t)
	}
	for c.begin(ctx); c.running > 0; c.begin(ctx) {
		a := <-c.answers
		c.running, a.engineQueue.running = c.running-1, a.engineQueue.running-1
		if ctx.Err() == nil { // else it was cut off, and stays as applying
			c.finish(a)
		}
	}
	if c.err == nil {
		c.err = c.save()
	}
	return errors.Join(c.err, ctx.Err())
}

// queue returns the queue of the engine that a task is for.
func (c *pool) engineQueue(t task) *engineQueue {
	r := c.rollout.Of(t.name)
	adapter := r.Adapter
	if !r.Removing {
		adapter = c.adapter(r.Spec)
	}
	if c.queues[adapter] == nil {
		c.queues[adapter] = &engineQueue{}
	}
	return c.queues[adapter]
}

// begin calls engines as far as there is something to do and somebody to do it.
func (c *pool) begin(ctx context.Context) {
	if c.err != nil || ctx.Err() != nil {
		return
	}
	if c.err = c.holdBack(ctx); c.err != nil {
		return
	}
	idle := slices.DeleteFunc(c.sortedQueues(), func(l *engineQueue) bool {
		return len(l.todo) == 0 || len(l.ready) > 0 || l.running == workers
	})
	if len(idle) > 0 {
		g := c.rollout.Gate(c.opts.Now())
		for _, l := range idle {
			c.admit(l, g)
		}
		now := c.opts.Now()
		g = c.rollout.Gate(now)
		for _, l := range idle {
			c.noteWaiting(l, g, now)
		}
	}
	if c.due || len(c.unsaved) >= saveEvery {
		if c.err = c.save(); c.err != nil {
			return
		}
	}
	for _, l := range c.sortedQueues() {
		for len(l.ready) > 0 && l.running < workers {
			c.send(ctx, l, l.ready[0])
			l.ready = l.ready[1:]
		}
	}
}

// holdBack takes from the queues what must not be begun any more. What is written as begun and was given to nobody
// is as it was before.
func (c *pool) holdBack(ctx context.Context) error {
	changes := func(t task) bool { return t.do != doObserve }
	if !slices.ContainsFunc(c.sortedQueues(), func(l *engineQueue) bool {
		return slices.ContainsFunc(l.todo, changes) || slices.ContainsFunc(l.ready, changes)
	}) {
		return nil
	}
	if ok, err := c.mayChange(ctx); ok || err != nil {
		return err
	}
	for _, l := range c.sortedQueues() {
		for _, t := range slices.DeleteFunc(slices.Clone(l.ready), func(t task) bool { return !changes(t) }) {
			c.note(t.was)
			c.due = true
		}
		var left []task
		for _, t := range slices.Concat(l.ready, l.todo) {
			if t.do = c.allowed(c.rollout.Of(t.name), t.do); t.do != doNothing {
				left = append(left, t)
			}
		}
		l.ready, l.todo = nil, left
	}
	return nil
}

func (c *pool) sortedQueues() (ls []*engineQueue) {
	for _, name := range slices.Sorted(maps.Keys(c.queues)) {
		ls = append(ls, c.queues[name])
	}
	return ls
}

// admit writes those of a queue as begun that nothing holds back.
func (c *pool) admit(l *engineQueue, g assignments.Gate) {
	l.todo = slices.DeleteFunc(l.todo, func(t task) bool {
		r := c.rollout.Of(t.name)
		if reason, _ := g.Waits(r); len(l.ready) == saveEvery || reason != "" {
			return false
		}
		if t.do != doObserve {
			t.begun, t.was = c.opts.Now(), r
			next := r.Begun(c.adapter(r.Spec), t.begun)
			c.began = c.began || !next.AppliedAt.Equal(r.AppliedAt)
			c.note(next)
			c.due = true
		}
		l.ready = append(l.ready, t)
		return true
	})
}

// noteWaiting has those of a queue that have to wait say for what.
func (c *pool) noteWaiting(l *engineQueue, g assignments.Gate, now time.Time) {
	for _, t := range l.todo {
		r := c.rollout.Of(t.name)
		if reason, message := g.Waits(r); reason != "" {
			next := r.Pending(reason, message, now)
			c.due = c.due || !next.Same(r)
			c.note(next)
		}
	}
}

// note remembers a record, to be written if it says anything new.
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
	return assignments.Write(c.state.db, rs)
}

// send has one call made. The deadline counts from now, not from when it was written.
func (c *pool) send(ctx context.Context, l *engineQueue, t task) {
	r := c.rollout.Of(t.name)
	if t.do != doObserve && r.AppliedAt.Equal(t.begun) {
		r.AppliedAt = c.opts.Now()
	}
	c.running, l.running = c.running+1, l.running+1
	c.pulse.Live()
	go func() { c.answers <- finished{l, t, c.perform(ctx, t, r)} }()
}

// finish takes account of an answer.
func (c *pool) finish(a finished) {
	name := a.task.name
	before := c.rollout.Of(name).Item.State
	c.pulse.Live()
	c.note(a.Record)
	if a.task.do != doObserve {
		c.touched[name] = true
	}
	switch {
	case a.Removing && a.Item.State == bundle.Removed:
		c.rollout.Remove(name)
	case a.task.do == doObserve && a.Item.State == bundle.Drifted && !c.touched[name]:
		if before != bundle.Drifted || a.Corrected() {
			c.opts.Log.Info("drift found", "assignment", name, "reason", a.Item.Reason, "message", a.Item.Message)
		}
		if a.Corrected() && c.allowed(a.Record, doCorrect) == doCorrect {
			a.engineQueue.todo = append(a.engineQueue.todo, task{name: name, do: doCorrect, drift: a.Item.Message})
		}
	}
}
