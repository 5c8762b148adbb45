package intake

import (
	"errors"
	"time"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"go.etcd.io/bbolt"

	"github.com/wherry-dev/wherry/agent/state"
	"github.com/wherry-dev/wherry/agent/trust"
	"github.com/wherry-dev/wherry/bundle"
)

// Bucket has the records of streams, by state.OrderKey. It exists once a package was taken.
const Bucket = "intake"

// patience is how long what has arrived of a release waits for the rest of it.
const patience = 30 * 24 * time.Hour

// record is what the state file has of one stream.
type record struct {
	// Stored is the release that is whole here, and Arriving the one of which a part may be.
	Stored   *kept `json:"stored,omitempty"`
	Arriving *kept `json:"arriving,omitempty"`
	// Waiting is the whole release of the agent's own stream that no pass has accepted yet, while Arriving is a newer one. It may be
	// what the newer one builds on, and runs if that one cannot be taken.
	Waiting *kept `json:"waiting,omitempty"`
}

// whole is the release of the agent's own stream that waits for a pass; nil if there is none.
func (r record) whole() *kept {
	if r.Arriving != nil && r.Arriving.Whole {
		return r.Arriving
	}
	return r.Waiting
}

// kept is a release with its artifacts.
type kept struct {
	Release   *state.Release     `json:"release"`
	Signature ocispec.Descriptor `json:"signature"`
	// Tags are the moving tags of the release.
	Tags []string `json:"tags"`
	// Artifacts are those that the package carries, as the release names them, and their referrers. There is none before the tree is here.
	Artifacts []artifact `json:"artifacts,omitempty"`
	// Bytes is the size of all of it. Blobs that its artifacts share count once.
	Bytes int64     `json:"bytes,omitempty"`
	Since time.Time `json:"since"`
	// Whole is true for the release of the agent's own stream of which all is here, until a pass has accepted it, or as long as a
	// person has gone back to it.
	Whole bool `json:"whole,omitempty"`
}

// digest is that of the release's manifest; empty for nil.
func (c *kept) digest() digest.Digest {
	if c == nil {
		return ""
	}
	return c.Release.Digest()
}

// artifact is an image or another artifact of a registry, or a referrer of one.
type artifact struct {
	Repository string             `json:"repository"` // HOST/NAME
	Tag        string             `json:"tag,omitempty"`
	Manifest   ocispec.Descriptor `json:"manifest"`
	// Subject is what a referrer is about. It is empty for an artifact that the release names.
	Subject digest.Digest `json:"subject,omitempty"`
}

func load(tx *bbolt.Tx, s bundle.Stream) (record, error) {
	return state.Load[record](tx, Bucket, state.OrderKey(s))
}

// save replaces the record of a stream, and deletes an empty one.
func (r record) save(tx *bbolt.Tx, key string) error {
	b, err := tx.CreateBucketIfNotExists([]byte(Bucket))
	if err != nil {
		return err
	}
	if r.Stored == nil && r.Arriving == nil && r.Waiting == nil {
		return b.Delete([]byte(key))
	}
	return state.Save(tx, Bucket, key, r)
}

// each calls f with all records, in the order of their keys.
func each(tx *bbolt.Tx, f func(key string, r record) error) error {
	b := tx.Bucket([]byte(Bucket))
	if b == nil {
		return nil
	}
	return b.ForEach(func(key, _ []byte) error {
		r, err := state.Load[record](tx, Bucket, string(key))
		if err != nil {
			return err
		}
		return f(string(key), r)
	})
}

// change calls f with each record and saves those for which it returns true, in a transaction of the caller.
func change(tx *bbolt.Tx, f func(key string, r *record) bool) (changed bool, err error) {
	all := map[string]record{}
	err = each(tx, func(key string, r record) error {
		if f(key, &r) {
			all[key] = r
		}
		return nil
	})
	for key, r := range all {
		err = errors.Join(err, r.save(tx, key))
	}
	return len(all) > 0, err
}

// known returns the record of a stream, the highest place that was accepted in it, and the floor of time of an epoch.
func (k *Keeper) known(s bundle.Stream, epoch int64) (r record, highest bundle.Order, floor time.Time, err error) {
	err = k.db.View(func(tx *bbolt.Tx) error {
		var errs [3]error
		r, errs[0] = load(tx, s)
		highest, errs[1] = state.Load[bundle.Order](tx, state.Orders, state.OrderKey(s))
		floor, errs[2] = trust.LoadFloor(tx, epoch)
		return errors.Join(errs[:]...)
	})
	if err != nil {
		err = state.Local("read state: %w", err)
	}
	return r, highest, floor, err
}

// claim writes down what is arriving, before any of it is copied.
func (k *Keeper) claim(all []*stream) error {
	k.documents.Lock()
	defer k.documents.Unlock()
	return k.db.Update(func(tx *bbolt.Tx) error {
		var errs []error
		for _, s := range all {
			r, err := load(tx, s.place)
			c := s.content
			if r.Arriving.digest() == c.digest() { // what has come of it stays until its list is read again
				c.Since = r.Arriving.Since
				if len(c.Artifacts) == 0 {
					c.Artifacts = r.Arriving.Artifacts
				}
			}
			if r.whole().digest() != c.digest() {
				r.Waiting = r.whole()
			}
			r.Arriving = &c
			errs = append(errs, err, r.save(tx, state.OrderKey(s.place)))
		}
		return errors.Join(errs...)
	})
}

// finish makes the arrived releases the stored ones, and raises their floors of order and time. That of the own stream
// waits for a pass to accept it.
func (k *Keeper) finish(all []*stream) error {
	return k.db.Update(func(tx *bbolt.Tx) error {
		var errs []error
		for _, s := range all {
			c := s.content
			r, err := load(tx, s.place)
			errs = append(errs, err)
			r.Waiting = nil
			if s.Own && !s.seen {
				c.Whole = true
				r.Arriving = &c
			} else {
				c.Since = k.stamp()
				r.Stored, r.Arriving = &c, nil
			}
			errs = append(errs, r.save(tx, state.OrderKey(s.place)))
			if !s.Own {
				errs = append(errs, state.Save(tx, state.Orders, state.OrderKey(s.place), c.Release.Order()),
					trust.RaiseFloor(tx, c.Release.Release.Epoch, c.Release.Release.IssuedAt))
			}
		}
		return errors.Join(errs...)
	})
}

// drop forgets what has arrived of streams that are refused.
func (k *Keeper) drop(all []*stream) error {
	return k.db.UpdateIf(func(tx *bbolt.Tx) (bool, error) {
		return change(tx, func(key string, r *record) bool {
			for _, s := range all {
				if key == state.OrderKey(s.place) && r.Arriving.digest() == s.Digest {
					r.Arriving, r.Waiting = r.Waiting, nil
					return true
				}
			}
			return false
		})
	})
}

func (k *Keeper) stamp() time.Time { return state.Stamp(k.opts.Now()) }

// Settle forgets what nobody needs any more: of the own stream, releases that are neither the accepted nor the running one
// of the agent, nor the one that a person goes back to, and what has arrived of older ones; and what has waited too long for the
// rest of its release. It reports whether it has changed anything, so that the store can be cleaned up. Each may be nil.
func (k *Keeper) Settle(accepted, running, back *state.Release) (settled bool, err error) {
	none := false
	if err := k.db.View(func(tx *bbolt.Tx) error { none = tx.Bucket([]byte(Bucket)) == nil; return nil }); err != nil || none {
		return false, err
	}
	now := k.opts.Now()
	// An older one that runs, or is to run, because a person has gone back to it.
	broughtBack := func(a *kept) bool {
		return a.Whole && (a.digest() == running.Digest() || a.digest() == back.Digest()) && a.digest() != accepted.Digest()
	}
	err = k.db.UpdateIf(func(tx *bbolt.Tx) (bool, error) {
		var err error
		settled, err = change(tx, func(key string, r *record) (changed bool) {
			for _, a := range []**kept{&r.Arriving, &r.Waiting} {
				if *a != nil && !broughtBack(*a) && now.Sub((*a).Since).Abs() > patience {
					*a, changed = nil, true
				}
			}
			if key != state.OrderKey(k.opts.Own) {
				return changed
			}
			if a := r.whole(); a != nil && a.digest() == accepted.Digest() {
				if r.Arriving == a {
					r.Arriving = nil
				}
				a.Whole, a.Since = false, state.Stamp(now)
				r.Stored, r.Waiting, changed = a, nil, true
			}
			for _, a := range []**kept{&r.Arriving, &r.Waiting} {
				if *a != nil && !broughtBack(*a) && accepted != nil && (*a).Release.Order().Compare(accepted.Order()) < 0 {
					*a, changed = nil, true
				}
			}
			if d := r.Stored.digest(); d != "" && d != accepted.Digest() && d != running.Digest() {
				r.Stored, changed = nil, true
			}
			return changed
		})
		return settled, err
	})
	return settled, err
}

// Refuse forgets a release of the own stream that the agent has refused by what is in its tree.
func (k *Keeper) Refuse(release digest.Digest) error {
	return k.db.UpdateIf(func(tx *bbolt.Tx) (bool, error) {
		r, err := load(tx, k.opts.Own)
		if err != nil {
			return false, err
		}
		changed := false
		for _, c := range []**kept{&r.Arriving, &r.Waiting, &r.Stored} {
			if (*c).digest() == release {
				*c, changed = nil, true
			}
		}
		if !changed {
			return false, nil
		}
		return true, r.save(tx, state.OrderKey(k.opts.Own))
	})
}
