package sources

import (
	"io/fs"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/publisher/gittest"
)

func TestTwoRegistrationsReadOneBranchAtDifferentCommits(t *testing.T) {
	repo := t.TempDir()
	old := gittest.CommitFiles(t, repo, "main", map[string]string{"a": "1"})
	head := gittest.CommitFiles(t, repo, "main", map[string]string{"a": "2"})
	server := httptest.NewServer(gittest.FullServer(repo))
	defer server.Close()
	named := Source{Kind: bundle.ArtifactGit, URL: server.URL + "/shop", Branch: "main"}
	r := NewResolver(Options{Access: thisMachine(), At: func(registration string, s Source) Source {
		require.Empty(t, s.Revision)
		switch registration {
		case "proved":
			s.Revision = old
		case "lost": // its commit, in a push with force
			s.Revision = strings.Repeat("a", 40)
		}
		return s
	}})
	defer func() { require.NoError(t, r.Close()) }()

	found, err := r.All(t.Context(), map[string][]Source{"proved": {named}, "newest": {named}, "lost": {named}})
	require.NoError(t, err)
	for registration, want := range map[string]struct{ commit, a string }{"proved": {old, "1"}, "newest": {head, "2"}, "lost": {head, "2"}} {
		got := found[registration][named]
		require.NoError(t, got.Err, registration)
		require.Equal(t, want.commit, got.Revision, registration)
		require.NoError(t, got.Read(func(files fs.FS) error {
			text, err := fs.ReadFile(files, "a")
			require.Equal(t, want.a, string(text), registration)
			return err
		}))
	}

	pinned := named
	pinned.Revision = head
	require.Equal(t, head, r.Of(For(t.Context(), "proved"), pinned).Revision, "a manifest that names a commit is read at that commit")
}
