package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/bundle/hubapi"
	"github.com/wherry-dev/wherry/hub/fleet"
	"github.com/wherry-dev/wherry/hub/store"
)

func TestAListIsReadPageByPage(t *testing.T) {
	var asked []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.URL.RequestURI())
		page := fleet.Clusters{Totals: fleet.Totals{Count: 5}, Clusters: make([]fleet.Cluster, 2), Next: "2"}
		switch r.URL.Query().Get("after") {
		case "2": // a page may have no rows
			page = fleet.Clusters{Clusters: []fleet.Cluster{}, Next: "3"}
		case "3":
			page = fleet.Clusters{Clusters: make([]fleet.Cluster, 1)}
		}
		_ = json.NewEncoder(w).Encode(page)
	}))
	defer server.Close()
	c := Client{URL: server.URL + "/hubs/one"}
	all, err := c.Clusters(t.Context(), fleet.Query{Type: "drone"})
	require.NoError(t, err)
	require.Len(t, all.Clusters, 3)
	require.Equal(t, 5, all.Totals.Count)
	require.Empty(t, all.Next)
	require.Equal(t, []string{"/hubs/one/v1/clusters?limit=1000&type=drone", "/hubs/one/v1/clusters?after=2&limit=1000&type=drone", "/hubs/one/v1/clusters?after=3&limit=1000&type=drone"}, asked)

	asked = nil
	some, err := c.Clusters(t.Context(), fleet.Query{Limit: 2})
	require.NoError(t, err)
	require.Len(t, some.Clusters, 2)
	require.Equal(t, "2", some.Next)
	require.Equal(t, []string{"/hubs/one/v1/clusters?limit=2"}, asked)
}

func TestAnswersWithoutAnEndAreRefused(t *testing.T) {
	asked := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if asked++; strings.HasSuffix(r.URL.Path, "environments") {
			_, _ = io.Copy(w, io.LimitReader(zeros{}, maxAnswerBytes+1))
			return
		}
		fmt.Fprintf(w, `{"clusters":[],"next":"%d"}`, asked)
	}))
	defer server.Close()
	c := Client{URL: server.URL}
	_, err := c.Environments(t.Context(), fleet.Query{})
	require.ErrorContains(t, err, "too large")
	c.maxList = 10 * minPageBytes
	asked = 0
	_, err = c.Clusters(t.Context(), fleet.Query{})
	require.ErrorContains(t, err, "too large")
	require.Equal(t, 10, asked)
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = ' '
	}
	return len(p), nil
}

func TestATokenIsForTheHubAlone(t *testing.T) {
	var seen []string
	other := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		seen = append(seen, "other "+r.Header.Get("Authorization"))
	}))
	defer other.Close()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		seen = append(seen, r.Header.Get("Authorization"))
		switch r.URL.Path {
		case "/away/v1/environments":
			http.Redirect(w, r, other.URL+"/v1/environments", http.StatusTemporaryRedirect)
		case "/v1/environments":
			http.Redirect(w, r, "/moved", http.StatusMovedPermanently)
		case "/loop/v1/environments":
			http.Redirect(w, r, r.URL.Path, http.StatusMovedPermanently)
		default:
			fmt.Fprint(w, `{}`)
		}
	}))
	defer server.Close()
	_, err := Client{URL: server.URL, Token: "wha_x"}.Environments(t.Context(), fleet.Query{})
	require.NoError(t, err)
	require.Equal(t, []string{"Bearer wha_x", "Bearer wha_x"}, seen)
	seen = nil
	_, err = Client{URL: server.URL + "/away", Token: "wha_secret"}.Environments(t.Context(), fleet.Query{})
	require.ErrorContains(t, err, "it redirects to "+other.URL)
	require.NotContains(t, err.Error(), "secret")
	require.Equal(t, []string{"Bearer wha_secret"}, seen)
	_, err = Client{URL: server.URL + "/loop"}.Environments(t.Context(), fleet.Query{})
	require.ErrorContains(t, err, "more than 5 times")
	for _, url := range []string{"", "localhost:8080", "ftp://x", "http://", "http://me:secret@hub.example"} {
		_, err := Client{URL: url}.Environments(t.Context(), fleet.Query{})
		require.ErrorIs(t, err, store.ErrInvalid, url)
		require.NotContains(t, err.Error(), "secret")
	}
}

func TestErrorsAreThoseOfAnswers(t *testing.T) {
	var status int
	var body string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Retry-After", "7")
		w.WriteHeader(status)
		fmt.Fprint(w, body)
	}))
	defer server.Close()
	ask := func(s int, b string) error {
		status, body = s, b
		_, err := Client{URL: server.URL}.Report(t.Context(), "a/b", "r1-1")
		require.Error(t, err)
		require.Equal(t, store.Plain(err.Error()), err.Error(), "fit for a terminal")
		return err
	}
	require.ErrorIs(t, ask(400, `{"code":"BadRequest","error":"not\u001b[2J"}`), store.ErrInvalid)
	require.ErrorIs(t, ask(410, `{"code":"Forgotten","error":"x"}`), store.ErrForgotten)
	require.ErrorIs(t, ask(404, `{"code":"NotFound","kind":"cluster","error":"x"}`), store.ErrUnknownCluster)
	require.ErrorIs(t, ask(404, `{"code":"NotFound","kind":"release","error":"x"}`), store.ErrUnknownRelease)
	require.ErrorIs(t, ask(404, `{"code":"NotFound","kind":"report","error":"x"}`), store.ErrUnknownReport)
	var unknown *fleet.UnknownNameError
	require.ErrorAs(t, ask(404, `{"code":"UnknownName","kind":"workload","name":"wbe","near":["web\u001b"],"error":"x"}`), &unknown)
	require.Equal(t, &fleet.UnknownNameError{Kind: "workload", Name: "wbe", Near: []string{"web"}}, unknown)
	var refused *hubapi.Error
	require.ErrorAs(t, ask(429, `{"code":"Busy","error":"later"}`), &refused)
	require.Equal(t, hubapi.CodeBusy, refused.Code)
	require.EqualValues(t, 7e9, refused.RetryAfter)
	require.ErrorContains(t, ask(418, "\x1b[2J"), "it answered 418")
	require.ErrorContains(t, ask(502, "<html>"), "it answered 502 Bad Gateway")
	require.ErrorContains(t, ask(200, "<html>"), "not a hub's")
	require.ErrorContains(t, ask(200, `{"body": 7}`), "not a hub's")

	secure := httptest.NewUnstartedServer(http.NotFoundHandler())
	secure.Config.ErrorLog = log.New(io.Discard, "", 0)
	secure.StartTLS()
	defer secure.Close()
	_, err := Client{URL: strings.Replace(secure.URL, "https", "http", 1)}.Environments(t.Context(), fleet.Query{})
	require.ErrorContains(t, err, "it answered 400 Bad Request: Client sent an HTTP request to an HTTPS server.")
}

// events returns a hub that answers each connection with one of the given streams, and what those asked for.
func events(t *testing.T, streams ...string) (Client, *[]string) {
	asked := &[]string{}
	return Client{URL: "http://hub.example", HTTP: &http.Client{Transport: roundTrip(func(r *http.Request) (*http.Response, error) {
		n := len(*asked)
		require.Less(t, n, len(streams), "asked once more")
		*asked = append(*asked, r.URL.RawQuery)
		if body, is := strings.CutPrefix(streams[n], "refused "); is {
			return &http.Response{StatusCode: http.StatusServiceUnavailable, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(body))}, nil
		}
		if streams[n] == "silence" {
			ended, stop := io.Pipe()
			context.AfterFunc(r.Context(), func() { _ = stop.CloseWithError(context.Canceled) })
			return &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {fleet.EventStream}}, Body: ended}, nil
		}
		return &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {fleet.EventStream}}, Body: io.NopCloser(strings.NewReader(streams[n]))}, nil
	})}}, asked
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func event(id int, cluster string, more bool) string {
	s := fmt.Sprintf("event: change\ndata: {\"id\":%d,\"kind\":\"change\",\"cluster\":%q,\"more\":%t}\n", id, cluster, more)
	if !more {
		s += fmt.Sprintf("id: %d\n", id)
	}
	return s + "\n"
}

var errEnough = errors.New("enough")

func TestEventsGoOnAfterAnInterruption(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, asked := events(t,
			"id: 3\n\n:\n\n"+event(4, "a", false)+event(5, "b", true)+event(5, "c\u202e", true),
			`refused {"code":"Unavailable","error":"later"}`,
			event(5, "b", true)+event(5, "c", true)+event(5, "d", false)+"id: 9\n\n"+"event: error\ndata: {\"code\":\"Busy\",\"error\":\"slow\"}\n\n",
			"silence",
			event(10, "e", false)+event(11, "f", false),
		)
		var got []string
		err := c.Events(t.Context(), -1, fleet.Query{Environments: []string{"dev"}, Limit: 3}, func(e fleet.Event) error {
			got = append(got, fmt.Sprint(e.ID, " ", e.Cluster))
			if e.Cluster == "f" {
				return errEnough
			}
			return nil
		})
		require.ErrorIs(t, err, errEnough)
		require.Equal(t, []string{"4 a", "5 b", "5 c", "5 d", "10 e", "11 f"}, got)
		require.Equal(t, []string{"environment=dev", "after=4&environment=dev", "after=4&environment=dev", "after=9&environment=dev", "after=9&environment=dev"}, *asked)
	})
}

func TestEventsThatCannotBeHadAreAnError(t *testing.T) {
	none := func(fleet.Event) error { return errors.New("an event") }
	c, _ := events(t, `refused {"code":"Unavailable","error":"later"}`)
	err := c.Events(t.Context(), 1, fleet.Query{}, none)
	var refused *hubapi.Error
	require.ErrorAs(t, err, &refused)
	c, _ = events(t, "event: error\ndata: {\"code\":\"Forgotten\",\"error\":\"old\"}\n\n")
	require.ErrorIs(t, c.Events(t.Context(), 1, fleet.Query{}, none), store.ErrForgotten)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "<html>") }))
	defer server.Close()
	require.ErrorContains(t, Client{URL: server.URL}.Events(t.Context(), 1, fleet.Query{}, none), "not a hub's")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, Client{URL: server.URL}.Events(ctx, 1, fleet.Query{}, none), context.Canceled)
}
