// Package sweeptest says how much of a sweep a test makes.
//
// Some tests cut, kill or race a program at each byte, write or request in turn. make test takes a sample of these
// places, so that it is run before each commit; make soak, which sets WHERRY_SWEEP, takes all of them.
package sweeptest

import "os"

// Full reports whether a test is to try every place, and every way at each.
func Full() bool { return os.Getenv("WHERRY_SWEEP") != "" }

// Every returns n, the distance between two places of the sample, or 1 where all are to be tried. Take a prime number,
// so that sweeps of two dimensions meet different places.
func Every(n int) int {
	if Full() {
		return 1
	}
	return n
}
