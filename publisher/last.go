package publisher

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/oci"
	"github.com/wherry-dev/wherry/published"
	"github.com/wherry-dev/wherry/publisher/keys"
	"github.com/wherry-dev/wherry/publisher/platform"
	"github.com/wherry-dev/wherry/publisher/state"
	"github.com/wherry-dev/wherry/publisher/trust"
	"github.com/wherry-dev/wherry/scheduler"
)

// LastReleases returns the function for [scheduler.Options].LastRelease by which Publish and Compare with the same
// arguments render. It reads the releases at a registry or layout that are signed as signers asks; where that trusts
// nobody, the public halves of keys are pinned, as in Publish. Of a release that cannot be verified it says nothing,
// since Publish says it. Nothing is read before somebody asks.
func LastReleases(loaded *platform.Loaded, to oci.Location, signers published.Signers, keys []*keys.Key, opts PublishOptions) func(ctx context.Context, clusterType string) ([]scheduler.Released, error) {
	if len(signers.Keys) == 0 {
		signers = trust.PinnedBy(keys)
	}
	l := &lastReleases{open: func() (*publication, error) {
		rings, err := loaded.Model.Rings()
		if err != nil {
			return nil, err
		}
		environment := &scheduler.Result{Environment: loaded.Model.EnvironmentName(), Platform: loaded.Model.PlatformName(), Rings: rings}
		return newPublication(environment, to, nil, signers, PublishOptions{Platform: opts.Platform, Rings: opts.Rings, OCI: opts.OCI, Now: opts.Now})
	}}
	return func(ctx context.Context, clusterType string) ([]scheduler.Released, error) {
		list, err := l.of(ctx, clusterType)
		if err != nil {
			return nil, fmt.Errorf("read the last release of %s at %s: %w", clusterType, to, err)
		}
		return list, nil
	}
}

type lastReleases struct {
	open func() (*publication, error)

	mu          sync.Mutex
	publication *publication // nil until somebody asks
	record      state.Record
}

func (l *lastReleases) of(ctx context.Context, clusterType string) ([]scheduler.Released, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.publication == nil {
		p, err := l.open()
		if err == nil {
			l.record, err = p.Record(ctx)
		}
		if err != nil {
			return nil, err
		}
		l.publication = p
	}
	assignments, err := l.publication.lastAssignments(ctx, clusterType, l.record)
	var unknown *state.LostError
	if errors.As(err, &unknown) {
		return nil, nil
	}
	var list []scheduler.Released
	for _, a := range assignments {
		list = append(list, scheduler.Released{
			Name: a.Name, Registration: a.Registration, Workload: a.Workload, Target: a.Target, DependsOn: a.DependsOn,
		})
	}
	return list, err
}

// lastAssignments lists the assignments in the release from which failed assignments would keep their content.
func (n *planner) lastAssignments(ctx context.Context, clusterType string, record state.Record) ([]bundle.Assignment, error) {
	at, err := n.find(ctx, clusterType, record)
	if err != nil || at.refused != "" {
		return nil, err
	}
	v, err := n.last(ctx, at, record)
	if v == nil || err != nil {
		return nil, err
	}
	list, err := at.Type.Type.Assignments(ctx, v)
	if err != nil {
		return nil, state.LostIfRefused(err, "release %s", v.Release.Tag())
	}
	return list, nil
}
