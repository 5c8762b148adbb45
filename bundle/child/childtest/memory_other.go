//go:build !linux

package childtest

import "testing"

// Memory measures nothing here.
func Memory(testing.TB) (peak func() (own, children int64)) {
	return func() (int64, int64) { return 0, 0 }
}

func children() int { return 0 }
