package publisher

import (
	"context"
	"fmt"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	_ "github.com/distribution/distribution/v3/registry/storage/driver/inmemory"
	"github.com/stretchr/testify/require"
	"oras.land/oras-go/v2/registry/remote/auth"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/oci"
	"github.com/wherry-dev/wherry/publisher/keys"
	"github.com/wherry-dev/wherry/publisher/keytest"
	"github.com/wherry-dev/wherry/publisher/registrytest"
	"github.com/wherry-dev/wherry/publisher/releases"
	"github.com/wherry-dev/wherry/publisher/verify"
	"github.com/wherry-dev/wherry/scheduler"
	"github.com/wherry-dev/wherry/scheduler/finding"
)

// world is a destination with a key, a clock and an environment to publish.
type world struct {
	t      testing.TB
	dir    string // holds all that an embedded registry or a layout stores
	loc    oci.Location
	key    *keys.Key
	now    time.Time
	result *scheduler.Result
	opts   PublishOptions
	// front answers the registry's requests in place of it where it returns true.
	front func(http.ResponseWriter, *http.Request) bool
	// writes counts the requests that change a registry.
	writes atomic.Int64
	// checked, where it is set, remembers the releases that complete has found complete.
	checked map[string]bool
}

func newWorld(t testing.TB, kind string) *world {
	w := &world{
		t: t, dir: t.TempDir(), key: keytest.New(t), now: time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC),
		result: &scheduler.Result{Environment: "dev", Platform: "edge", BaseCommit: "c0ffee"},
	}
	w.result.ClusterTypes = []scheduler.ClusterTypeResult{
		{Name: "drone", Assignments: []scheduler.Assignment{assignment("drone", "web-live", "v1"), assignment("drone", "db-live", "v1")}},
		{Name: "large", Assignments: []scheduler.Assignment{assignment("large", "web-live", "v1")}},
		{Name: "small"},
	}
	if kind == "layout" {
		w.loc = oci.Location{Dir: w.dir}
		return w
	}
	handler := registrytest.New(t, kind, w.dir)
	server := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			w.writes.Add(1)
		}
		if w.front == nil || !w.front(rw, r) {
			handler.ServeHTTP(rw, r)
		}
	}))
	t.Cleanup(server.Close)
	w.loc = oci.Location{Host: server.Listener.Addr().String(), Prefix: "line/a"}
	w.opts.OCI.HTTPClient = server.Client() // does not try again
	w.opts.OCI.Credential = auth.StaticCredential("", auth.EmptyCredential)
	return w
}

// inBoth runs a test against a registry and against a layout.
func inBoth(t *testing.T, test func(*testing.T, *world)) {
	t.Parallel() // most of the time goes into syncing files
	for _, kind := range []string{"registry", "layout"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			test(t, newWorld(t, kind))
		})
	}
}

func assignment(clusterType, name, text string) scheduler.Assignment {
	workload, target, _ := strings.Cut(name, "-")
	return scheduler.Assignment{
		Name: name, ClusterType: clusterType, Workspace: "shop", Workload: workload, Target: target, Namespace: clusterType + "-" + name,
		Policies: []string{"everywhere"}, Adapter: "kubernetes",
		Config: []scheduler.ConfigSource{{Name: "common", Position: finding.Position{File: "/somewhere/common.yaml", Line: 3}}},
		Files: []scheduler.File{
			{Path: "namespace.yaml"},
			{Path: "platform-config.yaml", Data: []byte("text: " + text + "\n")},
			{Path: "reconciler.yaml", Data: []byte("kind: ConfigMap\n")},
		},
	}
}

func (w *world) publish() (*Published, error) {
	opts := w.opts
	opts.Now = func() time.Time { return w.now }
	return Publish(w.t.Context(), w.result, w.loc, []*keys.Key{w.key}, opts)
}

// mustPublish publishes and returns the outcome of each cluster type, and of the record.
func (w *world) mustPublish() (outcomes map[string]releases.Outcome, p *Published) {
	w.t.Helper()
	p, err := w.publish()
	require.NoError(w.t, err)
	return outcomesOf(p), p
}

func outcomesOf(p *Published) map[string]releases.Outcome {
	outcomes := map[string]releases.Outcome{"record": p.Record.Result}
	for _, ct := range p.ClusterTypes {
		outcomes[ct.ClusterType] = ct.Result
	}
	return outcomes
}

// row returns what p says of a cluster type.
func row(t testing.TB, p *Published, clusterType string) PublishedType {
	t.Helper()
	for _, ct := range p.ClusterTypes {
		if ct.ClusterType == clusterType {
			return ct
		}
	}
	t.Fatalf("%s is not in %+v", clusterType, p.ClusterTypes)
	return PublishedType{}
}

func (w *world) repository(name string) oci.Target {
	w.t.Helper()
	repo, err := w.loc.Repository(name, w.opts.OCI)
	require.NoError(w.t, err)
	return repo
}

// verified returns the bundle that a tag of dev's cluster type names.
func (w *world) verified(clusterType, tag string) *bundle.Verified {
	w.t.Helper()
	repo := w.repository("bundles/dev/" + clusterType)
	desc, err := repo.Resolve(w.t.Context(), tag)
	require.NoError(w.t, err)
	v, err := bundle.Verify(w.t.Context(), repo, desc, trustIn(w.key))
	require.NoError(w.t, err)
	return v
}

func (w *world) environmentRecord() bundle.EnvironmentRecord {
	w.t.Helper()
	repo := w.repository("environments/dev")
	desc, err := repo.Resolve(w.t.Context(), "latest")
	require.NoError(w.t, err)
	v, err := bundle.VerifyEnvironment(w.t.Context(), repo, desc, trustIn(w.key))
	require.NoError(w.t, err)
	return v.Record
}

// state tells whether anything changed at the destination.
func (w *world) state() map[string]string {
	w.t.Helper()
	state := map[string]string{"writes": fmt.Sprint(w.writes.Load())}
	require.NoError(w.t, filepath.WalkDir(w.dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := os.ReadFile(path)
		state[path] = string(data)
		return err
	}))
	return state
}

// complete returns an error if any manifest under a tag of dev's repositories is incomplete or invalid.
func (w *world) complete() error {
	ctx := context.WithoutCancel(w.t.Context())
	store, err := w.loc.Open(w.opts.OCI)
	if err != nil {
		return err
	}
	for _, name := range []string{"bundles/dev/drone", "bundles/dev/large", "bundles/dev/small", "environments/dev"} {
		repo, err := store.Repository(name)
		if err != nil {
			return err
		}
		tags, err := repo.Tags(ctx)
		if err != nil {
			return err
		}
		for _, tag := range tags {
			if strings.HasSuffix(tag, ".sig") {
				continue
			}
			id := name + ":" + tag
			if w.checked[id] {
				continue
			}
			ref := oci.Reference{Location: w.loc, Repository: name, Tag: tag}
			if w.loc.Host != "" {
				ref = oci.Reference{Location: oci.Location{Host: w.loc.Host}, Repository: w.loc.Prefix + "/" + name, Tag: tag}
			}
			if _, err := verify.ByKeys(ctx, ref, trustIn(w.key), w.now, w.opts.OCI); err != nil {
				return fmt.Errorf("%s: %w", ref, err)
			}
			if w.checked != nil && tag != bundle.LatestTag {
				w.checked[id] = true
			}
		}
	}
	return nil
}

// trustIn returns the trust of those who pin key alone.
func trustIn(key *keys.Key) bundle.Trust { return bundle.Pinned(bundle.Keys{key.Public()}) }
