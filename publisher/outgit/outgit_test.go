package outgit

import (
	"encoding/pem"
	"errors"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/e2e/doubles/forgetest"
	"github.com/wherry-dev/wherry/publisher/gittest"
	"github.com/wherry-dev/wherry/publisher/outdir"
	"github.com/wherry-dev/wherry/scheduler"
)

const readme = scheduler.ReadmeText

// edge is an environment with an assignment on cluster type edge, one that failed there, and an idle type.
func edge() *scheduler.Result {
	return &scheduler.Result{
		Environment: "dev", BaseCommit: "abc",
		ClusterTypes: []scheduler.ClusterTypeResult{
			{
				Name: "edge",
				Assignments: []scheduler.Assignment{{Name: "app-t1", ClusterType: "edge", Files: []scheduler.File{
					{Path: "namespace.yaml"}, {Path: "platform-config.yaml", Data: []byte("c")}, {Path: "reconciler.yaml", Data: []byte("r")},
				}}},
				Failures: []scheduler.Failure{{Name: "app-bad", ClusterType: "edge", Err: errors.New("x")}},
			},
			{Name: "idle"},
		},
	}
}

// changed is edge with another configuration.
func changed(config string) *scheduler.Result {
	r := edge()
	r.ClusterTypes[0].Assignments[0].Files[1].Data = []byte(config)
	return r
}

// git runs the git program in a bare repository.
func git(t *testing.T, repo string, args ...string) string {
	t.Helper()
	cmd := exec.Command("git", append([]string{"--git-dir=" + repo}, args...)...)
	cmd.Env = append(os.Environ(), "GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL="+os.DevNull,
		"GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a", "GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a", "GIT_INDEX_FILE="+filepath.Join(repo, "index"))
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, string(out))
	return strings.TrimSpace(string(out))
}

// checkout returns the files of a branch.
func checkout(t *testing.T, repo, branch string) map[string]string {
	t.Helper()
	dir := t.TempDir()
	git(t, repo, "read-tree", branch)
	git(t, repo, "--work-tree="+dir, "checkout-index", "--all", "--prefix="+dir+"/")
	return gittest.ReadFiles(t, dir)
}

// target is the branch dev of a server, with a login that may write.
func target(s *forgetest.Server) Target {
	return Target{URL: strings.Replace(s.URL, "://", "://robot:"+forgetest.Writer+"@", 1), Branch: "dev"}
}

type treeTest struct {
	name     string
	existing map[string]string
	force    bool
	keep     bool
	refused  string
}

var trees = []treeTest{
	{name: "an empty branch is filled"},
	{name: "a new repository is filled", existing: map[string]string{"README.md": "Contoso", ".github/CODEOWNERS": "x", "LICENSE": "x"}, force: true},
	{
		name: "stale files go, root files and dot folders stay",
		existing: map[string]string{
			"README.md": "root", ".github/workflows/w.yaml": "x", ".github/tracking/Promoted_Commit_Id": "old",
			"edge/README.md": readme, "edge/app-t1/reconciler.yaml": "old", "edge/app-t1/stale.yaml": "x",
			"edge/app-t1/deep/er/stale.yaml": "x", "edge/loose.yaml": "x", "edge/app-gone/namespace.yaml": "x",
		},
	},
	{
		name: "a cluster type that is gone goes, a folder of somebody's stays",
		existing: map[string]string{
			"gone/README.md": "Ours.\n" + readme, "gone/app-t1/namespace.yaml": "x",
			"docs/README.md": "Our docs", "docs/a.md": "x", ".hidden/README.md": readme,
		},
	},
	{
		name:     "a failed assignment keeps its files",
		existing: map[string]string{"edge/README.md": readme, "edge/app-bad/reconciler.yaml": "good", "edge/app-bad/more/x": "y"},
	},
	{
		name: "all that is not rendered keeps its files where it is not known what should be there",
		existing: map[string]string{
			"edge/README.md": readme, "edge/app-gone/x": "y", "edge/app-t1/stale.yaml": "x", "edge/loose.yaml": "x", "idle/README.md/x": "folder",
			"idle/app-t1/reconciler.yaml": "good", "gone/README.md": readme, "gone/app-t1/x": "y",
		},
		force: true, keep: true,
	},
	{
		name:     "files in place of folders and folders in place of files give way",
		existing: map[string]string{"edge/README.md": readme, "edge/app-t1": "file", "idle/README.md/x": "folder"},
		force:    true,
	},
	{name: "the tracking file alone is a tree too", existing: map[string]string{".github/tracking/Promoted_Commit_Id": "old"}},
	{name: "names that git quotes", existing: map[string]string{"edge/README.md": readme, "edge/a \"b\" é/*x": "x"}},
	{name: "a branch of somebody's is refused", existing: map[string]string{"letters/a.txt": "x"}, refused: "it holds letters: not written by wherry or Kalypso"},
	{
		name:     "somebody's folder with the name of a cluster type is refused",
		existing: map[string]string{"edge/mine.txt": "x", "idle/README.md": readme}, refused: "folder edge: not written by",
	},
	{name: "a file with the name of a cluster type is refused", existing: map[string]string{"edge": "x"}, refused: "edge is in the way: not a folder"},
	{name: "force takes over", existing: map[string]string{"a.txt": "x", "edge/mine.txt": "x"}, force: true},
}

// A branch gets what a folder gets: the two packages follow the same rules.
func TestABranchGetsWhatAFolderGets(t *testing.T) {
	for _, test := range trees {
		t.Run(test.name, func(t *testing.T) {
			repo := filepath.Join(t.TempDir(), "r.git")
			before := gittest.CommitFiles(t, repo, "dev", test.existing)
			o := Options{Force: test.force, Keep: test.keep, AllowEmpty: true}
			outcome, err := Push(t.Context(), Target{URL: repo, Branch: "dev"}, edge(), o)
			if test.refused != "" {
				require.ErrorContains(t, err, test.refused)
				require.Equal(t, before, git(t, repo, "rev-parse", "dev"))
				return
			}
			require.NoError(t, err)
			dir := gittest.WriteFiles(t, "", test.existing)
			want, err := outdir.Write(t.Context(), dir, edge(), outdir.Options{Force: test.force, Keep: test.keep})
			require.NoError(t, err)
			require.Equal(t, gittest.ReadFiles(t, dir), checkout(t, repo, "dev"))
			require.Equal(t, want, outdir.Changes{Written: outcome.Written, Removed: outcome.Removed, Unchanged: outcome.Unchanged})
			require.Equal(t, outcome.Commit, git(t, repo, "rev-parse", "dev"))
			require.Equal(t, before, git(t, repo, "rev-parse", "dev^"))
			require.Empty(t, git(t, repo, "fsck", "--strict"))

			again, err := Push(t.Context(), Target{URL: repo, Branch: "dev"}, edge(), o)
			require.NoError(t, err)
			require.False(t, again.Pushed)
			require.Equal(t, outcome.Commit, again.Commit)
		})
	}
}

func TestAClusterTypeIsEmptiedOnPurposeOnly(t *testing.T) {
	repo := filepath.Join(t.TempDir(), "r.git")
	gittest.CommitFiles(t, repo, "dev", map[string]string{
		"edge/README.md": readme, "edge/app-gone/x": "y", "gone/README.md": readme, "gone/app-t1/x": "y", "idle/README.md": readme, "old/README.md": readme,
	})
	to := Target{URL: repo, Branch: "dev"}
	for name, test := range map[string]struct {
		types []scheduler.ClusterTypeResult
		o     Options
		want  string
	}{
		"types with and without assignments": {edge().ClusterTypes, Options{}, "gone would lose all assignments"},
		"nothing at all":                     {nil, Options{}, "edge, gone would lose all assignments"},
		"types without assignments":          {[]scheduler.ClusterTypeResult{{Name: "edge"}, {Name: "gone"}}, Options{}, "edge, gone would lose all assignments"},
		"what should be there is not known":  {[]scheduler.ClusterTypeResult{{Name: "edge"}, {Name: "gone"}}, Options{Keep: true}, ""},
		"on purpose":                         {nil, Options{AllowEmpty: true}, ""},
	} {
		before := git(t, repo, "rev-parse", "dev")
		_, err := Push(t.Context(), to, &scheduler.Result{Environment: "dev", ClusterTypes: test.types}, test.o)
		if test.want == "" {
			require.NoError(t, err, name)
		} else {
			require.ErrorAs(t, err, new(*EmptyError), name)
			require.ErrorContains(t, err, test.want)
		}
		if test.want == "" {
			git(t, repo, "update-ref", "refs/heads/dev", before)
		} else {
			require.Equal(t, before, git(t, repo, "rev-parse", "dev"))
		}
	}
}

func TestTheSameInputGivesTheSameCommit(t *testing.T) {
	commits := map[string]bool{}
	for range 2 {
		s := forgetest.New(t, "gitlab")
		o := Options{
			Date: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), EnvironmentCommit: "def", Author: Identity{"Ann <b>\nx", "ann@example.com"},
		}
		outcome, err := Push(t.Context(), target(s), edge(), o)
		require.NoError(t, err)
		commits[outcome.Commit] = true
		require.Equal(t, "Ann b x <ann@example.com> 2026-01-02T03:04:05+00:00|wherry <wherry@wherry.invalid> 2026-01-02T03:04:05+00:00",
			s.RunGit("log", "-1", "--format=%an <%ae> %aI|%cn <%ce> %cI", "dev"))
		require.Equal(t, `Update manifests in dev

6 written, 0 removed, 0 unchanged.

Base-Commit: abc
Environment-Commit: def
Wherry-Environment: dev
Wherry-Tree: `+s.RunGit("rev-parse", "dev^{tree}"), s.RunGit("log", "-1", "--format=%B", "dev"))
		dated, err := Push(t.Context(), target(s), changed("2"), Options{})
		require.NoError(t, err)
		require.Equal(t, "2026-01-02T03:04:05+00:00", s.RunGit("log", "-1", "--format=%cI", dated.Commit), "that of the commit before it")
	}
	require.Len(t, commits, 1)
}

func TestABranchIsMadeInAFolderOnDisk(t *testing.T) {
	repo := filepath.Join(t.TempDir(), "r.git")
	gittest.CommitFiles(t, repo, "main", map[string]string{"README.md": "x"})
	for _, url := range []string{repo, "file://" + repo} {
		t.Run(url[:4], func(t *testing.T) {
			branch := "new-" + strings.Trim(url[:4], "/")
			outcome, err := Push(t.Context(), Target{URL: url, Branch: branch, Folder: "./deep/er/"}, edge(), Options{})
			require.NoError(t, err)
			require.True(t, outcome.Pushed)
			require.Contains(t, outcome.Written, "edge/app-t1/namespace.yaml", "paths are below the folder")
			again, err := Push(t.Context(), Target{URL: url, Branch: branch, Folder: "deep/er"}, edge(), Options{})
			require.NoError(t, err)
			require.False(t, again.Pushed)
			require.Equal(t, outcome.Commit, again.Commit)
			third, err := Push(t.Context(), Target{URL: url, Branch: branch, Folder: "deep/er"}, changed("2"), Options{})
			require.NoError(t, err)
			require.Equal(t, []string{"edge/app-t1/platform-config.yaml"}, third.Written)
		})
	}
}

func TestARepositoryOfSHA256(t *testing.T) {
	repo := filepath.Join(t.TempDir(), "r.git")
	git(t, repo, "init", "--quiet", "--bare", "--object-format=sha256", repo)
	empty := git(t, repo, "hash-object", "-t", "tree", "-w", "/dev/null")
	git(t, repo, "update-ref", "refs/heads/main", git(t, repo, "commit-tree", empty, "-m", "Begin"))
	first, err := Push(t.Context(), Target{URL: repo, Branch: "main"}, edge(), Options{})
	require.NoError(t, err)
	require.Len(t, first.Commit, 64)
	second, err := Push(t.Context(), Target{URL: repo, Branch: "main"}, edge(), Options{})
	require.NoError(t, err)
	require.Equal(t, first.Commit, second.Commit)
	third, err := Push(t.Context(), Target{URL: repo, Branch: "main"}, changed("2"), Options{})
	require.NoError(t, err)
	require.Equal(t, 5, third.Unchanged)
}

func TestWrongTargetsAreRefused(t *testing.T) {
	for text, want := range map[string]string{
		"https://u:secret@example.com/a/b":           "https://example.com/a/b: no branch is named, as in URL#BRANCH",
		"https://u:secret@example.com/a/b#":          "https://example.com/a/b: no branch is named, as in URL#BRANCH",
		"ftp://u:secret@example.com/a/b#dev":         `ftp://example.com/a/b: "ftp" is not a way to reach a git repository: use https, http, ssh or file`,
		"https://u:secret@example.com/a#-x":          `https://example.com/a: "-x" cannot be the name of a branch`,
		"https://u:secret@example.com/a#a..b":        `https://example.com/a: "a..b" cannot be the name of a branch`,
		"https://u:secret@example.com/a#dev:../x":    `path "../x" leads out of the repository`,
		"https://u:secret@example.com/a#dev:.git/x":  "folder .git/x cannot be written to",
		"https://u:secret@example.com/a#refs/tags/x": `https://example.com/a: "refs/tags/x" cannot be the name of a branch`,
		"#dev": "no repository is named",
	} {
		_, err := ParseTarget(text)
		require.EqualError(t, err, want, text)
	}
	got, err := ParseTarget("https://u:secret@example.com/a/b#feature/x:./deep/er/")
	require.NoError(t, err)
	require.Equal(t, "https://example.com/a/b#feature/x:deep/er", got.String())
}

func TestALoginThatIsNotAcceptedIsSaidWithoutIt(t *testing.T) {
	s := forgetest.New(t, "gitea")
	for _, login := range []string{"", "robot:wrong-password-0123@", "wrong-token-0123456789@", "robot:" + forgetest.Reader + "@"} {
		_, err := Push(t.Context(), Target{URL: strings.Replace(s.URL, "://", "://"+login, 1), Branch: "dev"}, edge(), Options{})
		require.ErrorIs(t, err, ErrDenied, login)
		for _, secret := range []string{"wrong-password-0123", "wrong-token-0123456789", forgetest.Reader, "@"} {
			require.NotContains(t, err.Error(), secret)
		}
	}
	s.Protect("dev")
	_, err := Push(t.Context(), target(s), edge(), Options{})
	require.ErrorAs(t, err, new(*RefusedError))
	require.ErrorContains(t, err, "the server refuses a push to dev: git push:")
	require.ErrorContains(t, err, "GH006: Protected branch update failed.")
	require.NotContains(t, err.Error(), forgetest.Writer)
	require.NotContains(t, err.Error(), "\n")
}

func TestARepositoryThatIsNotThere(t *testing.T) {
	_, err := Push(t.Context(), Target{URL: filepath.Join(t.TempDir(), "none"), Branch: "dev"}, edge(), Options{})
	require.ErrorContains(t, err, "git ls-remote: ")
	require.ErrorContains(t, err, "does not appear to be a git repository")
	_, err = Push(t.Context(), Target{URL: "http://127.0.0.1:1/a/b", Branch: "dev"}, edge(), Options{})
	require.ErrorContains(t, err, "git ls-remote: ")
}

// The user's hooks, templates, identity and signing are not ours; the way to a server is.
func TestTheUsersConfigurationStaysOut(t *testing.T) {
	s := forgetest.New(t, "gitea")
	home := gittest.WriteFiles(t, "", map[string]string{
		".gitconfig": "[core]\nhooksPath = " + t.TempDir() + "/hooks\n[user]\nname = Me\n[commit]\ngpgSign = true\n[push]\ngpgSign = true\n" +
			"[url \"http://127.0.0.1:1/\"]\ninsteadOf = " + s.URL + "\n[http]\nextraHeader = Authorization: Basic other\n",
	})
	t.Setenv("HOME", home)
	t.Setenv("GIT_AUTHOR_NAME", "Me")
	t.Setenv("GIT_DIR", home)
	outcome, err := Push(t.Context(), target(s), edge(), Options{})
	require.NoError(t, err)
	require.NoError(t, os.Unsetenv("GIT_DIR"))
	require.Equal(t, "wherry", s.RunGit("log", "-1", "--format=%an", outcome.Commit))

	require.NoError(t, os.WriteFile(filepath.Join(home, ".gitconfig"), []byte("[credential]\nhelper = \"!f() { echo username=robot; echo password="+forgetest.Writer+"; }; f\"\n"), 0o600))
	netrc := "machine 127.0.0.1 login robot password " + forgetest.Writer + "\n"
	require.NoError(t, os.WriteFile(filepath.Join(home, ".netrc"), []byte(netrc), 0o600))
	_, err = Push(t.Context(), Target{URL: s.URL, Branch: "dev"}, changed("2"), Options{})
	require.ErrorIs(t, err, ErrDenied, "without TLS neither a credential helper nor ~/.netrc is asked")

	plain, err := url.Parse(s.URL)
	require.NoError(t, err)
	secure := httptest.NewTLSServer(httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: plain.Host}))
	defer secure.Close()
	authority := filepath.Join(home, "ca.pem")
	require.NoError(t, os.WriteFile(authority, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: secure.Certificate().Raw}), 0o600))
	t.Setenv("GIT_SSL_CAINFO", authority)
	again, err := Push(t.Context(), Target{URL: secure.URL + plain.Path, Branch: "dev"}, changed("2"), Options{})
	require.NoError(t, err, "a credential helper is asked")
	require.True(t, again.Pushed)
}

// The files of a large repository stay on the server: only commits and folders are fetched.
func TestNoFileIsFetchedThatIsNotNeeded(t *testing.T) {
	s := forgetest.New(t, "gitea")
	large := map[string]string{"docs/README.md": "Large", "edge/README.md": readme, "edge/app-t1/reconciler.yaml": "old"}
	for _, name := range []string{"docs/a", "docs/b", "big"} {
		large[name] = strings.Repeat(name, 1<<20)
	}
	for range 2 { // some history
		gittest.CommitFiles(t, s.Git, "dev", large)
		large["big"] += "."
	}
	remote, err := RemoteOf(target(s).URL, "", "")
	require.NoError(t, err)
	g, err := InitGit(t.Context(), remote, time.Minute)
	require.NoError(t, err)
	defer func() { require.NoError(t, g.Close()) }()
	r := repository{Git: g}
	made, err := r.make(t.Context(), target(s), map[string]string{"dev": s.RunGit("rev-parse", "dev")}, &rendered{edge()}, Options{Author: Identity{"a", "b"}, Committer: Identity{"a", "b"}})
	require.NoError(t, err)
	require.NoError(t, r.push(t.Context(), made.Commit, "dev", s.RunGit("rev-parse", "dev")))
	out, err := r.Run(t.Context(), nil, "cat-file", "--batch-all-objects", "--batch-check=%(objecttype) %(objectsize)")
	require.NoError(t, err)
	require.Equal(t, 3, strings.Count(string(out), "commit "), "the newest one, ours, and a draft of it")
	require.NotContains(t, string(out), "blob 1048576")
	require.NotContains(t, string(out), "blob 6291456")
	require.Equal(t, large["docs/a"], checkout(t, s.Git, "dev")["docs/a"])
}
