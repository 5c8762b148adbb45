//go:build unix

package keys

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestAnInterruptEndsCosignAndWhatItStarted(t *testing.T) {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	opts := standIn(t, private.Public(), "sleep 600 & echo $! > child.tmp; mv child.tmp child; wait")
	ctx, cancel := context.WithCancel(t.Context())
	key, err := OpenCosign(ctx, "awskms:///a", opts)
	require.NoError(t, err)
	var child int
	go func() {
		defer cancel()
		for {
			data, err := os.ReadFile(filepath.Join(filepath.Dir(opts.Program), "child"))
			if err == nil {
				child, _ = strconv.Atoi(strings.TrimSpace(string(data)))
				return
			}
			time.Sleep(time.Millisecond)
		}
	}()
	_, err = key.SignMessage(strings.NewReader("release"))
	require.ErrorIs(t, err, context.Canceled)
	require.NotZero(t, child)
	require.Eventually(t, func() bool { return isGone(child) }, time.Minute, time.Millisecond, "%d still runs", child)
}

// isGone reports whether a process has ended, also where nobody has asked yet how.
func isGone(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err == nil {
		_, after, _ := strings.Cut(string(stat), ") ")
		return strings.HasPrefix(after, "Z")
	}
	return syscall.Kill(pid, 0) != nil
}
