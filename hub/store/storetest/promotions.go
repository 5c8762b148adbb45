package storetest

import (
	"testing"
	"time"

	"github.com/opencontainers/go-digest"
	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/hub/store"
)

func promotionTests() []test {
	return []test{
		{"the newest of what judges have posted is kept", func(t *testing.T, f *fixture) {
			p := store.Promotion{Platform: "shop", JudgedAt: Epoch, NextLook: Epoch.Add(time.Minute), Chain: []store.JudgedEnvironment{{Environment: "dev"}, {Environment: "prod"}}}
			first, second := digest.FromString("first"), digest.FromString("second")
			put := func(at time.Duration, content digest.Digest) store.PostedPromotion {
				p.JudgedAt = Epoch.Add(at)
				done, err := f.PutPromotion(t.Context(), p, content)
				require.NoError(t, err)
				return done
			}
			require.Equal(t, store.PostedPromotion{New: true, Changed: true}, put(0, first))
			require.Equal(t, store.PostedPromotion{New: true}, put(time.Minute, first), "only the times differ")
			require.Equal(t, store.PostedPromotion{}, put(time.Second, second), "a later one is there")
			require.Equal(t, store.PostedPromotion{New: true, Changed: true}, put(time.Hour, second))
			other := p
			other.Platform = "coffee"
			_, err := f.PutPromotion(t.Context(), other, first)
			require.NoError(t, err)
			for _, f := range []*fixture{f, f.again()} {
				all, err := f.Promotions(t.Context())
				require.NoError(t, err)
				require.Equal(t, []store.Promotion{other, p}, all)
			}
			entries, err := f.Entries(t.Context(), 0, 10)
			require.NoError(t, err)
			var kinds []store.FeedKind
			for _, e := range entries {
				kinds = append(kinds, e.Kind)
			}
			require.Equal(t, []store.FeedKind{store.FeedPromotion, store.FeedLook, store.FeedPromotion, store.FeedPromotion}, kinds)
			require.Equal(t, "shop", entries[0].Platform)
		}},
	}
}
