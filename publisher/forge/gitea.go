package forge

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
)

// gitea speaks the API, version 1, of Gitea and Forgejo. Operation names are those of its Swagger document.
type gitea struct {
	*client
	owner, repository string
}

// giteaPerPage is what servers allow unless they are told otherwise ("MAX_RESPONSE_ITEMS").
const giteaPerPage = 50

// giteaClosedPages bounds how far back closed requests are looked at, since the list has no filter for a branch.
const giteaClosedPages = 4

func (g *gitea) path(format string, args ...any) string {
	return "/repos/" + url.PathEscape(g.owner) + "/" + url.PathEscape(g.repository) + fmt.Sprintf(format, args...)
}

type giteaRequest struct {
	githubRequest
	Merged bool `json:"merged"`
}

func (r giteaRequest) changeRequest() ChangeRequest {
	c := r.githubRequest.changeRequest()
	if r.Merged {
		c.State = Merged
	}
	return c
}

// find is repoListPullRequests. All that are open are read, and of those that are not as many as changed lately.
func (g *gitea) find(ctx context.Context, source string) ([]ChangeRequest, error) {
	var found []ChangeRequest
	for _, state := range []string{"open", "closed"} {
		query := url.Values{"state": {state}, "sort": {"recentupdate"}, "limit": {strconv.Itoa(giteaPerPage)}}
		err := pages(func(page int) (bool, error) {
			query.Set("page", strconv.Itoa(page))
			var list []giteaRequest
			_, err := g.call(ctx, http.MethodGet, g.path("/pulls"), query, nil, &list)
			for _, r := range list {
				if r.Head.Ref == source && r.Head.Repository != nil && strings.EqualFold(r.Head.Repository.FullName, g.owner+"/"+g.repository) {
					found = append(found, r.changeRequest())
				}
			}
			return len(list) > 0 && (state == "open" || page < giteaClosedPages), err // a server may give shorter pages
		})
		if err != nil {
			return nil, err
		}
	}
	return found, nil
}

// ofCommit is repoGetCommitPullRequest, which answers 404 for a commit without one.
func (g *gitea) ofCommit(ctx context.Context, commit string) ([]ChangeRequest, error) {
	var r giteaRequest
	_, err := g.call(ctx, http.MethodGet, g.path("/commits/%s/pull", url.PathEscape(commit)), nil, nil, &r)
	if errors.Is(err, ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return []ChangeRequest{r.changeRequest()}, nil
}

// get is repoGetPullRequest.
func (g *gitea) get(ctx context.Context, number int) (ChangeRequest, error) {
	var r giteaRequest
	_, err := g.call(ctx, http.MethodGet, g.path("/pulls/%d", number), nil, nil, &r)
	return r.changeRequest(), err
}

// open is repoCreatePullRequest. It answers 409 where there is one already.
func (g *gitea) open(ctx context.Context, p Proposal) (ChangeRequest, error) {
	in := map[string]string{"title": p.Title, "body": p.Body, "head": p.Source, "base": p.Target}
	var r giteaRequest
	_, err := g.call(ctx, http.MethodPost, g.path("/pulls"), nil, in, &r)
	return r.changeRequest(), err
}

// update is repoEditPullRequest.
func (g *gitea) update(ctx context.Context, number int, title, body string) (ChangeRequest, error) {
	var r giteaRequest
	_, err := g.call(ctx, http.MethodPatch, g.path("/pulls/%d", number), nil, map[string]string{"title": title, "body": body}, &r)
	return r.changeRequest(), err
}

type giteaLabel struct {
	ID    int    `json:"id,omitempty"`
	Name  string `json:"name"`
	Color string `json:"color,omitempty"`
}

// label is issueAddLabel, which wants the number of a label that exists: issueListLabels, issueCreateLabel.
func (g *gitea) label(ctx context.Context, number int, name string) error {
	var label giteaLabel
	err := pages(func(page int) (bool, error) {
		var list []giteaLabel
		query := url.Values{"limit": {strconv.Itoa(giteaPerPage)}, "page": {strconv.Itoa(page)}}
		_, err := g.call(ctx, http.MethodGet, g.path("/labels"), query, nil, &list)
		for _, l := range list {
			if l.Name == name {
				label = l
				return false, err
			}
		}
		return len(list) > 0, err
	})
	if err != nil {
		return err
	}
	if label.ID == 0 {
		if _, err := g.call(ctx, http.MethodPost, g.path("/labels"), nil, giteaLabel{Name: name, Color: "#0e8a16"}, &label); err != nil {
			return err
		}
	}
	_, err = g.call(ctx, http.MethodPost, g.path("/issues/%d/labels", number), nil, map[string][]int{"labels": {label.ID}}, nil)
	return err
}

// close is repoEditPullRequest with state.
func (g *gitea) close(ctx context.Context, number int) error {
	_, err := g.call(ctx, http.MethodPatch, g.path("/pulls/%d", number), nil, map[string]string{"state": "closed"}, nil)
	return err
}

// comments is issueGetComments, which has no pages.
func (g *gitea) comments(ctx context.Context, number int) (found []Comment, err error) {
	var list []issueComment
	_, err = g.call(ctx, http.MethodGet, g.path("/issues/%d/comments", number), nil, nil, &list)
	for _, c := range list {
		found = append(found, Comment{ID: c.ID, Body: c.Body, author: c.User.account()})
	}
	return found, err
}

// account is userGetCurrent.
func (g *gitea) account(ctx context.Context) (string, error) {
	var own user
	_, err := g.call(ctx, http.MethodGet, "/user", nil, nil, &own)
	return own.account(), err
}

// addComment is issueCreateComment.
func (g *gitea) addComment(ctx context.Context, number int, body string) (Comment, error) {
	var c issueComment
	_, err := g.call(ctx, http.MethodPost, g.path("/issues/%d/comments", number), nil, map[string]string{"body": body}, &c)
	return Comment{ID: c.ID, Body: c.Body}, err
}

// editComment is issueEditComment.
func (g *gitea) editComment(ctx context.Context, _ int, c Comment, body string) error {
	_, err := g.call(ctx, http.MethodPatch, g.path("/issues/comments/%d", c.ID), nil, map[string]string{"body": body}, nil)
	return err
}

// status is repoListStatuses. Its field "status" is what "state" is when one is made.
func (g *gitea) status(ctx context.Context, commit, name string) (Status, error) {
	var list []struct {
		commitStatus
		Status string `json:"status"`
	}
	query := url.Values{"sort": {"recentupdate"}, "limit": {strconv.Itoa(giteaPerPage)}}
	_, err := g.call(ctx, http.MethodGet, g.path("/statuses/%s", url.PathEscape(commit)), query, nil, &list)
	var statuses []commitStatus
	for _, s := range list {
		s.State = s.Status
		statuses = append(statuses, s.commitStatus)
	}
	return newest(statuses, name), err
}

// setStatus is repoCreateStatus.
func (g *gitea) setStatus(ctx context.Context, commit string, s Status) error {
	in := commitStatus{Context: s.Context, State: string(s.State), Description: s.Description, TargetURL: s.URL}
	_, err := g.call(ctx, http.MethodPost, g.path("/statuses/%s", url.PathEscape(commit)), nil, in, nil)
	return err
}
