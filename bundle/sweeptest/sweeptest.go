// Package sweeptest selects the part of a sweep that a test runs.
//
// Some tests cut, kill or race a program at each byte, write or request in turn. make test takes a sample of these
// places, so that it is run before each commit; make soak, which sets WHERRY_SWEEP, takes all of them.
package sweeptest

import "os"

// Full reports whether a test has to try every place, in every way.
func Full() bool { return os.Getenv("WHERRY_SWEEP") != "" }

// Every returns n, the distance between two places of the sample, or 1 if all places are to be tried. Use a prime number,
// so that sweeps in two dimensions try different places.
func Every(n int) int {
	if Full() {
		return 1
	}
	return n
}
