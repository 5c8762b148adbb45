package store

import (
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/duration"
)

// MaxAuditRows is the most entries of one AuditList.
const MaxAuditRows = 1000

// AuditQuery chooses entries of the audit log. The zero AuditQuery chooses all.
type AuditQuery struct {
	// Actor, Action and Object are parts of these texts, whatever the case.
	Actor, Action, Object string
	// Decision chooses decisions about promotion: those of one action, such as "approve", or AnyDecision.
	Decision string
	// Since and Until are times: of entries at or after Since, and before Until.
	Since, Until time.Time
	// Before continues a list, with the Next of the page before.
	Before int64
	// Limit bounds the entries; zero means MaxAuditRows, which is the most.
	Limit int
}

// AnyDecision is an AuditQuery.Decision.
const AnyDecision = "any"

// decided is what follows the action of a decision in an AuditEntry.
const decided = " promotion"

// DecisionAction returns the AuditEntry.Action of a decision about promotion.
func DecisionAction(a bundle.Action) string { return string(a) + decided }

// Decision returns the action of the decision about promotion that the entry is about; empty for any other entry.
func (e AuditEntry) Decision() bundle.Action {
	action, is := strings.CutSuffix(e.Action, decided)
	if !is || !slices.Contains(decisionActions(), action) {
		return ""
	}
	return bundle.Action(action)
}

func decisionActions() []string {
	return []string{string(bundle.Approve), string(bundle.Reject), string(bundle.Override), string(bundle.Pause), string(bundle.Resume)}
}

// AuditParameters are the names of the parameters of an AuditQuery.
func AuditParameters() []string {
	return []string{"actor", "action", "object", "decision", "since", "until", "before", "limit"}
}

// ParseAuditQuery reads a query from its parameters, and leaves others alone. Times are as duration.Moment reads them. The error wraps ErrInvalid.
func ParseAuditQuery(values url.Values, now time.Time) (q AuditQuery, err error) {
	q = AuditQuery{Actor: values.Get("actor"), Action: values.Get("action"), Object: values.Get("object"), Decision: values.Get("decision")}
	if known := append(decisionActions(), AnyDecision); q.Decision != "" && !slices.Contains(known, q.Decision) {
		return q, fmt.Errorf("%w: parameter decision: %q: expected one of %s", ErrInvalid, Plain(Clip(q.Decision)), strings.Join(known, ", "))
	}
	for name, into := range map[string]*time.Time{"since": &q.Since, "until": &q.Until} {
		if v := values.Get(name); v != "" {
			if *into, err = duration.Moment(v, now); err != nil {
				return q, fmt.Errorf("%w: parameter %s: %s", ErrInvalid, name, Plain(Clip(err.Error())))
			}
		}
	}
	var limit int64
	for name, into := range map[string]*int64{"before": &q.Before, "limit": &limit} {
		if v := values.Get(name); v != "" {
			if *into, err = strconv.ParseInt(v, 10, 64); err != nil || *into < 1 {
				return q, fmt.Errorf("%w: parameter %s: %q is not a number from 1", ErrInvalid, name, Plain(Clip(v)))
			}
		}
	}
	if limit > MaxAuditRows {
		return q, fmt.Errorf("%w: parameter limit: %d is more than %d", ErrInvalid, limit, MaxAuditRows)
	}
	q.Limit = int(limit)
	return q, nil
}

// Values returns the query's parameters, as ParseAuditQuery reads them.
func (q AuditQuery) Values() url.Values {
	values := url.Values{}
	set := func(name, v string) {
		if v != "" {
			values.Set(name, v)
		}
	}
	set("actor", q.Actor)
	set("action", q.Action)
	set("object", q.Object)
	set("decision", q.Decision)
	for name, t := range map[string]time.Time{"since": q.Since, "until": q.Until} {
		if !t.IsZero() {
			set(name, t.UTC().Format(time.RFC3339Nano))
		}
	}
	for name, n := range map[string]int64{"before": q.Before, "limit": int64(q.Limit)} {
		if n != 0 {
			set(name, strconv.FormatInt(n, 10))
		}
	}
	return values
}

// chooses reports whether the query chooses an entry.
func (q AuditQuery) chooses(e AuditEntry) bool {
	if made := e.Decision(); q.Decision != "" && (made == "" || q.Decision != AnyDecision && q.Decision != string(made)) {
		return false
	}
	has := func(text, part string) bool { return strings.Contains(strings.ToLower(text), strings.ToLower(part)) }
	return has(e.Actor, q.Actor) && has(e.Action, q.Action) && has(e.Object, q.Object) && !e.At.Before(q.Since) && (q.Until.IsZero() || e.At.Before(q.Until))
}

// Choose adds those of some entries, oldest first, that the query chooses to a list, newest first, until that has as many as the query wants. It
// sets Next to the position of the last entry that it has looked at.
func (q AuditQuery) Choose(entries []AuditEntry, list *AuditList) (full bool) {
	for _, e := range slices.Backward(entries) {
		if q.Before > 0 && e.Position >= q.Before {
			continue
		}
		list.Next = e.Position
		if !q.chooses(e) {
			continue
		}
		if list.Entries = append(list.Entries, e); len(list.Entries) == q.Limit || len(list.Entries) == MaxAuditRows {
			return true
		}
	}
	return false
}
