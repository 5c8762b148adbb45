package gitrepo_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/publisher/egress"
	"github.com/wherry-dev/wherry/publisher/gitrepo"
	"github.com/wherry-dev/wherry/publisher/gittest"
)

func TestTips(t *testing.T) {
	repo := t.TempDir() + "/platform.git"
	main := gittest.CommitFiles(t, repo, "main", map[string]string{"a": "1"})
	dev := gittest.CommitFiles(t, repo, "dev", map[string]string{"a": "2"})
	places := map[string]string{
		"a path": repo, "a path without .git": repo[:len(repo)-4],
		"a server": gittest.Serve(t, gittest.PlainServer(repo)),
	}
	for name, place := range places {
		t.Run(name, func(t *testing.T) {
			tips, err := gitrepo.Tips(t.Context(), egress.New(place), place, []string{"", "dev", "refs/heads/dev", "gone"}, time.Minute)
			require.NoError(t, err)
			require.Equal(t, map[string]string{"": main, "dev": dev, "refs/heads/dev": dev}, tips)
		})
	}
}

func TestTipsOfARepositoryThatDoesNotAnswer(t *testing.T) {
	var asked atomic.Bool
	place := gittest.Serve(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		asked.Store(true)
		<-r.Context().Done()
	}))
	for timeout := 10 * time.Millisecond; !asked.Load(); timeout *= 2 {
		_, err := gitrepo.Tips(t.Context(), egress.New(place), place, []string{"main"}, timeout)
		require.EqualError(t, err, "no complete answer within "+timeout.String())
		require.Less(t, timeout, time.Minute)
	}
	_, err := gitrepo.Tips(t.Context(), nil, t.TempDir()+"/none", []string{"main"}, time.Minute)
	require.Error(t, err)
	_, err = gitrepo.Tips(t.Context(), nil, "ext::sh -c true", []string{"main"}, time.Minute)
	require.Error(t, err)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = gitrepo.Tips(ended, egress.New(place), place, []string{"main"}, time.Minute)
	require.ErrorIs(t, err, context.Canceled)
}

// A server may list many references: their cost grows as their number does, and the list is bounded.
func TestTheCostOfReferencesIsLinear(t *testing.T) {
	cost := func(n int) uint64 {
		place := gittest.Serve(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, "001e# service=git-upload-pack\n0000")
			end := "\x00side-band-64k\n"
			for i := range n {
				line := fmt.Sprintf("%040x refs/heads/b%07d%s", i+1, i, end)
				_, _ = fmt.Fprintf(w, "%04x%s", len(line)+4, line)
				end = "\n"
			}
			_, _ = io.WriteString(w, "0000")
		}))
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		tips, err := gitrepo.Tips(t.Context(), egress.New(place), place, []string{"b0000001"}, time.Minute)
		runtime.ReadMemStats(&after)
		require.NoError(t, err)
		require.Len(t, tips, 1)
		return after.TotalAlloc - before.TotalAlloc
	}
	require.Less(t, float64(cost(40_000))/float64(cost(10_000)), 6.0)
	place := gittest.Serve(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "001e# service=git-upload-pack\n0000"+fmt.Sprintf("004b%040x refs/heads/main\x00side-band-64k\n", 1))
		for line := strings.Repeat(fmt.Sprintf("003d%040x refs/heads/main\n", 1), 10_000); ; {
			if _, err := io.WriteString(w, line); err != nil {
				return
			}
		}
	}))
	_, err := gitrepo.Tips(t.Context(), egress.New(place), place, []string{"main"}, time.Minute)
	require.ErrorContains(t, err, "too large: the server sends more than 33554432 bytes")
}
