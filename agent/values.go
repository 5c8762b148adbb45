package agent

import (
	"cmp"
	"context"
	"errors"
	"time"

	"go.etcd.io/bbolt"

	"github.com/wherry-dev/wherry/agent/assignments"
	"github.com/wherry-dev/wherry/agent/content"
	"github.com/wherry-dev/wherry/agent/enroll"
	values "github.com/wherry-dev/wherry/agent/sitevalues"
	"github.com/wherry-dev/wherry/agent/state"
	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/sitevalues"
)

// useValues resolves the values of the site for the release that runs, and has the assignments that use some get them.
// An assignment that lacks one waits, and no other one does.
func (p *pass) useValues(ctx context.Context, rollout *assignments.Rollout) error {
	if p.running == nil {
		return nil
	}
	document := func(name string) ([]byte, error) { return p.content.Document(p.running, name) }
	if err := p.values.Resolve(ctx, p.running.Digest(), document, factsOf(p.cluster, p.uid()), rollout.Contains(usesValues)); err != nil {
		return err
	}
	waits, now := map[string]assignments.Wait{}, p.opts.Now()
	var changed []assignments.Record
	for r := range rollout.Sorted() {
		if !usesValues(r) {
			continue
		}
		use := p.values.Of(r)
		next := r.Valued(use.Values, use.Declared, now)
		adapter := p.engines.For(r.Spec)
		if next.Stale(adapter) {
			wait := use.Wait
			if wait.Reason == "" {
				wait = p.values.Prepare(next, adapter)
			}
			if waits[r.Spec.Name] = wait; wait.Reason != "" {
				next = next.Held(wait, now)
			}
		}
		if waits[r.Spec.Name].Reason == "" && next.WaitsForValues() {
			next = next.Pending("", "", now)
		}
		if !next.Same(r) {
			changed = append(changed, next)
			rollout.Put(next)
		}
	}
	rollout.HoldBack(func(r assignments.Record) assignments.Wait { return waits[r.Spec.Name] })
	return assignments.Write(p.state.db, changed)
}

func usesValues(r assignments.Record) bool {
	return !r.Removing && (len(r.Spec.SiteValues) > 0 || r.Values != "")
}

// factsOf returns the properties of the cluster that the agent knows without the platform.
func factsOf(c bundle.ReportCluster, uid string) sitevalues.Facts {
	return sitevalues.Facts{Name: c.Name, UID: uid, Type: c.Type, Environment: c.Environment, Ring: c.Ring, Labels: c.Labels}
}

// SiteValues returns how the values of the site stand, with the values.
func (s *State) SiteValues() (status values.Status, err error) {
	err = s.db.View(func(tx *bbolt.Tx) error {
		saved, err1 := values.Load(tx)
		records, err2 := s.records.All(tx)
		cluster, err3 := enroll.LoadCluster(tx)
		status = saved.Status(records, factsOf(cluster, cmp.Or(cluster.UID, s.who.Identity().UID)))
		return errors.Join(err1, err2, err3)
	})
	return status, err
}

// reportedValues lists the values that assignments use, without the values.
func (s *State) reportedValues(tx *bbolt.Tx) ([]bundle.SiteValue, error) {
	saved, err1 := values.Load(tx)
	records, err2 := s.records.All(tx)
	return saved.Reported(records), errors.Join(err1, err2)
}

// ErrNoRelease means that no release runs yet.
var ErrNoRelease = errors.New("no release runs yet")

// CheckSiteValues judges values that the site would set at place, by the release that runs. The error wraps ErrNoRelease if
// there is none.
func (s *State) CheckSiteValues(own values.Own, place string) (values.Check, error) {
	var saved values.Saved
	var records []assignments.Record
	var cluster bundle.ReportCluster
	var running *state.Release
	err := s.db.View(func(tx *bbolt.Tx) error {
		var errs [4]error
		saved, errs[0] = values.Load(tx)
		records, errs[1] = s.records.All(tx)
		cluster, errs[2] = enroll.LoadCluster(tx)
		running, errs[3] = state.Load[*state.Release](tx, state.Meta, keyRunning)
		return errors.Join(errs[:]...)
	})
	if err != nil {
		return values.Check{}, err
	}
	if running == nil {
		return values.Check{Values: len(own.Values), Problems: []string{}}, ErrNoRelease
	}
	files := content.New(s.db, content.Options{})
	document := func(name string) ([]byte, error) { return files.Document(running, name) }
	return values.Try(own, place, saved, document, factsOf(cluster, cmp.Or(cluster.UID, s.who.Identity().UID)), records)
}

// watchValues wakes the agent when the file of the site's own values changes.
func (a *Agent) watchValues(ctx context.Context) {
	if f, ok := a.opts.SiteValues.(values.File); ok {
		f.Watch(ctx, watchEvery, func() { nudge(a.wake) })
	}
}

// watchEvery is the time between two looks at a file: one call of the system each.
const watchEvery = 10 * time.Second
