package web

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/oci"
	"github.com/wherry-dev/wherry/hub/access"
	"github.com/wherry-dev/wherry/hub/fleet"
	"github.com/wherry-dev/wherry/hub/store"
)

// environmentsPage is the data of assets/environments.html.
type environmentsPage struct {
	*frame
	Environments []environment
	Unknown      *fleet.UnknownNameError
}

// environment is how far one environment is with the commit that it has, and what people decided about it.
type environment struct {
	fleet.Environment
	// Rollout is nil if the hub does not know which commit was published last.
	Rollout *fleet.Rollout
	// Shown are the clusters in rings that the commit has reached, and Beyond the number of the others.
	Shown  fleet.RolloutCounts
	Beyond int
	// Pause is the last word about a pause, if it is one.
	Pause *fleet.Decided
	// Decisions are the newest ones, More counts those that are not shown.
	Decisions []decided
	More      int
	// Actions lead to what whoever asks may decide, Commands are those that decide what a hub cannot.
	Actions  []link
	Commands []string
	// NextRing is the first ring that the commit has not reached, and RingActions what may be decided about that.
	NextRing    string
	RingActions []link
	// Gates are those that its commit meets next: of a ring, and of the environment after it.
	Gates []gateTo
	// Failures are its deployments that have failed or drifted, by workload and reason; only on the page of one environment.
	Failures []failures
	// Releases are those that its clusters should run; only on the page of one environment.
	Releases []fleet.Release
	// Unread is true if the decisions cannot be read, since the database is away.
	Unread bool
}

// gateTo is a gate as people see it.
type gateTo struct {
	store.JudgedGate
	To       string   // where it leads to
	Missing  []string // the rules that do not pass
	Text     string   // the same in words
	JudgedAt time.Time
	Old      bool
}

func newGateTo(j *fleet.Judged, g store.JudgedGate, to string) gateTo {
	var missing, why []string
	for _, r := range g.Rules {
		if r.Result != store.GatePasses {
			missing, why = append(missing, r.Rule), append(why, ruleText(r))
		}
	}
	return gateTo{g, to, missing, strings.Join(why, "; "), j.JudgedAt, j.Old}
}

// ruleText returns a rule with what it has and wants.
func ruleText(r store.JudgedRule) string {
	text := r.Rule
	if r.Has != "" {
		text += " " + r.Has
	}
	if r.Wants != "" {
		text += ", wants " + r.Wants
	}
	return text
}

// gatesAfter returns the gates that the commit of an environment meets next.
func gatesAfter(e *environment, chain fleet.Environments) (all []gateTo) {
	if g := e.Judged.Gate(e.NextRing); g != nil && e.NextRing != "" {
		all = append(all, newGateTo(e.Judged, *g, "ring "+e.NextRing))
	}
	for _, other := range chain.Environments {
		if g := other.Judged.Gate(""); g != nil && other.Platform == e.Platform && g.From == e.Environment.Environment {
			all = append(all, newGateTo(other.Judged, *g, other.Environment))
		}
	}
	return all
}

// OwnGates returns the gates of the environment, and of its rings.
func (e environment) OwnGates() (all []gateTo) {
	if e.Judged == nil {
		return nil
	}
	for _, g := range e.Judged.Gates {
		to := e.Environment.Environment
		if g.Ring != "" {
			to = "ring " + g.Ring
		}
		all = append(all, newGateTo(e.Judged, g, to))
	}
	return all
}

// decided is a decision as people see it.
type decided struct {
	fleet.Decided
	In string // the environment
	// Outdated is true if the environment that it names has another commit by now.
	Outdated bool
}

// failures are deployments that have failed for the same reason.
type failures struct {
	Workspace, Workload, Reason, Link string
	Count                             int
}

// shownFailures bounds them.
const shownFailures = 20

// failuresOf returns the failures of an environment, the most frequent first.
func (f *frame) failuresOf(ctx context.Context, from Answers, e fleet.Environment) (all []failures, err error) {
	q := fleet.Query{Environments: []string{e.Environment}, Platform: e.Platform, AsOf: f.Query.AsOf, State: []bundle.State{bundle.Failed, bundle.Drifted}}
	counts, err := from.Count(ctx, "deployments", []string{"workspace", "workload", "reason"}, q)
	for _, c := range counts.Rows {
		at := f.At(deploymentsPath, "environment", e.Environment, "platform", e.Platform, "workspace", c.Values[0], "workload", c.Values[1], "state", string(bundle.Failed)+","+string(bundle.Drifted))
		all = append(all, failures{c.Values[0], c.Values[1], c.Values[2], at, c.Count})
	}
	slices.SortStableFunc(all, func(a, b failures) int { return cmp.Compare(b.Count, a.Count) })
	return all[:min(len(all), shownFailures)], err
}

// shownDecisions and shownClusters bound what a page shows of one environment.
const (
	shownDecisions = 20
	shownClusters  = 10
	shownReleases  = 50
)

func showEnvironments(r *http.Request, f *frame, from Answers) (any, int, error) {
	f.template, f.Title = "environments.html", "Environments"
	q := fleet.Query{Environments: f.Query.Environments, Platform: f.Query.Platform, AsOf: f.Query.AsOf}
	f.only(q)
	f.list("environments")
	if name := r.PathValue("environment"); name != "" {
		q.Environments = []string{name}
		f.only(fleet.Query{Platform: q.Platform, AsOf: q.AsOf})
		f.JSON, f.CSV, f.Command = f.At("/v1/environments", "environment", name, "platform", q.Platform), "", "wherry get environments -e "+quoted(name)
	}
	if !q.AsOf.IsZero() {
		f.Command = ""
	}
	if len(q.Environments) == 1 {
		f.Title, f.Crumbs = q.Environments[0], []link{{Name: "Environments", Link: f.At(environmentsPath)}}
	}
	page := &environmentsPage{frame: f}
	all, err := from.Environments(r.Context(), fleet.Query{AsOf: q.AsOf})
	chain, newest := all, map[string]string{} // commits, by environment
	for _, e := range all.Environments {
		newest[e.Environment] = e.BaseCommit
	}
	if err == nil && (len(q.Environments) > 0 || q.Platform != "") {
		all, err = from.Environments(r.Context(), q)
	}
	if errors.As(err, &page.Unknown) {
		return page, http.StatusNotFound, nil
	} else if err != nil {
		return nil, 0, err
	}
	for _, e := range all.Environments {
		one, err := environmentOf(r.Context(), from, e, newest, q)
		if err != nil {
			return nil, 0, err
		}
		f.offer(&one, chain, r)
		if r.PathValue("environment") != "" {
			list, err := from.Releases(r.Context(), fleet.Query{Environments: q.Environments, Platform: e.Platform, AsOf: q.AsOf, Limit: fleet.MaxRows})
			if err != nil {
				return nil, 0, err
			}
			if one.Failures, err = f.failuresOf(r.Context(), from, e); err != nil {
				return nil, 0, err
			}
			one.Releases = slices.DeleteFunc(list.Releases, func(r fleet.Release) bool { return !r.Current && r.Running == 0 })
			one.Releases = one.Releases[:min(len(one.Releases), shownReleases)]
		}
		page.Environments = append(page.Environments, one)
	}
	return page, http.StatusOK, nil
}

// offer adds what whoever asks may decide about an environment of a chain, and the commands for what a hub cannot: no key of releases is there.
func (f *frame) offer(e *environment, chain fleet.Environments, r *http.Request) {
	name := e.Environment.Environment
	if e.Rollout != nil {
		if next := slices.IndexFunc(e.Rollout.Rings, func(r fleet.RingRollout) bool { return !r.Reached && r.Ring != "" }); next > 0 {
			e.NextRing = e.Rollout.Rings[next].Ring
		}
	}
	if f.may(access.Publish) || f.may(access.Approve) {
		if e.NextRing != "" {
			e.Commands = append(e.Commands, "wherry rollout advance -e "+quoted(name)+" --ring "+quoted(e.NextRing)+" --hub "+quoted(hubURL(r)))
		}
		if e.PreviousCommit != "" {
			e.Commands = append(e.Commands, "wherry rollout undo -e "+quoted(name)+" --back-to "+quoted(e.PreviousCommit)+" --reason 'WHY'")
		}
	}
	e.Gates = gatesAfter(e, chain)
	before := chain.Before(e.Platform, name)
	if f.Query.AsOf.IsZero() && before != "" && f.who.HasEnvironment(before) && f.seesAll(name) {
		e.Actions = append(e.Actions, link{Name: "Review what comes from " + before, Link: f.At(environmentPath(name)+"/review", "platform", e.Platform)})
	}
	if e.NextRing != "" && f.Query.AsOf.IsZero() && f.seesAll(name) {
		e.RingActions = append(e.RingActions, link{Name: "Review for ring " + e.NextRing, Link: f.At(environmentPath(name)+"/review", "platform", e.Platform, "ring", e.NextRing)})
	}
	may := f.mayDecide(name)
	if len(may) == 0 || e.Unread {
		return
	}
	act := func(a bundle.Action) {
		e.Actions = append(e.Actions, link{Name: decisionWords[a].button, Link: f.At(environmentPath(name)+"/"+string(a), "platform", e.Platform)})
	}
	if e.NextRing != "" {
		for _, a := range may {
			e.RingActions = append(e.RingActions, link{Name: ringWords(a, e.NextRing), Link: f.At(environmentPath(name)+"/"+string(a), "platform", e.Platform, "ring", e.NextRing)})
		}
	}
	if before != "" && f.who.HasEnvironment(before) {
		for _, a := range may {
			act(a)
		}
		if f.ledgers {
			e.Actions = append(e.Actions, link{Name: "Workloads one by one", Link: f.At(environmentPath(name)+"/"+workloadsWord, "platform", e.Platform)})
		}
	}
	if e.Pause == nil {
		act(bundle.Pause)
	} else {
		act(bundle.Resume)
	}
}

// ringWords are those of the button of a decision about a ring.
func ringWords(a bundle.Action, ring string) string {
	return decisionWords[a].button + " for ring " + ring
}

// seesAll reports whether whoever asks sees all of an environment.
func (f *frame) seesAll(environment string) bool {
	return f.who.HasEnvironment(environment) && len(f.who.Workspaces) == 0 && f.who.Selector == ""
}

// mayDecide returns what whoever asks may decide about what an environment gets.
func (f *frame) mayDecide(environment string) []bundle.Action {
	if !f.may(access.Approve) || !f.seesAll(environment) {
		return nil
	}
	return []bundle.Action{bundle.Approve, bundle.Reject, bundle.Override}
}

// action returns the link to one of the decisions that are offered; nil if it is not.
func (e *environment) action(a bundle.Action) *link {
	for _, offered := range e.Actions {
		if offered.Name == decisionWords[a].button {
			return &offered
		}
	}
	return nil
}

// hubURL returns the hub's URL as the browser knows it. Without TLS, another name than this machine's is that of a proxy with TLS.
func hubURL(r *http.Request) string {
	if r.TLS == nil && oci.IsLoopback(r.Host) {
		return "http://" + r.Host
	}
	return "https://" + r.Host
}

// environmentOf asks about one environment, as of the moment of q. Newest has the newest commits of environments.
func environmentOf(ctx context.Context, from Answers, e fleet.Environment, newest map[string]string, q fleet.Query) (environment, error) {
	one := environment{Environment: e}
	if commit := cmp.Or(e.BaseCommit, e.EnvironmentCommit); commit != "" {
		rollout, err := from.Rollout(ctx, e.Environment, commit, fleet.RolloutQuery{Query: fleet.Query{Platform: e.Platform, Limit: shownClusters, AsOf: q.AsOf}})
		if err != nil {
			return one, err
		}
		one.Rollout = &rollout
		one.Shown, one.Beyond = rollout.Shown()
	}
	all, err := from.Decided(ctx, e.Platform, e.Environment)
	if one.Unread = errors.Is(err, store.ErrUnavailable) && q.AsOf.IsZero(); one.Unread {
		return one, nil // the rest is from memory
	}
	if err != nil {
		return one, err
	}
	if !q.AsOf.IsZero() {
		all = slices.DeleteFunc(all, func(d fleet.Decided) bool { return d.IssuedAt.After(q.AsOf) })
	}
	for _, d := range all {
		if d.Action == bundle.Pause || d.Action == bundle.Resume {
			if d.Action == bundle.Pause {
				one.Pause = &d
			}
			break
		}
	}
	for _, d := range all[:min(len(all), shownDecisions)] {
		commit, known := newest[d.From]
		one.Decisions = append(one.Decisions, decided{Decided: d, In: e.Environment, Outdated: known && d.BaseCommit != "" && commit != d.BaseCommit})
	}
	one.More = len(all) - len(one.Decisions)
	return one, nil
}
