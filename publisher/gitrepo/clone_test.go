package gitrepo

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestOneRepositoryHasManyURLs(t *testing.T) {
	const want = "example.com/org/platform"
	for _, url := range []string{
		"https://example.com/org/platform", "https://example.com/org/platform.git", "https://user:token@Example.com/org/platform/",
		"http://example.com:8080/org/platform", "ssh://git@example.com/org/platform.git", "git@example.com:org/platform.git", "example.com:org/platform",
	} {
		require.Equal(t, want, sameRepository(url), url)
	}
	for _, url := range []string{"https://example.com/org/platform2", "https://example.org/org/platform", "/example.com/org/platform", "", "https://%zz"} {
		require.NotEqual(t, want, sameRepository(url), url)
	}
}

func TestABranchOfAnyFolderIsAPlace(t *testing.T) {
	require.Equal(t, ".#dev", BranchPlace(".", "dev", "."))
	require.Equal(t, "/a b#dev:envs/dev", BranchPlace("/a b", "dev", "envs/dev"))
	require.Equal(t, "file:///a%23b#dev", BranchPlace("/a#b", "dev", ""))
}
