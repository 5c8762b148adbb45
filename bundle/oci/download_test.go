package oci

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	mathrand "math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/iotest"
	"time"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/stretchr/testify/require"
	"oras.land/oras-go/v2/content"
	"oras.land/oras-go/v2/errdef"

	"github.com/wherry-dev/wherry/bundle/sweeptest"
)

// link is a registry with one blob, behind a link of the test's.
type link struct {
	data []byte
	repo Target
	blob ocispec.Descriptor
	dir  string
	opts DownloadOptions

	mu       sync.Mutex
	requests []string // the Range of each
	sent     int64    // bytes of the blob
	// answer, if set, answers the request of that number, from 0, and says whether it did.
	answer func(n int, w http.ResponseWriter, req *http.Request) bool
}

func newLink(t *testing.T, size int) *link {
	t.Helper()
	l := &link{data: make([]byte, size), dir: filepath.Join(t.TempDir(), "store")}
	_, err := rand.Read(l.data)
	require.NoError(t, err)
	l.blob = ocispec.Descriptor{Digest: digest.FromBytes(l.data), Size: int64(size)}
	server := httptest.NewServer(l)
	t.Cleanup(server.Close)
	loc := Location{Host: server.Listener.Addr().String(), Prefix: "edge"}
	l.repo, err = loc.Repository("bundles/dev/drone", Options{HTTPClient: server.Client()})
	require.NoError(t, err)
	l.opts = DownloadOptions{Chunk: 64, Wait: time.Microsecond, MaxWait: time.Microsecond, MinProgress: 1, Retries: 2}
	return l
}

func (l *link) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	l.mu.Lock()
	n := len(l.requests)
	l.requests = append(l.requests, req.Header.Get("Range"))
	l.mu.Unlock()
	w = &counting{w, l}
	if l.answer == nil || !l.answer(n, w, req) {
		l.serve(w, req)
	}
}

// serve answers as a registry does.
func (l *link) serve(w http.ResponseWriter, req *http.Request) {
	http.ServeContent(w, req, "", time.Time{}, bytes.NewReader(l.data))
}

type counting struct {
	http.ResponseWriter
	link *link
}

func (c *counting) Write(p []byte) (int, error) {
	atomic.AddInt64(&c.link.sent, int64(len(p))) // before the other side has them, and asks
	return c.ResponseWriter.Write(p)
}

// cutAt ends a connection after k bytes of an answer's body.
type cutAt struct {
	http.ResponseWriter
	left int
}

func (c *cutAt) Write(p []byte) (int, error) {
	n, err := c.ResponseWriter.Write(p[:min(len(p), c.left)])
	if c.left -= n; c.left == 0 {
		c.ResponseWriter.(*counting).ResponseWriter.(http.Flusher).Flush()
		panic(http.ErrAbortHandler)
	}
	return n, err
}

func (l *link) download(t *testing.T) error {
	t.Helper()
	return NewLayout(l.dir).Download(t.Context(), l.repo, l.blob, l.opts)
}

// requireWhole fails t unless the blob is there and nothing is left beside it.
func (l *link) requireWhole(t *testing.T) {
	t.Helper()
	got, err := os.ReadFile(filepath.Join(l.dir, blobPath(l.blob.Digest)))
	require.NoError(t, err)
	require.True(t, bytes.Equal(l.data, got))
	require.Equal(t, []string{partsLock}, l.parts(t))
}

func (l *link) requireNone(t *testing.T) {
	t.Helper()
	require.NoFileExists(t, filepath.Join(l.dir, blobPath(l.blob.Digest)))
}

func (l *link) parts(t *testing.T) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(filepath.Join(l.dir, partsDir))
	require.NoError(t, err)
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

func TestADownloadThatIsCutAnywhereGoesOnThere(t *testing.T) {
	t.Parallel()
	const size = 150
	for k := 0; k < size; k += sweeptest.Every(7) {
		l := newLink(t, size)
		l.answer = func(n int, w http.ResponseWriter, req *http.Request) bool {
			if n == 0 && k > 0 {
				l.serve(&cutAt{w, k}, req)
			} else if n == 0 {
				panic(http.ErrAbortHandler)
			}
			return n == 0
		}
		require.NoError(t, l.download(t), "cut at %d", k)
		l.requireWhole(t)
		require.Equal(t, int64(size), l.sent, "nothing is sent twice")
		if k > 0 {
			require.Equal(t, []string{"", fmt.Sprintf("bytes=%d-%d", k, size-1)}, l.requests)
		}
		require.NoError(t, l.download(t))
		require.Len(t, l.requests, 2, "what is there is not fetched")
	}
}

// An agent that ends in good order keeps all bytes; a power cut loses at most one chunk.
func TestADownloadThatIsCutAnywhereGoesOnAfterARestart(t *testing.T) {
	t.Parallel()
	const size = 150
	for _, power := range []bool{false, true} {
		for k := 1; k < size; k += sweeptest.Every(7) {
			l := newLink(t, size)
			l.opts.Retries = -1
			l.answer = func(n int, w http.ResponseWriter, req *http.Request) bool {
				if n == 0 {
					l.serve(&cutAt{w, k}, req)
				}
				return n == 0
			}
			require.ErrorIs(t, l.download(t), ErrUnreachable)
			l.requireNone(t)
			if power { // the last chunk was not on the disk, and nor was the note of it
				l.spoil(t, int64(k))
			}
			require.NoError(t, l.download(t), "cut at %d", k)
			l.requireWhole(t)
			if power {
				require.LessOrEqual(t, l.sent, size+l.opts.Chunk)
			} else {
				require.Equal(t, int64(size), l.sent)
			}
		}
	}
}

func (l *link) spoil(t *testing.T, have int64) {
	t.Helper()
	path := filepath.Join(l.dir, path.Join(partsDir, partBase(l.blob.Digest)))
	synced := have / l.opts.Chunk * l.opts.Chunk
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	clear(data[synced:])
	require.NoError(t, os.WriteFile(path, append(data, 0, 0), 0o600))
	require.NoError(t, os.WriteFile(path+syncedSuffix, strconv.AppendInt(nil, synced, 10), 0o600))
}

func TestWhatIsKeptOfADownloadIsNotBelieved(t *testing.T) {
	t.Parallel()
	for name, spoil := range map[string]func(path string) error{
		"other bytes":            func(path string) error { return os.WriteFile(path, make([]byte, 150), 0o600) },
		"fewer bytes":            func(path string) error { return os.Truncate(path, 100) },
		"a note that is garbage": func(path string) error { return os.WriteFile(path+syncedSuffix, []byte("garbage"), 0o600) },
		"a note of too much":     func(path string) error { return os.WriteFile(path+syncedSuffix, []byte("301"), 0o600) },
		"a note of less than 0":  func(path string) error { return os.WriteFile(path+syncedSuffix, []byte("-5"), 0o600) },
		"no note":                func(path string) error { return os.Remove(path + syncedSuffix) },
		"no part":                func(path string) error { return os.Remove(path) },
		"a note of all": func(path string) error {
			return os.WriteFile(path+syncedSuffix, []byte("300"), 0o600)
		},
		"all, and nothing of it right": func(path string) error {
			return errors.Join(os.WriteFile(path, make([]byte, 300), 0o600), os.WriteFile(path+syncedSuffix, []byte("300"), 0o600))
		},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLink(t, 300)
			l.opts.Retries = -1
			l.answer = func(n int, w http.ResponseWriter, req *http.Request) bool {
				if n == 0 {
					l.serve(&cutAt{w, 150}, req)
				}
				return n == 0
			}
			require.ErrorIs(t, l.download(t), ErrUnreachable)
			require.NoError(t, spoil(filepath.Join(l.dir, path.Join(partsDir, partBase(l.blob.Digest)))))
			require.NoError(t, l.download(t))
			l.requireWhole(t)
		})
	}
}

func TestARegistryThatAnswersWithSomethingElse(t *testing.T) {
	t.Parallel()
	part := func(contentRange string, from, to int) func(*link, http.ResponseWriter, *http.Request) {
		return func(l *link, w http.ResponseWriter, _ *http.Request) {
			if contentRange != "" {
				w.Header().Set("Content-Range", contentRange)
			}
			w.WriteHeader(http.StatusPartialContent)
			_, _ = w.Write(l.data[from:to])
		}
	}
	status := func(code int) func(*link, http.ResponseWriter, *http.Request) {
		return func(_ *link, w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code) }
	}
	whole := func(l *link, w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(l.data) }
	for name, c := range map[string]struct {
		second   func(*link, http.ResponseWriter, *http.Request) // to the request for bytes=100-299
		err      error
		requests int
	}{
		"the whole blob":                 {whole, nil, 2},
		"no range":                       {part("", 100, 300), nil, 3},
		"another start":                  {part("bytes 99-299/300", 99, 300), nil, 3},
		"bytes that are there":           {part("bytes 0-299/300", 0, 300), nil, 3},
		"a later start":                  {part("bytes 101-299/300", 101, 300), nil, 3},
		"an end behind the end":          {part("bytes 100-300/300", 100, 300), nil, 3},
		"an end before the start":        {part("bytes 100-98/300", 100, 300), nil, 3},
		"another unit":                   {part("octets 100-299/300", 100, 300), nil, 3},
		"a range beyond all numbers":     {part("bytes 100-99999999999999999999/300", 100, 300), nil, 3},
		"less than was asked for":        {part("bytes 100-199/300", 100, 200), nil, 3},
		"a size that is not said":        {part("bytes 100-299/*", 100, 300), nil, 2},
		"more bytes than it says":        {part("bytes 100-199/300", 100, 300), nil, 3},
		"fewer bytes than it says":       {part("bytes 100-299/300", 100, 200), nil, 3},
		"another size":                   {part("bytes 100-299/301", 100, 300), content.ErrMismatchedDigest, 2},
		"416":                            {status(http.StatusRequestedRangeNotSatisfiable), nil, 3},
		"404":                            {status(http.StatusNotFound), errdef.ErrNotFound, 2},
		"403":                            {status(http.StatusForbidden), ErrUnauthorized, 2},
		"503 once":                       {status(http.StatusServiceUnavailable), nil, 3},
		"204":                            {status(http.StatusNoContent), nil, 2},
		"other bytes of the right range": {func(l *link, w http.ResponseWriter, req *http.Request) { part("bytes 100-299/300", 50, 250)(l, w, req) }, nil, 3},
		"a whole blob of another size": {func(l *link, w http.ResponseWriter, _ *http.Request) {
			_, _ = w.Write(l.data[:299])
		}, content.ErrMismatchedDigest, 2},
		"a whole blob of other bytes": {func(l *link, w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(make([]byte, 300)) }, nil, 3},
		"another ETag": {func(l *link, w http.ResponseWriter, req *http.Request) {
			w.Header().Set("ETag", `"another"`)
			part("bytes 100-299/300", 100, 300)(l, w, req)
		}, nil, 2},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLink(t, 300)
			l.answer = func(n int, w http.ResponseWriter, req *http.Request) bool {
				switch n {
				case 0:
					w.Header().Set("ETag", `"one"`)
					l.serve(&cutAt{w, 100}, req)
				case 1:
					c.second(l, w, req)
				}
				return n < 2
			}
			err := l.download(t)
			if name == "204" {
				require.ErrorContains(t, err, "answered 204 No Content")
				l.requireNone(t)
				return
			}
			require.ErrorIs(t, err, c.err)
			require.Len(t, l.requests, c.requests)
			if c.err == nil {
				l.requireWhole(t)
			} else {
				l.requireNone(t)
				require.ErrorContains(t, err, "edge/bundles/dev/drone@"+l.blob.Digest.String())
			}
		})
	}
}

func TestBytesThatAreNotTheBlobsAreNeverIt(t *testing.T) {
	t.Parallel()
	for k := 0; k < 100; k += sweeptest.Every(7) {
		l := newLink(t, 100)
		flipped := bytes.Clone(l.data)
		flipped[k] ^= 1
		l.answer = func(_ int, w http.ResponseWriter, _ *http.Request) bool {
			_, _ = w.Write(flipped)
			return true
		}
		require.ErrorIs(t, l.download(t), content.ErrMismatchedDigest)
		l.requireNone(t)
		require.Len(t, l.requests, 1)
		l.answer = nil
		require.NoError(t, l.download(t))
		l.requireWhole(t)
	}
}

func TestPiecesThatDoNotBelongTogetherAreFetchedOnceMoreAndNoMore(t *testing.T) {
	t.Parallel()
	l := newLink(t, 100)
	other := make([]byte, 100)
	l.answer = func(n int, w http.ResponseWriter, req *http.Request) bool {
		if n%2 == 0 {
			l.serve(&cutAt{w, 50}, req)
		} else {
			http.ServeContent(w, req, "", time.Time{}, bytes.NewReader(other))
		}
		return true
	}
	require.ErrorIs(t, l.download(t), content.ErrMismatchedDigest)
	require.Equal(t, []string{"", "bytes=50-99", "", "bytes=50-99"}, l.requests)
	l.requireNone(t)
}

func TestALinkThatDoesManyThingsWrong(t *testing.T) {
	t.Parallel()
	l := newLink(t, 1<<20)
	l.opts.Chunk = 32 << 10
	l.opts.Retries = 100
	cuts := 0
	l.answer = func(n int, w http.ResponseWriter, req *http.Request) bool {
		if cuts++; cuts > 40 {
			return false
		}
		switch k := 1 + mathrand.IntN(100<<10); mathrand.IntN(4) {
		case 0:
			w.WriteHeader(http.StatusBadGateway)
		case 1:
			panic(http.ErrAbortHandler)
		default:
			l.serve(&cutAt{w, k}, req)
		}
		return true
	}
	require.NoError(t, l.download(t))
	l.requireWhole(t)
	require.Equal(t, l.blob.Size, l.sent)
}

func TestASilentOrSlowRegistryIsGivenUp(t *testing.T) {
	t.Parallel()
	for name, answer := range map[string]func(w http.ResponseWriter, req *http.Request){
		"no answer": func(_ http.ResponseWriter, req *http.Request) { <-req.Context().Done() },
		"nothing behind the headers": func(w http.ResponseWriter, req *http.Request) {
			w.(*counting).ResponseWriter.(http.Flusher).Flush()
			<-req.Context().Done()
		},
		"a byte at a time": func(w http.ResponseWriter, req *http.Request) {
			for req.Context().Err() == nil {
				_, _ = w.Write([]byte("x"))
				w.(*counting).ResponseWriter.(http.Flusher).Flush()
				time.Sleep(5 * time.Millisecond)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLink(t, 100_000)
			l.opts.Window, l.opts.MinProgress, l.opts.Retries = 100*time.Millisecond, 1000, 1
			l.answer = func(_ int, w http.ResponseWriter, req *http.Request) bool { answer(w, req); return true }
			err := l.download(t)
			require.ErrorIs(t, err, ErrUnreachable)
			require.ErrorIs(t, err, errStalled)
		})
	}
}

func TestARegistrySaysWhenToComeBack(t *testing.T) {
	d := &download{opts: DownloadOptions{Wait: time.Second, MaxWait: 8 * time.Second}}
	require.Equal(t, 3*time.Second, d.pauseBefore(0, fmt.Errorf("%w", &busyError{ErrUnreachable, 3 * time.Second})))
	require.Equal(t, 8*time.Second, d.pauseBefore(0, &busyError{ErrUnreachable, time.Hour}))
	for try := range 80 {
		require.LessOrEqual(t, d.pauseBefore(try, ErrUnreachable), min(8, time.Duration(1)<<min(try, 3))*time.Second)
	}
	l := newLink(t, 10)
	l.opts.MaxWait = time.Millisecond
	l.answer = func(n int, w http.ResponseWriter, _ *http.Request) bool {
		w.Header().Set("Retry-After", "7200")
		w.WriteHeader(http.StatusTooManyRequests)
		return true
	}
	require.ErrorContains(t, l.download(t), "registry unreachable: answered 429 Too Many Requests")
	require.Len(t, l.requests, 3)
}

// failingPart has a disk that is full after some bytes, or broken.
type failingPart struct {
	part
	room *int
	err  error
}

func (f failingPart) WriteAt(p []byte, at int64) (int, error) {
	if *f.room -= len(p); *f.room < 0 {
		return 0, &fs.PathError{Op: "write", Path: "parts", Err: f.err}
	}
	return f.part.WriteAt(p, at)
}

func TestNothingIsFetchedThatThereIsNoRoomFor(t *testing.T) {
	t.Parallel()
	l := newLink(t, 300)
	l.opts.Retries = -1
	l.answer = func(n int, w http.ResponseWriter, req *http.Request) bool {
		if n == 0 {
			l.serve(&cutAt{w, 100}, req)
		}
		return n == 0
	}
	require.ErrorIs(t, l.download(t), ErrUnreachable)
	root, err := os.OpenRoot(l.dir)
	require.NoError(t, err)
	defer root.Close()
	for room, want := range map[int64]error{reserve + 199: syscall.ENOSPC, 0: syscall.ENOSPC, reserve + 200: nil} {
		d := &download{blob: l.blob, root: root, have: 100, room: func(string) (int64, bool) { return room, true }}
		require.ErrorIs(t, d.hasRoom(), want)
		d.room = func(string) (int64, bool) { return room, false }
		require.NoError(t, d.hasRoom())
	}
	short := &download{blob: l.blob, root: root, have: 100, room: func(string) (int64, bool) { return 156 << 10, true }}
	require.ErrorContains(t, short.hasRoom(), "no space left on device: needs 200 bytes and keeps 1 MiB free; only 156 KiB are free")
	room, known := RoomIn(l.dir)
	require.Equal(t, runtime.GOOS == "linux", known)
	require.Equal(t, known, room > 0)
	l.blob.Size = math.MaxInt64 / 2
	require.ErrorContains(t, l.download(t), "no space left on device: ")
	require.Len(t, l.requests, 1)
}

func TestADiskThatFailsIsNotTheLinksFault(t *testing.T) {
	t.Parallel()
	for _, broken := range []error{syscall.ENOSPC, syscall.EIO, syscall.EROFS} {
		for room := 0; room < 300; room += 50 {
			l := newLink(t, 300)
			left := room
			open := func(root *os.Root, name string) (part, error) {
				p, err := openPart(root, name)
				return failingPart{p, &left, broken}, err
			}
			err := NewLayout(l.dir).download(t.Context(), l.repo, l.blob, l.opts, open)
			require.ErrorIs(t, err, broken)
			require.NotErrorIs(t, err, ErrUnreachable)
			require.Len(t, l.requests, 1)
			require.NoError(t, l.download(t))
			l.requireWhole(t)
		}
	}
}

// wire fails to connect, or to give the rest of a body.
type wire struct {
	err    error
	broken bool // once the answer has begun
}

func (w wire) RoundTrip(req *http.Request) (*http.Response, error) {
	if !w.broken {
		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("connect", w.err)}
	}
	read := iotest.ErrReader(&net.OpError{Op: "read", Net: "tcp", Err: os.NewSyscallError("read", w.err)})
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Body: io.NopCloser(read), ContentLength: 300, Request: req}, nil
}

// brokenSource is a layout on a medium that cannot be read.
type brokenSource struct {
	Target
	err error
}

func (s brokenSource) Fetch(context.Context, ocispec.Descriptor) (io.ReadCloser, error) {
	return io.NopCloser(iotest.ErrReader(&fs.PathError{Op: "read", Path: "medium", Err: s.err})), nil
}

// Where an error comes from is known by who made it: the same number of the operating system comes from wires, media and disks.
func TestAnErrorIsThatOfWhereItWasMade(t *testing.T) {
	t.Parallel()
	for _, number := range []syscall.Errno{
		syscall.ECONNREFUSED, syscall.ECONNRESET, syscall.ETIMEDOUT, syscall.EHOSTUNREACH, syscall.ENETUNREACH, syscall.EPIPE,
		syscall.EIO, syscall.ENOSPC, syscall.EDQUOT, syscall.EROFS, syscall.EACCES, syscall.EMFILE, syscall.ENOTCONN,
	} {
		l := newLink(t, 300)
		l.opts.Retries = -1
		remote := func(w wire) Target {
			repo, err := Location{Host: "registry.example.com"}.Repository("app", Options{HTTPClient: &http.Client{Transport: w}})
			require.NoError(t, err)
			return repo
		}
		full := func(root *os.Root, name string) (part, error) {
			p, err := openPart(root, name)
			return failingPart{p, new(int), number}, err
		}
		closed := func(*os.Root, string) (part, error) {
			return nil, &fs.PathError{Op: "open", Path: "parts", Err: number}
		}
		for _, c := range []struct {
			place string
			from  Target
			open  openFunc
			disk  bool
		}{
			{"connect", remote(wire{number, false}), openPart, false},
			{"answer", remote(wire{number, true}), openPart, false},
			{"medium", brokenSource{nil, number}, openPart, false},
			{"write", l.repo, full, true},
			{"open", l.repo, closed, true},
		} {
			err := NewLayout(l.dir).download(t.Context(), c.from, l.blob, l.opts, c.open)
			what := fmt.Sprintf("%s, %s: %v", number, c.place, err)
			require.ErrorIs(t, err, number, what)
			require.Equal(t, c.disk, errors.As(err, new(*DiskError)), what)
			require.Equal(t, !c.disk, errors.Is(err, ErrUnreachable), what)
		}
	}
}

func TestDownloadsOfOneLayoutTakeTurns(t *testing.T) {
	t.Parallel()
	l := newLink(t, 300)
	begun, goOn := make(chan bool), make(chan bool)
	l.answer = func(n int, _ http.ResponseWriter, _ *http.Request) bool {
		if n == 0 {
			close(begun)
			<-goOn
		}
		return false
	}
	errs := make(chan error, 2)
	go func() { errs <- NewLayout(l.dir).Download(t.Context(), l.repo, l.blob, l.opts) }()
	<-begun
	ended, cancel := context.WithCancel(t.Context())
	go func() { errs <- NewLayout(l.dir).Download(ended, l.repo, l.blob, l.opts) }()
	cancel()
	require.ErrorIs(t, <-errs, context.Canceled, "one that waits for its turn")
	close(goOn)
	require.NoError(t, <-errs)
	l.requireWhole(t)
}

func TestADownloadIsThrottledAndSaysHowFarItIs(t *testing.T) {
	t.Parallel()
	l := newLink(t, 300)
	var throttled, have int64
	l.opts.Throttle = func(_ context.Context, n int) error {
		throttled += int64(n)
		if throttled < l.blob.Size { // and each chunk is on the disk before the next is asked for
			note, _ := os.ReadFile(filepath.Join(l.dir, path.Join(partsDir, partBase(l.blob.Digest))+syncedSuffix))
			require.Equal(t, throttled/64*64, int64(must(strconv.Atoi(cmp.Or(strings.TrimSpace(string(note)), "0")))))
		}
		return nil
	}
	l.opts.Progress = func(n int64) { have = n }
	require.NoError(t, l.download(t))
	require.Equal(t, []int64{300, 300}, []int64{throttled, have})

	l = newLink(t, 300)
	ctx, cancel := context.WithCancel(t.Context())
	l.opts.Throttle = func(ctx context.Context, _ int) error { cancel(); return ctx.Err() }
	require.ErrorIs(t, NewLayout(l.dir).Download(ctx, l.repo, l.blob, l.opts), context.Canceled)
	l.opts.Throttle = nil
	require.NoError(t, l.download(t))
	require.Contains(t, l.requests[1], "bytes=64-", "what had come is kept")
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func TestPartsThatNobodyWantsAreDropped(t *testing.T) {
	t.Parallel()
	l := newLink(t, 300)
	l.opts.Retries = -1
	l.answer = func(_ int, w http.ResponseWriter, req *http.Request) bool { l.serve(&cutAt{w, 100}, req); return true }
	require.ErrorIs(t, l.download(t), ErrUnreachable)
	store := NewLayout(l.dir)
	require.NoError(t, store.DropParts(t.Context(), l.blob.Digest))
	require.Len(t, l.parts(t), 3)
	require.NoError(t, store.DropParts(t.Context(), digest.FromString("another")))
	require.Equal(t, []string{partsLock}, l.parts(t))
}

func TestADownloadFromALayoutIsACopy(t *testing.T) {
	t.Parallel()
	source, err := NewLayout(t.TempDir()).Repository("a/b")
	require.NoError(t, err)
	blob := ocispec.Descriptor{Digest: digest.FromString("content"), Size: 7}
	require.NoError(t, source.Push(t.Context(), blob, strings.NewReader("content")))
	l := &link{dir: filepath.Join(t.TempDir(), "store"), repo: source, blob: blob}
	require.NoError(t, l.download(t))
	require.NoError(t, l.download(t))
	require.FileExists(t, filepath.Join(l.dir, blobPath(blob.Digest)))
	l.blob.Digest = "sha256:../../etc/passwd"
	require.ErrorIs(t, l.download(t), digest.ErrDigestInvalidLength)
}

func TestALayoutMayHaveDownloadsApart(t *testing.T) {
	t.Parallel()
	l := newLink(t, 300)
	l.opts.Retries = -1
	l.answer = func(_ int, w http.ResponseWriter, req *http.Request) bool { l.serve(&cutAt{w, 100}, req); return true }
	store := NewLayout(l.dir)
	apart := store.Apart("carried")
	require.ErrorIs(t, apart.Download(t.Context(), l.repo, l.blob, l.opts), ErrUnreachable)
	require.NoError(t, store.DropParts(t.Context()), "it has none of them")
	l.answer = nil
	require.NoError(t, apart.Download(t.Context(), l.repo, l.blob, l.opts))
	require.Contains(t, l.requests[1], "bytes=")
	require.FileExists(t, filepath.Join(l.dir, blobPath(l.blob.Digest)))
	require.NoError(t, apart.DropParts(t.Context()))
}
