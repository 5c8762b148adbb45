package agent

import (
	"bytes"
	"context"
	"crypto"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/stretchr/testify/require"
	"go.etcd.io/bbolt"
	"oras.land/oras-go/v2/registry/remote/auth"

	"github.com/wherry-dev/wherry/agent/agenttest"
	"github.com/wherry-dev/wherry/agent/state"
	"github.com/wherry-dev/wherry/agent/trust"
	"github.com/wherry-dev/wherry/airgap"
	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/oci"
)

// The attacks are those of the table in docs/security.md; its test holds the two together. Each one meets an
// agent that runs: it speaks to a registry in HTTP with the client that it always has, is told to look by its
// control socket, and reports. Release 5 is applied when an attack begins. When it ends, a release follows
// that has to be taken.

// attack is a malicious offer to an agent.
type attack struct {
	name string
	// mount begins the attack. It returns the manifest that is offered then; none where the agent never gets
	// to know of one.
	mount func(s *siege) digest.Digest
	// want is the reason that status and report give.
	want bundle.Reason
	// says are words of the message, where another fault would have the same reason.
	says string
	// lateAt is the sequence of a release that is signed as it should be, and bad in its layer: its place
	// is taken, and nothing else. Zero means that no layer may be requested.
	lateAt int64
}

// unreachable is the reason of answers that say nothing of a release, good or bad.
const unreachable bundle.Reason = "Unreachable"

// siege is a site whose agent runs, with an attacker between it and the registry.
type siege struct {
	*site
	running *Agent
	client  Client
	state   *State
	good    ocispec.Descriptor
	clock   atomic.Pointer[time.Time] // the agent's
	stop    func()                    // ends the agent
	// pinned is what the agent goes by while it has no trust document; nil is the site's key.
	pinned *bundle.Trust
	// first is version 1 of the trust document, where there is one, and roots are those who sign it.
	first agenttest.Trust
	roots []crypto.Signer
	// mend puts right, when an attack ends, what a publisher would have to.
	mend func()
	// alsoSigns is the second key where trust asks for two.
	alsoSigns crypto.Signer
	// credential is what the agent has for registries.
	credential atomic.Pointer[auth.Credential]
}

// evil is what no attack brings to the host.
var evil = map[string]string{"shop-main/config.yaml": "a: evil"}

// besiege begins a test, which runs beside others, with release 5 applied.
func besiege(t *testing.T, prepare ...func(*siege)) *siege {
	t.Helper()
	t.Parallel()
	return besieged(t, prepare...)
}

// besieged is besiege for what does not run beside other tests.
func besieged(t testing.TB, prepare ...func(*siege)) *siege {
	t.Helper()
	s := &siege{site: newSite(t)}
	s.credential.Store(&auth.Credential{})
	s.setClock(s.now)
	s.opts.Now = func() time.Time { return *s.clock.Load() }
	s.opts.Interval = time.Hour // the test says when
	for _, p := range prepare {
		p(s)
	}
	s.good = s.release(5, "a: 1")
	require.NoError(t, s.repo.Tag(context.Background(), s.good, "good"))
	s.start()
	r := s.sync()
	require.Equal(t, bundle.Compliant, r.Status.State, r.Error)
	return s
}

// release publishes release n in good faith.
func (s *siege) release(n int64, content string) ocispec.Descriptor {
	s.t.Helper()
	d := s.publish(s.draft(n, map[string]string{"shop-main/config.yaml": content}))
	if s.alsoSigns != nil {
		s.sign(d.Digest, d.Digest, s.key, s.alsoSigns)
	}
	return d
}

func (s *siege) setClock(t time.Time) { s.clock.Store(&t) }

// start has the agent run until the test ends, or stop is called.
func (s *siege) start() {
	s.t.Helper()
	var err error
	s.state, err = OpenState(s.dir, s.opts.Now)
	require.NoError(s.t, err)
	pinned := bundle.Pinned(bundle.Keys{s.key.Public()})
	if s.pinned != nil {
		pinned = *s.pinned
	}
	store, err := s.location().Open(oci.Options{
		Credential: func(context.Context, string) (auth.Credential, error) { return *s.credential.Load(), nil },
	})
	require.NoError(s.t, err)
	source, err := store.Repository(s.stream.Repository())
	require.NoError(s.t, err)
	s.opts.TrustSource, err = store.Repository(bundle.TrustRepository)
	require.NoError(s.t, err)
	cluster := bundle.ReportCluster{UID: "plant-7", Name: "plant-7", Platform: s.stream.Platform, Environment: s.stream.Environment, Type: s.stream.ClusterType}
	s.running = New(s.state, source, pinned, cluster, s.opts)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.running.Run(ctx) }()
	s.stop = sync.OnceFunc(func() {
		cancel()
		require.NoError(s.t, <-ended)
		require.NoError(s.t, s.state.Close())
	})
	s.t.Cleanup(s.stop)
	s.client = NewClient(s.dir)
	require.Eventually(s.t, func() bool { // its first pass is over
		st, err := s.client.Status(ctx)
		return err == nil && st.NextTry != nil
	}, time.Minute, time.Millisecond)
}

// sync has the agent look now.
func (s *siege) sync() Result {
	s.t.Helper()
	r, err := s.client.Sync(context.Background(), 0)
	require.NoError(s.t, err)
	return r
}

func (s *siege) status() Status {
	s.t.Helper()
	st, err := s.client.Status(context.Background())
	require.NoError(s.t, err)
	return st
}

// memory is what must not fall, and what must not rise without a release that may raise it.
type memory struct {
	Highest bundle.Order
	Floor   time.Time
}

func (s *siege) memory() (m memory) {
	s.t.Helper()
	require.NoError(s.t, s.state.db.View(func(tx *bbolt.Tx) (err error) {
		if m.Highest, err = state.Load[bundle.Order](tx, state.Orders, s.stream.Repository()+"@"+s.stream.Platform); err == nil {
			m.Floor, err = trust.LoadFloor(tx, s.epoch)
		}
		return err
	}))
	return m
}

// lastReport is the newest that waits for the hub, with the agent's signature checked.
func (s *siege) lastReport() bundle.Report {
	s.t.Helper()
	var file bytes.Buffer
	require.NoError(s.t, s.client.Reports(context.Background(), &file))
	envelopes, err := airgap.ReadReports(s.file(file.Bytes()))
	require.NoError(s.t, err)
	pem, err := s.state.who.ReportKey()
	require.NoError(s.t, err)
	keys, err := bundle.ParsePublicKeys([]byte(pem))
	require.NoError(s.t, err)
	body, _, err := bundle.OpenEnvelope(bundle.PayloadTypeReport, envelopes[len(envelopes)-1], keys...)
	require.NoError(s.t, err)
	report, err := bundle.ParseReport(body)
	require.NoError(s.t, err)
	return report
}

// requireRefused checks the agent's report of an attack, and that the running release is unchanged.
func (s *siege) requireRefused(r Result, want bundle.Reason, offered digest.Digest) {
	s.t.Helper()
	report := s.lastReport()
	require.Equal(s.t, string(want), r.Status.Reason, "%s: %s", r.Verdict, r.Status.Message)
	require.NotEmpty(s.t, r.Status.Message)
	require.LessOrEqual(s.t, len(r.Status.Message), bundle.MaxMessageBytes)
	require.NotContains(s.t, r.Status.Message, "\x1b")
	if r.Status.Trust != nil {
		require.NotContains(s.t, r.Status.Trust.Message, "\x1b")
		require.LessOrEqual(s.t, len(r.Status.Trust.Message), bundle.MaxMessageBytes)
	}
	require.Equal(s.t, string(want), report.Reason)
	if want == unreachable || want == "NotFound" || want == ReasonCredentialsWithheld {
		require.Equal(s.t, Unreachable, r.Verdict)
		require.Equal(s.t, bundle.Compliant, r.Status.State)
		require.Nil(s.t, r.Status.Release.Refused)
	} else {
		require.Equal(s.t, Refused, r.Verdict, r.Error)
		require.Equal(s.t, bundle.Rejected, r.Status.State)
		require.Equal(s.t, offered, r.Status.Release.Refused.Digest)
		require.Equal(s.t, bundle.Rejected, report.State)
		require.Equal(s.t, offered, report.Desired.Digest)
	}
	require.Equal(s.t, s.good.Digest, r.Status.Release.Running.Digest)
	require.Equal(s.t, s.good.Digest, report.Observed.Digest)
	require.Len(s.t, report.Items, 1)
	require.Equal(s.t, bundle.Compliant, report.Items[0].State)
	s.requireHost("a: 1")
}

// requireHost checks that the host has release content and nothing else.
func (s *siege) requireHost(content string) {
	s.t.Helper()
	requireFile(s.t, s.host, "shop-main/config.yaml", content)
	require.Len(s.t, s.folders(), 1)
	entries, err := os.ReadDir(filepath.Dir(s.host))
	require.NoError(s.t, err)
	require.Len(s.t, entries, 1, "nothing beside it")
}

// end takes the attacker away and offers release n, which has to be taken.
func (s *siege) end(n int64) {
	s.t.Helper()
	s.registry.spoil.Store(nil)
	s.registry.hook.Store(nil)
	s.setClock(s.now)
	if s.mend != nil {
		s.mend()
	}
	healed := s.release(n, "a: healed")
	r := s.sync()
	require.Equal(s.t, bundle.Compliant, r.Status.State, r.Error)
	require.Equal(s.t, healed.Digest, r.Status.Release.Running.Digest)
	require.Nil(s.t, r.Status.Release.Refused)
	require.Empty(s.t, r.Status.Reason)
	s.requireHost("a: healed")
	require.Equal(s.t, n, s.memory().Highest.Sequence)
}

// mountAll mounts one attack after the other, each on a site of its own.
func mountAll(t *testing.T, attacks []attack, prepare ...func(*siege)) {
	t.Helper()
	for _, a := range attacks {
		t.Run(a.name, func(t *testing.T) {
			s := besiege(t, prepare...)
			before := s.memory()
			s.registry.blobs.Store(0)

			offered := a.mount(s)
			for range 2 { // it is judged again when somebody asks
				r := s.sync()
				s.requireRefused(r, a.want, offered)
				require.Contains(t, r.Status.Message, a.says)
			}

			if a.lateAt == 0 {
				require.Zero(t, s.registry.blobs.Load(), "no layer is requested before verify has said yes")
				require.Equal(t, before, s.memory())
			} else {
				require.Equal(t, a.lateAt, s.memory().Highest.Sequence)
			}
			s.end(9)
		})
	}
}
