package doctor

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/stretchr/testify/require"
	"oras.land/oras-go/v2/registry/remote/auth"

	"github.com/wherry-dev/wherry/agent"
	"github.com/wherry-dev/wherry/agent/agenttest"
	"github.com/wherry-dev/wherry/agent/relay"
	"github.com/wherry-dev/wherry/agent/serve"
	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/diagnosis"
	"github.com/wherry-dev/wherry/bundle/oci"
)

var stream = bundle.Stream{Platform: "coffee", Environment: "dev", ClusterType: "shop"}

// fixture is a registry with a release, and an agent that follows it.
type fixture struct {
	t       *testing.T
	key     *ecdsa.PrivateKey
	server  *httptest.Server
	repo    oci.Target
	subject Subject
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	quiet := slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug)
	f := &fixture{t: t, key: key, server: httptest.NewServer(registry.New(registry.Logger(quiet)))}
	t.Cleanup(f.server.Close)
	f.repo, err = f.open(nil)
	require.NoError(t, err)
	f.subject = Subject{
		StateDir: filepath.Join(t.TempDir(), "state"),
		Cluster:  bundle.ReportCluster{Platform: "coffee", Environment: "dev", Type: "shop"},
		Pinned:   bundle.Pinned(bundle.Keys{key.Public()}),
		Adapters: Adapters{Configured: map[string]bool{"directory": true, "kubernetes": false}},
		Registry: Registry{Bundles: func(c *http.Client) (bundle.Source, error) { return f.open(c) }},
	}
	f.publish(time.Now(), func(*agenttest.Draft) {})
	return f
}

func (f *fixture) open(client *http.Client) (oci.Target, error) {
	return f.openAt(stream.Repository(), client)
}

func (f *fixture) openAt(repository string, client *http.Client) (oci.Target, error) {
	loc, err := oci.Parse("oci://" + strings.TrimPrefix(f.server.URL, "http://") + "/edge")
	if err != nil {
		return nil, err
	}
	return loc.Repository(repository, oci.Options{HTTPClient: client})
}

func (f *fixture) publish(at time.Time, change func(*agenttest.Draft)) {
	f.t.Helper()
	d := agenttest.New(stream, at.Unix(), at, map[string]string{"till-live/settings.yaml": "apiVersion: v1\nkind: ConfigMap\n"}, f.key)
	change(&d)
	_, err := d.Publish(f.t.Context(), f.repo)
	require.NoError(f.t, err)
}

func (f *fixture) examine() map[string]diagnosis.Finding {
	f.t.Helper()
	r, err := Examine(f.t.Context(), f.subject)
	require.NoError(f.t, err)
	found, ok := map[string]diagnosis.Finding{}, true
	for _, c := range r.Checks {
		found[c.Check] = c
		ok = ok && c.Result != diagnosis.Failed
		require.Equal(f.t, c.Result == diagnosis.Failed || c.Result == diagnosis.Warning, c.Remedy != "", "what fails or warns, and nothing else, has a remedy: %+v", c)
	}
	require.Equal(f.t, ok, r.OK)
	return found
}

// requireOnly requires that a check has failed in words that match message, and no other one.
func (f *fixture) requireOnly(check, message, remedy string) {
	f.t.Helper()
	for name, c := range f.examine() {
		if name != check {
			require.NotEqual(f.t, diagnosis.Failed, c.Result, "%+v", c)
			continue
		}
		require.Equal(f.t, diagnosis.Failed, c.Result, "%+v", c)
		require.Regexp(f.t, message, c.Message)
		require.Contains(f.t, c.Remedy, remedy)
	}
}

func TestNothingIsMissing(t *testing.T) {
	f := newFixture(t)
	found := f.examine()
	for _, check := range []string{"state", "registry", "release", "clock", "adapters"} {
		require.Equal(t, diagnosis.OK, found[check].Result, "%+v", found[check])
	}
	for _, check := range []string{"agent", "kubernetes", "kinds", "permissions", "hub"} {
		require.Equal(t, diagnosis.Skipped, found[check].Result, "%+v", found[check])
	}
	require.NoDirExists(t, f.subject.StateDir, "an examination makes nothing")
}

func TestWhatIsMissingIsNamedWithItsRemedy(t *testing.T) {
	tests := []struct {
		name                   string
		change                 func(*fixture)
		check, message, remedy string
	}{
		{
			"a registry that does not answer", func(f *fixture) { f.server.Close() },
			"registry", "connection refused", "is this the registry's address",
		},
		{
			"a ring that nothing was published for", func(f *fixture) { f.subject.Cluster.Ring = "canary" },
			"registry", "ring-canary: not found", "publish for this environment",
		},
		{
			"another key", func(f *fixture) {
				other, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
				require.NoError(f.t, err)
				f.subject.Pinned = bundle.Pinned(bundle.Keys{other.Public()})
			},
			"release", "UntrustedKey", "pin the key",
		},
		{
			"a release without a signature", func(f *fixture) {
				f.publish(time.Now().Add(2*time.Second), func(d *agenttest.Draft) { d.Signer = nil })
			},
			"release", "Unsigned", "publish with the private half",
		},
		{
			"another platform", func(f *fixture) { f.subject.Cluster.Platform = "tea" },
			"release", "WrongPlatform", "compare --platform",
		},
		{
			"a release that has expired", func(f *fixture) { f.publish(time.Now().Add(-100*24*time.Hour), func(*agenttest.Draft) {}) },
			"release", "Expired", "publish again to renew it",
		},
		{
			"a clock that is behind the registry's", func(f *fixture) {
				f.subject.Now = func() time.Time { return time.Now().Add(-3 * time.Minute) }
			},
			"clock", "behind the registry's", "time service",
		},
		{
			"a clock that is ahead of the registry's", func(f *fixture) {
				f.subject.Now = func() time.Time { return time.Now().Add(20 * 24 * time.Hour) }
			},
			"clock", "(19d23h59m5.s|20d|20d.s) ahead of the registry's", "time service", // whose Date has seconds, and took its time
		},
		{
			"an adapter that is not configured", func(f *fixture) {
				f.publish(time.Now(), func(d *agenttest.Draft) { d.Adapter = "kubernetes" })
			},
			"adapters", "kubernetes, which 1 of 1 assignments are for", "--kubeconfig",
		},
		{
			"a state folder that is a file", func(f *fixture) { require.NoError(f.t, os.WriteFile(f.subject.StateDir, nil, 0o644)) },
			"state", "not a", "let this user",
		},
		{
			"a state file that is damaged", func(f *fixture) {
				require.NoError(f.t, os.MkdirAll(f.subject.StateDir, 0o700))
				require.NoError(f.t, os.WriteFile(filepath.Join(f.subject.StateDir, "agent.db"), []byte("hello"), 0o600))
			},
			"state", "damaged", "move agent.db away",
		},
		{
			"a hub that does not answer", func(f *fixture) { f.subject.Hub.URL, f.subject.Hub.HasKey = "http://127.0.0.1:1", true },
			"hub", "connection refused", "is this the hub's address",
		},
		{
			"a hub whose key is not pinned", func(f *fixture) { f.subject.Hub.URL = f.hub(http.StatusOK) },
			"hub", "no report is ever deleted", "wherry hub keys show",
		},
		{
			"a hub that is not ready", func(f *fixture) { f.subject.Hub.URL, f.subject.Hub.HasKey = f.hub(http.StatusServiceUnavailable), true },
			"hub", "503", "is it running",
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			f := newFixture(t)
			test.change(f)
			f.requireOnly(test.check, test.message, test.remedy)
		})
	}
}

func (f *fixture) hub(status int) string {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		require.Equal(f.t, "/readyz", r.URL.Path)
		w.WriteHeader(status)
	}))
	f.t.Cleanup(s.Close)
	return s.URL
}

// Behind a first box, the hub's address is that of its endpoint.
func TestTheFirstBoxOfASiteTakesReportsOrNot(t *testing.T) {
	for _, accepts := range []bool{true, false} {
		f := newFixture(t)
		e, err := serve.Open(serve.Options{Address: "127.0.0.1:0", Plain: true, StateDir: t.TempDir()})
		require.NoError(t, err)
		s, err := e.Listen(t.TempDir(), "plant")
		require.NoError(t, err)
		if accepts {
			st, err := agent.OpenState(t.TempDir(), nil)
			require.NoError(t, err)
			defer st.Close()
			s.AcceptReports(st.Relay().Handler(relay.Options{}))
		}
		ctx, cancel := context.WithCancel(t.Context())
		var served sync.WaitGroup
		served.Go(func() { s.Serve(ctx) })
		f.subject.Hub.URL, f.subject.Hub.HasKey = "http://"+s.Addr().String(), true
		if accepts {
			r, err := Examine(ctx, f.subject)
			require.NoError(t, err)
			require.Contains(t, r.Checks, diagnosis.Finding{Check: "hub", Result: diagnosis.OK, Message: "it answers"})
		} else {
			f.requireOnly("hub", "the endpoint of another agent, which accepts no reports", "serve.acceptReports")
		}
		cancel()
		served.Wait()
	}
}

// Without a Date to compare with, a release from the future tells.
func TestAClockThatIsBehindTheRelease(t *testing.T) {
	f := newFixture(t)
	dir := oci.NewLayout(filepath.Join(t.TempDir(), "layout"))
	repo, err := dir.Repository(stream.Repository())
	require.NoError(t, err)
	f.repo = repo
	f.publish(time.Now().Add(time.Hour), func(*agenttest.Draft) {})
	f.subject.Registry.Bundles = func(*http.Client) (bundle.Source, error) { return repo, nil }
	f.requireOnly("clock", "the newest release was issued at", "time service")
}

func TestAnAgentThatRunsIsAsked(t *testing.T) {
	f := newFixture(t)
	state, err := agent.OpenState(f.subject.StateDir, nil)
	require.NoError(t, err)
	defer state.Close()
	f.requireOnly("state", "in use, and no agent answers there", "end the process")

	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() {
		ended <- agent.New(state, f.repo, f.subject.Pinned, f.subject.Cluster, agent.Options{}).Run(ctx)
	}()
	require.Eventually(t, func() bool {
		_, err := agent.NewClient(f.subject.StateDir).Status(ctx)
		return err == nil
	}, time.Minute, 10*time.Millisecond)
	found := f.examine()
	require.Equal(t, diagnosis.OK, found["state"].Result, "%+v", found["state"])
	require.NotEqual(t, diagnosis.Failed, found["agent"].Result, "%+v", found["agent"]) // it has no engine, which may have shown by now
	require.Contains(t, found["agent"].Message, "running; state ")

	require.Eventually(t, func() bool {
		s, err := agent.NewClient(f.subject.StateDir).Status(ctx)
		return err == nil && s.Release.Running != nil
	}, time.Minute, 10*time.Millisecond)
	f.subject.Pinned.Epoch = 1 // as after a change of trust that this agent has seen, and its release has not
	release := f.examine()["release"]
	require.Equal(t, diagnosis.Warning, release.Result, "%+v", release)
	require.Contains(t, release.Message, "it runs here, and stays; an agent that begins now would refuse it: OldEpoch")
	stop()
	require.NoError(t, <-ended)
	require.NoError(t, state.Close())
	require.Equal(t, release, f.examine()["release"], "nor does it matter whether the agent runs now")
}

// Doctor asks the registry itself, and falls back to the agent's last report if the registry no longer answers.
func TestWithheldCredentialsAreNamed(t *testing.T) {
	f := newFixture(t)
	challenging := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("WWW-Authenticate", `Bearer realm="https://tokens.evil.example/token"`)
		w.WriteHeader(http.StatusUnauthorized)
	}))
	t.Cleanup(challenging.Close)
	f.subject.Registry.Bundles = func(c *http.Client) (bundle.Source, error) {
		loc := oci.Location{Host: challenging.Listener.Addr().String(), Prefix: "edge"}
		return loc.Repository(stream.Repository(), oci.Options{HTTPClient: c, Credential: auth.StaticCredential(loc.Host, auth.Credential{Username: "a", Password: "b"})})
	}
	const message, remedy = "were not sent to tokens.evil.example: .* --auth-host tokens.evil.example", "list it in authHosts (--auth-host)"
	f.requireOnly("registry", message, remedy)

	source, err := f.subject.Registry.Bundles(nil)
	require.NoError(t, err)
	state, err := agent.OpenState(f.subject.StateDir, nil)
	require.NoError(t, err)
	a := agent.New(state, source, f.subject.Pinned, f.subject.Cluster, agent.Options{})
	require.Equal(t, agent.ReasonCredentialsWithheld, a.Once(t.Context(), 0).Status.Reason)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- a.Run(ctx) }()
	require.Eventually(t, func() bool {
		_, err := agent.NewClient(f.subject.StateDir).Status(ctx)
		return err == nil
	}, time.Minute, 10*time.Millisecond)
	running := f.examine()["agent"]
	require.Equal(t, diagnosis.Failed, running.Result, "%+v", running)
	require.Regexp(t, "CredentialsWithheld: .*"+message, running.Message)
	require.Contains(t, running.Remedy, "then restart the agent")
	stop()
	require.NoError(t, <-ended)
	require.NoError(t, state.Close())

	challenging.Close()
	f.requireOnly("registry", "connection refused; when it answered last: .*"+message, "is this the registry's address")
}

func TestAnExaminationThatIsInterrupted(t *testing.T) {
	f := newFixture(t)
	ctx, stop := context.WithCancel(t.Context())
	stop()
	_, err := Examine(ctx, f.subject)
	require.ErrorIs(t, err, context.Canceled)
}

func TestTheTrustDocumentIsExamined(t *testing.T) {
	root, stranger := agenttest.NewKey(), agenttest.NewKey()
	valid := func(d time.Duration) func(*agenttest.Trust) {
		return func(tr *agenttest.Trust) { tr.Document.ExpiresAt = time.Now().Add(d) }
	}
	for _, tc := range []struct {
		name            string
		change          func(*agenttest.Trust) // version 2, in the registry
		release         func(*agenttest.Draft)
		check           string
		result          diagnosis.Result
		message, remedy string
	}{
		{"in order", nil, nil, "trust", diagnosis.OK, "version 2, epoch 1, valid until ", ""},
		{"signed by others", func(tr *agenttest.Trust) { tr.Signers = []crypto.Signer{stranger} }, nil, "trust", diagnosis.Failed, "signed by 0 of", "find out who has put it there"},
		{"expired", valid(-time.Hour), nil, "trust", diagnosis.Failed, "no new release is accepted", "have the roots sign"},
		{"that expires today", valid(time.Hour), nil, "trust", diagnosis.Warning, "expires in less than a day", "have the roots sign"},
		{"that expires soon", valid(10*24*time.Hour + time.Hour), nil, "trust", diagnosis.Warning, "expires in 10 days", "have the roots sign"},
		{"of another epoch than the release", func(tr *agenttest.Trust) { tr.Document.Epoch = 2 }, nil, "release", diagnosis.Failed, "release has epoch 1, the trust in force has 2", "publish again"},
		{
			"that asks for more signatures", func(tr *agenttest.Trust) {
				tr.Document.Release.Keys = append(tr.Document.Release.Keys, agenttest.Role(1, stranger).Keys...)
				tr.Document.Release.Threshold = 2
			},
			nil, "release", diagnosis.Failed, "signed by 1 of", "wherry sign",
		},
		{"in front of a release of a pinned key", nil, func(d *agenttest.Draft) { d.Release.Epoch = 0 }, "release", diagnosis.Failed, "release has epoch 0, the trust in force has 1", "publish again"},
	} {
		t.Run("a trust document "+tc.name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			first := agenttest.NewTrust("coffee", time.Now().Add(-48*time.Hour), root, f.key)
			envelope, err := first.Envelope()
			require.NoError(t, err)
			f.subject.Trust, err = bundle.TrustChain(nil).Append(envelope)
			require.NoError(t, err)
			f.subject.Registry.Trust = func(c *http.Client) (bundle.Source, error) { return f.openAt(bundle.TrustRepository, c) }
			second := first.Next(time.Now().Add(-24 * time.Hour))
			if tc.change != nil {
				tc.change(&second)
			}
			repo, err := f.openAt(bundle.TrustRepository, nil)
			require.NoError(t, err)
			require.NoError(t, second.Publish(t.Context(), repo))
			f.publish(time.Now(), func(d *agenttest.Draft) {
				d.Release.Epoch = 1
				if tc.release != nil {
					tc.release(d)
				}
			})

			found := f.examine()[tc.check]

			require.Equal(t, tc.result, found.Result, "%+v", found)
			require.Contains(t, found.Message, tc.message)
			require.Contains(t, found.Remedy, tc.remedy)
		})
	}
	t.Run("a release of an epoch for an agent with a pinned key", func(t *testing.T) {
		t.Parallel()
		f := newFixture(t)
		f.publish(time.Now(), func(d *agenttest.Draft) { d.Release.Epoch = 1 })
		f.requireOnly("release", "release has epoch 1, the trust in force has 0", "trust install")
		require.Contains(t, f.examine()["trust"].Message, "1 key pinned, and no trust document")
	})
}

func TestWhatTheStoreHolds(t *testing.T) {
	f := newFixture(t)
	require.Equal(t, "no release is in it yet", f.examine()["store"].Message)

	state, err := agent.OpenState(f.subject.StateDir, nil)
	require.NoError(t, err)
	agent.New(state, f.repo, f.subject.Pinned, f.subject.Cluster, agent.Options{}).Once(t.Context(), 0)
	require.NoError(t, state.Close())
	store := filepath.Join(f.subject.StateDir, "store")
	require.NoError(t, os.WriteFile(filepath.Join(store, "parts", "sha256-x"), make([]byte, 20<<10), 0o600))
	found := f.examine()["store"]
	require.Equal(t, diagnosis.OK, found.Result)
	require.Regexp(t, `^bundles/\S+/s\d+-\d+, \d+ (bytes|KiB), and \d+ (bytes|KiB) unpacked; 20 KiB have arrived of what is being fetched$`, found.Message)

	require.NoError(t, os.Truncate(filepath.Join(store, "index.json"), 5))
	found = f.examine()["store"]
	require.Equal(t, diagnosis.Warning, found.Result)
	require.Contains(t, found.Message, "its index is damaged")
}
