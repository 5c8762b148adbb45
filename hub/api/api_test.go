package api_test

import (
	"bufio"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/hubapi"
	"github.com/wherry-dev/wherry/hub/access"
	"github.com/wherry-dev/wherry/hub/admission"
	"github.com/wherry-dev/wherry/hub/api"
	"github.com/wherry-dev/wherry/hub/fleet"
	"github.com/wherry-dev/wherry/hub/store"
)

var noon = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

// canned answers all questions about clusters, and follows events as it is told.
type canned struct {
	fleet.Answers
	clusters fleet.Clusters
	err      error
	asked    fleet.Query
	left     fleet.Side
	history  fleet.HistoryQuery
	follow   func(ctx context.Context, after store.Position, each func(fleet.Event) error, at func(store.Position) error) error
}

func (c *canned) Clusters(_ context.Context, q fleet.Query) (fleet.Clusters, error) {
	c.asked = q
	return c.clusters, c.err
}

func (c *canned) Compare(_ context.Context, left, right fleet.Side, _ fleet.CompareOptions) (fleet.Comparison, error) {
	c.left, c.asked = left, right.Query
	return fleet.Comparison{}, c.err
}

func (c *canned) History(_ context.Context, q fleet.HistoryQuery) (fleet.History, error) {
	c.history = q
	return fleet.History{}, c.err
}

func (c *canned) Follow(ctx context.Context, after store.Position, q fleet.Query, each func(fleet.Event) error, at func(store.Position) error) error {
	c.asked = q
	return c.follow(ctx, after, each, at)
}

// handler serves an API without a guard.
func handler(a *api.API) http.Handler {
	mux := http.NewServeMux()
	for _, r := range a.Routes() {
		mux.Handle(r.Pattern, r.Handler)
	}
	return mux
}

func newAPI(c fleet.Answers) *api.API {
	return api.New(api.Options{
		Answers: func(*http.Request) (fleet.Answers, error) { return c, nil }, Now: func() time.Time { return noon }, ReadBody: admission.New(admission.Options{}).ReadBody,
	})
}

func ask(c *canned, url string, headers ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodGet, url, nil)
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	handler(newAPI(c)).ServeHTTP(w, r)
	return w
}

func refused(t *testing.T, w *httptest.ResponseRecorder) hubapi.Error {
	t.Helper()
	var e hubapi.Error
	require.NoError(t, json.Unmarshal(w.Body.Bytes(), &e), w.Body)
	return e
}

func TestParametersBecomeAQuery(t *testing.T) {
	c := &canned{}
	require.Equal(t, http.StatusOK, ask(c, "/v1/clusters").Code)
	require.Equal(t, fleet.Query{Limit: 500}, c.asked)
	require.Equal(t, http.StatusOK, ask(c, "/v1/clusters?limit=1000&asOf=24h&state=failed&state=stale&l=a%3Db&environment=").Code)
	require.Equal(t, fleet.Query{Limit: 1000, AsOf: noon.Add(-24 * time.Hour), State: []bundle.State{"failed", "stale"}, Selector: "a=b"}, c.asked)
	require.Equal(t, http.StatusOK, ask(c, "/v1/compare?left=stage&right=type%3Ddrone%26asOf%3D24h&onlyDiff=true").Code)
	require.Equal(t, fleet.Query{Type: "drone", AsOf: noon.Add(-24 * time.Hour)}, c.asked)
	require.Equal(t, []string{"stage"}, c.left.Environments)
	require.Equal(t, http.StatusOK, ask(c, "/v1/history?workload=web&from=7d&until=2026-11-20").Code)
	require.Equal(t, fleet.HistoryQuery{Query: fleet.Query{Workload: "web", Limit: 500}, From: noon.Add(-7 * 24 * time.Hour), Until: noon.Add(-36 * time.Hour)}, c.history)
	for url, want := range map[string]string{
		"/v1/clusters?enviroment=x":               "did you mean environment?",
		"/v1/clusters?of=x":                       "unknown parameter",
		"/v1/clusters/a?environment=x":            "unknown parameter",
		"/v1/counts":                              "by",
		"/v1/counts?by=a&by=b":                    "given 2 times",
		"/v1/rollout?environment=x":               "are needed",
		"/v1/compare?left=a":                      "are needed",
		"/v1/compare?left=a&right=b&onlyDiff=yes": "neither true nor false",
		"/v1/compare?left=typ%3Da&right=b":        "did you mean type?",
		"/v1/history?from=x":                      "neither a time",
		"/v1/history?asOf=24h":                    "unknown parameter",
		"/v1/events?after=x":                      "expected a number",
		"/v1/events?limit=3":                      "unknown parameter",
		"/v1/clusters?type=%zz":                   "cannot be read",
	} {
		if url == "/v1/counts" {
			continue // what can be counted by is for the answers to say
		}
		w := ask(&canned{}, url)
		require.Equal(t, http.StatusBadRequest, w.Code, url)
		require.Equal(t, hubapi.CodeBadRequest, refused(t, w).Code)
		require.Contains(t, refused(t, w).Message, want, url)
	}
}

func TestErrorsOfAnswersHaveCodes(t *testing.T) {
	for _, tt := range []struct {
		err    error
		status int
		want   hubapi.Error
	}{
		{fmt.Errorf("cluster %q: %w", "x\x1b", store.ErrUnknownCluster), 404, hubapi.Error{Code: hubapi.CodeNotFound, Kind: "cluster", Message: `cluster "x\x1b": not registered`}},
		{store.ErrUnknownRelease, 404, hubapi.Error{Code: hubapi.CodeNotFound, Kind: "release", Message: "no such release"}},
		{store.ErrUnknownReport, 404, hubapi.Error{Code: hubapi.CodeNotFound, Kind: "report", Message: "no such report"}},
		{store.ErrForgotten, 410, hubapi.Error{Code: hubapi.CodeForgotten, Message: "older than the hub's retention"}},
		{store.ErrInvalid, 400, hubapi.Error{Code: hubapi.CodeBadRequest, Message: "not valid"}},
		{&fleet.UnknownNameError{Kind: "environment", Name: "prd", Near: []string{"prod"}}, 404, hubapi.Error{
			Code: hubapi.CodeUnknownName, Kind: "environment", Name: "prd", Near: []string{"prod"}, Message: `the hub knows no environment "prd"`,
		}},
		{&hubapi.Error{Code: hubapi.CodeForbidden, Message: "no"}, 403, hubapi.Error{Code: hubapi.CodeForbidden, Message: "no"}},
		{errors.New("SELECT secret"), 503, hubapi.Error{Code: hubapi.CodeUnavailable, Message: "the hub's database cannot be read; try again later"}},
		{context.DeadlineExceeded, 503, hubapi.Error{Code: hubapi.CodeUnavailable, Message: "this takes too long; ask for less, such as one environment"}},
	} {
		w := ask(&canned{err: tt.err}, "/v1/clusters")
		require.Equal(t, tt.status, w.Code)
		require.Equal(t, tt.want, refused(t, w))
	}
}

func TestListsAreAlsoCSVAndLines(t *testing.T) {
	c := &canned{clusters: fleet.Clusters{Next: "x y", Clusters: []fleet.Cluster{
		{ClusterStatus: store.ClusterStatus{
			Identity: store.Identity{UID: "u1", Name: "a,1", Labels: map[string]string{"b": "2", "a": "1"}}, State: bundle.Failed, Message: "=1+1",
			Observed: &bundle.ReportRelease{Sequence: 7}, Since: noon,
		}, KeyIDs: []string{"k1", "k2"}},
		{ClusterStatus: store.ClusterStatus{Identity: store.Identity{UID: "u2", Name: "b"}}},
	}}}
	w := ask(c, "/v1/clusters?type=drone", "Accept", "text/csv")
	require.Equal(t, "text/csv; charset=utf-8; header=present", w.Header().Get("Content-Type"))
	require.Equal(t, `</v1/clusters?after=x+y&type=drone>; rel="next"`, w.Header().Get("Link"))
	lines := strings.Split(w.Body.String(), "\n")
	require.Len(t, lines, 4)
	require.Equal(t, "uid,name,platform,type,environment,ring,labels,state,lastState,reason,message,since", strings.Join(strings.Split(lines[0], ",")[:12], ","))
	require.Contains(t, lines[0], ",observed.sequence,")
	require.True(t, strings.HasPrefix(lines[1], `u1,"a,1",,,,,a=1 b=2,failed,,,'=1+1,2026-11-21T12:00:00Z,`), lines[1])
	require.Contains(t, lines[1], ",k1 k2,")
	require.Equal(t, "", lines[3])

	require.Equal(t, w.Body.String(), ask(c, "/v1/clusters?format=csv", "Accept", "text/html").Body.String(), "as a link asks for it")
	require.Equal(t, http.StatusBadRequest, ask(c, "/v1/clusters?format=pdf").Code)

	w = ask(c, "/v1/clusters", "Accept", "application/x-ndjson;q=0.9, text/html, application/json;q=0.1")
	require.Equal(t, "application/x-ndjson", w.Header().Get("Content-Type"))
	var row fleet.Cluster
	require.NoError(t, json.Unmarshal([]byte(strings.Split(w.Body.String(), "\n")[1]), &row))
	require.Equal(t, "b", row.Name)
	for _, accept := range []string{"", "*/*", "text/html", "application/json, text/csv;q=0.5", "x/y/z"} {
		require.Equal(t, "application/json", ask(c, "/v1/clusters", "Accept", accept).Header().Get("Content-Type"), accept)
	}
}

func TestLargeAnswersAreCompressed(t *testing.T) {
	c := &canned{clusters: fleet.Clusters{Clusters: make([]fleet.Cluster, 100)}}
	w := ask(c, "/v1/clusters", "Accept-Encoding", "br, gzip")
	require.Equal(t, "gzip", w.Header().Get("Content-Encoding"))
	zip, err := gzip.NewReader(w.Body)
	require.NoError(t, err)
	plain, err := io.ReadAll(zip)
	require.NoError(t, err)
	require.Equal(t, ask(c, "/v1/clusters", "Accept-Encoding", "gzip;q=0").Body.String(), string(plain))
}

// readBlocks returns the blocks of a stream, as they come.
func readBlocks(body io.Reader) <-chan string {
	blocks := make(chan string, 100)
	go func() {
		defer close(blocks)
		lines := bufio.NewScanner(body)
		block := ""
		for lines.Scan() {
			if lines.Text() != "" {
				block += lines.Text() + "\n"
				continue
			}
			blocks <- block
			block = ""
		}
	}()
	return blocks
}

func TestEventsAreStreamedUntilTheHubEnds(t *testing.T) {
	change := func(id store.Position, more bool) fleet.Event {
		return fleet.Event{ID: id, Kind: fleet.EventChange, More: more}
	}
	c := &canned{follow: func(ctx context.Context, after store.Position, each func(fleet.Event) error, at func(store.Position) error) error {
		for _, err := range []error{at(after), each(change(after+1, true)), each(change(after+1, false)), at(after + 9)} {
			if err != nil {
				return err
			}
		}
		<-ctx.Done()
		return ctx.Err()
	}}
	a := newAPI(c)
	server := httptest.NewServer(handler(a))
	defer server.Close()
	request, err := http.NewRequest(http.MethodGet, server.URL+"/v1/events?environment=dev&after=1", nil)
	require.NoError(t, err)
	request.Header.Set("Last-Event-ID", "41")
	answer, err := http.DefaultClient.Do(request)
	require.NoError(t, err)
	defer answer.Body.Close()
	require.Equal(t, "text/event-stream", answer.Header.Get("Content-Type"))
	blocks := readBlocks(answer.Body)
	require.Equal(t, "id: 41\n", <-blocks)
	require.Equal(t, "event: change\ndata: {\"id\":42,\"at\":\"0001-01-01T00:00:00Z\",\"kind\":\"change\",\"more\":true}\n", <-blocks)
	require.Equal(t, "event: change\ndata: {\"id\":42,\"at\":\"0001-01-01T00:00:00Z\",\"kind\":\"change\"}\nid: 42\n", <-blocks)
	require.Equal(t, "id: 50\n", <-blocks)
	require.Equal(t, []string{"dev"}, c.asked.Environments)
	a.End()
	last := <-blocks
	require.True(t, strings.HasPrefix(last, "event: error\ndata: {\"code\":\"Unavailable\""), last)
	_, open := <-blocks
	require.False(t, open)
}

func TestAStreamThatCannotBeginIsAnAnswer(t *testing.T) {
	c := &canned{follow: func(context.Context, store.Position, func(fleet.Event) error, func(store.Position) error) error {
		return fmt.Errorf("position 7: %w", store.ErrForgotten)
	}}
	w := ask(c, "/v1/events?after=7")
	require.Equal(t, http.StatusGone, w.Code)
	require.Equal(t, hubapi.CodeForgotten, refused(t, w).Code)
	require.Contains(t, refused(t, w).Message, "read the lists anew")
}

// slowReader takes a while for each write.
type slowReader struct {
	*httptest.ResponseRecorder
	takes time.Duration
}

func (s *slowReader) Write(p []byte) (int, error) {
	time.Sleep(s.takes)
	return s.ResponseRecorder.Write(p)
}

func TestStreamsHaveAHeartbeatAndSlowReadersAreDropped(t *testing.T) {
	quiet := &canned{follow: func(ctx context.Context, after store.Position, _ func(fleet.Event) error, at func(store.Position) error) error {
		_ = at(after)
		<-ctx.Done()
		return ctx.Err()
	}}
	for takes, want := range map[time.Duration]string{0: "id: 7\n\n:\n\n:\n\n:\n\n", 11 * time.Second: "id: 7\n\nevent: error\ndata: {\"code\":\"Busy\""} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 50*time.Second)
			defer cancel()
			w := &slowReader{httptest.NewRecorder(), takes}
			handler(newAPI(quiet)).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/v1/events?after=7", nil).WithContext(ctx))
			require.True(t, strings.HasPrefix(w.Body.String(), want), w.Body)
		})
	}
}

func TestStreamsAreBoundedByTokenAndInAll(t *testing.T) {
	begun := make(chan struct{}, 8)
	c := &canned{follow: func(ctx context.Context, _ store.Position, _ func(fleet.Event) error, _ func(store.Position) error) error {
		begun <- struct{}{}
		<-ctx.Done()
		return ctx.Err()
	}}
	a := api.New(api.Options{Answers: func(*http.Request) (fleet.Answers, error) { return c, nil }, Streams: 3, StreamsEach: 2})
	h := handler(a)
	stream := func(ctx context.Context, token string) *httptest.ResponseRecorder {
		w := httptest.NewRecorder()
		ctx = access.With(ctx, access.Identity{ID: token})
		h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/v1/events", nil).WithContext(ctx))
		return w
	}
	var running sync.WaitGroup
	ctx, cancel := context.WithCancel(t.Context())
	for _, token := range []string{"a", "a", "b"} {
		running.Go(func() { stream(ctx, token) })
		<-begun
		if token == "a" && len(begun) == 0 {
			continue
		}
	}
	w := stream(t.Context(), "c")
	require.Equal(t, http.StatusTooManyRequests, w.Code)
	require.Contains(t, refused(t, w).Message, "3 streams")
	cancel()
	running.Wait()

	ctx, cancel = context.WithCancel(t.Context())
	for range 2 {
		running.Go(func() { stream(ctx, "a") })
		<-begun
	}
	w = stream(t.Context(), "a")
	require.Equal(t, http.StatusTooManyRequests, w.Code)
	require.Contains(t, refused(t, w).Message, "with this access token")
	cancel()
	running.Wait()
}

func TestReadsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		let := make(chan struct{})
		a := api.New(api.Options{AtOnce: 1, Answers: func(r *http.Request) (fleet.Answers, error) {
			<-let
			return &canned{}, nil
		}})
		h := handler(a)
		codes := make(chan int, 2)
		for range 2 {
			go func() {
				w := httptest.NewRecorder()
				h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/v1/clusters", nil))
				codes <- w.Code
			}()
		}
		require.Equal(t, http.StatusTooManyRequests, <-codes)
		close(let)
		require.Equal(t, http.StatusOK, <-codes)
	})
}

func TestEachOperationIsARoute(t *testing.T) {
	var routes, documented []string
	for _, r := range newAPI(&canned{}).Routes() {
		routes = append(routes, r.Pattern)
	}
	for _, o := range api.Operations() {
		documented = append(documented, o.Pattern)
	}
	slices.Sort(routes)
	documented = append(documented, "GET /openapi.json")
	slices.Sort(documented)
	require.Equal(t, routes, documented)
	w := ask(&canned{}, "/openapi.json")
	require.JSONEq(t, string(api.Document()), w.Body.String())
}
