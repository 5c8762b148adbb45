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

func TestTextsAreWithoutCredentials(t *testing.T) {
	for text, want := range map[string]string{
		"read https://user:t0ken@h/a: not found":          "read https://h/a: not found",
		"mirrors.https://t0ken@h/ is given twice":         "mirrors.https://h/ is given twice",
		`location "oci://u:p@r/e": wrong`:                 `location "oci://r/e": wrong`,
		"https://h/a?token=t0ken and https://h/b":         "https://h/a and https://h/b",
		"mail me@example.com":                             "mail me@example.com",
		"ssh://git@h/a":                                   "ssh://h/a",
		"two https://a:b@h/x https://c:d@i/y":             "two https://h/x https://i/y",
		"https://a:b@c:d@h/x has a password with an at @": "https://h/x has a password with an at @",
	} {
		require.Equal(t, want, RedactText(text))
	}
}

func TestABranchOfAnyFolderIsAPlace(t *testing.T) {
	require.Equal(t, ".#dev", BranchPlace(".", "dev", "."))
	require.Equal(t, "/a b#dev:envs/dev", BranchPlace("/a b", "dev", "envs/dev"))
	require.Equal(t, "file:///a%23b#dev", BranchPlace("/a#b", "dev", ""))
}
