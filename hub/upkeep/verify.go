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

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/hub/fleet"
	"github.com/wherry-dev/wherry/hub/store"
)

// Finding is something that is not as it has to be.
type Finding struct {
	// UID is the cluster's. Report names a report by bundle.ReportID, Assignment an assignment; either may be empty.
	UID        string `json:"uid"`
	Report     string `json:"report,omitempty"`
	Assignment string `json:"assignment,omitempty"`
	Problem    string `json:"problem"`
}

// String returns the finding for people.
func (f Finding) String() string {
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
	// Good reports are signed by a key in force, Former ones by a key that the agent has replaced itself since.
	Good   int64 `json:"good"`
	Former int64 `json:"former"`
	// Revoked reports are signed by a key that a person has replaced or removed since. They were good when they came.
	Revoked int64 `json:"revoked"`
	// Bad reports are signed by no key that was ever registered for their cluster, or are not what is stored about them.
	Bad int64 `json:"bad"`
	// Differences counts where the present is not what the history says.
	Differences int64 `json:"differences"`
}

// Reports returns how many envelopes were read.
func (v Verified) Reports() int64 { return v.Good + v.Former + v.Revoked + v.Bad }

// OK reports whether there were no findings.
func (v Verified) OK() bool { return v.Bad == 0 && v.Differences == 0 }

// batchSize is the number of envelopes whose signatures are verified at once.
const batchSize = 512

// Verify verifies the signature of each stored envelope, by all keys that were ever registered for its cluster, and that the
// present is what the history says. It calls each with every finding, and progress, if not nil, now and then with the number
// of envelopes so far. An error of each ends it and is returned.
func Verify(ctx context.Context, from store.Evidence, each func(Finding) error, progress func(reports int64)) (Verified, error) {
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
	return v.done, err
}

type verifier struct {
	from     store.Evidence
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
		case fleet.SignatureFormer:
			v.done.Former++
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
