package fleet

import (
	"context"
	"crypto"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/opencontainers/go-digest"
	"github.com/secure-systems-lab/go-securesystemslib/dsse"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/hub/store"
)

// The verdicts on the signature of a stored report.
const (
	// SignatureGood means that a key in force has signed it.
	SignatureGood = "good"
	// SignaturePrevious means that a key has signed it which the agent replaced later.
	SignaturePrevious = "previous"
	// SignatureRevoked means that a key has signed it which speaks for nothing any more.
	SignatureRevoked = "revoked"
	// SignatureBad means that no key which was ever registered for the cluster has signed it.
	SignatureBad = "bad"
)

// reportsAtOnce is how many reports are read at once.
const reportsAtOnce = 1000

// Reports implements Answers. Views of some workspaces see no reports.
func (v *View) Reports(ctx context.Context, cluster string, q Query) (Reports, error) {
	who, err := v.reporter(ctx, cluster)
	if err != nil {
		return Reports{}, err
	}
	f := store.ReportFilter{UID: who.UID}
	if q.After != "" {
		at, ok := orderOf(q.After)
		if !ok {
			return Reports{}, invalid("after: %q is not the next of a page", store.Plain(store.Clip(q.After)))
		}
		f.Before = at
	}
	list := Reports{Cluster: who.Name, UID: who.UID, Reports: []Report{}}
	for {
		f.Limit = reportsAtOnce
		if q.Limit > 0 {
			f.Limit = min(f.Limit, q.Limit-len(list.Reports))
		}
		page, err := v.fleet.source.ReportList(ctx, f)
		if err != nil {
			return Reports{}, err
		}
		for _, r := range page.Reports {
			list.Reports = append(list.Reports, reportRow(r))
			f.Before = r.At
		}
		if !page.More || len(page.Reports) == 0 {
			return list, nil
		}
		if q.Limit > 0 && len(list.Reports) >= q.Limit {
			list.Next = list.Reports[len(list.Reports)-1].Name
			return list, nil
		}
	}
}

// reporter returns the cluster of a name or uid whose reports the view sees.
func (v *View) reporter(ctx context.Context, cluster string) (subject, error) {
	if len(v.scope.workspaces) > 0 {
		return subject{}, fmt.Errorf("cluster %q: %w", store.Plain(store.Clip(cluster)), store.ErrUnknownCluster)
	}
	return v.clusterOf(ctx, cluster)
}

func reportRow(r store.StoredReport) Report {
	return Report{
		Name: bundle.ReportTag(r.At.Incarnation, r.At.Seq), ID: r.ID, Kind: r.Kind, OccurredAt: r.OccurredAt, ReceivedAt: r.ReceivedAt,
		Via: r.Via, KeyID: r.KeyID, Kept: r.Kept,
	}
}

// orderOf parses the name of a report.
func orderOf(name string) (store.Order, bool) {
	incarnation, seq, plain, ok := bundle.ParseReportTag(name)
	return store.Order{Incarnation: incarnation, Seq: seq}, ok && plain
}

// Report implements Answers. The signature is verified now, so that a database that was changed by hand shows it.
func (v *View) Report(ctx context.Context, cluster, name string) (ReportDetail, error) {
	who, err := v.reporter(ctx, cluster)
	if err != nil {
		return ReportDetail{}, err
	}
	at, ok := orderOf(name)
	if id := digest.Digest(name); !ok && id.Validate() == nil {
		if at, err = v.fleet.source.Place(ctx, who.UID, id); err != nil {
			return ReportDetail{}, err
		}
	} else if !ok {
		return ReportDetail{}, fmt.Errorf("report %q: %w: it looks like r1-42, or is a digest", store.Plain(store.Clip(name)), store.ErrInvalid)
	}
	list, err := v.fleet.source.ReportList(ctx, store.ReportFilter{UID: who.UID, Before: store.Order{Incarnation: at.Incarnation, Seq: at.Seq + 1}, Limit: 1})
	if err != nil {
		return ReportDetail{}, err
	}
	if len(list.Reports) == 0 || list.Reports[0].At != at {
		return ReportDetail{}, fmt.Errorf("cluster %s, report %s: %w", who.Name, bundle.ReportTag(at.Incarnation, at.Seq), store.ErrUnknownReport)
	}
	envelope, err := v.fleet.source.Envelope(ctx, who.UID, at)
	if err != nil {
		return ReportDetail{}, err
	}
	keys, err := v.fleet.source.SigningKeys(ctx, who.UID)
	if err != nil {
		return ReportDetail{}, err
	}
	d := ReportDetail{Report: reportRow(list.Reports[0]), Envelope: envelope, Signature: SignatureBad}
	body, err := payloadOf(envelope)
	if err != nil {
		return d, nil //nolint:nilerr // that is the verdict
	}
	if err := json.Unmarshal(body, &d.Body); err != nil {
		d.Body = bundle.Report{}
	}
	if d.Body.Items == nil {
		d.Body.Items = []bundle.Item{}
	}
	if bundle.ReportID(body) == d.ID && d.Body.Cluster.UID == who.UID && store.OrderOf(d.Body.Agent) == at {
		d.Signature = VerdictOn(envelope, at, keys)
	}
	Plain(&d.Body)
	return d, nil
}

func payloadOf(envelope []byte) ([]byte, error) {
	var e dsse.Envelope
	if err := json.Unmarshal(envelope, &e); err != nil {
		return nil, err
	}
	if e.PayloadType != bundle.PayloadTypeReport {
		return nil, errors.New("not a report")
	}
	return e.DecodeB64Payload()
}

// VerdictOn returns the verdict on the signature of the envelope of a report at a place, by all keys that were ever
// registered for its cluster.
func VerdictOn(envelope []byte, at store.Order, keys []store.SigningKey) string {
	best := SignatureBad
	order := []string{SignatureGood, SignaturePrevious, SignatureRevoked, SignatureBad}
	for _, k := range keys {
		if _, _, err := bundle.OpenEnvelope(bundle.PayloadTypeReport, envelope, []crypto.PublicKey{k.Key}...); err != nil {
			continue
		}
		verdict := SignatureRevoked
		switch {
		case k.RevokedAt.IsZero():
			verdict = SignatureGood
		case at.Compare(k.Until) <= 0: // the zero place is before all reports
			verdict = SignaturePrevious
		}
		if slices.Index(order, verdict) < slices.Index(order, best) {
			best = verdict
		}
	}
	return best
}
