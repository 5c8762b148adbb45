package agent

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/wherry-dev/wherry/bundle"
)

// workers is how many calls of one engine run at a time. Four hide the time that an API server takes to
// answer, and are no burden to a small one. Each engine has its own, so that one that hangs does not hold
// up the others.
const workers = 4

// saveEvery is how many assignments of an engine are written as begun at once, and how many results. A
// result that a crash loses belongs to an assignment that is written as applying, and is applied again.
const saveEvery = 32

// errand is what an engine is called for.
type errand int

const (
	nothing errand = iota
	see            // how it stands
	give           // move it toward what it should be, or take it away
	correct        // give again what has drifted
)

type task struct {
	name  string
	do    errand
	drift string    // what is to be corrected, where that is the errand
	begun time.Time // when it was written as begun
	was   record    // before it was
}

// lane is what is to be done by one engine.
type lane struct {
	todo    []task // in order; some may have to wait
	ready   []task // free to begin, and written so
	running int
}

// returned is how an assignment stands after a task.
type returned struct {
	lane *lane
	task task
	record
}

// crew has engines called for one step of a pass. All but the calls happens in one goroutine.
type crew struct {
	*pass
	lanes   map[string]*lane // by adapter
	answers chan returned
	running int
	unsaved map[string]record
	due     bool  // what is unsaved has to be saved before anything is begun
	err     error // ends the work, once no call runs any more
}

// carryOut does the tasks that nothing holds back, and then those that have become free by it, and writes
// how each assignment stands, before and after. It returns when no call runs any more.
func (p *pass) carryOut(ctx context.Context, tasks []task) error {
	c := &crew{pass: p, lanes: map[string]*lane{}, answers: make(chan returned), unsaved: map[string]record{}}
	for _, t := range tasks {
		l := c.lane(t)
		l.todo = append(l.todo, t)
	}
	for c.begin(ctx); c.running > 0; c.begin(ctx) {
		a := <-c.answers
		c.running, a.lane.running = c.running-1, a.lane.running-1
		if ctx.Err() == nil { // else it was cut off, and stays as applying
			c.finish(a)
		}
	}
	if c.err == nil {
		c.err = c.save()
	}
	return errors.Join(c.err, ctx.Err())
}

// lane returns the lane of the engine that a task is for.
func (c *crew) lane(t task) *lane {
	r := c.line.records[t.name]
	adapter := r.Adapter
	if !r.Removing {
		adapter = c.adapter(r.Spec)
	}
	if c.lanes[adapter] == nil {
		c.lanes[adapter] = &lane{}
	}
	return c.lanes[adapter]
}

// begin calls engines as far as there is something to do and somebody to do it.
func (c *crew) begin(ctx context.Context) {
	if c.err != nil || ctx.Err() != nil {
		return
	}
	if c.err = c.holdBack(ctx); c.err != nil {
		return
	}
	idle := slices.DeleteFunc(c.sortedLanes(), func(l *lane) bool {
		return len(l.todo) == 0 || len(l.ready) > 0 || l.running == workers
	})
	if len(idle) > 0 {
		g := c.line.gate(c.opts.Now())
		for _, l := range idle {
			c.admit(l, g)
		}
		g = c.line.gate(c.opts.Now())
		for _, l := range idle {
			c.noteWaiting(l, g)
		}
	}
	if c.due || len(c.unsaved) >= saveEvery {
		if c.err = c.save(); c.err != nil {
			return
		}
	}
	for _, l := range c.sortedLanes() {
		for len(l.ready) > 0 && l.running < workers {
			c.send(ctx, l, l.ready[0])
			l.ready = l.ready[1:]
		}
	}
}

// holdBack takes from the lanes what must not be begun any more. What is written as begun and was given to nobody
// is as it was before.
func (c *crew) holdBack(ctx context.Context) error {
	changes := func(t task) bool { return t.do != see }
	if !slices.ContainsFunc(c.sortedLanes(), func(l *lane) bool {
		return slices.ContainsFunc(l.todo, changes) || slices.ContainsFunc(l.ready, changes)
	}) {
		return nil
	}
	if ok, err := c.mayChange(ctx); ok || err != nil {
		return err
	}
	for _, l := range c.sortedLanes() {
		for _, t := range slices.DeleteFunc(slices.Clone(l.ready), func(t task) bool { return !changes(t) }) {
			c.note(t.was)
			c.due = true
		}
		var left []task
		for _, t := range slices.Concat(l.ready, l.todo) {
			if t.do = c.allowed(*c.line.records[t.name], t.do); t.do != nothing {
				left = append(left, t)
			}
		}
		l.ready, l.todo = nil, left
	}
	return nil
}

func (c *crew) sortedLanes() (ls []*lane) {
	for _, name := range slices.Sorted(maps.Keys(c.lanes)) {
		ls = append(ls, c.lanes[name])
	}
	return ls
}

// admit writes those of a lane as begun that nothing holds back.
func (c *crew) admit(l *lane, g gate) {
	l.todo = slices.DeleteFunc(l.todo, func(t task) bool {
		r := c.line.records[t.name]
		if reason, _ := g.waits(r); len(l.ready) == saveEvery || reason != "" {
			return false
		}
		if t.do != see {
			t.begun, t.was = c.opts.Now(), *r
			next := r.begun(c.adapter(r.Spec), t.begun)
			c.began = c.began || !next.AppliedAt.Equal(r.AppliedAt)
			c.note(next)
			c.due = true
		}
		l.ready = append(l.ready, t)
		return true
	})
}

// noteWaiting has those of a lane that have to wait say for what.
func (c *crew) noteWaiting(l *lane, g gate) {
	for _, t := range l.todo {
		r := c.line.records[t.name]
		if reason, message := g.waits(r); reason != "" {
			next := r.to(bundle.Pending, reason, message, g.now)
			c.due = c.due || !next.same(*r)
			c.note(next)
		}
	}
}

// note remembers a record, to be written if it says anything new.
func (c *crew) note(next record) {
	r := c.line.records[next.Spec.Name]
	if !next.same(*r) {
		c.unsaved[next.Spec.Name] = next
	}
	*r = next
}

func (c *crew) save() error {
	var rs []record
	for _, name := range slices.Sorted(maps.Keys(c.unsaved)) {
		rs = append(rs, c.unsaved[name])
	}
	clear(c.unsaved)
	c.due = false
	return c.write(rs)
}

// send has one call made. The deadline counts from now, not from when it was written.
func (c *crew) send(ctx context.Context, l *lane, t task) {
	r := *c.line.records[t.name]
	if t.do != see && r.AppliedAt.Equal(t.begun) {
		r.AppliedAt = c.opts.Now()
	}
	c.running, l.running = c.running+1, l.running+1
	c.vitals.live()
	go func() { c.answers <- returned{l, t, c.perform(ctx, t, r)} }()
}

// finish takes account of an answer.
func (c *crew) finish(a returned) {
	name := a.task.name
	before := c.line.records[name].Item.State
	c.vitals.live()
	c.note(a.record)
	if a.task.do != see {
		c.touched[name] = true
	}
	switch {
	case a.Removing && a.Item.State == bundle.Removed:
		delete(c.line.records, name)
	case a.task.do == see && a.Item.State == bundle.Drifted && !c.touched[name]:
		if before != bundle.Drifted || a.corrected() {
			c.opts.Log.Info("drift found", "assignment", name, "reason", a.Item.Reason, "message", a.Item.Message)
		}
		if a.corrected() && c.allowed(a.record, correct) == correct {
			a.lane.todo = append(a.lane.todo, task{name: name, do: correct, drift: a.Item.Message})
		}
	}
}
