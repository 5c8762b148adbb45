package web

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/hub/access"
	"github.com/wherry-dev/wherry/hub/fleet"
	"github.com/wherry-dev/wherry/hub/store"
)

// overviewPage is the data of assets/overview.html.
type overviewPage struct {
	*frame
	Totals fleet.Totals
	Needs  []need
	// Environments are the first ones, More counts the others.
	Environments []environment
	More         int
	Teams        []team
	failed       int // clusters that have failed at the commit of an environment
	Decisions    []decided
}

// need is what needs somebody, with a link to what it is about.
type need struct {
	look
	Text, Detail, Link string
	// Action leads to what whoever asks may do about it; nil for nothing.
	Action *link
}

// team is a workspace with deployments that have failed.
type team struct {
	Name   string
	Failed int
	// Workloads are those that have, the most frequent first.
	Workloads []link
}

const (
	shownEnvironments = 24
	shownTeams        = 12
	longSilent        = 7 * 24 * time.Hour
)

func (s *site) showOverview(r *http.Request, f *frame, from Answers) (any, int, error) {
	f.template, f.Title = "overview.html", "Overview"
	f.only(fleet.Query{AsOf: f.Query.AsOf})
	f.JSON = f.At("/v1/environments")
	if f.Query.AsOf.IsZero() {
		f.Command = "wherry get environments"
	}
	ctx, page := r.Context(), &overviewPage{frame: f}
	clusters, err := from.Clusters(ctx, fleet.Query{AsOf: f.Query.AsOf, Limit: 1})
	if err != nil {
		return nil, 0, err
	}
	page.Totals, f.ReadAt = clusters.Totals, clusters.ReadAt
	all, err := from.Environments(ctx, f.Query)
	if err != nil {
		return nil, 0, err
	}
	page.More = max(0, len(all.Environments)-shownEnvironments)
	if err := page.addEnvironments(r, from, all); err != nil {
		return nil, 0, err
	}
	for _, add := range []func(context.Context, Answers) error{page.addClusters, page.addExpiring, page.addTeams} {
		if err := add(ctx, from); err != nil {
			return nil, 0, err
		}
	}
	if s.TrustEnds != nil && f.Query.AsOf.IsZero() && f.who.Whole() {
		page.addTrust(s.TrustEnds())
	}
	if f.may(access.Audit) {
		all, err := s.Actions.AccessTokens(ctx)
		if err != nil && !errors.Is(err, store.ErrUnavailable) {
			return nil, 0, err
		}
		page.addTokens(all)
	}
	return page, http.StatusOK, nil
}

// trustSoon is how long before its end a trust document needs somebody: several people sign the next one.
const trustSoon = 30 * 24 * time.Hour

// addTrust adds the trust documents that expire soon, or have.
func (p *overviewPage) addTrust(ends map[string]time.Time) {
	for _, platform := range slices.Sorted(maps.Keys(ends)) {
		left := ends[platform].Sub(p.Now)
		n := need{look{Tone: "wait", Mark: "⌛"}, "the trust document of " + platform + " expires in " + bundle.Age(left), "wherry trust rotate begins a version with a new validity", p.At(environmentsPath), nil}
		switch {
		case ends[platform].IsZero() || left > trustSoon:
			continue
		case left <= 0:
			n.look, n.Text = look{Tone: "bad", Mark: "●"}, "the trust document of "+platform+" has expired: no new release is accepted"
		}
		p.Needs = append(p.Needs, n)
	}
}

// tokensEnd is how long before its end an access token needs somebody.
const tokensEnd = 14 * 24 * time.Hour

// addTokens adds the access tokens that expire soon.
func (p *overviewPage) addTokens(all []store.AccessToken) {
	var names []string
	for _, t := range all {
		if t.Subject == "" && t.RevokedAt.IsZero() && t.ExpiresAt.After(p.Now) && t.ExpiresAt.Sub(p.Now) < tokensEnd {
			names = append(names, t.Name+" "+t.ExpiresAt.UTC().Format(time.DateOnly))
		}
	}
	if len(names) == 0 {
		return
	}
	text := fmt.Sprintf("%d access tokens expire within 14 days", len(names))
	if len(names) == 1 {
		text = "1 access token expires within 14 days"
	}
	p.Needs = append(p.Needs, need{look{Tone: "wait", Mark: "⌛"}, text, strings.Join(names[:min(len(names), shownTeams)], ", "), accessPath, nil})
}

// addEnvironments adds environments, what holds them up, and the newest decisions about them.
func (p *overviewPage) addEnvironments(r *http.Request, from Answers, chain fleet.Environments) error {
	all := chain.Environments[:len(chain.Environments)-p.More]
	ctx := r.Context()
	newest := map[string]string{}
	for _, e := range all {
		newest[e.Environment] = e.BaseCommit
	}
	for _, e := range all {
		one, err := environmentOf(ctx, from, e, newest, p.Query)
		if err != nil {
			return err
		}
		p.offer(&one, chain, r)
		p.Environments = append(p.Environments, one)
		p.Decisions = append(p.Decisions, one.Decisions...)
		name, link := e.Environment, p.At(environmentPath(e.Environment))
		if one.Pause != nil {
			p.Needs = append(p.Needs, need{lookOf(string(bundle.Pause)), name + " is paused", one.Pause.Reason, link, one.action(bundle.Resume)})
		}
		if len(e.Incomplete) > 0 {
			p.Needs = append(p.Needs, need{look{Tone: "bad", Mark: "●"}, name + " is incomplete", "cluster types " + strings.Join(e.Incomplete, ", "), link, nil})
		}
		p.addApprovals(&one)
		if r := one.Rollout; r != nil && r.FailedCount > 0 {
			p.failed += r.FailedCount
			n := need{look{Tone: "bad", Mark: "●"}, fmt.Sprintf("%s: %d of %d clusters failed at its commit", name, r.FailedCount, r.Clusters), "", link, one.action(bundle.Pause)}
			if len(r.Open) > 0 {
				n.Detail = strings.TrimSuffix(r.Open[0].Reason+": "+r.Open[0].Message, ": ")
			}
			p.Needs = append(p.Needs, n)
		}
	}
	slices.SortStableFunc(p.Decisions, func(a, b decided) int { return b.IssuedAt.Compare(a.IssuedAt) })
	p.Decisions = p.Decisions[:min(len(p.Decisions), shownClusters)]
	return nil
}

// addApprovals adds what waits for the approval of people, and gates that nobody judges any more.
func (p *overviewPage) addApprovals(e *environment) {
	name := e.Environment.Environment
	for _, g := range e.OwnGates() {
		i := slices.IndexFunc(g.Rules, func(r store.JudgedRule) bool { return r.Rule == approvalsRule && r.Result != store.GatePasses })
		if i < 0 || g.Old {
			continue
		}
		n := need{look{Tone: "wait", Mark: "✎"}, name + " waits for approvals", ruleText(g.Rules[i]), p.At(environmentPath(name)), e.action(bundle.Approve)}
		if g.Ring != "" {
			n.Text, n.Action = name+", ring "+g.Ring+", waits for approvals", nil
			for _, a := range e.RingActions {
				if g.Ring == e.NextRing && a.Name == ringWords(bundle.Approve, g.Ring) {
					n.Action = &a
				}
			}
		}
		p.Needs = append(p.Needs, n)
	}
	if e.Judged != nil && e.Judged.Old && e.Judged.Place == 1 {
		p.Needs = append(p.Needs, need{look{Tone: "wait", Mark: "○"}, "nobody has judged the gates of " + e.Platform + " since " + stamp(e.Judged.JudgedAt), "wherry promote --watch judges them", p.At(environmentPath(name)), nil})
	}
}

// approvalsRule is the rule of a gate that people's approvals pass.
const approvalsRule = "approvals"

// addClusters adds the clusters that are not well for another reason than a commit: all that failed, that the hub does not hear of, or that
// run what was never published.
func (p *overviewPage) addClusters(ctx context.Context, from Answers) error {
	at, bad := p.Query.AsOf, []bundle.State{bundle.Failed, bundle.Rejected, bundle.Drifted}
	n, words := 0, []string{}
	for _, s := range bad {
		n += p.Totals.States[s]
		words = append(words, string(s))
	}
	if n > p.failed {
		p.Needs = append(p.Needs, need{lookOf(string(bundle.Failed)), "In all, " + some(n, "has", "have") + " failed, rejected a release, or drifted", "", p.At(clustersPath, "state", strings.Join(words, ",")), nil})
	}
	if n := p.Totals.States[store.Stale]; n > 0 {
		long, err := from.Clusters(ctx, fleet.Query{AsOf: at, State: []bundle.State{store.Stale}, SilentFor: longSilent, Limit: 1})
		if err != nil {
			return err
		}
		where, err := from.Count(ctx, "clusters", []string{"environment"}, fleet.Query{AsOf: at, State: []bundle.State{store.Stale}})
		if err != nil {
			return err
		}
		var detail []string
		for _, row := range where.Rows {
			detail = append(detail, fmt.Sprintf("%s %d", row.Values[0], row.Count))
		}
		if long.Totals.Count > 0 {
			detail = append(detail, fmt.Sprintf("%d for more than 7 days", long.Totals.Count))
		}
		p.Needs = append(p.Needs, need{lookOf(string(store.Stale)), some(n, "is", "are") + " silent", strings.Join(detail, ", "), p.At(clustersPath, "state", string(store.Stale), "sort", "lastSeen"), nil})
	}
	if n := p.Totals.States[store.Unreported]; n > 0 {
		p.Needs = append(p.Needs, need{lookOf(string(store.Unreported)), some(n, "has", "have") + " never reported", "", p.At(clustersPath, "state", string(store.Unreported)), nil})
	}
	if n := p.Totals.Relations[fleet.Foreign]; n > 0 {
		p.Needs = append(p.Needs, need{lookOf(string(fleet.Foreign)), some(n, "runs", "run") + " a release that was never published for it", "", p.At(clustersPath, "relation", string(fleet.Foreign)), nil})
	}
	return nil
}

// some returns a number of clusters with the verb for one or for many.
func some(n int, one, many string) string {
	if n == 1 {
		many = one
	}
	return clusters(n) + " " + many
}

// addExpiring adds the environments with a release that expires soon.
func (p *overviewPage) addExpiring(ctx context.Context, from Answers) error {
	list, err := from.Releases(ctx, fleet.Query{AsOf: p.Query.AsOf, Limit: fleet.MaxRows})
	if err != nil {
		return err
	}
	first := map[string]fleet.Release{}
	for _, r := range list.Releases {
		if r.ExpiresAt.IsZero() || !r.Current || r.Clusters == 0 {
			continue
		}
		if e := bundle.ExpiryOf(r.IssuedAt, r.ExpiresAt, p.Now); !e.Soon && !e.Expired {
			continue
		}
		if was, ok := first[r.Environment]; !ok || r.ExpiresAt.Before(was.ExpiresAt) {
			first[r.Environment] = r
		}
	}
	for _, e := range p.Environments {
		if r, ok := first[e.Environment.Environment]; ok {
			expiry := bundle.ExpiryOf(r.IssuedAt, r.ExpiresAt, p.Now)
			text := fmt.Sprintf("%s: release %s of %s expires %s", r.Environment, bundle.ReleaseName(r.Number, r.Digest), r.Type, expiry.Text)
			p.Needs = append(p.Needs, need{look{Tone: "wait", Mark: "⌛"}, strings.Replace(text, "expires expired", "expired", 1), "publish it again", p.At(environmentPath(r.Environment)), nil})
		}
	}
	return nil
}

// addTeams adds the workspaces whose deployments have failed.
func (p *overviewPage) addTeams(ctx context.Context, from Answers) error {
	failed := []bundle.State{bundle.Failed, bundle.Drifted}
	counts, err := from.Count(ctx, "deployments", []string{"workspace", "workload"}, fleet.Query{AsOf: p.Query.AsOf, State: failed})
	if err != nil {
		return err
	}
	slices.SortStableFunc(counts.Rows, func(a, b fleet.Count) int { return cmp.Compare(b.Count, a.Count) })
	for _, row := range counts.Rows {
		i := slices.IndexFunc(p.Teams, func(t team) bool { return t.Name == row.Values[0] })
		if i < 0 {
			i, p.Teams = len(p.Teams), append(p.Teams, team{Name: row.Values[0]})
		}
		t := &p.Teams[i]
		t.Failed += row.Count
		t.Workloads = append(t.Workloads, link{
			Name: fmt.Sprintf("%s %d", row.Values[1], row.Count),
			Link: p.At(deploymentsPath, "workspace", row.Values[0], "workload", row.Values[1], "state", string(bundle.Failed)+","+string(bundle.Drifted)),
		})
	}
	slices.SortStableFunc(p.Teams, func(a, b team) int { return cmp.Compare(b.Failed, a.Failed) })
	p.Teams = p.Teams[:min(len(p.Teams), shownTeams)]
	return nil
}
