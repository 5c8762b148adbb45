package published_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/opencontainers/go-digest"
	"github.com/stretchr/testify/require"
	"oras.land/oras-go/v2/errdef"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/oci"
	"github.com/wherry-dev/wherry/published"
	"github.com/wherry-dev/wherry/publisher"
	"github.com/wherry-dev/wherry/publisher/keys"
	"github.com/wherry-dev/wherry/publisher/keytest"
	"github.com/wherry-dev/wherry/publisher/trust"
	"github.com/wherry-dev/wherry/scheduler"
)

// publish publishes a release of drone in dev, and returns its own tag.
func publish(t *testing.T, loc oci.Location, key *keys.Key, text string, now time.Time) string {
	t.Helper()
	done, err := publisher.Publish(t.Context(), &scheduler.Result{Environment: "dev", Platform: "edge", ClusterTypes: []scheduler.ClusterTypeResult{{
		Name: "drone", Assignments: []scheduler.Assignment{{
			Name: "web-live", ClusterType: "drone", Workload: "web", Target: "live", Adapter: "directory",
			Files: []scheduler.File{{Path: "reconciler.yaml", Data: []byte("text: " + text + "\n")}},
		}},
	}}}, loc, []*keys.Key{key}, publisher.PublishOptions{Now: func() time.Time { return now }})
	require.NoError(t, err)
	return published.ReleaseTag(0, done.ClusterTypes[0].Sequence)
}

var (
	noon  = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	drone = bundle.Stream{Platform: "edge", Environment: "dev", ClusterType: "drone"}
)

func TestWhatLiesThereIsReadAsItLiesOrVerified(t *testing.T) {
	loc, mine, theirs := oci.Location{Dir: t.TempDir()}, keytest.New(t), keytest.New(t)
	first := publish(t, loc, mine, "one", noon)
	second := publish(t, loc, mine, "two", noon.Add(time.Hour))
	at, err := published.Open(loc, oci.Options{}, trust.PinnedBy([]*keys.Key{mine}))
	require.NoError(t, err)
	releases, err := at.Type(drone)
	require.NoError(t, err)
	v, current, err := releases.Read(t.Context(), first)
	require.NoError(t, err)
	require.True(t, current)
	require.Len(t, v.KeyIDs, 1)
	_, _, err = releases.Read(t.Context(), "s0-1")
	require.ErrorIs(t, err, errdef.ErrNotFound)
	require.NoError(t, published.IgnoreRefused(err))

	// Anybody's release is read as it lies there, and refused by a trust.
	by := releases.By(trust.PinnedBy([]*keys.Key{theirs}))
	_, _, err = by.Read(t.Context(), first)
	requireRefused(t, bundle.UntrustedKey, err)
	_, _, err = releases.By(published.Signers{}).Read(t.Context(), first)
	requireRefused(t, bundle.UntrustedKey, err)
	v, _, err = releases.By(published.AsItLies()).Read(t.Context(), first)
	require.NoError(t, err)
	require.Empty(t, v.KeyIDs)

	// A tag proves nothing: its release must be of that place and stream.
	desc, err := releases.Repo.Resolve(t.Context(), first)
	require.NoError(t, err)
	require.NoError(t, releases.Repo.Tag(t.Context(), desc, "s0-7"))
	_, _, err = releases.Read(t.Context(), "s0-7")
	requireRefused(t, bundle.BadContent, err)
	other, err := at.Type(bundle.Stream{Platform: "other", Environment: "dev", ClusterType: "drone"})
	require.NoError(t, err)
	_, _, err = other.Read(t.Context(), first)
	requireRefused(t, bundle.WrongPlatform, err)

	list, err := releases.List(t.Context(), published.MaxListed)
	require.NoError(t, err)
	require.Len(t, list, 2)
	require.Equal(t, second, list[0].Release.Tag())
	require.Equal(t, []string{bundle.LatestTag}, list[0].Tags)
	found, err := releases.Find(t.Context(), "1", errdef.ErrNotFound)
	require.NoError(t, err)
	require.Equal(t, desc.Digest, found.Digest)
	_, err = releases.Find(t.Context(), "9", errdef.ErrNotFound)
	require.ErrorAs(t, err, new(*published.UnknownReleaseError))
}

func requireRefused(t *testing.T, reason bundle.Reason, err error) {
	t.Helper()
	var refusal *bundle.Refusal
	require.ErrorAs(t, err, &refusal)
	require.Equal(t, reason, refusal.Reason, refusal.Message)
	require.NoError(t, published.IgnoreRefused(err))
}

func TestAPlaceReadsWhatADigestNamesOnce(t *testing.T) {
	var requests atomic.Int64
	handler := registry.New()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		requests.Add(1)
		handler.ServeHTTP(w, r)
	}))
	defer server.Close()
	loc, key := oci.Location{Host: strings.TrimPrefix(server.URL, "http://"), Prefix: "edge"}, keytest.New(t)
	publish(t, loc, key, "one", noon)
	at, err := published.Open(loc, oci.Options{}, trust.PinnedBy([]*keys.Key{key}))
	require.NoError(t, err)
	dev, err := at.Environment("dev")
	require.NoError(t, err)
	record, _, err := dev.Read(t.Context(), bundle.LatestTag)
	require.NoError(t, err)
	for i, want := range []int64{2, 0} { // the manifest and its signature
		before := requests.Load()
		releases, err := at.Type(drone)
		require.NoError(t, err)
		_, _, err = releases.Read(t.Context(), record.Record.ClusterTypes["drone"].String())
		require.NoError(t, err)
		require.Equal(t, want, requests.Load()-before, i)
	}
	server.Close()
	dev.Repo = nil // it is not asked
	_, _, err = dev.Read(t.Context(), record.Descriptor.Digest.String())
	require.NoError(t, err)
	other, err := at.Environment("prod")
	require.NoError(t, err)
	_, _, err = other.Read(t.Context(), bundle.LatestTag)
	require.ErrorIs(t, published.IgnoreRefused(err), oci.ErrUnreachable)
}

func TestRepositoriesAreNamedInOneWay(t *testing.T) {
	for text, want := range map[string]string{
		"oci://127.0.0.1:5000/edge/bundles/dev/drone":   "oci://127.0.0.1:5000/edge bundles/dev/drone ",
		"oci://127.0.0.1:5000/edge/environments/dev":    "oci://127.0.0.1:5000/edge environments/dev ",
		"oci-layout:/srv/out/bundles/dev/drone/latest":  "oci-layout:/srv/out bundles/dev/drone latest",
		"oci-layout:/srv/out/environments/dev/latest":   "oci-layout:/srv/out environments/dev latest",
		"oci://127.0.0.1:5000/edge/bundles/dev/a/drone": "",
	} {
		ref, err := oci.ParseReference(text)
		require.NoError(t, err)
		split, ok := published.Split(ref)
		if want == "" {
			require.False(t, ok, text)
			continue
		}
		require.Equal(t, want, split.Location.String()+" "+split.Repository+" "+split.Tag)
	}
}

func TestTagsSayWhatTheyName(t *testing.T) {
	hex := strings.Repeat("0a", 32)
	for tag, want := range map[string]published.Tag{
		"latest":                 {Kind: published.Moving},
		"ring-canary":            {Kind: published.Moving},
		"s1-20":                  {Kind: published.Own, Epoch: 1, Sequence: 20},
		"pending-1-20":           {Kind: published.Pending, Epoch: 1, Sequence: 20},
		"sha256-" + hex + ".sig": {Kind: published.Signature, Subject: digest.NewDigestFromEncoded(digest.SHA256, hex)},
		"sha256-" + hex + ".sig-0123456789abcdef": {Kind: published.Signature, Subject: digest.NewDigestFromEncoded(digest.SHA256, hex)},
		"sha256-" + hex + ".sig-0123":             {},
		"sha256-" + hex + ".att":                  {},
		"s01-20":                                  {},
		"s1-":                                     {},
		"s1-20-3":                                 {},
		"stable":                                  {},
	} {
		require.Equal(t, want, published.ParseTag(tag), tag)
	}
}
