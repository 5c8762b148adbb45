package platform

import (
	"net/http/httptest"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/publisher/gitrepo"
	"github.com/wherry-dev/wherry/publisher/gittest"
)

func TestALocalWorkTreeIsReadByItsCommitsNotItsFiles(t *testing.T) {
	repo := filepath.Join(t.TempDir(), "platform.git")
	main := gittest.CommitFiles(t, repo, "main", map[string]string{"a/one.yaml": "1"})
	dev := gittest.CommitFiles(t, repo, "dev", map[string]string{"dev.yaml": "d"})
	clone := filepath.Join(t.TempDir(), "clone")
	require.NoError(t, exec.Command("git", "clone", "-q", repo, clone).Run())
	gittest.WriteFiles(t, clone, map[string]string{"a/one.yaml": "edited"})
	for _, branch := range []string{"main", "dev"} { // dev is only origin's
		place, err := parseLocation(clone + "#" + branch)
		require.NoError(t, err)
		tree, err := gitrepo.NewReader(time.Minute, nil, nil).Tree(t.Context(), place.repo)
		require.NoError(t, err)
		require.Equal(t, map[string]string{"main": main, "dev": dev}[branch], tree.Commit)
	}
	require.Equal(t, main, gitrepo.HeadOf(clone, false))
	require.Empty(t, gitrepo.HeadOf(filepath.Join(clone, "a"), false))
	require.Equal(t, main, gitrepo.HeadOf(filepath.Join(clone, "a"), true))
}

func TestNoMessageRepeatsCredentials(t *testing.T) {
	nobody := httptest.NewServer(nil)
	nobody.Close()
	host := strings.TrimPrefix(nobody.URL, "http://")
	for _, url := range []string{
		"http://s3cret@" + host + "/r", "http://user:s3cret@" + host + "/r", "https://user:s3cret@" + host + "/r?token=s3cret",
		"http://user:s3 cret@" + host, "http://user:s3/cret@" + host, "http://s3cret:s3cret@",
	} {
		place, err := parseLocation(url + "#main")
		text := place.String()
		if err == nil {
			_, err = gitrepo.NewReader(time.Minute, nil, nil).Tree(t.Context(), place.repo)
		}
		require.Error(t, err, url)
		require.NotContains(t, err.Error()+text, "cret", url)
	}
}
