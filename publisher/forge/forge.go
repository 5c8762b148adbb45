// Package forge talks to the server around a git repository: it opens and updates change requests, keeps one comment in
// each, and sets the status of a commit. Change request is the common word for a pull request (GitHub, Gitea, Forgejo,
// Azure DevOps) and a merge request (GitLab).
//
// Begin with [New], which finds out from the repository's URL which kind of forge it is and does no I/O:
//
//	repository, err := forge.New("https://github.com/contoso/gitops", forge.Options{Tokens: forge.TokensOf(os.Getenv)})
//	request, err := repository.Open(ctx, forge.Proposal{Source: "deployment/dev", Target: "dev", Title: "Update dev"})
//
// Every call may be repeated: it reads before it writes, so a call that was cut off, or whose answer was lost,
// makes nothing twice. Calls retry by themselves after passing failures: an answer of 429 that names a short time, one of the
// 500s, a network that fails, half an answer. Other failures are an [*Error], to be asked about with errors.Is.
//
// Nothing here deletes a branch or merges, and a change request is closed by [Repository.Close] alone. A token is sent to the forge's own host alone and is
// never part of an error.
//
// Each forge is tested against a server in the test's process, which refuses what that forge's API does not have;
// testdata/requests.md lists the requests of each operation.
package forge

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// State is the state of a change request.
type State string

// The states of a change request.
const (
	Open   State = "open"
	Merged State = "merged"
	Closed State = "closed" // without being merged
)

// ChangeRequest is a pull request or merge request between two branches of the repository.
type ChangeRequest struct {
	Number         int
	URL            string // for people
	Source, Target string // branches
	Head           string // the commit that Source had when the forge last looked
	Title, Body    string
	State          State
}

// Proposal is a change request to be opened.
type Proposal struct {
	Source, Target string // branches of the repository
	Title, Body    string
	Labels         []string // made where the forge does not have them
}

// Comment is a comment on a change request.
type Comment struct {
	ID   int
	Body string

	author string // the account, as account returns it
	thread int    // Azure DevOps keeps comments in threads
}

// StatusState is the state that a status gives a commit.
type StatusState string

// The states of a status. GitLab and Azure DevOps have own words for them.
const (
	Pending StatusState = "pending"
	Success StatusState = "success"
	Failure StatusState = "failure"
)

// Status is a mark on a commit, such as that of a check.
type Status struct {
	Context     string // tells it from the statuses of others, such as "wherry/render/dev"
	State       StatusState
	Description string // in at most 140 characters; the rest is cut
	URL         string // may be empty
}

// Repository is one repository at a forge. It may be used by several goroutines.
type Repository struct {
	place   Place
	api     api
	limits  limits
	retries retries
}

// api is what a kind of forge has to be able to do. Each method is one request, or a list's pages.
type api interface {
	// find lists the change requests from a branch of this repository, of all states, the newest first.
	find(ctx context.Context, source string) ([]ChangeRequest, error)
	// ofCommit lists the change requests that brought a commit, as far as the forge tells.
	ofCommit(ctx context.Context, commit string) ([]ChangeRequest, error)
	get(ctx context.Context, number int) (ChangeRequest, error)
	open(ctx context.Context, p Proposal) (ChangeRequest, error)
	update(ctx context.Context, number int, title, body string) (ChangeRequest, error)
	label(ctx context.Context, number int, name string) error
	close(ctx context.Context, number int) error
	comments(ctx context.Context, number int) ([]Comment, error)
	// account returns the account that the token is of, as the authors of comments are named.
	account(ctx context.Context) (string, error)
	addComment(ctx context.Context, number int, body string) (Comment, error)
	editComment(ctx context.Context, number int, c Comment, body string) error
	// status returns the newest status of a context, and an empty one if there is none.
	status(ctx context.Context, commit, context string) (Status, error)
	setStatus(ctx context.Context, commit string, s Status) error
}

// limits are the numbers of characters that a forge takes.
type limits struct{ body, comment int }

// Options are the options of [New]. The zero value is ready for use, without any token.
type Options struct {
	// Kind is needed for a host whose name does not say which forge it is.
	Kind Kind
	// API is the URL of the forge's API, for one that is not where its documentation says, such as a GitLab below a path.
	// Its host must be that of the repository.
	API string
	// Tokens holds the tokens to choose from; see [TokensOf]. A token in the repository's URL is taken before them.
	Tokens Tokens
	// Timeout bounds one request. Zero means 30 seconds.
	Timeout time.Duration
	// Transport may be nil, for http.DefaultTransport.
	Transport http.RoundTripper
	// Wait waits between attempts; nil waits by the clock.
	Wait func(ctx context.Context, d time.Duration) error
}

// New returns the repository at a URL. It does no I/O. The error wraps [ErrUnknownKind] for a host that needs Options.Kind.
func New(url string, o Options) (*Repository, error) {
	place, err := PlaceOf(url, o.Kind)
	if err != nil {
		return nil, err
	}
	if o.API != "" {
		if place.API, err = ownAPI(place, o.API); err != nil {
			return nil, err
		}
	}
	c := newClient(place, o)
	r := &Repository{place: place, retries: retries{wait: o.Wait}, limits: limits{body: 65_000, comment: 65_000}}
	switch place.Kind {
	case GitHub:
		r.api = &github{client: c, owner: place.Owner, repository: place.Name}
	case GitLab:
		r.api = &gitlab{client: c, project: place.Owner + "/" + place.Name}
	case Gitea:
		r.api = &gitea{client: c, owner: place.Owner, repository: place.Name}
	case Azure:
		r.api = &azure{client: c, place: place}
		r.limits.body = 4000 // Pull Requests - Update, "Description (up to 4000 characters)"
	}
	return r, nil
}

// Place returns the repository's place.
func (r *Repository) Place() Place { return r.place }

// Find lists the change requests from a branch of this repository, not of a fork, the newest first. Those that are merged
// or closed are among them.
func (r *Repository) Find(ctx context.Context, source string) (found []ChangeRequest, err error) {
	err = r.retries.do(ctx, "list change requests from "+source, func() error {
		found, err = r.api.find(ctx, source)
		return err
	})
	slices.SortStableFunc(found, func(a, b ChangeRequest) int { return b.Number - a.Number })
	return found, err
}

// OfCommit lists the change requests, also of forks, with which a commit came, as far as the forge tells: Azure DevOps is not asked, and Gitea
// and Forgejo name one at most. Look at their states and targets; a forge may name one that has the commit by chance.
func (r *Repository) OfCommit(ctx context.Context, commit string) (found []ChangeRequest, err error) {
	err = r.retries.do(ctx, "list change requests of commit "+commit, func() error {
		found, err = r.api.ofCommit(ctx, commit)
		return err
	})
	return found, err
}

// Get returns one change request.
func (r *Repository) Get(ctx context.Context, number int) (request ChangeRequest, err error) {
	err = r.retries.do(ctx, fmt.Sprintf("read change request %d", number), func() error {
		request, err = r.api.get(ctx, number)
		return err
	})
	return request, err
}

// Open opens a change request, or returns the one that is open between these branches, as it is. Its error wraps
// [ErrRefused] where there is nothing to propose or a branch is missing.
func (r *Repository) Open(ctx context.Context, p Proposal) (request ChangeRequest, err error) {
	p.Title, p.Body = cut(p.Title, 255), cut(p.Body, r.limits.body)
	err = r.retries.do(ctx, fmt.Sprintf("open a change request from %s to %s", p.Source, p.Target), func() error {
		request, err = r.openOnce(ctx, p)
		return err
	})
	return request, err
}

func (r *Repository) openOnce(ctx context.Context, p Proposal) (ChangeRequest, error) {
	request, found, err := r.between(ctx, p.Source, p.Target)
	if err != nil {
		return request, err
	}
	if !found {
		request, err = r.api.open(ctx, p)
		if errors.Is(err, ErrConflict) { // another run has opened it meanwhile
			if other, found, again := r.between(ctx, p.Source, p.Target); again == nil && found {
				request, err = other, nil
			}
		}
		if err != nil {
			return request, err
		}
	}
	for _, name := range p.Labels {
		if err := r.api.label(ctx, request.Number, name); err != nil {
			return request, err
		}
	}
	return request, nil
}

func (r *Repository) between(ctx context.Context, source, target string) (ChangeRequest, bool, error) {
	all, err := r.api.find(ctx, source)
	if err != nil {
		return ChangeRequest{}, false, err
	}
	i := slices.IndexFunc(all, func(c ChangeRequest) bool { return c.State == Open && c.Target == target })
	if i < 0 {
		return ChangeRequest{}, false, nil
	}
	return all[i], true, nil
}

// Update replaces title and body of an open change request. Its error wraps [ErrConflict] if it is not open any more.
func (r *Repository) Update(ctx context.Context, number int, title, body string) (request ChangeRequest, err error) {
	title, body = cut(title, 255), cut(body, r.limits.body)
	err = r.retries.do(ctx, fmt.Sprintf("update change request %d", number), func() error {
		request, err = r.api.get(ctx, number)
		switch {
		case err != nil:
			return err
		case request.State != Open:
			return &Error{Err: ErrConflict, Message: "it is " + string(request.State)}
		case request.Title == title && request.Body == body:
			return nil
		}
		request, err = r.api.update(ctx, number, title, body)
		return err
	})
	return request, err
}

// Label gives a change request a label, which is made if need be.
func (r *Repository) Label(ctx context.Context, number int, name string) error {
	return r.retries.do(ctx, fmt.Sprintf("label change request %d", number), func() error {
		return r.api.label(ctx, number, name)
	})
}

// Close closes a change request without merging it. One that is not open stays as it is.
func (r *Repository) Close(ctx context.Context, number int) error {
	return r.retries.do(ctx, fmt.Sprintf("close change request %d", number), func() error {
		request, err := r.api.get(ctx, number)
		if err != nil || request.State != Open {
			return err
		}
		return r.api.close(ctx, number)
	})
}

// Marker returns the first line of a comment or body by which it is found again. People do not see it. The words must
// hold neither line breaks nor "--".
func Marker(words ...string) string { return "<!-- wherry " + strings.Join(words, " ") + " -->" }

// Comment writes the one comment of a change request that begins with marker: the first such comment of the token's own account is
// replaced, and one is added if there is none. Whoever may comment can write a marker, so that other accounts' comments are not
// touched. If the forge does not tell whose the token is, a comment is added. A body that is too long for the forge is cut, and says so.
func (r *Repository) Comment(ctx context.Context, number int, marker, body string) (comment Comment, err error) {
	body = cut(marker+"\n"+body, r.limits.comment)
	err = r.retries.do(ctx, fmt.Sprintf("comment on change request %d", number), func() error {
		all, err := r.api.comments(ctx, number)
		if err != nil {
			return err
		}
		i, err := r.own(ctx, all, marker)
		switch {
		case err != nil:
			return err
		case i < 0:
			comment, err = r.api.addComment(ctx, number, body)
			return err
		case all[i].Body == body:
			comment = all[i]
			return nil
		}
		comment = all[i]
		comment.Body = body
		return r.api.editComment(ctx, number, all[i], body)
	})
	return comment, err
}

// own returns the index of the first comment with a marker that the token's own account has written; -1 if there is none.
func (r *Repository) own(ctx context.Context, all []Comment, marker string) (int, error) {
	marked := func(c Comment) bool { return firstLine(c.Body) == marker }
	if !slices.ContainsFunc(all, marked) {
		return -1, nil
	}
	account, err := r.api.account(ctx)
	if errors.Is(err, ErrForbidden) || errors.Is(err, ErrUnauthorized) || errors.Is(err, ErrNotFound) {
		return -1, nil
	}
	return slices.IndexFunc(all, func(c Comment) bool { return marked(c) && account != "" && c.author == account }), err
}

func firstLine(text string) string {
	line, _, _ := strings.Cut(text, "\n")
	return strings.TrimSuffix(line, "\r") // forges that keep what browsers send
}

// SetStatus sets the status of a commit. Its error wraps [ErrNotFound] if the repository does not have the commit.
func (r *Repository) SetStatus(ctx context.Context, commit string, s Status) error {
	s.Description = cutShort(s.Description, 140) // GitHub's limit is the smallest
	return r.retries.do(ctx, "set the status of commit "+commit, func() error {
		last, err := r.api.status(ctx, commit, s.Context)
		if err != nil || last == s {
			return err
		}
		return r.api.setStatus(ctx, commit, s)
	})
}

// cut shortens a text of many lines to at most limit bytes, at the end of a line if it has any.
func cut(text string, limit int) string {
	const rest = "\n\n… (cut: too long for the forge)"
	if len(text) <= limit {
		return text
	}
	text = strings.ToValidUTF8(text[:limit-len(rest)], "")
	if i := strings.LastIndexByte(text, '\n'); i > 0 {
		text = text[:i]
	}
	return text + rest
}

// cutShort shortens one line to at most limit characters.
func cutShort(line string, limit int) string {
	if utf8.RuneCountInString(line) <= limit {
		return line
	}
	return string([]rune(line)[:limit-1]) + "…"
}
