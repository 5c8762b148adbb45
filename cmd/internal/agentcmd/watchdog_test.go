package agentcmd

import (
	"net"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestSystemdIsTold(t *testing.T) {
	t.Parallel()
	socket := filepath.Join(t.TempDir(), "notify")
	l, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: socket, Net: "unixgram"})
	require.NoError(t, err)
	defer l.Close()
	environ := map[string]string{"NOTIFY_SOCKET": socket, "WATCHDOG_USEC": "300000000", "WATCHDOG_PID": "7"}
	of := func(name string) string { return environ[name] }

	w := watchdog(of, 7)

	require.Equal(t, 100*time.Second, w.Every)
	require.NoError(t, w.Tell())
	b := make([]byte, 64)
	n, err := l.Read(b)
	require.NoError(t, err)
	require.Equal(t, "WATCHDOG=1", string(b[:n]))
	require.NoError(t, ready(of)())
	n, err = l.Read(b)
	require.NoError(t, err)
	require.Equal(t, "READY=1", string(b[:n]))
	require.Nil(t, watchdog(of, 8), "it is another process that is watched")
	environ["WATCHDOG_USEC"] = ""
	require.Nil(t, watchdog(of, 7), "nobody watches")
	environ["NOTIFY_SOCKET"] = ""
	require.Nil(t, ready(of), "nobody waits")
}
