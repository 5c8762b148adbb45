package publisher

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"io"
	"io/fs"
	"log"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	ggcr "github.com/google/go-containerregistry/pkg/registry"
	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/specs-go"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/stretchr/testify/require"
	"oras.land/oras-go/v2/errdef"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/oci"
	"github.com/wherry-dev/wherry/bundle/oci/referrertest"
	"github.com/wherry-dev/wherry/publisher/copier"
	"github.com/wherry-dev/wherry/publisher/releases"
	"github.com/wherry-dev/wherry/scheduler"
)

// image is an index of two platforms, with the manifest of the first, its config and its layer.
type image struct {
	index, manifest, config, layer bundle.Blob
	other                          bundle.Blob // the manifest of the second platform, which the package lacks
}

func (i image) parts() []bundle.Blob { return []bundle.Blob{i.config, i.layer, i.manifest, i.index} }

func newImage(t *testing.T, text string) (i image) {
	t.Helper()
	marshal := func(mediaType string, v any) bundle.Blob {
		data, err := json.Marshal(v)
		require.NoError(t, err)
		return bundle.NewBlob(mediaType, data)
	}
	i.config = bundle.NewBlob(ocispec.MediaTypeImageConfig, []byte(`{"text":"`+text+`"}`))
	i.layer = bundle.NewBlob(ocispec.MediaTypeImageLayer, bytes.Repeat([]byte(text), 1000))
	i.manifest = marshal(ocispec.MediaTypeImageManifest, ocispec.Manifest{
		Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: ocispec.MediaTypeImageManifest, Config: i.config.Descriptor, Layers: []ocispec.Descriptor{i.layer.Descriptor},
	})
	i.other = marshal(ocispec.MediaTypeImageManifest, ocispec.Manifest{
		Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: ocispec.MediaTypeImageManifest, Config: i.config.Descriptor, Annotations: map[string]string{"other": text},
	})
	this, other := i.manifest.Descriptor, i.other.Descriptor
	this.Platform = &ocispec.Platform{OS: "linux", Architecture: "arm64"}
	other.Platform = &ocispec.Platform{OS: "linux", Architecture: "amd64"}
	i.index = marshal(ocispec.MediaTypeImageIndex, ocispec.Index{Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: ocispec.MediaTypeImageIndex, Manifests: []ocispec.Descriptor{this, other}})
	return i
}

const (
	appRepository   = "images.example:5000/shop/app"
	modelRepository = "models.example/vision"
)

// siteWorld publishes a release that needs two images, and adds the images to its folder as a site package has them.
func siteWorld(t *testing.T) (w *world, app, model image) {
	t.Helper()
	w, app, model = newWorld(t, "layout"), newImage(t, "app"), newImage(t, "model")
	w.needs(appRepository+":1.0@"+app.index.Descriptor.Digest.String(), modelRepository+"@"+model.index.Descriptor.Digest.String())
	w.mustPublish()
	w.add(appRepository, "1.0", app)
	w.add(modelRepository, "only-here", model)
	return w, app, model
}

// needs has an assignment run these images.
func (w *world) needs(images ...string) {
	a := assignment("drone", "web-live", "v1")
	for i, image := range images {
		a.Files = append(a.Files, scheduler.File{
			Path: string(rune('a'+i)) + ".yaml",
			Data: []byte("apiVersion: v1\nkind: Pod\nmetadata: {name: x}\nspec: {containers: [{name: c, image: \"" + image + "\"}]}\n"),
		})
	}
	w.result.ClusterTypes[0].Assignments[0] = a
}

// add puts an image into the folder, as a package of one platform has it.
func (w *world) add(repository, tag string, i image) {
	w.t.Helper()
	repo, err := oci.NewLayout(w.dir).Repository(repository)
	require.NoError(w.t, err)
	for _, b := range i.parts() {
		_, err := oci.CopyBlob(w.t.Context(), nil, repo, withData(b))
		require.NoError(w.t, err)
	}
	require.NoError(w.t, repo.Tag(w.t.Context(), i.index.Descriptor, tag))
}

func withData(b bundle.Blob) ocispec.Descriptor {
	d := b.Descriptor
	d.Data = b.Data
	return d
}

// archived is w as "tar -C DIR -cf site.tar ." writes its folder.
func (w *world) archived() *world {
	w.t.Helper()
	path := filepath.Join(w.t.TempDir(), "site.tar")
	f, err := os.Create(path)
	require.NoError(w.t, err)
	out := tar.NewWriter(f)
	require.NoError(w.t, out.AddFS(os.DirFS(w.dir)))
	require.NoError(w.t, out.Close())
	require.NoError(w.t, f.Close())
	return &world{t: w.t, dir: w.dir, loc: oci.Location{Archive: path}, key: w.key, now: w.now}
}

// requireImage reads an image as a container engine does, by a tag or a digest.
func (w *world) requireImage(repository, reference string, i image) {
	w.t.Helper()
	repo := w.repository(repository)
	root, err := repo.Resolve(w.t.Context(), reference)
	require.NoError(w.t, err)
	require.Equal(w.t, i.index.Descriptor.Digest, root.Digest)
	for _, b := range i.parts() {
		data, err := bundle.ReadBlob(w.t.Context(), repo, b.Descriptor, 1<<20)
		require.NoError(w.t, err)
		require.Equal(w.t, b.Data, data)
	}
}

func TestTheArtifactsOfASitePackageAreCopied(t *testing.T) {
	t.Parallel()
	for _, from := range []string{"archive", "folder"} {
		for _, to := range []string{"embedded", "layout"} {
			t.Run(from+" to "+to, func(t *testing.T) {
				t.Parallel()
				w, app, model := siteWorld(t)
				if from == "archive" {
					w = w.archived()
				}
				m := w.mirror(to)
				appAt := "images.example_5000/shop/app"
				if to == "layout" {
					appAt = appRepository
				}
				done := w.mustCopyTo(m, copier.Options{Keys: trustIn(w.key).Keys})
				require.Empty(t, done.Warnings)
				require.Equal(t, resultsAs(done, copier.OutcomeCopied), results(done))
				require.Contains(t, results(done), appAt+":1.0")
				require.Contains(t, results(done), modelRepository+":wherry-"+model.index.Descriptor.Digest.Encoded())
				require.Equal(t, "artifact", done.Items[0].Kind)
				m.requireImage(appAt, "1.0", app)
				m.requireImage(appAt, app.index.Descriptor.Digest.String(), app)
				m.requireImage(modelRepository, "wherry-"+model.index.Descriptor.Digest.Encoded(), model)

				again := w.mustCopyTo(m, copier.Options{})
				require.Equal(t, resultsAs(again, releases.OutcomeUnchanged), results(again))
				for _, item := range again.Items {
					require.Zero(t, item.Sent)
				}
			})
		}
	}
}

func TestBundlesAreCopiedWithoutArtifactsOnRequest(t *testing.T) {
	t.Parallel()
	w, app, _ := siteWorld(t)
	m := w.mirror("registry")
	done := w.archived().mustCopyTo(m, copier.Options{WithoutArtifacts: true})
	require.Len(t, done.Items, 4)
	_, err := m.repository("images.example_5000/shop/app").Resolve(t.Context(), app.index.Descriptor.Digest.String())
	require.ErrorIs(t, err, errdef.ErrNotFound)
}

// TestARegistryThatWantsWholeIndexesIsNamed copies to distribution as it is configured by default.
func TestARegistryThatWantsWholeIndexesIsNamed(t *testing.T) {
	t.Parallel()
	w, app, _ := siteWorld(t)
	m := w.mirror("registry")
	_, err := w.archived().copyTo(m, copier.Options{})
	var sparse *copier.SparseError
	require.ErrorAs(t, err, &sparse)
	require.Equal(t, 1, sparse.Missing)
	require.Empty(t, m.allTags(), "no agent is told of a release whose images are not there")
	if sparse.Digest == app.index.Descriptor.Digest {
		_, err = m.repository("images.example_5000/shop/app").Resolve(t.Context(), app.manifest.Descriptor.Digest.String())
		require.NoError(t, err, "the manifest of the platform is there")
	}
}

// TestWhatTheSiteHasMayBeLeftOut copies a package that leaves out a layer, as --since does.
func TestWhatTheSiteHasMayBeLeftOut(t *testing.T) {
	t.Parallel()
	w, app, model := siteWorld(t)
	full := w.archived()
	blob := filepath.Join(w.dir, "blobs", "sha256", app.layer.Descriptor.Digest.Encoded())
	require.NoError(t, os.Remove(blob))
	require.NoError(t, os.Remove(filepath.Join(w.dir, "blobs", "sha256", model.index.Descriptor.Digest.Encoded())))
	partial := w.archived()

	m := w.mirror("embedded")
	_, err := partial.copyTo(m, copier.Options{})
	require.ErrorIs(t, err, errdef.ErrNotFound)
	require.ErrorContains(t, err, app.layer.Descriptor.Digest.String())
	require.ErrorContains(t, err, "copy that one first, or a complete one")
	require.Empty(t, m.allTags())

	full.mustCopyTo(m, copier.Options{})
	done := partial.mustCopyTo(m, copier.Options{})
	require.Empty(t, done.Warnings)
	require.Equal(t, resultsAs(done, releases.OutcomeUnchanged), results(done))

	other := w.mirror("embedded")
	w.add(appRepository, "1.0", app)
	done = w.archived().mustCopyTo(other, copier.Options{})
	require.Len(t, done.Warnings, 1)
	require.Contains(t, done.Warnings[0], "1 of 2 artifacts are neither at")
}

func TestAnArchiveIsOnlyRead(t *testing.T) {
	w, _, _ := siteWorld(t)
	a := w.archived()
	for _, name := range []string{"bundles/dev/drone", appRepository} {
		repo := a.repository(name)
		tags, err := repo.Tags(t.Context())
		require.NoError(t, err)
		require.NotEmpty(t, tags)
		desc, err := repo.Resolve(t.Context(), tags[0])
		require.NoError(t, err)
		same, err := repo.Resolve(t.Context(), desc.Digest.String())
		require.NoError(t, err)
		require.Equal(t, desc, same)
		require.ErrorIs(t, repo.Push(t.Context(), desc, bytes.NewReader(nil)), oci.ErrReadOnly)
		require.ErrorIs(t, repo.Tag(t.Context(), desc, "x"), oci.ErrReadOnly)
		require.ErrorIs(t, repo.Untag(t.Context(), tags[0]), oci.ErrReadOnly)
		require.ErrorIs(t, repo.Delete(t.Context(), desc), oci.ErrReadOnly)
		_, err = repo.Resolve(t.Context(), digest.FromString("x").String())
		require.ErrorIs(t, err, errdef.ErrNotFound)
	}
	_, err := oci.Location{Archive: "nowhere.tar"}.Repository("bundles/dev/drone", oci.Options{})
	require.NoError(t, err, "nothing is opened yet")
	missing, err := oci.Location{Archive: "nowhere.tar"}.Open(oci.Options{})
	require.NoError(t, err)
	_, err = missing.Repositories(t.Context())
	require.ErrorIs(t, err, fs.ErrNotExist)
}

// signs adds a signature, an attestation and an SBOM of an image to the folder, as a site package has them.
func (w *world) signs(repository string, i image, text string) (sig, sbom ocispec.Descriptor) {
	w.t.Helper()
	repo, err := oci.NewLayout(w.dir).Repository(repository)
	require.NoError(w.t, err)
	sig, err = referrertest.Tag(w.t.Context(), repo, i.index.Descriptor, ".sig", text)
	require.NoError(w.t, err)
	_, err = referrertest.Tag(w.t.Context(), repo, i.manifest.Descriptor, ".att", "attestation "+text)
	require.NoError(w.t, err)
	sbom, err = referrertest.Refer(w.t.Context(), repo, i.index.Descriptor, "application/spdx+json", "sbom "+text)
	require.NoError(w.t, err)
	return sig, sbom
}

// layersUnder returns the digests of the layers of what a tag names.
func (w *world) layersUnder(repository, tag string) (all []digest.Digest) {
	w.t.Helper()
	repo := w.repository(repository)
	d, err := repo.Resolve(w.t.Context(), tag)
	require.NoError(w.t, err)
	data, err := bundle.ReadBlob(w.t.Context(), repo, d, 1<<20)
	require.NoError(w.t, err)
	var m ocispec.Manifest
	require.NoError(w.t, json.Unmarshal(data, &m))
	for _, l := range m.Layers {
		_, err := bundle.ReadBlob(w.t.Context(), repo, l, 1<<20)
		require.NoError(w.t, err)
		all = append(all, l.Digest)
	}
	return all
}

// The signatures of images go along, to a registry with the referrers API and to one without, and those that the site has made stay.
func TestTheReferrersOfArtifactsAreCopied(t *testing.T) {
	t.Parallel()
	for _, to := range []string{"embedded", "layout", "embedded with the referrers API"} {
		t.Run(to, func(t *testing.T) {
			t.Parallel()
			w, app, model := siteWorld(t)
			_, sbom := w.signs(appRepository, app, "publisher")
			w.signs("other.example/app", app, "of another repository")
			from := w.archived()
			appAt := "images.example_5000/shop/app"
			var m *world
			switch to {
			case "layout":
				m, appAt = w.mirror(to), appRepository
			case "embedded":
				m = w.mirror(to)
			default: // which takes no index without all of its manifests
				m = w.mirrorWithReferrers()
				for at, i := range map[string]image{appAt: app, modelRepository: model} {
					for _, b := range []bundle.Blob{i.config, i.other} {
						_, err := oci.CopyBlob(t.Context(), nil, m.repository(at), withData(b))
						require.NoError(t, err)
					}
				}
			}
			sigTag := bundle.SignatureTag(app.index.Descriptor.Digest)

			done := from.mustCopyTo(m, copier.Options{WithoutReferrers: true})
			require.Empty(t, done.Warnings)
			_, err := m.repository(appAt).Resolve(t.Context(), sigTag)
			require.ErrorIs(t, err, errdef.ErrNotFound)
			_, err = referrertest.Tag(t.Context(), m.repository(appAt), app.index.Descriptor, ".sig", "the site's")
			require.NoError(t, err)

			done = from.mustCopyTo(m, copier.Options{})
			require.Empty(t, done.Warnings)
			require.Equal(t, copier.OutcomeUpdated, done.Items[0].Result)
			require.Equal(t, 3, done.Items[0].Referrers)
			require.Positive(t, done.Items[0].ReferrerSent)
			require.Zero(t, done.Items[0].Sent, "their size is apart")
			require.Equal(t, []digest.Digest{digest.FromString("publisher"), digest.FromString("the site's")}, m.layersUnder(appAt, sigTag))
			require.Equal(t, []digest.Digest{digest.FromString("attestation publisher")},
				m.layersUnder(appAt, strings.TrimSuffix(bundle.SignatureTag(app.manifest.Descriptor.Digest), ".sig")+".att"))
			found, err := m.repository(appAt).Referrers(t.Context(), app.index.Descriptor)
			require.NoError(t, err)
			require.Len(t, found, 1)
			require.Equal(t, sbom.Digest, found[0].Digest)

			done = from.mustCopyTo(m, copier.Options{})
			require.Equal(t, resultsAs(done, releases.OutcomeUnchanged), results(done))
			require.Zero(t, done.Items[0].ReferrerSent)
		})
	}
}

// mirrorWithReferrers is an empty registry that has the referrers API.
func (w *world) mirrorWithReferrers() *world {
	server := httptest.NewServer(ggcr.New(ggcr.Logger(log.New(io.Discard, "", 0)), ggcr.WithReferrersSupport(true)))
	w.t.Cleanup(server.Close)
	m := w.mirror("embedded")
	m.loc = oci.Location{Host: strings.TrimPrefix(server.URL, "http://"), Prefix: "mirror"}
	return m
}
