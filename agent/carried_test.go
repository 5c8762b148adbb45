package agent

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/specs-go"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/agent/carry"
	"github.com/wherry-dev/wherry/agent/state"
	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/graph"
	"github.com/wherry-dev/wherry/bundle/oci"
)

// imageSite is a site whose assignments carry images of a registry of their own.
type imageSite struct {
	*site
	images    *testRegistry
	host      string
	sizes     map[digest.Digest]int64 // of all blobs and manifests
	platforms []string                // that releases name
}

func newImageSite(t *testing.T) *imageSite { return newSite(t).withImages() }

// withImages gives a site a registry of images.
func (s *site) withImages() *imageSite {
	images := &imageSite{site: s, images: newTestRegistry(s.t), sizes: map[digest.Digest]int64{}}
	images.carries()
	return images
}

// carries has the agent take images from the registry of images.
func (s *imageSite) carries() {
	s.host = strings.TrimPrefix(s.images.URL, "http://")
	s.opts.Intake.Space = func(string) (int64, int64, bool) { return 1 << 40, 1 << 40, true } // whatever this machine has
	s.opts.Carry = carry.Options{
		Platforms: graph.Platforms{"linux/amd64"},
		Budget:    1 << 20,
		Space:     emptyDisk,
		Retry:     func(int) time.Duration { return time.Hour },
		Sources: func(_ context.Context, repository string) ([]carry.Source, error) {
			host, name, _ := strings.Cut(repository, "/")
			client := &http.Client{Transport: s.images.Client().Transport, Timeout: time.Minute}
			repo, err := oci.Location{Host: host}.Repository(name, oci.Options{HTTPClient: client})
			return []carry.Source{{Host: host, Target: repo}}, err
		},
	}
	s.opts.Content.Download.Retries = -1
}

// push stores content in the images' registry.
func (s *imageSite) push(name, mediaType string, data []byte) ocispec.Descriptor {
	s.t.Helper()
	repo, err := oci.Location{Host: s.host}.Repository(name, oci.Options{})
	require.NoError(s.t, err)
	blob := bundle.NewBlob(mediaType, data)
	if there, err := repo.Exists(s.t.Context(), blob.Descriptor); err != nil || !there {
		require.NoError(s.t, repo.Push(s.t.Context(), blob.Descriptor, bytes.NewReader(data)))
	}
	s.sizes[blob.Descriptor.Digest] = blob.Descriptor.Size
	d := blob.Descriptor
	d.Data = nil
	return d
}

// layer is content of n bytes that a text stands for.
func layer(text string, n int) []byte {
	sum := sha256.Sum256([]byte(text))
	return bytes.Repeat(sum[:], n/len(sum)+1)[:n]
}

// image pushes an image for one platform with the given layers of 1000 bytes each.
func (s *imageSite) image(name, platform string, layers ...string) ocispec.Descriptor {
	s.t.Helper()
	system, architecture, _ := strings.Cut(platform, "/")
	m := ocispec.Manifest{Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: ocispec.MediaTypeImageManifest}
	m.Config = s.push(name, ocispec.MediaTypeImageConfig, fmt.Appendf(nil, `{"os":%q,"architecture":%q}`, system, architecture))
	for _, l := range layers {
		m.Layers = append(m.Layers, s.push(name, ocispec.MediaTypeImageLayerGzip, layer(l, 1000)))
	}
	data, err := json.Marshal(m)
	require.NoError(s.t, err)
	d := s.push(name, m.MediaType, data)
	d.Platform = &ocispec.Platform{OS: system, Architecture: architecture}
	return d
}

// index pushes an index of manifests.
func (s *imageSite) index(name string, manifests ...ocispec.Descriptor) ocispec.Descriptor {
	s.t.Helper()
	data, err := json.Marshal(ocispec.Index{Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: ocispec.MediaTypeImageIndex, Manifests: manifests})
	require.NoError(s.t, err)
	return s.push(name, ocispec.MediaTypeImageIndex, data)
}

// needs are the images of assignments, as NAME:TAG, by the assignment.
type needs map[string]map[string]ocispec.Descriptor

// release publishes release n, each of whose assignments carries its images.
func (s *imageSite) release(n int64, files map[string]string, images needs, change map[string]func(*bundle.Assignment)) draft {
	s.t.Helper()
	var list []bundle.Artifact
	for name, own := range images {
		for ref, d := range own {
			repository, _, _ := strings.Cut(ref, ":")
			list = append(list, bundle.Artifact{
				Type: bundle.ArtifactImage, Name: s.host + "/" + repository, Reference: s.host + "/" + ref, Digest: d.Digest.String(), UsedBy: []string{name},
			})
		}
	}
	data, sum, err := bundle.MarshalArtifacts(bundle.MergeArtifacts(list))
	require.NoError(s.t, err)
	files[bundle.ArtifactsPath] = string(data)
	d := s.draft(n, files)
	d.Release.Artifacts, d.Release.Platforms = sum, s.platforms
	d.ChangeList = func(as []bundle.Assignment) {
		for i := range as {
			if images[as[i].Name] != nil {
				as[i].Carry = bundle.CarryImages
			}
			if f := change[as[i].Name]; f != nil {
				f(&as[i])
			}
		}
	}
	s.publish(d)
	return d
}

// refs are the names of carried content in the store's index.
func (s *imageSite) refs() (names []string) {
	s.t.Helper()
	data, err := os.ReadFile(filepath.Join(s.dir, state.StoreDir, ocispec.ImageIndexFile))
	require.NoError(s.t, err)
	var index ocispec.Index
	require.NoError(s.t, json.Unmarshal(data, &index))
	for _, d := range index.Manifests {
		if rest, ok := strings.CutPrefix(d.Annotations[ocispec.AnnotationRefName], s.host+"/"); ok {
			names = append(names, rest)
		}
	}
	slices.Sort(names)
	return names
}

// has reports whether the store has a blob with its content.
func (s *imageSite) has(d digest.Digest) bool {
	data, err := os.ReadFile(filepath.Join(s.dir, state.StoreDir, ocispec.ImageBlobsDir, "sha256", d.Encoded()))
	return err == nil && digest.FromBytes(data) == d
}

func TestAnAssignmentGetsItsContentOnceItsImagesAreHere(t *testing.T) {
	s := newImageSite(t)
	amd, arm := s.image("app", "linux/amd64", "base", "one"), s.image("app", "linux/arm64", "base-arm", "one-arm")
	index := s.index("app", amd, arm)
	s.release(1, map[string]string{"web-x/f": "1", "other-x/f": "1"}, needs{"web-x": {"app:1": index}}, nil)

	r := s.once() // which waits for what it has begun

	require.Equal(t, bundle.Compliant, r.Status.State, "%+v", r.Status.Items)
	requireFile(t, s.site.host, "web-x/f", "1")
	require.Equal(t, []string{"app/1", "app@" + index.Digest.String()}, s.refs())
	require.True(t, s.has(index.Digest), "byte for byte")
	require.True(t, s.has(amd.Digest))
	require.False(t, s.has(arm.Digest), "for no platform of the cluster")
	require.False(t, s.has(digest.FromBytes(layer("one-arm", 1000))))
	require.EqualValues(t, 3, s.images.blobs.Load(), "a config and two layers")
	require.Equal(t, &carry.Status{Artifacts: 1, StoredBytes: s.sizes[index.Digest] + s.sizes[amd.Digest] + 2000 + s.sizes[digest.FromString(`{"os":"linux","architecture":"amd64"}`)], BudgetBytes: 1 << 20}, r.Status.Carry)

	// Of the next release, one layer is new.
	next := s.image("app", "linux/amd64", "base", "two")
	s.release(2, map[string]string{"web-x/f": "2", "other-x/f": "1"}, needs{"web-x": {"app:2": next}}, nil)
	require.Equal(t, bundle.Compliant, s.once().Status.State)
	require.EqualValues(t, 4, s.images.blobs.Load())
	require.Equal(t, "app/2", s.refs()[0], "a tag is the running release's")
	require.Len(t, s.refs(), 3)

	// After a rollback, nothing is fetched again.
	requests := s.images.requests.Load()
	s.agent(func(a *Agent) {
		_, err := a.RollBack(Wish{To: "1"})
		require.NoError(t, err)
		require.Equal(t, bundle.Compliant, item(t, a.Once(t.Context(), 0), "web-x").State)
	})
	requireFile(t, s.site.host, "web-x/f", "1")
	require.Equal(t, requests, s.images.requests.Load())
	require.Contains(t, s.refs(), "app/1")
	require.NotContains(t, s.refs(), "app/2")
}

func TestOldContentRunsWhileImagesAreMissing(t *testing.T) {
	s := newImageSite(t)
	one, two := s.image("app", "linux/amd64", "base", "one"), s.image("app", "linux/amd64", "base", "two")
	s.release(1, map[string]string{"web-x/f": "1", "other-x/f": "1"}, needs{"web-x": {"app:1": one}}, nil)
	require.Equal(t, bundle.Compliant, s.once().Status.State)

	s.images.away.Store(true)
	waves := map[string]func(*bundle.Assignment){"later-x": func(a *bundle.Assignment) { a.Wave = 1 }, "needs-x": func(a *bundle.Assignment) { a.DependsOn = []string{"web-x"} }}
	s.release(2, map[string]string{"web-x/f": "2", "other-x/f": "2", "later-x/f": "2", "needs-x/f": "2"}, needs{"web-x": {"app:2": two}}, waves)
	r := s.once()

	i := item(t, r, "web-x")
	require.Equal(t, bundle.Pulling, i.State)
	require.Equal(t, carry.ReasonArtifactUnreachable, i.Reason)
	require.Contains(t, i.Message, "1 of 1 artifacts are missing")
	require.Contains(t, i.Message, s.host+"/app:2")
	require.Equal(t, bundle.Pulling, r.Status.State)
	requireFile(t, s.site.host, "web-x/f", "1")
	requireFile(t, s.site.host, "other-x/f", "2")
	requireFile(t, s.site.host, "later-x/f", "2")
	require.Equal(t, "DependencyNotReady", item(t, r, "needs-x").Reason)
	require.True(t, s.has(one.Digest), "the good release's")

	s.images.away.Store(false)
	require.Equal(t, bundle.Compliant, s.once().Status.State)
	requireFile(t, s.site.host, "web-x/f", "2")
	requireFile(t, s.site.host, "needs-x/f", "2")
}

func TestARunningAgentGoesOnWhenImagesHaveArrived(t *testing.T) {
	s := newImageSite(t)
	app := s.image("app", "linux/amd64", "base", "one")
	s.release(1, map[string]string{"web-x/f": "1", "other-x/f": "1"}, needs{"web-x": {"app:1": app}}, nil)
	hold := make(chan struct{})
	hook := func(_ http.ResponseWriter, req *http.Request) bool {
		if strings.Contains(req.URL.Path, "/blobs/") {
			<-hold
		}
		return false
	}
	s.images.hook.Store(&hook)
	s.agent(func(a *Agent) {
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- a.Run(ctx) }()
		client := NewClient(s.dir)
		require.Eventually(t, func() bool {
			st, err := client.Status(ctx)
			return err == nil && len(st.Items) == 2 && st.Items[0].State == bundle.Compliant && st.Items[1].State == bundle.Pulling && st.Items[1].Reason == carry.ReasonCarrying
		}, time.Minute, 10*time.Millisecond, "another assignment does not wait")
		st, err := client.Status(ctx)
		require.NoError(t, err)
		require.Equal(t, 1, st.Carry.Missing)
		require.Equal(t, []carry.AssignmentStatus{{Assignment: "web-x", Artifacts: 1, Missing: 1, MissingBytes: st.Carry.MissingBytes, Reason: carry.ReasonCarrying}}, st.Carry.Assignments)
		close(hold)
		require.Eventually(t, func() bool {
			st, err := client.Status(ctx)
			return err == nil && st.State == bundle.Compliant
		}, time.Minute, 10*time.Millisecond)
		cancel()
		require.NoError(t, <-done)
	})
	requireFile(t, s.site.host, "web-x/f", "1")
}

func TestAPauseHoldsUpNoTransfer(t *testing.T) {
	s := newImageSite(t)
	one, two := s.image("app", "linux/amd64", "one"), s.image("app", "linux/amd64", "two")
	s.release(1, map[string]string{"web-x/f": "1"}, needs{"web-x": {"app:1": one}}, nil)
	require.Equal(t, bundle.Compliant, s.once().Status.State)
	s.release(2, map[string]string{"web-x/f": "2"}, needs{"web-x": {"app:2": two}}, nil)
	s.agent(func(a *Agent) {
		_, err := a.Pause("maintenance", 0)
		require.NoError(t, err)
		a.Once(t.Context(), 0)
	})
	requireFile(t, s.site.host, "web-x/f", "1")
	require.True(t, s.has(two.Digest))
	requests := s.images.requests.Load()
	s.agent(func(a *Agent) {
		_, err := a.Resume(false)
		require.NoError(t, err)
		require.Equal(t, bundle.Compliant, a.Once(t.Context(), 0).Status.State)
	})
	requireFile(t, s.site.host, "web-x/f", "2")
	require.Equal(t, requests, s.images.requests.Load())
}

func TestArtifactsOfAFirstReleaseComeBeforeTheClusterMayBeChanged(t *testing.T) {
	s := newImageSite(t)
	one := s.image("app", "linux/amd64", "one")
	s.release(1, map[string]string{"web-x/f": "1"}, needs{"web-x": {"app:1": one}}, nil)
	s.agent(func(a *Agent) {
		_, err := a.Pause("maintenance", 0)
		require.NoError(t, err)
		require.Equal(t, 0, a.Once(t.Context(), 0).Status.Carry.Missing)
	})
	require.NoDirExists(t, filepath.Join(s.site.host, "web-x"))
	require.True(t, s.has(one.Digest))
	require.Equal(t, []string{"app@" + one.Digest.String()}, s.refs(), "its tag is named once it runs")
}

func TestWhatDoesNotFitIsHeldAlone(t *testing.T) {
	s := newImageSite(t)
	large, small := s.image("large", "linux/amd64", "l1", "l2", "l3", "l4"), s.image("small", "linux/amd64", "s1")
	s.opts.Carry.Budget = 3000
	s.release(1, map[string]string{"a-x/f": "1", "b-x/f": "1", "later-x/f": "1"}, needs{"a-x": {"large:1": large}, "b-x": {"small:1": small}}, map[string]func(*bundle.Assignment){
		"later-x": func(a *bundle.Assignment) { a.Wave = 1 },
	})
	r := s.once()
	require.Equal(t, bundle.Pulling, item(t, r, "a-x").State)
	require.Equal(t, carry.ReasonNoRoom, item(t, r, "a-x").Reason, item(t, r, "a-x").Message)
	require.Equal(t, bundle.Compliant, item(t, r, "b-x").State)
	require.Equal(t, bundle.Compliant, item(t, r, "later-x").State)
	require.False(t, s.has(digest.FromBytes(layer("l1", 1000))), "nothing of it is brought")

	s.opts.Carry.Budget = 1 << 20
	require.Equal(t, bundle.Compliant, s.once().Status.State)
}

func TestAFormerReleasesImagesGiveWay(t *testing.T) {
	s := newImageSite(t)
	s.opts.Carry.Budget = 5000
	one, two := s.image("app", "linux/amd64", "base", "1a", "1b"), s.image("app", "linux/amd64", "base", "2a", "2b")
	s.release(1, map[string]string{"web-x/f": "1"}, needs{"web-x": {"app:1": one}}, nil)
	require.Equal(t, bundle.Compliant, s.once().Status.State)
	s.release(2, map[string]string{"web-x/f": "2"}, needs{"web-x": {"app:2": two}}, nil)
	r := s.once()
	require.Equal(t, bundle.Compliant, r.Status.State, "%+v", r.Status.Items)
	require.False(t, s.has(digest.FromBytes(layer("1a", 1000))))
	require.True(t, s.has(digest.FromBytes(layer("base", 1000))), "it is shared")
	require.EqualValues(t, 1+3+2, s.images.blobs.Load(), "the config and the base came once")
}

func TestWithoutCarryNothingIsAsked(t *testing.T) {
	s := newImageSite(t)
	app := s.image("app", "linux/amd64", "one")
	requests := s.images.requests.Load()
	s.release(1, map[string]string{"web-x/f": "1"}, needs{"web-x": {"app:1": app}}, map[string]func(*bundle.Assignment){"web-x": func(a *bundle.Assignment) { a.Carry = "" }})
	r := s.once()
	require.Equal(t, bundle.Compliant, r.Status.State)
	require.Nil(t, r.Status.Carry)
	require.Equal(t, requests, s.images.requests.Load())
	require.Empty(t, s.refs())
	require.NoDirExists(t, filepath.Join(s.dir, state.StoreDir, "carried-parts"))
}

func TestWhatNoReleaseListsGoes(t *testing.T) {
	s := newImageSite(t)
	one := s.image("app", "linux/amd64", "base", "one")
	s.release(1, map[string]string{"web-x/f": "1"}, needs{"web-x": {"app:1": one}}, nil)
	require.Equal(t, bundle.Compliant, s.once().Status.State)
	for n := range int64(3) { // until no kept release has it
		s.release(2+n, map[string]string{"web-x/f": fmt.Sprint(2 + n)}, nil, nil)
		require.Equal(t, n < 2, s.has(one.Digest), n)
		require.Equal(t, bundle.Compliant, s.once().Status.State)
		s.once() // which knows what proved good
	}
	require.False(t, s.has(one.Digest))
	require.Empty(t, s.refs())
	require.Nil(t, s.once().Status.Carry)
}
