package agent

import (
	"cmp"
	"errors"
	"slices"
	"time"

	"github.com/opencontainers/go-digest"
	"go.etcd.io/bbolt"

	"github.com/wherry-dev/wherry/agent/state"
	"github.com/wherry-dev/wherry/bundle"
)

// maxQuarantined bounds the releases that are remembered as given up. The oldest is forgotten first: a site
// whose last sixteen contents have all failed has a person's attention already.
const maxQuarantined = 16

// QuarantinedStatus is a release that was given up here. Neither it nor another release of the same content
// is run again before somebody wishes it; see State.Resume.
type QuarantinedStatus struct {
	Digest   digest.Digest `json:"digest"`  // of the manifest
	Content  digest.Digest `json:"content"` // of the tree
	Epoch    int64         `json:"epoch"`
	Sequence int64         `json:"sequence"`
	Number   int64         `json:"number,omitempty"` // see bundle.ReleaseName
	// Reason is ReasonAssignmentsFailed or ReasonCrashLoop, and Message says what failed.
	Reason  string    `json:"reason"`
	Message string    `json:"message"`
	At      time.Time `json:"at"`
}

// quarantine is what was given up, the newest first.
type quarantine []QuarantinedStatus

// of returns what is known of a release that was given up, itself or in its content; nil for others.
func (q quarantine) of(r *state.Release) *QuarantinedStatus {
	if r == nil {
		return nil
	}
	for i := range q {
		if q[i].Digest == r.Digest() || q[i].Content == r.Release.Content.DiffID {
			return &q[i]
		}
	}
	return nil
}

func loadQuarantine(tx *bbolt.Tx) (q quarantine, err error) {
	b := tx.Bucket([]byte(bucketQuarantine))
	if b == nil {
		return nil, nil
	}
	err = b.ForEach(func(k, _ []byte) error {
		g, err := state.Load[QuarantinedStatus](tx, bucketQuarantine, string(k))
		q = append(q, g)
		return err
	})
	slices.SortFunc(q, func(a, b QuarantinedStatus) int {
		return cmp.Or(b.At.Compare(a.At), cmp.Compare(b.Sequence, a.Sequence), cmp.Compare(a.Digest, b.Digest))
	})
	return q, err
}

// giveUp writes that the release which runs is not to run any more. The pass then goes on with the good one.
func (p *pass) giveUp(reason, message string) error {
	r := p.running
	g := QuarantinedStatus{
		Digest: r.Digest(), Content: r.Release.Content.DiffID, Epoch: r.Release.Epoch, Sequence: r.Release.Sequence, Number: r.Release.Number,
		Reason: reason, Message: bundle.Clip(message), At: state.Stamp(p.opts.Now()),
	}
	var all quarantine
	err := p.state.db.Update(func(tx *bbolt.Tx) error {
		if _, err := tx.CreateBucketIfNotExists([]byte(bucketQuarantine)); err != nil {
			return err
		}
		err := errors.Join(state.Save(tx, bucketQuarantine, g.Digest.Encoded(), g), state.Drop(tx, state.Meta, keyAttempts))
		if err != nil {
			return err
		}
		if all, err = loadQuarantine(tx); err != nil {
			return err
		}
		for ; len(all) > maxQuarantined; all = all[:maxQuarantined] {
			err = errors.Join(err, state.Drop(tx, bucketQuarantine, all[len(all)-1].Digest.Encoded()))
		}
		return err
	})
	if err != nil {
		return err
	}
	p.quarantine, p.probation, p.staged = all, probation{}, false
	p.opts.Log.Error("release given up", "release", r.Name(), "digest", g.Digest, "sequence", g.Sequence, "reason", reason, "message", g.Message, "good", p.good.Digest())
	return nil
}

// lift forgets what was given up, and what the agent has died of.
func lift(tx *bbolt.Tx, r *Resumed) (changed bool, err error) {
	given, err1 := loadQuarantine(tx)
	tried, err2 := state.Load[probation](tx, state.Meta, keyAttempts)
	if err := errors.Join(err1, err2); err != nil {
		return false, err
	}
	r.Retried = given
	for _, g := range given {
		err = errors.Join(err, state.Drop(tx, bucketQuarantine, g.Digest.Encoded()))
	}
	return len(given) > 0 || tried.Release != "", errors.Join(err, state.Drop(tx, state.Meta, keyAttempts))
}

// mayGiveUp reports whether there is something to go back to: a release of the same stream that has proved
// good, of other content. That one is never given up itself. It has to be of the same epoch: a new one is
// the answer to stolen keys, and content of the one before, which those may have signed, must not come back.
func (p *pass) mayGiveUp() bool {
	if p.held != nil || p.running == nil || p.good == nil || p.quarantine.of(p.good) != nil {
		return false
	}
	good, running := p.good.Release, p.running.Release
	return good.Stream() == running.Stream() && good.Stream() == p.stream() && good.Epoch == running.Epoch && good.Content.DiffID != running.Content.DiffID
}
