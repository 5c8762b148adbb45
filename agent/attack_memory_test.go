package agent

import (
	"crypto/ecdsa"
	"encoding/json"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/agent/agenttest"
	"github.com/wherry-dev/wherry/agent/backup"
	"github.com/wherry-dev/wherry/agent/state"
	"github.com/wherry-dev/wherry/bundle"
)

// rotated is a site whose agent has version 2 of the trust document, of another release key than version 1, in its
// state and in its cluster's memory. stolen is the key that counts no more.
func rotated(t *testing.T) (s *site, c *fakeCluster, first, second agenttest.Trust, stolen *ecdsa.PrivateKey) {
	s, first = underTrust(t)
	c, stolen = newFakeCluster(), s.key
	second = first.Next(s.now)
	s.key = agenttest.NewKey().(*ecdsa.PrivateKey)
	second.Document.Release = agenttest.Role(1, s.key)
	require.NoError(t, s.install(second))
	s.bring(1, map[string]string{"a-x/f": "1"})
	require.Equal(t, bundle.Compliant, s.onceOn(c).Status.State)
	return s, c, first, second, stolen
}

func TestAttackOnAMachineSetUpAnewWithARetiredKey(t *testing.T) {
	s, c, first, _, stolen := rotated(t)
	s.anew()
	require.NoError(t, s.install(first))
	s.registry.trustAway.Store(true) // the thief of the key controls the registry, too
	good := s.key
	s.key = stolen
	s.bring(2, map[string]string{"evil-x/f": "1"})
	r := s.onceOn(c)
	require.EqualValues(t, 2, r.Status.Trust.Version, "as the cluster's memory has it")
	require.Equal(t, map[string]string{"a-x/f": "1"}, c.objects)

	s.registry.trustAway.Store(false)
	s.key = good
	s.bring(3, map[string]string{"b-x/f": "1"})
	require.Equal(t, bundle.Compliant, s.onceOn(c).Status.State)
	require.Equal(t, map[string]string{"b-x/f": "1"}, c.objects)
}

// An agent with a pinned key would have to believe in the roots of version 1, which anybody may have put there.
func TestAttackByRootsInTheMemory(t *testing.T) {
	s, c, first, second, _ := rotated(t)
	s.anew()
	s.bring(2, map[string]string{"b-x/f": "1"})
	r := s.onceOn(c)
	require.Equal(t, Refused, r.Verdict)
	require.EqualValues(t, bundle.TrustDocumentRejected, r.Status.Reason)
	require.Contains(t, r.Status.Message, "version 2 of the trust document was in force in this cluster, as Secret there/memory says, and this agent has version 0")
	require.Nil(t, r.Status.Trust)
	require.Equal(t, map[string]string{"a-x/f": "1"}, c.objects)

	require.NoError(t, s.install(first, second))
	require.Equal(t, bundle.Compliant, s.onceOn(c).Status.State)
	require.Equal(t, map[string]string{"b-x/f": "1"}, c.objects)
}

func TestAttackByForgedTrustDocumentsInTheMemory(t *testing.T) {
	s, c, first, _, stolen := rotated(t)
	doc, err := backup.Unpack(c.secret)
	require.NoError(t, err)
	thief := agenttest.NewTrust(s.stream.Platform, epoch, agenttest.NewKey(), agenttest.NewKey())
	forged, err := thief.Next(s.now).Envelope()
	require.NoError(t, err)
	doc.Trust[1] = forged
	doc.Generation++
	c.secret = must(doc.Encode())
	s.anew()
	require.NoError(t, s.install(first))
	s.key = stolen
	s.bring(2, map[string]string{"b-x/f": "1"})
	r := s.onceOn(c)
	require.EqualValues(t, bundle.TrustDocumentRejected, r.Status.Reason, "nothing new, rather than by what counted before")
	require.EqualValues(t, 1, r.Status.Trust.Version)
	require.Equal(t, map[string]string{"a-x/f": "1"}, c.objects)
}

// To be the release that was accepted before is a privilege, which nobody gets from a Secret.
func TestAttackByAnExpiredReleaseInTheMemory(t *testing.T) {
	s, c := newSite(t), newFakeCluster()
	d := s.bring(1, map[string]string{"a-x/f": "1"})
	s.onceOn(c)
	s.anew()
	s.now = d.Release.ExpiresAt
	r := s.onceOn(c)
	require.Equal(t, Refused, r.Verdict)
	require.EqualValues(t, bundle.Expired, r.Status.Reason)
	require.Equal(t, map[string]string{"a-x/f": "1"}, c.objects)
}

// An inventory can only list names, even of assignments that the agent never applied: an engine removes only objects with
// its marks. Engines on the machine do not use the inventory at all.
func TestAttackByAnInventoryInTheMemory(t *testing.T) {
	s, c := newSite(t), newFakeCluster()
	s.publishAs(1, map[string]string{"a-x/f": "1", "h-x/f": "1"}, map[string]func(*bundle.Assignment){"a-x": like(onCluster, 0)})
	s.onceOn(c)
	doc, err := backup.Unpack(c.secret)
	require.NoError(t, err)
	doc.Inventory = append(doc.Inventory, backup.Item{Name: "h-x", Adapter: "directory", Ledgers: map[string]json.RawMessage{"directory": json.RawMessage(`["/etc"]`)}})
	doc.Generation++
	c.secret = must(doc.Encode())
	s.anew()
	s.bring(2, map[string]string{"a-x/f": "1"})
	require.Equal(t, bundle.Compliant, s.onceOn(c).Status.State)
	requireFile(t, s.host, "h-x/f", "1")
}

// The worst that can be done by it: nothing new is taken, and nothing else changes.
func TestAttackByAnOrderInTheMemory(t *testing.T) {
	s, c := newSite(t), newFakeCluster()
	s.bring(1, map[string]string{"a-x/f": "1"})
	s.onceOn(c)
	doc, err := backup.Unpack(c.secret)
	require.NoError(t, err)
	doc.Orders[state.OrderKey(s.stream)] = backup.Position{Sequence: math.MaxInt64}
	doc.Generation++
	c.secret = must(doc.Encode())
	s.bring(2, map[string]string{"b-x/f": "1"})
	r := s.onceOn(c)
	require.EqualValues(t, bundle.OlderRelease, r.Status.Reason)
	require.Equal(t, map[string]string{"a-x/f": "1"}, c.objects)
}
