package main

import (
	"errors"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/hubapi"
	"github.com/wherry-dev/wherry/e2e/load/hubload"
	"github.com/wherry-dev/wherry/hub"
	"github.com/wherry-dev/wherry/hub/store"
	"github.com/wherry-dev/wherry/hub/store/sqlite"
)

// A hub's disk fills up under load. It says so, acknowledges nothing that it has not stored, goes on answering those who read,
// and takes reports again once there is room.
func TestAHubWhoseDiskIsFull(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root may mount a small disk")
	}
	t.Parallel()
	disk := t.TempDir()
	if err := syscall.Mount("tmpfs", disk, "tmpfs", 0, "size=4m"); err != nil {
		t.Skipf("no disk can be mounted here: %v", err)
	}
	t.Cleanup(func() { require.NoError(t, syscall.Unmount(disk, syscall.MNT_DETACH)) })
	dir := filepath.Join(disk, "hub")
	h, err := hub.Open(dir, hub.Options{})
	require.NoError(t, err)
	require.NoError(t, h.Close())
	k := newKilling(t, func() (store.Store, error) {
		return sqlite.Open(filepath.Join(dir, hub.DatabaseFile), sqlite.Options{})
	})
	s, err := k.open()
	require.NoError(t, err)
	require.NoError(t, k.fleet.Register(t.Context(), s, killedAgents, killedAgents+1))
	require.NoError(t, s.Close())
	k.start = func(int) (*hubload.Hub, error) {
		log := filepath.Join(t.TempDir(), "log") // on another disk
		return hubload.ServeLog("wherry", log, dir, hubload.Lifted...)
	}
	k.run(1, 1, func(*rand.Rand) {
		h, c := k.hub(0), k.fleet.Cluster(killedAgents)
		keys, err := bundle.ParsePublicKeys(h.Key)
		require.NoError(t, err)
		sender := hubload.NewSender(h.URL, keys[0], 1)
		var refused *hubload.Refused
		for seq := int64(1); refused == nil; seq++ {
			_, _, err := sender.Post(t.Context(), c, c.Request([]hubload.Signed{c.Sign(seq)}))
			require.True(t, err == nil || errors.As(err, &refused), "%v", err)
			require.Less(t, seq, int64(100_000), "a disk of 4 MiB holds no more")
		}
		require.Equal(t, http.StatusServiceUnavailable, refused.Status)
		require.Equal(t, hubapi.CodeUnavailable, refused.Answer.Code)
		for _, path := range []string{"/healthz", "/v1/clusters", "/v1/counts?of=deployments&by=environment,state"} {
			r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, h.URL+path, nil)
			require.NoError(t, err)
			r.Header.Set("Authorization", "Bearer "+h.Token())
			answer, err := sender.Client.Do(r)
			require.NoError(t, err)
			require.NoError(t, answer.Body.Close())
			require.Equal(t, http.StatusOK, answer.StatusCode, path)
		}
		ready := func() int {
			answer, err := sender.Client.Get(h.URL + "/readyz")
			require.NoError(t, err)
			require.NoError(t, answer.Body.Close())
			return answer.StatusCode
		}
		require.Equal(t, http.StatusServiceUnavailable, ready())
		sender.Client.CloseIdleConnections()
		require.NoError(t, syscall.Mount("tmpfs", disk, "tmpfs", syscall.MS_REMOUNT, "size=64m"))
		require.Eventually(t, func() bool { return ready() == http.StatusOK }, time.Minute, 100*time.Millisecond, "it is asked once a second")
		require.Equal(t, 1, strings.Count(h.Log(), "request not answered"), h.Log())
	})
}
