package forge

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
)

// azure speaks the REST API of Azure DevOps Services and Server, version 7.1. Section names are those of "Git" there.
type azure struct {
	*client
	place Place
}

const (
	azureVersion = "7.1"
	headRef      = "refs/heads/"
)

func (a *azure) path(format string, args ...any) string {
	return "/" + url.PathEscape(a.place.Owner) + "/_apis/git/repositories/" + url.PathEscape(a.place.Name) + fmt.Sprintf(format, args...)
}

func version() url.Values { return url.Values{"api-version": {azureVersion}} }

type azureRequest struct {
	Number      int    `json:"pullRequestId"`
	Title       string `json:"title"`
	Description string `json:"description"`
	Status      string `json:"status"` // active, abandoned, completed
	Source      string `json:"sourceRefName"`
	Target      string `json:"targetRefName"`
	Head        struct {
		Commit string `json:"commitId"`
	} `json:"lastMergeSourceCommit"`
	Fork *struct{} `json:"forkSource"`
}

func (a *azure) changeRequest(r azureRequest) ChangeRequest {
	c := ChangeRequest{
		Number: r.Number, URL: fmt.Sprintf("%s/pullrequest/%d", a.place.Web, r.Number),
		Source: strings.TrimPrefix(r.Source, headRef), Target: strings.TrimPrefix(r.Target, headRef), Head: r.Head.Commit,
		Title: r.Title, Body: r.Description, State: Open,
	}
	switch r.Status {
	case "completed":
		c.State = Merged
	case "abandoned":
		c.State = Closed
	}
	return c
}

// find is "Pull Requests - Get Pull Requests". Descriptions are cut there, to 400 characters.
func (a *azure) find(ctx context.Context, source string) ([]ChangeRequest, error) {
	query := version()
	query.Set("searchCriteria.sourceRefName", headRef+source)
	query.Set("searchCriteria.status", "all")
	query.Set("$top", strconv.Itoa(perPage))
	var found []ChangeRequest
	err := pages(func(page int) (bool, error) {
		query.Set("$skip", strconv.Itoa((page-1)*perPage))
		var list struct {
			Value []azureRequest `json:"value"`
		}
		_, err := a.call(ctx, http.MethodGet, a.path("/pullrequests"), query, nil, &list)
		for _, r := range list.Value {
			if r.Source == headRef+source && r.Fork == nil {
				found = append(found, a.changeRequest(r))
			}
		}
		return len(list.Value) == perPage, err
	})
	return found, err
}

// ofCommit asks nothing: a query of Azure DevOps finds merge commits alone.
func (a *azure) ofCommit(context.Context, string) ([]ChangeRequest, error) { return nil, nil }

// get is "Pull Requests - Get Pull Request".
func (a *azure) get(ctx context.Context, number int) (ChangeRequest, error) {
	var r azureRequest
	_, err := a.call(ctx, http.MethodGet, a.path("/pullrequests/%d", number), version(), nil, &r)
	return a.changeRequest(r), err
}

// open is "Pull Requests - Create". It answers 409 (TF401179) where there is one already.
func (a *azure) open(ctx context.Context, p Proposal) (ChangeRequest, error) {
	in := map[string]string{"sourceRefName": headRef + p.Source, "targetRefName": headRef + p.Target, "title": p.Title, "description": p.Body}
	var r azureRequest
	_, err := a.call(ctx, http.MethodPost, a.path("/pullrequests"), version(), in, &r)
	return a.changeRequest(r), err
}

// update is "Pull Requests - Update".
func (a *azure) update(ctx context.Context, number int, title, body string) (ChangeRequest, error) {
	var r azureRequest
	_, err := a.call(ctx, http.MethodPatch, a.path("/pullrequests/%d", number), version(), map[string]string{"title": title, "description": body}, &r)
	return a.changeRequest(r), err
}

// label is "Pull Request Labels - Create".
func (a *azure) label(ctx context.Context, number int, name string) error {
	_, err := a.call(ctx, http.MethodPost, a.path("/pullRequests/%d/labels", number), version(), map[string]string{"name": name}, nil)
	return err
}

// close is "Pull Requests - Update" with status.
func (a *azure) close(ctx context.Context, number int) error {
	_, err := a.call(ctx, http.MethodPatch, a.path("/pullrequests/%d", number), version(), map[string]string{"status": "abandoned"}, nil)
	return err
}

type azureComment struct {
	ID      int    `json:"id,omitempty"`
	Parent  int    `json:"parentCommentId"`
	Content string `json:"content"`
	Type    string `json:"commentType"`
	Deleted bool   `json:"isDeleted,omitempty"`
	Author  *struct {
		ID string `json:"id"`
	} `json:"author,omitempty"`
}

type azureThread struct {
	ID       int            `json:"id,omitempty"`
	Status   string         `json:"status"`
	Comments []azureComment `json:"comments"`
	Deleted  bool           `json:"isDeleted,omitempty"`
}

// comments is "Pull Request Threads - List". The first comment of a thread is what the thread is about.
func (a *azure) comments(ctx context.Context, number int) (found []Comment, err error) {
	var list struct {
		Value []azureThread `json:"value"`
	}
	_, err = a.call(ctx, http.MethodGet, a.path("/pullRequests/%d/threads", number), version(), nil, &list)
	for _, t := range list.Value {
		if !t.Deleted && len(t.Comments) > 0 && !t.Comments[0].Deleted && t.Comments[0].Type != "system" {
			c := Comment{ID: t.Comments[0].ID, Body: t.Comments[0].Content, thread: t.ID}
			if t.Comments[0].Author != nil {
				c.author = t.Comments[0].Author.ID
			}
			found = append(found, c)
		}
	}
	return found, err
}

// account is "Connection Data - Get", which is a preview for ever.
func (a *azure) account(ctx context.Context) (string, error) {
	var data struct {
		User struct {
			ID string `json:"id"`
		} `json:"authenticatedUser"`
	}
	_, err := a.call(ctx, http.MethodGet, "/_apis/connectionData", url.Values{"api-version": {azureVersion + "-preview"}}, nil, &data)
	return data.User.ID, err
}

// addComment is "Pull Request Threads - Create". The thread is closed, so that it does not ask for an answer.
func (a *azure) addComment(ctx context.Context, number int, body string) (Comment, error) {
	in := azureThread{Status: "closed", Comments: []azureComment{{Content: body, Type: "text"}}}
	var t azureThread
	_, err := a.call(ctx, http.MethodPost, a.path("/pullRequests/%d/threads", number), version(), in, &t)
	if err != nil || len(t.Comments) == 0 {
		return Comment{}, err
	}
	return Comment{ID: t.Comments[0].ID, Body: t.Comments[0].Content, thread: t.ID}, nil
}

// editComment is "Pull Request Thread Comments - Update".
func (a *azure) editComment(ctx context.Context, number int, c Comment, body string) error {
	path := a.path("/pullRequests/%d/threads/%d/comments/%d", number, c.thread, c.ID)
	_, err := a.call(ctx, http.MethodPatch, path, version(), map[string]string{"content": body}, nil)
	return err
}

type azureStatus struct {
	State       string `json:"state"` // pending, succeeded, failed, error
	Description string `json:"description"`
	TargetURL   string `json:"targetUrl,omitempty"`
	Context     struct {
		Name  string `json:"name"`
		Genre string `json:"genre"`
	} `json:"context"`
}

var azureStates = map[StatusState]string{Pending: "pending", Success: "succeeded", Failure: "failed"}

// azureContext splits a context at its first slash into genre and name, as Azure DevOps shows them.
func (s *azureStatus) setContext(name string) {
	s.Context.Genre, s.Context.Name, _ = strings.Cut(name, "/")
	if s.Context.Name == "" {
		s.Context.Genre, s.Context.Name = "", name
	}
}

// status is "Statuses - List", the newest of each context.
func (a *azure) status(ctx context.Context, commit, name string) (Status, error) {
	query := version()
	query.Set("latestOnly", "true")
	var list struct {
		Value []azureStatus `json:"value"`
	}
	_, err := a.call(ctx, http.MethodGet, a.path("/commits/%s/statuses", url.PathEscape(commit)), query, nil, &list)
	var wanted azureStatus
	wanted.setContext(name)
	for _, s := range list.Value {
		if s.Context != wanted.Context {
			continue
		}
		for state, word := range azureStates {
			if s.State == word {
				return Status{Context: name, State: state, Description: s.Description, URL: s.TargetURL}, err
			}
		}
	}
	return Status{}, err
}

// setStatus is "Statuses - Create".
func (a *azure) setStatus(ctx context.Context, commit string, s Status) error {
	in := azureStatus{State: azureStates[s.State], Description: s.Description, TargetURL: s.URL}
	in.setContext(s.Context)
	_, err := a.call(ctx, http.MethodPost, a.path("/commits/%s/statuses", url.PathEscape(commit)), version(), in, nil)
	return err
}
