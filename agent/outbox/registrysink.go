package outbox

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/opencontainers/go-digest"
	"go.etcd.io/bbolt"
	"oras.land/oras-go/v2/errdef"

	"github.com/wherry-dev/wherry/agent/retry"
	"github.com/wherry-dev/wherry/agent/state"
	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/oci"
	"github.com/wherry-dev/wherry/bundle/queue"
)

// ackInterval is how often to look for an acknowledgement while one is missing. Hubs look into registries as
// seldom as once an hour, or a day.
const ackInterval = 15 * time.Minute

// RegistrySink pushes reports to a registry, into a repository for each cluster. That repository follows the
// queue: acknowledged and superfluous reports are deleted there too, if the registry permits.
type RegistrySink struct {
	*Outbox
	Sender
	Store oci.Store
	Place string // its name for the log
	// AckStored deletes reports once Store has stored them, where there is no hub that acknowledges.
	AckStored bool

	ack   digest.Digest // of the manifest that was read last
	stays bool          // it was logged that the registry deletes nothing
}

// Run sends whenever there is something to send, until ctx ends.
func (s *RegistrySink) Run(ctx context.Context) {
	if !s.AckStored && s.Hub().Key == nil {
		s.Log.Warn("no hub key is pinned: reports are pushed and none is ever deleted")
	}
	c := &courier{box: s.Outbox, log: s.Log, to: s.Place, wake: s.forRegistry, idle: s.idle, round: s.round, sleep: retry.Sleep}
	c.run(ctx)
}

// idle is how long nothing has to be asked of the registry.
func (s *RegistrySink) idle() time.Duration {
	st, err := s.Status()
	if err != nil || st.Length == 0 || s.AckStored || s.Hub().Key == nil {
		return queue.LongestRetry
	}
	return retry.Jitter(ackInterval)
}

// Send makes one round.
func (s *RegistrySink) Send(ctx context.Context) error {
	_, err := s.round(ctx)
	return err
}

// round reads acknowledgements, pushes new reports, the newest first, and deletes artifacts that are no longer needed.
func (s *RegistrySink) round(ctx context.Context) (rest time.Duration, err error) {
	ctx, cancel := context.WithTimeout(ctx, HubTime)
	defer cancel()
	repo, err := s.Store.Repository(bundle.ReportRepository(s.UID()))
	if err != nil {
		return 0, err
	}
	if err := s.takeAck(ctx, repo); err != nil {
		return 0, err
	}
	waiting := func(q queued) bool { return q.Tag == "" }
	for {
		batch, _, err := s.Outbox.nextBatch(0, waiting)
		if err != nil {
			return 0, err
		}
		if len(batch) == 0 {
			return 0, s.sweep(ctx, repo)
		}
		if err := s.push(ctx, repo, batch); err != nil {
			return 0, err
		}
	}
}

// takeAck deletes what the hub's acknowledgement names. One that is not the hub's, or not for this cluster, deletes
// nothing, and keeps nothing from being pushed.
func (s *RegistrySink) takeAck(ctx context.Context, repo oci.Target) error {
	key := s.Hub().Key
	if s.AckStored || key == nil {
		return nil
	}
	manifest, err := repo.Resolve(ctx, bundle.AckTag)
	if errors.Is(err, errdef.ErrNotFound) || err == nil && manifest.Digest == s.ack {
		return nil
	}
	if err != nil {
		return err
	}
	envelopes, err := bundle.FetchAcks(ctx, repo, manifest)
	if err == nil {
		_, err = s.Acknowledge(envelopes, key, s.UID())
	}
	var refusal *bundle.Refusal
	if errors.Is(err, errdef.ErrNotFound) { // a newer one has just taken its place
		return nil
	}
	if err != nil && (IsUntrusted(err) || errors.As(err, &refusal)) {
		s.Log.Warn("acknowledgement in the registry is not believed", "digest", manifest.Digest, "err", err)
		err = nil
	}
	if err == nil {
		s.ack = manifest.Digest
	}
	return err
}

// push makes one artifact of batch. That it is about to is written first, so that what a crash leaves is known.
func (s *RegistrySink) push(ctx context.Context, repo oci.Target, batch []queued) error {
	var envelopes [][]byte
	newest, p := batch[len(batch)-1], pushed{Heartbeat: true}
	for _, q := range batch {
		envelopes = append(envelopes, q.envelope)
		p.Heartbeat = p.Heartbeat && q.Heartbeat
	}
	blobs, err := bundle.StoredReports(envelopes)
	if err != nil {
		return err
	}
	p.Manifest, p.Seq = blobs[len(blobs)-1].Descriptor, newest.seq
	tag := bundle.ReportTag(cmp.Or(newest.Incarnation, s.Incarnation()), int64(newest.seq))
	there, err := repo.Resolve(ctx, tag)
	if err != nil && !errors.Is(err, errdef.ErrNotFound) {
		return err
	}
	if there.Digest != "" && there.Digest != p.Manifest.Digest { // a tag is never moved: the other may be a clone's
		tag += "-" + p.Manifest.Digest.Encoded()[:12]
	}
	if err := s.db.Update(func(tx *bbolt.Tx) error { return putPushed(tx, tag, p) }); err != nil {
		return err
	}
	if there.Digest != p.Manifest.Digest {
		if err := upload(ctx, repo, blobs, tag); err != nil {
			return err
		}
	}
	if s.AckStored {
		return s.believeStored(ctx, repo, tag, p, batch)
	}
	return s.Outbox.notePushed(tag, p, batch)
}

func upload(ctx context.Context, repo oci.Target, blobs []bundle.Blob, tag string) error {
	for _, b := range blobs {
		if _, err := oci.CopyBlob(ctx, nil, repo, b.WithData()); err != nil {
			return err
		}
	}
	return repo.Tag(ctx, blobs[len(blobs)-1].Descriptor, tag)
}

// believeStored deletes the reports of batch once they can be read back from the registry, by tag and by digest.
func (s *RegistrySink) believeStored(ctx context.Context, repo oci.Target, tag string, p pushed, batch []queued) error {
	there, err := repo.Resolve(ctx, tag)
	if err != nil {
		return err
	}
	if there.Digest != p.Manifest.Digest {
		return fmt.Errorf("tag %s of the registry names %s, and %s was pushed", tag, there.Digest, p.Manifest.Digest)
	}
	if _, err := bundle.FetchReports(ctx, repo, p.Manifest); err != nil {
		return fmt.Errorf("read back what was pushed: %w", err)
	}
	var v verdicts
	for _, q := range batch {
		v.acknowledged = append(v.acknowledged, q.ID)
	}
	_, err = s.Outbox.settle(batch, v, s.Now())
	return err
}

// sweep deletes the artifacts that hold nothing that waits; where nobody acknowledges, those that later ones have
// made superfluous.
func (s *RegistrySink) sweep(ctx context.Context, repo oci.Target) error {
	var done map[string]pushed
	err := s.db.View(func(tx *bbolt.Tx) (err error) { done, err = settledArtifacts(tx, s.AckStored); return err })
	if err != nil {
		return err
	}
	for tag, p := range done {
		if err := s.discard(ctx, repo, tag, p); err != nil {
			return err
		}
		if err := s.db.Update(func(tx *bbolt.Tx) error { return state.Drop(tx, bucketPushed, tag) }); err != nil {
			return err
		}
	}
	return nil
}

// discard deletes an artifact: the tag first, as some registries keep it beside nothing, then the manifest. What the
// registry does not delete is left to its retention.
func (s *RegistrySink) discard(ctx context.Context, repo oci.Target, tag string, p pushed) error {
	if err := repo.Untag(ctx, tag); errors.Is(err, oci.ErrUnreachable) || ctx.Err() != nil {
		return err
	}
	err := repo.Delete(ctx, p.Manifest)
	switch {
	case err == nil, errors.Is(err, errdef.ErrNotFound):
		return nil
	case !errors.Is(err, errors.ErrUnsupported) && !errors.Is(err, oci.ErrUnauthorized):
		return err
	}
	if !s.stays {
		s.Log.Warn("the registry does not delete reports that are of no use any more", "err", err)
		s.stays = true
	}
	return nil
}
