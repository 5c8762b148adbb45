package agent

import (
	"context"

	"github.com/wherry-dev/wherry/agent/assignments"
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
	if err := p.values.Update(ctx, p.running.Digest(), document, p.facts(), rollout.Contains(usesValues)); err != nil {
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

// facts are what is known about the cluster without the platform.
func (p *pass) facts() sitevalues.Facts { return factsOf(p.cluster, p.uid()) }

func factsOf(c bundle.ReportCluster, uid string) sitevalues.Facts {
	return sitevalues.Facts{Name: c.Name, UID: uid, Type: c.Type, Environment: c.Environment, Ring: c.Ring, Labels: c.Labels}
}

// pruneValues deletes the copies of files that no assignment needs any more.
func (p *pass) pruneValues() error {
	all, err := p.records()
	if err != nil {
		return err
	}
	return p.values.Prune(all, p.engines.For)
}
