package hub

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/hub/store/storetest"
)

// BenchmarkIngest has a hundred agents with twenty assignments each deliver over HTTP, to a hub that
// verifies, commits to disk and signs an acknowledgement: one report in a request, as on a calm day, and
// fifty, as after an outage. It prints the figures of "make bench-hub"; agents and hub share the machine.
func BenchmarkIngest(b *testing.B) {
	for _, bench := range []struct {
		figure               string
		requests, perRequest int
	}{
		{"hub-ingest-per-s", 20, 1},
		{"hub-ingest-backlog-per-s", 2, 50},
	} {
		b.Run(bench.figure, func(b *testing.B) {
			var took time.Duration
			n := 0
			for range b.N {
				h, _ := newHub(b)
				server := httptest.NewServer(h.Handler())
				var agents []func() error
				for i := range 100 {
					agents = append(agents, delivery(b, h, server.URL, fmt.Sprintf("plant-%d", i), bench.requests, bench.perRequest))
				}
				begin := time.Now()
				atOnce(b, agents)
				took += time.Since(begin)
				n += len(agents) * bench.requests * bench.perRequest
				server.Close()
				require.Equal(b, n/b.N, storedReports(b, h))
			}
			fmt.Printf("figure %s %.0f per-s\n", bench.figure, float64(n)/took.Seconds())
		})
	}
}

// delivery registers an agent and prepares its requests, which the function that it returns sends.
func delivery(b *testing.B, h *Hub, url, name string, requests, perRequest int) func() error {
	b.Helper()
	a := newAgent(b, name)
	a.register(b, h)
	var bodies [][]byte
	seq := int64(0)
	for range requests {
		var envelopes [][]byte
		for range perRequest {
			seq++
			items := make([]bundle.Item, 20)
			for i := range items {
				items[i] = storetest.Item(fmt.Sprintf("workload-%d", i), bundle.Compliant)
			}
			items[0].State = []bundle.State{bundle.Applying, bundle.Compliant}[seq%2]
			envelopes = append(envelopes, a.seal(b, a.report(1, seq, items...)))
		}
		bodies = append(bodies, requestOf(b, envelopes...))
	}
	client := &http.Client{Transport: &http.Transport{}}
	return func() error {
		defer client.CloseIdleConnections()
		for _, body := range bodies {
			answer, err := client.Post(url+"/v1/clusters/"+a.UID+"/reports", "application/json", bytes.NewReader(body))
			if err != nil {
				return err
			}
			_, err = io.Copy(io.Discard, answer.Body)
			answer.Body.Close()
			if err != nil || answer.StatusCode != http.StatusOK {
				return fmt.Errorf("%s: %w", answer.Status, err)
			}
		}
		return nil
	}
}

func atOnce(b *testing.B, agents []func() error) {
	b.Helper()
	var wg sync.WaitGroup
	for _, deliver := range agents {
		wg.Go(func() {
			if err := deliver(); err != nil {
				b.Error(err)
			}
		})
	}
	wg.Wait()
}
