package outbox

import (
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/wherry-dev/wherry/agent/state"
	"github.com/wherry-dev/wherry/bundle"
)

// A report carries the whole present, so that the newest one supersedes all before it, except for the failures
// that they tell of. Reports are signed and never changed: to coalesce is to delete superseded ones.
//
// A failure is an assignment that has failed with a reason and a content, or the agent as a whole that has failed
// or refused a release with a reason. Its reports make a series for as long as there are less than failureGap
// between one and the next. Of each series the first and the last report stay, and how often the assignment has
// failed is a number in each of them. Beside those stay the newest report, and the recentReports newest, so that
// a short outage loses no history; of these, a heartbeat goes as soon as there is a newer report. Where the queue
// is full of first and last reports, the gap is doubled until series join.
const (
	recentReports = 100
	failureGap    = 6 * time.Hour
	// maxFailureGap is when doubling ends: all series of a failure have joined, or are years apart.
	maxFailureGap = 2 * 365 * 24 * time.Hour
	// sweepEvery is the number of reports after which the memory of old failures is cleaned up.
	sweepEvery = 1000
)

// failureKeys returns the keys of the failures in r, each once.
func failureKeys(r bundle.Report) []string {
	keys := map[string]bool{}
	if (r.State == bundle.Failed || r.State == bundle.Rejected) && r.Reason != "" {
		release := ""
		if r.Desired != nil {
			release = r.Desired.Digest.String()
		}
		keys[failureKey("", r.Reason, release)] = true
	}
	for _, item := range r.Items {
		if item.State == bundle.Failed {
			keys[failureKey(item.Assignment, item.Reason, item.Content.String())] = true
		}
	}
	return slices.Sorted(maps.Keys(keys))
}

// failureKey is short, since a report of a large site may tell of thousands.
func failureKey(assignment, reason, content string) string {
	sum := sha256.Sum256([]byte(assignment + "\x00" + reason + "\x00" + content))
	return base64.RawURLEncoding.EncodeToString(sum[:8])
}

// latest is the newest report that tells of a failure.
type latest struct {
	Seq uint64    `json:"seq"`
	At  time.Time `json:"at"`
}

// unpin maps a report to the failures of which it is the first, or the last, no more.
type unpin map[uint64]map[string]bool

func (u unpin) add(seq uint64, failure string) {
	if u[seq] == nil {
		u[seq] = map[string]bool{}
	}
	u[seq][failure] = true
}

func (u unpin) from(seq uint64, failures []string) []string {
	return slices.DeleteFunc(failures, func(f string) bool { return u[seq][f] })
}

func (q *box) gap() time.Duration { return max(q.totals.Gap, failureGap) }

// add appends e to the queue and deletes the reports that it makes superfluous.
func (q *box) add(e queued, failures []string) error {
	last, found, err := q.newest()
	if err != nil {
		return err
	}
	ended, err := q.follow(&e, failures)
	if err != nil {
		return err
	}
	if err := q.insert(e); err != nil {
		return err
	}
	if found {
		err = q.release(last.seq, e.seq)
	}
	for _, seq := range slices.Sorted(maps.Keys(ended)) {
		err = errors.Join(err, q.endNoMore(ended, seq), q.release(seq, e.seq))
	}
	return errors.Join(err, q.judge(e.seq))
}

// follow makes e the newest report of its failures. It returns the reports that were that before.
func (q *box) follow(e *queued, failures []string) (unpin, error) {
	ended := unpin{}
	if e.seq%sweepEvery == 0 {
		if err := q.forget(e.At); err != nil {
			return nil, err
		}
	}
	for _, f := range failures {
		t, err := state.Load[latest](q.tx, bucketFailing, f)
		if err != nil {
			return nil, err
		}
		if t.Seq > 0 && e.At.Sub(t.At) <= q.gap() {
			ended.add(t.Seq, f)
		} else {
			e.Begins = append(e.Begins, f)
		}
		if err := q.setLatest(f, latest{e.seq, e.At}); err != nil {
			return nil, err
		}
	}
	e.Ends = failures
	return ended, nil
}

func (q *box) setLatest(failure string, t latest) error {
	if _, err := q.tx.CreateBucketIfNotExists([]byte(bucketFailing)); err != nil {
		return err
	}
	return state.Save(q.tx, bucketFailing, failure, t)
}

// forget deletes the memory of failures that are so old that the next one would begin another series.
func (q *box) forget(now time.Time) error {
	b := q.tx.Bucket([]byte(bucketFailing))
	if b == nil {
		return nil
	}
	var old []string
	err := b.ForEach(func(k, _ []byte) error {
		t, err := state.Load[latest](q.tx, bucketFailing, string(k))
		if err == nil && now.Sub(t.At) > q.gap() {
			old = append(old, string(k))
		}
		return err
	})
	for _, f := range old {
		err = errors.Join(err, state.Drop(q.tx, bucketFailing, f))
	}
	return err
}

func (q *box) endNoMore(u unpin, seq uint64) error {
	e, ok, err := q.get(seq)
	if err != nil || !ok {
		return err
	}
	e.Ends = u.from(seq, e.Ends)
	return q.note(e)
}

// release deletes the report seq, where it is there, if it is superfluous beside the newest.
func (q *box) release(seq, newest uint64) error {
	e, ok, err := q.get(seq)
	if err != nil || !ok || seq == newest || e.pinned() || !e.Heartbeat && newest-seq < recentReports {
		return err
	}
	q.totals.Coalesced++
	return q.remove(e)
}

// judge releases the reports that belong to the recent ones no more.
func (q *box) judge(newest uint64) error {
	if newest < recentReports {
		return nil
	}
	upTo := newest - recentReports
	var seqs []uint64
	for e, err := range q.after(q.totals.Judged) {
		if err != nil {
			return err
		}
		if e.seq > upTo {
			break
		}
		seqs = append(seqs, e.seq)
	}
	var err error
	for _, seq := range seqs {
		err = errors.Join(err, q.release(seq, newest))
	}
	q.totals.Judged = upTo
	return err
}

// makeRoom gives up reports until the queue is within its limits: the oldest that no failure needs; then, once
// no series of failures can be joined any more, the oldest of all. The newest always stays.
func (q *box) makeRoom(limits Limits) error {
	for q.reports.Entries > 1 && (q.reports.Entries > limits.Reports || q.reports.Bytes > limits.Bytes) {
		e, ok, err := q.spare()
		if err == nil && !ok {
			if joined, err := q.widen(); err != nil || joined {
				if err != nil {
					return err
				}
				continue
			}
			e, _, err = q.oldest()
		}
		if err != nil {
			return err
		}
		q.totals.Dropped++
		if err := q.remove(e); err != nil {
			return err
		}
	}
	return nil
}

// spare returns the oldest report that no failure needs and that is not the newest. Those that are not recent
// are gone already.
func (q *box) spare() (spare queued, ok bool, err error) {
	newest, _, err := q.newest()
	if err != nil {
		return spare, false, err
	}
	for e, err := range q.after(q.totals.Judged) {
		if err != nil || e.seq != newest.seq && !e.pinned() {
			return e, err == nil, err
		}
	}
	return spare, false, nil
}

// widen doubles the gap until a report is the first or the last of a series no more. It says whether there is one.
func (q *box) widen() (bool, error) {
	if q.gap() >= maxFailureGap {
		return false, nil
	}
	var all []queued
	for e, err := range q.after(0) {
		if err != nil {
			return false, err
		}
		all = append(all, e)
	}
	newest := all[len(all)-1].seq
	for q.gap() < maxFailureGap {
		q.totals.Gap = 2 * q.gap()
		ends, begins := joinSeries(all, q.gap())
		spare := false
		for i, e := range all {
			if ends[e.seq] == nil && begins[e.seq] == nil {
				continue
			}
			e.Ends, e.Begins = ends.from(e.seq, e.Ends), begins.from(e.seq, e.Begins)
			all[i] = e
			if err := errors.Join(q.note(e), q.release(e.seq, newest)); err != nil {
				return false, err
			}
			spare = spare || !e.pinned() && e.seq != newest
		}
		if spare {
			return true, nil
		}
	}
	return false, nil
}

// joinSeries returns which reports are the last and the first of a series no more where series less than gap apart
// are one.
func joinSeries(all []queued, gap time.Duration) (ends, begins unpin) {
	ends, begins = unpin{}, unpin{}
	last := map[string]queued{}
	for _, e := range all {
		for _, f := range e.Begins {
			if before, ok := last[f]; ok && e.At.Sub(before.At) <= gap {
				ends.add(before.seq, f)
				begins.add(e.seq, f)
			}
		}
		for _, f := range e.Ends {
			last[f] = e
		}
	}
	return ends, begins
}
