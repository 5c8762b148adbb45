package gitrepo_test

import (
	"context"
	"net/http"
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
	asked := make(chan struct{})
	place := gittest.Serve(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		close(asked)
		<-r.Context().Done()
	}))
	_, err := gitrepo.Tips(t.Context(), egress.New(place), place, []string{"main"}, 50*time.Millisecond)
	require.EqualError(t, err, "no complete answer within 50ms")
	<-asked
	_, err = gitrepo.Tips(t.Context(), nil, t.TempDir()+"/none", []string{"main"}, time.Minute)
	require.Error(t, err)
	_, err = gitrepo.Tips(t.Context(), nil, "ext::sh -c true", []string{"main"}, time.Minute)
	require.Error(t, err)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = gitrepo.Tips(ended, egress.New(place), place, []string{"main"}, time.Minute)
	require.ErrorIs(t, err, context.Canceled)
}
