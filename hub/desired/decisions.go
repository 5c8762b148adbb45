package desired

import (
	"context"
	"errors"
	"strings"

	"github.com/opencontainers/go-digest"
	"oras.land/oras-go/v2/errdef"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/oci"
	"github.com/wherry-dev/wherry/hub/store"
	"github.com/wherry-dev/wherry/published"
)

// maxDecisions bounds the decisions of an environment that one look reads.
const maxDecisions = 100

// lookAtDecisions learns decisions, if it is time for that.
func (f *Follower) lookAtDecisions(ctx context.Context, e published.Environment, l *look) error {
	now := f.opts.Now()
	if !l.decided.IsZero() && now.Sub(l.decided) < decisionsEvery {
		return nil
	}
	if l.decisions == nil {
		l.decisions = map[string]digest.Digest{}
	}
	err := f.learnDecisions(ctx, e, l.decisions)
	if errors.Is(err, oci.ErrUnauthorized) || oci.Refused(err) { // as registries that list no tags answer
		if f.logged.first("decisions about "+e.Environment, "not listed") {
			f.log.Warn("the registry does not let the hub list decisions", "environment", e.Environment, "err", err)
		}
		err = nil
	}
	if err == nil {
		l.decided = now
	}
	return err
}

// learnDecisions stores the decisions in an environment's repository that are not known yet, for a platform of which a record is
// stored. Their signatures are not verified: who may decide is in the platform's policy, which a hub does not read. Seen has the
// manifests that were read, by tag.
func (f *Follower) learnDecisions(ctx context.Context, e published.Environment, seen map[string]digest.Digest) error {
	tags, err := e.Repo.Tags(ctx)
	if err != nil {
		return err
	}
	read := 0
	for _, tag := range tags {
		if !strings.HasPrefix(tag, bundle.DecisionTagPrefix) {
			continue
		}
		if bundle.IsKeptTag(tag) && seen[tag] != "" { // which is never moved
			continue
		}
		if read == maxDecisions || len(seen) >= 2*store.MaxDecisions && seen[tag] == "" {
			break // the others follow at the next look
		}
		desc, err := e.Repo.Resolve(ctx, tag)
		if errors.Is(err, errdef.ErrNotFound) || err == nil && seen[tag] == desc.Digest {
			continue
		}
		if err != nil {
			return err
		}
		read++
		if err := f.learnDecision(ctx, e, tag); err != nil {
			return err
		}
		seen[tag] = desc.Digest
	}
	return nil
}

// learnDecision stores the decision under a tag. What is none, or of another place, is passed over.
func (f *Follower) learnDecision(ctx context.Context, e published.Environment, tag string) error {
	d, err := e.Decision(ctx, tag)
	switch {
	case errors.As(err, new(*bundle.Refusal)), errors.Is(err, errdef.ErrNotFound):
		return nil
	case err != nil:
		return err
	case !d.BelongsTo(e, tag) || !f.known.hasPlatform(d.Platform, e.Environment):
		return nil
	}
	_, err = f.store.AddDecision(ctx, store.StoredDecision{
		Platform: d.Platform, Environment: e.Environment, Digest: digest.FromBytes(d.Envelope), IssuedAt: d.IssuedAt, SeenAt: f.opts.Now().UTC(), Envelope: d.Envelope,
	})
	if errors.Is(err, store.ErrFull) {
		if f.logged.first("decisions about "+e.Environment, "full") {
			f.log.Warn("a registry has more decisions than are learned; run wherry bundle gc", "platform", d.Platform, "environment", e.Environment, "learned", store.MaxDecisions)
		}
		return nil
	}
	return err
}
