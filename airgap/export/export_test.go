package export

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"
	"github.com/stretchr/testify/require"
	"oras.land/oras-go/v2/errdef"

	"github.com/wherry-dev/wherry/agent/agenttest"
	"github.com/wherry-dev/wherry/airgap/medium"
	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/graph"
	"github.com/wherry-dev/wherry/bundle/oci"
	"github.com/wherry-dev/wherry/bundle/oci/referrertest"
)

func TestAllOfAnEnvironmentTravels(t *testing.T) {
	w := newWorld(t)
	web, db := w.image("app/web", "1.2", "base", "web"), w.image("app/db", "9", "base", "db")
	drone, shop := w.release("drone", 3, web), w.release("shop", 4, web, db)
	w.record(map[string]digest.Digest{"drone": drone, "shop": shop})
	p := w.choose(w.request())
	require.Empty(t, p.Warnings)
	data := w.bytes(p)
	require.Equal(t, data, w.bytes(w.choose(w.request())), "the same input, the same bytes")

	r := reader(t, data)
	sig := func(d digest.Digest) string { return bundle.SignatureTag(d) }
	record := p.refs[7].Digest
	require.Equal(t, []string{
		"site",
		"bundles/prod/drone/latest", "bundles/prod/drone/s0-3", "bundles/prod/drone/" + sig(drone),
		"bundles/prod/shop/latest", "bundles/prod/shop/s0-4", "bundles/prod/shop/" + sig(shop),
		"environments/prod/latest", "environments/prod/s0-1", "environments/prod/" + sig(record),
		w.host + "/app/db/9", w.host + "/app/db@" + db.Digest,
		w.host + "/app/web/1.2", w.host + "/app/web@" + web.Digest,
	}, names(r))
	require.Equal(t, w.host+"/app/web:1.2", r.Index().Manifests[12].Annotations[annotationImageName])
	c := *r.Contents()
	require.Equal(t, p.Contents, c)
	require.Equal(t, "plant", c.Platform)
	require.Len(t, c.Releases, 2)
	require.Equal(t, []string{"prod/drone", "prod/shop"}, c.Artifacts[1].UsedBy)
	require.EqualValues(t, 4, c.Releases[1].Number)

	all := digests(t, data)
	require.Equal(t, len(all)-3, c.Blobs)
	at := func(d digest.Digest) int { return slices.Index(all, d) }
	require.Equal(t, -1, at(layer("weblinuxamd64")), "another platform")
	require.Equal(t, -1, at(layer("webwindowsamd64")))
	require.Less(t, at(drone), at(shop))
	require.Less(t, at(shop), at(digest.Digest(db.Digest)))
	require.Less(t, at(digest.Digest(web.Digest)), at(p.refs[0].Digest)+at(layer("baselinuxarm64")))
	require.Less(t, at(layer("baselinuxarm64")), at(layer("weblinuxarm64")))
	require.Equal(t, len(all), len(slices.Compact(slices.Sorted(slices.Values(all)))), "each blob once")

	verifyAll(t, w, data, map[string]digest.Digest{"drone": drone, "shop": shop})
}

// verifyAll has each release verified as an agent does.
func verifyAll(t *testing.T, w *world, data []byte, releases map[string]digest.Digest) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "site.tar")
	require.NoError(t, os.WriteFile(file, data, 0o644))
	for clusterType, want := range releases {
		repo, err := oci.Location{Archive: file}.Repository("bundles/prod/"+clusterType, oci.Options{})
		require.NoError(t, err)
		d, err := repo.Resolve(t.Context(), bundle.LatestTag)
		require.NoError(t, err)
		require.Equal(t, want, d.Digest)
		_, err = bundle.Verify(t.Context(), repo, d, bundle.Pinned(bundle.Keys{w.key.Public()}))
		require.NoError(t, err)
	}
}

func TestWhatIsChosen(t *testing.T) {
	w := newWorld(t)
	web := w.image("app/web", "1", "base")
	old, newest := w.release("drone", 3, web), w.release("drone", 4, web)
	ring := w.releaseAt(w.from, "drone", 5, func(d *agenttest.Draft) { d.Tag, d.Release.Rings = "ring-canary", []string{"canary"} }, web)
	w.release("shop", 1)
	for name, c := range map[string]struct {
		change func(*Request)
		want   []digest.Digest
		types  []string
		tags   []string
		images int
	}{
		"all types, listed where there is no record": {func(*Request) {}, []digest.Digest{newest, ""}, []string{"drone", "shop"}, []string{"latest", "latest"}, 1},
		"one type":          {func(r *Request) { r.ClusterTypes = []string{"drone"} }, []digest.Digest{newest}, []string{"drone"}, []string{"latest"}, 1},
		"no artifacts":      {func(r *Request) { r.ClusterTypes, r.Artifacts = []string{"drone"}, None }, []digest.Digest{newest}, []string{"drone"}, []string{"latest"}, 0},
		"what is carried":   {func(r *Request) { r.ClusterTypes, r.Artifacts = []string{"drone"}, Carried }, []digest.Digest{newest}, []string{"drone"}, []string{"latest"}, 0},
		"an older release":  {func(r *Request) { r.ClusterTypes, r.Release = []string{"drone"}, old }, []digest.Digest{old}, []string{"drone"}, []string{"latest"}, 1},
		"a ring":            {func(r *Request) { r.ClusterTypes, r.Rings = []string{"drone"}, []string{"canary"} }, []digest.Digest{ring}, []string{"drone"}, []string{"ring-canary"}, 1},
		"a ring and latest": {func(r *Request) { r.ClusterTypes, r.Rings = []string{"drone"}, []string{"canary", ""} }, []digest.Digest{newest, ring}, []string{"drone", "drone"}, []string{"latest", "ring-canary"}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			r := w.request()
			c.change(&r)
			p := w.choose(r)
			var types, tags []string
			for i, rel := range p.Contents.Releases {
				types = append(types, rel.ClusterType)
				tags = append(tags, bundle.MovingTag(rel.Ring))
				if c.want[i] != "" {
					require.Equal(t, c.want[i], rel.Digest)
				}
			}
			require.Equal(t, c.types, types)
			require.Equal(t, c.tags, tags)
			require.Len(t, p.Contents.Artifacts, c.images)
			require.Contains(t, names(reader(t, w.bytes(p))), "bundles/prod/drone/"+c.tags[0])
		})
	}
}

func TestWhatCannotBeExported(t *testing.T) {
	w := newWorld(t)
	web := w.image("app/web", "1", "base")
	w.release("drone", 3, web)
	gone := bundle.Artifact{Type: bundle.ArtifactImage, Reference: w.host + "/app/gone:1", Digest: digest.FromString("gone").String(), UsedBy: []string{"web-main"}}
	floating := bundle.Artifact{Type: bundle.ArtifactImage, Reference: w.host + "/app/web:2", Unresolved: true, UsedBy: []string{"web-main"}}
	chart := bundle.Artifact{Type: bundle.ArtifactChart, Reference: "https://charts.example.com/web:1.0.0", UsedBy: []string{"web-main"}}
	w.release("gone", 1, gone)
	w.release("floating", 1, floating, web)
	w.release("chart", 1, chart)
	w.releaseAt(w.from, "unsigned", 1, func(d *agenttest.Draft) { d.Signer = nil })

	try := func(change func(*Request)) (*Plan, error) {
		r := w.request()
		change(&r)
		return Choose(t.Context(), r)
	}
	types := func(names ...string) func(*Request) { return func(r *Request) { r.ClusterTypes = names } }

	_, err := try(types("nobody"))
	require.ErrorAs(t, err, new(*NoReleaseError))
	require.ErrorIs(t, err, errdef.ErrNotFound)
	_, err = try(func(r *Request) { r.Rings = []string{"canary"} })
	require.EqualError(t, err, "prod/chart has no release for ring canary")
	var none *NoEnvironmentError
	_, err = try(func(r *Request) { r.Environment = "qa" })
	require.ErrorAs(t, err, &none)
	require.Contains(t, none.Repositories, "bundles/prod/drone")
	_, err = try(func(r *Request) { r.From = oci.Location{Dir: t.TempDir()} })
	require.ErrorIs(t, err, oci.ErrNoLayout)

	_, err = try(types("floating"))
	require.EqualError(t, err, "artifacts without a digest cannot travel:\nfloating: image "+w.host+"/app/web:2 (web-main)")
	p, err := try(func(r *Request) { r.ClusterTypes, r.SkipUnpinned = []string{"floating"}, true })
	require.NoError(t, err)
	require.Equal(t, []string{"left out, since it has no digest: floating: image " + w.host + "/app/web:2 (web-main)"}, p.Warnings)
	require.Len(t, p.Contents.Artifacts, 1)
	p, err = try(types("chart"))
	require.NoError(t, err)
	require.Len(t, p.Warnings, 1)
	require.Contains(t, p.Warnings[0], "lies in no registry and does not travel")

	var artifact *ArtifactError
	_, err = try(types("gone"))
	require.ErrorAs(t, err, &artifact)
	require.ErrorIs(t, err, errdef.ErrNotFound)
	require.Equal(t, []string{"prod/gone (web-main)"}, artifact.UsedBy)
	_, err = try(func(r *Request) { r.ClusterTypes, r.ImagePlatforms = []string{"drone"}, graph.Platforms{"linux/s390x"} })
	require.ErrorAs(t, err, new(*graph.InvalidError))

	var refusal *bundle.Refusal
	_, err = try(types("unsigned"))
	require.ErrorAs(t, err, &refusal)
	require.Equal(t, bundle.Unsigned, refusal.Reason)

	late := func(r *Request) { r.ClusterTypes, r.Now = []string{"drone"}, w.now.Add(100*24*time.Hour) }
	_, err = try(late)
	require.ErrorAs(t, err, &refusal)
	require.Equal(t, bundle.Expired, refusal.Reason)
	p, err = try(func(r *Request) { late(r); r.AllowExpired = "plant 7\n has it" })
	require.NoError(t, err)
	require.Equal(t, "plant 7 has it", reader(t, w.bytes(p)).Contents().AllowExpired)
	require.Contains(t, p.Warnings[0], "only agents that have it already take it")

	p, err = try(func(r *Request) { r.ClusterTypes, r.NextTrip = []string{"drone"}, 91*24*time.Hour })
	require.NoError(t, err)
	require.Contains(t, p.Warnings[0], "expires in 89d, before the next trip")
	p, err = try(func(r *Request) { r.ClusterTypes, r.NextTrip = []string{"drone"}, 80*24*time.Hour })
	require.NoError(t, err)
	require.Empty(t, p.Warnings)
}

// Releases name the platforms of their clusters.
func TestPlatformsAreThoseOfTheClusterTypes(t *testing.T) {
	w := newWorld(t)
	named := func(platforms ...string) func(*agenttest.Draft) {
		return func(d *agenttest.Draft) {
			d.ChangeRelease = func(r *bundle.Release) { r.Platforms = platforms }
		}
	}
	w.releaseAt(w.from, "drone", 1, named("linux/arm64"))
	w.releaseAt(w.from, "tower", 1, named("linux/riscv64"))
	w.release("robot", 1)
	r := w.request()
	r.ImagePlatforms, r.ClusterTypes = nil, []string{"drone", "tower"}
	require.Equal(t, graph.Platforms{"linux/arm64", "linux/riscv64"}, w.choose(r).Contents.ImagePlatforms)
	r.ClusterTypes = []string{"drone", "robot"}
	require.Subset(t, w.choose(r).Contents.ImagePlatforms, append(DefaultPlatforms(), "linux/arm64"), "robot does not say")
	r.ImagePlatforms = graph.Platforms{"linux/s390x"}
	require.Equal(t, r.ImagePlatforms, w.choose(r).Contents.ImagePlatforms, "a person has the last word")
}

// Artifacts come from a mirror first, and from a folder that has the bundles.
func TestArtifactsComeFromWhereTheyAre(t *testing.T) {
	w := newWorld(t)
	web := w.image("app/web", "1", "base")
	away := "registry.invalid:5000"
	web.Reference = strings.Replace(web.Reference, w.host, away, 1)
	w.release("drone", 3, web)
	r := w.request()
	r.Mirrors = []Mirror{{Host: "other.invalid", At: oci.Location{Host: "none.invalid"}}, {Host: away, At: oci.Location{Host: w.host}}}
	data := w.bytes(w.choose(r))
	require.Contains(t, names(reader(t, data)), away+"/app/web/1")

	// A box that has all repositories as HOST/REPOSITORY.
	other := newWorld(t)
	web = other.image("box/registry.invalid/app/web", "1", "base")
	web.Reference = "registry.invalid/app/web:1"
	w.release("robot", 1, web)
	r.ClusterTypes, r.Mirrors = []string{"robot"}, []Mirror{{At: oci.Location{Host: other.host, Prefix: "box"}}}
	w.bytes(w.choose(r))

	web = other.image("box/registry.invalid_5000/app/web", "1", "base")
	web.Reference = "registry.invalid:5000/app/web:1"
	w.release("truck", 1, web)
	r.ClusterTypes = []string{"truck"}
	w.bytes(w.choose(r))

	// The unpacked package is itself a place with bundles and artifacts.
	var err error
	dir := t.TempDir()
	unpack(t, data, dir)
	r = w.request()
	r.From, r.ClusterTypes = oci.Location{Dir: dir}, []string{"drone"}
	require.Equal(t, data, w.bytes(w.choose(r)), "a package of an unpacked package is the same")
	file := filepath.Join(t.TempDir(), "site.tar")
	require.NoError(t, os.WriteFile(file, data, 0o644))
	r.From, err = oci.Parse("oci-archive:" + file)
	require.NoError(t, err)
	require.Equal(t, data, w.bytes(w.choose(r)), "and of a package as well")
}

func TestParseMirror(t *testing.T) {
	for text, want := range map[string]Mirror{
		"oci://box:5001":                      {At: oci.Location{Host: "box:5001"}},
		"docker.io=oci://box:5001/hub":        {Host: "docker.io", At: oci.Location{Host: "box:5001", Prefix: "hub"}},
		"oci-layout:a=b":                      {At: oci.Location{Dir: "a=b"}},
		"registry.plant-7:5000=oci-layout:in": {Host: "registry.plant-7:5000", At: oci.Location{Dir: "in"}},
	} {
		m, err := ParseMirror(text)
		require.NoError(t, err)
		require.Equal(t, want, m, text)
	}
	_, err := ParseMirror("docker.io=box")
	require.Error(t, err)
}

func TestWhatTheSiteHasIsLeftOut(t *testing.T) {
	w := newWorld(t)
	first, db := w.image("app/web", "1", "base", "one"), w.image("app/db", "9", "base", "db")
	one, shop := w.release("drone", 1, first), w.release("shop", 1, db)
	before := w.bytes(w.choose(w.request()))
	second := w.image("app/web", "2", "base", "two")
	two := w.release("drone", 2, second)

	gone := func(p *Plan) []digest.Digest {
		var all []digest.Digest
		for _, b := range p.Contents.LeftOut {
			all = append(all, b.Digest)
			require.NotContains(t, digests(t, w.bytes(p)), b.Digest)
		}
		return all
	}
	sorted := func(all ...digest.Digest) []digest.Digest { slices.Sort(all); return all }
	base, dbLayer := layer("baselinuxarm64"), layer("dblinuxarm64")

	r := w.request()
	var err error
	r.Since, err = Package("before.tar", reader(t, before))
	require.NoError(t, err)
	p := w.choose(r)
	left := gone(p)
	require.Contains(t, left, base)
	require.Contains(t, left, dbLayer, "all that an unchanged cluster type needs")
	require.NotContains(t, left, layer("twolinuxarm64"))
	require.Equal(t, one, p.Contents.Releases[0].Base)
	require.Contains(t, p.Contents.Releases[0].BaseName, "1 (")
	require.Equal(t, two, p.Contents.Releases[0].Digest)
	require.Equal(t, shop, p.Contents.Releases[1].Base)
	require.Empty(t, p.Warnings)

	// What a package leaves out, its site has as well.
	third := w.image("app/web", "3", "base", "two", "three")
	w.release("drone", 3, third)
	r.Since, err = Package("second.tar", reader(t, w.bytes(p)))
	require.NoError(t, err)
	left = gone(w.choose(r))
	require.Contains(t, left, base)
	require.Contains(t, left, layer("twolinuxarm64"))

	// By the releases that run: with two of them, what both have. The shop has no base, and needs the common layer.
	r.Since = Releases("reports.tar", "prod", map[string][]digest.Digest{"drone": {two, one}})
	p = w.choose(r)
	require.NotContains(t, gone(p), base, "the shop needs it, and may lack it")
	require.Equal(t, []string{"prod/shop has no base in reports.tar: its artifacts travel in full"}, p.Warnings)
	r.ClusterTypes = []string{"drone"}
	p = w.choose(r)
	require.Equal(t, sorted(base), gone(p))
	require.Equal(t, one, p.Contents.Releases[0].Base, "the oldest")
	r.Since = Releases("reports.tar", "prod", map[string][]digest.Digest{"drone": {two}})
	require.Equal(t, sorted(base, layer("twolinuxarm64")), gone(w.choose(r)))
	r.Since = Releases("hub", "prod", map[string][]digest.Digest{"drone": {digest.FromString("gone")}})
	p = w.choose(r)
	require.Empty(t, gone(p))
	require.Contains(t, p.Warnings[0], "is not at oci://"+w.host+"/edge any more")
	require.Empty(t, p.Contents.Releases[0].Base)
}

func TestAPackageIsWrittenWholeOrNotAtAll(t *testing.T) {
	w := newWorld(t)
	w.release("drone", 3, w.image("app/web", "1", "base", "web", "more"))
	p := w.choose(w.request())
	want := w.bytes(p)
	dir := t.TempDir()
	path := filepath.Join(dir, "site.tar")

	// Interrupted at any moment, the next one goes on.
	var resumed []Resumed
	opts := FileOptions{Resumed: func(r Resumed) { resumed = append(resumed, r) }}
	for stop := int64(1); ; stop += 7_000 {
		ctx, cancel := context.WithCancel(t.Context())
		opts.Progress = func(written int64) {
			if written >= stop {
				cancel()
			}
		}
		files, err := p.WriteFile(ctx, path, opts)
		cancel()
		if err == nil {
			require.Equal(t, []string{path}, files)
			break
		}
		require.ErrorIs(t, err, context.Canceled)
		require.Equal(t, []string{"site.tar.partial"}, entries(t, dir))
	}
	got, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, want, got)
	require.Equal(t, []string{"site.tar"}, entries(t, dir))
	require.Positive(t, resumed[len(resumed)-1].Kept)

	// What another package has left is of no use.
	require.NoError(t, os.WriteFile(path+".partial", bytes.Repeat([]byte("x"), 5000), 0o644))
	resumed, opts.Progress = nil, nil
	_, err = p.WriteFile(t.Context(), path, opts)
	require.NoError(t, err)
	require.Equal(t, []Resumed{{0, 5000}}, resumed)

	// A refusal by a check leaves nothing, and the file before as it was.
	no := errors.New("no")
	opts.Check = func(_ context.Context, files []string) error {
		data, err := os.ReadFile(files[0])
		require.NoError(t, err)
		require.Equal(t, want, data)
		return no
	}
	_, err = p.WriteFile(t.Context(), path, opts)
	require.ErrorIs(t, err, no)
	require.Equal(t, []string{"site.tar"}, entries(t, dir))

	// In parts.
	opts.Check, opts.Split = nil, int64(len(want)/3)
	files, err := p.WriteFile(t.Context(), path, opts)
	require.NoError(t, err)
	require.Len(t, files, 6)
	var joined []byte
	for _, f := range files[:4] {
		data, err := os.ReadFile(f)
		require.NoError(t, err)
		joined = append(joined, data...)
	}
	require.Equal(t, want, joined)
}

// smallFS is a file system with little room.
type smallFS struct {
	medium.OS
	space medium.Space
}

func (f smallFS) Space(string) medium.Space { return f.space }

func TestWhatDoesNotFitIsSaidBeforeAnythingIsWritten(t *testing.T) {
	w := newWorld(t)
	w.release("drone", 3, w.image("app/web", "1", "base"))
	p := w.choose(w.request())
	dir := t.TempDir()
	path := filepath.Join(dir, "site.tar")
	var space *SpaceError
	_, err := p.WriteFile(t.Context(), path, FileOptions{FS: smallFS{space: medium.Space{Free: p.Bytes - 1, Known: true}}})
	require.ErrorAs(t, err, &space)
	require.Equal(t, SpaceError{dir, p.Bytes, p.Bytes - 1}, *space)
	var large *FileSizeError
	_, err = p.WriteFile(t.Context(), path, FileOptions{FS: smallFS{space: medium.Space{MaxFile: p.Bytes - 1}}})
	require.ErrorAs(t, err, &large)
	require.Empty(t, entries(t, dir))
	_, err = p.WriteFile(t.Context(), path, FileOptions{FS: smallFS{space: medium.Space{Free: p.Bytes, Known: true, MaxFile: p.Bytes - 1}}, Split: p.Bytes - 1})
	require.NoError(t, err)
}

// A registry that hands out other bytes is found, and leaves nothing that is of use.
func TestChangedContentIsRefused(t *testing.T) {
	w := newWorld(t)
	w.release("drone", 3, w.image("app/web", "1", "base"))
	dir := t.TempDir()
	unpack(t, w.bytes(w.choose(w.request())), dir)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "blobs", "sha256", layer("baselinuxarm64").Encoded()), make([]byte, 20_000), 0o644))
	r := w.request()
	r.From = oci.Location{Dir: dir}
	out := t.TempDir()
	_, err := w.choose(r).WriteFile(t.Context(), filepath.Join(out, "site.tar"), FileOptions{})
	var refusal *bundle.Refusal
	require.ErrorAs(t, err, &refusal)
	require.Equal(t, bundle.DigestMismatch, refusal.Reason)
	require.Empty(t, entries(t, out))
}

// A link that breaks costs the blob that was on its way, and no more.
func TestAnExportGoesOnAfterABrokenLink(t *testing.T) {
	w := newWorld(t)
	w.release("drone", 3, w.image("app/web", "1", "base", "web"))
	p := w.choose(w.request())
	want := w.bytes(p)
	dir := t.TempDir()
	path := filepath.Join(dir, "site.tar")
	w.cut = layer("weblinuxarm64").String()
	_, err := p.WriteFile(t.Context(), path, FileOptions{})
	require.ErrorIs(t, err, oci.ErrUnreachable)
	require.Equal(t, []string{"site.tar.partial"}, entries(t, dir))
	w.cut = ""
	var resumed Resumed
	_, err = p.WriteFile(t.Context(), path, FileOptions{Resumed: func(r Resumed) { resumed = r }})
	require.NoError(t, err)
	require.Greater(t, resumed.Kept, int64(20_000), "the layer before")
	require.Positive(t, resumed.Dropped)
	got, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, want, got)
}

// The signature, the attestation and the SBOM of an image travel with it, beside those of others that lie in its repository.
func TestReferrersTravelWithTheirArtifact(t *testing.T) {
	w := newWorld(t)
	web, other := w.image("app/web", "1.2", "base", "web"), w.image("app/web", "1.1", "base", "old")
	repo := w.target(oci.Location{Host: w.host}, "app/web")
	subject, err := repo.Resolve(t.Context(), web.Digest)
	require.NoError(t, err)
	old, err := repo.Resolve(t.Context(), other.Digest)
	require.NoError(t, err)
	sig, err := referrertest.Tag(t.Context(), repo, subject, ".sig", "signature")
	require.NoError(t, err)
	sbom, err := referrertest.Refer(t.Context(), repo, subject, "application/spdx+json", "sbom")
	require.NoError(t, err)
	_, err = referrertest.Tag(t.Context(), repo, old, ".sig", "signature of another image")
	require.NoError(t, err)
	w.release("drone", 3, web)

	p := w.choose(w.request())
	require.Empty(t, p.Warnings)
	data := w.bytes(p)
	require.Equal(t, data, w.bytes(w.choose(w.request())), "the same input, the same bytes")
	r := reader(t, data)
	require.Equal(t, []string{
		w.host + "/app/web/1.2", w.host + "/app/web@" + web.Digest, w.host + "/app/web@" + sbom.Digest.String(),
		w.host + "/app/web/" + bundle.SignatureTag(digest.Digest(web.Digest)), w.host + "/app/web@" + sig.Digest.String(),
	}, names(r)[len(names(r))-5:])
	require.Equal(t, 2, r.Contents().Artifacts[0].ReferrerCount)
	require.Equal(t, sig.Size+sbom.Size+2*int64(len("{}"))+int64(len("signature")+len("sbom")), r.Contents().Artifacts[0].ReferrerBytes)
	all := digests(t, data)
	for _, d := range []digest.Digest{sig.Digest, sbom.Digest, digest.FromString("signature"), digest.FromString("sbom")} {
		require.Contains(t, all, d)
	}
	require.NotContains(t, all, digest.FromString("signature of another image"))
	require.Less(t, slices.Index(all, sig.Digest), slices.Index(all, layer("baselinuxarm64")), "it is part of the head")

	bare := w.request()
	bare.WithoutReferrers = true
	p = w.choose(bare)
	require.Zero(t, p.Contents.Artifacts[0].ReferrerCount)
	require.NotContains(t, digests(t, w.bytes(p)), sig.Digest)

	// A package is a source of artifacts as well, and passes them on.
	file := filepath.Join(t.TempDir(), "site.tar")
	require.NoError(t, os.WriteFile(file, data, 0o644))
	again := w.request()
	again.From = oci.Location{Archive: file}
	passed := w.choose(again)
	require.Equal(t, r.Contents().Artifacts, passed.Contents.Artifacts)
	require.Equal(t, names(r), names(reader(t, w.bytes(passed))))
}
