package forge_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/e2e/doubles/forgetest"
	"github.com/wherry-dev/wherry/publisher/forge"
)

var update = flag.Bool("update", false, "rewrite testdata/requests.md")

// bench is one forge with a client that may write.
type bench struct {
	*forgetest.Server
	*forge.Repository
	kind  forge.Kind
	waits []time.Duration
}

func newBench(t *testing.T, kind forge.Kind, token string) *bench {
	t.Helper()
	b := &bench{Server: forgetest.New(t, string(kind)), kind: kind}
	b.Repository = b.connect(t, token)
	return b
}

func (b *bench) connect(t *testing.T, token string) *forge.Repository {
	t.Helper()
	r, err := forge.New(b.URL, forge.Options{
		Kind: b.kind, Tokens: forge.Tokens{forge.AnyToken: token},
		Wait: func(_ context.Context, d time.Duration) error { b.waits = append(b.waits, d); return nil },
	})
	require.NoError(t, err)
	return r
}

// each runs a test at every forge.
func each(t *testing.T, token string, do func(t *testing.T, b *bench)) {
	for _, kind := range forge.Kinds() {
		t.Run(string(kind), func(t *testing.T) { do(t, newBench(t, kind, token)) })
	}
}

func proposal() forge.Proposal {
	return forge.Proposal{Source: "work", Target: "dev", Title: "Update", Body: forge.Marker("render", "dev") + "\nA change.", Labels: []string{"promoted"}}
}

func TestAChangeRequestIsOpenedOnceAndFoundAgain(t *testing.T) {
	each(t, forgetest.Writer, func(t *testing.T, b *bench) {
		head := b.Commit("work", "a", "1")
		b.Add(forgetest.Change{Source: "work", Target: "dev", Title: "Of a fork", Fork: true})
		b.Add(forgetest.Change{Source: "work", Target: "other", Title: "To another branch", State: "closed"})
		first, err := b.Open(t.Context(), proposal())
		require.NoError(t, err)
		want := forge.ChangeRequest{
			Number: 3, URL: first.URL, Source: "work", Target: "dev", Head: head, Title: "Update", Body: proposal().Body, State: forge.Open,
		}
		require.Equal(t, want, first)
		require.Contains(t, first.URL, b.URL)
		again, err := b.Open(t.Context(), proposal())
		require.NoError(t, err)
		require.Equal(t, first, again)
		require.Equal(t, []string{"promoted"}, b.Changes()[2].Labels)
		require.Len(t, b.Changes(), 3)

		found, err := b.Find(t.Context(), "work")
		require.NoError(t, err)
		require.Len(t, found, 2, "that of the fork is not ours")
		require.Equal(t, first, found[0])
		require.Equal(t, forge.Closed, found[1].State)
		b.Merge(3)
		merged, err := b.Get(t.Context(), 3)
		require.NoError(t, err)
		require.Equal(t, forge.Merged, merged.State)
		none, err := b.Find(t.Context(), "other")
		require.NoError(t, err)
		require.Empty(t, none)
	})
}

func TestMoreChangeRequestsThanOnePageHas(t *testing.T) {
	each(t, forgetest.Writer, func(t *testing.T, b *bench) {
		b.Commit("work", "a", "1")
		b.Add(forgetest.Change{Source: "work", Target: "dev", Title: "The oldest"})
		for range 230 {
			b.Add(forgetest.Change{Source: "work", Target: "other"})
		}
		request, err := b.Open(t.Context(), proposal())
		require.NoError(t, err)
		require.Equal(t, 1, request.Number)
	})
}

func TestAChangeRequestIsUpdatedWhileItIsOpen(t *testing.T) {
	each(t, forgetest.Writer, func(t *testing.T, b *bench) {
		b.Commit("work", "a", "1")
		request, err := b.Open(t.Context(), proposal())
		require.NoError(t, err)
		request, err = b.Update(t.Context(), request.Number, "Newer", "Body")
		require.NoError(t, err)
		require.Equal(t, "Newer Body", request.Title+" "+request.Body)
		b.Calls()
		_, err = b.Update(t.Context(), request.Number, "Newer", "Body")
		require.NoError(t, err)
		require.Len(t, b.Calls(), 1, "nothing is written where nothing changes")

		long := strings.Repeat("A line of text.\n", 10_000)
		request, err = b.Update(t.Context(), request.Number, strings.Repeat("é", 400), long)
		require.NoError(t, err)
		require.Contains(t, request.Body, "(cut: too long for the forge)")

		b.Edit(request.Number, func(c *forgetest.Change) { c.State = "closed" })
		_, err = b.Update(t.Context(), request.Number, "Newest", "Body")
		require.ErrorIs(t, err, forge.ErrConflict)
		require.ErrorContains(t, err, "it is closed")
		require.NotEqual(t, "Newest", b.Changes()[0].Title)
	})
}

func TestAChangeRequestIsClosedOnce(t *testing.T) {
	each(t, forgetest.Writer, func(t *testing.T, b *bench) {
		b.Commit("work", "a", "1")
		request, err := b.Open(t.Context(), proposal())
		require.NoError(t, err)
		b.Fail(forgetest.Fault{Route: "P", Half: true})
		require.NoError(t, b.Close(t.Context(), request.Number))
		require.Equal(t, "closed Update", b.Changes()[0].State+" "+b.Changes()[0].Title)
		b.Calls()
		require.NoError(t, b.Close(t.Context(), request.Number))
		require.Len(t, b.Calls(), 1)
	})
}

// Whoever may comment can write our marker first, and keep the comment to say something else later.
func TestAStrangersCommentIsNotOurs(t *testing.T) {
	for _, app := range []bool{false, true} {
		each(t, forgetest.Writer, func(t *testing.T, b *bench) {
			if app {
				b.OfApp()
			}
			b.Commit("work", "a", "1")
			request, err := b.Open(t.Context(), proposal())
			require.NoError(t, err)
			marker := forge.Marker("plan", "dev")
			b.Edit(request.Number, func(c *forgetest.Change) {
				c.Comments = append(c.Comments, forgetest.Comment{ID: 500, Body: marker + "\nof a stranger", Author: 666})
			})
			for _, text := range []string{"one", "two"} {
				_, err := b.Comment(t.Context(), request.Number, marker, text)
				require.NoError(t, err)
			}
			comments := b.Changes()[0].Comments
			require.Len(t, comments, 2)
			require.Equal(t, marker+"\nof a stranger", comments[0].Body)
			require.Equal(t, marker+"\ntwo", comments[1].Body)
		})
	}
}

func TestThereIsOneComment(t *testing.T) {
	each(t, forgetest.Writer, func(t *testing.T, b *bench) {
		b.Commit("work", "a", "1")
		request, err := b.Open(t.Context(), proposal())
		require.NoError(t, err)
		marker := forge.Marker("plan", "dev")
		b.Edit(request.Number, func(c *forgetest.Change) {
			for i := range 120 {
				c.Comments = append(c.Comments, forgetest.Comment{ID: 500 + i, Body: "Looks good. " + marker})
			}
		})
		first, err := b.Comment(t.Context(), request.Number, marker, "one")
		require.NoError(t, err)
		second, err := b.Comment(t.Context(), request.Number, marker, "two")
		require.NoError(t, err)
		require.Equal(t, first.ID, second.ID)
		b.Calls()
		_, err = b.Comment(t.Context(), request.Number, marker, "two")
		require.NoError(t, err)
		for _, route := range b.Calls() {
			require.True(t, strings.HasPrefix(route, "GET "), route)
		}
		_, err = b.Comment(t.Context(), request.Number, forge.Marker("plan", "prod"), "three")
		require.NoError(t, err)
		comments := b.Changes()[0].Comments
		require.Len(t, comments, 122)
		require.Equal(t, marker+"\ntwo", comments[120].Body)
	})
}

func TestACommitHasAStatus(t *testing.T) {
	each(t, forgetest.Writer, func(t *testing.T, b *bench) {
		commit := b.RunGit("rev-parse", "dev")
		status := forge.Status{Context: "wherry/render/dev", State: forge.Pending, Description: "rendering", URL: "https://example.com/1"}
		for _, state := range []forge.StatusState{forge.Pending, forge.Pending, forge.Failure, forge.Success, forge.Success} {
			status.State = state
			require.NoError(t, b.SetStatus(t.Context(), commit, status))
		}
		var states []string
		for _, s := range b.Statuses(commit) {
			require.Equal(t, "wherry/render/dev rendering https://example.com/1", s.Context+" "+s.Description+" "+s.URL)
			states = append(states, s.State)
		}
		require.Len(t, states, 3, "a state that is set already is not set again: %v", states)

		status.Description = strings.Repeat("long ", 100)
		require.NoError(t, b.SetStatus(t.Context(), commit, status))
		require.Len(t, []rune(b.Statuses(commit)[0].Description), 140)

		err := b.SetStatus(t.Context(), strings.Repeat("a", 40), status)
		require.ErrorIs(t, err, forge.ErrNotFound)
	})
}

func TestARefusalHasItsKind(t *testing.T) {
	each(t, forgetest.Writer, func(t *testing.T, b *bench) {
		_, err := b.Open(t.Context(), proposal())
		require.ErrorIs(t, err, forge.ErrRefused, "there is no branch work")
		b.RunGit("update-ref", "refs/heads/work", "refs/heads/dev")
		_, err = b.Open(t.Context(), proposal())
		require.ErrorIs(t, err, forge.ErrRefused, "the branches are equal")
		_, err = b.Get(t.Context(), 7)
		require.ErrorIs(t, err, forge.ErrNotFound)

		reader := b.connect(t, forgetest.Reader)
		b.Commit("work", "a", "1")
		_, err = reader.Open(t.Context(), proposal())
		require.ErrorIs(t, err, forge.ErrForbidden)
		require.Empty(t, b.Changes())
		for _, token := range []string{"", "wrong"} {
			_, err = b.connect(t, token).Open(t.Context(), proposal())
			require.ErrorIs(t, err, forge.ErrUnauthorized)
		}
		require.Empty(t, b.waits, "none of these is tried again")
	})
}

func TestAnotherRunThatOpensItFirst(t *testing.T) {
	each(t, forgetest.Writer, func(t *testing.T, b *bench) {
		b.Commit("work", "a", "1")
		b.Fail(forgetest.Fault{Route: "POST ", Before: func() {
			b.Add(forgetest.Change{Source: "work", Target: "dev", Title: "The other run's"})
		}})
		request, err := b.Open(t.Context(), proposal())
		require.NoError(t, err)
		require.Equal(t, "The other run's", request.Title)
		require.Len(t, b.Changes(), 1)
	})
}

// refusals are answers of a forge that refuses a request.
var refusals = []struct {
	name   string
	fault  forgetest.Fault
	want   error
	tries  int
	waits  []time.Duration
	recovs bool
}{
	{name: "401", fault: forgetest.Fault{Status: 401}, want: forge.ErrUnauthorized, tries: 1},
	{name: "403", fault: forgetest.Fault{Status: 403, Body: `{"message":"no"}`}, want: forge.ErrForbidden, tries: 1},
	{name: "404", fault: forgetest.Fault{Status: 404, Body: "<html>"}, want: forge.ErrNotFound, tries: 1},
	{name: "409", fault: forgetest.Fault{Status: 409}, want: forge.ErrConflict, tries: 1},
	{name: "422", fault: forgetest.Fault{Status: 422, Body: `{"message":`}, want: forge.ErrRefused, tries: 1},
	{name: "301", fault: forgetest.Fault{Status: 301, Header: http.Header{"Location": {"https://elsewhere.example.com/"}}}, want: forge.ErrRefused, tries: 1},
	{name: "429 for a short time", fault: forgetest.Fault{Status: 429, Header: http.Header{"Retry-After": {"7"}}}, want: forge.ErrRateLimited, tries: 4, waits: []time.Duration{7e9, 7e9, 7e9}},
	{name: "429 for an hour", fault: forgetest.Fault{Status: 429, Header: http.Header{"Retry-After": {"3600"}}}, want: forge.ErrRateLimited, tries: 1},
	{name: "403 with a time to wait", fault: forgetest.Fault{Status: 403, Header: http.Header{"Retry-After": {"1"}}}, want: forge.ErrRateLimited, tries: 4, waits: []time.Duration{1e9, 1e9, 1e9}},
	{name: "500", fault: forgetest.Fault{Status: 500}, want: forge.ErrUnavailable, tries: 4, waits: []time.Duration{1e9, 2e9, 4e9}},
	{name: "503", fault: forgetest.Fault{Status: 503, Header: http.Header{"Retry-After": {"2"}}}, want: forge.ErrUnavailable, tries: 4, waits: []time.Duration{2e9, 2e9, 2e9}},
	{name: "200 with a page for people", fault: forgetest.Fault{Status: 200, Body: "<html>"}, want: forge.ErrUnavailable, tries: 4, waits: []time.Duration{1e9, 2e9, 4e9}},
	{name: "half an answer", fault: forgetest.Fault{Half: true}, want: forge.ErrUnavailable, tries: 4, waits: []time.Duration{1e9, 2e9, 4e9}},
}

func TestAWrongAnswerIsTriedAgainByItsKind(t *testing.T) {
	each(t, forgetest.Writer, func(t *testing.T, b *bench) {
		for _, test := range refusals {
			t.Run(test.name, func(t *testing.T) {
				b.waits = nil
				b.Fail(slices.Repeat([]forgetest.Fault{test.fault}, test.tries)...)
				_, err := b.Find(t.Context(), "dev")
				require.ErrorIs(t, err, test.want)
				require.Equal(t, test.waits, b.waits)
				require.NotContains(t, err.Error(), forgetest.Writer)
				_, err = b.Find(t.Context(), "dev")
				require.NoError(t, err, "the next call is a new one")
			})
		}
	})
}

// Each write is made, and its answer is lost: the next attempt must find the first one's work.
func TestALostAnswerMakesNothingTwice(t *testing.T) {
	for _, method := range []string{"POST ", "PATCH ", "PUT "} {
		each(t, forgetest.Writer, func(t *testing.T, b *bench) {
			commit := b.Commit("work", "a", "1")
			lose := func() { b.Fail(forgetest.Fault{Route: method, Half: true}) }
			lose()
			request, err := b.Open(t.Context(), proposal())
			require.NoError(t, err)
			lose()
			_, err = b.Update(t.Context(), request.Number, "Newer", "Body")
			require.NoError(t, err)
			for _, text := range []string{"one", "two"} {
				lose()
				_, err = b.Comment(t.Context(), request.Number, forge.Marker("plan"), text)
				require.NoError(t, err)
			}
			lose()
			require.NoError(t, b.SetStatus(t.Context(), commit, forge.Status{Context: "wherry/render", State: forge.Success}))
			all := b.Changes()
			require.Len(t, all, 1)
			require.Equal(t, "Newer", all[0].Title)
			require.Equal(t, []string{"promoted"}, all[0].Labels)
			require.Len(t, all[0].Comments, 1)
			require.Equal(t, forge.Marker("plan")+"\ntwo", all[0].Comments[0].Body)
			require.Len(t, b.Statuses(commit), 1)
		})
	}
}

func TestAForgeThatIsNotThereIsUnavailable(t *testing.T) {
	r, err := forge.New("http://127.0.0.1:1/contoso/gitops", forge.Options{Kind: forge.Gitea, Wait: func(context.Context, time.Duration) error { return nil }})
	require.NoError(t, err)
	_, err = r.Find(t.Context(), "dev")
	require.ErrorIs(t, err, forge.ErrUnavailable)
	require.ErrorContains(t, err, "list change requests from dev: unavailable: dial tcp 127.0.0.1:1:")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = r.Find(ctx, "dev")
	require.ErrorIs(t, err, context.Canceled)
}

func TestAnAnswerWithoutEndIsRefused(t *testing.T) {
	b := newBench(t, forge.GitHub, forgetest.Writer)
	r, err := forge.New(b.URL, forge.Options{Kind: forge.GitHub, Transport: endless{}})
	require.NoError(t, err)
	_, err = r.Find(t.Context(), "dev")
	require.ErrorIs(t, err, forge.ErrRefused)
	require.ErrorContains(t, err, "the answer is too large")
}

// endless answers every request with white space.
type endless struct{}

func (endless) RoundTrip(*http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Body: io.NopCloser(spaces{})}, nil
}

type spaces struct{}

func (spaces) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = ' '
	}
	return len(p), nil
}

// The forges' table of the documentation is what the clients really ask for.
func TestTheForgesTable(t *testing.T) {
	operations := []struct {
		name string
		do   func(ctx context.Context, b *bench) error
	}{
		{"find change requests", func(ctx context.Context, b *bench) error { _, err := b.Find(ctx, "work"); return err }},
		{"find those of a commit", func(ctx context.Context, b *bench) error {
			_, err := b.OfCommit(ctx, b.RunGit("rev-parse", "work"))
			return err
		}},
		{"open one, with a label", func(ctx context.Context, b *bench) error { _, err := b.Open(ctx, proposal()); return err }},
		{"update title and text", func(ctx context.Context, b *bench) error { _, err := b.Update(ctx, 1, "Newer", "Body"); return err }},
		{"write the comment", func(ctx context.Context, b *bench) error {
			_, err := b.Comment(ctx, 1, forge.Marker("plan"), "one")
			return err
		}},
		{"update the comment", func(ctx context.Context, b *bench) error {
			_, err := b.Comment(ctx, 1, forge.Marker("plan"), "two")
			return err
		}},
		{"set a commit's status", func(ctx context.Context, b *bench) error {
			return b.SetStatus(ctx, b.RunGit("rev-parse", "dev"), forge.Status{Context: "wherry/render", State: forge.Success})
		}},
	}
	kinds := forge.Kinds()
	cells := make([][]string, len(operations))
	for _, kind := range kinds {
		b := newBench(t, kind, forgetest.Writer)
		b.Commit("work", "a", "1")
		for i, op := range operations {
			require.NoError(t, op.do(t.Context(), b))
			var routes []string
			for _, route := range slices.Compact(b.Calls()) {
				if !slices.Contains(routes, "`"+route+"`") {
					routes = append(routes, "`"+route+"`")
				}
			}
			cells[i] = append(cells[i], strings.Join(routes, "<br>"))
		}
	}
	var table strings.Builder
	fmt.Fprintln(&table, "# The requests of each operation\n\n`…` is `/repos/{owner}/{repo}`, `/projects/{id}` or `/{project}/_apis/git/repositories/{repositoryId}`.\n\n| operation | GitHub | GitLab | Gitea, Forgejo | Azure DevOps |\n|-|-|-|-|-|")
	for i, op := range operations {
		row := strings.NewReplacer("/repos/{owner}/{repo}", "…", "/projects/{id}", "…", "/{project}/_apis/git/repositories/{repositoryId}", "…").Replace(strings.Join(cells[i], " | "))
		fmt.Fprintf(&table, "| %s | %s |\n", op.name, row)
	}
	if *update {
		require.NoError(t, os.MkdirAll("testdata", 0o755))
		require.NoError(t, os.WriteFile("testdata/requests.md", []byte(table.String()), 0o644))
	}
	want, err := os.ReadFile("testdata/requests.md")
	require.NoError(t, err)
	require.Equal(t, string(want), table.String(), "run the test with -update")
}

func TestErrorsSayUntilWhenAForgeWaits(t *testing.T) {
	b := newBench(t, forge.GitHub, forgetest.Writer)
	b.Fail(forgetest.Fault{Status: 403, Header: http.Header{
		"Date": {"Fri, 02 Jan 2026 03:04:05 GMT"}, "X-Ratelimit-Remaining": {"0"}, "X-Ratelimit-Reset": {"1767326645"},
	}, Body: `{"message":"API rate limit exceeded for ` + forgetest.Writer + `"}`})
	_, err := b.Find(t.Context(), "dev")
	var limited *forge.Error
	require.True(t, errors.As(err, &limited))
	require.Equal(t, time.Date(2026, 1, 2, 4, 4, 5, 0, time.UTC), limited.Until.UTC())
	require.EqualError(t, err, "list change requests from dev: rate limited (403): API rate limit exceeded for …")
}
