package agent

import (
	"context"
	"errors"
	"path"
	"path/filepath"
	"strings"

	"go.etcd.io/bbolt"

	"github.com/wherry-dev/wherry/agent/content"
	"github.com/wherry-dev/wherry/agent/state"
	"github.com/wherry-dev/wherry/agent/trust"
	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/oci"
)

// relearn gives a new state file the order of releases that the content store beside it proves, so that nobody who moves agent.db
// away, because it is damaged, lets older releases in: trust documents and releases count that the trust in force vouches for.
// Releases that came without a signature, as to an agent that serves none and takes no media, prove nothing. It does nothing for a
// state that knows the stream.
func (a *Agent) relearn(ctx context.Context) error {
	a.relearning.Lock()
	defer a.relearning.Unlock()
	if a.relearned {
		return nil
	}
	var known bundle.Order
	err := a.state.db.View(func(tx *bbolt.Tx) (err error) {
		known, err = state.Load[bundle.Order](tx, state.Orders, state.OrderKey(a.stream()))
		return err
	})
	if err != nil {
		return state.Local("read state: %w", err)
	}
	if known.Sequence == 0 {
		if err := a.relearnFrom(ctx, oci.NewLayout(filepath.Join(a.state.Dir(), state.StoreDir))); err != nil {
			return err
		}
	}
	a.relearned = true
	return nil
}

func (a *Agent) relearnFrom(ctx context.Context, store *oci.Layout) error {
	names, err := content.Releases(a.state.Dir())
	if err != nil || len(names) == 0 {
		return nil // a damaged index is made again
	}
	if documents, err := store.Repository(bundle.TrustRepository); err == nil && len(a.state.trust.Chain()) > 0 {
		if err := a.state.trust.Follow(ctx, documents, a.opts.Log); errors.As(err, new(*state.LocalError)) {
			return err
		}
	}
	by := a.judge()
	var highest []bundle.Verified
	for _, name := range names {
		v, err := a.proven(ctx, store, name, by)
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case err != nil:
			a.opts.Log.Info("a release in the store does not count for the order of releases", "release", name, "err", err)
		default:
			highest = append(highest, *v)
		}
	}
	return a.state.db.UpdateIf(func(tx *bbolt.Tx) (raised bool, err error) {
		for _, v := range highest {
			key, order := state.OrderKey(v.Release.Stream()), bundle.OrderOf(v.Release, "") // which is judged once more if it is offered
			before, err := state.Load[bundle.Order](tx, state.Orders, key)
			if err != nil {
				return raised, err
			}
			if order.Compare(before) <= 0 {
				continue
			}
			raised = true
			a.opts.Log.Warn("the state is new, and the store has a signed release: none that is older is taken", "release", v.Name(), "environment", v.Release.Environment, "clusterType", v.Release.ClusterType)
			if err := errors.Join(state.Save(tx, state.Orders, key, order), trust.RaiseFloor(tx, v.Release.Epoch, v.Release.IssuedAt)); err != nil {
				return raised, err
			}
		}
		return raised, nil
	})
}

// proven verifies a release of the store by its name in the index, whatever its age.
func (a *Agent) proven(ctx context.Context, store *oci.Layout, name string, by trust.Judge) (*bundle.Verified, error) {
	repository, tag := path.Split(name)
	src, err := store.Repository(strings.TrimSuffix(repository, "/"))
	if err != nil {
		return nil, err
	}
	manifest, err := src.Resolve(ctx, tag)
	if err != nil {
		return nil, err
	}
	v, err := bundle.Verify(ctx, src, manifest, by.Trust)
	if err != nil {
		return nil, err
	}
	stream := v.Release.Stream() // which another agent may follow
	expect := bundle.Expect{Stream: bundle.Stream{Platform: a.cluster.Platform, Environment: stream.Environment, ClusterType: stream.ClusterType}, Ring: a.cluster.Ring, Epoch: by.Epoch, AllowExpired: true}
	if stream != a.stream() && len(v.Release.Rings) > 0 {
		expect.Ring = v.Release.Rings[0]
	}
	return v, expect.Check(v.Release, manifest.Digest)
}
