package agent

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/agent/agenttest"
	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/delta"
	"github.com/wherry-dev/wherry/bundle/oci"
	"github.com/wherry-dev/wherry/reconcilers"
)

// childVariable makes the test binary an agent that runs until it is killed: registry, state folder,
// host folder and public key, separated by newlines.
const childVariable = "WHERRY_TEST_AGENT"

// deltaArgument makes it the process in which a delta is applied.
const deltaArgument = "apply-delta"

func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == deltaArgument {
		os.Exit(delta.Child(os.Stdin, os.Stdout))
	}
	if args := os.Getenv(childVariable); args != "" {
		if err := runChild(strings.Split(args, "\n")); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	log.SetOutput(io.Discard) // net/http complains there of links that misbehave, as tests have them do
	os.Exit(m.Run())
}

func runChild(args []string) error {
	loc, err := oci.Parse(args[0])
	if err != nil {
		return err
	}
	cluster := bundle.ReportCluster{UID: "plant-7", Platform: "default", Environment: "dev", Type: "drone"}
	repo, err := loc.Repository("bundles/dev/drone", oci.Options{})
	if err != nil {
		return err
	}
	trust, err := loc.Repository(bundle.TrustRepository, oci.Options{})
	if err != nil {
		return err
	}
	keys, err := bundle.ParsePublicKeys([]byte(strings.Join(args[3:], "\n")))
	if err != nil {
		return err
	}
	state, err := OpenState(args[1], nil)
	if err != nil {
		return err
	}
	defer state.Close()
	return New(state, repo, bundle.Pinned(keys), cluster, Options{
		Interval:    10 * time.Millisecond,
		TrustSource: trust,
		Reconcilers: map[string]reconcilers.Reconciler{"directory": childEngine(args[2])},
		Log:         slog.New(slog.NewTextHandler(os.Stderr, nil)),
	}).Run(context.Background())
}

// An agent is killed at a random moment, again and again, while releases come, each signed by a key that
// only a newer trust document knows. What it leaves is always one of the releases or on the way to one, and
// the next start gets there.
func TestAKilledAgentConverges(t *testing.T) {
	const kills, assignments = 15, 12
	s := newSite(t)
	s.now, s.opts.Now, s.epoch = time.Now(), nil, 1
	document := agenttest.NewTrust(s.stream.Platform, s.now, agenttest.NewKey(), s.key)
	require.NoError(t, s.install(document))
	versions := 1
	digests := map[string]bool{}
	files := func(n int) map[string]string {
		f := map[string]string{}
		for i := range assignments {
			f[fmt.Sprintf("w%02d-x/f", i)] = fmt.Sprint(n)
		}
		delete(f, fmt.Sprintf("w%02d-x/f", n%assignments)) // one goes, and the one before comes back
		return f
	}
	seed := uint64(time.Now().UnixNano())
	t.Log("seed", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	var highest bundle.Order
	interrupted := 0
	for n := range kills {
		document = document.Next(s.now)
		s.key = agenttest.NewKey().(*ecdsa.PrivateKey)
		document.Document.Release = agenttest.Role(1, s.key)
		if n%5 == 4 {
			s.epoch++
			document.Document.Epoch = s.epoch
		}
		s.offerTrust(document)
		d := s.draft(int64(n+1), files(n))
		d.ChangeList = func(as []bundle.Assignment) { // in two waves, the first of which is a chain
			for i := range as {
				as[i].Wave = i / 8
				if i > 0 && i < 8 {
					as[i].DependsOn = []string{as[i-1].Name}
				}
			}
		}
		digests[s.publish(d).Digest.String()] = true
		log := s.killChild(time.Duration(random.IntN(120)) * time.Millisecond)
		if strings.Contains(log, "a step was interrupted") {
			interrupted++
		}
		s.agent(func(a *Agent) {
			st, err := a.Status()
			require.NoError(t, err)
			if st.Release.Running != nil {
				require.Contains(t, digests, st.Release.Running.Digest.String())
			}
			chain := a.state.chain()
			require.GreaterOrEqual(t, len(chain), versions, "no trust document is forgotten")
			versions = len(chain)
			order, _, err := (&pass{Agent: a}).judgedSoFar(s.stream, 0)
			require.NoError(t, err)
			require.LessOrEqual(t, order.Epoch, chain.Current().Epoch, "nothing was judged by a document that is not on disk")
			require.GreaterOrEqual(t, order.Compare(highest), 0, "the order never falls")
			highest = order
		})
	}
	t.Log("starts that found a step interrupted:", interrupted)

	r := s.once()

	require.Contains(t, []Verdict{Done, Idle}, r.Verdict, r.Error)
	require.EqualValues(t, document.Document.Version, r.Status.Trust.Version)
	require.Equal(t, bundle.Compliant, r.Status.State)
	want := files(kills - 1)
	require.Len(t, r.Status.Items, len(want))
	for path, content := range want {
		requireFile(t, s.host, path, content)
	}
	entries, err := os.ReadDir(s.host)
	require.NoError(t, err)
	require.Len(t, entries, len(want), "what is no longer listed is gone, and nothing half-written is left: %v", entries)
	trees, err := os.ReadDir(filepath.Join(s.dir, treesDir))
	require.NoError(t, err)
	require.Len(t, trees, 1)
}

// killChild starts an agent in a process of its own, kills it after d, and returns its log. The time
// counts from the moment at which it holds the state file.
func (s *site) killChild(d time.Duration) string {
	s.t.Helper()
	der, err := x509.MarshalPKIXPublicKey(crypto.PublicKey(s.key.Public()))
	require.NoError(s.t, err)
	key := pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})
	self, err := os.Executable()
	require.NoError(s.t, err)
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), childVariable+"="+strings.Join([]string{s.location().String(), s.dir, s.host, string(key)}, "\n"))
	var log strings.Builder
	cmd.Stderr = &log
	require.NoError(s.t, cmd.Start())
	socket := filepath.Join(s.dir, socketFile)
	require.Eventually(s.t, func() bool {
		_, err := os.Stat(socket)
		return err == nil
	}, 30*time.Second, time.Millisecond)
	time.Sleep(d)
	require.NoError(s.t, cmd.Process.Kill())
	_ = cmd.Wait() // killed
	require.NoError(s.t, os.Remove(socket))
	return log.String()
}
