package simulation

import (
	"bufio"
	"fmt"
	"math"
	"os"
	"strings"

	"github.com/wherry-dev/wherry/bundle/delta"
)

// freeMemory returns the memory that this process may still take, in bytes; zero if that is not known.
func freeMemory() int64 {
	free, ok := delta.Available()
	if !ok {
		return 0
	}
	return free
}

// usage returns what this process has taken.
func usage(clusters int) Process {
	p := Process{CPUSeconds: math.Round(cpuSeconds()*100) / 100, PeakRSS: peakRSS()}
	if clusters > 0 {
		p.PerCluster = p.PeakRSS / int64(clusters)
	}
	return p
}

// peakRSS returns the largest resident set of this process, in bytes; zero on systems without /proc.
func peakRSS() int64 {
	f, err := os.Open("/proc/self/status")
	if err != nil {
		return 0
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if text, found := strings.CutPrefix(lines.Text(), "VmHWM:"); found {
			var n int64
			if _, err := fmt.Sscan(text, &n); err == nil {
				return n << 10
			}
		}
	}
	return 0
}
