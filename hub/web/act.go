package web

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/duration"
	"github.com/wherry-dev/wherry/bundle/hubapi"
	"github.com/wherry-dev/wherry/hub/fleet"
	"github.com/wherry-dev/wherry/hub/store"
)

// Actions are what people do on pages, within the scope of the context's identity; a manage.Manager does them. Each is in the audit log.
type Actions interface {
	Decide(ctx context.Context, d bundle.Decision) (store.StoredDecision, error)
	RetireCluster(ctx context.Context, nameOrUID, reason string) (store.Registration, error)
	UnshareCluster(ctx context.Context, nameOrUID string) (store.Registration, error)
	EnrollmentTokens(ctx context.Context) ([]store.Token, error)
	CreateToken(ctx context.Context, s store.TokenScope) (store.CreatedToken, error)
	RevokeToken(ctx context.Context, id string) (store.CreatedToken, error)
	AccessTokens(ctx context.Context) ([]store.AccessToken, error)
	RevokeAccess(ctx context.Context, idOrName string) (store.AccessToken, error)
	AuditLog(ctx context.Context, q store.AuditQuery) (store.AuditList, error)
}

// confirmPage is the data of assets/confirm.html: what somebody is about to do, with a form that does it.
type confirmPage struct {
	*frame
	Lead      string
	Facts     []fact
	Candidate *fleet.Candidate
	Decisions []decided
	Others    []link // pages about another source
	Note      string
	Rules     []string // to choose from
	Fields    []field
	Actions   []link
	Button    string // empty for a page without a form
	Back      string
}

// about adds what a decision is about.
func (p *confirmPage) about(d decision) {
	p.Candidate, p.Back = d.candidate, p.At(environmentPath(d.Environment), "platform", d.Platform)
	p.Crumbs = []link{{Name: "Environments", Link: p.At(environmentsPath)}, {Name: d.Environment, Link: p.Back}}
	p.Facts = []fact{{"Environment", d.Environment, ""}, {"Platform", d.Platform, ""}}
	for _, b := range d.before[:min(len(d.before), shownDecisions)] {
		p.Decisions = append(p.Decisions, decided{Decided: b, In: d.Environment})
	}
	if c := d.candidate; c != nil {
		for _, name := range d.others {
			p.Others = append(p.Others, link{Name: name, Link: p.At(p.path, "platform", d.Platform, "from", name)})
		}
		p.Facts = append(p.Facts,
			fact{"Commit", c.BaseCommit[:min(len(c.BaseCommit), 2*shortName)], c.BaseCommit}, fact{"From", c.From, ""}, fact{"Published", bundle.Ago(c.IssuedAt, p.Now), stamp(c.IssuedAt)},
			fact{"Message", c.Message, ""}, fact{"Cluster types", strings.Join(slices.Sorted(maps.Keys(c.Contents)), ", "), ""})
		if len(c.Incomplete) > 0 {
			p.Facts = append(p.Facts, fact{"Incomplete, so no gate passes it", strings.Join(c.Incomplete, ", "), ""})
		}
	}
}

// place names the environment or the ring that a decision is about.
func place(d bundle.Decision) string {
	return strings.TrimSuffix(d.Environment+", ring "+d.Ring, ", ring ")
}

// fact is a name and a value, with the long form of that.
type fact struct{ Name, Value, Title string }

// field is a field of a form; Type is that of an input.
type field struct {
	Name, Type, Label, Value, Hint string
	Required                       bool
}

// maxForm bounds a form, in bytes.
const maxForm = 64 << 10

// doing returns the handler of a form. Do returns the page to go on with.
func (s *site) doing(do func(*http.Request) (next string, err error)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		next := ""
		_, err := formOf(r)
		if err == nil {
			next, err = do(r)
		}
		if err != nil {
			s.Fail(w, r, err)
			return
		}
		http.Redirect(w, r, next, http.StatusSeeOther)
	})
}

// formOf returns the values of a form.
func formOf(r *http.Request) (url.Values, error) {
	r.Body = http.MaxBytesReader(nil, r.Body, maxForm)
	if err := r.ParseForm(); err != nil {
		return nil, fmt.Errorf("%w: the form cannot be read", store.ErrInvalid)
	}
	return r.PostForm, nil
}

// decisionWords are those of the pages about decisions.
var decisionWords = map[bundle.Action]struct{ button, lead string }{
	bundle.Approve:  {"Approve", "You approve what this environment would get. The hub signs that in your name; it holds for this content alone."},
	bundle.Reject:   {"Reject", "You reject what this environment would get. It stays out until you approve it."},
	bundle.Override: {"Override", "You let this enter the environment in spite of the rules that you choose. The hub signs that in your name."},
	bundle.Pause:    {"Pause", "Promotion and rings of this environment wait until somebody resumes it. People can still undo."},
	bundle.Resume:   {"Resume", "Promotion and rings of this environment go on."},
}

// decision is what somebody is about to decide on a page.
type decision struct {
	bundle.Decision
	candidate *fleet.Candidate // nil for a pause and its end, and about a workload
	workload  *nextWorkload    // nil unless it is about one
	others    []string         // environments of the platform that it might come from instead
	before    []fleet.Decided  // about the same, newest first
}

// decisionOf returns the decision that a request's path and values name.
func (s *site) decisionOf(r *http.Request, from Answers, action bundle.Action, values url.Values) (decision, error) {
	d := decision{Decision: bundle.Decision{Action: action, Environment: r.PathValue("environment")}}
	if _, known := decisionWords[d.Action]; !known {
		return d, &hubapi.Error{Code: hubapi.CodeNotFound, Message: "there is no such decision"}
	}
	ctx := r.Context()
	all, err := from.Environments(ctx, fleet.Query{Platform: values.Get("platform")})
	if err != nil {
		return d, err
	}
	at := slices.IndexFunc(all.Environments, func(e fleet.Environment) bool { return e.Environment == d.Environment })
	if at < 0 {
		return d, unknownEnvironment(d.Environment)
	}
	d.Platform = all.Environments[at].Platform
	if d.before, err = from.Decided(ctx, d.Platform, d.Environment); err != nil {
		return d, err
	}
	if d.Action == bundle.Pause || d.Action == bundle.Resume {
		return d, nil
	}
	if name := values.Get("workload"); name != "" {
		d.From = values.Get("from")
		if err := s.about(ctx, from, &d, values.Get("registration"), name); err != nil {
			return d, err
		}
		d.before = slices.DeleteFunc(d.before, func(b fleet.Decided) bool { return b.From != d.From || b.Workload != d.Workload })
		return d, nil
	}
	if d.Ring = values.Get("ring"); d.Ring != "" {
		d.From = d.Environment
	} else if d.From = cmp.Or(values.Get("from"), all.Before(d.Platform, d.Environment)); d.From == "" {
		return d, fmt.Errorf("%w: nothing tells which environment comes before %s, so there is nothing to decide about", store.ErrInvalid, d.Environment)
	}
	for _, e := range all.Environments {
		if d.Ring == "" && e.Platform == d.Platform && e.Record != "" && e.Environment != d.Environment && e.Environment != d.From {
			d.others = append(d.others, e.Environment)
		}
	}
	c, err := from.Candidate(ctx, d.Platform, d.From, d.Environment, d.Ring)
	if err != nil {
		return d, err
	}
	d.candidate, d.BaseCommit, d.Contents = &c, c.BaseCommit, c.Contents
	d.before = slices.DeleteFunc(d.before, func(b fleet.Decided) bool {
		return b.From != d.From || b.BaseCommit != d.BaseCommit || b.Ring != d.Ring
	})
	return d, nil
}

func (s *site) showDecision(r *http.Request, f *frame, from Answers) (any, int, error) {
	d, err := s.decisionOf(r, from, bundle.Action(r.PathValue("action")), r.URL.Query())
	if err != nil {
		return nil, 0, err
	}
	words := decisionWords[d.Action]
	f.template, f.Title = "confirm.html", words.button+" "+place(d.Decision)
	page := &confirmPage{frame: f, Button: words.button, Lead: words.lead}
	page.about(d)
	page.Fields = []field{{Name: "platform", Type: "hidden", Value: d.Platform}}
	if w := d.workload; w != nil {
		f.Title = words.button + " " + w.DecisionWorkload.String() + " for " + d.Environment
		page.Facts = append(page.Facts, append([]fact{{"From", d.From, ""}}, w.facts(f.Now)...)...)
		for _, h := range []field{{Name: "from", Value: d.From}, {Name: "registration", Value: w.Registration}, {Name: "workload", Value: w.Name}, {Name: "revision", Value: string(w.Revision)}} {
			h.Type = "hidden"
			page.Fields = append(page.Fields, h)
		}
		page.Back = f.At(environmentPath(d.Environment)+"/"+workloadsWord, "platform", d.Platform, "from", d.From)
	}
	if c := d.candidate; c != nil {
		page.Fields = append(page.Fields, field{Name: "from", Type: "hidden", Value: c.From}, field{Name: "record", Type: "hidden", Value: string(c.Record)}, field{Name: "ring", Type: "hidden", Value: c.Ring})
	}
	page.Note = "Whether this counts is for the gate to say: the policy has to list your name, and this hub's key as one that speaks for it. A promoter that asks this hub brings it to the registry, for all others."
	if d.workload != nil { // which stays here
		page.Note = "Whether this counts is for the gate to say: the policy has to list your name, and this hub's key as one that speaks for it. A gate that asks this hub sees it."
	}
	if f.Command = "wherry gate " + string(d.Action) + " -e " + quoted(d.Environment) + " --hub " + quoted(hubURL(r)); d.workload != nil {
		f.Command += " --workload " + quoted(d.Workload.String())
	} else if d.candidate == nil {
		f.Command = "wherry rollout " + string(d.Action) + " -e " + quoted(d.Environment) // which signs with a key
	} else if d.BaseCommit != "" {
		f.Command += " --commit " + quoted(d.BaseCommit)
	}
	if d.Ring != "" {
		f.Command += " --ring " + quoted(d.Ring)
	}
	if d.Action == bundle.Override {
		page.Rules = d.OverridableRules()
	}
	page.Fields = append(page.Fields, field{Name: "reason", Label: "Reason", Required: d.Action != bundle.Approve && d.Action != bundle.Resume})
	switch d.Action {
	case bundle.Approve, bundle.Override:
		page.Fields = append(page.Fields, field{Name: "expires", Label: "Ends after", Hint: "7d, or empty for never"})
	case bundle.Resume:
		page.Fields = append(page.Fields, field{Name: "again", Type: "checkbox", Value: "true", Label: "What was undone may be released again"})
	}
	if d.candidate != nil && d.Ring == "" {
		page.Fields = append(page.Fields, field{Name: "commitAlone", Type: "checkbox", Value: "true", Label: "The gate decides about workloads one by one (content: {} in the policy): sign the commit alone"})
	}
	return page, http.StatusOK, nil
}

// decide signs what the form of showDecision says, if that is what its page has shown.
func (s *site) decide(r *http.Request) (string, error) {
	from, err := s.Answers(r)
	if err != nil {
		return "", err
	}
	form := r.PostForm
	d, err := s.decisionOf(r, from, bundle.Action(r.PathValue("action")), form)
	if err != nil {
		return "", err
	}
	if d.workload != nil && string(d.Workload.Revision) != form.Get("revision") {
		return "", fmt.Errorf("%w: %s has another revision of %s since you looked: look again", store.ErrInvalid, d.From, d.Workload)
	}
	if d.candidate != nil && string(d.candidate.Record) != form.Get("record") {
		return "", fmt.Errorf("%w: %s was published anew since you looked: look again", store.ErrInvalid, d.From)
	}
	said := d.Decision
	said.Reason, said.Again = form.Get("reason"), form.Get("again") != ""
	said.Rules = slices.Compact(slices.Sorted(slices.Values(form["rule"])))
	if form.Get("commitAlone") != "" {
		said.Contents = nil
	}
	if after := form.Get("expires"); after != "" {
		life, err := duration.Parse(after)
		if err != nil {
			return "", fmt.Errorf("%w: %w", store.ErrInvalid, err)
		}
		said.ExpiresAt = s.Now().Add(life).UTC().Truncate(time.Second)
	}
	if _, err := s.Actions.Decide(r.Context(), said); err != nil {
		return "", err
	}
	return linkTo(environmentPath(d.Environment), url.Values{"platform": {d.Platform}}), nil
}

func (s *site) showRetire(r *http.Request, f *frame, from Answers) (any, int, error) {
	page, c, err := confirmCluster(r, f, from, "Retire")
	if err != nil {
		return nil, 0, err
	}
	page.Lead = "You end the registration of a cluster that is gone for good. Its key is refused from then on, its name is free, and its history stays."
	page.Fields = []field{{Name: "reason", Label: "Reason"}}
	f.Command = "wherry hub clusters retire " + quoted(c.Name)
	return page, http.StatusOK, nil
}

func (s *site) showUnshare(r *http.Request, f *frame, from Answers) (any, int, error) {
	page, c, err := confirmCluster(r, f, from, "Unshare")
	if err != nil {
		return nil, 0, err
	}
	page.Lead = "You say that one agent alone has this cluster's key from now on. Later reports may raise the suspicion again."
	if c.SharedHow != "" {
		page.Facts = append(page.Facts, fact{"Evidence", c.SharedHow, ""})
	}
	f.Command = "wherry hub clusters unshare " + quoted(c.Name)
	return page, http.StatusOK, nil
}

// confirmCluster returns a page about a cluster that somebody is about to change.
func confirmCluster(r *http.Request, f *frame, from Answers, word string) (*confirmPage, fleet.Cluster, error) {
	c, _, err := clusterOf(r, from, time.Time{})
	if err != nil {
		return nil, c, err
	}
	f.template, f.Title = "confirm.html", word+" "+c.Name
	back := f.At(clustersPath + "/" + c.UID)
	f.Crumbs = []link{{Name: "Clusters", Link: f.At(clustersPath)}, {Name: c.Name, Link: back}}
	return &confirmPage{frame: f, Button: word, Back: back, Facts: []fact{
		{"Cluster", c.Name, c.UID}, {"Environment", c.Environment, ""}, {"Type", c.Type, ""}, {"State", string(c.State), ""}, {"Last seen", bundle.Ago(c.LastSeen, f.Now), stamp(c.LastSeen)},
	}}, c, nil
}

func (s *site) retire(r *http.Request) (string, error) {
	c, err := s.Actions.RetireCluster(r.Context(), r.PathValue("cluster"), r.PostForm.Get("reason"))
	return linkTo(clustersPath, url.Values{"environment": {c.Environment}}), err
}

func (s *site) unshare(r *http.Request) (string, error) {
	c, err := s.Actions.UnshareCluster(r.Context(), r.PathValue("cluster"))
	return clustersPath + "/" + url.PathEscape(c.UID), err
}
