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

// github speaks GitHub's REST API, version 2022-11-28. Section names are those of its documentation.
type github struct {
	*client
	owner, repository string
}

const perPage = 100

type githubBranch struct {
	Ref        string `json:"ref"`
	SHA        string `json:"sha"`
	Repository *struct {
		FullName string `json:"full_name"`
	} `json:"repo"` // null where a fork was deleted
}

type githubRequest struct {
	Number   int          `json:"number"`
	HTML     string       `json:"html_url"`
	Title    string       `json:"title"`
	Body     string       `json:"body"` // null, where there is none
	State    string       `json:"state"`
	MergedAt *string      `json:"merged_at"`
	Head     githubBranch `json:"head"`
	Base     githubBranch `json:"base"`
}

func (r githubRequest) changeRequest() ChangeRequest {
	c := ChangeRequest{
		Number: r.Number, URL: r.HTML, Source: r.Head.Ref, Target: r.Base.Ref, Head: r.Head.SHA,
		Title: r.Title, Body: r.Body, State: Open,
	}
	switch {
	case r.MergedAt != nil:
		c.State = Merged
	case r.State == "closed":
		c.State = Closed
	}
	return c
}

func (g *github) path(format string, args ...any) string {
	return "/repos/" + url.PathEscape(g.owner) + "/" + url.PathEscape(g.repository) + fmt.Sprintf(format, args...)
}

// find is "List pull requests", whose filter head names the user too.
func (g *github) find(ctx context.Context, source string) ([]ChangeRequest, error) {
	query := url.Values{
		"state": {"all"}, "head": {g.owner + ":" + source}, "sort": {"created"}, "direction": {"desc"}, "per_page": {strconv.Itoa(perPage)},
	}
	var found []ChangeRequest
	err := pages(func(page int) (bool, error) {
		query.Set("page", strconv.Itoa(page))
		var list []githubRequest
		_, err := g.call(ctx, http.MethodGet, g.path("/pulls"), query, nil, &list)
		for _, r := range list {
			if r.Head.Ref == source && r.Head.Repository != nil && strings.EqualFold(r.Head.Repository.FullName, g.owner+"/"+g.repository) {
				found = append(found, r.changeRequest())
			}
		}
		return len(list) == perPage, err
	})
	return found, err
}

// ofCommit is "List pull requests associated with a commit".
func (g *github) ofCommit(ctx context.Context, commit string) (found []ChangeRequest, err error) {
	var list []githubRequest
	_, err = g.call(ctx, http.MethodGet, g.path("/commits/%s/pulls", url.PathEscape(commit)), url.Values{"per_page": {strconv.Itoa(perPage)}, "page": {"1"}}, nil, &list)
	for _, r := range list {
		found = append(found, r.changeRequest())
	}
	return found, err
}

// get is "Get a pull request".
func (g *github) get(ctx context.Context, number int) (ChangeRequest, error) {
	var r githubRequest
	_, err := g.call(ctx, http.MethodGet, g.path("/pulls/%d", number), nil, nil, &r)
	return r.changeRequest(), err
}

// open is "Create a pull request". It answers 422 where there is one already, among other things.
func (g *github) open(ctx context.Context, p Proposal) (ChangeRequest, error) {
	in := map[string]string{"title": p.Title, "body": p.Body, "head": p.Source, "base": p.Target}
	var r githubRequest
	_, err := g.call(ctx, http.MethodPost, g.path("/pulls"), nil, in, &r)
	var e *Error
	if errors.As(err, &e) && e.Status == http.StatusUnprocessableEntity && strings.Contains(e.Message, "already exists") {
		e.Err = ErrConflict
	}
	return r.changeRequest(), err
}

// update is "Update a pull request".
func (g *github) update(ctx context.Context, number int, title, body string) (ChangeRequest, error) {
	var r githubRequest
	_, err := g.call(ctx, http.MethodPatch, g.path("/pulls/%d", number), nil, map[string]string{"title": title, "body": body}, &r)
	return r.changeRequest(), err
}

// label is "Add labels to an issue", which makes the label if need be.
func (g *github) label(ctx context.Context, number int, name string) error {
	_, err := g.call(ctx, http.MethodPost, g.path("/issues/%d/labels", number), nil, map[string][]string{"labels": {name}}, nil)
	return err
}

type issueComment struct {
	ID   int    `json:"id"`
	Body string `json:"body"`
	// User is the author at GitHub and Gitea, Author at GitLab.
	User   user `json:"user"`
	Author user `json:"author"`
}

// user is an account. A login may be given to another account later, and an id is not.
type user struct {
	ID    int    `json:"id"`
	Login string `json:"login"`
}

func (u user) account() string {
	if u.ID == 0 {
		return ""
	}
	return strconv.Itoa(u.ID)
}

// account is "Get the authenticated user". Tokens of an app, such as those of GitHub Actions, have no user; GraphQL's viewer is
// their bot.
func (g *github) account(ctx context.Context) (string, error) {
	var own user
	_, err := g.call(ctx, http.MethodGet, "/user", nil, nil, &own)
	if !errors.Is(err, ErrForbidden) && !errors.Is(err, ErrNotFound) {
		return own.account(), err
	}
	graph := *g.client
	graph.place.API = strings.TrimSuffix(graph.place.API, "/v3")
	var answer struct {
		Data struct {
			Viewer struct {
				ID int `json:"databaseId"`
			} `json:"viewer"`
		} `json:"data"`
	}
	_, err = graph.call(ctx, http.MethodPost, "/graphql", nil, map[string]string{"query": "{viewer{databaseId}}"}, &answer)
	return user{ID: answer.Data.Viewer.ID}.account(), err
}

// close is "Update a pull request" with state.
func (g *github) close(ctx context.Context, number int) error {
	_, err := g.call(ctx, http.MethodPatch, g.path("/pulls/%d", number), nil, map[string]string{"state": "closed"}, nil)
	return err
}

// comments is "List issue comments": those on the request as such are an issue's.
func (g *github) comments(ctx context.Context, number int) (found []Comment, err error) {
	query := url.Values{"per_page": {strconv.Itoa(perPage)}}
	err = pages(func(page int) (bool, error) {
		query.Set("page", strconv.Itoa(page))
		var list []issueComment
		_, err := g.call(ctx, http.MethodGet, g.path("/issues/%d/comments", number), query, nil, &list)
		for _, c := range list {
			found = append(found, Comment{ID: c.ID, Body: c.Body, author: c.User.account()})
		}
		return len(list) == perPage, err
	})
	return found, err
}

// addComment is "Create an issue comment".
func (g *github) addComment(ctx context.Context, number int, body string) (Comment, error) {
	var c issueComment
	_, err := g.call(ctx, http.MethodPost, g.path("/issues/%d/comments", number), nil, map[string]string{"body": body}, &c)
	return Comment{ID: c.ID, Body: c.Body}, err
}

// editComment is "Update an issue comment".
func (g *github) editComment(ctx context.Context, _ int, c Comment, body string) error {
	_, err := g.call(ctx, http.MethodPatch, g.path("/issues/comments/%d", c.ID), nil, map[string]string{"body": body}, nil)
	return err
}

type commitStatus struct {
	Context     string `json:"context"`
	State       string `json:"state"`
	Description string `json:"description"`
	TargetURL   string `json:"target_url"`
}

// status is "List commit statuses for a reference", the newest first. The first page has what a repetition looks for.
func (g *github) status(ctx context.Context, commit, name string) (Status, error) {
	var list []commitStatus
	_, err := g.call(ctx, http.MethodGet, g.path("/commits/%s/statuses", url.PathEscape(commit)), url.Values{"per_page": {strconv.Itoa(perPage)}}, nil, &list)
	return newest(list, name), missingCommit(err)
}

// newest returns the first status of a context.
func newest(list []commitStatus, name string) Status {
	for _, s := range list {
		if s.Context == name {
			return Status{Context: name, State: StatusState(s.State), Description: s.Description, URL: s.TargetURL}
		}
	}
	return Status{}
}

// setStatus is "Create a commit status".
func (g *github) setStatus(ctx context.Context, commit string, s Status) error {
	in := commitStatus{Context: s.Context, State: string(s.State), Description: s.Description, TargetURL: s.URL}
	_, err := g.call(ctx, http.MethodPost, g.path("/statuses/%s", url.PathEscape(commit)), nil, in, nil)
	return missingCommit(err)
}

// missingCommit turns GitHub's 422 for a commit that it does not have into ErrNotFound.
func missingCommit(err error) error {
	var e *Error
	if errors.As(err, &e) && e.Status == http.StatusUnprocessableEntity && strings.Contains(e.Message, "No commit found") {
		e.Err = ErrNotFound
	}
	return err
}
