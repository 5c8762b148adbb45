package web

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/opencontainers/go-digest"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/hubapi"
	"github.com/wherry-dev/wherry/bundle/ledger"
	"github.com/wherry-dev/wherry/hub/access"
	"github.com/wherry-dev/wherry/hub/fleet"
	"github.com/wherry-dev/wherry/hub/store"
)

// contentPage is the data of assets/content.html: the workloads of an environment below that one does not have as they are there.
type contentPage struct {
	*frame
	Environment, From string
	Workloads         []nextWorkload
	More              int
	Others            []link // pages about another source
	// Unproved are workloads of Environment that somebody let in without a proof.
	Unproved []unproved
}

// unproved is a revision of a workload that came without a proof, and why.
type unproved struct {
	Name, Version, Ring, Why string
	Since                    time.Time
}

// unprovedIn returns what a ledger has that came without a proof.
func unprovedIn(l *ledger.Ledger) (all []unproved) {
	for i := range l.Workloads {
		w := &l.Workloads[i]
		for _, r := range w.Revisions {
			for _, in := range r.In {
				if in.Unproved != "" {
					all = append(all, unproved{w.Key.String(), cmp.Or(bundle.ShownVersion(r.Version), short(string(r.Revision))), in.Ring, in.Unproved, in.Since})
				}
			}
		}
	}
	return all
}

// nextWorkload is a revision of a workload that an environment may get, or with an empty Revision its removal.
type nextWorkload struct {
	bundle.DecisionWorkload
	Version, Has string // of the revision, and of what the environment has; empty for none
	Since        time.Time
	Actions      []link
	// revision is nil for a removal.
	revision *ledger.Revision
}

const (
	workloadsWord = "workloads" // the last part of the page's path
	shownWorkload = 200
	shownSources  = 20
)

// between returns the environments that a request is about: the one that is to get something, and what comes before it. Others may be what
// comes before it instead.
func between(ctx context.Context, from Answers, name, platform, source string) (to, of fleet.Environment, others []string, err error) {
	list, err := from.Environments(ctx, fleet.Query{Platform: platform})
	if err != nil {
		return to, of, nil, err
	}
	all := list.Environments
	at := slices.IndexFunc(all, func(e fleet.Environment) bool { return e.Environment == name })
	if at < 0 {
		return to, of, nil, unknownEnvironment(name)
	}
	to = all[at]
	if source = cmp.Or(source, list.Before(to.Platform, name)); source == "" {
		return to, of, nil, fmt.Errorf("%w: nothing tells which environment comes before %s, so there is nothing to decide about", store.ErrInvalid, name)
	}
	i := slices.IndexFunc(all, func(e fleet.Environment) bool { return e.Environment == source && e.Platform == to.Platform })
	if i < 0 {
		return to, of, nil, unknownEnvironment(source)
	}
	for _, e := range all {
		if e.Platform == to.Platform && e.Record != "" && e.Environment != name && e.Environment != source {
			others = append(others, e.Environment)
		}
	}
	return to, all[i], others, nil
}

func unknownEnvironment(name string) error {
	return &hubapi.Error{Code: hubapi.CodeNotFound, Message: fmt.Sprintf("the hub knows no environment %q", store.Plain(store.Clip(name)))}
}

// next returns what an environment may get from another one, workload by workload, as the ledgers of their newest records say, and
// the ledger of what it has. Whether a gate lets it in is not known here.
func (s *site) next(ctx context.Context, to, from fleet.Environment) (all []nextWorkload, has *ledger.Ledger, err error) {
	if err := checkScope(ctx, to, from); err != nil {
		return nil, nil, err
	}
	there, err := s.ledgerOf(ctx, from)
	if err != nil {
		return nil, nil, err
	}
	has = &ledger.Ledger{}
	if to.Record != "" {
		if has, err = s.ledgerOf(ctx, to); err != nil {
			return nil, nil, err
		}
	}
	for i := range there.Workloads {
		w := &there.Workloads[i]
		r, stay := newestOf(w)
		one := nextWorkload{DecisionWorkload: bundle.DecisionWorkload{Registration: w.Registration, Name: w.Workload, Revision: r.Revision}, Version: r.Version, Since: stay.Since, revision: r}
		if own := has.Find(w.Key); own != nil {
			mine, in := newestOf(own)
			since := in.From.Record
			if in.From == (ledger.From{}) { // it ran before there was a chain
				since = in.Record
			}
			if one.Has = cmp.Or(mine.Version, short(string(mine.Revision))); stay.Record.Compare(since) <= 0 {
				continue // own has it, or something newer
			}
		}
		all = append(all, one)
	}
	for _, r := range there.Removed {
		if own := has.Find(r.Key); own != nil && there.Find(r.Key) == nil && len(r.In) > 0 {
			mine, _ := newestOf(own)
			all = append(all, nextWorkload{
				DecisionWorkload: bundle.DecisionWorkload{Registration: r.Registration, Name: r.Workload}, Has: cmp.Or(mine.Version, short(string(mine.Revision))), Since: r.In[0].Since,
			})
		}
	}
	return all, has, nil
}

// newestOf returns the revision of a workload that came last to a ring, and its stay there.
func newestOf(w *ledger.Workload) (*ledger.Revision, ledger.Stay) {
	var newest *ledger.Revision
	var at ledger.Stay
	for i := range w.Revisions {
		for _, in := range w.Revisions[i].In {
			if newest == nil || in.Record.Compare(at.Record) > 0 {
				newest, at = &w.Revisions[i], in
			}
		}
	}
	if newest == nil {
		newest = &ledger.Revision{}
	}
	return newest, at
}

func short(d string) string {
	name := strings.TrimPrefix(d, digest.Canonical.String()+":")
	return name[:min(len(name), shortName)]
}

// ledgerOf reads the ledger of the newest record of an environment.
func (s *site) ledgerOf(ctx context.Context, e fleet.Environment) (*ledger.Ledger, error) {
	if e.Record == "" {
		return nil, fmt.Errorf("%w: the hub does not know what is published in %s", store.ErrInvalid, e.Environment)
	}
	var l *ledger.Ledger
	var err error
	if s.Ledger != nil {
		l, err = s.Ledger(ctx, e.Environment, e.Record)
	}
	if l == nil && err == nil {
		err = fmt.Errorf("%w: the hub watches no location that says which workloads %s has; decide with wherry gate approve --workload", store.ErrInvalid, e.Environment)
	}
	return l, err
}

// checkScope refuses a context's identity that does not see all of both environments.
func checkScope(ctx context.Context, to, from fleet.Environment) error {
	if who, known := access.From(ctx); known && (!who.HasEnvironment(to.Environment) || !who.HasEnvironment(from.Environment) || len(who.Workspaces) > 0 || who.Selector != "") {
		return fmt.Errorf("workloads of %s for %s: %w", from.Environment, to.Environment, store.ErrOutOfScope)
	}
	return nil
}

func (s *site) showContent(r *http.Request, f *frame, from Answers) (any, int, error) {
	name := r.PathValue("environment")
	to, of, others, err := between(r.Context(), from, name, f.Query.Platform, r.URL.Query().Get("from"))
	if err != nil {
		return nil, 0, err
	}
	all, has, err := s.next(r.Context(), to, of)
	if err != nil {
		return nil, 0, err
	}
	f.template, f.Title = "content.html", "Workloads for "+name
	f.Crumbs = []link{{Name: "Environments", Link: f.At(environmentsPath)}, {Name: name, Link: f.At(environmentPath(name), "platform", to.Platform)}}
	page := &contentPage{frame: f, Environment: name, From: of.Environment, Workloads: all[:min(len(all), shownWorkload)], More: max(0, len(all)-shownWorkload), Unproved: unprovedIn(has)}
	for i := range page.Workloads {
		w := &page.Workloads[i]
		for _, a := range []bundle.Action{bundle.Approve, bundle.Reject, bundle.Override} {
			at := f.At(environmentPath(name)+"/"+string(a), "platform", to.Platform, "from", of.Environment, "registration", w.Registration, "workload", w.Name)
			w.Actions = append(w.Actions, link{Name: decisionWords[a].button, Link: at})
		}
	}
	for _, other := range others {
		page.Others = append(page.Others, link{Name: other, Link: f.At(f.path, "platform", to.Platform, "from", other)})
	}
	f.Command = "wherry gate check -e " + quoted(name) + " --workload REGISTRATION/NAME"
	return page, http.StatusOK, nil
}

// about returns the workload of d, and what people decide about.
func (s *site) about(ctx context.Context, from Answers, d *decision, registration, name string) error {
	to, of, others, err := between(ctx, from, d.Environment, d.Platform, d.From)
	if err != nil {
		return err
	}
	all, _, err := s.next(ctx, to, of)
	if err != nil {
		return err
	}
	i := slices.IndexFunc(all, func(w nextWorkload) bool { return w.Registration == registration && w.Name == name })
	if i < 0 {
		named := bundle.DecisionWorkload{Registration: registration, Name: name}
		return fmt.Errorf("%w: %s has nothing of %s that %s does not have", store.ErrInvalid, of.Environment, store.Plain(store.Clip(named.String())), d.Environment)
	}
	d.From, d.Workload, d.workload, d.others = of.Environment, all[i].DecisionWorkload, &all[i], others
	return nil
}

// facts say what a decision about a workload is about.
func (w *nextWorkload) facts(now time.Time) []fact {
	all := []fact{{"Workload", w.DecisionWorkload.String(), ""}, {"Has", cmp.Or(w.Has, "nothing"), ""}}
	if w.revision == nil {
		return append(all, fact{"Would get", "nothing: it was removed", ""})
	}
	all = append(all, fact{"Would get", strings.TrimSpace(w.Version + " (" + short(string(w.Revision)) + ")"), string(w.Revision)}, fact{"Published", bundle.Ago(w.Since, now), stamp(w.Since)})
	lines := map[string]bool{}
	add := func(name, value, title string) {
		if value != "" && !lines[name+value] {
			lines[name+value] = true
			all = append(all, fact{name, value, title})
		}
	}
	sources := []ledger.Source{w.revision.Source}
	for _, t := range w.revision.Targets {
		sources = append(sources, t.Source)
	}
	for _, s := range sources {
		if s.Repo != "" {
			add("Source", strings.TrimSpace(s.Repo+" "+s.Ref+" "+s.Commit[:min(len(s.Commit), 2*shortName)]), s.Commit)
		}
	}
	for _, a := range w.revision.Artifacts[:min(len(w.revision.Artifacts), shownSources)] {
		add(string(a.Type), strings.TrimSpace(a.Reference+" "+short(a.Digest)), a.Digest)
	}
	if more := len(w.revision.Artifacts) - shownSources; more > 0 {
		add("And", fmt.Sprintf("%d more artifacts", more), "")
	}
	return all
}
