package directory_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/specs-go"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/stretchr/testify/require"
	"oras.land/oras-go/v2/registry/remote/auth"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/oci"
	"github.com/wherry-dev/wherry/reconcilers"
	"github.com/wherry-dev/wherry/reconcilers/directory"
	"github.com/wherry-dev/wherry/reconcilers/reconcilertest"
)

// shelf is a registry with artifacts.
type shelf struct {
	t      *testing.T
	server *httptest.Server

	mu     sync.Mutex
	front  func(http.ResponseWriter, *http.Request) bool // answers in place of the registry
	blobs  []string                                      // the digests of blobs that were asked for
	passed http.Handler
}

func newShelf(t *testing.T) *shelf {
	s := &shelf{t: t, passed: registry.New(registry.Logger(log.New(io.Discard, "", 0)))}
	s.server = httptest.NewServer(s)
	t.Cleanup(s.server.Close)
	return s
}

func (s *shelf) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	if _, d, ok := strings.Cut(r.URL.Path, "/blobs/sha256:"); ok && r.Method == http.MethodGet {
		s.blobs = append(s.blobs, d)
	}
	front := s.front
	s.mu.Unlock()
	if front == nil || !front(w, r) {
		s.passed.ServeHTTP(w, r)
	}
}

// answer sets a handler in front of the registry, and forgets the requested blobs.
func (s *shelf) answer(front func(http.ResponseWriter, *http.Request) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.front, s.blobs = front, nil
}

func (s *shelf) asked() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.blobs
}

func (s *shelf) host() string { return s.server.Listener.Addr().String() }

// fetch is what directory.Options has. It does not try again by itself.
func (s *shelf) fetch(repository string) (bundle.Source, error) {
	return openAt(s.server.Client(), repository)
}

func openAt(client *http.Client, repository string) (oci.Target, error) {
	host, name, _ := strings.Cut(repository, "/")
	return oci.Location{Host: host}.Repository(name, oci.Options{HTTPClient: client, Credential: auth.StaticCredential("", auth.EmptyCredential)})
}

type blob struct {
	title, mediaType string
	unpack           bool
	data             []byte
}

func titled(title, text string) blob { return blob{title: title, data: []byte(text)} }

// push puts an artifact into the registry and returns how an assignment names it.
func (s *shelf) push(blobs ...blob) bundle.FetchedArtifact {
	s.t.Helper()
	repo, err := openAt(s.server.Client(), s.host()+"/models/eye")
	require.NoError(s.t, err)
	put := func(mediaType string, data []byte) ocispec.Descriptor {
		d := ocispec.Descriptor{MediaType: mediaType, Digest: digest.FromBytes(data), Size: int64(len(data))}
		require.NoError(s.t, repo.Push(s.t.Context(), d, bytes.NewReader(data)))
		return d
	}
	m := ocispec.Manifest{Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: ocispec.MediaTypeImageManifest, Config: put(ocispec.MediaTypeEmptyJSON, []byte("{}"))}
	for _, b := range blobs {
		if b.mediaType == "" {
			b.mediaType = "application/octet-stream"
		}
		d := put(b.mediaType, b.data)
		d.Annotations = map[string]string{}
		if b.title != "" {
			d.Annotations[ocispec.AnnotationTitle] = b.title
		}
		if b.unpack {
			d.Annotations["io.deis.oras.content.unpack"] = "true"
		}
		m.Layers = append(m.Layers, d)
	}
	data, err := json.Marshal(m)
	require.NoError(s.t, err)
	return bundle.FetchedArtifact{Reference: "oci://" + s.host() + "/models/eye:1", Digest: put(ocispec.MediaTypeImageManifest, data).Digest}
}

// archive makes a tar of headers; regular files hold their own names.
func archive(t *testing.T, headers ...tar.Header) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, h := range headers {
		if h.Typeflag == tar.TypeReg || h.Typeflag == 0 {
			h.Typeflag, h.Size = tar.TypeReg, int64(len(h.Name))
		}
		if h.Mode == 0 {
			h.Mode = 0o644
		}
		require.NoError(t, w.WriteHeader(&h))
		if h.Typeflag == tar.TypeReg {
			_, err := w.Write([]byte(h.Name))
			require.NoError(t, err)
		}
	}
	require.NoError(t, w.Close())
	return b.Bytes()
}

func zipped(t *testing.T, data []byte) []byte {
	t.Helper()
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, err := w.Write(data)
	require.NoError(t, err)
	require.NoError(t, w.Close())
	return b.Bytes()
}

// host is a root on which assignments with artifacts come to be.
type host struct {
	*shelf
	root   string
	ledger reconcilertest.Ledger
	limit  int64
	*directory.Reconciler
}

func newHost(t *testing.T) *host {
	h := &host{shelf: newShelf(t), root: filepath.Join(t.TempDir(), "root")}
	h.restart()
	t.Cleanup(func() { require.NoError(t, h.Close()) })
	return h
}

// restart is what a new process finds.
func (h *host) restart() {
	if h.Reconciler != nil {
		require.NoError(h.t, h.Close())
	}
	h.Reconciler = directory.New(h.root, directory.Options{Fetch: h.fetch, Ledger: &h.ledger, MaxBytes: h.limit})
}

func with(a reconcilers.Assignment, artifacts ...bundle.FetchedArtifact) reconcilers.Assignment {
	a.Fetched = artifacts
	return a
}

// settled applies and waits until nothing is fetched any more, as an agent does.
func (h *host) settled(a reconcilers.Assignment) reconcilers.Result {
	h.t.Helper()
	res := h.Apply(h.t.Context(), a)
	require.Eventually(h.t, func() bool {
		if res.State == bundle.Pulling {
			res = h.Observe(h.t.Context(), a)
		}
		return res.State != bundle.Pulling
	}, time.Minute, 5*time.Millisecond)
	return res
}

func (h *host) compliant(a reconcilers.Assignment) {
	h.t.Helper()
	res := h.settled(a)
	require.Equal(h.t, bundle.Compliant, res.State, "%s: %s", res.Reason, res.Message)
	require.Equal(h.t, a.Desired().String(), res.Revision)
}

// only fails unless the root holds want and nothing else.
func (h *host) only(want map[string]string) {
	h.t.Helper()
	require.Equal(h.t, want, contents(h.t, h.root))
	var names []string
	for name := range want {
		names = append(names, strings.SplitN(name, "/", 2)[0])
	}
	slices.Sort(names)
	requireMarksOnly(h.t, h.root, slices.Compact(names)...)
}

func inode(t testing.TB, path string) os.FileInfo {
	t.Helper()
	info, err := os.Stat(path)
	require.NoError(t, err)
	return info
}

func TestFilesAndWhatIsFetchedLieInOneFolder(t *testing.T) {
	h := newHost(t)
	tree := archive(t, tar.Header{Name: "./", Typeflag: tar.TypeDir, Mode: 0o755}, tar.Header{Name: "./bin/run", Mode: 0o755}, tar.Header{Name: "doc.txt"})
	folder := archive(t, tar.Header{Name: "labels/", Typeflag: tar.TypeDir, Mode: 0o755}, tar.Header{Name: "labels/en"})
	eye := h.push(
		titled("weights/eye.onnx", "model"), titled("copy.onnx", "model"), titled("notes.tgz", string(zipped(t, tree))),
		blob{mediaType: ocispec.MediaTypeImageLayer, data: tree}, blob{mediaType: ocispec.MediaTypeImageLayerGzip, title: "labels", unpack: true, data: zipped(t, folder)},
		blob{mediaType: ocispec.MediaTypeEmptyJSON, data: []byte("{}")},
	)
	a := with(assignment(t, "drone", map[string]string{"reconciler.yaml": "kind: X"}), eye)
	res := h.Observe(t.Context(), a)
	require.Equal(t, []any{bundle.Pending, directory.NotFetched}, []any{res.State, res.Reason})
	h.compliant(a)
	want := map[string]string{
		"drone/reconciler.yaml": "kind: X", "drone/weights/eye.onnx": "model", "drone/copy.onnx": "model", "drone/notes.tgz": string(zipped(t, tree)),
		"drone/bin/run": "./bin/run", "drone/doc.txt": "doc.txt", "drone/labels/en": "labels/en",
	}
	h.only(want)
	require.NotZero(t, inode(t, filepath.Join(h.root, "drone/bin/run")).Mode()&0o100)
	require.Len(t, h.asked(), 4, "what has one digest is fetched once")

	h.restart()
	h.answer(func(http.ResponseWriter, *http.Request) bool {
		t.Error("a registry is asked for what is here")
		return false
	})
	require.Equal(t, bundle.Compliant, h.Observe(t.Context(), a).State)
	require.Empty(t, h.Apply(t.Context(), a).Changes)
	require.Equal(t, bundle.Removed, h.Remove(t.Context(), a).State)
	requireEmpty(t, h.root)
	require.Equal(t, directory.NotFetched, h.Observe(t.Context(), a).Reason)
}

func TestWhatDidNotChangeIsThereOnce(t *testing.T) {
	h := newHost(t)
	model, other := titled("eye.onnx", "model"), titled("ear.onnx", "model of ears")
	h.compliant(with(assignment(t, "drone", map[string]string{"a": "1", "b": "1"}), h.push(model)))
	before := inode(t, filepath.Join(h.root, "drone/eye.onnx"))
	a := with(assignment(t, "drone", map[string]string{"a": "2", "b": "1"}), h.push(model, other))
	h.answer(nil)
	h.compliant(a)
	require.Equal(t, []string{digest.FromString("model of ears").Encoded()}, h.asked(), "only the new layer is fetched")
	require.True(t, os.SameFile(before, inode(t, filepath.Join(h.root, "drone/eye.onnx"))))
	h.only(map[string]string{"drone/a": "2", "drone/b": "1", "drone/eye.onnx": "model", "drone/ear.onnx": "model of ears"})

	h.answer(nil)
	a = with(assignment(t, "drone", map[string]string{"a": "3"}), a.Fetched...)
	require.Equal(t, bundle.Compliant, h.Apply(t.Context(), a).State, "nothing has to be fetched for another configuration")
	require.Empty(t, h.asked())
	require.True(t, os.SameFile(before, inode(t, filepath.Join(h.root, "drone/eye.onnx"))))

	require.Equal(t, bundle.Compliant, h.Apply(t.Context(), with(a)).State)
	h.only(map[string]string{"drone/a": "3"})
}

func TestAFileThatOthersShareIsNotLinked(t *testing.T) {
	h := newHost(t)
	h.compliant(with(assignment(t, "drone", map[string]string{"a": "1"}), h.push(titled("eye.onnx", "model"))))
	theirs := filepath.Join(t.TempDir(), "theirs")
	if err := os.Link(filepath.Join(h.root, "drone/eye.onnx"), theirs); err != nil {
		require.NoError(t, os.Link(filepath.Join(h.root, "drone/eye.onnx"), filepath.Join(h.root, "theirs")))
		theirs = filepath.Join(h.root, "theirs")
	}
	h.compliant(with(assignment(t, "drone", map[string]string{"a": "2"}), h.push(titled("eye.onnx", "model"))))
	require.False(t, os.SameFile(inode(t, theirs), inode(t, filepath.Join(h.root, "drone/eye.onnx"))))
}

func TestTamperingWithFetchedFilesIsDrift(t *testing.T) {
	for name, tamper := range map[string]func(path string) error{
		"another text of the same length and time": func(path string) error {
			info, err := os.Stat(path)
			if err != nil {
				return err
			}
			if err := os.WriteFile(path, []byte("MODEL"), 0o644); err != nil {
				return err
			}
			return os.Chtimes(path, info.ModTime(), info.ModTime())
		},
		"no file":   os.Remove,
		"no folder": func(path string) error { return os.RemoveAll(filepath.Dir(path)) },
		"a link": func(path string) error {
			if err := os.Rename(path, path+".moved"); err != nil {
				return err
			}
			return os.Symlink(path+".moved", path)
		},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHost(t)
			a := with(assignment(t, "drone", map[string]string{"a": "1"}), h.push(titled("eye.onnx", "model")))
			h.compliant(a)
			for range 2 { // read, and then known by its looks
				require.Equal(t, bundle.Compliant, h.Observe(t.Context(), a).State)
			}
			require.NoError(t, tamper(filepath.Join(h.root, "drone/eye.onnx")))
			for range 2 {
				require.Equal(t, bundle.Drifted, h.Observe(t.Context(), a).State)
				h.restart()
			}
			h.compliant(a)
			h.only(map[string]string{"drone/a": "1", "drone/eye.onnx": "model"})
		})
	}
}

func TestArtifactsOfWhichNoFilesCanBeMade(t *testing.T) {
	deep := strings.Repeat("x/", 300) + "x"
	for _, c := range []struct {
		name    string
		message string
		blobs   func(t *testing.T) []blob
	}{
		{"a title that leads out", `"../../etc/passwd" is not a relative, clean path`, func(*testing.T) []blob { return []blob{titled("../../etc/passwd", "x")} }},
		{"a title from the root", `"/etc/passwd" is not a relative, clean path`, func(*testing.T) []blob { return []blob{titled("/etc/passwd", "x")} }},
		{"a title that is too long", "path of 601 bytes", func(*testing.T) []blob { return []blob{titled(deep, "x")} }},
		{"a title twice", `"eye" is there twice`, func(*testing.T) []blob { return []blob{titled("eye", "x"), titled("eye", "y")} }},
		{"titles that some disks take for one", `"Eye" is there twice`, func(*testing.T) []blob { return []blob{titled("eye", "x"), titled("Eye", "y")} }},
		{"a file below a file", `"eye/x" lies below the file "eye"`, func(*testing.T) []blob { return []blob{titled("eye", "x"), titled("eye/x", "y")} }},
		{"a rendered file's name", "reconciler.yaml is in the artifact and among the rendered files", func(*testing.T) []blob { return []blob{titled("reconciler.yaml", "x")} }},
		{"no title", "has no title that names a file", func(*testing.T) []blob { return []blob{{data: []byte("x")}} }},
		{"no layers", "it has no layers", func(*testing.T) []blob { return nil }},
		{"more than is allowed", "the files that are fetched hold more bytes than are allowed", func(*testing.T) []blob { return []blob{titled("eye", strings.Repeat("x", 5000))} }},
		{"an archive that leads out", `"../x" is not a relative, clean path`, func(t *testing.T) []blob {
			return []blob{{mediaType: ocispec.MediaTypeImageLayer, data: archive(t, tar.Header{Name: "../x"})}}
		}},
		{"an archive with a link", `"x" is neither a file nor a folder`, func(t *testing.T) []blob {
			return []blob{{mediaType: ocispec.MediaTypeImageLayer, data: archive(t, tar.Header{Name: "x", Typeflag: tar.TypeSymlink, Linkname: "/etc/passwd"})}}
		}},
		{"an archive that deletes", "deletes a file of another layer", func(t *testing.T) []blob {
			return []blob{{mediaType: ocispec.MediaTypeImageLayer, data: archive(t, tar.Header{Name: "a/.wh.x"})}}
		}},
		{"an archive that leaves its folder", `"other/x" lies outside of it`, func(t *testing.T) []blob {
			return []blob{{title: "labels", unpack: true, data: zipped(t, archive(t, tar.Header{Name: "other/x"}))}}
		}},
		{"an archive that grows", "unpacks to more bytes than are allowed", func(t *testing.T) []blob {
			return []blob{{mediaType: ocispec.MediaTypeImageLayerGzip, data: zipped(t, archive(t, tar.Header{Name: strings.Repeat("x", 200)}, tar.Header{Name: "big/" + strings.Repeat("y", 250) + "/" + strings.Repeat("z", 200)}))}}
		}},
		{"an archive that is none", "its archive: gzip: invalid header", func(*testing.T) []blob {
			return []blob{{mediaType: ocispec.MediaTypeImageLayerGzip, data: []byte("no archive at all")}}
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := newHost(t)
			if h.limit = 4096; strings.Contains(c.name, "grows") {
				h.limit = 500
			}
			h.restart()
			h.compliant(with(assignment(t, "drone", map[string]string{"reconciler.yaml": "1"}), h.push(titled("eye", "model"))))
			bad := with(assignment(t, "drone", map[string]string{"reconciler.yaml": "2"}), h.push(c.blobs(t)...))
			res := h.settled(bad)
			require.Equal(t, bundle.Failed, res.State, res.Message)
			require.Equal(t, directory.InvalidArtifact, res.Reason)
			require.Contains(t, res.Message, c.message)
			require.Contains(t, res.Message, h.host()+"/models/eye")
			require.Equal(t, map[string]string{"drone/reconciler.yaml": "1", "drone/eye": "model"}, contents(t, h.root), "the last good content stays")
			h.answer(func(http.ResponseWriter, *http.Request) bool {
				t.Error("what cannot be right is fetched again")
				return false
			})
			require.Equal(t, res, h.Apply(t.Context(), bad))
			require.Equal(t, res, h.Observe(t.Context(), bad))
		})
	}
}
