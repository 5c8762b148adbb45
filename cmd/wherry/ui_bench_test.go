package main

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/e2e/load/hubload"
	"github.com/wherry-dev/wherry/hub/fleet"
	"github.com/wherry-dev/wherry/hub/store"
)

// uiClusters is the fleet of BenchmarkUI. Four in five of its clusters are in the environment that was published.
var uiClusters = flag.Int("ui-clusters", 100_000, "have so many clusters")

// What BenchmarkUI does.
const (
	uiSmall   = 2_000 // of the fleet that pages are compared with
	uiRounds  = 20    // of each page
	uiStreams = 500
	uiReports = 100 // whose events all streams get
)

// BenchmarkUI prints the figures of "make bench-ui": how long the pages of a large fleet take, and how large they are.
func BenchmarkUI(b *testing.B) {
	for range b.N {
		_, to, observed := benchPlatform(b)
		published := benchFleet("ui", benchAssignments, 1)
		published.Environment, published.Observed, published.Healthy = "stage", observed, true
		rest := benchFleet("rest", benchAssignments, 1)
		serve := func(clusters int) *hubload.Hub {
			o := newBenchHub(b)
			o.withStoreAt(nil, func(db store.Store) {
				began := time.Now()
				for f, n := range map[*hubload.Fleet]int{&published: clusters * 4 / 5, &rest: clusters / 5} {
					require.NoError(b, f.Register(b.Context(), db, 0, n))
					require.NoError(b, f.Fill(b.Context(), db, 0, n, 1))
				}
				fmt.Printf("%d clusters filled in %s\n", clusters, time.Since(began).Round(time.Second))
			})
			return o.serve("--watch", to, "--trust-key", filepath.Join(filepath.Dir(strings.TrimPrefix(to, "oci-layout:")), "release.pub"), "--anonymous")
		}
		small := serve(uiSmall)
		awaitFleet(b, small, uiSmall)
		sizes := map[string]int{}
		for _, path := range uiPages() {
			body, _ := fetchPage(b, small, path)
			sizes[path] = len(body)
		}
		require.NoError(b, small.Stop(), small.Log())

		h := serve(*uiClusters)
		awaitFleet(b, h, *uiClusters)
		var all []time.Duration
		largest, growth := 0, 0.0
		for _, path := range uiPages() {
			body, _ := fetchPage(b, h, path)
			zip, most := zipped(b, body), 0.0
			if most = float64(len(body))/float64(sizes[path]) - 1; most > growth {
				growth = most
			}
			largest = max(largest, zip)
			var took []time.Duration
			before := h.Spent()
			for range uiRounds {
				_, first := fetchPage(b, h, path)
				took = append(took, first)
			}
			slices.Sort(took)
			all = append(all, took...)
			fmt.Printf("  %-40s first byte %6.1f to %6.1f ms, %5.1f ms of processor time, %7d bytes, %6d compressed, %+.0f %% beside %d clusters\n",
				path, ms(took[0]), ms(took[len(took)-1]), ms(h.Spent()-before)/uiRounds, len(body), zip, 100*most, uiSmall)
		}
		slices.Sort(all)
		figure(b, "ui-page-p95-ms", ms(all[len(all)*95/100]), "ms")
		figure(b, "ui-page-gz-bytes-max", float64(largest), "bytes")
		figure(b, "ui-page-growth-percent", 100*growth, "percent")
		figure(b, "ui-js-bytes", float64(uiScripts(b, h)), "bytes")
		liveMS(b, h, published)
		require.NoError(b, h.Stop(), h.Log())
	}
}

// awaitFleet waits until a hub that has just begun has read its clusters.
func awaitFleet(b *testing.B, h *hubload.Hub, clusters int) {
	b.Helper()
	began := time.Now()
	for {
		answer, err := http.Get(h.URL + "/v1/clusters?limit=1")
		if err == nil {
			var list fleet.Clusters
			err = json.NewDecoder(answer.Body).Decode(&list)
			_ = answer.Body.Close()
			if err == nil && list.Totals.Count == clusters {
				break
			}
		}
		require.Less(b, time.Since(began), 10*time.Minute, "%v: %s", err, h.Log())
	}
	fmt.Printf("the hub answers after %s\n", time.Since(began).Round(time.Second/10))
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// uiPages are pages of each kind about the fleets of BenchmarkUI, about now.
func uiPages() []string {
	return []string{
		"/", "/workloads", "/workloads?environment=stage", "/clusters", "/clusters?environment=prod&state=failed", "/clusters?selector=region%3Deast", "/clusters/uid-ui-000050",
		"/deployments", "/deployments?workload=workload-3&state=failed", "/environments", "/environments/stage", "/changes", "/changes?environment=prod", "/search?q=ui-00", "/search?q=work",
	}
}

// fetchPage returns a page, and the time to its first byte.
func fetchPage(b *testing.B, h *hubload.Hub, path string) (body []byte, first time.Duration) {
	b.Helper()
	r, err := http.NewRequestWithContext(b.Context(), http.MethodGet, h.URL+path, nil)
	require.NoError(b, err)
	r.Header.Set("Accept", "text/html")
	began := time.Now()
	answer, err := http.DefaultClient.Do(r)
	first = time.Since(began) // headers come with the first byte
	require.NoError(b, err)
	defer answer.Body.Close()
	body, err = io.ReadAll(answer.Body)
	require.NoError(b, err)
	require.Equal(b, http.StatusOK, answer.StatusCode, "%s: %s", path, h.Log())
	return body, first
}

// zipped is the size of a body as a browser gets it.
func zipped(b *testing.B, body []byte) int {
	var zip bytes.Buffer
	w, err := gzip.NewWriterLevel(&zip, gzip.BestSpeed)
	require.NoError(b, err)
	_, err = w.Write(body)
	require.NoError(b, err)
	require.NoError(b, w.Close())
	return zip.Len()
}

// uiScripts is the size of all scripts that a page has, compressed.
func uiScripts(b *testing.B, h *hubload.Hub) (n int) {
	page, _ := fetchPage(b, h, "/")
	for _, part := range strings.Split(string(page), `<script src="`)[1:] {
		path, _, _ := strings.Cut(part, `"`)
		body, _ := fetchPage(b, h, path)
		n += zipped(b, body)
	}
	return n
}

// liveMS prints the time from the moment at which a cluster sends a report until each of many streams, as pages have them, has its event.
func liveMS(b *testing.B, h *hubload.Hub, f hubload.Fleet) {
	ctx, end := context.WithCancel(b.Context())
	defer end()
	var mu sync.Mutex
	sent, took, heard := map[string]time.Time{}, []time.Duration(nil), make(chan struct{}, uiStreams*uiReports)
	var streams sync.WaitGroup
	client := &http.Client{Transport: &http.Transport{}}
	for range uiStreams {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, h.URL+"/v1/events", nil)
		require.NoError(b, err)
		r.Header.Set("Accept", fleet.EventStream)
		answer, err := client.Do(r)
		require.NoError(b, err, h.Log())
		require.Equal(b, http.StatusOK, answer.StatusCode)
		streams.Go(func() {
			defer answer.Body.Close()
			known := map[string]bool{} // a report has an event for each change
			lines := bufio.NewScanner(answer.Body)
			for lines.Scan() {
				data, ok := strings.CutPrefix(lines.Text(), "data: ")
				var e fleet.Event
				if !ok || json.Unmarshal([]byte(data), &e) != nil || known[e.UID] {
					continue
				}
				known[e.UID] = true
				mu.Lock()
				took = append(took, time.Since(sent[e.UID]))
				mu.Unlock()
				heard <- struct{}{}
			}
		})
	}
	sender := hubload.NewSender(h.URL, h.Key, 1)
	for i := range uiReports {
		c := f.Cluster(i)
		body := c.Request([]hubload.Signed{c.Sign(2)})
		mu.Lock()
		sent[c.UID] = time.Now()
		mu.Unlock()
		_, err := sender.Deliver(ctx, c, body, 1)
		require.NoError(b, err, h.Log())
		for range uiStreams { // the next one when all pages have this one
			select {
			case <-heard:
			case <-time.After(time.Minute):
				b.Fatalf("report %d did not reach all streams: %s", i, h.Log())
			}
		}
	}
	end()
	streams.Wait()
	slices.Sort(took)
	fmt.Printf("%d events on %d streams each; half within %.1f ms\n", uiReports, uiStreams, ms(took[len(took)/2]))
	figure(b, "ui-live-p99-ms", ms(took[len(took)*99/100]), "ms")
}
