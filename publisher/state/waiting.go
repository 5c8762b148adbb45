package state

import (
	"context"
	"fmt"
	"time"

	"github.com/opencontainers/go-digest"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/published"
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

// eachPending calls yield with each release of a stream that waits for signatures and is credible, newest first, as
// long as it returns true.
func (rd *Reader) eachPending(ctx context.Context, t Type, yield func(*bundle.Verified) bool) error {
	if !rd.Trust.Documented() {
		return nil
	}
	at, err := rd.By(rd.Trust.AnyKey()).Type(t.Stream)
	if err != nil {
		return err
	}
	for _, tag := range t.Tags.Pending() {
		v, _, err := at.Read(ctx, tag)
		if err == nil && v.Release.Epoch == rd.Trust.Epoch && credible(published.OrderOf(v), LastSequence(t.Verified, v.Release.Epoch), rd.IssuedAt) && !yield(v) {
			return nil
		}
		if err := published.IgnoreRefused(err); err != nil {
			return err
		}
	}
	return nil
}

// PendingRecord returns the newest record that waits for signatures, is credible and above the one that stands; nil where
// there is none.
func (rd *Reader) PendingRecord(ctx context.Context, record Record) (*bundle.VerifiedEnvironment, error) {
	if !rd.Trust.Documented() {
		return nil, nil
	}
	for _, tag := range record.Pending() {
		v, err := rd.RecordThatWaits(ctx, record, tag)
		if v != nil || published.IgnoreRefused(err) != nil {
			return v, err
		}
	}
	return nil, nil
}

// RecordThatWaits returns the record under tag, which is to stand in the place of record. It returns a *bundle.Refusal where
// that does not wait for signatures.
func (rd *Reader) RecordThatWaits(ctx context.Context, record Record, tag string) (*bundle.VerifiedEnvironment, error) {
	last := record.Verified
	at, err := rd.By(rd.Trust.AnyKey()).Environment(rd.Environment)
	if err != nil {
		return nil, err
	}
	v, _, err := at.Read(ctx, tag)
	if err != nil {
		return nil, err
	}
	r, order, sequence := v.Record, published.OrderOfRecord(v), int64(0)
	if last != nil && last.Record.Epoch == r.Epoch {
		sequence = last.Record.Sequence
	}
	refused := func(reason bundle.Reason, what string) (*bundle.VerifiedEnvironment, error) {
		return nil, &bundle.Refusal{Reason: reason, Message: fmt.Sprintf("%s:%s: %s", at, tag, what)}
	}
	switch {
	case r.Platform != rd.Platform:
		return refused(bundle.WrongPlatform, fmt.Sprintf("it is of platform %q, the trust document is for %q", r.Platform, rd.Platform))
	case r.Epoch != rd.Trust.Epoch:
		return refused(bundle.OldEpoch, fmt.Sprintf("it has epoch %d, the trust in force has %d", r.Epoch, rd.Trust.Epoch))
	case !credible(order, sequence, rd.IssuedAt):
		return refused(bundle.BadContent, fmt.Sprintf("it has sequence %d and was issued at %s, which no publisher would give it", r.Sequence, r.IssuedAt.Format(time.RFC3339)))
	case last != nil && order.Compare(published.OrderOfRecord(last)) <= 0:
		return refused(bundle.OlderRelease, "a newer one stands already")
	}
	return v, nil
}

// NothingEver returns the error for an environment without any record. It suggests other environments if the registry
// lists its repositories to this user.
func (rd *Reader) NothingEver(ctx context.Context, err error) error {
	if repositories, unlisted := rd.Store.Repositories(ctx); unlisted == nil {
		if lack := published.CheckEnvironment(rd.Environment, rd.Location, repositories); lack != nil {
			return lack
		}
	}
	return fmt.Errorf("%w: %w", err, published.ErrNothingPublished)
}

// ReleaseThatWaits returns the pending release of t with manifest d, if it may be signed and take the place of last, which
// may be nil. Otherwise the error is a *bundle.Refusal.
func (rd *Reader) ReleaseThatWaits(ctx context.Context, t Type, d digest.Digest, last *bundle.Verified) (*bundle.Verified, error) {
	at, err := rd.By(rd.Trust.AnyKey()).Type(t.Stream)
	if err != nil {
		return nil, err
	}
	v, _, err := at.Read(ctx, d.String())
	if err != nil {
		return nil, err
	}
	if err := published.CheckLayers(v.Manifest); err != nil {
		return nil, err
	}
	r := v.Release
	expect := bundle.Expect{Stream: t.Stream, Epoch: rd.Trust.Epoch, Now: rd.IssuedAt}
	if last != nil {
		expect.Highest = published.OrderOf(last)
	}
	if len(r.Rings) > 0 {
		expect.Ring = r.Rings[0] // it is no ring's agent that asks
	}
	if err := expect.Check(r, d); err != nil {
		return nil, err
	}
	if !credible(published.OrderOf(v), LastSequence(t.Verified, r.Epoch), rd.IssuedAt) {
		return nil, &bundle.Refusal{Reason: bundle.BadContent, Message: fmt.Sprintf("release %s was issued at %s: no publisher numbers like that",
			r.Tag(), r.IssuedAt.Format(time.RFC3339))}
	}
	return v, nil
}
