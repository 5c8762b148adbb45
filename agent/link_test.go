package agent

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"flag"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/oci"
	"github.com/wherry-dev/wherry/reconcilers/directory"
)

// everyByte has the small bundle's link misbehave at every byte, and not at one of so many.
var everyByte = flag.Bool("every-byte", false, "cut and spoil the link at every byte of a small update")

// badLink is a link between agent and registry that does one thing wrong, at one byte of what the registry sends.
type badLink struct {
	t      testing.TB
	to     string // the registry
	listen net.Listener
	near   http.Transport // the agent's

	// patience is how long the agent waits for a byte, in nanoseconds.
	patience atomic.Int64

	mu    sync.Mutex
	at    int // bytes until the deed
	do    deed
	done  bool
	sum   int // bytes that the agent got since
	conns []net.Conn
}

// deed changes the bytes of a connection from one position on, and may end the connection.
type deed func(rest []byte) (sent []byte, ends bool)

func cut([]byte) ([]byte, bool) { return nil, true }

func flip(rest []byte) ([]byte, bool) {
	spoiled := bytes.Clone(rest)
	spoiled[0] ^= 1 << rand.IntN(8)
	return spoiled, false
}

func repeat(rest []byte) ([]byte, bool) { return append(bytes.Clone(rest), rest...), false }

// swallow has the connection stay, and nothing come any more.
func swallow([]byte) ([]byte, bool) { return nil, false }

// link puts a link between the site's agent and its registry.
func (s *site) link() *badLink {
	s.t.Helper()
	listen, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(s.t, err)
	l := &badLink{t: s.t, to: s.registry.Listener.Addr().String(), listen: listen, done: true}
	s.t.Cleanup(func() { listen.Close(); l.hangUp() })
	go l.serve()
	l.patience.Store(int64(ample))
	s.t.Cleanup(l.near.CloseIdleConnections)
	store, err := oci.Location{Host: listen.Addr().String(), Prefix: "edge"}.Open(oci.Options{HTTPClient: &http.Client{Transport: l}})
	require.NoError(s.t, err)
	s.linked, err = store.Repository(s.stream.Repository())
	require.NoError(s.t, err)
	s.opts.TrustSource = nil
	return l
}

// RoundTrip sends a request of the agent, which gives up once no byte has come for the link's patience.
func (l *badLink) RoundTrip(r *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithCancel(r.Context())
	timer := time.AfterFunc(time.Duration(l.patience.Load()), cancel)
	res, err := l.near.RoundTrip(r.WithContext(ctx))
	if err != nil {
		timer.Stop()
		err = timeoutOf(ctx, err)
		cancel()
		return nil, err
	}
	res.Body = &patientBody{res.Body, ctx, cancel, timer, l}
	return res, nil
}

type patientBody struct {
	io.ReadCloser
	ctx    context.Context
	cancel func()
	timer  *time.Timer
	link   *badLink
}

func (b *patientBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if n > 0 {
		b.timer.Reset(time.Duration(b.link.patience.Load()))
	}
	if err != nil && !errors.Is(err, io.EOF) {
		err = timeoutOf(b.ctx, err)
	}
	return n, err
}

func (b *patientBody) Close() error {
	b.timer.Stop()
	defer b.cancel()
	return b.ReadCloser.Close()
}

// timeoutOf returns the error of a request that was given up as what it is to the agent.
func timeoutOf(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return os.ErrDeadlineExceeded
	}
	return err
}

func (l *badLink) serve() {
	for {
		conn, err := l.listen.Accept()
		if err != nil {
			return
		}
		far, err := net.Dial("tcp", l.to)
		if err != nil {
			conn.Close()
			continue
		}
		l.mu.Lock()
		l.conns = append(l.conns, conn, far)
		l.mu.Unlock()
		go func() { _, _ = io.Copy(far, conn); far.Close() }()
		go func() { l.carry(conn, far); conn.Close(); far.Close() }()
	}
}

// carry brings the agent what the registry sends.
func (l *badLink) carry(near, far net.Conn) {
	buffer, silent := make([]byte, 4<<10), false
	for {
		n, err := far.Read(buffer)
		sent, ends := l.spoil(buffer[:n])
		if !silent {
			if _, err := near.Write(sent); err != nil {
				return
			}
			l.mu.Lock()
			l.sum += len(sent)
			l.mu.Unlock()
		}
		silent = silent || len(sent) < n
		if err != nil || ends {
			return
		}
	}
}

func (l *badLink) spoil(p []byte) (sent []byte, ends bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.done || l.at >= len(p) {
		l.at -= len(p)
		return p, false
	}
	l.done = true
	rest, ends := l.do(p[l.at:])
	return append(bytes.Clone(p[:l.at]), rest...), ends
}

// arm has the link do it at byte k from now.
func (l *badLink) arm(k int, do deed) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.at, l.do, l.done, l.sum = k, do, false, 0
}

// hit reports whether it has been done.
func (l *badLink) hit() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.done
}

// brought is how many bytes the agent got since.
func (l *badLink) brought() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.sum
}

func (l *badLink) hangUp() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range l.conns {
		c.Close()
	}
	l.conns = nil
}

// badDay is an agent that takes one release after the other over a bad link.
type badDay struct {
	*site
	link  *badLink
	agent *Agent
	n     int64
	// window is how long a download waits for what does not come.
	window time.Duration
}

// How long the agent waits for what does not come: no longer than brief where a deed may keep it waiting for ever, and
// for as long as a busy machine may need for all the rest.
const brief, ample = 500 * time.Millisecond, 20 * time.Second

// waits sets how long the agent does.
func (d *badDay) waits(long time.Duration) {
	d.link.patience.Store(int64(long))
	d.window = long
}

// misbehave has the link do it at byte k from now.
func (d *badDay) misbehave(k int, name string, do deed) {
	if name != "cut" { // whose end is seen
		d.waits(brief)
	}
	d.link.arm(k, do)
}

func newBadDay(t *testing.T, chunk int64) *badDay {
	s := newSite(t)
	if dir, err := os.MkdirTemp("/dev/shm", "wherry-"); err == nil { // nothing here is about the disk
		t.Cleanup(func() { os.RemoveAll(dir) })
		s.dir, s.host = filepath.Join(dir, "state"), filepath.Join(dir, "host")
		s.opts.Engines.Reconcilers["directory"] = directory.New(s.host, directory.Options{})
	}
	d := &badDay{site: s, link: s.link(), n: 1}
	s.opts.Content.Download.Chunk, s.opts.Content.Download.MinProgress, s.opts.Content.Download.Retries = chunk, 1, -1 // one pass, one try
	state, err := OpenState(s.dir, s.opts.Now)
	require.NoError(t, err)
	t.Cleanup(func() { state.Close() })
	d.agent = s.agentOn(state)
	download := d.agent.content.DownloadBlob
	d.agent.content.DownloadBlob = func(ctx context.Context, from oci.Target, blob ocispec.Descriptor, opts oci.DownloadOptions) error {
		opts.Window = d.window
		return download(ctx, from, blob, opts)
	}
	d.waits(ample)
	d.release("a: 0")
	require.Equal(t, bundle.Compliant, d.agent.Once(context.Background(), 0).Status.State)
	return d
}

func (d *badDay) release(content string) {
	d.n++
	d.publish(d.draft(d.n, map[string]string{"shop-main/config.yaml": content}))
}

// update makes the agent fetch a release over the link, and checks after each pass that the host's content is
// one of the two. It returns the number of passes.
func (d *badDay) update(before, after string) (passes int) {
	d.t.Helper()
	path := d.host + "/shop-main/config.yaml"
	for deadline := time.Now().Add(2 * time.Minute); ; passes++ {
		r := d.agent.Once(context.Background(), 0)
		if d.link.hit() {
			d.waits(ample)
		}
		data, err := os.ReadFile(path)
		require.NoError(d.t, err)
		if string(data) == after {
			require.EqualValues(d.t, d.n, r.Status.Release.Running.Sequence)
			require.Equal(d.t, bundle.Compliant, r.Status.State, r.Error)
			return passes + 1
		}
		require.Equal(d.t, before, string(data))
		require.Contains(d.t, []Verdict{Unreachable, Refused}, r.Verdict, r.Error)
		require.Less(d.t, time.Now(), deadline, "%s", r.Error)
	}
}

// Wherever the link fails in a small update, the applied content is signed content, and the next pass or the one
// after it completes the update.
func TestALinkThatFailsAtAnyByteOfASmallUpdate(t *testing.T) {
	for name, do := range map[string]deed{"cut": cut, "flip": flip, "repeat": repeat} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newBadDay(t, 64)
			before, step, k, updates := "a: 0", 101, rand.IntN(101), 0
			if *everyByte {
				step, k = 1, 0
			}
			for ; ; k += step {
				after := "a: " + strconv.Itoa(k+1)
				d.release(after)
				d.misbehave(k, name, do)
				passes := d.update(before, after)
				if !d.link.hit() {
					break // it was over before
				}
				if name == "cut" {
					require.LessOrEqual(t, passes, 2, "cut at byte %d", k)
				}
				before, updates = after, updates+1
			}
			require.Greater(t, updates, 1500/step, "an update has more bytes than that")
		})
	}
}

// A large layer is cut, spoiled, stalled anywhere: no more than a chunk of it is transferred again, but for one
// that was spoiled.
func TestALinkThatFailsInALargeUpdate(t *testing.T) {
	const chunk, size = 16 << 10, 200 << 10
	for name, do := range map[string]deed{"cut": cut, "stall": swallow, "flip": flip, "repeat": repeat} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newBadDay(t, chunk)
			before := "a: 0"
			for range 4 {
				random := rand.NewChaCha8([32]byte{byte(d.n), name[0]})
				data := make([]byte, size/2)
				_, _ = random.Read(data)
				after := hex.EncodeToString(data)
				d.release(after)
				layer := d.serveParts()
				d.misbehave(4<<10+rand.IntN(size/2-4<<10), name, do)
				d.update(before, after)
				require.True(t, d.link.hit())
				if name == "cut" || name == "stall" {
					require.LessOrEqual(t, d.link.brought(), layer+chunk+documents, "of a layer of %d bytes", layer)
				}
				before = after
			}
		})
	}
}

// documents is more than manifests and signatures have, with headers, in two or three passes.
const documents = 8 << 10

// serveParts has the registry serve the newest layer in parts, as most do, and returns its size.
func (d *badDay) serveParts() int {
	layer := d.layer(d.resolve(bundle.LatestTag))
	data := d.blobBytes(layer)
	hook := func(w http.ResponseWriter, r *http.Request) bool {
		if !strings.HasSuffix(r.URL.Path, layer.Digest.String()) {
			return false
		}
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(data))
		return true
	}
	d.registry.hook.Store(&hook)
	return len(data)
}

// A registry that has something else half-way, under the same digest, is found out; when it has the right thing
// again, so has the agent.
func TestContentThatChangesHalfWay(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.publish(s.draft(1, map[string]string{"shop-main/config.yaml": "a: 1"}))
	s.once()
	before, _ := trees()
	d := s.publish(s.draft(2, before))
	layer := s.layer(d)
	data := s.blobBytes(layer)
	other := bytes.Repeat([]byte("x"), len(data))
	var requests int
	var wrong bool
	hook := func(w http.ResponseWriter, r *http.Request) bool {
		if !strings.HasSuffix(r.URL.Path, layer.Digest.String()) {
			return false
		}
		requests++
		content := data
		if wrong {
			content = other
		}
		if requests == 1 {
			w.Header().Set("Content-Length", strconv.Itoa(len(data)))
			_, _ = w.Write(content[:len(data)/2])
			wrong = true
			panic(http.ErrAbortHandler)
		}
		w.Header().Set("ETag", `"`+digest.FromBytes(data).Encoded()+`"`) // it lies
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(content))
		return true
	}
	s.registry.hook.Store(&hook)

	r := s.once()
	require.Equal(t, Refused, r.Verdict, r.Error)
	require.Equal(t, string(bundle.DigestMismatch), r.Status.Reason)
	requireFile(t, s.host, "shop-main/config.yaml", "a: 1")
	wrong = false
	r = s.once()
	require.Equal(t, bundle.Compliant, r.Status.State, r.Error)
	requireFile(t, s.host, "w3-x/f", before["w3-x/f"])
}
