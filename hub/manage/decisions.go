package manage

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/opencontainers/go-digest"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/hubapi"
	"github.com/wherry-dev/wherry/hub/access"
	"github.com/wherry-dev/wherry/hub/store"
)

func (m Manager) decide(r *http.Request) (any, error) {
	var d bundle.Decision
	if err := required(r, &d); err != nil {
		return nil, err
	}
	return m.Decide(r.Context(), d)
}

// Decide signs a decision for the name of the context's identity, and stores it. D says what is decided; who decided, and when, is the hub's
// to say.
func (m Manager) Decide(ctx context.Context, d bundle.Decision) (store.StoredDecision, error) {
	none := store.StoredDecision{}
	who, _ := access.From(ctx)
	if scope := access.ScopeOf(ctx); !scope.HasEnvironment(d.Environment) || !wholeEnvironments(scope) {
		return none, notWhole()
	}
	now := m.Now().UTC().Truncate(time.Second)
	d.Schema, d.By, d.IssuedAt = bundle.DecisionSchema, who.Name, now
	if _, err := d.Marshal(); err != nil {
		return none, fmt.Errorf("%w: %s", store.ErrInvalid, store.Plain(store.Clip(err.Error())))
	}
	for _, rule := range d.Rules {
		if allowed := d.OverridableRules(); !slices.Contains(allowed, rule) {
			return none, fmt.Errorf("%w: rule %q cannot be overridden; these can: %s", store.ErrInvalid, rule, strings.Join(allowed, ", "))
		}
	}
	all, err := m.Decisions.Decisions(ctx, d.Environment)
	if err != nil {
		return none, err
	}
	d.IssuedAt = after(all, d, now)
	if !d.ExpiresAt.IsZero() && !d.ExpiresAt.After(d.IssuedAt) {
		return none, fmt.Errorf("%w: the decision expires before it is issued", store.ErrInvalid)
	}
	envelope, err := m.Seal(d)
	if err != nil {
		return none, err
	}
	stored := store.StoredDecision{
		Platform: d.Platform, Environment: d.Environment, Digest: digest.FromBytes(envelope), IssuedAt: d.IssuedAt, SeenAt: now, Own: true, Envelope: envelope,
	}
	if _, err := m.Decisions.AddDecision(ctx, stored); err != nil {
		return none, err
	}
	about := d.BaseCommit
	if d.IsContent() {
		about = strings.TrimSpace("workload " + d.Workload.String() + " " + d.Workload.Revision.String())
	}
	if d.Ring != "" {
		about = strings.TrimSpace("ring " + d.Ring + " " + about)
	}
	if len(d.Rules) > 0 {
		about += ", rules " + strings.Join(d.Rules, ", ")
	}
	return stored, access.Note(ctx, m.Tokens.Store, store.AuditEntry{
		At: now, Action: store.DecisionAction(d.Action), Object: d.Platform + "/" + d.Environment, Environment: d.Environment, Reason: d.Reason, Detail: about,
	})
}

// after returns the time of issue of d: now, or a second after what it takes the place of, since the newest counts. That is the
// hub's last word for the same person on the same subject; for a pause or its end, anybody's.
func after(all []store.StoredDecision, d bundle.Decision, now time.Time) time.Time {
	at := now
	for _, s := range all {
		before, id, err := bundle.ReadDecision(s.Envelope)
		if err != nil || before.IssuedAt.Sub(now) > maxAhead {
			continue
		}
		moves := d.Action == bundle.Pause || d.Action == bundle.Resume
		same := s.Own && before.Tag(id) == d.Tag(id) || moves && before.Platform == d.Platform && (before.Action == bundle.Pause || before.Action == bundle.Resume)
		if same && !before.IssuedAt.Before(at) {
			at = before.IssuedAt.Add(time.Second)
		}
	}
	return at
}

// maxAhead is how far a decision's time of issue may be ahead of a reader's clock; see docs/reference/promotion.md.
const maxAhead = 10*time.Minute - time.Second

// wholeEnvironments reports whether a scope has all of the environments that are in it: decisions cannot be divided.
func wholeEnvironments(s access.Scope) bool { return len(s.Workspaces) == 0 && s.Selector == "" }

func notWhole() error {
	return &hubapi.Error{Code: hubapi.CodeForbidden, Message: "the token's scope does not have this whole environment"}
}

// listDecisions returns the decisions about an environment. A scope with a part of environments is refused, and not told that
// there are none: a gate may ask.
func (m Manager) listDecisions(r *http.Request) (any, error) {
	values := r.URL.Query()
	for name, all := range values {
		if name != "environment" && name != "platform" || len(all) > 1 {
			return nil, fmt.Errorf("%w: parameter %q is unknown or repeated", store.ErrInvalid, store.Plain(store.Clip(name)))
		}
	}
	environment, platform := values.Get("environment"), values.Get("platform")
	if environment == "" {
		return nil, fmt.Errorf("%w: environment is missing", store.ErrInvalid)
	}
	list := store.DecisionList{Decisions: []store.StoredDecision{}}
	scope := access.ScopeOf(r.Context())
	if !wholeEnvironments(scope) {
		return nil, notWhole()
	}
	if !scope.HasEnvironment(environment) {
		return list, nil
	}
	all, err := m.Decisions.Decisions(r.Context(), environment)
	list.Decisions = append(list.Decisions, slices.DeleteFunc(all, func(d store.StoredDecision) bool { return platform != "" && d.Platform != platform })...)
	return list, err
}
