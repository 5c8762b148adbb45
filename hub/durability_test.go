package hub

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"sync"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"
	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/hubapi"
	"github.com/wherry-dev/wherry/hub/fleet"
	"github.com/wherry-dev/wherry/hub/store"
	"github.com/wherry-dev/wherry/hub/store/storetest"
)

// childDir, if it is set, makes the test binary a hub that serves that folder until it is killed.
const childDir = "WHERRY_TEST_HUB"

func TestMain(m *testing.M) {
	if dir := os.Getenv(childDir); dir != "" {
		fmt.Fprintln(os.Stderr, serveChild(dir))
		os.Exit(1)
	}
	os.Exit(m.Run())
}

func serveChild(dir string) error {
	h, err := Open(dir, Options{MustExist: true})
	if err != nil {
		return err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Println("http://" + l.Addr().String())
	return h.Serve(context.Background(), l)
}

func TestKilledHubHasStoredAllThatItAcknowledged(t *testing.T) {
	dir := t.TempDir()
	h := openHub(t, dir, storetest.NewClock())
	a := newAgent(t, "plant-7")
	a.register(t, h)
	child := exec.Command(os.Args[0])
	child.Env = append(os.Environ(), childDir+"="+dir)
	stdout, err := child.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, child.Start())
	t.Cleanup(func() { _ = child.Process.Kill(); _ = child.Wait() })
	url, err := bufio.NewReader(stdout).ReadString('\n')
	require.NoError(t, err)
	url = url[:len(url)-1] + "/v1/clusters/" + a.UID + "/reports"

	var acknowledged []digest.Digest
	for seq := int64(1); ; seq++ {
		if seq == 20 { // while the requests that follow are under way
			time.AfterFunc(2*time.Millisecond, func() { _ = child.Process.Kill() })
		}
		answer, err := http.Post(url, "application/json", bytes.NewReader(requestOf(t, a.seal(t, a.report(1, seq)))))
		if err != nil {
			break
		}
		var receipt hubapi.Receipt
		err = json.NewDecoder(answer.Body).Decode(&receipt)
		answer.Body.Close()
		if err != nil {
			break
		}
		acknowledged = append(acknowledged, acked(t, h, receipt.Ack).Reports...)
	}

	require.GreaterOrEqual(t, len(acknowledged), 19)
	stored, err := h.store.From(t.Context(), a.UID, store.Order{}, 1<<20)
	require.NoError(t, err)
	for _, id := range acknowledged {
		require.Contains(t, stored, id)
	}
	require.NoError(t, h.Check(t.Context()))
}

func TestReplayStorm(t *testing.T) {
	const agents, reports, batch = 15, 100, 50 // each sent twice
	h, _ := newHub(t)
	var wg sync.WaitGroup
	for i := range agents {
		a := newAgent(t, fmt.Sprintf("plant-%d", i))
		a.register(t, h)
		wg.Go(func() {
			var requests [][]byte
			for from := 0; from < reports; from += batch {
				var envelopes [][]byte
				for seq := from + 1; seq <= from+batch; seq++ {
					state := []bundle.State{bundle.Applying, bundle.Compliant}[seq%2]
					envelopes = append(envelopes, a.seal(t, a.report(1, int64(seq), storetest.Item("drone", state))))
				}
				requests = append(requests, requestOf(t, envelopes...))
			}
			for n := range 2 * len(requests) {
				w := postTo(h, a.UID, requests[(len(requests)-1-n%len(requests))]) // newest first
				var receipt hubapi.Receipt
				if err := json.Unmarshal(w, &receipt); err != nil || receipt.Accepted+receipt.Duplicates != batch {
					t.Errorf("request %d of %s: %s", n, a.Name, w)
				}
			}
		})
	}
	wg.Wait()

	require.Equal(t, agents*reports, storedReports(t, h))
	clusters := clustersOf(t, h, fleet.Query{})
	require.Len(t, clusters, agents)
	for _, c := range clusters {
		require.EqualValues(t, reports, c.Seq)
		require.Zero(t, c.Conflicts)
	}
	for _, c := range clusters {
		require.Equal(t, reports, transitions(t, h, c.UID, "drone-main"), "each report changed the state")
	}
}

func TestClosedHubTakesNoWrites(t *testing.T) {
	h, _ := newHub(t)
	require.NoError(t, h.store.Ready(t.Context()))
	require.NoError(t, h.Close())
	require.ErrorIs(t, h.store.Ready(t.Context()), store.ErrClosed)
}
