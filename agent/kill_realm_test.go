package agent

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"crypto"
	"crypto/ed25519"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/secure-systems-lab/go-securesystemslib/dsse"
	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/agent/agenttest"
	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/hubapi"
	"github.com/wherry-dev/wherry/hub"
	"github.com/wherry-dev/wherry/hub/store"
)

// realm is a publisher, a registry, a hub and a cluster, with an agent that is killed again and again.
type realm struct {
	*site
	random            *rand.Rand
	seed              uint64
	uid               string // of the agent
	disk              disk   // of the state, where power is cut; else nil
	cluster           string // the engine's, a folder for each assignment
	hub               *hub.Hub
	server            *httptest.Server
	pinned            crypto.PublicKey
	version1, trusted agenttest.Trust // the first and the newest document
	taken             bool            // the agent is to have version 1 installed
	tally             *tally
	history           []string // what happened, for people
	oracle

	files    map[string]string // of the newest release
	newest   draft
	latest   ocispec.Descriptor  // its manifest
	before   *ocispec.Descriptor // that of the release before
	sequence int64
	lives    int // agents so far

	mu       sync.Mutex
	hubAway  bool
	portal   bool // somebody else answers in the hub's place
	child    *exec.Cmd
	killHub  string // the moment at the hub at which the agent is killed
	accepted int    // reports that the hub has stored for the first time
	log      bytes.Buffer
}

// disk is a file system of its own, that may lose its power.
type disk interface {
	mounted() string
	again() // off and on
}

func newRealm(t *testing.T, seed uint64, d disk) *realm {
	w := &realm{site: newSite(t), random: rand.New(rand.NewPCG(seed, 2)), seed: seed, tally: &tally{died: map[string]int{}}, disk: d}
	w.cluster = filepath.Join(t.TempDir(), "cluster")
	require.NoError(t, os.MkdirAll(w.cluster, 0o700))
	var err error
	w.hub, err = hub.Open(t.TempDir(), hub.Options{})
	require.NoError(t, err)
	w.server = httptest.NewServer(http.HandlerFunc(w.atHub))
	t.Cleanup(func() { w.server.Close(); require.NoError(t, w.hub.Close()) })
	w.pinned, w.version1 = w.key.Public(), agenttest.NewTrust(w.stream.Platform, time.Now(), agenttest.NewKey(), w.key)
	w.trusted = w.version1
	w.anew()
	return w
}

// anew begins with an agent, a cluster and a history without anything, at the hub as well.
func (w *realm) anew() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lives++
	w.uid, w.dir = fmt.Sprint("plant-", w.lives), filepath.Join(w.t.TempDir(), "state")
	if w.disk != nil {
		require.NoError(w.t, os.RemoveAll(filepath.Join(w.disk.mounted(), fmt.Sprint(w.lives-1))))
		w.dir = filepath.Join(w.disk.mounted(), fmt.Sprint(w.lives))
	}
	require.NoError(w.t, os.RemoveAll(w.cluster))
	require.NoError(w.t, os.MkdirAll(w.cluster, 0o700))
	w.tally.reports, w.accepted = w.tally.reports+w.accepted, 0
	w.before = nil // a new agent would take it
	w.oracle = oracle{valid: map[digest.Digest]released{}, contents: map[digest.Digest]map[string]string{}, ids: map[int64]digest.Digest{}, tampered: map[string]bool{}}
}

// atHub is the real hub, behind a link that may be away, and that sees when the agent is to be killed.
func (w *realm) atHub(rw http.ResponseWriter, r *http.Request) {
	w.mu.Lock()
	away, portal := w.hubAway, w.portal
	w.mu.Unlock()
	switch {
	case portal:
		_, _ = rw.Write([]byte("{}")) // 200, and nobody has signed anything
		return
	case away:
		panic(http.ErrAbortHandler)
	}
	if w.killAt("hub: before it stores") {
		panic(http.ErrAbortHandler)
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		panic(http.ErrAbortHandler) // the agent was killed in the middle of it
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	sent, err := agenttest.Body(&http.Request{Header: r.Header, Body: io.NopCloser(bytes.NewReader(body))})
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	answer := httptest.NewRecorder()
	w.hub.Handler().ServeHTTP(answer, r.WithContext(context.WithoutCancel(r.Context()))) // even if the agent is killed meanwhile
	w.witness(r.URL.Path, sent, answer.Body.Bytes())
	if w.killAt("hub: stored, not answered") {
		panic(http.ErrAbortHandler)
	}
	rw.WriteHeader(answer.Code)
	_, _ = rw.Write(answer.Body.Bytes())
}

// witness notes what the agent that is looked at has sent, and what the hub has said. A request of one before may still
// be on its way.
func (w *realm) witness(path string, body, answer []byte) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !strings.Contains(path, "/"+w.uid+"/") {
		return
	}
	var request struct{ Reports []dsse.Envelope }
	var receipt hubapi.Receipt
	err := errors.Join(json.Unmarshal(body, &request), json.Unmarshal(answer, &receipt))
	reports := map[int64]digest.Digest{}
	for _, e := range request.Reports {
		payload, bad := e.DecodeB64Payload()
		r, worse := bundle.ParseReport(payload)
		err = errors.Join(err, bad, worse)
		reports[r.Agent.Seq] = bundle.ReportID(payload)
	}
	var ack bundle.Ack
	if err == nil && len(receipt.Ack) > 0 {
		var body []byte
		if body, _, err = bundle.OpenEnvelope(bundle.PayloadTypeAck, receipt.Ack, w.hub.PublicKey()); err == nil {
			ack, err = bundle.ParseAck(body)
		}
		if err == nil && ack.Cluster != w.uid {
			err = fmt.Errorf("acknowledgement for %q", ack.Cluster)
		}
	}
	if err != nil {
		w.t.Errorf("at the hub: %v\n%s", err, answer)
		return
	}
	w.accepted += receipt.Accepted
	w.sent(w.t, reports, ack.Reports)
}

func (w *realm) killAt(moment string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.killHub != moment || w.child == nil {
		return false
	}
	w.killHub = ""
	w.kill(w.child)
	return true
}

// kill ends the agent, and with it the power of its disk, where it has one of its own.
func (w *realm) kill(child *exec.Cmd) {
	if w.disk != nil {
		_ = powerOff(w.disk.mounted())
	}
	_ = child.Process.Kill()
}

// play has the event happen, starts the agent, and sees to it that it is killed.
func (w *realm) play(k kill) {
	w.note("%s, killed at %q, time %d", k.event, k.point, k.nth)
	o := w.happen(k.event)
	w.tally.starts++
	died := w.start(o, k)
	if died {
		w.tally.died[k.point]++
		if k.point == powerCut {
			w.spoilUnsynced()
		}
	}
	w.registry.away.Store(false)
	w.mu.Lock()
	w.hubAway, w.portal = false, false
	w.mu.Unlock()
	w.judge(w)
}

// enroll has the hub know the agent.
func (w *realm) enroll(st Status) {
	keys, err := bundle.ParsePublicKeys([]byte(st.ReportKey))
	require.NoError(w.t, err)
	_, err = w.hub.ReplaceCluster(context.Background(), store.Cluster{
		Identity: store.Identity{UID: w.uid, Name: w.uid, Platform: "default", Type: "drone", Environment: "dev"},
		Key:      keys[0].(ed25519.PublicKey),
	})
	require.NoError(w.t, err)
}

// explain says after a failure how it came, and how it comes again.
func (w *realm) explain(t *testing.T, seed uint64) {
	if t.Failed() {
		t.Logf("go test ./agent -run %s -args -seed %d -kills %d\nthe last of %d events:\n%s\nthe agent's last words:\n%s", t.Name(), seed, *kills, len(w.history), strings.Join(w.history[max(0, len(w.history)-12):], "\n"), w.log.String())
	}
}

func (w *realm) note(format string, args ...any) {
	w.history = append(w.history, fmt.Sprintf(format, args...))
}

// start starts an agent and returns when it has ended, and whether it was killed where it was to be.
func (w *realm) start(o order, k kill) (killed bool) {
	o.UID, o.Registry, o.State, o.Cluster, o.Hub = w.uid, w.location().String(), w.dir, w.cluster, w.server.URL
	o.Keys, o.HubKey, o.Seed = inPEM(w.t, w.pinned), inPEM(w.t, w.hub.PublicKey()), w.random.Uint64()
	o.Point, o.Hit, o.Passes = k.point, k.nth, cmp.Or(o.Passes, 2)
	if w.disk != nil {
		o.Disk = w.disk.mounted()
	}
	switch k.point {
	case atRandom:
		o.Passes = 0
	case tornPage, powerCut:
		o.Hit = 1 + w.random.IntN(12*k.nth)
	}
	text, err := json.Marshal(o)
	require.NoError(w.t, err)
	self, err := os.Executable()
	require.NoError(w.t, err)
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, self)
	cmd.Env = append(os.Environ(), childVariable+"="+string(text))
	w.log.Reset()
	cmd.Stderr = &w.log
	out, err := cmd.StdoutPipe()
	require.NoError(w.t, err)
	w.mu.Lock()
	require.NoError(w.t, cmd.Start())
	w.child, w.killHub = cmd, k.point
	w.mu.Unlock()
	_, _ = bufio.NewReader(out).ReadString('\n')
	if k.point == atRandom {
		time.Sleep(time.Duration(w.random.IntN(80)) * time.Millisecond)
		w.kill(cmd)
	}
	err = cmd.Wait()
	w.mu.Lock()
	w.child = nil
	w.mu.Unlock()
	require.NoError(w.t, ctx.Err(), "the agent hangs")
	if bytes.Contains(w.log.Bytes(), []byte("a step was interrupted")) {
		w.tally.interrupted++
	}
	if err == nil {
		return false
	}
	if w.disk != nil {
		w.disk.again()
	} else {
		require.Equal(w.t, "signal: killed", err.Error(), "the agent failed by itself")
	}
	return true
}

func inPEM(t testing.TB, key crypto.PublicKey) []byte {
	t.Helper()
	der, err := x509.MarshalPKIXPublicKey(key)
	require.NoError(t, err)
	return pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})
}
