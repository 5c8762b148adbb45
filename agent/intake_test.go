package agent

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/agent/carry"
	"github.com/wherry-dev/wherry/agent/intake"
	"github.com/wherry-dev/wherry/airgap"
	"github.com/wherry-dev/wherry/airgap/packagetest"
	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/graph"
	"github.com/wherry-dev/wherry/bundle/oci"
	"github.com/wherry-dev/wherry/bundle/sweeptest"
)

// of is the same publisher for another cluster type.
func (s *imageSite) of(clusterType string) *imageSite {
	o, inner := *s, *s.site
	o.site = &inner
	o.stream.ClusterType = clusterType
	o.repo = s.repository(o.stream)
	return &o
}

// bundleRefs are the newest release of each stream with its signature, as a package names them.
func bundleRefs(streams ...*imageSite) (refs []packagetest.Ref) {
	for _, s := range streams {
		s.t.Helper()
		for _, tag := range []string{bundle.LatestTag, bundle.SignatureTag(s.resolve(bundle.LatestTag).Digest)} {
			refs = append(refs, packagetest.Ref{Name: s.stream.Repository() + "/" + tag, From: s.repo, Root: s.resolve(tag)})
		}
	}
	return refs
}

// imageRefs are images, by NAME:TAG.
func (s *imageSite) imageRefs(images map[string]ocispec.Descriptor) (refs []packagetest.Ref) {
	for _, ref := range slices.Sorted(maps.Keys(images)) {
		name, tag, _ := strings.Cut(ref, ":")
		repo, err := oci.Location{Host: s.host}.Repository(name, oci.Options{})
		require.NoError(s.t, err)
		refs = append(refs,
			packagetest.Ref{Name: s.host + "/" + name + "/" + tag, From: repo, Root: images[ref]},
			packagetest.Ref{Name: s.host + "/" + name + "@" + images[ref].Digest.String(), From: repo, Root: images[ref]})
	}
	return refs
}

func (s *imageSite) packed(change func(*airgap.Contents), refs ...[]packagetest.Ref) *packagetest.Package {
	s.t.Helper()
	p, err := packagetest.Make(s.t.Context(), slices.Concat(refs...), change)
	require.NoError(s.t, err)
	return p
}

// ofTwoTypes publishes a release of the own cluster type, whose image app has one set of layers, and one of the type office,
// whose image till has the other. It returns what a package of both refers to, and till.
func (s *imageSite) ofTwoTypes(app, till []string) (refs []packagetest.Ref, other ocispec.Descriptor) {
	s.t.Helper()
	own, other := s.image("app", "linux/amd64", app...), s.image("till", "linux/amd64", till...)
	s.release(1, map[string]string{"web-x/f": "1"}, needs{"web-x": {"app:1": own}}, nil)
	office := s.of("office")
	office.release(1, map[string]string{"desk-x/f": "7"}, needs{"desk-x": {"till:1": other}}, nil)
	return slices.Concat(bundleRefs(s, office), s.imageRefs(map[string]ocispec.Descriptor{"app:1": own, "till:1": other})), other
}

// takes imports a package in a process of its own, so to speak.
func (s *imageSite) takes(p *packagetest.Package) (r ImportResult) {
	s.t.Helper()
	path := s.file(p.Bytes())
	s.agent(func(a *Agent) {
		a.source = nil
		r = a.Import(s.t.Context(), ImportRequest{Paths: []string{path}})
	})
	return r
}

// outcomes are those of the streams, with their reasons.
func outcomes(r ImportResult) (all []string) {
	for _, s := range r.Streams {
		text := s.Name() + " " + string(s.Outcome)
		if s.Reason != "" {
			text += " " + string(s.Reason)
		}
		all = append(all, text)
	}
	return all
}

// blobsHere are the digests of the blobs in the store.
func (s *site) blobsHere() (all []string) {
	entries, err := os.ReadDir(filepath.Join(s.dir, "store", "blobs", "sha256"))
	if !errors.Is(err, os.ErrNotExist) {
		require.NoError(s.t, err)
	}
	for _, e := range entries {
		all = append(all, e.Name())
	}
	return all
}

// One medium for a site: the first box applies its own release, and a second agent of another cluster type takes its own
// release, and the image of that, from the first one's endpoint. There is no registry.
func TestOneMediumServesASite(t *testing.T) {
	s := newImageSite(t)
	s.serves()
	s.opts.Intake.Others = true
	app, till := s.image("app", "linux/amd64", "base", "app"), s.image("till", "linux/amd64", "base", "till")
	s.release(1, map[string]string{"web-x/f": "1"}, needs{"web-x": {"app:1": app}}, nil)
	office := s.of("office")
	office.release(7, map[string]string{"desk-x/f": "7"}, needs{"desk-x": {"till:2": till}}, nil)
	p := s.packed(nil, bundleRefs(s, office), s.imageRefs(map[string]ocispec.Descriptor{"app:1": app, "till:2": till}))
	s.registry.away.Store(true)
	s.images.away.Store(true)

	r := s.takes(p)
	require.Equal(t, Done, r.Verdict, r.Error)
	require.Equal(t, bundle.Compliant, r.Status.State, "%+v", r.Status)
	require.Equal(t, []string{"dev/drone taken", "dev/office taken"}, outcomes(r))
	requireFile(t, s.site.host, "web-x/f", "1")
	require.Equal(t, []string{"app/1", "app@" + app.Digest.String(), "till/2", "till@" + till.Digest.String()}, s.refs())
	require.Len(t, r.Status.Streams, 2)
	require.Equal(t, "office", r.Status.Streams[1].ClusterType)
	require.Equal(t, 1, r.Status.Streams[1].Artifacts)
	require.Positive(t, r.Status.Streams[1].Bytes)

	again := s.takes(p)
	require.Equal(t, Idle, again.Verdict, again.Error)
	require.Equal(t, []string{"dev/drone here", "dev/office here"}, outcomes(again))
	require.Equal(t, r.Status.Streams, again.Status.Streams)

	f := s.follower(s.served(), nil)
	f.stream = office.stream
	endpoint := s.served()
	loc, err := oci.Parse(endpoint)
	require.NoError(t, err)
	f.repo, err = loc.Repository(f.stream.Repository(), oci.Options{})
	require.NoError(t, err)
	f.opts.Carry = s.opts.Carry
	f.opts.Carry.Sources = func(_ context.Context, repository string) ([]carry.Source, error) {
		host, name, _ := strings.Cut(repository, "/")
		client := &http.Client{Transport: asMirror{host}}
		repo, err := oci.Location{Host: loc.Host}.Repository(name, oci.Options{HTTPClient: client})
		return []carry.Source{{Host: loc.Host, Target: repo}}, err
	}
	got := f.once()
	require.Equal(t, Done, got.Verdict, got.Error)
	require.Equal(t, bundle.Compliant, got.Status.State, "%+v", got.Status)
	requireFile(t, f.host, "desk-x/f", "7")
	require.Contains(t, f.blobsHere(), digest.FromBytes(layer("till", 1000)).Encoded())
}

// A package has images for some platforms. The site takes none that could never run there, and leaves nothing of it behind.
func TestAPackageForOtherPlatformsIsRefused(t *testing.T) {
	s := newImageSite(t)
	s.opts.Carry.Platforms = graph.Platforms{"linux/arm64"}
	app := s.index("app", s.image("app", "linux/amd64", "amd64"), s.image("app", "linux/arm64", "arm64"))
	s.release(1, map[string]string{"web-x/f": "1"}, needs{"web-x": {"app:1": app}}, nil)
	with := func(platform string) *packagetest.Package {
		images := s.imageRefs(map[string]ocispec.Descriptor{"app:1": app})
		for i := range images {
			images[i].Platform = platform
		}
		return s.packed(func(c *airgap.Contents) { c.ImagePlatforms = graph.Platforms{platform} }, bundleRefs(s), images)
	}
	amd64, arm64 := with("linux/amd64"), with("linux/arm64")
	s.registry.away.Store(true)
	s.images.away.Store(true)

	r := s.takes(amd64)
	require.Equal(t, []string{"dev/drone refused LacksPlatform"}, outcomes(r))
	require.Equal(t, s.host+"/app:1 is here for linux/amd64, and the site needs linux/arm64", r.Streams[0].Message)
	require.NotEqual(t, bundle.Rejected, r.Status.State)
	require.NoDirExists(t, filepath.Join(s.site.host, "web-x"))

	r = s.takes(arm64)
	require.Equal(t, []string{"dev/drone taken"}, outcomes(r))
	require.Contains(t, s.blobsHere(), digest.FromBytes(layer("arm64", 1000)).Encoded())
	require.NotContains(t, s.blobsHere(), digest.FromBytes(layer("amd64", 1000)).Encoded())

	// Without a word of the site's, the cluster type says it in the release.
	s = newImageSite(t)
	s.opts.Carry.Platforms, s.platforms = nil, []string{"linux/arm64"}
	app = s.index("app", s.image("app", "linux/amd64", "amd64"), s.image("app", "linux/arm64", "arm64"))
	s.release(1, map[string]string{"web-x/f": "1"}, needs{"web-x": {"app:1": app}}, nil)
	amd64, arm64 = with("linux/amd64"), with("linux/arm64")
	r = s.takes(amd64)
	require.Equal(t, []string{"dev/drone refused LacksPlatform"}, outcomes(r))
	require.Equal(t, s.host+"/app:1 is here for linux/amd64, and the site needs linux/arm64", r.Streams[0].Message)
	require.Equal(t, []string{"dev/drone taken"}, outcomes(s.takes(arm64)))

	s = newImageSite(t)
	s.opts.Carry.Platforms = graph.Platforms{"linux/arm64"}
	s.release(1, map[string]string{"web-x/f": "1"}, nil, nil)
	documents := s.packed(func(c *airgap.Contents) { c.ImagePlatforms = graph.Platforms{"linux/amd64"} }, bundleRefs(s))
	require.Equal(t, []string{"dev/drone taken"}, outcomes(s.takes(documents)), "without images")
}

// asMirror asks an endpoint for repositories of a host, as config's carriers do.
type asMirror struct{ host string }

func (m asMirror) RoundTrip(req *http.Request) (*http.Response, error) {
	req = req.Clone(req.Context())
	q := req.URL.Query()
	q.Set("ns", m.host)
	req.URL.RawQuery = q.Encode()
	return http.DefaultTransport.RoundTrip(req)
}

// A newer package takes the place of the one before, and an older one is refused.
func TestStreamsOnlyGoForward(t *testing.T) {
	s := newImageSite(t)
	s.opts.Intake.Others = true
	office := s.of("office")
	var packages []*packagetest.Package
	for n := range int64(2) {
		image := s.image("till", "linux/amd64", "base", fmt.Sprint("till", n))
		office.release(n+1, map[string]string{"desk-x/f": fmt.Sprint(n)}, needs{"desk-x": {"till:1": image}}, nil)
		packages = append(packages, s.packed(nil, bundleRefs(office), s.imageRefs(map[string]ocispec.Descriptor{"till:1": image})))
	}
	require.Equal(t, []string{"dev/office taken"}, outcomes(s.takes(packages[0])))
	first := digest.FromBytes(layer("till0", 1000)).Encoded()
	require.Contains(t, s.blobsHere(), first)

	r := s.takes(packages[1])
	require.Equal(t, []string{"dev/office taken"}, outcomes(r))
	require.Equal(t, Idle, r.Verdict, r.Error)
	require.NotContains(t, s.blobsHere(), first, "the content of the one before goes")
	require.Contains(t, s.blobsHere(), digest.FromBytes(layer("till1", 1000)).Encoded())
	before := s.blobsHere()

	r = s.takes(packages[0])
	require.Equal(t, []string{"dev/office older OlderRelease"}, outcomes(r))
	require.Equal(t, Idle, r.Verdict, r.Error)
	require.Contains(t, r.Streams[0].Message, "older than s0-2")
	require.Equal(t, before, s.blobsHere())
	require.Equal(t, []string{"till/1", "till@" + s.tagged("till/1").String()}, s.refs())
}

func (s *imageSite) tagged(name string) digest.Digest { return s.names()[s.host+"/"+name] }

// What two streams mean differently by one tag is served by digest alone.
func TestATagOfTwoMeaningsIsNotServed(t *testing.T) {
	s := newImageSite(t)
	s.opts.Intake.Others = true
	one, two := s.image("app", "linux/amd64", "one"), s.image("app", "linux/amd64", "two")
	s.release(1, map[string]string{"web-x/f": "1"}, needs{"web-x": {"app:1": one}}, nil)
	office := s.of("office")
	office.release(1, map[string]string{"web-x/f": "1"}, needs{"web-x": {"app:1": two}}, nil)
	refs := slices.Concat(bundleRefs(s, office), s.imageRefs(map[string]ocispec.Descriptor{"app:1": one}), s.imageRefs(map[string]ocispec.Descriptor{"app:1": two}))
	r := s.takes(s.packed(nil, refs))
	require.Equal(t, []string{"dev/drone taken", "dev/office taken"}, outcomes(r))
	want := []string{"app@" + one.Digest.String(), "app@" + two.Digest.String()}
	slices.Sort(want)
	require.Equal(t, want, s.refs())
}

// A package that leaves something out is refused by name before anything of it is copied, if the site lacks that; the other
// streams go in.
func TestAStreamWithoutItsBaseIsRefusedByName(t *testing.T) {
	s := newImageSite(t)
	s.opts.Intake.Others = true
	refs, till := s.ofTwoTypes([]string{"base", "app"}, []string{"base2", "till"})
	full := s.packed(nil, refs)
	left := digest.FromBytes(layer("base2", 1000))
	part := s.packed(func(c *airgap.Contents) {
		c.LeftOut = []airgap.ContentsBlob{{Digest: left, Size: 1000}}
		for i := range c.Releases {
			if c.Releases[i].ClusterType == "office" {
				c.Releases[i].Base, c.Releases[i].BaseName = digest.FromString("base"), "11 (0aa1f2b3)"
			}
		}
		for i := range c.Artifacts {
			c.Artifacts[i].UsedBy = []string{"dev/drone"}
			if strings.HasSuffix(c.Artifacts[i].Repository, "/till") {
				c.Artifacts[i].UsedBy = []string{"dev/office"}
			}
		}
	}, refs)
	part.Entries = slices.DeleteFunc(part.Entries, func(e packagetest.Entry) bool { return strings.HasSuffix(e.Name, left.Encoded()) })

	r := s.takes(part)
	require.Equal(t, []string{"dev/drone taken", "dev/office lacks its base LacksBase"}, outcomes(r))
	require.Equal(t, "builds on release 11 (0aa1f2b3), which is not here: import the medium with it first, or ask for a complete package: "+
		"wherry airgap export --environment dev --cluster-type office, without --since (1 blob, 1000 bytes, missing)", r.Streams[1].Message)
	require.Equal(t, Done, r.Verdict, r.Error)
	require.NotContains(t, s.blobsHere(), till.Digest.Encoded(), "nothing of it is copied")

	require.Equal(t, []string{"dev/drone here", "dev/office taken"}, outcomes(s.takes(full)))
	require.Equal(t, []string{"dev/drone here", "dev/office here"}, outcomes(s.takes(part)))
}

// cutReader is a medium that is pulled out after some bytes.
type cutReader struct {
	io.Reader
	left int
}

var errPulled = errors.New("input/output error")

func (c *cutReader) Read(p []byte) (int, error) {
	if c.left == 0 {
		return 0, errPulled
	}
	n, err := c.Reader.Read(p[:min(len(p), c.left)])
	c.left -= n
	return n, err
}

// A medium that is pulled out leaves the site as it was, wherever that happens, and the next import goes on.
func TestAnImportGoesOnAfterAnInterruption(t *testing.T) {
	s := newImageSite(t)
	s.opts.Intake.Others = true
	refs, _ := s.ofTwoTypes([]string{"base", "app"}, []string{"base", "till"})
	p := s.packed(nil, refs).Bytes()
	for at := 0; at < len(p)-2048; at += 512 * sweeptest.Every(7) {
		t.Run(fmt.Sprint(at), func(t *testing.T) {
			s.t, s.dir, s.site.host = t, filepath.Join(t.TempDir(), "state"), filepath.Join(t.TempDir(), "host")
			var r ImportResult
			s.agent(func(a *Agent) {
				a.source = nil
				r = a.Import(t.Context(), ImportRequest{Paths: []string{"-"}, Stdin: &cutReader{bytes.NewReader(p), at}})
			})
			for _, st := range r.Streams {
				require.Equal(t, intake.Unfinished, st.Outcome, "%+v", st)
			}
			require.Equal(t, Broken, r.Verdict)
			require.Contains(t, r.Error, errPulled.Error())
			require.Nil(t, r.Status.Release.Running)
			arrived := s.blobsHere()
			s.agent(func(a *Agent) { a.makePass(t.Context(), scope{all: true}) }) // cleans up
			require.Equal(t, arrived, s.blobsHere(), "what has arrived stays")
			copied := int64(0)
			s.agent(func(a *Agent) {
				a.source = nil
				r = a.Import(t.Context(), ImportRequest{Paths: []string{"-"}, Stdin: bytes.NewReader(p)})
			})
			for _, st := range r.Streams {
				copied += st.Bytes
			}
			require.Equal(t, []string{"dev/drone taken", "dev/office taken"}, outcomes(r))
			require.Equal(t, Done, r.Verdict, r.Error)
			if at > len(p)-8192 {
				require.Less(t, copied, int64(4000), "what is here is not copied again")
			}
		})
	}
}

// What has waited too long for the rest of its release goes.
func TestAnUnfinishedReleaseIsForgottenAfterAMonth(t *testing.T) {
	s := newImageSite(t)
	s.opts.Intake.Others = true
	till := s.image("till", "linux/amd64", "base", "till")
	office := s.of("office")
	office.release(1, map[string]string{"desk-x/f": "7"}, needs{"desk-x": {"till:1": till}}, nil)
	p := s.packed(nil, bundleRefs(office), s.imageRefs(map[string]ocispec.Descriptor{"till:1": till})).Bytes()
	var r ImportResult
	s.agent(func(a *Agent) {
		a.source = nil
		r = a.Import(t.Context(), ImportRequest{Paths: []string{"-"}, Stdin: &cutReader{bytes.NewReader(p), len(p) - 3000}})
	})
	require.Len(t, r.Status.Streams, 1)
	require.NotEmpty(t, r.Status.Streams[0].Arriving)
	require.NotEmpty(t, s.blobsHere())
	s.now = s.now.Add(31 * 24 * time.Hour)
	s.agent(func(a *Agent) { a.makePass(t.Context(), scope{all: true}) })
	require.Empty(t, s.blobsHere())
}

// A stream that does not fit is refused before anything of it is copied, and the own one goes in.
func TestAStreamThatDoesNotFitIsRefused(t *testing.T) {
	s := newImageSite(t)
	s.opts.Intake.Others, s.opts.Intake.Budget = true, 3000
	refs, _ := s.ofTwoTypes([]string{"1", "2", "3", "4"}, []string{"5", "6", "7", "8"})
	p := s.packed(nil, refs)
	r := s.takes(p)
	require.Equal(t, []string{"dev/drone taken", "dev/office no room NoRoom"}, outcomes(r))
	require.Contains(t, r.Streams[1].Message, "--import-budget")
	require.Equal(t, Done, r.Verdict, r.Error)
	require.NotContains(t, s.blobsHere(), digest.FromBytes(layer("5", 1000)).Encoded())

	s.opts.Intake.Budget = 0
	s.opts.Intake.Space = func(string) (int64, int64, bool) { return 1<<30 + 4000, 1 << 32, true }
	r = s.takes(p)
	require.Equal(t, []string{"dev/drone here", "dev/office no room NoRoom"}, outcomes(r))
	require.Contains(t, r.Streams[1].Message, "1024 MiB of the disk are free, of which other cluster types leave 1024 MiB")
	s.opts.Intake.Space = func(string) (int64, int64, bool) { return 1<<30 + 9000, 1 << 32, true }
	require.Equal(t, []string{"dev/drone here", "dev/office taken"}, outcomes(s.takes(p)))
}

// A pause holds up no import: the release is accepted, its artifacts stay, and it runs once that may be.
func TestAPauseHoldsUpNoImport(t *testing.T) {
	s := newImageSite(t)
	app := s.image("app", "linux/amd64", "one")
	s.release(1, map[string]string{"web-x/f": "1"}, needs{"web-x": {"app:1": app}}, nil)
	p := s.packed(nil, bundleRefs(s), s.imageRefs(map[string]ocispec.Descriptor{"app:1": app}))
	s.registry.away.Store(true)
	s.images.away.Store(true)
	s.agent(func(a *Agent) {
		_, err := a.Pause("harvest", 0)
		require.NoError(t, err)
		a.source = nil
		r := a.Import(t.Context(), ImportRequest{Paths: []string{s.file(p.Bytes())}})
		require.Equal(t, []string{"dev/drone taken"}, outcomes(r))
	})
	require.NoDirExists(t, filepath.Join(s.site.host, "web-x"))
	s.agent(func(a *Agent) {
		_, err := a.Resume(false)
		require.NoError(t, err)
		a.source = nil
		require.Equal(t, bundle.Compliant, a.Once(t.Context(), 0).Status.State)
	})
	requireFile(t, s.site.host, "web-x/f", "1")
	require.True(t, s.has(app.Digest))
}

// A blob that is damaged on the medium ends the streams that need it, and no others; what has come of them goes.
func TestDamageOfOneStreamLeavesTheOthers(t *testing.T) {
	for role, blob := range map[string]string{"a layer of an image": "till", "the tree": "", "a layer that is shared": "base"} {
		t.Run(role, func(t *testing.T) {
			s := newImageSite(t)
			s.opts.Intake.Others = true
			refs, till := s.ofTwoTypes([]string{"base", "app"}, []string{"base", "till"})
			p := s.packed(nil, refs)
			good := p.Clone()
			name := p.Part("dev/office layer")
			if blob != "" {
				name = packagetest.BlobName(digest.FromBytes(layer(blob, 1000)))
			}
			p.Entries[p.At(name)].Data[60] ^= 1
			r := s.takes(p)
			want := []string{"dev/drone taken", "dev/office refused DigestMismatch"}
			if blob == "base" {
				want[0] = "dev/drone refused DigestMismatch"
				require.Equal(t, Refused, r.Verdict)
				require.Empty(t, s.blobsHere())
			}
			require.Equal(t, want, outcomes(r))
			require.NotContains(t, s.blobsHere(), till.Digest.Encoded())
			for _, st := range r.Status.Streams {
				require.Empty(t, st.Arriving)
			}
			r = s.takes(good)
			require.Equal(t, "dev/office taken", outcomes(r)[1])
			require.Equal(t, bundle.Compliant, r.Status.State)
		})
	}
}

func TestANewerPackageSupersedesWhatHasArrived(t *testing.T) {
	s := newImageSite(t)
	s.opts.Intake.Others = true
	office := s.of("office")
	var packages [][]byte
	for n := range int64(2) {
		image := s.image("till", "linux/amd64", "base", fmt.Sprint("till", n), "last")
		office.release(n+1, map[string]string{"desk-x/f": fmt.Sprint(n)}, needs{"desk-x": {"till:1": image}}, nil)
		packages = append(packages, s.packed(nil, bundleRefs(office), s.imageRefs(map[string]ocispec.Descriptor{"till:1": image})).Bytes())
	}
	in := func(from io.Reader) (r ImportResult) {
		s.agent(func(a *Agent) {
			a.source = nil
			r = a.Import(t.Context(), ImportRequest{Paths: []string{"-"}, Stdin: from})
		})
		return r
	}
	require.Equal(t, []string{"dev/office unfinished"}, outcomes(in(&cutReader{bytes.NewReader(packages[0]), len(packages[0]) - 2500})))
	first := digest.FromBytes(layer("till0", 1000)).Encoded()
	require.Contains(t, s.blobsHere(), first)
	require.Equal(t, []string{"dev/office unfinished"}, outcomes(in(&cutReader{bytes.NewReader(packages[1]), len(packages[1]) - 2500})))
	require.NotContains(t, s.blobsHere(), first)
	require.Equal(t, []string{"dev/office taken"}, outcomes(in(bytes.NewReader(packages[1]))))
}

// The tree of the own stream is judged once more when it is unpacked. What has come with one that is not as signed goes.
func TestATreeThatIsNotAsSignedIsForgotten(t *testing.T) {
	s := newImageSite(t)
	app := s.image("app", "linux/amd64", "one")
	d := s.release(1, map[string]string{"web-x/f": "1"}, needs{"web-x": {"app:1": app}}, nil)
	d.ChangeRelease = func(r *bundle.Release) { r.Content.DiffID = digest.FromString("another tree") }
	s.publish(d)
	r := s.takes(s.packed(nil, bundleRefs(s), s.imageRefs(map[string]ocispec.Descriptor{"app:1": app})))
	require.Equal(t, Refused, r.Verdict, r.Error)
	require.Equal(t, []string{"dev/drone refused " + r.Status.Reason}, outcomes(r))
	require.Empty(t, r.Status.Streams)
	s.agent(func(a *Agent) { a.makePass(t.Context(), scope{all: true}) })
	require.NotContains(t, s.blobsHere(), app.Digest.Encoded())
}

// A package of another platform costs what its list of contents costs, and one of other keys its documents.
func TestAForeignPackageIsRefusedAtItsBeginning(t *testing.T) {
	s := newImageSite(t)
	s.opts.Intake.Others = true
	var streams []*imageSite
	images := map[string]ocispec.Descriptor{}
	for n := range 10 {
		o := s.of(fmt.Sprint("type", n))
		name := fmt.Sprint("app", n)
		images[name+":1"] = s.image(name, "linux/amd64", name)
		o.release(1, map[string]string{"web-x/f": string(layer(name, 200_000))}, needs{"web-x": {name + ":1": images[name+":1"]}}, nil)
		streams = append(streams, o)
	}
	p := s.packed(nil, bundleRefs(streams...), s.imageRefs(images)).Bytes()
	for name, change := range map[string]func(*imageSite){
		"platform": func(f *imageSite) { f.stream.Platform = "tea" },
		"keys":     func(*imageSite) {},
	} {
		t.Run(name, func(t *testing.T) {
			f := newImageSite(t)
			f.opts.Intake.Others = true
			change(f)
			from := &countingReader{Reader: bytes.NewReader(p)}
			f.agent(func(a *Agent) {
				r := a.Import(t.Context(), ImportRequest{Paths: []string{"-"}, Stdin: from})
				require.Equal(t, Refused, r.Verdict)
				require.Len(t, r.Streams, 10)
				for _, st := range r.Streams {
					require.Equal(t, map[string]bundle.Reason{"platform": bundle.WrongPlatform, "keys": bundle.UntrustedKey}[name], st.Reason)
				}
			})
			require.Less(t, from.n, 256<<10)
			require.Empty(t, f.blobsHere())
		})
	}
}

type countingReader struct {
	io.Reader
	n int
}

func (c *countingReader) Read(p []byte) (int, error) {
	n, err := c.Reader.Read(p)
	c.n += n
	return n, err
}

// Without a registry, a person goes back to any release that was accepted here before and is at hand on a medium.
func TestARollbackTakesItsFilesFromAMedium(t *testing.T) {
	s := newImageSite(t)
	media := map[int64]*packagetest.Package{}
	apps := map[int64]ocispec.Descriptor{}
	bring := func(n int64, want string) ImportResult {
		t.Helper()
		r := s.takes(media[n])
		require.Equal(t, []string{"dev/drone " + want}, outcomes(r))
		require.NotEqual(t, Refused, r.Verdict, r.Error)
		return r
	}
	for n := int64(1); n <= 4; n++ {
		apps[n] = s.image("app", "linux/amd64", fmt.Sprint(n))
		s.release(n, map[string]string{"web-x/f": fmt.Sprint(n)}, needs{"web-x": {"app:1": apps[n]}}, nil)
		media[n] = s.packed(nil, bundleRefs(s), s.imageRefs(map[string]ocispec.Descriptor{"app:1": apps[n]}))
		bring(n, "taken")
	}
	requireFile(t, s.site.host, "web-x/f", "4")
	require.NotContains(t, s.blobsHere(), apps[1].Digest.Encoded(), "it is long gone")
	bring(1, "older OlderRelease")

	require.NoError(t, s.rollBack("1"))
	bring(2, "older OlderRelease")
	requireFile(t, s.site.host, "web-x/f", "4")
	r := bring(1, "taken")
	require.Equal(t, "HeldByOperator", r.Status.Reason, r.Status.Message)
	require.Nil(t, r.Status.Release.Refused)
	requireFile(t, s.site.host, "web-x/f", "1")
	bring(1, "taken")
	bring(4, "here")
	requireFile(t, s.site.host, "web-x/f", "1")
	require.Contains(t, s.blobsHere(), apps[1].Digest.Encoded(), "its images stay while it runs")
	s.agent(func(a *Agent) {
		highest, _, err := a.state.judgedSoFar(s.stream, 0)
		require.NoError(t, err)
		require.EqualValues(t, 4, highest.Sequence, "the order never falls")
		_, err = a.Resume(false)
		require.NoError(t, err)
	})
	bring(4, "here")
	requireFile(t, s.site.host, "web-x/f", "4")
	bring(1, "older OlderRelease")
}
