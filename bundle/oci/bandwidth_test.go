package oci

import (
	"io"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestABandwidthHoldsForAllConnectionsTogether(t *testing.T) {
	t.Parallel()
	const rate, each, conns = 16 << 10, 32 << 10, 2
	synctest.Test(t, func(t *testing.T) {
		b := &bandwidth{rate: rate}
		begun := time.Now()
		var done sync.WaitGroup
		for range conns {
			from, to := net.Pipe()
			done.Go(func() {
				_, err := from.Write(make([]byte, each))
				require.NoError(t, err)
				require.NoError(t, from.Close())
			})
			done.Go(func() {
				n, err := io.Copy(io.Discard, b.limit(to))
				require.NoError(t, err)
				require.EqualValues(t, each, n)
			})
		}
		done.Wait()
		require.InDelta(t, each*conns/rate, time.Since(begun).Seconds(), 0.3)
	})
}
