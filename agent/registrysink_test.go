package agent

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"
	"github.com/stretchr/testify/require"
	"oras.land/oras-go/v2/errdef"

	"github.com/wherry-dev/wherry/agent/state"
	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/hubapi"
	"github.com/wherry-dev/wherry/bundle/oci"
	"github.com/wherry-dev/wherry/hub"
)

// reporting has the site's agent push its reports to the site's registry.
func reporting(t *testing.T) (*site, *hub.Hub) {
	s, h := newSite(t), openHub(t)
	store, err := s.location().Open(oci.Options{HTTPClient: &http.Client{Transport: s.registry.Client().Transport, Timeout: time.Minute}})
	require.NoError(t, err)
	s.opts.Reports.Store, s.opts.Reports.Place, s.opts.Hub.Key = store, "oci://registry", h.PublicKey()
	s.publish(s.draft(1, map[string]string{"a-x/f": "1"}))
	register(t, h, s.once().Status)
	return s, h
}

// tags are those of the repository of the site's reports.
func (s *site) tags() []string {
	tags, err := s.at("reports/plant-7").Tags(context.Background())
	require.NoError(s.t, err)
	return tags
}

func (s *site) tag(seq int64) string { return bundle.ReportTag(epoch.Add(time.Hour).Unix(), seq) }

func (s *site) rollOut(n int64) Result {
	s.publish(s.draft(n, map[string]string{"a-x/f": string(rune('a' + n))}))
	return s.once()
}

func (s *site) queued() int {
	var st Status
	s.agent(func(a *Agent) { st, _ = a.Status() })
	return st.Queue.Length
}

func collect(t *testing.T, s *site, h *hub.Hub, accepted, duplicates int) {
	t.Helper()
	got, err := h.Collect(context.Background(), "registry", s.opts.Reports.Store)
	require.NoError(t, err)
	require.Empty(t, got.Rejected)
	require.Equal(t, accepted, got.Accepted)
	require.Equal(t, duplicates, got.Duplicates)
}

func TestReportsAndAcknowledgementsTravelByRegistry(t *testing.T) {
	s, h := reporting(t)
	s.rollOut(2)
	require.Equal(t, []string{s.tag(1), s.tag(2)}, s.tags())
	before := s.registry.requests.Load()
	s.once()
	require.LessOrEqual(t, s.registry.requests.Load()-before, int64(3), "what was pushed is not pushed again")

	collect(t, s, h, 2, 0)
	collect(t, s, h, 0, 0)
	require.EqualValues(t, 2, shownClusters(t, h)[0].Observed.Sequence)
	require.Equal(t, 2, s.queued())
	require.Equal(t, 0, s.once().Status.Queue.Length+s.queued())
	require.Equal(t, []string{"ack"}, s.tags(), "what is acknowledged goes")

	s.rollOut(3)
	collect(t, s, h, 1, 0)
	collect(t, s, h, 0, 0)
	s.once()
	require.Zero(t, s.queued())
	require.Equal(t, []string{"ack"}, s.tags())
}

func TestTheRegistryFollowsTheQueue(t *testing.T) {
	s, _ := reporting(t)
	for range 5 { // hours in which nothing happens and nobody collects
		s.now = s.now.Add(61 * time.Minute)
		s.once()
	}
	require.Equal(t, 2, s.queued())
	require.Equal(t, []string{s.tag(1), s.tag(6)}, s.tags(), "a heartbeat makes the one before superfluous, there too")
}

func TestARegistryThatDeletesNothingIsLeftAlone(t *testing.T) {
	s, h := reporting(t)
	hook := func(w http.ResponseWriter, r *http.Request) bool {
		if r.Method != http.MethodDelete {
			return false
		}
		w.WriteHeader(http.StatusMethodNotAllowed)
		return true
	}
	s.registry.hook.Store(&hook)
	s.rollOut(2)
	collect(t, s, h, 2, 0)
	s.once()
	require.Zero(t, s.queued())
	require.Contains(t, s.log.String(), "does not delete")
	s.rollOut(3)
	collect(t, s, h, 1, 0)
	s.once()
	require.Zero(t, s.queued())
	require.Len(t, s.tags(), 4, "which the registry's own retention has to take")
}

func TestOnlyTheRightHubsAcknowledgementInARegistryDeletes(t *testing.T) {
	s, h := reporting(t)
	s.rollOut(2)
	_, stranger, err := ed25519.GenerateKey(rand.Reader)
	require.NoError(t, err)
	other := &testHub{key: stranger}
	var ids []digest.Digest
	s.agent(func(a *Agent) {
		ids = waiting(t, a)
	})
	for name, envelope := range map[string][]byte{
		"forged":  other.ack(stranger, "plant-7", ids),
		"no ack":  []byte(`{"payloadType":"x"}`),
		"foreign": other.ack(stranger, "plant-8", ids),
	} {
		s.putAck(envelope)
		s.once()
		require.Equal(t, 2, s.queued(), name)
	}
	// A manifest that is tagged as an acknowledgement and is none.
	repo := s.at("reports/plant-7")
	m, err := repo.Resolve(t.Context(), s.tag(1))
	require.NoError(t, err)
	require.NoError(t, repo.Tag(t.Context(), m, bundle.AckTag))
	s.once()
	require.Equal(t, 2, s.queued())
	require.Contains(t, s.log.String(), "is not believed")
	require.NoError(t, repo.Untag(t.Context(), bundle.AckTag))

	collect(t, s, h, 2, 0)
	s.once()
	require.Zero(t, s.queued())
}

func (s *site) putAck(envelope []byte) {
	blobs, err := bundle.StoredAcks([][]byte{envelope})
	require.NoError(s.t, err)
	repo, ctx := s.at("reports/plant-7"), context.Background()
	for _, b := range blobs {
		if err := repo.Push(ctx, b.Descriptor, bytes.NewReader(b.Data)); !errors.Is(err, errdef.ErrAlreadyExists) {
			require.NoError(s.t, err)
		}
	}
	require.NoError(s.t, repo.Tag(ctx, blobs[len(blobs)-1].Descriptor, bundle.AckTag))
}

// A crash at each moment of a push, of reading an acknowledgement, and of deleting the acknowledged reports: the next start
// goes on, the hub has each report once, and nothing is left behind.
func TestAPushThatACrashHasCutShortIsDoneOnce(t *testing.T) {
	for n, cut := 0, true; cut; n++ {
		s, h := reporting(t)
		s.rollOut(2)
		collect(t, s, h, 2, 0)
		s.once()
		reports := s.opts.Reports.Store
		s.opts.Reports.Store = nil
		s.rollOut(3)
		s.opts.Reports.Store = reports
		left := n
		cut = s.cutShort(&left)
		_, err := h.Collect(t.Context(), "registry", reports)
		require.NoError(t, err)
		cut = s.cutShort(&left) || cut
		for range 2 {
			s.agent(func(a *Agent) {
				require.NoError(t, a.registrySink().Send(t.Context()))
			})
			_, err := h.Collect(t.Context(), "registry", reports)
			require.NoError(t, err)
		}
		s.once()
		require.EqualValues(t, 3, shownClusters(t, h)[0].Seq)
		require.Zero(t, s.queued(), "cut at moment %d", n)
		require.Equal(t, []string{"ack"}, s.tags(), "cut at moment %d", n)
		require.Less(t, n, 20)
	}
}

// cutShort makes a round that ends at the moment after left others. It reports whether there was such a moment.
func (s *site) cutShort(left *int) (cut bool) {
	defer func() { cut = recover() != nil }()
	s.agent(func(a *Agent) {
		a.state.db.Moment = func(name string) {
			if *left--; *left < 0 && !cut {
				cut = true
				panic(name)
			}
		}
		err := a.registrySink().Send(context.Background())
		require.NoError(s.t, err)
		a.state.db.Moment = nil
	})
	return false
}

// Another agent with the same identity has used the tag: neither is moved, and the hub sees both.
func TestAClonesReportIsNotOverwritten(t *testing.T) {
	s, h := reporting(t)
	copied := *s
	copied.dir, copied.host = t.TempDir(), t.TempDir()
	db, err := os.ReadFile(filepath.Join(s.dir, state.File))
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(copied.dir, state.File), db, 0o600))
	s.rollOut(2)
	copied.now = copied.now.Add(time.Second)
	copied.rollOut(3)
	tags := s.tags()
	require.Len(t, tags, 3)
	require.True(t, strings.HasPrefix(tags[2], s.tag(2)+"-"), tags)
	got, err := h.Collect(t.Context(), "registry", s.opts.Reports.Store)
	require.NoError(t, err)
	require.Len(t, got.Rejected, 1)
	require.Equal(t, hubapi.CodeConflict, got.Rejected[0].Reason)
}

func TestWithoutAHubWhatTheRegistryHasStoredIsDeleted(t *testing.T) {
	s := newSite(t)
	store, err := s.location().Open(oci.Options{HTTPClient: s.registry.Client()})
	require.NoError(t, err)
	s.opts.Reports.Store, s.opts.Reports.AckStored = store, true
	s.rollOut(1)
	require.Zero(t, s.queued())
	for range 3 {
		s.now = s.now.Add(61 * time.Minute)
		s.once()
	}
	s.rollOut(2)
	require.Zero(t, s.queued())
	require.Equal(t, []string{s.tag(1), s.tag(5)}, s.tags(), "heartbeats go when something newer is there")

	// A registry that returns other content than was pushed has stored nothing.
	spoil := func(path string, body []byte) []byte {
		if strings.Contains(path, "/reports/") && strings.Contains(path, "/blobs/") {
			return bytes.Repeat([]byte("x"), len(body))
		}
		return body
	}
	s.registry.spoil.Store(&spoil)
	s.rollOut(3)
	require.Equal(t, 1, s.queued())
	s.registry.spoil.Store(nil)
	s.once()
	require.Zero(t, s.queued())
}

func TestAnAgentWhoseRegistryIsAwayKeepsItsReports(t *testing.T) {
	s, _ := reporting(t)
	s.registry.away.Store(true)
	s.now = s.now.Add(61 * time.Minute)
	r := s.once()
	require.Equal(t, Unreachable, r.Verdict)
	require.Equal(t, 2, r.Status.Queue.Length)
	require.Contains(t, s.log.String(), "reports stay in the queue")
}
