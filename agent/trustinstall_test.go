package agent

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/bbolt"

	"github.com/wherry-dev/wherry/agent/agenttest"
	"github.com/wherry-dev/wherry/agent/state"
	"github.com/wherry-dev/wherry/agent/trust"
	"github.com/wherry-dev/wherry/airgap"
	"github.com/wherry-dev/wherry/bundle"
)

func TestInstallingTakesTheNextVersionAndNoOther(t *testing.T) {
	s, first := underTrust(t)
	require.NoError(t, s.install(first), "again")
	other := first
	other.Document.ExpiresAt = other.Document.ExpiresAt.Add(time.Hour)
	second := first.Next(s.now)
	third := second.Next(s.now)
	foreign := second
	foreign.Document.Platform = "test"
	for words, d := range map[string]agenttest.Trust{
		"another version 1 of the trust document is installed":                       other,
		"this is version 3 of the trust document, and the next one here is 2":        third,
		`the trust document is for platform "test", and not for "default"`:           foreign,
		"trust document version 2 is signed by 0 of its own root keys, 1 are needed": {Document: second.Document},
	} {
		var refusal *bundle.Refusal
		require.ErrorAs(t, s.install(d), &refusal)
		require.Contains(t, refusal.Message, words)
	}
	require.NoError(t, s.install(first, second, third))
	require.Len(t, s.known().Chain, 3)
}

func TestADamagedTrustDocumentIsSaidToBeSo(t *testing.T) {
	s, _ := underTrust(t)
	s.agent(func(a *Agent) {
		require.NoError(t, a.state.db.Update(func(tx *bbolt.Tx) error {
			return tx.Bucket([]byte(trust.Bucket)).Put(fmt.Appendf(nil, "%019d", 1), []byte("{}"))
		}))
	})
	_, err := OpenState(s.dir, s.opts.Now)
	require.ErrorIs(t, err, state.ErrDamaged)
}

// A site without a registry, which the media of three epochs reach. What lies between is in each file.
func TestTrustDocumentsComeByFile(t *testing.T) {
	s, first := underTrust(t)
	second := first.Next(s.now)
	second.Document.ExpiresAt = second.Document.IssuedAt.Add(time.Second)
	third := second.Next(s.now)
	third.Document.Epoch, third.Document.ExpiresAt = 2, s.now.AddDate(1, 0, 0)
	s.offerTrust(first, second, third)
	s.epoch = 2
	d := s.publish(s.draft(1, shop))
	path := s.export(s.stream)
	s.now = s.now.Add(time.Hour) // version 2 has expired, and is only passed

	r := s.imported(path)

	require.Equal(t, Done, r.Verdict, r.Error)
	require.Equal(t, d.Digest, r.Status.Release.Running.Digest)
	require.EqualValues(t, 3, r.Status.Trust.Version)
	require.Equal(t, Idle, s.imported(path).Verdict, "again")

	// Another file with the same release, and with a document that nobody has signed.
	fourth := third.Next(s.now)
	fourth.Signers = nil
	s.offerTrust(fourth)
	r = s.imported(s.export(s.stream))
	require.Equal(t, Refused, r.Verdict)
	require.Contains(t, r.Error, "signed by 0 of its own root keys")
	require.Equal(t, bundle.Compliant, r.Status.State, "the release is the accepted one")
	require.Nil(t, r.Status.Release.Refused)
	require.Equal(t, string(bundle.TrustDocumentRejected), r.Status.Reason)
}

func TestADocumentOfAnotherPlatformLetsNothingIn(t *testing.T) {
	s, first := underTrust(t)
	s.publish(s.draft(1, shop))
	s.requireTaken()
	s.stream.Platform = "test" // the agent is told that it belongs to another one, whose releases the same keys sign
	s.publish(s.draft(2, shop))
	r := s.once()
	require.Equal(t, Refused, r.Verdict)
	require.Equal(t, string(bundle.WrongPlatform), r.Status.Reason)
	require.Contains(t, r.Error, `the trust document is for platform "default", and not for "test"`)
	require.ErrorContains(t, s.install(first), `the trust document is for platform "default"`)
}

func TestNoFileMakesAPinnedAgentOneWithADocumentButByInstalling(t *testing.T) {
	s := newSite(t)
	first := agenttest.NewTrust(s.stream.Platform, epoch, agenttest.NewKey(), s.key)
	s.offerTrust(first, first.Next(s.now))
	s.epoch = 1
	s.publish(s.draft(1, shop))
	path := s.export(s.stream)
	r := s.imported(path)
	require.Equal(t, Refused, r.Verdict)
	require.Equal(t, string(bundle.OldEpoch), r.Status.Reason)

	envelopes, err := trust.ReadFile(t.Context(), path)
	require.NoError(t, err)
	require.Len(t, envelopes, 2)
	s.agent(func(a *Agent) {
		change, err := a.InstallTrust(envelopes...)
		require.NoError(t, err)
		require.Nil(t, change.Before)
		require.EqualValues(t, 2, change.After.Version)
	})
	require.Equal(t, Done, s.imported(path).Verdict)
}

func TestFilesThatHoldNoTrustDocument(t *testing.T) {
	s := newSite(t)
	s.publish(s.draft(1, shop))
	for _, path := range []string{s.export(s.stream), s.file([]byte("hello")), s.file(nil)} {
		_, err := trust.ReadFile(t.Context(), path)
		require.ErrorIs(t, err, airgap.ErrFormat)
	}
	_, err := trust.ReadFile(t.Context(), filepath.Join(t.TempDir(), "none"))
	require.ErrorIs(t, err, os.ErrNotExist)
	envelopes, err := trust.ReadFile(t.Context(), s.file([]byte(" {}")))
	require.NoError(t, err, "what it holds is judged by who installs it")
	require.ErrorAs(t, s.installed(envelopes[0]), new(*bundle.Refusal))
}

func (s *site) installed(envelope []byte) (err error) {
	s.agent(func(a *Agent) { _, err = a.InstallTrust(envelope) })
	return err
}

func TestATrustDocumentIsInstalledIntoARunningAgent(t *testing.T) {
	s := newSite(t)
	s.opts.Now, s.opts.Interval, s.now = nil, time.Hour, time.Now()
	first := agenttest.NewTrust(s.stream.Platform, s.now, agenttest.NewKey(), s.key)
	s.epoch = 1
	s.publish(s.draft(1, shop))
	c := s.running()
	require.Eventually(t, func() bool {
		st, err := c.Status(context.Background())
		return err == nil && st.Reason == string(bundle.OldEpoch)
	}, time.Minute, 5*time.Millisecond)
	envelope, err := first.Envelope()
	require.NoError(t, err)
	known, err := c.Trust(t.Context())
	require.NoError(t, err)
	require.Empty(t, known.Chain)
	require.Len(t, known.Pinned, 1)

	change, err := c.InstallTrust(t.Context(), envelope)

	require.NoError(t, err)
	require.Equal(t, first.Document.Version, change.After.Version)
	require.Eventually(t, s.has("shop-main/config.yaml", "a: 1"), time.Minute, 5*time.Millisecond, "nobody has to ask")
	st, err := c.Status(t.Context())
	require.NoError(t, err)
	require.Equal(t, known.Pinned, st.Trust.PassedOver)
	second := first.Next(s.now)
	second.Signers = nil
	envelope, err = second.Envelope()
	require.NoError(t, err)
	_, err = c.InstallTrust(t.Context(), envelope)
	require.ErrorIs(t, err, bundle.ErrUntrusted)
	require.ErrorContains(t, err, "signed by 0 of its own root keys")
}
