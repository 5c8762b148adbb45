package medium

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/airgap"
	"github.com/wherry-dev/wherry/airgap/packagetest"
)

// watched is a folder that is watched, in virtual time.
type watched struct {
	t    *testing.T
	dir  string
	says Outcome
	got  []string
}

// watching runs f while a folder is watched.
func watching(t *testing.T, opts WatchOptions, f func(*watched)) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		w := &watched{t: t, dir: dir}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() {
			ended <- Watch(ctx, dir, opts, func(_ context.Context, f Found) Outcome {
				said := fmt.Sprint(f.Packages)
				if f.Err != nil {
					said = "bad"
				}
				for _, item := range f.Skipped {
					said += " " + filepath.Base(item.Name)
				}
				w.got = append(w.got, fmt.Sprintf("%s %d", said, len(f.Acks)))
				return w.says
			})
		}()
		synctest.Wait() // for the first look
		f(w)
		cancel()
		require.NoError(t, <-ended)
	})
}

// after lets time pass, and returns what was handed over meanwhile.
func (w *watched) after(d time.Duration) []string {
	time.Sleep(d)
	synctest.Wait()
	got := w.got
	w.got = nil
	return got
}

func (w *watched) write(name string, data []byte) {
	w.t.Helper()
	require.NoError(w.t, os.WriteFile(filepath.Join(w.dir, name), data, 0o600))
}

func (w *watched) remove(name string) {
	w.t.Helper()
	require.NoError(w.t, os.Remove(filepath.Join(w.dir, name)))
}

// sitePackage is a package whose index names a release; it holds no more.
func sitePackage(t *testing.T, release string) []byte {
	t.Helper()
	var b bytes.Buffer
	w := airgap.NewWriter(&b)
	require.NoError(t, w.Index([]ocispec.Descriptor{{
		MediaType: ocispec.MediaTypeImageManifest, Digest: digest.FromString(release), Size: 7,
		Annotations: map[string]string{ocispec.AnnotationRefName: "bundles/dev/drone/latest"},
	}}))
	require.NoError(t, w.Close())
	return b.Bytes()
}

func TestAMediumIsHandedOverOnceEachTimeItComes(t *testing.T) {
	watching(t, WatchOptions{}, func(w *watched) {
		require.Empty(t, w.after(time.Hour))
		w.write("site.tar", sitePackage(t, "1"))
		require.Empty(t, w.after(2*time.Second), "it may still be written")
		require.Equal(t, []string{"1 0"}, w.after(2*time.Second))
		require.Empty(t, w.after(time.Hour))

		w.remove("site.tar") // the medium goes, and comes back
		require.Empty(t, w.after(time.Minute))
		w.write("site.tar", sitePackage(t, "1"))
		require.Equal(t, []string{"1 0"}, w.after(time.Minute), "whoever takes it finds out what is here already")

		w.write("site.tar", sitePackage(t, "2"))
		require.Equal(t, []string{"1 0"}, w.after(time.Hour))
	})
}

func TestAPackageThatIsBeingCopiedIsLeftAlone(t *testing.T) {
	watching(t, WatchOptions{}, func(w *watched) {
		whole := sitePackage(t, "1")
		for n := range 20 {
			w.write("site.tar", whole[:100+n])
			require.Empty(t, w.after(2*time.Second))
		}
		w.write("site.tar.partial", whole)
		w.write(".site.tar.swp", whole)
		w.write("site.tar", whole)
		require.Equal(t, []string{"1 0"}, w.after(4*time.Second))
	})
}

func TestAFileThatIsShorterThanItSaysIsWaitedFor(t *testing.T) {
	made, err := packagetest.Make(t.Context(), nil, func(c *airgap.Contents) { c.Bytes = 1 << 20 })
	require.NoError(t, err)
	short := made.Bytes()
	watching(t, WatchOptions{}, func(w *watched) {
		w.write("site.tar", short)
		require.Empty(t, w.after(20*time.Second))
		w.write("site.tar", append(short, make([]byte, 1<<20)...))
		require.Equal(t, []string{"1 0"}, w.after(4*time.Second))
	})
	watching(t, WatchOptions{}, func(w *watched) {
		w.write("site.tar", short)
		require.Equal(t, []string{"1 0"}, w.after(time.Minute), "one that is cut short is refused for the true reason in the end")
	})
}

func TestBadMediaAreToldOnceAndNeverEndTheWatch(t *testing.T) {
	watching(t, WatchOptions{}, func(w *watched) {
		w.says = Ended
		w.write("site.tar", []byte("no package at all"))
		require.Equal(t, []string{"bad site.tar 0"}, w.after(time.Hour))
		w.write("site.tar", sitePackage(t, "1")[:1100])
		require.Equal(t, []string{"bad site.tar 0"}, w.after(time.Hour))
		w.write("site.tar", sitePackage(t, "1"))
		w.write("other.tar", sitePackage(t, "2"))
		require.Equal(t, []string{"2 0"}, w.after(time.Hour), "two packages")
		w.write("reports.tar", nil)
		require.Equal(t, []string{"2 reports.tar 0"}, w.after(time.Hour), "another file blocks neither")
		w.remove("reports.tar")
		w.remove("other.tar")
		require.Equal(t, []string{"1 0"}, w.after(time.Hour))

		require.NoError(t, os.RemoveAll(w.dir)) // a mount point that goes with its medium
		require.Empty(t, w.after(time.Hour))
		require.NoError(t, os.Mkdir(w.dir, 0o700))
		w.says = Ended
		w.write("site.tar", sitePackage(t, "1"))
		require.Equal(t, []string{"1 0"}, w.after(time.Hour), "what was declined is tried again when it comes again")
	})
}

func TestAFailureIsTriedAgainLessAndLessOften(t *testing.T) {
	watching(t, WatchOptions{Every: 10 * time.Second}, func(w *watched) {
		w.says = Failed
		w.write("site.tar", sitePackage(t, "1"))
		require.Len(t, w.after(time.Minute), 1)
		require.Len(t, w.after(10*time.Minute), 3)
		require.Len(t, w.after(24*time.Hour), 26)
		w.says = Ended
		require.Equal(t, []string{"1 0"}, w.after(time.Hour+time.Minute))
		require.Empty(t, w.after(24*time.Hour))
	})
}

func TestWhatTheCallerWritesIsNoChange(t *testing.T) {
	watching(t, WatchOptions{Own: []string{"reports.tar"}}, func(w *watched) {
		var reports bytes.Buffer
		require.NoError(t, airgap.WriteReports(&reports, nil))
		w.write("reports.tar", reports.Bytes())
		require.Empty(t, w.after(time.Hour), "alone in a folder it makes no medium")
		var acks bytes.Buffer
		require.NoError(t, airgap.WriteAck(&acks, [][]byte{[]byte("{}")}))
		w.write("acks-of-the-hub.tar", acks.Bytes())
		require.Equal(t, []string{"0 1"}, w.after(time.Hour))
		w.write("reports.tar", reports.Bytes())
		w.write("photo.jpg", nil)
		require.Equal(t, []string{"0 1"}, w.after(time.Hour))
		w.write("site.tar", sitePackage(t, "1"))
		require.Equal(t, []string{"1 1"}, w.after(time.Hour))
	})
}

func TestAMediumWithoutAPackageIsHandedOverToo(t *testing.T) {
	here := false
	watching(t, WatchOptions{Own: []string{"reports.tar"}, Mounted: func(string) bool { return here }}, func(w *watched) {
		require.Empty(t, w.after(time.Hour))
		here = true
		require.Equal(t, []string{"0 0"}, w.after(time.Hour), "it is empty")
		w.write("reports.tar", nil)
		require.Empty(t, w.after(time.Hour))
		w.write("photo.jpg", nil)
		require.Equal(t, []string{"0 0"}, w.after(time.Hour))
		w.remove("photo.jpg")
		here = false
		require.Empty(t, w.after(time.Hour))
		here = true
		require.Equal(t, []string{"0 0"}, w.after(time.Hour), "it comes again")
	})
}

func TestAnUnpackedLayoutIsTakenOnceItsBlobsAreWhole(t *testing.T) {
	watching(t, WatchOptions{}, func(w *watched) {
		blobs := filepath.Join(w.dir, "blobs", "sha256")
		require.NoError(t, os.MkdirAll(blobs, 0o700))
		w.write("oci-layout", []byte(`{"imageLayoutVersion":"1.0.0"}`))
		w.write("index.json", []byte(`{"schemaVersion":2,"manifests":[{"mediaType":"application/vnd.oci.image.manifest.v1+json","digest":"`+digest.FromString("x").String()+`","size":1,"annotations":{"org.opencontainers.image.ref.name":"bundles/dev/drone/latest"}}]}`))
		for n := range 10 {
			require.NoError(t, os.WriteFile(filepath.Join(blobs, digest.FromString("x").Encoded()), make([]byte, n), 0o600))
			require.Empty(t, w.after(2*time.Second))
		}
		require.Equal(t, []string{"1 0"}, w.after(time.Hour))
	})
}

func TestAFolderThatIsMissingIsAnError(t *testing.T) {
	never := func(context.Context, Found) Outcome { panic("0 is there") }
	require.ErrorIs(t, Watch(t.Context(), filepath.Join(t.TempDir(), "none"), WatchOptions{}, never), os.ErrNotExist)
	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	require.ErrorContains(t, Watch(t.Context(), file, WatchOptions{}, never), "not a folder")
}
