// Package upkeep keeps a hub's database in order: it verifies what is stored, and removes what is older than the retention.
//
// Verify reads everything and changes nothing. Retention.Run removes old envelopes and old history while a hub serves, and never
// anything of the present.
package upkeep

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"

	"github.com/opencontainers/go-digest"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/hub/fleet"
	"github.com/wherry-dev/wherry/hub/store"
)

// Finding is something that is not as it has to be.
type Finding struct {
	// UID is the cluster's; empty for a finding about the audit log. Report names a report by bundle.ReportID, Assignment an
	// assignment; either may be empty.
	UID        string `json:"uid,omitempty"`
	Report     string `json:"report,omitempty"`
	Assignment string `json:"assignment,omitempty"`
	Problem    string `json:"problem"`
}

// String returns the finding for people.
func (f Finding) String() string {
	if f.UID == "" {
		return f.Problem
	}
	s := "cluster " + f.UID
	if f.Report != "" {
		s += ", report " + f.Report
	}
	if f.Assignment != "" {
		s += ", assignment " + f.Assignment
	}
	return s + ": " + f.Problem
}

// Verified counts what Verify has read. Each report with an envelope is in one of the four.
type Verified struct {
	// Good reports are signed by a key in force, Previous ones by a key that the agent has replaced itself since.
	Good     int64 `json:"good"`
	Previous int64 `json:"previous"`
	// Revoked reports are signed by a key that a person has replaced or removed since. They were good when they came.
	Revoked int64 `json:"revoked"`
	// Bad reports are signed by no key that was ever registered for their cluster, or are not what is stored about them.
	Bad int64 `json:"bad"`
	// Differences counts where the present is not what the history says.
	Differences int64 `json:"differences"`
	// Audit is the newest entry of the audit log, and AuditDigest its digest, which vouches for all entries before it. Gaps counts
	// where the log is not as it was written.
	Audit       int64         `json:"audit"`
	AuditDigest digest.Digest `json:"auditDigest,omitempty"`
	Gaps        int64         `json:"gaps"`
}

// Reports returns how many envelopes were read.
func (v Verified) Reports() int64 { return v.Good + v.Previous + v.Revoked + v.Bad }

// OK reports whether there were no findings.
func (v Verified) OK() bool { return v.Bad == 0 && v.Differences == 0 && v.Gaps == 0 }

// batchSize is the number of envelopes whose signatures are verified at once.
const batchSize = 512

// Verify verifies the signature of each stored envelope, by all keys that were ever registered for its cluster, and that the
// present is what the history says. Then it verifies the chain of the audit log. It calls each with every finding, and progress, if not nil, now and then with the number
// of envelopes so far. An error of each ends it and is returned.
func Verify(ctx context.Context, from Evidence, each func(Finding) error, progress func(reports int64)) (Verified, error) {
	v := verifier{from: from, keys: map[string][]store.SigningKey{}, each: each, progress: progress}
	err := from.Envelopes(ctx, 0, "", func(e store.StoredEnvelope) error {
		v.batch = append(v.batch, e)
		if len(v.batch) < batchSize {
			return nil
		}
		return v.flush(ctx)
	})
	if err == nil {
		err = v.flush(ctx)
	}
	if err != nil {
		return v.done, err
	}
	err = from.Compare(ctx, func(uid, assignment, difference string) error {
		v.done.Differences++
		return each(Finding{UID: uid, Assignment: assignment, Problem: difference})
	})
	if err == nil {
		err = v.verifyAudit(ctx)
	}
	return v.done, err
}

// auditPage is how many entries of the audit log are read at once.
const auditPage = 1000

// verifyAudit verifies that no entry of the audit log was changed, added or removed. Entries that are appended meanwhile are the
// next one's to verify.
func (v *verifier) verifyAudit(ctx context.Context) error {
	head, headDigest, err := v.from.AuditHead(ctx)
	if err != nil {
		return err
	}
	v.done.Audit, v.done.AuditDigest = head, headDigest
	var last store.AuditEntry
	for {
		page, err := v.from.AuditLog(ctx, last.Position, auditPage)
		if err != nil {
			return err
		}
		for _, e := range page {
			if err := v.follows(e, last); err != nil {
				return err
			}
			if e.Position == head && e.Digest != headDigest {
				if err := v.gap("audit log: entry %d has another digest than the database noted when it was written", head); err != nil {
					return err
				}
			}
			last = e
		}
		if len(page) < auditPage {
			break
		}
	}
	if last.Position < head {
		return v.gap("audit log: %s missing at its end", entries(last.Position+1, head))
	}
	if head == 0 && last.Position > 0 {
		// It was empty a moment ago, or the note of its end is gone.
		again, _, err := v.from.AuditHead(ctx)
		if err != nil || again > 0 {
			return err
		}
		return v.gap("audit log: the digest of its newest entry is missing")
	}
	return nil
}

// follows verifies that an entry is the one after last, which is zero before the first.
func (v *verifier) follows(e, last store.AuditEntry) error {
	if e.Position != last.Position+1 {
		return v.gap("audit log: %s missing", entries(last.Position+1, e.Position-1))
	}
	want, err := e.Chained(last.Digest)
	if err != nil || want == e.Digest {
		return err
	}
	if last.Position == 0 {
		return v.gap("audit log: entry 1 was changed")
	}
	return v.gap("audit log: entry %d does not follow from entry %d: one of them was changed", e.Position, last.Position)
}

func (v *verifier) gap(format string, args ...any) error {
	v.done.Gaps++
	return v.each(Finding{Problem: fmt.Sprintf(format, args...)})
}

// entries names the entries from one to another, for a sentence with "missing".
func entries(from, to int64) string {
	if from == to {
		return fmt.Sprintf("entry %d is", from)
	}
	return fmt.Sprintf("entries %d to %d are", from, to)
}

// Evidence is what Verify reads.
type Evidence interface {
	store.Evidence
	// AuditHead and AuditLog are those of store.Access.
	AuditHead(ctx context.Context) (position int64, d digest.Digest, err error)
	AuditLog(ctx context.Context, after int64, limit int) ([]store.AuditEntry, error)
}

type verifier struct {
	from     Evidence
	keys     map[string][]store.SigningKey // by uid
	batch    []store.StoredEnvelope
	each     func(Finding) error
	progress func(int64)
	bytes    int64
	done     Verified
}

// flush verifies the envelopes of the batch.
func (v *verifier) flush(ctx context.Context) error {
	for _, e := range v.batch {
		if _, known := v.keys[e.UID]; known {
			continue
		}
		keys, err := v.from.SigningKeys(ctx, e.UID)
		if err != nil && !errors.Is(err, store.ErrUnknownCluster) {
			return err
		}
		v.keys[e.UID] = keys
	}
	verdicts, problems := make([]string, len(v.batch)), make([]string, len(v.batch))
	workers := runtime.GOMAXPROCS(0)
	var all sync.WaitGroup
	for n := range workers {
		all.Go(func() {
			for i := n; i < len(v.batch); i += workers {
				verdicts[i], problems[i] = verdictOn(v.batch[i], v.keys[v.batch[i].UID])
			}
		})
	}
	all.Wait()
	for i, e := range v.batch {
		v.bytes += int64(len(e.Envelope))
		switch verdicts[i] {
		case fleet.SignatureGood:
			v.done.Good++
		case fleet.SignaturePrevious:
			v.done.Previous++
		case fleet.SignatureRevoked:
			v.done.Revoked++
		default:
			v.done.Bad++
			if err := v.each(Finding{UID: e.UID, Report: string(e.ID), Problem: problems[i]}); err != nil {
				return err
			}
		}
	}
	v.batch = v.batch[:0]
	if v.progress != nil {
		v.progress(v.bytes)
	}
	return nil
}

// verdictOn returns the verdict on a stored envelope, and the problem if it is fleet.SignatureBad.
func verdictOn(e store.StoredEnvelope, keys []store.SigningKey) (verdict, problem string) {
	claim, err := bundle.PeekReport(e.Envelope)
	if err != nil {
		return fleet.SignatureBad, store.Plain(store.Clip(fmt.Sprintf("the envelope cannot be read: %v", err)))
	}
	if claim.ID != e.ID {
		return fleet.SignatureBad, fmt.Sprintf("the envelope holds another report, %s", claim.ID)
	}
	report, err := bundle.ParseReport(claim.Body)
	if err != nil {
		return fleet.SignatureBad, store.Plain(store.Clip(err.Error()))
	}
	if at := store.OrderOf(report.Agent); report.Cluster.UID != e.UID || at != e.At {
		return fleet.SignatureBad, store.Plain(store.Clip(fmt.Sprintf("the report is number %d of incarnation %d of cluster %s, and is stored as number %d of incarnation %d",
			at.Seq, at.Incarnation, report.Cluster.UID, e.At.Seq, e.At.Incarnation)))
	}
	return fleet.VerdictOn(e.Envelope, e.At, keys), "no key that was ever registered for the cluster has signed it"
}
