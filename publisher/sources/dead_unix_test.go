//go:build unix

package sources

import (
	"fmt"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// deadPort is the URL of a port to which no connection is made, and none refused: its queue is full.
func deadPort(t *testing.T) string {
	t.Helper()
	open := func() int {
		fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM, 0)
		require.NoError(t, err)
		t.Cleanup(func() { _ = syscall.Close(fd) })
		return fd
	}
	listener := open()
	require.NoError(t, syscall.Bind(listener, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}))
	require.NoError(t, syscall.Listen(listener, 0))
	at, err := syscall.Getsockname(listener)
	require.NoError(t, err)
	for range 4 {
		fd := open()
		require.NoError(t, syscall.SetNonblock(fd, true))
		_ = syscall.Connect(fd, at)
	}
	return fmt.Sprintf("http://127.0.0.1:%d", at.(*syscall.SockaddrInet4).Port)
}
