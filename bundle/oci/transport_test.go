package oci

import (
	"fmt"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

type answers func(*http.Request) *http.Response

func (a answers) RoundTrip(r *http.Request) (*http.Response, error) { return a(r), nil }

func TestARequestWaitsAsLongAsTheRegistryAsksForButNotLonger(t *testing.T) {
	for after, want := range map[int]struct {
		requests int
		waited   time.Duration
	}{2: {1 + retries, 2 * retries * time.Second}, 3600: {1, 0}} {
		synctest.Test(t, func(t *testing.T) {
			n, begun := 0, time.Now()
			client := retrying(answers(func(*http.Request) *http.Response {
				n++
				return &http.Response{StatusCode: http.StatusTooManyRequests, Header: http.Header{"Retry-After": {fmt.Sprint(after)}}, Body: http.NoBody}
			}))
			resp, err := client.Get("http://registry.example/v2/")
			require.NoError(t, err)
			require.NoError(t, resp.Body.Close())
			require.Equal(t, want.requests, n)
			require.Equal(t, want.waited, time.Since(begun))
		})
	}
}
