package agent

import (
	"context"

	"github.com/opencontainers/go-digest"

	"github.com/wherry-dev/wherry/agent/artifact"
	"github.com/wherry-dev/wherry/agent/assignments"
	"github.com/wherry-dev/wherry/agent/state"
	"github.com/wherry-dev/wherry/reconcilers"
)

// derive makes the artifacts that engines are to fetch from the agent's endpoint, before any engine hears of them. Dropped is
// true if the store has artifacts that no engine needs any more.
func (p *pass) derive(ctx context.Context, target *state.Release, rollout *assignments.Rollout) (dropped bool, err error) {
	var wanted []artifact.Wanted
	for r := range rollout.Sorted() {
		wants, has := p.engines.Fetcher(r.Spec, p.engines.For(r.Spec)), p.engines.Fetcher(r.Spec, r.Adapter)
		if p.opts.Serve == nil || wants == nil && has == nil {
			continue
		}
		w := artifact.Wanted{Assignment: r.Spec, Folder: folderOf(r), Reached: r.Reached.Desired == r.Desired(), Keep: r.Removing || wants == nil}
		w.Keep = w.Keep || r.Resting(p.opts.Now())
		if !w.Keep {
			w.Changed = wants.EmbeddedFiles
			a, err := p.engines.Handed(ctx, r, p.engines.For(r.Spec))
			w.Dir, w.Keep = a.Dir, err != nil || a.Dir == "" // its engine is not called either
		}
		wanted = append(wanted, w)
	}
	changed, dropped, err := p.artifacts.Bring(ctx, wanted)
	if changed && err == nil {
		err = p.content.Index(p.kept(target)...)
	}
	return dropped, err
}

// folderOf identifies the files that an assignment is to have, with the values of the site.
func folderOf(r assignments.Record) digest.Digest {
	if r.Values == "" {
		return r.Spec.Content
	}
	return digest.FromString(r.Spec.Content.String() + " " + r.Values.String())
}

// serveTo adds the artifacts of an assignment for engines that fetch.
func (a *Agent) serveTo(_ context.Context, r assignments.Record, to *reconcilers.Assignment) error {
	if a.opts.Serve == nil || a.engines.Fetcher(r.Spec, to.Adapter) == nil {
		return nil
	}
	as := a.opts.Serve.Served()
	at := artifact.Endpoint{Host: as.Host, CA: as.CA, Plain: as.Plain, Platform: a.cluster.Platform}
	var err error
	if to.Served, err = a.artifacts.Served(r.Spec, folderOf(r), at); err != nil {
		to.Served = &reconcilers.Served{Err: err}
	}
	return nil
}
