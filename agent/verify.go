package agent

import (
	"bytes"
	"context"
	"errors"
	"io"
	"time"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"go.etcd.io/bbolt"

	"github.com/wherry-dev/wherry/bundle"
)

// verify judges the manifest that resolve found, once for each digest. It requests manifest, signature
// and release document and no layer. What it accepts is written at once: order and floor never fall.
func (p *pass) verify(ctx context.Context) outcome {
	if r := p.refused; r != nil && p.remembered(*r) {
		p.recalled = true
		return outcome{Verdict: Refused, Err: &bundle.Refusal{Reason: r.Reason, Message: r.Message}}
	}
	if p.accepted.digest() == p.manifest.Digest { // acceptance is judged once, the agent's own place always
		if _, err := p.check(p.accepted.Release); err != nil {
			return outcomeOf(ctx, err)
		}
		p.target = p.accepted
		return outcomeOf(ctx, p.forgive())
	}
	p.memo = &memo{Source: p.offer, want: p.manifest.Digest}
	v, err := bundle.Verify(ctx, p.memo, p.manifest, p.trusted)
	if err != nil {
		return outcomeOf(ctx, err)
	}
	floor, err := p.check(v.Release)
	if err != nil {
		return outcomeOf(ctx, err)
	}
	p.target = &release{Release: v.Release, Manifest: v.Descriptor, Tree: v.Tree, AcceptedAt: stamp(p.opts.Now())}
	return outcomeOf(ctx, p.accept(floor))
}

// check judges the release of the manifest by what the agent is and has accepted so far.
func (p *pass) check(r bundle.Release) (floor time.Time, err error) {
	highest, floor, err := p.judgedSoFar(r.Stream())
	if err != nil {
		return floor, err
	}
	expect := bundle.Expect{Stream: p.stream(), Ring: p.cluster.Ring, Highest: highest, Now: latest(p.opts.Now(), floor)}
	return floor, expect.Check(r, p.manifest.Digest)
}

// remembered says whether the manifest was refused before and may not be judged otherwise now.
func (p *pass) remembered(r refusal) bool {
	return !p.force && r.Digest == p.manifest.Digest && r.Trust == p.trust() &&
		(r.final() || p.opts.Now().Before(r.NotBefore))
}

func (p *pass) judgedSoFar(s bundle.Stream) (highest bundle.Order, floor time.Time, err error) {
	err = p.state.view(func(tx *bbolt.Tx) (err error) {
		highest, err = load[bundle.Order](tx, bucketOrders, s.Repository()+"@"+s.Platform)
		if err == nil {
			floor, err = load[time.Time](tx, bucketMeta, keyFloor)
		}
		return err
	})
	if err != nil {
		err = local("read state: %w", err)
	}
	return highest, floor, err
}

// accept writes that the target was accepted, before anything of it is fetched.
func (p *pass) accept(floor time.Time) error {
	r, s := p.target.Release, p.target.Release.Stream()
	err := p.state.update(func(tx *bbolt.Tx) error {
		return errors.Join(
			save(tx, bucketOrders, s.Repository()+"@"+s.Platform, bundle.OrderOf(r, p.target.digest())),
			save(tx, bucketMeta, keyFloor, latest(floor, r.IssuedAt)),
			save(tx, bucketMeta, keyAccepted, p.target),
			drop(tx, bucketMeta, keyRefused),
			p.begin(tx, "fetch", p.target.digest()),
		)
	})
	if err != nil {
		return err
	}
	p.accepted, p.refused = p.target, nil
	p.opts.Log.Info("release accepted", "digest", p.target.digest(), "sequence", r.Sequence, "epoch", r.Epoch)
	return nil
}

// forgive forgets the refusal of another release once the tag names the accepted one again.
func (p *pass) forgive() error {
	if p.refused == nil || p.refused.Digest == p.manifest.Digest {
		return nil // a refusal of the accepted release itself stands until its content is whole
	}
	p.refused = nil
	return p.state.update(func(tx *bbolt.Tx) error { return drop(tx, bucketMeta, keyRefused) })
}

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// memo keeps the bytes of the manifest while it is verified, so that the store gets it without a second
// request.
type memo struct {
	bundle.Source
	want digest.Digest
	data []byte
}

func (m *memo) Fetch(ctx context.Context, d ocispec.Descriptor) (io.ReadCloser, error) {
	r, err := m.Source.Fetch(ctx, d)
	if err != nil || d.Digest != m.want {
		return r, err
	}
	defer r.Close()
	if m.data, err = io.ReadAll(io.LimitReader(r, bundle.MaxManifestBytes+1)); err != nil {
		return nil, err
	}
	return io.NopCloser(bytes.NewReader(m.data)), nil
}
