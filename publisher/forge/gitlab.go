package forge

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
)

// gitlab speaks GitLab's REST API, version 4. Section names are those of its documentation.
type gitlab struct {
	*client
	project string // GROUP/NAME
}

type gitlabRequest struct {
	Number        int    `json:"iid"`
	Web           string `json:"web_url"`
	Title         string `json:"title"`
	Description   string `json:"description"`
	State         string `json:"state"` // opened, closed, locked while it is merged, merged
	Source        string `json:"source_branch"`
	Target        string `json:"target_branch"`
	SHA           string `json:"sha"`
	SourceProject int    `json:"source_project_id"`
	TargetProject int    `json:"target_project_id"`
}

func (r gitlabRequest) changeRequest() ChangeRequest {
	c := ChangeRequest{
		Number: r.Number, URL: r.Web, Source: r.Source, Target: r.Target, Head: r.SHA,
		Title: r.Title, Body: r.Description, State: Open,
	}
	switch r.State {
	case "merged":
		c.State = Merged
	case "closed":
		c.State = Closed
	}
	return c
}

// path names the project by its URL-encoded path, see REST API, "Namespaced paths".
func (g *gitlab) path(format string, args ...any) string {
	return "/projects/" + url.PathEscape(g.project) + fmt.Sprintf(format, args...)
}

// find is Merge requests API, "List project merge requests".
func (g *gitlab) find(ctx context.Context, source string) ([]ChangeRequest, error) {
	query := url.Values{
		"state": {"all"}, "scope": {"all"}, "source_branch": {source}, "order_by": {"created_at"}, "sort": {"desc"}, "per_page": {strconv.Itoa(perPage)},
	}
	var found []ChangeRequest
	err := pages(func(page int) (bool, error) {
		query.Set("page", strconv.Itoa(page))
		var list []gitlabRequest
		_, err := g.call(ctx, http.MethodGet, g.path("/merge_requests"), query, nil, &list)
		for _, r := range list {
			if r.Source == source && r.SourceProject == r.TargetProject {
				found = append(found, r.changeRequest())
			}
		}
		return len(list) == perPage, err
	})
	return found, err
}

// ofCommit is Commits API, "List merge requests associated with a commit".
func (g *gitlab) ofCommit(ctx context.Context, commit string) (found []ChangeRequest, err error) {
	var list []gitlabRequest
	_, err = g.call(ctx, http.MethodGet, g.path("/repository/commits/%s/merge_requests", url.PathEscape(commit)), url.Values{"per_page": {strconv.Itoa(perPage)}, "page": {"1"}}, nil, &list)
	for _, r := range list {
		found = append(found, r.changeRequest())
	}
	return found, err
}

// get is "Get single MR".
func (g *gitlab) get(ctx context.Context, number int) (ChangeRequest, error) {
	var r gitlabRequest
	_, err := g.call(ctx, http.MethodGet, g.path("/merge_requests/%d", number), nil, nil, &r)
	return r.changeRequest(), err
}

// open is "Create MR". It answers 409 where there is one already.
func (g *gitlab) open(ctx context.Context, p Proposal) (ChangeRequest, error) {
	in := map[string]string{"source_branch": p.Source, "target_branch": p.Target, "title": p.Title, "description": p.Body}
	var r gitlabRequest
	_, err := g.call(ctx, http.MethodPost, g.path("/merge_requests"), nil, in, &r)
	return r.changeRequest(), err
}

// update is "Update MR".
func (g *gitlab) update(ctx context.Context, number int, title, body string) (ChangeRequest, error) {
	var r gitlabRequest
	_, err := g.call(ctx, http.MethodPut, g.path("/merge_requests/%d", number), nil, map[string]string{"title": title, "description": body}, &r)
	return r.changeRequest(), err
}

// label is "Update MR" with add_labels, which makes the label if need be.
func (g *gitlab) label(ctx context.Context, number int, name string) error {
	_, err := g.call(ctx, http.MethodPut, g.path("/merge_requests/%d", number), nil, map[string]string{"add_labels": name}, nil)
	return err
}

// close is "Update MR" with state_event.
func (g *gitlab) close(ctx context.Context, number int) error {
	_, err := g.call(ctx, http.MethodPut, g.path("/merge_requests/%d", number), nil, map[string]string{"state_event": "close"}, nil)
	return err
}

// comments is Notes API, "List all merge request notes".
func (g *gitlab) comments(ctx context.Context, number int) (found []Comment, err error) {
	query := url.Values{"sort": {"asc"}, "order_by": {"created_at"}, "per_page": {strconv.Itoa(perPage)}}
	err = pages(func(page int) (bool, error) {
		query.Set("page", strconv.Itoa(page))
		var list []struct {
			issueComment
			System bool `json:"system"`
		}
		_, err := g.call(ctx, http.MethodGet, g.path("/merge_requests/%d/notes", number), query, nil, &list)
		for _, c := range list {
			if !c.System {
				found = append(found, Comment{ID: c.ID, Body: c.Body, author: c.Author.account()})
			}
		}
		return len(list) == perPage, err
	})
	return found, err
}

// account is "Get the current user".
func (g *gitlab) account(ctx context.Context) (string, error) {
	var own user
	_, err := g.call(ctx, http.MethodGet, "/user", nil, nil, &own)
	return own.account(), err
}

// addComment is "Create new merge request note".
func (g *gitlab) addComment(ctx context.Context, number int, body string) (Comment, error) {
	var c issueComment
	_, err := g.call(ctx, http.MethodPost, g.path("/merge_requests/%d/notes", number), nil, map[string]string{"body": body}, &c)
	return Comment{ID: c.ID, Body: c.Body}, err
}

// editComment is "Modify existing merge request note".
func (g *gitlab) editComment(ctx context.Context, number int, c Comment, body string) error {
	_, err := g.call(ctx, http.MethodPut, g.path("/merge_requests/%d/notes/%d", number, c.ID), nil, map[string]string{"body": body}, nil)
	return err
}

// status is Commits API, "List the statuses of a commit": the newest of each name, unless all are asked for.
func (g *gitlab) status(ctx context.Context, commit, name string) (Status, error) {
	var list []struct {
		ID          int    `json:"id"`
		Name        string `json:"name"`
		Status      string `json:"status"`
		Description string `json:"description"`
		TargetURL   string `json:"target_url"`
	}
	query := url.Values{"name": {name}, "per_page": {strconv.Itoa(perPage)}}
	_, err := g.call(ctx, http.MethodGet, g.path("/repository/commits/%s/statuses", url.PathEscape(commit)), query, nil, &list)
	last, id := Status{}, 0
	for _, s := range list {
		if s.Name == name && s.ID > id {
			id = s.ID
			last = Status{Context: name, State: StatusState(s.Status), Description: s.Description, URL: s.TargetURL}
		}
	}
	if last.State == "failed" {
		last.State = Failure
	}
	return last, err
}

// setStatus is "Set the pipeline status of a commit".
func (g *gitlab) setStatus(ctx context.Context, commit string, s Status) error {
	in := map[string]string{"state": string(s.State), "name": s.Context, "description": s.Description}
	if s.URL != "" {
		in["target_url"] = s.URL
	}
	if s.State == Failure {
		in["state"] = "failed"
	}
	_, err := g.call(ctx, http.MethodPost, g.path("/statuses/%s", url.PathEscape(commit)), nil, in, nil)
	return err
}
