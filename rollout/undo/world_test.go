package undo_test

import (
	"context"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/opencontainers/go-digest"
	"github.com/stretchr/testify/require"
	"oras.land/oras-go/v2/registry/remote/auth"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/oci"
	"github.com/wherry-dev/wherry/publisher"
	"github.com/wherry-dev/wherry/publisher/keys"
	"github.com/wherry-dev/wherry/publisher/keytest"
	"github.com/wherry-dev/wherry/publisher/state"
	"github.com/wherry-dev/wherry/publisher/trust"
	"github.com/wherry-dev/wherry/rollout/advance"
	"github.com/wherry-dev/wherry/rollout/decisions"
	"github.com/wherry-dev/wherry/rollout/gate"
	"github.com/wherry-dev/wherry/rollout/undo"
	"github.com/wherry-dev/wherry/scheduler"
	"github.com/wherry-dev/wherry/scheduler/promotion"
)

// world is a registry in this process, without a socket, and the environment prod.
type world struct {
	t    testing.TB
	loc  oci.Location
	keys []*keys.Key
	now  time.Time
	opts publisher.PublishOptions
	// rings are those of the platform; texts say what each cluster type's workload is, which the next publication releases.
	rings []string
	texts map[string]string
	// fails are cluster types of which something fails.
	fails map[string]bool
	// after has a request fail: nil where none does.
	after   func(n int64) bool
	count   atomic.Int64
	handler http.Handler
	plain   bool // nobody commits
	// db is what a second workload says, next to web, whose folder in git is then known; empty if there is web alone.
	db string
}

var ringsOfTest = []string{"canary", "early", "broad"}

func newWorld(t testing.TB, rings ...string) *world {
	w := &world{
		t: t, loc: oci.Location{Host: "127.0.0.1:5000", Prefix: "edge"}, keys: []*keys.Key{keytest.New(t)},
		now: time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC), rings: rings, texts: map[string]string{"drone": "", "large": ""}, fails: map[string]bool{},
	}
	w.handler = registry.New(registry.Logger(log.New(io.Discard, "", 0)))
	w.opts = publisher.PublishOptions{
		OCI:      oci.Options{HTTPClient: &http.Client{Transport: w}, Credential: auth.StaticCredential("", auth.EmptyCredential)},
		Parallel: 2, Now: func() time.Time { return w.now },
	}
	return w
}

// RoundTrip has the registry answer.
func (w *world) RoundTrip(r *http.Request) (*http.Response, error) {
	if n := w.count.Add(1); w.after != nil && w.after(n) {
		return nil, fmt.Errorf("the line is cut")
	}
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

// publish releases what texts say, as of a commit, to a ring or the first.
func (w *world) publish(commit, ring string) (*publisher.Published, error) {
	if w.plain {
		commit = ""
	}
	result := &scheduler.Result{Environment: "prod", Platform: "edge", BaseCommit: commit, Rings: w.rings}
	for _, name := range slices.Sorted(keysOf(w.texts)) {
		ct := scheduler.ClusterTypeResult{Name: name, Assignments: []scheduler.Assignment{{
			Name: "web-live", ClusterType: name, Workspace: "shop", Workload: "web", Target: "live", Namespace: "web", Adapter: "kubernetes",
			Files: []scheduler.File{{Path: "config.yaml", Data: []byte(w.texts[name])}},
		}}}
		if w.fails[name] {
			ct.Failures = []scheduler.Failure{{Name: "db-live", Err: fmt.Errorf("no"), Reason: scheduler.RenderFailed}}
		}
		result.ClusterTypes = append(result.ClusterTypes, ct)
	}
	if w.db != "" {
		w.addWorkloads(result)
	}
	opts := w.opts
	if ring != "" {
		opts.Rings = []string{ring}
	}
	return publisher.Publish(w.t.Context(), result, w.loc, w.keys, opts)
}

// addWorkloads adds a second workload to all cluster types, and says of both where they were read.
func (w *world) addWorkloads(result *scheduler.Result) {
	placeOf := func(text string) scheduler.Place {
		return scheduler.Place{Repo: "https://git.example/shop", Ref: "main", Commit: commitOf(text), Path: "deploy", ID: commitOf("folder " + text)}
	}
	result.Places = map[string]scheduler.Place{"shop": {Repo: "https://git.example/shop", Ref: "main", Commit: commitOf("shop")}}
	result.Declared = map[string]map[string]bool{"shop": {"web-live": true, "db-live": true}}
	for _, name := range []string{"web", "db"} {
		result.Workloads = append(result.Workloads, scheduler.Workload{
			Registration: "shop", Name: name, Object: digest.FromString(name), Targets: []scheduler.WorkloadTarget{{Name: "live", FullName: name + "-live"}},
		})
	}
	for i := range result.ClusterTypes {
		ct := &result.ClusterTypes[i]
		web := &ct.Assignments[0]
		db := *web
		text := string(web.Files[0].Data)
		web.Registration, web.Version, web.Origin = "shop", text, placeOf(text)
		db.Name, db.Workload, db.Registration, db.Version, db.Origin = "db-live", "db", "shop", w.db, placeOf(w.db)
		db.Files = []scheduler.File{{Path: "config.yaml", Data: []byte(w.db)}, {Path: "pod.yaml", Data: []byte("apiVersion: v1\nkind: Pod\nmetadata: {name: db}\nspec: {containers: [{image: example.com/db:1}]}\n")}}
		ct.Assignments = append(ct.Assignments, db)
	}
}

func keysOf[V any](m map[string]V) func(func(string) bool) {
	return func(yield func(string) bool) {
		for k := range m {
			if !yield(k) {
				return
			}
		}
	}
}

// do carries out one step: "a" publishes content a of all cluster types as of a commit named after it, "a@early" to a ring, "drone=a" of one
// cluster type alone, "undo …" and "abort …" and "advance …" with options such as ring=canary.
func (w *world) do(step string) error {
	w.now = w.now.Add(time.Minute)
	verb, rest, _ := strings.Cut(step, " ")
	o := undo.Options{Environment: "prod", Reason: "because"}
	a := advance.Options{Environment: "prod"}
	for _, word := range strings.Fields(rest) {
		switch name, value, _ := strings.Cut(word, "="); name {
		case "ring":
			o.Ring, a.Ring = value, value
		case "type":
			o.ClusterType, a.ClusterType = value, value
		case "to":
			o.To = value
		case "workload":
			o.Workload = value
		case "allow-empty":
			o.AllowEmpty = true
		}
	}
	var err error
	switch verb {
	case "undo":
		_, err = undo.Undo(w.t.Context(), w.loc, w.keys, o, w.opts)
	case "abort":
		_, err = undo.Abort(w.t.Context(), w.loc, w.keys, o, w.opts)
	case "advance":
		_, err = advance.Once(w.t.Context(), w.loc, w.keys, a, passes, w.opts)
	case "renew":
		w.now = w.now.Add(80 * 24 * time.Hour)
		last := w.record()
		_, err = w.publish(last.BaseCommit, "")
	default:
		what, ring, _ := strings.Cut(verb, "@")
		name, text, one := strings.Cut(what, "=")
		if name == "db" {
			w.db = text
		}
		for t := range w.texts {
			if one && t == name {
				w.texts[t] = text
			} else if !one {
				w.texts[t] = what
			}
		}
		_, err = w.publish(commitOf(what), ring)
	}
	return err
}

// walk carries out steps, separated by semicolons; see do. Beside those, "fail" and "mend" let something of drone fail, "again" lets what was
// undone come again, and "+TYPE" and "-TYPE" are about cluster types. It returns false if the last step failed as it should.
func (w *world) walk(text, wantErr string) bool {
	w.t.Helper()
	steps := strings.Split(text, ";")
	for i, step := range steps {
		var err error
		switch {
		case step == "fail":
			w.fails["drone"] = true
		case step == "mend":
			w.fails["drone"] = false
		case step == "again":
			w.opts.Again = w.now
		case step[0] == '+':
			w.texts[step[1:]] = ""
		case step[0] == '-':
			delete(w.texts, step[1:])
			w.opts.AllowEmpty = true
		default:
			err = w.do(step)
		}
		if wantErr != "" && i == len(steps)-1 {
			require.ErrorContains(w.t, err, wantErr)
			require.Empty(w.t, w.paused(), "nothing was done, and so nothing is paused")
			return false
		}
		require.NoError(w.t, err, step)
	}
	return true
}

func passes(context.Context, advance.Ask) (gate.Verdict, error) {
	return gate.Verdict{Result: gate.Pass}, nil
}

// commitOf names the commit of a step.
func commitOf(what string) string {
	return digest.FromString(what).Encoded()[:40]
}

func (w *world) reader() state.Reader {
	store, err := w.loc.Open(w.opts.OCI)
	require.NoError(w.t, err)
	signers := w.opts.Trust
	if !signers.Documented() {
		signers = trust.PinnedBy(w.keys)
	}
	return state.New(w.loc, store, signers, w.now, "edge", "prod", func(string, ...any) {})
}

func (w *world) record() bundle.EnvironmentRecord {
	w.t.Helper()
	rd := w.reader()
	r, err := rd.Record(w.t.Context())
	require.NoError(w.t, err)
	return r.Verified.Record
}

// has says what the record names for the rings of the cluster types, and that the tags agree.
func (w *world) has() string { return w.hasOf("web-live") }

// hasOf is has for an assignment.
func (w *world) hasOf(assignment string) string {
	w.t.Helper()
	rd, r := w.reader(), w.record()
	var all []string
	for _, name := range r.Types() {
		repo, err := rd.Store.Repository("bundles/prod/" + name)
		require.NoError(w.t, err)
		var texts []string
		rings := []string{}
		if r.Rings != nil {
			rings = append(rings, w.rings...)
		}
		for _, ring := range append(rings, "") {
			d := r.ReleaseOf(name, ring)
			desc, err := repo.Resolve(w.t.Context(), bundle.MovingTag(ring))
			require.NoError(w.t, err)
			require.Equal(w.t, d, desc.Digest, "%s: %q", name, ring)
			texts = append(texts, w.textOf(rd, name, d, assignment))
		}
		all = append(all, name+": "+strings.Join(texts, " "))
	}
	return strings.Join(all, ", ")
}

func (w *world) textOf(rd state.Reader, clusterType string, d digest.Digest, assignment string) string {
	t, err := rd.Place.Named("bundles/prod/" + clusterType)
	require.NoError(w.t, err)
	v, _, err := t.Read(w.t.Context(), d.String())
	require.NoError(w.t, err)
	tree, err := t.Tree(w.t.Context(), v)
	require.NoError(w.t, err)
	defer tree.Close()
	data, err := tree.ReadFile(assignment + "/config.yaml")
	if err != nil {
		return "empty"
	}
	return string(data)
}

// paused returns the reason of the pause that is in force; empty if there is none.
func (w *world) paused() string {
	w.t.Helper()
	found, err := decisions.Read(w.t.Context(), w.loc, w.opts.OCI, "prod", nil)
	require.NoError(w.t, err)
	signers := w.opts.Trust
	if !signers.Documented() {
		signers = trust.PinnedBy(w.keys)
	}
	p, _ := decisions.Paused(found, decisions.Trust{Platform: "edge", Policy: promotion.Policy{Environment: "prod"}, Releases: signers, Now: w.now})
	return p.Reason
}
