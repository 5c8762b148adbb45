package publisher

import (
	"context"
	"fmt"
	"time"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/oci"
	"github.com/wherry-dev/wherry/publisher/releases"
)

const (
	// maxAhead is how far the clock of whoever published what waits may be ahead of ours.
	maxAhead = 10 * time.Minute
	// maxTaken is how many sequences may have been passed over because their tags were taken.
	maxTaken = 1000
)

// credible reports whether what waits for signatures is numbered as publishers number. It is signed by one key
// at least, and that one may be stolen: whoever signs a sequence that is far ahead uses up those before it.
func credible(o bundle.Order, last int64, now time.Time) bool {
	return !o.IssuedAt.After(now.Add(maxAhead)) && o.Sequence-maxTaken <= max(last, o.IssuedAt.Unix())
}

// pendingRelease returns the newest release of a stream that waits for signatures, is credible and above the
// one that stands; nil where there is none.
func (rd *reader) pendingRelease(ctx context.Context, repo oci.Target, s standing, stream bundle.Stream) (*bundle.Verified, error) {
	var newest *bundle.Verified
	err := rd.eachPending(ctx, repo, s, stream, func(v *bundle.Verified) bool {
		if last := s.verified; last == nil || orderOf(v).Compare(orderOf(last)) > 0 {
			newest = v
		}
		return newest == nil
	})
	return newest, err
}

// eachPending calls yield with each release of a stream that waits for signatures and is credible, newest first, as
// long as it returns true.
func (rd *reader) eachPending(ctx context.Context, repo oci.Target, s standing, stream bundle.Stream, yield func(*bundle.Verified) bool) error {
	if !rd.trust.Documented() {
		return nil
	}
	for _, tag := range s.Tags.Pending() {
		desc, err := repo.Resolve(ctx, tag)
		if err == nil {
			var v *bundle.Verified
			if v, err = bundle.Verify(ctx, repo, desc, rd.trust.AnyKey()); err == nil && rd.waits(s, v, stream, tag) && !yield(v) {
				return nil
			}
		}
		if releases.UnlessRefused(err) != nil {
			return err
		}
	}
	return nil
}

func (rd *reader) waits(s standing, v *bundle.Verified, stream bundle.Stream, tag string) bool {
	r := v.Release
	return r.Stream() == stream && r.Epoch == rd.trust.Epoch && releases.PendingTag(r.Epoch, r.Sequence) == tag &&
		credible(orderOf(v), lastSequence(s.verified, r.Epoch), rd.issuedAt)
}

// lastSequence is that of v in an epoch; in another one sequences begin again.
func lastSequence(v *bundle.Verified, epoch int64) int64 {
	if v == nil || v.Release.Epoch != epoch {
		return 0
	}
	return v.Release.Sequence
}

// pendingRecord does for the environment's record what pendingRelease does for a release.
func (rd *reader) pendingRecord(ctx context.Context, repo oci.Target, record recordStanding) (*bundle.VerifiedEnvironment, error) {
	if !rd.trust.Documented() {
		return nil, nil
	}
	for _, tag := range record.tags.Pending() {
		v, err := rd.recordThatWaits(ctx, repo, tag, record.verified)
		if v != nil || releases.UnlessRefused(err) != nil {
			return v, err
		}
	}
	return nil, nil
}

// recordThatWaits returns the record under tag, and a *bundle.Refusal where it does not wait for signatures.
func (rd *reader) recordThatWaits(ctx context.Context, repo oci.Target, tag string, last *bundle.VerifiedEnvironment) (*bundle.VerifiedEnvironment, error) {
	desc, err := repo.Resolve(ctx, tag)
	if err != nil {
		return nil, err
	}
	v, err := bundle.VerifyEnvironment(ctx, repo, desc, rd.trust.AnyKey())
	if err != nil {
		return nil, err
	}
	r, order, sequence := v.Record, recordOrder(v), int64(0)
	if last != nil && last.Record.Epoch == r.Epoch {
		sequence = last.Record.Sequence
	}
	refused := func(reason bundle.Reason, what string) (*bundle.VerifiedEnvironment, error) {
		return nil, &bundle.Refusal{Reason: reason, Message: fmt.Sprintf("%s:%s: %s", rd.to.Name(bundle.EnvironmentRepository(rd.environment)), tag, what)}
	}
	switch {
	case r.Platform != rd.platform:
		return refused(bundle.WrongPlatform, fmt.Sprintf("it is of platform %q, the trust document is for %q", r.Platform, rd.platform))
	case r.Environment != rd.environment:
		return refused(bundle.WrongEnvironment, fmt.Sprintf("it is of environment %q", r.Environment))
	case r.Epoch != rd.trust.Epoch:
		return refused(bundle.OldEpoch, fmt.Sprintf("it has epoch %d, the trust in force has %d", r.Epoch, rd.trust.Epoch))
	case releases.PendingTag(r.Epoch, r.Sequence) != tag || !credible(order, sequence, rd.issuedAt):
		return refused(bundle.BadContent, fmt.Sprintf("it has sequence %d and was issued at %s, which no publisher would give it", r.Sequence, r.IssuedAt.Format(time.RFC3339)))
	case last != nil && order.Compare(recordOrder(last)) <= 0:
		return refused(bundle.OlderRelease, "a newer one stands already")
	}
	return v, nil
}
