package agent

import (
	"context"
	"crypto"
	"errors"
	"path/filepath"

	"go.etcd.io/bbolt"

	"github.com/wherry-dev/wherry/agent/content"
	"github.com/wherry-dev/wherry/agent/relay"
	"github.com/wherry-dev/wherry/agent/serve"
	"github.com/wherry-dev/wherry/agent/state"
	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/oci"
	"github.com/wherry-dev/wherry/reconcilers"
)

// openEndpoint opens the address of the endpoint; nil where there is none. The error wraps serve.ErrListen.
func (a *Agent) openEndpoint() (*serve.Server, error) {
	if a.opts.Serve == nil {
		return nil, nil
	}
	s, err := a.opts.Serve.Listen(filepath.Join(a.state.Dir(), state.StoreDir), a.cluster.Platform)
	if err != nil {
		return nil, err
	}
	if a.opts.Reports.AcceptOthers {
		s.AcceptReports(a.state.relay.Handler(relay.Options{
			Own: func() string { return a.cluster.UID }, HubKey: func() crypto.PublicKey { return a.hub().Key }, Now: a.opts.Now, Log: a.opts.Log,
		}))
	}
	a.endpoint.Store(s)
	a.opts.Log.Info("the content store is served", "url", a.opts.Serve.Status().URL, "address", s.Addr().String())
	return s, nil
}

// endpointStatus is how the endpoint stands; nil where nothing is served.
func (a *Agent) endpointStatus() *serve.Status {
	server := a.endpoint.Load()
	if server == nil {
		return nil
	}
	s := a.opts.Serve.Status()
	s.Address = server.Addr().String()
	if why := a.unserved.Load(); why != nil {
		s.Waiting = *why
	}
	return &s
}

// servingAs is the place by which releases get their moving tags; nil where nothing is served.
func (a *Agent) servingAs() *content.Serving {
	if a.opts.Serve == nil {
		return nil
	}
	return &content.Serving{Platform: a.cluster.Platform, Ring: a.cluster.Ring}
}

// envelopes are those of the trust documents, version 1 first.
func (a *Agent) trustEnvelopes() (all [][]byte) {
	for _, link := range a.state.trust.Chain() {
		all = append(all, link.Envelope)
	}
	return all
}

// namedTrust lists the trust documents for the index of the store.
func (a *Agent) namedTrust(*bbolt.Tx) ([]content.Named, error) {
	return content.NamedTrust(a.trustEnvelopes())
}

// complete has the newest accepted release in the store with all that another agent judges it by, after everything that
// this cluster needs. A release that came on a medium is completed even if nothing is served yet: the medium may not come
// again. What cannot be had is tried again by a later pass that reaches the registry.
func (p *pass) complete(ctx context.Context, got pulled, out outcome) {
	if p.opts.Serve == nil && !p.media || out.Verdict == Interrupted || ctx.Err() != nil {
		return
	}
	var err error
	if s := p.endpoint.Load(); s != nil {
		err = p.content.Recheck(ctx, s.Damaged()) // deletes the blobs that the endpoint has found to be damaged
	}
	if err == nil && p.opts.Serve != nil {
		err = p.content.KeepTrust(ctx, p.trustEnvelopes())
	}
	if err == nil {
		err = p.completeRelease(ctx, got)
	}
	if err == nil {
		p.unserved.Store(nil)
		return
	}
	message := reconcilers.Clip(err.Error())
	if old := p.unserved.Swap(&message); old == nil || *old != message {
		p.opts.Log.Warn("the newest release is not served yet", "release", p.accepted.Name(), "err", err)
	}
}

// completeRelease asks the source of this pass only if it has answered.
func (p *pass) completeRelease(ctx context.Context, got pulled) error {
	w := content.Wanted{Release: p.accepted, Keep: p.kept(got.target)}
	if w.Release == nil {
		return p.content.Index(w.Keep...)
	}
	if _, err := p.content.Assignments(w.Release); errors.Is(err, content.ErrNotStaged) {
		return p.content.Index(w.Keep...) // it waits, or its content is refused
	}
	switch {
	case got.offer.manifest.Digest == w.Release.Digest():
		w.Documents, w.Layers = got.offer.documents, got.offer.layers
	case got.offer.answered:
		if repo, ok := got.offer.layers.(oci.Target); ok {
			w.Documents, w.Layers = p.onePerManifest(repo, bundle.TooLarge), repo
		}
	}
	return p.content.Complete(ctx, w)
}
