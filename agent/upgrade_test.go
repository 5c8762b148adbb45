package agent

import (
	"bytes"
	"context"
	"crypto"
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/secure-systems-lab/go-securesystemslib/dsse"
	"github.com/stretchr/testify/require"
	"go.etcd.io/bbolt"

	"github.com/wherry-dev/wherry/agent/agenttest"
	"github.com/wherry-dev/wherry/agent/state"
	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/reconcilers"
)

// counted is an engine that records the calls that change something.
type counted struct {
	reconcilers.Reconciler
	sync.Mutex
	applied []string
	removed []string
}

func (c *counted) Apply(ctx context.Context, a reconcilers.Assignment) reconcilers.Result {
	c.Lock()
	c.applied = append(c.applied, a.Name)
	c.Unlock()
	return c.Reconciler.Apply(ctx, a)
}

func (c *counted) Remove(ctx context.Context, a reconcilers.Assignment) reconcilers.Result {
	c.Lock()
	c.removed = append(c.removed, a.Name)
	c.Unlock()
	return c.Reconciler.Remove(ctx, a)
}

// begin forgets the recorded calls.
func (c *counted) begin() { c.applied, c.removed = nil, nil }

func (s *site) counted() *counted {
	c := &counted{Reconciler: s.opts.Engines.Reconcilers["directory"]}
	s.opts.Engines.Reconcilers["directory"] = c
	return c
}

// What an agent of each format of the state file has left is gone on with: nothing is lost, forgotten or done
// again for no reason.
func TestTheStateOfEveryFormatIsGoneOnWith(t *testing.T) {
	if *fixtureName != "" {
		makeStateFixture(t, *fixtureName, *fixtureAgent)
	}
	fixtures := readStateFixtures(t)
	require.NotEmpty(t, fixtures)
	for _, f := range fixtures {
		t.Run(f.name, func(t *testing.T) {
			t.Run("at rest", func(t *testing.T) { t.Parallel(); restedStateGoesOn(t, f) })
			t.Run("killed", func(t *testing.T) { t.Parallel(); killedStateGoesOn(t, f) })
		})
	}
}

func restedStateGoesOn(t *testing.T, f stateFixture) {
	s := f.site(t, "rest")
	engine := s.counted()

	// It is read without an agent.
	state, err := ReadState(s.dir)
	require.NoError(t, err)
	st, err := state.Status(s.now)
	require.NoError(t, err)
	queued, err := state.outbox.Reports()
	require.NoError(t, err)
	require.NoError(t, state.Close())
	f.requireRest(t, st)
	require.Len(t, queued, st.Queue.Length)

	// Where nothing can be reached, nothing is done, but for noting whose the folders are.
	s.registry.away.Store(true)
	r := s.once()
	require.Equal(t, Unreachable, r.Verdict, r.Error)
	require.Equal(t, st.Release.Running.Digest, r.Status.Release.Running.Digest)
	require.FileExists(t, filepath.Join(s.host, ".wherry", "w03-main.owned"))
	require.Empty(t, engine.applied)
	require.Empty(t, engine.removed)

	// The order was kept.
	s.registry.away.Store(false)
	s.publish(s.fixtureDraft(1))
	s.requireRefused(bundle.OlderRelease, "which this agent has accepted")
	require.Empty(t, engine.applied)

	// A newer release has what differs applied, and no more.
	next := s.fixtureDraft(2)
	next.Release.Sequence = 5
	next.Files["w03-main/config.yaml"] = "release: 5"
	delete(next.Files, fixtureMissing+"/config.yaml")
	delete(next.Files, fixtureGone+"/config.yaml")
	s.publish(next)
	s.requireTaken()
	require.Equal(t, []string{"w03-main"}, engine.applied)
	require.Equal(t, []string{fixtureGone}, engine.removed)
	requireFile(t, s.host, "w03-main/config.yaml", "release: 5")
	requireFile(t, s.host, "w04-main/config.yaml", "release: 2")
	require.NoDirExists(t, filepath.Join(s.host, fixtureGone))
	engine.begin()
	require.Equal(t, Idle, s.once().Verdict)
	require.Empty(t, engine.applied)

	s.requireAcknowledged(t, queued)
}

// requireRest compares how an agent at rest stood, with its last three passes.
func (f stateFixture) requireRest(t *testing.T, st Status) {
	t.Helper()
	require.Equal(t, "plant-7", st.Cluster.UID)
	require.Equal(t, "dev", st.Cluster.Environment)
	require.EqualValues(t, 2, st.Release.Running.Sequence)
	require.Equal(t, bundle.Rejected, st.State)
	require.Equal(t, bundle.Unsigned, st.Release.Refused.Reason)
	require.Len(t, st.Items, fixtureWorkloads+1)
	for _, item := range st.Items {
		want := bundle.Compliant
		if item.Assignment == fixtureMissing {
			want = bundle.Failed
		}
		require.Equal(t, want, item.State, item.Assignment)
		require.WithinDuration(t, f.At, item.Since, time.Minute)
	}
	require.GreaterOrEqual(t, st.Queue.Length, 3)
	require.EqualValues(t, 2, st.Trust.Version)
	require.WithinDuration(t, f.At, *st.LastContact, time.Minute)
}

// requireAcknowledged has the hub acknowledge reports, which the agent then no longer has.
func (s *site) requireAcknowledged(t *testing.T, envelopes [][]byte) {
	t.Helper()
	var ids []digest.Digest
	for _, e := range envelopes {
		ids = append(ids, reportID(t, e))
	}
	hub := newTestHub(t)
	s.opts.Hub.Key = hub.key.Public()
	s.agent(func(a *Agent) {
		result, err := a.Acknowledge([][]byte{hub.ack(hub.key, "plant-7", ids)})
		require.NoError(t, err)
		require.Equal(t, len(ids), result.Deleted)
		left, err := a.state.outbox.Reports()
		require.NoError(t, err)
		require.Len(t, left, result.Left)
		for _, e := range left {
			require.NotContains(t, ids, reportID(t, e))
		}
	})
}

func reportID(t testing.TB, envelope []byte) digest.Digest {
	t.Helper()
	var e dsse.Envelope
	require.NoError(t, json.Unmarshal(envelope, &e))
	payload, err := e.DecodeB64Payload()
	require.NoError(t, err)
	return bundle.ReportID(payload)
}

func killedStateGoesOn(t *testing.T, f stateFixture) {
	s := f.site(t, "killed")
	engine := s.counted()
	state, err := ReadState(s.dir)
	require.NoError(t, err)
	st, err := state.Status(s.now)
	require.NoError(t, err)
	require.NoError(t, state.Close())
	require.EqualValues(t, 4, st.Release.Running.Sequence)
	var open, compliant []string
	for _, item := range st.Items {
		if item.State == bundle.Compliant {
			compliant = append(compliant, item.Assignment)
		} else if item.Assignment != fixtureMissing {
			open = append(open, item.Assignment)
		}
	}
	require.NotEmpty(t, open)

	// All that is needed is here: the agent goes on where the one before was killed.
	s.registry.away.Store(true)
	r := s.once()
	require.Equal(t, Unreachable, r.Verdict, r.Error)
	require.Contains(t, s.log.String(), `msg="a step was interrupted and is done again" step=apply`)
	for _, item := range r.Status.Items {
		require.Equal(t, item.Assignment != fixtureMissing, item.State == bundle.Compliant, "%+v", item)
	}
	require.Len(t, r.Status.Items, fixtureWorkloads)
	require.ElementsMatch(t, open, slices.Concat(engine.applied, engine.removed))
	for _, name := range compliant {
		require.NotContains(t, engine.applied, name)
	}
	for i := 1; i < fixtureWorkloads; i++ {
		requireFile(t, s.host, fixtureFile(i), "release: 4")
	}
	require.NoDirExists(t, filepath.Join(s.host, fixtureGone))
}

// A newer agent may have written what this one does not know, as long as it need not: buckets, keys and fields.
func TestWhatANewerAgentHasAddedToTheStateStays(t *testing.T) {
	s := newSite(t)
	s.publish(s.draft(1, shop))
	s.requireTaken()
	s.agent(func(a *Agent) {
		require.NoError(t, a.state.db.Update(func(tx *bbolt.Tx) error {
			b, err := tx.CreateBucketIfNotExists([]byte("from-a-newer-agent"))
			require.NoError(t, err)
			require.NoError(t, b.Put([]byte("key"), []byte("value")))
			require.NoError(t, state.Save(tx, state.Meta, "from-a-newer-agent", map[string]int{"n": 7}))
			running := map[string]any{}
			require.NoError(t, json.Unmarshal(tx.Bucket([]byte(state.Meta)).Get([]byte(keyRunning)), &running))
			running["fromANewerAgent"] = true
			return state.Save(tx, state.Meta, keyRunning, running)
		}))
	})
	s.publish(s.draft(2, map[string]string{"shop-main/config.yaml": "a: 2"}))
	s.requireTaken()
	s.agent(func(a *Agent) {
		require.NoError(t, a.state.db.View(func(tx *bbolt.Tx) error {
			require.Equal(t, "value", string(tx.Bucket([]byte("from-a-newer-agent")).Get([]byte("key"))))
			require.JSONEq(t, `{"n": 7}`, string(tx.Bucket([]byte(state.Meta)).Get([]byte("from-a-newer-agent"))))
			return nil
		}))
	})
}

// An agent that meets a file that it must not take for its own says so, and leaves it and the cluster alone.
func TestAFileThatANewerVersionWroteIsLeftAlone(t *testing.T) {
	s := newSite(t)
	s.opts.Version = "v9.1.0"
	s.publish(s.draft(1, shop))
	s.requireTaken()
	s.agent(func(a *Agent) {
		require.NoError(t, a.state.db.Update(func(tx *bbolt.Tx) error { return state.Save(tx, state.Meta, state.KeySchema, state.Schema+1) }))
	})
	path := filepath.Join(s.dir, state.File)
	before, err := os.ReadFile(path)
	require.NoError(t, err)

	for name, open := range map[string]func() (*State, error){
		"to go on with": func() (*State, error) { return OpenState(s.dir, nil) },
		"to be read":    func() (*State, error) { return ReadState(s.dir) },
	} {
		t.Run(name, func(t *testing.T) {
			_, err := open()
			require.ErrorIs(t, err, state.ErrNewer)
			require.NotErrorIs(t, err, state.ErrDamaged)
			require.EqualError(t, err, "state "+path+": a newer agent wrote it: v9.1.0, schema 2; this one reads up to schema 1")
		})
	}
	after, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, before, after)
	requireFile(t, s.host, "shop-main/config.yaml", "a: 1")
}

// A release that only a newer agent can read is refused for that reason. The running release stays, and the newer agent
// accepts the new one at once, although the older agent had refused it.
func TestAReleaseForANewerAgentWaitsForIt(t *testing.T) {
	for name, change := range map[string]func(*draft){
		"a release document": func(d *draft) { d.ChangeRelease = func(r *bundle.Release) { r.Schema++ } },
		"a manifest": func(d *draft) {
			d.ChangeManifest = func(m *ocispec.Manifest) { m.ArtifactType = later(m.ArtifactType) }
		},
		"a config media type": func(d *draft) {
			d.ChangeManifest = func(m *ocispec.Manifest) { m.Config.MediaType = later(m.Config.MediaType) }
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t)
			s.publish(s.draft(1, shop))
			s.requireTaken()
			d := s.draft(2, map[string]string{"shop-main/config.yaml": "a: 2"})
			change(&d)
			s.publish(d)
			s.requireRefused(bundle.UnsupportedSchema, "it needs a newer version of wherry")
			requireFile(t, s.host, "shop-main/config.yaml", "a: 1")

			asked := func() int64 {
				s.registry.requests.Store(0)
				s.agent(func(a *Agent) { a.makePass(context.Background(), scope{from: s.repo}) })
				return s.registry.requests.Load()
			}
			s.now = s.now.Add(DefaultMaxBackoff)
			require.EqualValues(t, 1, asked(), "this one cannot judge it otherwise, however long it waits")
			s.opts.Version = "v0.0.1-test"
			require.Greater(t, asked(), int64(1), "another one may")
		})
	}
}

// later is the media type of the version after the first.
func later(mediaType string) string { return strings.Replace(mediaType, ".v1+", ".v2+", 1) }

func TestATrustDocumentForANewerAgentSaysSo(t *testing.T) {
	s, first := underTrust(t)
	s.publish(s.draft(1, shop))
	s.requireTaken()
	second := first.Next(s.now)
	envelope, err := second.Envelope()
	require.NoError(t, err)
	var e dsse.Envelope
	require.NoError(t, json.Unmarshal(envelope, &e))
	body, err := e.DecodeB64Payload()
	require.NoError(t, err)
	for version, sealed := range map[string][]byte{
		"its type":   seal(t, later(bundle.MediaTypeTrust), body, first.Signers[0]),
		"its schema": seal(t, bundle.MediaTypeTrust, bytes.Replace(body, []byte(`"schema":1`), []byte(`"schema":2`), 1), first.Signers[0]),
	} {
		t.Run(version, func(t *testing.T) {
			require.NoError(t, agenttest.PublishEnvelope(context.Background(), s.trust, 2, sealed))
			s.publish(s.draft(2, map[string]string{"shop-main/config.yaml": "a: " + version}))
			s.requireRefused(bundle.TrustDocumentRejected, "it needs a newer version of wherry")
		})
	}
}

func seal(t *testing.T, payloadType string, body []byte, key crypto.Signer) []byte {
	t.Helper()
	envelope, err := bundle.SealEnvelope(payloadType, body, key)
	require.NoError(t, err)
	return envelope
}

// dismissed is an engine at whose first call of a kind the agent is told to end.
type dismissed struct {
	reconcilers.Reconciler
	apply, observe func()
}

func (e *dismissed) Apply(ctx context.Context, a reconcilers.Assignment) reconcilers.Result {
	e.apply()
	return e.Reconciler.Apply(ctx, a)
}

func (e *dismissed) Observe(ctx context.Context, a reconcilers.Assignment) reconcilers.Result {
	e.observe()
	return e.Reconciler.Observe(ctx, a)
}

// An agent is told to end, as by SIGTERM before another one takes its place, in the middle of a step. The next one
// goes on from there.
func TestAnAgentThatIsReplacedAtAnyStepLosesNothing(t *testing.T) {
	inPath := func(parts ...string) func(path string) bool {
		return func(path string) bool {
			return !slices.ContainsFunc(parts, func(part string) bool { return !strings.Contains(path, part) })
		}
	}
	for step, asks := range map[string]func(path string) bool{
		"resolve": inPath("/bundles/", "/manifests/latest"),
		"learn":   inPath("/trust/", "/manifests/v2"),
		"verify":  inPath("/bundles/", "/manifests/sha256-"),
		"fetch":   inPath("/bundles/", "/blobs/"),
		"apply":   nil,
		"observe": nil,
	} {
		t.Run(step, func(t *testing.T) {
			s, _ := underTrust(t)
			files := map[string]string{"a-x/f": "1", "b-x/f": "1", "c-x/f": "1"}
			s.publish(s.draft(1, files))
			s.requireTaken()
			var before [][]byte
			s.agent(func(a *Agent) {
				var err error
				before, err = a.state.outbox.Reports()
				require.NoError(t, err)
			})

			files["a-x/f"], files["d-x/f"] = "2", "2"
			delete(files, "b-x/f")
			s.publish(s.draft(2, files))
			ctx, end := context.WithCancel(context.Background())
			defer end()
			var ended atomic.Bool
			endIn := func(name string) func() {
				return func() {
					if name == step && !ended.Swap(true) {
						end()
					}
				}
			}
			if asks != nil {
				hook := func(_ http.ResponseWriter, r *http.Request) bool {
					if asks(r.URL.Path) {
						endIn(step)()
					}
					return false
				}
				s.registry.hook.Store(&hook)
			}
			directory := s.opts.Engines.Reconcilers["directory"]
			s.opts.Engines.Reconcilers["directory"] = &dismissed{directory, endIn("apply"), endIn("observe")}
			s.agent(func(a *Agent) { require.NoError(t, a.Run(ctx)) })
			require.True(t, ended.Load(), "it was ended in the middle of that step")

			s.opts.Engines.Reconcilers["directory"], s.opts.Version = directory, "v0.0.1-test"
			r := s.once()
			require.Contains(t, []Verdict{Done, Idle}, r.Verdict, r.Error)
			require.Equal(t, bundle.Compliant, r.Status.State, "%+v", r.Status.Items)
			require.EqualValues(t, 2, r.Status.Release.Running.Sequence)
			require.Len(t, r.Status.Items, len(files))
			for path, content := range files {
				requireFile(t, s.host, path, content)
			}
			require.NoDirExists(t, filepath.Join(s.host, "b-x"))
			s.requireAcknowledged(t, before)
		})
	}
}
