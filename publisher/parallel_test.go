package publisher

import (
	"context"
	"fmt"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/publisher/keys"
	"github.com/wherry-dev/wherry/publisher/releases"
	"github.com/wherry-dev/wherry/scheduler"
)

// many has w render that many cluster types.
func (w *world) many(types int, version string) {
	w.result.ClusterTypes = nil
	for i := range types {
		name := fmt.Sprintf("type-%02d", i)
		w.result.ClusterTypes = append(w.result.ClusterTypes, scheduler.ClusterTypeResult{
			Name: name, Assignments: []scheduler.Assignment{assignment(name, "web-live", version)},
		})
	}
}

func TestManyClusterTypesAtOnceEndAsOneAfterTheOther(t *testing.T) {
	const types = 12
	inBoth(t, func(t *testing.T, w *world) {
		one := newWorld(t, "layout")
		one.key, w.opts.Parallel = w.key, 5
		var rows [2][]PublishedType
		for _, version := range []string{"v1", "v1", "v2"} {
			for i, w := range []*world{one, w} {
				w.many(types, version)
				w.now = w.now.Add(time.Hour)
				_, p := w.mustPublish()
				rows[i] = append(rows[i], p.ClusterTypes...)
				for _, ct := range p.ClusterTypes {
					require.Equal(t, ct.Digest, w.verified(ct.ClusterType, "latest").Descriptor.Digest)
				}
			}
		}
		require.Len(t, rows[0], 3*types)
		for i, row := range rows[1] { // digests differ: signatures do, and each release names its time
			require.Equal(t, rows[0][i].ClusterType, row.ClusterType)
			require.Equal(t, rows[0][i].Result, row.Result)
			require.Equal(t, rows[0][i].Number, row.Number)
			require.Equal(t, rows[0][i].Sequence, row.Sequence)
			require.Equal(t, rows[0][i].Digest, row.Digest, "a manifest has no signature, and the clock is the same")
		}
	})
}

// Whichever request fails while several cluster types are pushed, publishing again completes it.
func TestAFailureAmongManyClusterTypesLeavesNothingIncomplete(t *testing.T) {
	for _, nth := range []int64{1, 9, 40, 80, 140} {
		w := newWorld(t, "inmemory")
		w.opts.Parallel = 4
		w.many(8, "v1")
		var asked atomic.Int64
		w.front = func(rw http.ResponseWriter, _ *http.Request) bool {
			if asked.Add(1) < nth {
				return false
			}
			rw.WriteHeader(http.StatusForbidden)
			return true
		}
		_, err := w.publish()
		require.Error(t, err, "request %d", nth)
		w.front = nil
		outcomes, p := w.mustPublish()
		require.Equal(t, releases.OutcomePublished, outcomes["record"])
		for _, ct := range p.ClusterTypes {
			w.verified(ct.ClusterType, "latest")
		}
	}
}

func TestACancelledPublicationOfManyClusterTypesEnds(t *testing.T) {
	w := newWorld(t, "inmemory")
	w.opts.Parallel = 4
	w.many(8, "v1")
	ctx, cancel := context.WithCancel(t.Context())
	var asked atomic.Int64
	w.front = func(http.ResponseWriter, *http.Request) bool {
		if asked.Add(1) == 30 {
			cancel()
		}
		return false
	}
	opts := w.opts
	opts.Now = func() time.Time { return w.now }
	_, err := Publish(ctx, w.result, w.loc, []*keys.Key{w.key}, opts)
	require.ErrorIs(t, err, context.Canceled)
	w.mustPublish()
}
