package storetest

import (
	"fmt"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/wherry-dev/wherry/hub/store"
)

// Decision returns a decision about the environment prod.
func Decision(n int, own bool) store.StoredDecision {
	return store.StoredDecision{
		Platform: "shop", Environment: "prod", Digest: digest.FromString(fmt.Sprint("decision ", n)), IssuedAt: Epoch.Add(time.Duration(n) * time.Minute),
		SeenAt: Epoch, Own: own, Envelope: fmt.Appendf(nil, "envelope %d", n),
	}
}

func decisionTests() []test {
	return []test{
		{"decisions are kept as they came, newest first", func(t *testing.T, f *fixture) {
			old, newer, other := Decision(1, true), Decision(2, false), Decision(3, false)
			other.Environment = "dev"
			for _, d := range []store.StoredDecision{newer, old, other} {
				added, err := f.AddDecision(t.Context(), d)
				require.NoError(t, err)
				require.True(t, added)
			}
			added, err := f.again().AddDecision(t.Context(), old)
			require.NoError(t, err)
			require.False(t, added)
			entries, err := f.Entries(t.Context(), 0, 10)
			require.NoError(t, err)
			require.Len(t, entries, 3, "one each, and none for what was there")
			require.Equal(t, store.FeedDecision, entries[0].Kind)
			require.Equal(t, newer.Digest, entries[0].Digest)
			require.Equal(t, "prod", entries[0].Environment)
			require.Equal(t, "shop", entries[0].Platform)
			for _, f := range []*fixture{f, f.again()} {
				got, err := f.Decisions(t.Context(), "prod")
				require.NoError(t, err)
				require.Equal(t, []store.StoredDecision{newer, old}, got)
			}
			none, err := f.Decisions(t.Context(), "none")
			require.NoError(t, err)
			require.Empty(t, none)
		}},
		{"decisions are kept, all of them, but for a bound on those of others", func(t *testing.T, f *fixture) {
			require.NoError(t, f.fillDecisions(store.MaxDecisions))
			_, err := f.AddDecision(t.Context(), Decision(store.MaxDecisions, false))
			require.ErrorIs(t, err, store.ErrFull)
			another := Decision(store.MaxDecisions, false)
			another.Platform, another.Digest = "tea", digest.FromString("tea")
			_, err = f.AddDecision(t.Context(), another)
			require.NoError(t, err, "the bound is that of one platform")
			added, err := f.AddDecision(t.Context(), Decision(store.MaxDecisions+1, true))
			require.NoError(t, err, "the hub's own have none")
			require.True(t, added)
			f.clock.Add(10 * 365 * 24 * time.Hour)
			_, err = f.AddDecision(t.Context(), Decision(store.MaxDecisions+2, true))
			require.NoError(t, err)
			all, err := f.Decisions(t.Context(), "prod")
			require.NoError(t, err)
			require.Len(t, all, store.MaxDecisions+3)
			require.Equal(t, Decision(0, false), all[len(all)-1], "the oldest is there")
		}},
	}
}

// fillDecisions adds so many decisions of others, several at a time.
func (f *fixture) fillDecisions(n int) error {
	var g errgroup.Group
	g.SetLimit(64)
	for i := range n {
		g.Go(func() error {
			_, err := f.AddDecision(f.t.Context(), Decision(i, false))
			return err
		})
	}
	return g.Wait()
}
