//go:build unix

package oci_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"testing/iotest"
	"time"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/stretchr/testify/require"
	"oras.land/oras-go/v2"
	"oras.land/oras-go/v2/content/memory"
	orasoci "oras.land/oras-go/v2/content/oci"
	"oras.land/oras-go/v2/errdef"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/oci"
)

func TestReadingALayoutCreatesNothing(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "none")
	layout := oci.NewLayout(dir)
	_, err := layout.Repositories(t.Context())
	require.ErrorIs(t, err, errdef.ErrNotFound)
	require.ErrorContains(t, err, "no OCI layout in "+dir)
	repo, err := layout.Repository("a")
	require.NoError(t, err)
	_, err = repo.Resolve(t.Context(), "latest")
	require.ErrorIs(t, err, errdef.ErrNotFound)
	require.NoDirExists(t, dir)
}

func TestAFolderWithOtherThingsIsNotMadeALayout(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "thesis.txt"), nil, 0o600))
	repo, err := oci.NewLayout(dir).Repository("a")
	require.NoError(t, err)
	m, _ := manifest(t, "one")
	err = repo.Push(t.Context(), m.Descriptor, bytes.NewReader(m.Data))
	require.ErrorIs(t, err, oci.ErrNoLayout)
	require.ErrorContains(t, err, "thesis.txt")
	require.Equal(t, []string{"thesis.txt"}, files(t, dir))
}

func TestOtherToolsReadALayout(t *testing.T) {
	dir := t.TempDir()
	repo, err := oci.NewLayout(dir).Repository("bundles/dev/drone")
	require.NoError(t, err)
	m, config := manifest(t, "one")
	pushAll(t, repo, config, m)
	require.NoError(t, repo.Tag(t.Context(), m.Descriptor, "latest"))
	store, err := orasoci.NewFromFS(t.Context(), os.DirFS(dir))
	require.NoError(t, err)
	got, err := oras.Copy(t.Context(), store, "bundles/dev/drone/latest", memory.New(), "", oras.DefaultCopyOptions)
	require.NoError(t, err)
	require.Equal(t, m.Descriptor.Digest, got.Digest)
}

// Two processes have a Layout each, so several of them stand for processes here.
func TestTagsOfConcurrentWritersAreAllKept(t *testing.T) {
	dir := t.TempDir()
	m, config := manifest(t, "one")
	var group sync.WaitGroup
	failures := make(chan error, 40)
	for i := range 8 {
		group.Go(func() {
			repo, err := oci.NewLayout(dir).Repository("a")
			for n := 0; n < 5 && err == nil; n++ {
				for _, b := range []bundle.Blob{config, m} {
					if err := repo.Push(t.Context(), b.Descriptor, bytes.NewReader(b.Data)); err != nil && !errors.Is(err, errdef.ErrAlreadyExists) {
						failures <- err
					}
				}
				failures <- repo.Tag(t.Context(), m.Descriptor, fmt.Sprintf("t%d-%d", i, n))
			}
		})
	}
	group.Wait()
	close(failures)
	for err := range failures {
		require.NoError(t, err)
	}
	repo, err := oci.NewLayout(dir).Repository("a")
	require.NoError(t, err)
	tags, err := repo.Tags(t.Context())
	require.NoError(t, err)
	require.Len(t, tags, 40)
}

func TestALayoutSeesWhatAnotherProcessTags(t *testing.T) {
	dir := t.TempDir()
	one, err := oci.NewLayout(dir).Repository("a")
	require.NoError(t, err)
	two, err := oci.NewLayout(dir).Repository("a")
	require.NoError(t, err)
	m, config := manifest(t, "one")
	pushAll(t, one, config, m)
	for n := range 3 {
		tag := fmt.Sprintf("t%d", n)
		require.NoError(t, one.Tag(t.Context(), m.Descriptor, tag))
		_, err := two.Resolve(t.Context(), tag)
		require.NoError(t, err)
		one, two = two, one
	}
}

func TestAPushThatBreaksLeavesNothing(t *testing.T) {
	dir := t.TempDir()
	repo, err := oci.NewLayout(dir).Repository("a")
	require.NoError(t, err)
	blob := bundle.NewBlob("application/octet-stream", bytes.Repeat([]byte("x"), 1<<20))
	full := io.MultiReader(bytes.NewReader(blob.Data[:1<<19]), iotest.ErrReader(syscall.ENOSPC))
	err = repo.Push(t.Context(), blob.Descriptor, full)
	require.ErrorIs(t, err, syscall.ENOSPC)
	require.ErrorContains(t, err, "write "+blob.Descriptor.Digest.String()+" to "+dir)
	require.Equal(t, []string{"index.json", "index.json.lock", "oci-layout"}, files(t, dir))
}

func TestWhatAKilledWriterLeftIsRemovedLater(t *testing.T) {
	dir := t.TempDir()
	repo, err := oci.NewLayout(dir).Repository("a")
	require.NoError(t, err)
	m, config := manifest(t, "one")
	pushAll(t, repo, config)
	for name, age := range map[string]time.Duration{"old": 2 * time.Hour, "new": time.Minute} {
		path := filepath.Join(dir, "ingest", name)
		require.NoError(t, os.WriteFile(path, nil, 0o600))
		require.NoError(t, os.Chtimes(path, time.Time{}, time.Now().Add(-age)))
	}
	pushAll(t, repo, m)
	require.NoFileExists(t, filepath.Join(dir, "ingest", "old"))
	require.FileExists(t, filepath.Join(dir, "ingest", "new"), "its writer may be at work")
}

func TestAnUnwritableIndexChangesNoTag(t *testing.T) {
	dir := t.TempDir()
	repo, err := oci.NewLayout(dir).Repository("a")
	require.NoError(t, err)
	m, config := manifest(t, "one")
	pushAll(t, repo, config, m)
	require.NoError(t, repo.Tag(t.Context(), m.Descriptor, "one"))
	// A file where new files are made fails for root as well.
	require.NoError(t, os.Remove(filepath.Join(dir, "ingest")))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "ingest"), nil, 0o600))
	require.ErrorContains(t, repo.Tag(t.Context(), m.Descriptor, "two"), "tag a/two in "+dir)
	tags, err := repo.Tags(t.Context())
	require.NoError(t, err)
	require.Equal(t, []string{"one"}, tags)
}

func TestSweepRemovesOnlyWhatNoTagNeeds(t *testing.T) {
	layout := oci.NewLayout(t.TempDir())
	repo, err := layout.Repository("a")
	require.NoError(t, err)
	other, err := layout.Repository("b")
	require.NoError(t, err)
	one, config := manifest(t, "one")
	pushAll(t, repo, config, one)
	require.NoError(t, repo.Tag(t.Context(), one.Descriptor, "one"))
	require.NoError(t, other.Tag(t.Context(), one.Descriptor, "one"))
	two, config2 := manifest(t, "two")
	pushAll(t, repo, config2, two)
	signature, config3 := manifest(t, "signature")
	pushAll(t, repo, config3, signature)
	signatureTag := bundle.SignatureTag(two.Descriptor.Digest)
	require.NoError(t, repo.Tag(t.Context(), signature.Descriptor, signatureTag))
	loose := bundle.NewBlob("text/plain", []byte("loose"))
	pushAll(t, repo, loose)
	long := time.Now().Add(time.Hour)
	size := func(blobs ...bundle.Blob) oci.Swept {
		s := oci.Swept{Blobs: len(blobs)}
		for _, b := range blobs {
			s.Bytes += b.Descriptor.Size
		}
		return s
	}
	sweep := func(before time.Time, want oci.Swept) {
		t.Helper()
		got, err := layout.Sweepable(t.Context(), before, nil)
		require.NoError(t, err)
		require.Equal(t, want, got)
		got, err = layout.Sweep(t.Context(), before)
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
	sweep(long.Add(-2*time.Hour), oci.Swept{}) // all is young
	got, err := layout.Sweepable(t.Context(), long, map[string]bool{"a/" + signatureTag: true})
	require.NoError(t, err)
	require.Equal(t, size(loose, signature, config3, two, config2), got)
	sweep(long, size(loose)) // a signed manifest may still get its tag
	require.NoError(t, repo.Delete(t.Context(), one.Descriptor))
	sweep(long, oci.Swept{}) // another repository has it
	require.NoError(t, repo.Untag(t.Context(), signatureTag))
	require.NoError(t, other.Delete(t.Context(), one.Descriptor))
	sweep(long, size(one, config, two, config2, signature, config3))
}

func TestRetainKeepsWhatItsOwnerListsAndMendsTheLayout(t *testing.T) {
	dir := t.TempDir()
	layout := oci.NewLayout(dir)
	require.NoError(t, layout.Retain(nil, nil), "an empty folder")
	require.NoError(t, layout.SetRefs(nil, nil))
	require.Empty(t, files(t, dir))

	repo, err := layout.Repository("a")
	require.NoError(t, err)
	one, config := manifest(t, "one")
	two, config2 := manifest(t, "two")
	tree, loose := bundle.NewBlob("text/plain", []byte("tree")), bundle.NewBlob("text/plain", []byte("loose"))
	pushAll(t, repo, config, one, config2, two, tree, loose)
	require.NoError(t, repo.Tag(t.Context(), two.Descriptor, "latest"))

	keep := []oci.Retained{
		{Repository: "b", Tag: "s0-2", Manifest: two.Descriptor},
		{Repository: "a", Tag: "s0-1", Manifest: one.Descriptor, Blobs: []digest.Digest{tree.Descriptor.Digest}},
		{Repository: "a", Tag: "s0-1", Manifest: two.Descriptor},
		{Repository: "a", Tag: "s0-9", Manifest: loose.Descriptor},
	}
	gone, _ := manifest(t, "three")
	keep = append(keep, oci.Retained{Repository: "a", Tag: "s0-3", Manifest: gone.Descriptor})
	refs := func() map[string]digest.Digest {
		data, err := os.ReadFile(filepath.Join(dir, ocispec.ImageIndexFile))
		require.NoError(t, err)
		var index ocispec.Index
		require.NoError(t, json.Unmarshal(data, &index))
		all := map[string]digest.Digest{}
		for _, d := range index.Manifests {
			all[d.Annotations[ocispec.AnnotationRefName]] = d.Digest
		}
		return all
	}
	want := map[string]digest.Digest{"a/s0-1": one.Descriptor.Digest, "a/s0-9": loose.Descriptor.Digest, "b/s0-2": two.Descriptor.Digest}
	var moments []string
	note := func(name string) { moments = append(moments, name) }
	require.NoError(t, layout.SetRefs(keep, note))
	require.Equal(t, want, refs())
	require.NoError(t, layout.SetRefs(keep, note))
	require.Equal(t, []string{"index: before", "index: after"}, moments, "an index that is right is not written")

	for _, damage := range []func() error{
		func() error { return os.Remove(filepath.Join(dir, ocispec.ImageIndexFile)) },
		func() error { return os.WriteFile(filepath.Join(dir, ocispec.ImageIndexFile), []byte(`{"sch`), 0o600) },
		func() error { return os.WriteFile(filepath.Join(dir, ocispec.ImageLayoutFile), nil, 0o600) },
	} {
		require.NoError(t, damage())
		require.NoError(t, layout.SetRefs(keep, nil))
		require.Equal(t, want, refs())
		_, err := repo.Resolve(t.Context(), "s0-1")
		require.NoError(t, err)
		pushAll(t, repo, config)
	}

	require.NoError(t, layout.Retain(keep[:2], nil))
	for _, b := range []bundle.Blob{one, config, two, config2, tree} {
		there, err := repo.Exists(t.Context(), b.Descriptor)
		require.NoError(t, err)
		require.True(t, there)
	}
	there, err := repo.Exists(t.Context(), loose.Descriptor)
	require.NoError(t, err)
	require.False(t, there)
}

func TestRetainKeepsAllOfAnIndexAndNamesItByDigest(t *testing.T) {
	dir := t.TempDir()
	layout := oci.NewLayout(dir)
	repo, err := layout.Repository("host.example/app")
	require.NoError(t, err)
	child, config := manifest(t, "child")
	index, err := json.Marshal(ocispec.Index{MediaType: ocispec.MediaTypeImageIndex, Manifests: []ocispec.Descriptor{
		child.Descriptor, bundle.NewBlob(ocispec.MediaTypeImageManifest, []byte("of another platform")).Descriptor,
	}})
	require.NoError(t, err)
	top := bundle.NewBlob(ocispec.MediaTypeImageIndex, index)
	early, loose := bundle.NewBlob("text/plain", []byte("early")), bundle.NewBlob("text/plain", []byte("loose"))
	pushAll(t, repo, config, child, top, early, loose)
	require.NoError(t, layout.Retain([]oci.Retained{
		{Manifest: top.Descriptor, Blobs: []digest.Digest{child.Descriptor.Digest, early.Descriptor.Digest}},
		{Repository: "host.example/app", Manifest: top.Descriptor, All: true},
		{Repository: "assignments/web", Tag: "one", Manifest: child.Descriptor, All: true},
	}, nil))
	for _, b := range []bundle.Blob{config, child, top, early} {
		there, err := repo.Exists(t.Context(), b.Descriptor)
		require.NoError(t, err)
		require.True(t, there)
	}
	there, err := repo.Exists(t.Context(), loose.Descriptor)
	require.NoError(t, err)
	require.False(t, there)
	names, err := layout.Repositories(t.Context())
	require.NoError(t, err)
	require.Equal(t, []string{"assignments/web", "host.example/app"}, names)
	tags, err := repo.Tags(t.Context())
	require.NoError(t, err)
	require.Empty(t, tags)
	got, err := repo.Resolve(t.Context(), top.Descriptor.Digest.String())
	require.NoError(t, err)
	require.Equal(t, top.Descriptor, got)
}

func TestABlobOfTheWrongSizeCountsAsMissing(t *testing.T) {
	dir := t.TempDir()
	repo, err := oci.NewLayout(dir).Repository("a")
	require.NoError(t, err)
	blob := bundle.NewBlob("application/octet-stream", []byte("content"))
	pushAll(t, repo, blob)
	path := filepath.Join(dir, "blobs", "sha256", blob.Descriptor.Digest.Encoded())
	require.NoError(t, os.Truncate(path, 3))
	there, err := repo.Exists(t.Context(), blob.Descriptor)
	require.NoError(t, err)
	require.False(t, there)
	pushAll(t, repo, blob)
	got, err := bundle.ReadBlob(t.Context(), repo, blob.Descriptor, 1<<10)
	require.NoError(t, err)
	require.Equal(t, blob.Data, got)
}

func TestHostileMediaLeadNowhere(t *testing.T) {
	dir, outside := t.TempDir(), filepath.Join(t.TempDir(), "secret")
	require.NoError(t, os.WriteFile(outside, []byte("content"), 0o600))
	repo, err := oci.NewLayout(dir).Repository("a")
	require.NoError(t, err)
	pushAll(t, repo, bundle.NewBlob("application/octet-stream", []byte("other")))
	blob := bundle.NewBlob("application/octet-stream", []byte("content"))
	path := filepath.Join(dir, "blobs", "sha256", blob.Descriptor.Digest.Encoded())

	require.NoError(t, os.Symlink(outside, path))
	_, err = repo.Fetch(t.Context(), blob.Descriptor)
	require.ErrorContains(t, err, "escapes")
	require.NoError(t, os.Remove(path))

	require.NoError(t, syscall.Mkfifo(path, 0o600))
	_, err = repo.Fetch(t.Context(), blob.Descriptor)
	require.ErrorContains(t, err, "not a regular file")

	index := ocispec.Index{Manifests: []ocispec.Descriptor{{
		Digest: "../../../etc/passwd", Annotations: map[string]string{ocispec.AnnotationRefName: "a/latest"},
	}}}
	data, err := json.Marshal(index)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "index.json"), data, 0o600))
	_, err = repo.Resolve(t.Context(), "latest")
	require.ErrorContains(t, err, "invalid checksum digest format")
	_, err = repo.Fetch(t.Context(), index.Manifests[0])
	require.ErrorContains(t, err, "invalid checksum digest format")
}

// files lists the regular files of dir that are no blobs.
func files(t *testing.T, dir string) []string {
	var names []string
	require.NoError(t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			rel, _ := filepath.Rel(dir, path)
			names = append(names, rel)
		}
		return err
	}))
	return names
}
