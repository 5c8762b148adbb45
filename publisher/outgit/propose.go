package outgit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/wherry-dev/wherry/publisher/forge"
	"github.com/wherry-dev/wherry/scheduler"
)

// Action is what a run did about the change request.
type Action string

// The actions of [Propose].
const (
	Opened    Action = "opened"
	Updated   Action = "updated"
	Unchanged Action = "unchanged"
	Withdrawn Action = "withdrawn" // closed by us: the branch has the content already
	Declined  Action = "declined"  // a person closed one with this content, so there is none
	None      Action = "none"      // the branch has the content, and nothing was proposed
)

// Proposal is about the change request of an environment.
type Proposal struct {
	Action  Action
	Request forge.ChangeRequest // none for None
	// Promoted reports whether the base commit changes.
	Promoted bool
	// TheirText is true if somebody replaced the text of the change request, which is left alone then.
	TheirText bool
}

// Requests is the part of a forge that is needed here, which [forge.Repository] has.
type Requests interface {
	Find(ctx context.Context, source string) ([]forge.ChangeRequest, error)
	Get(ctx context.Context, number int) (forge.ChangeRequest, error)
	Open(ctx context.Context, p forge.Proposal) (forge.ChangeRequest, error)
	Update(ctx context.Context, number int, title, body string) (forge.ChangeRequest, error)
	Label(ctx context.Context, number int, name string) error
	Close(ctx context.Context, number int) error
}

// WorkBranchOf returns the branch that the change requests of an environment come from. It begins as Kalypso's do.
func WorkBranchOf(environment string) string { return "deployment/" + environment }

// PromotedLabel is Kalypso's label for a change request that changes the base commit. The check-promote workflow of its
// GitOps repositories looks for it.
const PromotedLabel = "promoted"

// ErrWorkBranch is returned for a work branch whose name git does not take, or that is the branch to change.
var ErrWorkBranch = errors.New("cannot be the work branch")

// ForeignBranchError means that the newest commit of the work branch is not one that this environment's runs made.
type ForeignBranchError struct{ Branch, Commit, Author, Subject string }

func (e *ForeignBranchError) Error() string {
	return fmt.Sprintf("branch %s has a commit that wherry did not make for this environment: %.12s %q by %s", e.Branch, e.Commit, e.Subject, e.Author)
}

// Propose commits a result to the work branch of its environment and keeps one change request from there to the target's
// branch, which must exist. The work branch is always one commit ahead of the target's. It is moved only if its newest
// commit is ours; otherwise the error is a [*ForeignBranchError].
func Propose(ctx context.Context, f Requests, t Target, result *scheduler.Result, o Options) (Outcome, error) {
	return propose(ctx, f, t, &rendered{result}, cmp.Or(o.WorkBranch, WorkBranchOf(result.Environment)), o)
}

func propose(ctx context.Context, f Requests, t Target, what job, work string, o Options) (Outcome, error) {
	if checkBranch(work) != nil || work == t.Branch {
		return Outcome{}, fmt.Errorf("%q %w", work, ErrWorkBranch)
	}
	all, err := requests(ctx, f, work, t.Branch)
	if err != nil {
		return Outcome{}, err
	}
	p := proposer{forge: f, target: t, work: work, what: what, content: what.content()}
	if len(all) > 0 {
		p.last = all[0]
	}
	p.declined = p.declinedOf(all)
	outcome, err := run(ctx, t, o, func(r repository, o Options) (Outcome, error) { return p.push(ctx, r, o) })
	if err != nil || outcome.Proposal.Action != "" {
		return outcome, err
	}
	return p.propose(ctx, outcome)
}

// proposer is one run of Propose.
type proposer struct {
	forge  Requests
	target Target
	work   string
	last   forge.ChangeRequest // the open one, else the newest; its number is zero if there is none
	// declined is the change request with this content that a person closed; its number is zero if there is none.
	declined forge.ChangeRequest
	what     job
	content  string
}

// requests returns the change requests between two branches, an open one first and then the newest.
func requests(ctx context.Context, f Requests, work, branch string) ([]forge.ChangeRequest, error) {
	all, err := f.Find(ctx, work)
	if err != nil {
		return nil, err
	}
	all = slices.DeleteFunc(all, func(c forge.ChangeRequest) bool { return c.Target != branch })
	slices.SortStableFunc(all, func(a, b forge.ChangeRequest) int {
		return cmp.Or(boolToInt(b.State == forge.Open)-boolToInt(a.State == forge.Open), b.Number-a.Number)
	})
	return all, nil
}

// declinedOf finds the change request that a person closed. What is rendered may be asked for again after others; an edit is a no for good.
func (p *proposer) declinedOf(all []forge.ChangeRequest) forge.ChangeRequest {
	for i, c := range all {
		if i > 0 && !p.what.keepsText() {
			break
		}
		if p.marked(c.Body) != p.content {
			continue
		}
		if c.State == forge.Closed {
			return c
		}
		break // the newest with this content is open, or was merged
	}
	return forge.ChangeRequest{}
}

func boolToInt(b bool) int {
	if b {
		return 1
	}
	return 0
}

// push moves the work branch to the content, unless that is proposed already, or is not to be.
func (p *proposer) push(ctx context.Context, r repository, o Options) (Outcome, error) {
	heads, err := r.heads(ctx, p.target.Branch, p.work)
	if err != nil {
		return Outcome{}, err
	}
	if heads[p.target.Branch] == "" {
		return Outcome{}, &MissingBranchError{p.target}
	}
	made, err := r.make(ctx, p.target, heads, p.what, o)
	switch {
	case err != nil:
		return made, err
	case !made.Pushed:
		return p.withdraw(ctx, made)
	case p.declined.Number != 0 && !o.Again:
		made.Pushed = false
		made.Proposal.Action, made.Proposal.Request = Declined, p.declined
		return made, nil
	}
	made.Branch = p.work
	old := heads[p.work]
	if old == "" {
		return made, r.push(ctx, made.Commit, p.work, old)
	}
	last, err := p.readOurs(ctx, r, old)
	if err != nil {
		return made, err
	}
	if last.parent == heads[p.target.Branch] && last.tree == made.tree {
		made.Commit, made.Pushed = old, false // rendered from other commits, to the same files
		return made, nil
	}
	return made, r.push(ctx, made.Commit, p.work, old)
}

// readOurs reads a commit of the work branch. It returns an error unless we made the commit and nobody changed it.
func (p *proposer) readOurs(ctx context.Context, r repository, commit string) (commitInfo, error) {
	info, err := r.info(ctx, commit)
	if err != nil || info.trailers[environmentTrailer] == p.what.environment() && info.trailers[treeTrailer] == info.tree {
		return info, err
	}
	return info, &ForeignBranchError{Branch: p.work, Commit: commit, Author: info.author, Subject: info.subject}
}

// withdraw closes our change request that the branch has left nothing of.
func (p *proposer) withdraw(ctx context.Context, o Outcome) (Outcome, error) {
	o.Proposal.Action = None
	if p.last.State != forge.Open || p.marked(p.last.Body) == "" {
		return o, nil
	}
	o.Proposal.Action, o.Proposal.Request = Withdrawn, p.last
	body := marker(p.what, "withdrawn") + "\n" + fmt.Sprintf("Closed: %s has this content already.\n", p.target.Branch)
	if _, err := p.forge.Update(ctx, p.last.Number, p.last.Title, body); err != nil {
		return o, err
	}
	return o, p.forge.Close(ctx, p.last.Number)
}

// propose opens the change request, or updates the one that is open.
func (p *proposer) propose(ctx context.Context, o Outcome) (Outcome, error) {
	title, body := p.what.title(p.target, p.work), p.what.body(o, p.work)
	var labels []string
	if o.Proposal.Promoted {
		labels = []string{PromotedLabel}
	}
	if p.last.State != forge.Open {
		request, err := p.forge.Open(ctx, forge.Proposal{Source: p.work, Target: p.target.Branch, Title: title, Body: body, Labels: labels})
		o.Proposal.Action, o.Proposal.Request = Opened, request
		return o, err
	}
	full, err := p.forge.Get(ctx, p.last.Number) // a list may cut the text
	if err != nil {
		return o, err
	}
	o.Proposal.Action, o.Proposal.Request = Unchanged, full
	if p.marked(full.Body) == "" {
		o.Proposal.TheirText = true
		if o.Pushed {
			o.Proposal.Action = Updated
		}
		return o, nil
	}
	if p.what.keepsText() && !o.Pushed && p.marked(full.Body) == p.content {
		title, body = full.Title, full.Body
	}
	if full.Title != title || full.Body != body || o.Pushed {
		o.Proposal.Action = Updated
		if o.Proposal.Request, err = p.forge.Update(ctx, full.Number, title, body); err != nil {
			return o, err
		}
	}
	for _, name := range labels {
		if err := p.forge.Label(ctx, full.Number, name); err != nil {
			return o, err
		}
	}
	return o, nil
}

// title is Kalypso's.
func (w *rendered) title(t Target, branch string) string {
	return fmt.Sprintf("Update manifests in %s from %s", t.Branch, branch)
}

// marker is the first line of our change requests' text. Forges that cut it in lists leave that line.
func marker(w job, content string) string {
	return forge.Marker(w.purpose(), w.environment(), content)
}

// marked returns the content that the text of a change request names; empty if it is not ours.
func (p *proposer) marked(body string) string {
	line, _, _ := strings.Cut(body, "\n")
	before, after, _ := strings.Cut(marker(p.what, "\x00"), "\x00")
	rest, found := strings.CutPrefix(strings.TrimSpace(line), before)
	content, ended := strings.CutSuffix(rest, after)
	if !found || !ended {
		return ""
	}
	return content
}

// maxListed bounds the files that the text of a change request lists.
const maxListed = 40

// body is the text of the change request.
func (w *rendered) body(o Outcome, branch string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\nEnvironment `%s`, rendered by wherry: %d written, %d removed, %d unchanged.\n\n",
		marker(w, w.content()), w.result.Environment, len(o.Written), len(o.Removed), o.Unchanged)
	if w.result.BaseCommit != "" {
		fmt.Fprintf(&b, "Base commit: %s\n\n", w.result.BaseCommit)
	}
	failed := 0
	for _, ct := range w.result.ClusterTypes {
		failed += len(ct.Failures)
	}
	if failed > 0 {
		fmt.Fprintf(&b, "Failed assignments, which keep their files: %d\n\n", failed)
	}
	listed := 0
	for _, part := range []struct {
		name  string
		files []string
	}{{"Removed", o.Removed}, {"Written", o.Written}} {
		for _, name := range part.files {
			if listed++; listed <= maxListed {
				fmt.Fprintf(&b, "- %s: `%s`\n", part.name, strings.ReplaceAll(name, "`", "'"))
			}
		}
	}
	if listed > maxListed {
		fmt.Fprintf(&b, "- … and %d more\n", listed-maxListed)
	}
	fmt.Fprintf(&b, "\nwherry keeps this text and the branch `%s` up to date. Close the request to decline this content.\n", branch)
	return b.String()
}
