package agent

import (
	"context"
	"crypto"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/agent/engines"
	"github.com/wherry-dev/wherry/agent/probation"
	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/oci"
	"github.com/wherry-dev/wherry/reconcilers"
	"github.com/wherry-dev/wherry/reconcilers/directory"
)

// deadly is a content of a file f of which the child dies, as if the kernel had killed it for want of memory.
const deadly = "deadly"

// crashVariable makes the test binary an agent that runs until it is killed: registry, state folder, host folder and
// public key, separated by newlines.
const crashVariable = "WHERRY_TEST_CRASH"

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
		Engines:     engines.Options{Reconcilers: map[string]reconcilers.Reconciler{"directory": childEngine(args[2])}},
		Log:         slog.New(slog.NewTextHandler(os.Stderr, nil)),
	}).Run(context.Background())
}

func childEngine(host string) reconcilers.Reconciler {
	return fatal{directory.New(host, directory.Options{})}
}

type fatal struct{ reconcilers.Reconciler }

func (f fatal) Apply(ctx context.Context, a reconcilers.Assignment) reconcilers.Result {
	if content, err := os.ReadFile(filepath.Join(a.Dir, "f")); err == nil && string(content) == deadly {
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		<-ctx.Done()
	}
	return f.Reconciler.Apply(ctx, a)
}

// child starts an agent in a process of its own. It is killed when the test ends, if it still runs.
func (s *site) child() *exec.Cmd {
	s.t.Helper()
	der, err := x509.MarshalPKIXPublicKey(crypto.PublicKey(s.key.Public()))
	require.NoError(s.t, err)
	key := pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})
	self, err := os.Executable()
	require.NoError(s.t, err)
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), crashVariable+"="+strings.Join([]string{s.location().String(), s.dir, s.host, string(key)}, "\n"))
	require.NoError(s.t, cmd.Start())
	return cmd
}

// dies runs an agent in a process of its own, which is killed as if for want of memory.
func (s *site) dies() {
	s.t.Helper()
	var exit *exec.ExitError
	require.ErrorAs(s.t, s.child().Wait(), &exit)
	require.Equal(s.t, syscall.SIGKILL, exit.Sys().(syscall.WaitStatus).Signal())
}

func TestAReleaseThatKillsTheAgentIsGivenUp(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.now = time.Now()
	good := s.publish(s.draft(1, files(map[string]string{"a-x": "1", "b-x": "1"})))
	require.Equal(t, bundle.Compliant, s.once().Status.State)
	bad := s.publish(s.draft(2, files(map[string]string{"a-x": deadly, "b-x": "2"})))
	s.dies()
	s.dies()

	s.opts.Interval = time.Hour
	r := s.once()

	require.Equal(t, bad.Digest, r.Status.Release.Running.Digest)
	require.Equal(t, bundle.Failed, r.Status.Items[0].State)
	require.Equal(t, "AgentDied", r.Status.Items[0].Reason)
	require.Regexp(t, `^the agent has died 2 times in a row while it was applied; it is tried again after 2[0-9T:-]*Z, or at new content$`, r.Status.Items[0].Message)
	require.Equal(t, bundle.Compliant, r.Status.Items[1].State)
	requireFile(t, s.host, "a-x/f", "1")
	requireFile(t, s.host, "b-x/f", "2")

	s.now = s.now.Add(3 * time.Minute)
	r = s.attempts(3)
	require.Equal(t, good.Digest, r.Status.Release.Running.Digest)
	require.Equal(t, "Quarantined", r.Status.Reason)
	require.Equal(t, ReasonAssignmentsFailed, r.Status.Release.Quarantined[0].Reason)
	require.Contains(t, r.Status.Message, "a-x (AgentDied: the agent has died 2 times in a row")
	requireFile(t, s.host, "b-x/f", "1")
	child := s.child() // which would die of it
	require.Eventually(t, func() bool {
		st, err := NewClient(s.dir).Status(context.Background())
		return err == nil && st.Release.Running.Digest == good.Digest && st.LastContact != nil
	}, time.Minute, 5*time.Millisecond)
	require.NoError(t, child.Process.Kill())
	require.Error(t, child.Wait())
}

// Whatever else a release holds, and wherever the assignment is that kills the agent, the third start brings all others that do
// not depend on it.
func TestAnAgentThatIsKilledWithinOneAssignmentBringsTheOthersInThreeStarts(t *testing.T) {
	t.Parallel()
	for seed := range uint64(4) {
		random := rand.New(rand.NewPCG(seed, 0))
		s := newSite(t)
		s.now, s.opts.Now = time.Now(), nil
		contents, change := map[string]string{}, map[string]func(*bundle.Assignment){}
		var names []string
		for i := range 5 + random.IntN(60) {
			names = append(names, fmt.Sprintf("a%02d-x", i))
			contents[names[i]] = "1"
		}
		killer := names[random.IntN(len(names))]
		contents[killer] = deadly
		waits := map[string]bool{killer: true}
		for _, name := range names {
			wave, needs := random.IntN(3), []string(nil)
			if name != killer && random.IntN(8) == 0 {
				needs, waits[name] = []string{killer}, true
			}
			change[name] = func(a *bundle.Assignment) { a.Wave, a.DependsOn = wave, needs }
		}
		s.publishAs(1, files(contents), change)
		for range 3 {
			s.dies()
		}
		for _, name := range names {
			if !waits[name] {
				requireFile(t, s.host, name+"/f", "1")
			}
		}
		s.opts.Interval = time.Hour
		for _, item := range s.once().Status.Items {
			want := bundle.Compliant
			switch {
			case item.Assignment == killer:
				want = bundle.Failed
			case waits[item.Assignment]:
				want = bundle.Pending
			}
			require.Equal(t, want, item.State, "seed %d: %s: %s", seed, item.Assignment, item.Message)
		}
	}
}

func TestAnAssignmentAtWhichTheAgentDiedIsTriedAgain(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		then func(s *site)
		want bundle.State
	}{
		"not before the rest is over": {func(s *site) { s.now = s.now.Add(59 * time.Minute) }, bundle.Failed},
		"after the rest":              {func(s *site) { s.now = s.now.Add(61 * time.Minute) }, bundle.Compliant},
		"at new content":              {func(s *site) { s.publish(s.draft(2, files(map[string]string{"a-x": "2"}))) }, bundle.Compliant},
		"when a person asks for it": {func(s *site) {
			s.agent(func(a *Agent) {
				_, err := a.state.Resume(true, s.now)
				require.NoError(s.t, err)
			})
		}, bundle.Compliant},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t)
			s.now = time.Now()
			s.publish(s.draft(1, files(map[string]string{"a-x": deadly})))
			s.dies()
			s.dies()
			s.opts.Interval = time.Hour
			require.Equal(t, "AgentDied", s.once().Status.Items[0].Reason)
			tc.then(s)
			require.Equal(t, tc.want, s.once().Status.Items[0].State)
		})
	}
	t.Run("after the machine has lost its power", func(t *testing.T) {
		s := newSite(t)
		s.now = time.Now()
		s.publish(s.draft(1, files(map[string]string{"a-x": deadly})))
		s.dies()
		s.dies()
		s.opts.Boot = "another"
		require.Equal(t, bundle.Compliant, s.once().Status.State)
	})
}

// crash makes a pass that ends as if the power were cut when engines were about to be called.
func (s *site) crash() {
	s.t.Helper()
	s.agent(func(a *Agent) {
		ctx := context.Background()
		p := newPass(a, scope{from: a.source})
		require.NoError(s.t, p.remember())
		require.NoError(s.t, p.breakLoop(ctx))
		got, _ := p.puller().pull(ctx)
		g := p.guard(got)
		require.NoError(s.t, g.Begin(ctx))
		_, err := p.choose(ctx, got, g)
		require.NoError(s.t, err)
		rollout, err := p.rollout()
		require.NoError(s.t, err)
		_, err = p.noteAttempt(ctx, rollout, g)
		require.NoError(s.t, err)
	})
}

func TestAnAgentThatDiesAgainAndAgainGivesTheReleaseUp(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	good := s.publish(s.draft(1, files(map[string]string{"a-x": "1"})))
	s.once()
	s.publish(s.draft(2, files(map[string]string{"a-x": "2"})))
	for range probation.MaxAttempts {
		s.crash()
	}
	r := s.once()
	require.Equal(t, good.Digest, r.Status.Release.Running.Digest)
	require.Regexp(t, `release 2 \([0-9a-f]{8}\) was given up; release 1 \([0-9a-f]{8}\) runs: CrashLoop: the agent has died 3 times in a row while it applied it`, r.Status.Message)
	require.Equal(t, ReasonCrashLoop, r.Status.Release.Quarantined[0].Reason)
}

func TestAPowerCutNowAndThenIsNoCrashLoop(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	engine := s.moody(map[string]reconcilers.Result{"a-x=2": {State: bundle.Progressing, Reason: "NotReady"}})
	s.publish(s.draft(1, files(map[string]string{"a-x": "1"})))
	s.once()
	next := s.publish(s.draft(2, files(map[string]string{"a-x": "2"})))
	for range 2 {
		for range probation.MaxAttempts - 1 {
			s.crash()
		}
		require.Equal(t, next.Digest, s.once().Status.Release.Running.Digest)
		engine.moods["a-x=2"] = unhealthy // so that there is something to be done again
		s.once()
	}
	require.Empty(t, s.once().Status.Release.Quarantined)
}

func TestACrashLoopWithNothingToGoBackToRests(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.publish(s.draft(1, files(map[string]string{"a-x": "1"})))
	for range probation.MaxAttempts {
		s.crash()
	}
	for range 2 {
		s.now = s.now.Add(probation.CrashRest / 3)
		r := s.once()
		require.Equal(t, bundle.Failed, r.Status.State)
		require.Equal(t, ReasonCrashLoop, r.Status.Reason)
		require.Regexp(t, `until 2026-03-01T14:00:00Z: the agent has died 3 times in a row while it applied release 1 \([0-9a-f]{8}\)`, r.Status.Message)
		require.NoDirExists(t, filepath.Join(s.host, "a-x"))
	}
	s.now = s.now.Add(probation.CrashRest / 3)
	s.crash()
	require.Equal(t, ReasonCrashLoop, s.once().Status.Reason, "one more attempt, and it rests again")
	s.now = s.now.Add(probation.CrashRest)

	r := s.once()

	require.Equal(t, bundle.Compliant, r.Status.State)
	require.Empty(t, r.Status.Reason)
}

func TestACrashLoopOfWhatAsksForHoldRests(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.publish(s.draft(1, files(map[string]string{"a-x": "1", "b-x": "1"})))
	s.once()
	d := s.draft(2, files(map[string]string{"a-x": "1", "b-x": "2"}))
	d.ChangeList = func(as []bundle.Assignment) { as[1].OnFailure = "hold" }
	next := s.publish(d)
	for range probation.MaxAttempts {
		s.crash()
	}
	r := s.once()
	require.Equal(t, next.Digest, r.Status.Release.Running.Digest)
	require.Equal(t, ReasonCrashLoop, r.Status.Reason)
	require.Empty(t, r.Status.Release.Quarantined)
	requireFile(t, s.host, "b-x/f", "1")
}

func TestAPersonNeedNotWaitForTheRest(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.publish(s.draft(1, files(map[string]string{"a-x": "1"})))
	for range probation.MaxAttempts {
		s.crash()
	}
	s.agent(func(a *Agent) {
		_, err := a.state.Resume(true, s.now)
		require.NoError(t, err)
	})
	require.Equal(t, bundle.Compliant, s.once().Status.State)
}

// What killed the agent is the content of the good one: there is nothing to go back to.
func TestARenewalOfTheGoodOneIsNeverGivenUp(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.publish(s.draft(1, files(map[string]string{"a-x": "1"})))
	s.once()
	s.publish(s.draft(2, files(map[string]string{"a-x": "1"})))
	require.NoError(t, os.RemoveAll(filepath.Join(s.host, "a-x")))
	s.agent(func(a *Agent) {
		p := newPass(a, scope{})
		require.NoError(t, p.remember())
		next := *p.running
		next.Manifest.Digest = bundle.NewBlob("", []byte("renewal")).Descriptor.Digest
		p.running, p.probation = &next, probation.Probation{Release: next.Digest(), Interrupted: probation.MaxAttempts}
		require.NoError(t, p.breakLoop(context.Background()))
		require.Empty(t, p.quarantine)
	})
}
