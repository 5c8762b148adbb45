package agent

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/opencontainers/go-digest"
	"go.etcd.io/bbolt"
	"oras.land/oras-go/v2/errdef"

	"github.com/wherry-dev/wherry/agent/state"
	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/oci"
)

// askEvery is how often the registry is asked for a newer trust document while it offers no new release.
const askEvery = 24 * time.Hour

// judge is what a release is judged by.
type judge struct {
	bundle.Trust
	// document is the one in force, nil where keys are pinned.
	document *bundle.TrustDocument
}

// judge returns what is in force at this moment: the newest trust document, or the pinned keys of an agent
// that has none.
func (a *Agent) judge() judge {
	if chain := a.state.chain(); len(chain) > 0 {
		d := chain.Current()
		return judge{d.Trust(), &d}
	}
	return judge{a.pinned, nil}
}

// version is that of the document in force, 0 without one.
func (j judge) version() int64 {
	if j.document == nil {
		return 0
	}
	return j.document.Version
}

// admits judges the document itself, at now: whether it may let a new release in.
func (j judge) admits(platform string, now time.Time) error {
	if j.document == nil {
		return nil
	}
	return j.document.Admits(platform, now)
}

// judgedBy identifies all that a release is judged by, so that a change of it has a refused one judged
// again. Another version of this program may read what the one before did not.
func (a *Agent) judgedBy() string {
	by := a.judge()
	sum := sha256.Sum256(fmt.Appendf(nil, "%q %q %q %d %d %d %s", a.opts.Version, a.stream(), a.cluster.Ring, by.version(), by.Epoch, by.Threshold, strings.Join(keyIDs(by.Keys), " ")))
	return hex.EncodeToString(sum[:8])
}

// keyIDs returns the ids of keys, sorted.
func keyIDs(keys bundle.Keys) (ids []string) {
	for _, k := range keys {
		if id, err := bundle.KeyID(k); err == nil {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}

// asked is how the agent fared when it last asked for a newer trust document.
type asked struct {
	// At is when it got an answer, good or bad.
	At time.Time `json:"at,omitzero"`
	// Reason and Message say why the chain is not known to be the newest. Empty where it was, then.
	Reason  string `json:"reason,omitempty"`
	Message string `json:"message,omitempty"`
}

// due reports whether to ask although no release asks for it. A clock may be set back.
func (a asked) due(now time.Time) bool {
	return a.Reason != "" || now.Sub(a.At).Abs() >= askEvery
}

// learn asks for trust documents before a manifest is judged that was not judged before, once a day, when a person asks,
// and as often as for releases while the one in force has expired. One that must not be believed, or cannot be read,
// keeps a new release out; it does not touch what was accepted, and is only put aside where nothing new is offered.
func (p *pass) learn(ctx context.Context, offered digest.Digest) (aside, out outcome) {
	if p.documents == nil || len(p.state.chain()) == 0 {
		return aside, done
	}
	now, fresh := p.opts.Now(), p.unjudged(offered)
	if valid := now.Before(p.state.chain().Current().ExpiresAt); valid && !fresh && !p.ask && !p.asked.due(now) {
		return aside, done
	}
	out = outcomeOf(ctx, p.walk(ctx))
	if out.Verdict == Interrupted || out.Verdict == Broken {
		return aside, out
	}
	if err := p.noteAsked(out, now); err != nil {
		return aside, outcomeOf(ctx, err)
	}
	if out.Verdict != Done && !fresh {
		return out, done
	}
	return aside, out
}

// unjudged reports whether verify is about to judge a manifest.
func (p *pass) unjudged(manifest digest.Digest) bool {
	return manifest != p.accepted.Digest() && !(p.refused != nil && p.remembered(*p.refused, manifest))
}

// walk takes one version after the other until there is no newer one. Each is on disk before the next is
// judged by it.
func (p *pass) walk(ctx context.Context) error {
	documents := p.documents
	if repo, ok := documents.(oci.Target); ok {
		documents = p.onePerManifest(repo, bundle.TrustDocumentRejected)
	}
	for {
		version := int64(len(p.state.chain())) + 1
		envelope, err := bundle.FetchTrust(ctx, documents, version)
		if errors.Is(err, errdef.ErrNotFound) {
			return nil
		}
		if err == nil {
			err = p.state.believe(version, envelope)
		}
		if err != nil {
			return err
		}
		d := p.state.chain().Current()
		p.opts.Log.Info("trust document accepted", "version", d.Version, "epoch", d.Epoch, "expires", d.ExpiresAt)
	}
}

// noteAsked keeps how asking ended, and writes it only where it says something new.
func (p *pass) noteAsked(out outcome, now time.Time) error {
	next := asked{At: p.asked.At, Reason: out.reason()}
	var refusal *bundle.Refusal
	switch {
	case errors.As(out.Err, &refusal):
		next.Message = bundle.Clip(refusal.Message)
	case out.Err != nil:
		next.Message = bundle.Clip(out.Err.Error())
	}
	if out.Verdict != Unreachable {
		next.At = state.Stamp(now)
	}
	if next == p.asked {
		return nil
	}
	if next.Reason != "" && next.Reason != p.asked.Reason {
		p.opts.Log.Warn("no newer trust document can be taken", "reason", next.Reason, "message", next.Message)
	}
	p.asked = next
	return p.state.db.Update(func(tx *bbolt.Tx) error { return state.Save(tx, state.Meta, keyAsked, next) })
}

// chain returns the trust documents that the agent believes, version 1 first. Nil is none.
func (s *State) chain() bundle.TrustChain {
	if c := s.trust.Load(); c != nil {
		return *c
	}
	return nil
}

func trustKey(version int64) []byte { return fmt.Appendf(nil, "%019d", version) }

// storedVersion is the number of documents in the file.
func storedVersion(tx *bbolt.Tx) (int64, error) {
	b := tx.Bucket([]byte(bucketTrust))
	if b == nil {
		return 0, nil
	}
	last, _ := b.Cursor().Last()
	if last == nil {
		return 0, nil
	}
	return strconv.ParseInt(string(last), 10, 64)
}

// loadChain reads the documents in their order and verifies them again, once in a process.
func (s *State) loadChain(tx *bbolt.Tx) error {
	b := tx.Bucket([]byte(bucketTrust))
	if b == nil {
		return nil
	}
	var chain bundle.TrustChain
	err := b.ForEach(func(k, v []byte) (err error) {
		if chain, err = chain.Append(bytes.Clone(v)); err != nil {
			err = fmt.Errorf("%s %s: %w: %v", bucketTrust, k, state.ErrDamaged, err)
		}
		return err
	})
	s.trust.Store(&chain)
	return err
}

// believe adds a version to the chain if its turn has come and the roots have signed it, and does nothing
// where somebody else has added it meanwhile. What was believed is on disk when it returns nil.
func (s *State) believe(version int64, envelope []byte) error {
	s.believing.Lock()
	defer s.believing.Unlock()
	if int64(len(s.chain())) >= version {
		return nil
	}
	chain, err := s.chain().Append(envelope)
	if err != nil {
		return err
	}
	d := chain.Current()
	err = s.db.Update(func(tx *bbolt.Tx) error {
		b, err := tx.CreateBucketIfNotExists([]byte(bucketTrust))
		if err != nil {
			return err
		}
		return errors.Join(b.Put(trustKey(d.Version), envelope), raiseFloor(tx, d.Epoch, d.IssuedAt))
	})
	if err == nil {
		s.trust.Store(&chain)
	}
	return err
}

// keyFloorOf names the floor of an epoch. That of epoch 0 has the name from before there were others.
func keyFloorOf(epoch int64) string {
	if epoch == 0 {
		return keyFloor
	}
	return fmt.Sprintf("%s-%d", keyFloor, epoch)
}

// raiseFloor takes account of the time of issue of a verified document. Each epoch has a floor of its own,
// so that a thief's date ends with the epoch.
func raiseFloor(tx *bbolt.Tx, epoch int64, issued time.Time) error {
	floor, err := state.Load[time.Time](tx, state.Meta, keyFloorOf(epoch))
	if err != nil || !issued.After(floor) {
		return err
	}
	return state.Save(tx, state.Meta, keyFloorOf(epoch), issued)
}
