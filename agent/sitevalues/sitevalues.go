// Package sitevalues gives the assignments of one agent the values of its site.
//
// Begin with New. Site.Resolve reads the site's own values again and resolves all of them for the release that runs, once in
// a pass and before any engine is called. Site.Of then returns the values that an assignment is to have, or why it has to
// wait, and Site.Complete puts them into what an engine is handed: as they are, and in a copy of the assignment's files in
// which ${site.KEY} is replaced.
//
// The package bundle/sitevalues decides what a value is. This one keeps the last valid values of the site in the state file,
// so that a file that cannot be read changes nothing that runs. No value gets into a log, an error or a report.
package sitevalues

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"

	"github.com/opencontainers/go-digest"
	"go.etcd.io/bbolt"

	"github.com/wherry-dev/wherry/agent/assignments"
	"github.com/wherry-dev/wherry/agent/content"
	"github.com/wherry-dev/wherry/agent/state"
	"github.com/wherry-dev/wherry/bundle"
	shared "github.com/wherry-dev/wherry/bundle/sitevalues"
	"github.com/wherry-dev/wherry/reconcilers"
)

// keySaved is the key, in state.Meta, of Saved.
const keySaved = "siteValues"

// Saved is what the state file has of site values. Its zero value is that of an agent that never read any.
type Saved struct {
	// Place names the place of the site's own values, and Own are those that were valid last.
	Place string `json:"place,omitempty"`
	Own   Own    `json:"own,omitzero"`
	// Broken is the error of the last attempt to read the place; empty if there was none.
	Broken string `json:"broken,omitempty"`
	// Release is the release for which Values and Problems were resolved, and Unreadable the error if that failed.
	Release    digest.Digest    `json:"release,omitempty"`
	Unreadable string           `json:"unreadable,omitempty"`
	Declared   digest.Digest    `json:"declared,omitempty"` // see assignments.Record.Declared
	Values     map[string]Value `json:"values,omitempty"`
	Problems   []shared.Problem `json:"problems,omitempty"`
	// SiteMaySet lists the keys of problems that the site may set itself.
	SiteMaySet []string `json:"siteMaySet,omitempty"`
}

// Value is a shared.Value in the state file.
type Value struct {
	Value  any           `json:"value"`
	Text   string        `json:"text"`
	Source shared.Source `json:"source"`
	From   string        `json:"from,omitempty"`
}

// Load reads what the state file has.
func Load(tx *bbolt.Tx) (Saved, error) { return state.Load[Saved](tx, state.Meta, keySaved) }

// Options configures a Site. The zero value has no source of the site's own.
type Options struct {
	Source Source // nil is none
	Log    *slog.Logger
}

// Site are the values of one agent's site. Resolve is called by one goroutine, the rest by several.
type Site struct {
	opts    Options
	files   *content.Store
	db      *state.DB
	folders *folders

	mu  sync.RWMutex
	now resolved
}

// resolved are the values of one pass.
type resolved struct {
	saved    Saved
	values   shared.Values
	document *shared.Document
}

// New returns the values of the site whose state file is db. Files has the content of assignments.
func New(db *state.DB, files *content.Store, opts Options) *Site {
	if opts.Log == nil {
		opts.Log = slog.New(slog.DiscardHandler)
	}
	return &Site{opts: opts, files: files, db: db, folders: &folders{db: db}}
}

// Resolve reads the site's own values, and resolves them with what the release says for a cluster with these facts. Document
// returns a file of the release's tree, nil if it has none; inUse is true if an assignment uses values. What has changed is in
// the state file before it counts. Only an error of the state file ends the work: what cannot be read leaves the values as
// they were.
func (s *Site) Resolve(ctx context.Context, release digest.Digest, document func(name string) ([]byte, error), facts shared.Facts, inUse bool) error {
	var before Saved
	err := s.db.View(func(tx *bbolt.Tx) (err error) {
		before, err = Load(tx)
		return err
	})
	if err != nil {
		return state.Local("read state: %w", err)
	}
	next := resolved{saved: s.own(ctx, before)}
	if err := next.resolve(document, facts); err != nil {
		next.saved.Unreadable = bundle.Clip("what the release says about site values cannot be read: " + err.Error())
		next.keep(before)
	}
	if next.saved.Release = release; !next.declares() && !inUse { // facts alone are not worth a write
		next.saved = Saved{}
	}
	if err := s.save(before, next.saved); err != nil {
		return state.Local("save site values: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.now = next
	return nil
}

// own returns the site's own values: those of now, or the last valid ones with the reason.
func (s *Site) own(ctx context.Context, before Saved) Saved {
	if s.opts.Source == nil {
		return Saved{}
	}
	place := s.opts.Source.String()
	if before.Place != place { // values of another place do not count
		before = Saved{}
	}
	own, err := s.opts.Source.Read(ctx)
	if errors.Is(err, fs.ErrNotExist) && len(before.Own.Values) == 0 {
		err = nil
	}
	if err == nil {
		if before.Broken != "" {
			s.opts.Log.Info("the site's own values can be read again", "place", place)
		}
		return Saved{Place: place, Own: own}
	}
	broken := describe(place, err)
	if before.Broken != broken {
		s.opts.Log.Warn("the site's own values cannot be read, and the last valid ones stay", "place", place, "err", broken)
	}
	return Saved{Place: place, Own: before.Own, Broken: broken}
}

// describe returns the error of a place with its name and the line.
func describe(place string, err error) string {
	var m *Mistake
	switch {
	case errors.As(err, &m) && m.Line > 0:
		return bundle.Clip(fmt.Sprintf("%s:%d: %s", place, m.Line, m.Text))
	case strings.Contains(err.Error(), place):
		return bundle.Clip(err.Error())
	}
	return bundle.Clip(place + ": " + err.Error())
}

// resolve sets values and problems.
func (r *resolved) resolve(document func(name string) ([]byte, error), facts shared.Facts) error {
	declaration, err1 := document(shared.DocumentPath)
	rows, err2 := document(shared.RowsPath)
	err := errors.Join(err1, err2)
	if err == nil && declaration != nil {
		r.document, err = shared.ParseDocument(declaration)
	}
	var row *shared.Row
	if err == nil && rows != nil {
		row, err = shared.RowOf(rows, facts.UID)
	}
	if err != nil {
		return err
	}
	r.saved.Declared = declared(declaration, row)
	r.values, r.saved.Problems = shared.Resolve(r.document, row, r.saved.Own.Values, facts)
	for _, p := range r.saved.Problems {
		if r.document != nil && r.document.Properties[p.Key].SiteMaySet {
			r.saved.SiteMaySet = append(r.saved.SiteMaySet, p.Key)
		}
	}
	r.saved.Values = map[string]Value{}
	for key, v := range r.values {
		r.saved.Values[key] = Value{v.Any, v.Text, v.Source, v.From}
	}
	return nil
}

// keep takes the values of an earlier pass.
func (r *resolved) keep(before Saved) {
	r.saved.Declared, r.saved.Values = before.Declared, before.Values
	r.saved.Problems, r.saved.SiteMaySet = before.Problems, before.SiteMaySet
	r.document, r.values = nil, shared.Values{}
	for key, v := range before.Values {
		r.values[key] = shared.Value{Any: v.Value, Text: v.Text, Source: v.Source, From: v.From}
	}
}

// declares reports whether the release or the site says anything about values.
func (r *resolved) declares() bool {
	return r.document != nil || len(r.saved.Own.Values) > 0 || r.saved.Broken != "" || r.saved.Unreadable != ""
}

// Declared identifies what a release says about the values of a cluster. Document is that of Site.Resolve.
func Declared(document func(name string) ([]byte, error), uid string) (digest.Digest, error) {
	var r resolved
	err := r.resolve(document, shared.Facts{UID: uid})
	return r.saved.Declared, err
}

// declared identifies what the release says.
func declared(declaration []byte, row *shared.Row) digest.Digest {
	line, _ := json.Marshal(row) // it was parsed from JSON
	return digest.FromString(digest.FromBytes(declaration).String() + "\n" + string(line))
}

// save writes next, if it differs.
func (s *Site) save(before, next Saved) error {
	a, err1 := json.Marshal(before)
	b, err2 := json.Marshal(next)
	if err := errors.Join(err1, err2); err != nil || string(a) == string(b) {
		return err
	}
	s.db.At("site: values are about to be saved")
	return s.db.Update(func(tx *bbolt.Tx) error {
		if reflect.DeepEqual(next, Saved{}) {
			return state.Drop(tx, state.Meta, keySaved)
		}
		return state.Save(tx, state.Meta, keySaved, next)
	})
}

// Use has the values for one assignment, or the reason to wait.
type Use struct {
	// Values and Declared are those of the record; see assignments.Record.
	Values, Declared digest.Digest
	// Wait is the reason why new content of the assignment has to wait. Its Reason is empty if there is none.
	Wait assignments.Wait
}

// Of returns what the assignment of a record is to have. If the values are not known, the record keeps its own.
func (s *Site) Of(r assignments.Record) Use {
	if len(r.Spec.SiteValues) == 0 {
		return Use{}
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	now := s.now
	invalid := func(text string) assignments.Wait {
		return assignments.Wait{State: bundle.Pending, Reason: assignments.ReasonSiteValuesInvalid, Message: text}
	}
	if now.saved.Unreadable != "" {
		return Use{r.Values, r.Declared, invalid(now.saved.Unreadable)}
	}
	problems := shared.ProblemsOf(r.Spec.SiteValues, now.values, now.saved.Problems)
	use := Use{Values: identity(now.used(r.Spec)), Declared: now.saved.Declared}
	switch {
	case len(problems) > 0 && now.saved.Broken != "":
		use.Values, use.Wait = assignments.NoValues, invalid(now.saved.Broken)
	case len(problems) > 0:
		use.Values = assignments.NoValues
		use.Wait = assignments.Wait{State: bundle.Pending, Reason: assignments.ReasonSiteValueMissing, Message: now.saved.explain(problems)}
	case now.saved.Broken != "":
		use.Wait = invalid(now.saved.Broken)
	}
	return use
}

// mostProblems bounds those that one message names.
const mostProblems = 3

// explain describes problems, each with the place to mend it.
func (s Saved) explain(problems []shared.Problem) string {
	var all []string
	for i, p := range problems {
		if i == mostProblems {
			all = append(all, fmt.Sprintf("and %d more", len(problems)-i))
			break
		}
		all = append(all, s.Locate(p))
	}
	return bundle.Clip(strings.Join(all, "; "))
}

// Locate describes a problem with the place to mend it.
func (s Saved) Locate(p shared.Problem) string {
	line := s.Own.Lines[p.Key]
	switch {
	case p.Source == shared.FromSite && line > 0:
		return fmt.Sprintf("%s:%d: %s", s.Place, line, p)
	case p.Source == shared.FromSite:
		return fmt.Sprintf("%s: %s", s.Place, p)
	case p.Kind == shared.Missing && s.Place != "" && slices.Contains(s.SiteMaySet, p.Key):
		return fmt.Sprintf("%s (set it in %s)", p, s.Place)
	case p.Kind == shared.Missing && !shared.IsFact(p.Key), p.Source == shared.FromPlatform:
		return fmt.Sprintf("%s (set it in spec.values of this Cluster in the platform repository)", p)
	}
	return p.String()
}

// used returns the values of an assignment.
func (r resolved) used(a bundle.Assignment) shared.Values {
	used := shared.Values{}
	for _, key := range a.SiteValues {
		if v, ok := r.values[key]; ok {
			used[key] = v
		}
	}
	return used
}

// identity identifies values together with their types: 8080 and "8080" are written in two ways.
func identity(values shared.Values) digest.Digest {
	texts := map[string]string{}
	for key, v := range values {
		texts[key] = v.Text
		if _, isText := v.Any.(string); !isText {
			texts[key] = "\x00" + v.Text // no text has this character
		}
	}
	return shared.Digest(texts)
}

// replacing are the adapters that get a copy of the files. The others have variables of their own.
var replacing = []string{"argo", "directory", "flux", "kubernetes"}

// Prepare makes the copy of an assignment's files, if the adapter gets one and it is missing, and returns why the assignment
// has to wait if that cannot be done.
func (s *Site) Prepare(r assignments.Record, adapter string) assignments.Wait {
	if r.Values == "" || r.Values == assignments.NoValues || !slices.Contains(replacing, adapter) {
		return assignments.Wait{}
	}
	_, _, err := s.copyOf(r, adapter)
	var content *shared.ContentError
	switch {
	case err == nil:
		return assignments.Wait{}
	case errors.As(err, &content):
		return assignments.Wait{State: bundle.Pending, Reason: assignments.ReasonSiteValueMissing, Message: content.Text}
	}
	return assignments.Wait{State: bundle.Pending, Reason: assignments.ReasonSiteFolderNotMade, Message: bundle.Clip(err.Error())}
}

// errOther is the error of an assignment whose record has other values than the pass.
var errOther = errors.New("its site values have changed since")

func (s *Site) copyOf(r assignments.Record, adapter string) (folder string, values shared.Values, err error) {
	s.mu.RLock()
	now := s.now
	s.mu.RUnlock()
	values = now.used(r.Spec)
	if len(values) != len(r.Spec.SiteValues) || identity(values) != r.Values {
		return "", nil, errOther
	}
	if !slices.Contains(replacing, adapter) || r.Spec.Content == "" {
		return "", values, nil
	}
	folder, err = s.folders.make(r.Spec.Content, s.files.Folder(r.Spec.Content), values, adapter == "directory")
	return folder, values, err
}

// Complete gives an assignment that an engine is to get its values, and the folder with them. An error has the result of the
// call: the engine is not called then.
func (s *Site) Complete(_ context.Context, r assignments.Record, a *reconcilers.Assignment) error {
	if r.Values == "" {
		return nil
	}
	folder, values, err := s.copyOf(r, a.Adapter)
	if err != nil {
		return &reconcilers.Error{Reason: assignments.ReasonSiteFolderNotMade, Err: err}
	}
	a.Values, a.ValuesDigest = values.Texts(r.Spec.SiteValues), r.Values
	if folder != "" {
		a.Dir = folder
	}
	return nil
}

// Prune deletes the copies of files that none of the records needs. Adapter returns the adapter of an assignment.
func (s *Site) Prune(records []assignments.Record, adapter func(bundle.Assignment) string) error {
	keep := map[string]bool{}
	for _, r := range records {
		if r.Values != "" && !r.Removing {
			keep[folderName(r.Spec.Content, r.Values, adapter(r.Spec) == "directory")] = true
		}
	}
	if err := s.folders.prune(keep); err != nil {
		return state.Local("clean up %s: %w", filepath.Join(s.db.Dir(), content.SitesDir), err)
	}
	return nil
}

// Reported lists the values that records use, without the values.
func (s Saved) Reported(records []assignments.Record) []bundle.SiteValue {
	used := map[string]bool{}
	for _, r := range records {
		for _, key := range r.Spec.SiteValues {
			used[key] = used[key] || !r.Removing
		}
	}
	var all []bundle.SiteValue
	for _, key := range slices.Sorted(maps.Keys(used)) {
		if !used[key] || len(all) == bundle.MaxReportValues {
			continue
		}
		reported := bundle.SiteValue{Key: key}
		if v, ok := s.Values[key]; ok {
			reported.Source, reported.Digest = string(v.Source), digest.FromString(v.Text)
		}
		all = append(all, reported)
	}
	return all
}

// Check is the judgement on values that a site is about to set.
type Check struct {
	// Values is the number of keys.
	Values int `json:"values"`
	// Problems are mistakes in the values, and values that assignments use and that would be missing. Empty means that the
	// values are fine.
	Problems []string `json:"problems"`
	// Changes lists the keys that assignments use and whose values would change, and Assignments those assignments.
	Changes     []string `json:"changes"`
	Assignments []string `json:"assignments"`
}

// Try judges own values that would take the place of those at place, by the release that runs. Document returns a file of
// its tree, as for Site.Resolve. Before is what the state file has.
func Try(own Own, place string, before Saved, document func(name string) ([]byte, error), facts shared.Facts, records []assignments.Record) (Check, error) {
	next := resolved{saved: Saved{Place: place, Own: own}}
	c := Check{Values: len(own.Values), Problems: []string{}, Changes: []string{}, Assignments: []string{}}
	if err := next.resolve(document, facts); err != nil {
		return c, fmt.Errorf("what the release says about site values cannot be read: %w", err)
	}
	var earlier resolved
	earlier.keep(before)
	used, changed := map[string]bool{}, map[string]bool{}
	for _, r := range records {
		if r.Removing || len(r.Spec.SiteValues) == 0 {
			continue
		}
		for _, key := range r.Spec.SiteValues {
			used[key] = true
			if before, now := earlier.values[key], next.values[key]; before.Text != now.Text {
				changed[key] = true
			}
		}
		if identity(earlier.used(r.Spec)) != identity(next.used(r.Spec)) {
			c.Assignments = append(c.Assignments, r.Spec.Name)
		}
	}
	c.Changes = append(c.Changes, slices.Sorted(maps.Keys(changed))...)
	for _, p := range next.saved.Problems {
		if p.Source == shared.FromSite || p.Required || used[p.Key] {
			c.Problems = append(c.Problems, next.saved.Locate(p))
		}
	}
	return c, nil
}

// Status lists the values of a site. As it contains the values, it is only for people on the machine.
type Status struct {
	// Place is the place of the site's own values, and Broken the error of the last attempt to read it.
	Place  string `json:"place,omitempty"`
	Broken string `json:"broken,omitempty"`
	// Unreadable is the error of reading the release's declaration.
	Unreadable string        `json:"unreadable,omitempty"`
	Values     []ValueStatus `json:"values"`
}

// ValueStatus is one value, or a key without one.
type ValueStatus struct {
	Key string `json:"key"`
	// Value is a text, a number or a boolean, and absent if there is no valid one. Source is its origin, and From the
	// template of which it is composed.
	Value  any           `json:"value,omitempty"`
	Source shared.Source `json:"source,omitempty"`
	From   string        `json:"from,omitempty"`
	// Problem is the reason why there is no valid value, with the place to mend it.
	Problem string `json:"problem,omitempty"`
	// Required is true for a key that the declaration requires of every cluster.
	Required bool `json:"required,omitempty"`
	// UsedBy lists the assignments that use it.
	UsedBy []string `json:"usedBy"`
}

// Status returns the status of the values for these records. Facts are those of the cluster, for a state file without values.
func (s Saved) Status(records []assignments.Record, facts shared.Facts) Status {
	if s.Values == nil {
		values, _ := shared.Resolve(nil, nil, nil, facts)
		s.Values = map[string]Value{}
		for key, v := range values {
			s.Values[key] = Value{v.Any, v.Text, v.Source, v.From}
		}
	}
	by := map[string]*ValueStatus{}
	at := func(key string) *ValueStatus {
		if by[key] == nil {
			by[key] = &ValueStatus{Key: key, UsedBy: []string{}}
		}
		return by[key]
	}
	for key, v := range s.Values {
		status := at(key)
		status.Value, status.Source, status.From = v.Value, v.Source, v.From
	}
	for _, p := range s.Problems {
		status := at(p.Key)
		status.Problem, status.Required = s.Locate(p), p.Required
	}
	for _, r := range records {
		for _, key := range r.Spec.SiteValues {
			if status := at(key); !r.Removing {
				status.UsedBy = append(status.UsedBy, r.Spec.Name)
				if status.Source == "" && status.Problem == "" {
					status.Problem = s.Locate(shared.ProblemsOf([]string{key}, nil, nil)[0])
				}
			}
		}
	}
	st := Status{Place: s.Place, Broken: s.Broken, Unreadable: s.Unreadable, Values: []ValueStatus{}}
	for _, key := range slices.Sorted(maps.Keys(by)) {
		st.Values = append(st.Values, *by[key])
	}
	return st
}
