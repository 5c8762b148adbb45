package agent

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/agent/agenttest"
	"github.com/wherry-dev/wherry/agent/state"
	"github.com/wherry-dev/wherry/airgap/export"
	"github.com/wherry-dev/wherry/bundle"
)

// export writes the newest bundle of stream to a file.
func (s *site) export(stream bundle.Stream) string {
	s.t.Helper()
	var file bytes.Buffer
	require.NoError(s.t, export.Bundle(context.Background(), s.location(), stream.Environment, stream.ClusterType, &file))
	return s.file(file.Bytes())
}

func (s *site) file(data []byte) string {
	s.t.Helper()
	path := filepath.Join(s.t.TempDir(), "site.tar")
	require.NoError(s.t, os.WriteFile(path, data, 0o600))
	return path
}

// imported imports in a process of its own, so to speak, where there is no registry.
func (s *site) imported(path string) (r Result) {
	s.t.Helper()
	s.agent(func(a *Agent) {
		a.source = nil
		r = a.Import(context.Background(), ImportRequest{Paths: []string{path}}).Result
	})
	return r
}

func TestABundleComesByFile(t *testing.T) {
	s := newSite(t)
	d := s.publish(s.draft(1, map[string]string{"a-x/f": "1"}))
	path := s.export(s.stream)
	s.registry.away.Store(true)

	r := s.imported(path)

	require.Equal(t, Done, r.Verdict, r.Error)
	require.Equal(t, bundle.Compliant, r.Status.State)
	require.Equal(t, d.Digest, r.Status.Release.Running.Digest)
	require.Nil(t, r.Status.LastContact, "a file says nothing of the registry")
	requireFile(t, s.host, "a-x/f", "1")
	require.Equal(t, Idle, s.imported(path).Verdict, "again")
}

func TestAnAgentWhoseStateWasMovedAwayTakesNothingOlderThanItsStore(t *testing.T) {
	s := newSite(t)
	s.publish(s.draft(1, map[string]string{"a-x/f": "1"}))
	older := s.export(s.stream)
	s.publish(s.draft(2, map[string]string{"a-x/f": "2"}))
	newest := s.export(s.stream)
	require.Equal(t, Done, s.imported(newest).Verdict)

	require.NoError(t, os.Remove(filepath.Join(s.dir, "agent.db")))
	var r ImportResult
	s.agent(func(a *Agent) {
		a.source = nil
		r = a.Import(t.Context(), ImportRequest{Paths: []string{older}})
	})
	require.Equal(t, []string{"dev/drone older OlderRelease"}, outcomes(r))
	requireFile(t, s.host, "a-x/f", "2")
	require.Nil(t, r.Status.Release.Running)
	require.Equal(t, Done, s.imported(newest).Verdict)
	requireFile(t, s.host, "a-x/f", "2")

	// What the keys have not signed proves nothing.
	require.NoError(t, os.Remove(filepath.Join(s.dir, "agent.db")))
	s.key = agenttest.NewKey().(*ecdsa.PrivateKey)
	s.publish(s.draft(3, map[string]string{"a-x/f": "1"}))
	older = s.export(s.stream)
	s.agent(func(a *Agent) {
		a.source, a.pinned = nil, bundle.Pinned(bundle.Keys{s.key.Public()})
		a.intake = a.newKeeper()
		r = a.Import(t.Context(), ImportRequest{Paths: []string{older}})
	})
	require.Equal(t, Done, r.Verdict, r.Error)
}

func TestAnOlderMediumIsReportedAndChangesNothing(t *testing.T) {
	s := newSite(t)
	first := s.publish(s.draft(1, map[string]string{"a-x/f": "1"}))
	older := s.export(s.stream)
	s.publish(s.draft(2, map[string]string{"a-x/f": "2"}))
	require.Equal(t, Done, s.imported(s.export(s.stream)).Verdict)
	before := s.lastReport()
	require.Nil(t, before.OlderMedium)

	r := s.imported(older)
	require.Equal(t, bundle.Compliant, r.Status.State)
	want := &bundle.OlderMedium{Digest: first.Digest, At: state.Stamp(s.now)}
	require.Equal(t, want, r.Status.OlderMedium)
	after := s.lastReport()
	require.Equal(t, bundle.Event, after.Kind)
	require.Equal(t, want, after.OlderMedium)
	require.Equal(t, before.State, after.State)
	require.Equal(t, before.Observed, after.Observed)

	s.imported(older)
	require.Equal(t, after.Agent.Seq, s.lastReport().Agent.Seq, "the same medium again is no other event")
	s.now = s.now.Add(2 * sameMedium)
	s.imported(older)
	require.Equal(t, state.Stamp(s.now), s.lastReport().OlderMedium.At)
	s.publish(s.draft(3, map[string]string{"a-x/f": "3"}))
	require.Nil(t, s.imported(s.export(s.stream)).Status.OlderMedium, "it is over with a newer release")
}

func TestAnAgentWithARingTakesARelaseForItByFile(t *testing.T) {
	s := newSite(t)
	d := s.draft(1, map[string]string{"a-x/f": "1"})
	d.Release.Rings = []string{"canary"}
	s.publish(d)
	path := s.export(s.stream)
	s.agent(func(a *Agent) {
		a.cluster.Ring = "canary"
		a.intake = a.newKeeper()
		r := a.Import(context.Background(), ImportRequest{Paths: []string{path}}).Result
		require.Equal(t, Done, r.Verdict, r.Error)
	})
}

func TestFilesAreJudgedLikeRegistries(t *testing.T) {
	for _, tc := range []struct {
		name string
		file func(s *site) string
		want string
	}{
		{"bundle of another cluster type", func(s *site) string {
			other := s.stream
			other.ClusterType = "large"
			d := s.draft(6, map[string]string{"a-x/f": "0"})
			d.Release.ClusterType, d.repo = "large", s.repository(other)
			s.publish(d)
			return s.export(other)
		}, string(bundle.WrongClusterType)},
		{"changed layer", func(s *site) string {
			s.publish(s.draft(6, map[string]string{"a-x/f": "0"}))
			data, err := os.ReadFile(s.export(s.stream))
			require.NoError(s.t, err)
			at := bytes.Index(data, []byte{0x1f, 0x8b, 0x08})
			data[at+60] ^= 1
			return s.file(data)
		}, string(bundle.DigestMismatch)},
		{"changed manifest", func(s *site) string {
			s.publish(s.draft(6, map[string]string{"a-x/f": "0"}))
			data, err := os.ReadFile(s.export(s.stream))
			require.NoError(s.t, err)
			return s.file(bytes.Replace(data, []byte(`"artifactType":"application/vnd.wherry.bundle`), []byte(`"artifactType":"application/vnd.wherry.bumble`), 1))
		}, string(bundle.DigestMismatch)},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t)
			good := s.publish(s.draft(5, map[string]string{"a-x/f": "1"}))
			require.Equal(t, Done, s.imported(s.export(s.stream)).Verdict)

			r := s.imported(tc.file(s))

			require.Equal(t, Refused, r.Verdict, r.Error)
			require.Equal(t, tc.want, r.Status.Reason)
			require.Equal(t, good.Digest, r.Status.Release.Running.Digest)
			requireFile(t, s.host, "a-x/f", "1")
		})
	}
}

func TestAFileThatIsNoneChangesNothing(t *testing.T) {
	s := newSite(t)
	r := s.imported(s.file([]byte("hello")))
	require.Equal(t, Broken, r.Verdict)
	require.Contains(t, r.Error, "not a tar archive")
	require.Equal(t, bundle.Pending, r.Status.State)
}

func TestAPersonAllowsAnExpiredRelease(t *testing.T) {
	s := newSite(t)
	d := s.publish(s.draft(1, map[string]string{"a-x/f": "1"}))
	path := s.export(s.stream)
	s.now = s.now.Add(10 * 365 * 24 * time.Hour)
	r := s.imported(path)
	require.Equal(t, Refused, r.Verdict, r.Error)
	require.Equal(t, string(bundle.Expired), r.Status.Reason)

	s.agent(func(a *Agent) {
		a.source = nil
		r = a.Import(t.Context(), ImportRequest{Paths: []string{path}, AllowExpired: "the boat was\n late"}).Result
	})
	require.Equal(t, Done, r.Verdict, r.Error)
	require.Equal(t, d.Digest, r.Status.Release.Running.Digest)
	require.Equal(t, "the boat was late", r.Status.Release.Running.AllowExpired)
	requireFile(t, s.host, "a-x/f", "1")
	s.agent(func(a *Agent) {
		reports := openReports(t, a)
		require.Equal(t, "the boat was late", reports[len(reports)-1].Observed.AllowExpired)
	})
	require.Equal(t, Idle, s.imported(path).Verdict, "what was accepted stays so")

	// The next one that has not expired needs no reason, and has none.
	s.publish(s.draft(2, map[string]string{"a-x/f": "2"}))
	s.agent(func(a *Agent) {
		r = a.Import(t.Context(), ImportRequest{Paths: []string{s.export(s.stream)}, AllowExpired: "again"}).Result
	})
	require.Equal(t, Done, r.Verdict, r.Error)
	require.Empty(t, r.Status.Release.Running.AllowExpired)
}
