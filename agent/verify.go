package agent

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/opencontainers/go-digest"
	"go.etcd.io/bbolt"

	"github.com/wherry-dev/wherry/agent/backup"
	"github.com/wherry-dev/wherry/agent/state"
	"github.com/wherry-dev/wherry/agent/trust"
	"github.com/wherry-dev/wherry/bundle"
)

// verified is what verify says of an offer.
type verified struct {
	release  *state.Release // nil where it was refused
	taken    bool           // it was accepted in this pass
	recalled bool           // it was refused before, and not judged again
}

// verify judges an offer, once for each digest. It requests manifest, signature and release document and no layer.
// It saves an accepted release at once: order and floor never fall.
func (p puller) verify(ctx context.Context, o offer) (verified, outcome) {
	by := p.judge()
	if r := p.refused; r != nil && p.remembered(*r, o.manifest.Digest) {
		return verified{recalled: true}, outcome{Verdict: Refused, Err: &bundle.Refusal{Reason: r.Reason, Message: r.Message}}
	}
	if p.accepted.Digest() == o.manifest.Digest { // acceptance is judged once, the agent's own place always
		if err := p.check(p.accepted.Release, o.manifest.Digest, by); err != nil {
			return verified{}, outcomeOf(ctx, err)
		}
		if o.after { // which stays the newest offer
			return verified{release: p.accepted}, done
		}
		return verified{release: p.accepted}, outcomeOf(ctx, p.forgive(o.manifest.Digest))
	}
	v, err := bundle.Verify(ctx, o.documents, o.manifest, by.Trust)
	if err != nil {
		return verified{}, outcomeOf(ctx, err)
	}
	if err := p.check(v.Release, o.manifest.Digest, by); err != nil {
		return verified{}, outcomeOf(ctx, err)
	}
	r := &state.Release{Release: v.Release, Manifest: v.Descriptor, Tree: v.Tree, AcceptedAt: state.Stamp(p.opts.Now())}
	if p.allowExpired != "" {
		if r.AllowExpired, err = p.excused(v.Release, by); err != nil {
			return verified{}, outcomeOf(ctx, err)
		}
	}
	err = p.accept(r, by)
	if errors.Is(err, errOtherTrust) {
		return p.verify(ctx, o)
	}
	return verified{release: r, taken: err == nil}, outcomeOf(ctx, err)
}

// check judges a release by what the agent is and has accepted so far.
func (p puller) check(r bundle.Release, manifest digest.Digest, by trust.Judge) error {
	highest, floor, err := p.state.judgedSoFar(r.Stream(), by.Epoch)
	if err != nil {
		return err
	}
	now := latest(p.opts.Now(), floor)
	if err := p.vouched(by); err != nil {
		return err
	}
	expect := bundle.Expect{Stream: p.stream(), Ring: p.cluster.Ring, Epoch: by.Epoch, Highest: highest, Now: now, AllowExpired: p.allowExpired != ""}
	err = expect.Check(r, manifest)
	if err == nil && manifest != highest.Digest {
		err = by.Admits(p.cluster.Platform, now)
	}
	return err
}

// excused returns the person's reason for accepting a release that has expired; empty if it has not.
func (p puller) excused(r bundle.Release, by trust.Judge) (string, error) {
	_, floor, err := p.state.judgedSoFar(r.Stream(), by.Epoch)
	if err != nil || !r.Expiry(latest(p.opts.Now(), floor)).Expired {
		return "", err
	}
	return p.allowExpired, nil
}

// vouched refuses to judge by an older trust document than the one that was in force in this cluster before the machine
// was set up anew.
func (a *Agent) vouched(by trust.Judge) error {
	note, err := backup.ReadNote(a.state.db)
	if err != nil || note == nil || note.Trust <= by.Version() {
		return err
	}
	return &bundle.Refusal{Reason: bundle.TrustDocumentRejected, Message: fmt.Sprintf(
		"version %d of the trust document was in force in this cluster, as %s says, and this agent has version %d: install what is missing with trust install", note.Trust, note.Where, by.Version())}
}

// refusal is the memory of a release that was refused, so that it is not judged again and again.
type refusal struct {
	Digest  digest.Digest `json:"digest"`
	Reason  bundle.Reason `json:"reason"`
	Message string        `json:"message"`
	At      time.Time     `json:"at"`
	// Trust identifies the inputs of the judgement: the keys, and the agent's version and place.
	Trust string `json:"trust"`
	// Count is the number of judgements, and NotBefore the time at which a pass may judge again by itself.
	Count     int       `json:"count"`
	NotBefore time.Time `json:"notBefore"`
}

// final reports whether the reason lies in the signed release document, so that the same trust would always refuse the
// same digest. Other refusals may end: a signature may be added, a damaged blob repaired, a clock corrected, and the
// trust document of the release's epoch may still arrive.
func (r refusal) final() bool {
	switch r.Reason {
	case bundle.WrongPlatform, bundle.WrongEnvironment, bundle.WrongClusterType, bundle.WrongRing,
		bundle.OlderRelease, bundle.UnsupportedSchema:
		return true
	}
	return false
}

// remembered reports whether a manifest was refused before and may not be judged otherwise now. A refusal
// by a clock that was ahead is no reason to wait until that time has come.
func (p puller) remembered(r refusal, manifest digest.Digest) bool {
	now := p.opts.Now()
	return !p.force && r.Digest == manifest && r.Trust == p.judgedBy() &&
		(r.final() || !now.Before(r.At) && now.Before(r.NotBefore))
}

// judgedSoFar returns the highest place accepted in a stream, and the floor of time of an epoch.
func (s *State) judgedSoFar(of bundle.Stream, epoch int64) (highest bundle.Order, floor time.Time, err error) {
	err = s.db.View(func(tx *bbolt.Tx) (err error) {
		highest, err = state.Load[bundle.Order](tx, state.Orders, state.OrderKey(of))
		if err == nil {
			floor, err = trust.LoadFloor(tx, epoch)
		}
		return err
	})
	if err != nil {
		err = state.Local("read state: %w", err)
	}
	return highest, floor, err
}

// errOtherTrust means that a trust document was installed while a release was judged by the one before.
var errOtherTrust = errors.New("another trust document is in force")

// accept writes that r was accepted, before anything of it is fetched.
func (p puller) accept(r *state.Release, by trust.Judge) error {
	ended := false
	err := p.state.db.Update(func(tx *bbolt.Tx) error {
		version, err := trust.Version(tx)
		if err == nil && version != by.Version() {
			err = errOtherTrust
		}
		if err != nil {
			return err
		}
		ended, err = noteAccepted(tx, r, p.quarantine)
		return errors.Join(
			err,
			state.Save(tx, state.Orders, state.OrderKey(r.Release.Stream()), r.Order()),
			trust.RaiseFloor(tx, r.Release.Epoch, r.Release.IssuedAt),
			state.Save(tx, state.Meta, keyAccepted, r),
			state.Drop(tx, state.Meta, keyRefused),
			state.Drop(tx, state.Meta, keyOlderMedium),
			p.begin(tx, "fetch", r.Digest()),
		)
	})
	if err != nil {
		return err
	}
	p.accepted, p.refused = r, nil
	p.opts.Log.Info("release accepted", "release", r.Name(), "digest", r.Digest(), "sequence", r.Release.Sequence, "epoch", r.Release.Epoch)
	if ended {
		p.held = nil
		p.opts.Log.Info("rollback ends: a newer release has come", "release", r.Name(), "digest", r.Digest())
	}
	return nil
}

// forgive forgets the refusal of another release once the tag names the accepted one again.
func (p puller) forgive(offered digest.Digest) error {
	if p.refused == nil || p.refused.Digest == offered {
		return nil // a refusal of the accepted release itself stands until its content is whole
	}
	p.refused = nil
	return p.state.db.Update(func(tx *bbolt.Tx) error { return state.Drop(tx, state.Meta, keyRefused) })
}

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
