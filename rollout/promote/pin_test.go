package promote

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/publisher/gittest"
	"github.com/wherry-dev/wherry/publisher/platform"
)

const (
	oldCommit = "5523a85f37d12c0c7c10ab6616644db089fcd6f7"
	newCommit = "42f2c201b96055faead8da72a126ec3e8fe30296"
)

// kalypso is the file that Kalypso's template gives.
const kalypso = `apiVersion: scheduler.kalypso.io/v1alpha1
kind: BaseRepo
metadata:
  name: main
spec:
  repo: https://github.com/microsoft/kalypso-control-plane
  branch: main
  path: .
  commit: ` + oldCommit + "\n"

func TestPinningChangesOneScalar(t *testing.T) {
	t.Parallel()
	other := strings.NewReplacer("name: main", "name: other", "commit: ", "commit: 1").Replace(kalypso)
	without := strings.Replace(kalypso, "  commit: "+oldCommit+"\n", "", 1)
	for _, c := range []struct{ name, text, old, commit, want string }{
		{"Kalypso's file", kalypso, oldCommit, newCommit, strings.Replace(kalypso, oldCommit, newCommit, 1)},
		{"a file with a comment, other objects and line breaks of Windows", crlf("# ours\n" + other + "---\n" + kalypso + "# end"), oldCommit, newCommit, crlf("# ours\n" + other + "---\n" + strings.Replace(kalypso, oldCommit, newCommit, 1) + "# end")},
		{"a commit in quotes", strings.Replace(kalypso, oldCommit, `"`+oldCommit+`" # x`, 1), oldCommit, newCommit, strings.Replace(kalypso, oldCommit, `"`+newCommit+`" # x`, 1)},
		{"a commit that YAML takes for a number", kalypso, oldCommit, "1234567890123456789012345678901234567890", strings.Replace(kalypso, oldCommit, `"1234567890123456789012345678901234567890"`, 1)},
		{"no commit yet", without, "", newCommit, without + "  commit: " + newCommit + "\n"},
		{
			"an item of a List", "apiVersion: v1\nkind: List\nitems:\n- {kind: ConfigMap, apiVersion: v1}\n- apiVersion: scheduler.kalypso.io/v1alpha1\n  kind: BaseRepo\n  metadata: {name: main}\n  spec: {repo: x, commit: " + oldCommit + "}\n", oldCommit, newCommit,
			"apiVersion: v1\nkind: List\nitems:\n- {kind: ConfigMap, apiVersion: v1}\n- apiVersion: scheduler.kalypso.io/v1alpha1\n  kind: BaseRepo\n  metadata: {name: main}\n  spec: {repo: x, commit: " + newCommit + "}\n",
		},
		{"JSON", `{"apiVersion": "scheduler.kalypso.io/v1alpha1", "kind": "BaseRepo", "metadata": {"name": "main"}, "spec": {"commit": "` + oldCommit + `"}}`, oldCommit, newCommit, `{"apiVersion": "scheduler.kalypso.io/v1alpha1", "kind": "BaseRepo", "metadata": {"name": "main"}, "spec": {"commit": "` + newCommit + `"}}`},
		{"what is there already", kalypso, "whatever", oldCommit, kalypso},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := Pin([]byte(c.text), c.old, c.commit)
			require.NoError(t, err)
			require.Equal(t, c.want, string(got))
		})
	}
	_, err := Pin([]byte(kalypso), newCommit, strings.Repeat("a", 40))
	require.ErrorIs(t, err, errMoved, "somebody has pinned another one meanwhile")
	_, err = Pin([]byte(other), oldCommit, newCommit)
	require.ErrorIs(t, err, ErrNoBase)
}

func crlf(text string) string { return strings.ReplaceAll(text, "\n", "\r\n") }

// Where one branch has a folder for each environment, and the BaseRepo lies in a file of another name.
func TestOneBranchHasAllEnvironments(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	files := map[string]string{}
	for _, name := range []string{"dev", "stage", "prod"} {
		files[".environments/"+name+".yaml"] = "apiVersion: scheduler.kalypso.io/v1alpha1\nkind: Environment\nmetadata: {name: " + name + "}\nspec:\n  controlPlane: {repo: " + w.forge.Git + ", branch: envs, path: envs/" + name + "}\n"
		files["envs/"+name+"/sources/base.yaml"] = baseRepo(w.forge.Git, w.first)
	}
	gittest.CommitFiles(t, w.forge.Git, "envs", files)
	w.forge.RunGit("symbolic-ref", "HEAD", "refs/heads/envs")
	next := w.push("two")
	w.forge.Commit("envs", "envs/dev/sources/base.yaml", baseRepo(w.forge.Git, next))
	require.NoError(t, w.publish(t.Context(), Publication{Environment: "dev"}))
	lines, _ := w.pass(Options{})
	require.Equal(t, []string{"stage: promoted " + short(next) + " (1 commit)", "prod: promoted " + short(next) + " (1 commit)"}, lines)
	require.Equal(t, "envs/prod/sources/base.yaml\nenvs/stage/sources/base.yaml", w.forge.RunGit("diff", "--name-only", "envs~2", "envs"))
	require.Equal(t, strings.TrimSpace(baseRepo(w.forge.Git, next)), w.forge.RunGit("show", "envs:envs/prod/sources/base.yaml"))
}

// Where the environments' folders are on the branch of the base, a pin is a commit of the base too.
func TestAPinIsNotPromotedItself(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	commit := func(name, text string) string { return w.forge.Commit("main", name, text) }
	unpinned := strings.Replace(baseRepo(w.forge.Git, "X"), "  commit: X # by the robot\n", "", 1)
	for _, name := range []string{"dev", "stage", "prod"} {
		commit(".environments/"+name+".yaml", "apiVersion: scheduler.kalypso.io/v1alpha1\nkind: Environment\nmetadata: {name: "+name+"}\nspec:\n  controlPlane: {repo: "+w.forge.Git+", branch: main, path: envs/"+name+"}\n")
		commit("envs/"+name+"/base-repo.yaml", unpinned)
	}
	next := w.push("two")
	publish := func() { require.NoError(t, w.publish(t.Context(), Publication{Environment: "dev"})) }
	publish()
	lines, _ := w.pass(Options{})
	require.Equal(t, []string{"stage: promoted " + short(next), "prod: promoted " + short(next)}, lines)
	for range 3 {
		publish()
		require.NotEqual(t, next, w.has("dev"), "it follows the branch")
		head := w.forge.RunGit("rev-parse", "main")
		lines, _ = w.pass(Options{})
		require.Equal(t, []string{"stage: has " + short(next), "prod: has " + short(next)}, lines)
		require.Equal(t, head, w.forge.RunGit("rev-parse", "main"))
	}
	newer := w.push("three")
	publish()
	lines, _ = w.pass(Options{To: "stage"})
	require.Equal(t, []string{"stage: promoted " + short(newer) + " (3 commits)"}, lines)
}

func TestAFolderWithoutARemoteIsChangedInPlace(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	next := w.push("two")
	w.deploy("dev", next)
	dir := gittest.WriteFiles(t, filepath.Join(t.TempDir(), "stage"), map[string]string{"base-repo.yaml": baseRepo(w.forge.Git, w.first)})
	p := w.promoter()
	p.Source.Platform = dir
	all, err := p.Pass(t.Context(), Options{To: "stage", Now: w.now})
	require.NoError(t, err)
	require.Equal(t, Promoted, all.Worst(), all)
	require.Equal(t, []string{filepath.Join(dir, "base-repo.yaml") + " was changed, and is not committed"}, all.Results[0].Warnings)
	require.Equal(t, map[string]string{"base-repo.yaml": baseRepo(w.forge.Git, next)}, gittest.ReadFiles(t, dir))
}

func TestACloneStandsForWhatItWasClonedFrom(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	git := func(dir string, args ...string) {
		cmd := exec.Command("git", args...)
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL="+os.DevNull)
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, string(out))
	}
	dir := t.TempDir()
	git(dir, "clone", "--quiet", w.forge.Git, "clone")
	clone := filepath.Join(dir, "clone")
	of := func(place string) string {
		t.Helper()
		remote, err := Remote(t.Context(), platform.Source{Platform: place})
		require.NoError(t, err)
		return remote
	}
	require.Equal(t, w.forge.Git, of(clone))
	require.Equal(t, w.forge.Git+"#stage", of(clone+"#stage"))
	require.Equal(t, w.forge.Git+"#main:.environments", of(filepath.Join(clone, ".environments")))
	require.Equal(t, w.forge.Git, of(w.forge.Git), "a bare repository is itself")
	require.Equal(t, "https://example.com/x#prod", of("https://example.com/x#prod"))
	require.Equal(t, dir, of(dir))
	git(clone, "checkout", "--quiet", "--detach")
	require.Equal(t, w.forge.Git, of(clone), "as in most CI systems")
	_, err := Remote(t.Context(), platform.Source{Platform: filepath.Join(clone, ".environments")})
	require.ErrorIs(t, err, ErrNoBranch)
}
