package upstream

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/opencontainers/go-digest"

	"github.com/wherry-dev/wherry/bundle/hubapi"
	"github.com/wherry-dev/wherry/bundle/queue"
	"github.com/wherry-dev/wherry/hub/store"
)

// outcome is what has become of reports of one cluster, if the upper hub has answered.
type outcome struct {
	forwarded int // stored there
	refused   []Refused
	// settled counts the first reports that need not be sent again, unless their key is not known.
	settled int
	// wait is why some of them wait, for at least after; unknown are those whose key is not known.
	wait    hubapi.Code
	after   time.Duration
	unknown []Refused
}

func (o *outcome) add(p outcome) {
	o.forwarded += p.forwarded // settled is deliver's
	o.refused, o.unknown = append(o.refused, p.refused...), append(o.unknown, p.unknown...)
	if p.wait != "" {
		o.wait, o.after = p.wait, max(o.after, p.after)
	}
}

// deliver sends reports of one cluster. It ends at the first request that has to wait, unless the key alone is not known.
func (f *Forwarder) deliver(ctx context.Context, uid string, all []store.StoredEnvelope) (o outcome, err error) {
	for len(all) > 0 {
		n, size := 0, 0
		for n < len(all) && !request.Full(n, size, len(all[n].Envelope)+1) {
			size += len(all[n].Envelope) + 1
			n++
		}
		p, err := f.post(ctx, uid, all[:n])
		if err != nil {
			return o, err
		}
		o.add(p)
		if p.wait != "" && p.wait != hubapi.CodeUnknownKey {
			return o, nil
		}
		o.settled += n
		all = all[n:]
	}
	return o, nil
}

// post sends one request, and the halves of it if the upper hub does not say which report is the problem.
func (f *Forwarder) post(ctx context.Context, uid string, all []store.StoredEnvelope) (outcome, error) {
	receipt, err := f.ask(ctx, uid, all)
	if err == nil {
		return f.judge(uid, all, receipt)
	}
	var refused *queue.HubError
	if !errors.As(err, &refused) || refused.Code == "" || refused.Code.Status() != refused.StatusCode { // it may be a proxy
		return outcome{}, err
	}
	switch code := refused.Code; {
	case code == hubapi.CodeUnknownCluster:
		return outcome{wait: code}, nil
	case code == hubapi.CodeOverQuota:
		return outcome{wait: code, after: refused.After}, nil
	case code == hubapi.CodeRetired:
		return f.refuse(uid, all, refused), nil
	case code == hubapi.CodeUnknownKey:
		o := f.refuse(uid, all, refused)
		return outcome{wait: code, unknown: o.refused}, nil
	case code != hubapi.CodeTooLarge && code != hubapi.CodeBadRequest && !code.Untrusted():
		return outcome{}, err // it is busy, or no hub
	case len(all) == 1:
		return f.refuse(uid, all, refused), nil
	}
	o, err := f.post(ctx, uid, all[:len(all)/2])
	if err != nil {
		return o, err
	}
	second, err := f.post(ctx, uid, all[len(all)/2:])
	o.add(second)
	return o, err
}

func (f *Forwarder) refuse(uid string, all []store.StoredEnvelope, answer *queue.HubError) (o outcome) {
	for _, e := range all {
		o.refused = append(o.refused, f.refusal(uid, e.ID, answer.Code, answer.Message))
	}
	return o
}

func (f *Forwarder) refusal(uid string, id digest.Digest, code hubapi.Code, message string) Refused {
	return Refused{UID: uid, Report: id, Code: hubapi.Code(store.Plain(store.Clip(string(code)))), Message: store.Plain(store.Clip(message)), At: f.now().UTC()}
}

// judge reads a receipt. Only its acknowledgement, which the upper hub has signed, means that a report is stored.
func (f *Forwarder) judge(uid string, all []store.StoredEnvelope, receipt hubapi.Receipt) (o outcome, err error) {
	acked := map[digest.Digest]bool{}
	if len(receipt.Ack) > 0 {
		ack, err := queue.OpenAck(receipt.Ack, f.hub.Key, uid)
		if err != nil {
			return o, fmt.Errorf("acknowledgement of the upper hub: %w", err)
		}
		for _, id := range ack.Reports {
			acked[id] = true
		}
		f.mu.Lock()
		f.acked = f.now().UTC()
		f.mu.Unlock()
	}
	rejected := map[int]hubapi.Rejection{}
	for _, r := range receipt.Rejected {
		rejected[r.Index] = r
	}
	for i, e := range all {
		r, no := rejected[i]
		switch {
		case acked[e.ID]:
			o.forwarded++
		case no && r.Permanent:
			o.refused = append(o.refused, f.refusal(uid, e.ID, r.Reason, r.Message))
		case no:
			o.wait = hubapi.CodeUnknownKey
			o.unknown = append(o.unknown, f.refusal(uid, e.ID, r.Reason, r.Message))
		default:
			return o, fmt.Errorf("the upper hub neither acknowledges nor refuses report %s", e.ID)
		}
	}
	return o, nil
}

// ask sends one request.
func (f *Forwarder) ask(ctx context.Context, uid string, all []store.StoredEnvelope) (hubapi.Receipt, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTime)
	defer cancel()
	var envelopes []json.RawMessage
	for _, e := range all {
		envelopes = append(envelopes, e.Envelope)
	}
	return f.hub.Send(ctx, f.client, uid, envelopes)
}
