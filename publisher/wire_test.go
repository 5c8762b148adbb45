package publisher

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/opencontainers/go-digest"
	"github.com/stretchr/testify/require"
	"oras.land/oras-go/v2/errdef"
	"oras.land/oras-go/v2/registry/remote/auth"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/oci"
	"github.com/wherry-dev/wherry/published"
	"github.com/wherry-dev/wherry/publisher/keytest"
	"github.com/wherry-dev/wherry/scheduler"
)

// wire carries requests to a registry in this process without a socket, so that thousands of publications
// cost seconds. Where on is set, it decides what becomes of a request; serve has the registry answer it.
type wire struct {
	handler http.Handler
	on      func(r *http.Request, serve func() *http.Response) (*http.Response, error)
}

func (w *wire) RoundTrip(r *http.Request) (*http.Response, error) {
	serve := func() *http.Response {
		answer := httptest.NewRecorder()
		r.RequestURI = r.URL.RequestURI()
		if r.Body == nil {
			r.Body = http.NoBody
		}
		w.handler.ServeHTTP(answer, r)
		result := answer.Result()
		result.Request = r
		return result
	}
	if w.on != nil {
		return w.on(r, serve)
	}
	return serve(), nil
}

// onWire has w talk to handler over a wire of its own.
func (w *world) onWire(handler http.Handler) *wire {
	line := &wire{handler: handler}
	w.loc = oci.Location{Host: "127.0.0.1:5000", Prefix: "line/a"}
	w.opts.OCI = oci.Options{HTTPClient: &http.Client{Transport: line}, Credential: auth.StaticCredential("", auth.EmptyCredential)}
	return line
}

// newWiredWorld is an environment of one cluster type and a registry that forgets with the test.
func newWiredWorld(t *testing.T) (*world, *wire) {
	w := &world{t: t, key: keytest.New(t), now: time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)}
	w.publishes("v1")
	line := w.onWire(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	return w, line
}

// beside returns another publisher of w's environment with the same key, on a wire of its own.
func (w *world) beside(handler http.Handler, text string) (*world, *wire) {
	other := &world{t: w.t, key: w.key, now: w.now}
	other.publishes(text)
	return other, other.onWire(handler)
}

// publishes makes one assignment of one cluster type what w publishes.
func (w *world) publishes(text string) {
	w.result = &scheduler.Result{Environment: "dev", Platform: "edge", BaseCommit: "c0ffee"}
	w.result.ClusterTypes = []scheduler.ClusterTypeResult{{Name: "drone", Assignments: []scheduler.Assignment{assignment("drone", "web-live", text)}}}
}

// follower judges what a registry offers as an agent of drone would, and as a gate would: it remembers the
// highest release that it has accepted.
type follower struct {
	*world
	highest bundle.Order
	// found holds the releases that were whole: nothing is ever deleted there.
	found map[digest.Digest]*bundle.Verified
}

func (w *world) newFollower(handler http.Handler) *follower {
	r := &follower{world: &world{t: w.t, key: w.key, now: w.now}, found: map[digest.Digest]*bundle.Verified{}}
	r.onWire(handler)
	return r
}

// poll follows latest, if there is one: the release must be whole and signed. One below the highest it leaves
// alone, as an agent does; requireSettled wants that to pass. All that the newest record names must be there too.
func (r *follower) poll() error {
	ctx := context.Background()
	repo := r.repository("bundles/dev/drone")
	desc, err := repo.Resolve(ctx, bundle.LatestTag)
	if errors.Is(err, errdef.ErrNotFound) {
		return r.pollRecord(ctx)
	}
	if err != nil {
		return err
	}
	v, err := r.whole(ctx, repo, desc.Digest.String())
	if err != nil {
		return fmt.Errorf("latest: %w", err)
	}
	expect := bundle.Expect{Stream: bundle.Stream{Platform: "edge", Environment: "dev", ClusterType: "drone"}, Highest: r.highest, Now: r.now}
	var refusal *bundle.Refusal
	switch err := expect.Check(v.Release, v.Descriptor.Digest); {
	case err == nil:
		r.highest = published.OrderOf(v)
	case !errors.As(err, &refusal) || refusal.Reason != bundle.OlderRelease:
		return fmt.Errorf("latest: %w", err)
	}
	return r.pollRecord(ctx)
}

func (r *follower) pollRecord(ctx context.Context) error {
	repo := r.repository("environments/dev")
	desc, err := repo.Resolve(ctx, bundle.LatestTag)
	if errors.Is(err, errdef.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	record, err := bundle.VerifyEnvironment(ctx, repo, desc, trustIn(r.key))
	if err != nil {
		return fmt.Errorf("record: %w", err)
	}
	for name, d := range record.Record.ClusterTypes {
		if _, err := r.whole(ctx, r.repository("bundles/dev/"+name), d.String()); err != nil {
			return fmt.Errorf("%s in the record: %w", name, err)
		}
	}
	return nil
}

// whole verifies a release and fetches its tree.
func (r *follower) whole(ctx context.Context, repo oci.Target, reference string) (*bundle.Verified, error) {
	desc, err := repo.Resolve(ctx, reference)
	if err != nil || r.found[desc.Digest] != nil {
		return r.found[desc.Digest], err
	}
	v, err := bundle.Verify(ctx, repo, desc, trustIn(r.key))
	if err != nil {
		return nil, err
	}
	if _, err := bundle.ReadBlob(ctx, repo, v.Tree, 1<<20); err != nil {
		return nil, err
	}
	r.found[desc.Digest] = v
	return v, nil
}

// requireSettled requires that all tags end on the newest release: each release's own tag names it, latest
// names the highest of them, and the newest record names the same, and is signed and tagged itself.
func (r *follower) requireSettled(msg ...any) {
	r.t.Helper()
	ctx := context.Background()
	repo := r.repository("bundles/dev/drone")
	tags, err := published.ReadTags(ctx, repo)
	require.NoError(r.t, err)
	var highest bundle.Order
	for _, tag := range lastFew(tags) {
		v, err := r.whole(ctx, repo, tag)
		require.NoError(r.t, err, msg...)
		require.Equal(r.t, tag, v.Release.Tag(), msg...)
		if o := published.OrderOf(v); o.Compare(highest) > 0 {
			highest = o
		}
	}
	require.Equal(r.t, map[string]digest.Digest{bundle.LatestTag: highest.Digest}, tags.Moving, msg...)
	repo = r.repository("environments/dev")
	tags, err = published.ReadTags(ctx, repo)
	require.NoError(r.t, err)
	for i, tag := range lastFew(tags) {
		desc, err := repo.Resolve(ctx, tag)
		require.NoError(r.t, err, msg...)
		record, err := bundle.VerifyEnvironment(ctx, repo, desc, trustIn(r.key))
		require.NoError(r.t, err, msg...)
		require.Equal(r.t, tag, record.Record.Tag(), msg...)
		if i == 0 {
			require.Equal(r.t, map[string]digest.Digest{bundle.LatestTag: desc.Digest}, tags.Moving, msg...)
			require.Equal(r.t, map[string]digest.Digest{"drone": highest.Digest}, record.Record.ClusterTypes, msg...)
		}
	}
	require.NoError(r.t, r.poll(), msg...)
	require.Equal(r.t, highest, r.highest, msg...)
}

// lastFew are the tags that a few publications can have made.
func lastFew(t published.Tags) []string {
	all := t.Releases()
	return all[:min(len(all), 5)]
}

// isAboutTags reports whether the order of r among other publishers' requests can matter: content under a
// digest never changes.
func isAboutTags(r *http.Request) bool {
	return strings.HasSuffix(r.URL.Path, "/tags/list") ||
		strings.Contains(r.URL.Path, "/manifests/") && !strings.Contains(r.URL.Path, "sha256")
}
