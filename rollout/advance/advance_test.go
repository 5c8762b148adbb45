package advance_test

import (
	"context"
	"errors"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/stretchr/testify/require"
	"oras.land/oras-go/v2/registry/remote/auth"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/oci"
	"github.com/wherry-dev/wherry/published"
	"github.com/wherry-dev/wherry/publisher"
	"github.com/wherry-dev/wherry/publisher/keys"
	"github.com/wherry-dev/wherry/publisher/keytest"
	"github.com/wherry-dev/wherry/publisher/state"
	"github.com/wherry-dev/wherry/publisher/trust"
	"github.com/wherry-dev/wherry/rollout/advance"
	"github.com/wherry-dev/wherry/rollout/gate"
	"github.com/wherry-dev/wherry/scheduler"
)

// world is a registry in this process, and prod, of one cluster type and three rings.
type world struct {
	t       *testing.T
	loc     oci.Location
	keys    []*keys.Key
	now     time.Time
	opts    publisher.PublishOptions
	handler http.Handler
	// answers has what the gate of each ring says; empty is pass.
	answers map[string]gate.Result
	asked   []string
}

func newWorld(t *testing.T) *world {
	w := &world{
		t: t, loc: oci.Location{Host: "127.0.0.1:5000", Prefix: "edge"}, keys: []*keys.Key{keytest.New(t)},
		now: time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC), handler: registry.New(registry.Logger(log.New(io.Discard, "", 0))),
	}
	w.opts = publisher.PublishOptions{
		OCI: oci.Options{HTTPClient: &http.Client{Transport: w}, Credential: auth.StaticCredential("", auth.EmptyCredential)},
		Now: func() time.Time { return w.now },
	}
	return w
}

func (w *world) RoundTrip(r *http.Request) (*http.Response, error) {
	answer := httptest.NewRecorder()
	r.RequestURI = r.URL.RequestURI()
	if r.Body == nil {
		r.Body = http.NoBody
	}
	w.handler.ServeHTTP(answer, r)
	result := answer.Result()
	result.Request = r
	return result, nil
}

// publish releases content to the first ring, as of a commit of the same name.
func (w *world) publish(text string) {
	w.t.Helper()
	w.now = w.now.Add(time.Minute)
	result := &scheduler.Result{Environment: "prod", Platform: "edge", BaseCommit: text, Rings: []string{"canary", "early", "broad"}}
	result.ClusterTypes = []scheduler.ClusterTypeResult{{Name: "drone", Assignments: []scheduler.Assignment{{
		Name: "web-live", ClusterType: "drone", Workspace: "shop", Workload: "web", Target: "live", Namespace: "web", Adapter: "kubernetes",
		Files: []scheduler.File{{Path: "config.yaml", Data: []byte(text)}},
	}}}}
	_, err := publisher.Publish(w.t.Context(), result, w.loc, w.keys, w.opts)
	require.NoError(w.t, err)
}

func (w *world) judge(_ context.Context, ask advance.Ask) (gate.Verdict, error) {
	w.asked = append(w.asked, ask.Ring+"="+ask.Candidate.BaseCommit)
	v := gate.Verdict{Result: gate.Pass}
	if r := w.answers[ask.Ring]; r != "" {
		v.Result = r
	}
	if v.Result == gate.Wait {
		v.NextLook = w.now.Add(time.Duration(len(ask.Ring)) * time.Hour)
	}
	return v, nil
}

// has returns the commits of what the rings and agents without one have.
func (w *world) has() string {
	w.t.Helper()
	store, err := w.loc.Open(w.opts.OCI)
	require.NoError(w.t, err)
	rd := state.New(w.loc, store, trust.PinnedBy(w.keys), w.now, "edge", "prod", func(string, ...any) {})
	record, err := rd.Record(w.t.Context())
	require.NoError(w.t, err)
	drone, err := rd.Type(w.t.Context(), "drone")
	require.NoError(w.t, err)
	var commits []string
	var last bundle.Order
	for _, ring := range []string{"", "broad", "early", "canary"} {
		v, _, err := drone.Release(w.t.Context(), bundle.MovingTag(ring))
		require.NoError(w.t, err)
		require.Equal(w.t, record.ReleaseOf("drone", ring), v.Descriptor.Digest, "the record names what ring %q has", ring)
		require.GreaterOrEqual(w.t, published.OrderOf(v).Compare(last), 0, "ring %q is above the wider ones", ring)
		last = published.OrderOf(v)
		commits = append([]string{v.Release.BaseCommit}, commits...)
	}
	return strings.Join(commits, " ")
}

func TestARingGetsWhatTheRingBeforeItHasIfItsGatePasses(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		before  []string // "advance", or what is published
		answers map[string]gate.Result
		options advance.Options
		asked   string
		results []advance.Result
		want    string
		err     string
	}{
		"nothing to do":                      {before: []string{"a"}, want: "a a a a"},
		"pass":                               {before: []string{"a", "b"}, asked: "early=b", results: []advance.Result{advance.Advanced}, want: "b b a a"},
		"wait":                               {before: []string{"a", "b"}, answers: map[string]gate.Result{"early": gate.Wait}, asked: "early=b", results: []advance.Result{advance.NotYet}, want: "b a a a"},
		"fail":                               {before: []string{"a", "b"}, answers: map[string]gate.Result{"early": gate.Fail}, asked: "early=b", results: []advance.Result{advance.Held}, want: "b a a a"},
		"the last ring, and all without one": {before: []string{"a", "b", "advance"}, asked: "broad=b", results: []advance.Result{advance.Advanced}, want: "b b b b"},
		"each one step, the widest first":    {before: []string{"a", "b", "advance", "c"}, asked: "broad=b early=c", results: []advance.Result{advance.Advanced, advance.Advanced}, want: "c c b b"},
		"a newer one takes the place of one on its way": {
			before: []string{"a", "b", "advance", "c"}, answers: map[string]gate.Result{"broad": gate.Wait}, asked: "broad=b early=c",
			results: []advance.Result{advance.NotYet, advance.Advanced}, want: "c c a a",
		},
		"the narrow one waits, the wide one goes on": {
			before: []string{"a", "b", "advance", "c"}, answers: map[string]gate.Result{"early": gate.Fail}, asked: "broad=b early=c",
			results: []advance.Result{advance.Advanced, advance.Held}, want: "c b b b",
		},
		"one ring alone":         {before: []string{"a", "b", "advance", "c"}, options: advance.Options{Ring: "broad"}, asked: "broad=b", results: []advance.Result{advance.Advanced}, want: "c b b b"},
		"the first ring":         {before: []string{"a"}, options: advance.Options{Ring: "canary"}, err: "canary is the first ring"},
		"an unknown ring":        {before: []string{"a"}, options: advance.Options{Ring: "x"}, err: `unknown ring "x" (known: canary, early, broad)`},
		"an unknown type":        {before: []string{"a"}, options: advance.Options{ClusterType: "x"}, err: "cluster type x has no rings"},
		"an unknown environment": {before: []string{"a"}, options: advance.Options{Environment: "test"}, err: "test"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			for _, step := range tc.before {
				if step != "advance" {
					w.publish(step)
					continue
				}
				w.now = w.now.Add(time.Minute)
				_, err := advance.Once(t.Context(), w.loc, w.keys, advance.Options{Environment: "prod"}, w.judge, w.opts)
				require.NoError(t, err)
			}
			w.answers, w.asked = tc.answers, nil
			w.now = w.now.Add(time.Minute)
			if tc.options.Environment == "" {
				tc.options.Environment = "prod"
			}
			done, err := advance.Once(t.Context(), w.loc, w.keys, tc.options, w.judge, w.opts)
			if tc.err != "" {
				require.ErrorContains(t, err, tc.err)
				return
			}
			require.NoError(t, err)
			require.Equal(t, tc.asked, strings.Join(w.asked, " "))
			var results []advance.Result
			for _, s := range done.Steps {
				results = append(results, s.Result)
			}
			require.Equal(t, tc.results, results)
			require.Equal(t, tc.want, w.has())
		})
	}
}

func TestAPassSaysWhenToLookAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, step := range []string{"a", "b"} {
		w.publish(step)
	}
	_, err := advance.Once(t.Context(), w.loc, w.keys, advance.Options{Environment: "prod"}, w.judge, w.opts)
	require.NoError(t, err)
	w.publish("c")
	w.answers = map[string]gate.Result{"early": gate.Wait, "broad": gate.Wait}
	var done []*advance.Done
	tell := func(d *advance.Done) error { done = append(done, d); return nil }
	both := []advance.Options{{Environment: "nowhere"}, {Environment: "prod"}}
	err = advance.Pass(t.Context(), w.loc, w.keys, both, w.judge, w.opts, tell)
	require.ErrorContains(t, err, "environment nowhere", "the other one was looked at all the same")
	require.Len(t, done, 1)
	require.Len(t, done[0].Steps, 2)
	require.Equal(t, w.now.Add(5*time.Hour), done[0].NextLook)

	// A ring that got something is looked at again, until no gate passes.
	w.answers, done = map[string]gate.Result{"early": gate.Pass, "broad": gate.Pass}, nil
	require.NoError(t, advance.Pass(t.Context(), w.loc, w.keys, both[1:], w.judge, w.opts, tell))
	require.Len(t, done, 3)
	require.Empty(t, done[2].Steps)
	require.Equal(t, "c c c c", w.has())
	errPrint := errors.New("closed pipe")
	require.ErrorIs(t, advance.Pass(t.Context(), w.loc, w.keys, both[1:], w.judge, w.opts, func(*advance.Done) error { return errPrint }), errPrint)
}

// What a killed publisher has left in a ring was judged by nobody.
func TestWhatIsNotRecordedIsNotAdvanced(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.publish("a")
	w.publish("b")
	handler := w.handler
	w.handler = http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) { // it dies before the record
		if r.Method == http.MethodPut && strings.Contains(r.URL.Path, "/environments/") {
			rw.WriteHeader(http.StatusForbidden)
			return
		}
		handler.ServeHTTP(rw, r)
	})
	w.now = w.now.Add(time.Minute)
	result := &scheduler.Result{Environment: "prod", Platform: "edge", BaseCommit: "c", Rings: []string{"canary", "early", "broad"}}
	result.ClusterTypes = []scheduler.ClusterTypeResult{{Name: "drone", Assignments: []scheduler.Assignment{{
		Name: "web-live", ClusterType: "drone", Workspace: "shop", Workload: "web", Target: "live", Namespace: "web", Adapter: "kubernetes",
		Files: []scheduler.File{{Path: "config.yaml", Data: []byte("c")}},
	}}}}
	_, err := publisher.Publish(t.Context(), result, w.loc, w.keys, w.opts)
	require.Error(t, err)
	w.handler = handler
	_, err = advance.Once(t.Context(), w.loc, w.keys, advance.Options{Environment: "prod"}, w.judge, w.opts)
	require.ErrorIs(t, err, publisher.ErrUnfinished)
	w.publish("c")
	_, err = advance.Once(t.Context(), w.loc, w.keys, advance.Options{Environment: "prod"}, w.judge, w.opts)
	require.NoError(t, err)
	require.Equal(t, "c c a a", w.has())
}

func TestLookSaysWhatRingsHaveAndChangesNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, step := range []string{"a", "b", "advance", "c"} {
		if step != "advance" {
			w.publish(step)
			continue
		}
		w.now = w.now.Add(time.Minute)
		_, err := advance.Once(t.Context(), w.loc, w.keys, advance.Options{Environment: "prod"}, w.judge, w.opts)
		require.NoError(t, err)
	}
	look := func(clusterType string) (*advance.Seen, error) {
		handler := w.handler
		w.handler = http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			require.Contains(t, []string{http.MethodGet, http.MethodHead}, r.Method)
			handler.ServeHTTP(rw, r)
		})
		defer func() { w.handler = handler }()
		return advance.Look(t.Context(), w.loc, w.opts.OCI, trust.PinnedBy(w.keys), advance.Options{Environment: "prod", ClusterType: clusterType}, w.judge, w.now)
	}
	w.answers = map[string]gate.Result{"early": gate.Wait}
	seen, err := look("")
	require.NoError(t, err)
	require.Equal(t, "edge", seen.Platform)
	require.Equal(t, w.now.Add(5*time.Hour), seen.NextLook)
	var all []string
	for _, r := range seen.Rings {
		require.Len(t, r.Releases, 1)
		require.Equal(t, "drone", r.Releases[0].ClusterType)
		require.Equal(t, r.Releases[0].BaseCommit, r.BaseCommit)
		text := r.Ring + "=" + r.BaseCommit
		if r.Next != nil {
			text += ">" + r.Next.Ring + " " + string(r.Next.Result)
		}
		all = append(all, text)
	}
	require.Equal(t, []string{"canary=c>early not yet", "early=b>broad ready", "broad=a"}, all)
	require.Equal(t, "c b a a", w.has())
	_, err = look("x")
	require.ErrorContains(t, err, `unknown cluster type "x"`)
	_, err = advance.Look(t.Context(), w.loc, w.opts.OCI, trust.PinnedBy([]*keys.Key{keytest.New(t)}), advance.Options{Environment: "prod"}, w.judge, w.now)
	require.Error(t, err, "nobody who is trusted has signed it")
}
