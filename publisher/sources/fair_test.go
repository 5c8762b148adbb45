package sources

import (
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/publisher/egress"
	"github.com/wherry-dev/wherry/publisher/gittest"
	"github.com/wherry-dev/wherry/publisher/meter"
)

// host is a server whose repositories behave as their names say. The honest ones are charts and a git repository.
type host struct {
	url   string
	asked atomic.Int64
}

func newHost(t *testing.T) *host {
	repo := t.TempDir()
	gittest.CommitFiles(t, repo, "main", map[string]string{"a": "1"})
	git := gittest.FullServer(repo)
	h := &host{}
	ended := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h.asked.Add(1)
		kind, _, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "-")
		switch kind {
		case "honest":
			_, _ = w.Write([]byte("entries:\n  web:\n  - {version: 1.0.0, digest: abc}\n"))
		case "git":
			r.URL.Path = "/" + strings.SplitN(strings.TrimPrefix(r.URL.Path, "/"), "/", 2)[1]
			git.ServeHTTP(w, r)
		case "hang":
			select {
			case <-r.Context().Done():
			case <-ended:
			}
		case "reset":
			conn, _, err := w.(http.Hijacker).Hijack()
			if err == nil {
				_ = conn.(*net.TCPConn).SetLinger(0)
				_ = conn.Close()
			}
		case "crawl":
			for r.Context().Err() == nil {
				_, _ = w.Write([]byte("#"))
				w.(http.Flusher).Flush()
				select {
				case <-ended:
					return
				case <-time.After(10 * time.Millisecond):
				}
			}
		case "huge":
			for r.Context().Err() == nil {
				if _, err := w.Write([]byte(strings.Repeat("# huge\n", 10_000))); err != nil {
					return
				}
			}
		}
	}))
	t.Cleanup(server.Close)
	t.Cleanup(func() { close(ended) })
	h.url = server.URL
	return h
}

// thisMachine is an access that reaches the servers of tests.
func thisMachine() *egress.Access {
	access := egress.New()
	access.Allow("127.0.0.1")
	return access
}

func chart(url string) Source {
	return Source{Kind: bundle.ArtifactChart, URL: url, Chart: "web", Semver: "*"}
}

// Whatever the sources of one registration do, at the same host too, the results of the others are those without it, in any order.
func TestTheSourcesOfOneRegistrationChangeNoOthersResult(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	honest := func() map[string][]Source {
		named := map[string][]Source{}
		for i := range 5 {
			name := fmt.Sprintf("team-%d", i)
			named[name] = []Source{chart(fmt.Sprintf("%s/honest-%d", h.url, i)), chart(h.url + "/honest-shared"), {Kind: bundle.ArtifactGit, URL: fmt.Sprintf("%s/git-%d/x", h.url, i), Branch: "main"}, chart(h.url + "/none-of-these")}
		}
		return named
	}
	results := func(found Found) string {
		var text strings.Builder
		for i := range 5 {
			for _, s := range honest()[fmt.Sprintf("team-%d", i)] {
				f := found[fmt.Sprintf("team-%d", i)][s]
				fmt.Fprintln(&text, i, s.URL, f.Revision, f.Version, f.Err)
			}
		}
		return text.String()
	}
	resolve := func(named map[string][]Source) Found {
		r := NewResolver(Options{Access: thisMachine(), Timeout: 5 * time.Second, Meters: meter.NewSet(meter.Budget{Time: 8 * time.Second, Bytes: 32 << 20})})
		defer func() { require.NoError(t, r.Close()) }()
		found, err := r.All(t.Context(), named)
		require.NoError(t, err)
		return found
	}
	want := resolve(honest())
	require.Contains(t, results(want), "sha256:abc 1.0.0 <nil>")
	require.Contains(t, results(want), "the repository has no chart")
	for seed := range uint64(3) {
		random := rand.New(rand.NewPCG(seed, 32))
		named := honest()
		for i := range 10 + random.IntN(60) {
			kind := []string{"hang", "reset", "crawl", "huge", "honest"}[random.IntN(5)]
			s := chart(fmt.Sprintf("%s/%s-%d", h.url, kind, i))
			switch random.IntN(4) {
			case 0:
				s = Source{Kind: bundle.ArtifactGit, URL: s.URL, Branch: "main"}
			case 1:
				s = chart(deadPort(t) + "/" + kind)
			}
			named["evil"] = append(named["evil"], s)
		}
		named["evil"] = append(named["evil"], chart(h.url+"/honest-shared"))
		random.Shuffle(len(named["evil"]), func(i, j int) { named["evil"][i], named["evil"][j] = named["evil"][j], named["evil"][i] })
		began := time.Now()
		found := resolve(named)
		require.Equal(t, results(want), results(found), "seed %d", seed)
		require.Less(t, time.Since(began), time.Minute)
	}
}

// What one registration got no connection to, another one tries once, for a shorter time.
func TestSilenceCountsPerOriginAndRegistration(t *testing.T) {
	h := newHost(t)
	const short = time.Second // in which a connection is made, on a busy machine too
	r := NewResolver(Options{Access: thisMachine(), Timeout: short})
	first := For(t.Context(), "a")
	dead := deadPort(t)
	require.Error(t, r.Of(first, chart(dead+"/1")).Err)
	require.EqualError(t, r.Of(first, chart(dead+"/2")).Err, "127.0.0.1 has not answered before")
	other := For(t.Context(), "b")
	require.ErrorContains(t, r.Of(other, chart(dead+"/2")).Err, "within 1s")
	require.EqualError(t, r.Of(other, chart(dead+"/3")).Err, "127.0.0.1 has not answered before")

	require.ErrorContains(t, r.Of(first, chart(h.url+"/hang-1")).Err, "no complete answer within 1s")
	r.timeout = time.Minute
	require.NoError(t, r.Of(first, chart(h.url+"/honest-1")).Err, "another repository of the host")
	r.timeout = short
	asked := h.asked.Load()
	again := chart(h.url + "/hang-1")
	again.Semver = "1.x"
	require.EqualError(t, r.Of(first, again).Err, "127.0.0.1 has not answered in time before")
	require.Equal(t, asked, h.asked.Load())
	require.ErrorContains(t, r.Of(other, again).Err, "no complete answer within 1s", "another registration is no worse off")
}

func TestARegistrationIsBoundedInSum(t *testing.T) {
	t.Parallel() // as most of its time is waited
	h := newHost(t)
	for name, c := range map[string]struct {
		budget meter.Budget
		kind   string
		want   string
	}{
		"sources":  {meter.Budget{Sources: 3}, "honest", `budget exceeded: registration "evil" uses 4 sources, and at most 3 are allowed in one publication`},
		"requests": {meter.Budget{Requests: 3}, "honest", `budget exceeded: registration "evil" uses 4 requests, and at most 3 are allowed in one publication`},
		"bytes":    {meter.Budget{Bytes: 1 << 20}, "huge", `bytes, and at most 1048576 are allowed in one publication`},
		"time":     {meter.Budget{Time: 2 * time.Second}, "hang", `budget exceeded: the sources of registration "evil" take more than 2s in one publication`},
	} {
		t.Run(name, func(t *testing.T) {
			set := meter.NewSet(c.budget)
			r := NewResolver(Options{Access: thisMachine(), Meters: set})
			ctx := For(t.Context(), "evil")
			var last *Resolution
			for i := range 4 {
				last = r.Of(ctx, chart(fmt.Sprintf("%s/%s-%d", h.url, c.kind, i)))
			}
			require.ErrorIs(t, last.Err, meter.ErrExceeded)
			require.ErrorContains(t, last.Err, c.want)
			require.NoError(t, r.Of(For(t.Context(), "good"), chart(h.url+"/honest-good")).Err)
			used := set.Used()
			require.Equal(t, []string{"evil", "good"}, []string{used[0].Registration, used[1].Registration})
			require.Equal(t, 1, used[1].Sources)
			require.Equal(t, 1, used[1].Requests)
			require.Positive(t, used[1].Bytes)
			require.Positive(t, used[1].Time)
		})
	}
	t.Run("disk", func(t *testing.T) {
		r := NewResolver(Options{Access: thisMachine(), Meters: meter.NewSet(meter.Budget{Disk: 10})})
		defer func() { require.NoError(t, r.Close()) }()
		found := r.Of(For(t.Context(), "evil"), Source{Kind: bundle.ArtifactGit, URL: h.url + "/git-1/x", Branch: "main"})
		require.ErrorIs(t, found.Err, meter.ErrExceeded)
		require.ErrorContains(t, found.Err, "bytes on disk, and at most 10 are allowed in one publication")
	})
}
