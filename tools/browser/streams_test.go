package browser

import (
	"bufio"
	"context"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// One program has 500 streams of events with a token whose bound was raised. A person's pages with the same token do not wait for it, and
// what the person decides reaches each stream.
func TestManyStreamsBesideAPage(t *testing.T) {
	const many, bound = 500, 501
	hub := serve(t, t.TempDir(), "--demo", "--streams", "1000", "--streams-per-token", "501")
	admin := newTab(t, chromium(t), hub, "")
	made := admin.ask("/v1/access", map[string]any{"name": "screens", "role": "admin"})
	p := newTab(t, admin.parent, hub, regexp.MustCompile(`wha_[^"]+`).FindString(made))

	client := &http.Client{Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	ctx, end := context.WithCancel(t.Context())
	defer end()
	follow := func() *http.Response {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, hub+"/v1/events", nil)
		require.NoError(t, err)
		r.Header.Set("Authorization", "Bearer "+p.token)
		answer, err := client.Do(r)
		require.NoError(t, err)
		return answer
	}
	var streams []*bufio.Scanner
	for range many {
		answer := follow()
		defer answer.Body.Close()
		require.Equal(t, http.StatusOK, answer.StatusCode)
		streams = append(streams, bufio.NewScanner(answer.Body))
	}

	began := time.Now()
	p.open("/environments/prod")
	t.Logf("a page beside %d streams was there after %s", many, time.Since(began).Round(time.Millisecond))
	require.Contains(t, p.text("main"), "Paused by anna")
	p.follow(`//main//a[@class="button" and .="Resume"]`)
	p.follow(`//main//button[@class="act"]`)
	require.NotContains(t, p.text("main"), "Paused by")
	for n, s := range streams {
		for s.Scan() && !strings.Contains(s.Text(), `"action":"resume"`) {
		}
		require.Contains(t, s.Text(), `"action":"resume"`, "stream %d: %v", n, s.Err())
	}

	taken := many
	for ; taken <= bound; taken++ {
		answer := follow()
		defer answer.Body.Close()
		if answer.StatusCode == http.StatusTooManyRequests {
			break
		}
		require.Equal(t, http.StatusOK, answer.StatusCode)
	}
	require.Contains(t, []int{bound - 1, bound}, taken, "the page has a stream while it is shown")
	p.open("/") // which is no stream
}
