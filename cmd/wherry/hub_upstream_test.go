package main

import (
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/e2e/load/hubload"
	"github.com/wherry-dev/wherry/hub"
	"github.com/wherry-dev/wherry/hub/store/sqlite"
)

// link passes connections on to a hub, and can be cut.
type link struct {
	net.Listener
	mu   sync.Mutex
	to   string // empty while it is cut
	open map[net.Conn]bool
}

func newLink(t *testing.T) *link {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	k := &link{Listener: l, open: map[net.Conn]bool{}}
	var all sync.WaitGroup
	t.Cleanup(func() {
		_ = l.Close()
		k.lead("")
		all.Wait()
	})
	all.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			all.Go(func() { k.pass(c) })
		}
	})
	return k
}

// lead makes the link lead to a hub's URL, and ends the connections that there are.
func (l *link) lead(url string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.to = strings.TrimPrefix(url, "http://")
	for c := range l.open {
		_ = c.Close()
	}
}

func (l *link) pass(c net.Conn) {
	defer c.Close()
	l.mu.Lock()
	to := l.to
	l.mu.Unlock()
	d, err := net.Dial("tcp", to)
	if err != nil {
		return
	}
	defer d.Close()
	l.mu.Lock()
	if l.to != to {
		l.mu.Unlock()
		return
	}
	l.open[c], l.open[d] = true, true
	l.mu.Unlock()
	var both sync.WaitGroup
	for _, way := range [][2]net.Conn{{c, d}, {d, c}} {
		both.Go(func() {
			_, _ = io.Copy(way[0], way[1]) // until either end has gone
			_ = c.Close()
			_ = d.Close()
		})
	}
	both.Wait()
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.open, c)
	delete(l.open, d)
}

// A regional hub forwards to another hub, whose link is cut, which is killed in the middle, and which loses its database.
func TestAHubForwardsToAnotherThatIsKilledAndWiped(t *testing.T) {
	t.Parallel()
	const clusters, reports = 3, 40
	f := benchFleet("region", 3, reports)
	dir := t.TempDir()
	lower, upper := filepath.Join(dir, "lower"), filepath.Join(dir, "upper")
	register := func(dir string) {
		h, err := hub.Open(dir, hub.Options{})
		require.NoError(t, err)
		require.NoError(t, f.Register(t.Context(), h, 0, clusters))
		require.NoError(t, h.Close())
	}
	register(lower)
	register(upper)
	serve := func(dir string, args ...string) *hubload.Hub {
		h, err := hubload.Serve("wherry", dir, append(args, hubload.Lifted...)...)
		require.NoError(t, err)
		t.Cleanup(h.Kill)
		return h
	}
	sent := int64(0)
	send := func(to *hubload.Hub, n int64) {
		keys, err := bundle.ParsePublicKeys(to.Key)
		require.NoError(t, err)
		sender := hubload.NewSender(to.URL, keys[0], 1)
		defer sender.Client.CloseIdleConnections()
		for i := range clusters {
			c := f.Cluster(i)
			var signed []hubload.Signed
			for seq := sent + 1; seq <= sent+n; seq++ {
				signed = append(signed, c.Sign(seq))
			}
			_, err := sender.Deliver(t.Context(), c, c.Request(signed), len(signed))
			require.NoError(t, err)
		}
		sent += n
	}
	has := func(dir string) (missing []string) {
		db, err := sqlite.Open(filepath.Join(dir, hub.DatabaseFile), sqlite.Options{})
		require.NoError(t, err)
		missing, err = f.Missing(t.Context(), db, 0, clusters, 1, sent)
		require.NoError(t, err)
		require.NoError(t, db.Close())
		return missing
	}
	arrived := func(log func() string) {
		require.Eventually(t, func() bool { return len(has(upper)) == 0 }, time.Minute, 50*time.Millisecond, "%v\n%s", has(upper), log())
	}

	l := newLink(t)
	above := serve(upper)
	l.lead(above.URL)
	address := "http://" + l.Addr().String()
	below := serve(lower, "--upstream", address, "--upstream-key", filepath.Join(upper, hub.PublicKeyFile))
	send(below, 5)
	arrived(below.Log)

	l.lead("") // the link is cut, and what agents send is acknowledged all the same
	send(below, 5)
	above.Kill()
	above = serve(upper)
	l.lead(above.URL)
	arrived(below.Log)

	send(below, 5) // and killed while it may be storing
	above.Kill()
	above = serve(upper)
	l.lead(above.URL)
	below.Kill()
	below = serve(lower, "--upstream", address, "--upstream-key", filepath.Join(upper, hub.PublicKeyFile))
	arrived(below.Log)

	// It loses its database, and nobody has registered the clusters there again.
	above.Kill()
	for _, name := range sqlite.Files(hub.DatabaseFile) {
		require.NoError(t, removeIfThere(filepath.Join(upper, name)))
	}
	above = serve(upper)
	l.lead(above.URL)
	send(below, 5)
	register(upper)
	require.NoError(t, below.Stop(), below.Log())
	out, err := exec.Command("wherry", "hub", "forward", "--anew", "--data", lower, "--upstream", address, "--upstream-key", filepath.Join(upper, hub.PublicKeyFile)).CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.Contains(t, string(out), "60 forwarded, 0 refused for good, 0 clusters waiting")
	require.Empty(t, has(upper))
	require.NoError(t, above.Stop(), above.Log())
	out, err = exec.Command("wherry", "hub", "verify", "--data", upper).CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.Contains(t, string(out), "60 good")
}

func removeIfThere(path string) error {
	if err := os.Remove(path); err != nil && !os.IsNotExist(err) {
		return err
	}
	return nil
}
