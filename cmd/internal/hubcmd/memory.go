package hubcmd

import (
	"context"
	"os"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

const (
	// heapBound is the bound of the memory that Go manages. What SQLite keeps, up to some 50 MB, and the program itself are not a
	// part of it.
	heapBound = 352 << 20
	// rareGC is the growth of the heap, in percent, after which garbage is collected while the heap is far from its bound.
	rareGC = 300
	// heapWatch is how often the bound is compared with what is in use.
	heapWatch = time.Second
)

// boundMemory has garbage collected seldom while there is little in memory, and often near the bound: a hub makes much garbage
// while it takes reports, and has the fleet in memory for as long as it runs. A fleet that needs more than the bound raises
// it. GOGC or GOMEMLIMIT in the environment are what an operator wants instead. It returns nil once ctx ends.
func boundMemory(ctx context.Context) error {
	if os.Getenv("GOGC") != "" || os.Getenv("GOMEMLIMIT") != "" {
		return nil
	}
	percent, limit := debug.SetGCPercent(rareGC), debug.SetMemoryLimit(heapBound)
	defer func() {
		debug.SetGCPercent(percent)
		debug.SetMemoryLimit(limit)
	}()
	again := time.NewTicker(heapWatch)
	defer again.Stop()
	live := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	for {
		metrics.Read(live)
		debug.SetMemoryLimit(boundFor(int64(live[0].Value.Uint64())))
		select {
		case <-again.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// boundFor returns the bound for so many bytes in use: half as much again, or the collector would work all the time.
func boundFor(live int64) int64 { return max(heapBound, live+live/2) }
