//go:build e2e

package e2e

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	crand "crypto/rand"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/agent"
	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/hub"
	"github.com/wherry-dev/wherry/hub/admission"
	"github.com/wherry-dev/wherry/hub/store"
)

const (
	// SoakEnv says how long the soak lasts, such as 1h.
	SoakEnv     = "WHERRY_E2E_SOAK"
	soakDefault = 2 * time.Minute
	// soakUpdate is the time between two releases, soakSample between two looks at the process.
	soakUpdate, soakSample = 5 * time.Second, 15 * time.Second
	// soakLoss is the share of requests to registry and hub that are lost.
	soakLoss = 0.01
	// soakOutage is how long registry and hub are away, once in soakCycle releases.
	soakOutage, soakCycle = 20 * time.Second, 24
)

// BenchmarkSoak has an agent follow releases of 400 objects on an API server for as long as it is told, with what a
// bad year has: requests that are lost, a registry and a hub that are away, releases that are refused, that fail and
// that are given up. It prints the memory that the process has over time.
func BenchmarkSoak(b *testing.B) {
	f := newSoak(b)
	a := f.follow("--interval", "2s", "--hub", f.hub, "--hub-key", f.path("hub.pub"), "--listen", f.listen)
	f.register(a)
	info := func() sample { return f.look(a.cmd.Process.Pid) }
	fmt.Printf("%8s %8s %12s %12s %12s %10s %12s %6s %8s\n", "after", "releases", "resident", "anonymous", "live", "goroutines", "state", "files", "queued")
	begun, printed := time.Now(), time.Duration(0)
	var samples []sample
	for due := soakSample; due <= f.lasting; due += soakSample {
		for time.Since(begun) < due {
			f.release()
			time.Sleep(soakUpdate)
		}
		s := info()
		samples = append(samples, s)
		if due-printed >= f.lasting/12 || due == f.lasting {
			printed = due
			fmt.Printf("%8s %8d %12d %12d %12d %10d %12d %6d %8d\n", due, f.sequence, s.rss, s.anonymous, s.live, s.goroutines, s.state, s.files, f.queued(a))
		}
	}
	f.calm(a)
	quarter := len(samples) / 4
	figure("soak-seconds", int64(f.lasting/time.Second), "count")
	figure("soak-releases", f.sequence, "count")
	for _, part := range []struct {
		name    string
		samples []sample
	}{{"second", samples[quarter : 2*quarter]}, {"last", samples[3*quarter:]}} {
		figure("soak-rss-"+part.name+"-quarter-bytes", medianOf(part.samples, func(s sample) int64 { return s.rss }), "bytes")
		figure("soak-anonymous-"+part.name+"-quarter-bytes", medianOf(part.samples, func(s sample) int64 { return s.anonymous }), "bytes")
		figure("soak-live-"+part.name+"-quarter-bytes", medianOf(part.samples, func(s sample) int64 { return s.live }), "bytes")
	}
}

// soak is an agentBench whose registry and hub are not always there.
type soak struct {
	*agentBench
	lasting time.Duration
	hub     string // URL
	listen  string // where the agent serves its metrics
	store   *hub.Hub
	away    atomic.Bool
	// stranger is a key that nobody trusts.
	stranger *ecdsa.PrivateKey
}

func newSoak(b *testing.B) *soak {
	f := &soak{agentBench: newAgentBench(b), lasting: soakDefault}
	if text := os.Getenv(SoakEnv); text != "" {
		var err error
		f.lasting, err = time.ParseDuration(text)
		require.NoError(b, err, SoakEnv)
	}
	f.registry = f.flaky(f.handler).Listener.Addr().String()
	var err error
	f.stranger, err = ecdsa.GenerateKey(elliptic.P256(), crand.Reader)
	require.NoError(b, err)
	// One agent reports in minutes what a cluster has to say in months.
	f.store, err = hub.Open(f.path("hub"), hub.Options{Admission: admission.Options{Quota: admission.Quota{Reports: 1 << 20, Bytes: 1 << 30}}})
	require.NoError(b, err)
	b.Cleanup(func() { require.NoError(b, f.store.Close()) })
	key, err := bundle.MarshalPublicKey(f.store.PublicKey())
	require.NoError(b, err)
	require.NoError(b, os.WriteFile(f.path("hub.pub"), key, 0o600))
	f.hub = f.flaky(f.store.Handler()).URL
	free, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(b, err)
	require.NoError(b, free.Close())
	f.listen = free.Addr().String()
	f.publish(f.files())
	return f
}

// flaky serves what handler serves, unless it is away or the request is lost.
func (f *soak) flaky(handler http.Handler) *httptest.Server {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if f.away.Load() || rand.Float64() < soakLoss {
			panic(http.ErrAbortHandler)
		}
		handler.ServeHTTP(w, r)
	}))
	f.b.Cleanup(server.Close)
	f.b.Cleanup(server.CloseClientConnections)
	return server
}

func (f *soak) register(a *follower) {
	f.b.Helper()
	s, err := a.Status(f.b.Context())
	require.NoError(f.b, err)
	key, err := hub.ParseReportKey([]byte(s.ReportKey))
	require.NoError(f.b, err)
	_, err = f.store.AddCluster(f.b.Context(), store.Cluster{
		Identity: store.Identity{UID: s.Cluster.UID, Name: s.Cluster.Name, Platform: s.Platform, Type: s.Cluster.Type, Environment: s.Cluster.Environment},
		Key:      key,
	})
	require.NoError(f.b, err)
}

// release publishes the next release: mostly one changed value of 400, sometimes a manifest that the API server refuses, or
// a release that a stranger has signed. Once in a cycle everything is unreachable for a while.
func (f *soak) release() {
	f.value++
	files := f.files()
	switch f.sequence % soakCycle {
	case 7:
		files["bench100-main/config.yaml"] = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: NOT_A_NAME\n  namespace: default\n"
	case 13:
		key := f.key
		f.key = f.stranger
		defer func() { f.key = key }()
	case 19:
		f.away.Store(true)
		time.AfterFunc(soakOutage, func() { f.away.Store(false) })
	case 21:
		for name := range files {
			if filepath.Dir(name) > "bench150" {
				delete(files, name)
			}
		}
	}
	f.publish(files)
}

// calm has the agent end with all as it should be, and nothing left to report.
func (f *soak) calm(a *follower) {
	f.b.Helper()
	f.away.Store(false)
	f.publish(f.files())
	var s agent.Status
	require.Eventually(f.b, func() bool {
		var err error
		s, err = a.Status(f.b.Context())
		return err == nil && s.State == bundle.Compliant && s.Release.Running.Digest == f.latest.Digest && s.Queue.Length == 0
	}, 2*time.Minute, time.Second, "%+v %s", s.State, a.log)
}

func (f *soak) queued(a *follower) int64 {
	f.b.Helper()
	s, err := a.Status(f.b.Context())
	require.NoError(f.b, err)
	return int64(s.Queue.Length)
}

// sample is what a process has at a moment. Anonymous is the part of its resident memory that no file lies behind, such
// as the program's own; live is what the last garbage collection has left.
type sample struct{ rss, anonymous, live, goroutines, state, files int64 }

func (f *soak) look(pid int) (s sample) {
	f.b.Helper()
	s.anonymous = f.meter("agent", nil, pid).memory("RssAnon")
	resp, err := http.Get("http://" + f.listen + "/metrics")
	require.NoError(f.b, err)
	defer resp.Body.Close()
	page, err := io.ReadAll(resp.Body)
	require.NoError(f.b, err)
	for name, value := range map[string]*int64{"process_resident_memory_bytes": &s.rss, "go_gc_heap_live_bytes": &s.live, "go_goroutines": &s.goroutines} {
		_, text, found := strings.Cut(string(page), "\n"+name+" ")
		require.True(f.b, found, name)
		text, _, _ = strings.Cut(text, "\n")
		*value, err = strconv.ParseInt(text, 10, 64)
		require.NoError(f.b, err, name)
	}
	open, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	require.NoError(f.b, err)
	s.files = int64(len(open))
	_ = filepath.WalkDir(f.path("state"), func(_ string, d os.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			if info, err := d.Info(); err == nil { // else it is gone by now
				s.state += info.Size()
			}
		}
		return nil
	})
	return s
}

func medianOf(samples []sample, of func(sample) int64) int64 {
	var all []int64
	for _, s := range samples {
		all = append(all, of(s))
	}
	slices.Sort(all)
	return all[len(all)/2]
}
