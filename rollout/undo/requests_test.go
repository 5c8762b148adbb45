package undo_test

import (
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// An undo reads and verifies each release once, whoever needs it: with many cluster types that is most of its time.
func TestAnUndoReadsEachReleaseOnce(t *testing.T) {
	t.Parallel()
	for _, rings := range [][]string{nil, ringsOfTest} {
		w := newWorld(t, rings...)
		for _, step := range []string{"a", "b"} {
			require.NoError(t, w.do(step))
		}
		var mu sync.Mutex
		read, written, all := map[string]int{}, false, 0
		handler := w.handler
		w.handler = http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			if place, is := strings.CutPrefix(r.URL.Path, "/v2/edge/bundles/prod/drone/"); is {
				mu.Lock()
				all++
				written = written || r.Method == http.MethodPost || r.Method == http.MethodPut
				if r.Method == http.MethodGet && !written {
					read[place]++
				}
				mu.Unlock()
			}
			handler.ServeHTTP(rw, r)
		})
		require.NoError(t, w.do("undo"))
		require.NotEmpty(t, read)
		for place, n := range read {
			require.Equal(t, 1, n, place)
		}
		if rings == nil {
			require.LessOrEqual(t, all, 24, "requests for one cluster type")
		}
	}
}
