package settings_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/publisher/gittest"
	"github.com/wherry-dev/wherry/publisher/settings"
)

func environment(name, branch, path string) string {
	return fmt.Sprintf("apiVersion: scheduler.kalypso.io/v1alpha1\nkind: Environment\nmetadata: {name: %s}\n"+
		"spec: {controlPlane: {repo: https://example.invalid/platform, branch: %s, path: %s}}\n", name, branch, path)
}

// none is the environment of a process without variables.
func none(string) string { return "" }

func open(t *testing.T, dir string) *settings.Settings {
	t.Helper()
	s, err := settings.Open(dir, settings.Sources{Getenv: none})
	require.NoError(t, err)
	return s
}

func TestThePlatformIsTheNearestFolderWithASign(t *testing.T) {
	top := gittest.WriteFiles(t, "", map[string]string{
		"fleet/wherry.yaml":               "environment: dev\n",
		"fleet/envs/dev/sub/a.yaml":       "",
		"second/.environments/dev.yaml":   environment("dev", "main", "envs/dev"),
		"second/envs/dev/a.yaml":          "",
		"third/base/platform.yaml":        "apiVersion: wherry.dev/v1alpha1\nkind: Platform\nmetadata: {name: a}\n",
		"third/base/deep/a.yaml":          "",
		"fourth/.environments/dev.yaml":   environment("dev", "main", "envs/dev"),
		"fourth/base/platform.yaml":       "apiVersion: wherry.dev/v1alpha1\nkind: Platform\nmetadata: {name: a}\n",
		"fourth/base/deep/a.yaml":         "",
		"repository/folder/deeper/a.yaml": "",
	})
	_, err := gittest.CommitWorkTree(filepath.Join(top, "repository"), "main")
	require.NoError(t, err)
	for from, want := range map[string]string{
		"fleet": "fleet", "fleet/envs/dev/sub": "fleet", "second/envs/dev": "second", "third/base/deep": "third/base",
		"fourth/base/deep": "fourth", "repository/folder/deeper": "repository",
	} {
		r, err := settings.Find(filepath.Join(top, from))
		require.NoError(t, err)
		require.Equal(t, filepath.Join(top, want), r.Dir, from)
	}
}

func TestAFolderForEverybodyIsNoPlatform(t *testing.T) {
	top := gittest.WriteFiles(t, "", map[string]string{"shared/wherry.yaml": "cache: /\n", "shared/mine/a.yaml": ""})
	require.NoError(t, os.Chmod(filepath.Join(top, "shared"), 0o777))
	_, err := settings.Find(filepath.Join(top, "shared", "mine"))
	require.ErrorIs(t, err, settings.ErrNoPlatform)
}

func TestABrokenRepositoryIsAFolder(t *testing.T) {
	top := gittest.WriteFiles(t, "", map[string]string{".git/HEAD": "nothing", "wherry.yaml": "environment: dev\n"})
	require.Equal(t, "dev", open(t, top).Environment.Text)
}

func TestTheEnvironmentIsThatOfTheFolderOrTheDefault(t *testing.T) {
	top := gittest.WriteFiles(t, "", map[string]string{
		"wherry.yaml":            "environment: prod\n",
		".environments/dev.yaml": environment("dev", "main", "./envs/dev/"),
		".environments/all.yaml": environment("prod", "main", "envs/prod") + "---\n" + environment("lab", "main", "envs/prod/lab"),
		"envs/dev/sub/a.yaml":    "", "envs/prod/lab/a.yaml": "", "other/a.yaml": "",
	})
	for from, want := range map[string][2]string{
		".":                 {"prod", "wherry.yaml:1"},
		"other":             {"prod", "wherry.yaml:1"},
		"envs/dev":          {"dev", "from envs/dev"},
		"envs/dev/sub":      {"dev", "from envs/dev"},
		"envs/prod":         {"prod", "from envs/prod"},
		"envs/prod/lab":     {"lab", "from envs/prod/lab"},
		"envs/prod/../prod": {"prod", "from envs/prod"},
	} {
		at, err := open(t, filepath.Join(top, from)).Locate("")
		require.NoError(t, err)
		require.Equal(t, want[0], at.Environment, from)
		require.True(t, strings.HasSuffix(at.Because, want[1]), "%s: %s", from, at.Because)
	}
	s := open(t, filepath.Join(top, "envs", "dev"))
	at, err := s.Locate("lab")
	require.NoError(t, err)
	require.Equal(t, settings.Place{Platform: at.Platform, Environment: "lab"}, at)
	_, err = s.Locate("lob")
	var unknown *settings.UnknownError
	require.ErrorAs(t, err, &unknown)
	require.Equal(t, "lab", unknown.Near)
}

func TestWhatIsReadIsBounded(t *testing.T) {
	files := map[string]string{".environments/dev.yaml": environment("dev", "main", "envs/dev"), "envs/dev/a.yaml": ""}
	for i := range 2000 {
		files[fmt.Sprintf("f%04d.yaml", i)] = environment(fmt.Sprintf("e%04d", i), "main", ".")
	}
	s := open(t, gittest.WriteFiles(t, "", files))
	require.Len(t, s.Platform.Environments(), 1+64)
}

func TestContextsAreReplacedAsAWhole(t *testing.T) {
	file := filepath.Join(t.TempDir(), "wherry", "contexts.yaml")
	c, err := settings.ReadContexts(file)
	require.NoError(t, err)
	require.NoError(t, c.Set(settings.Context{Name: "b", Registry: "oci://registry.example.com/edge"}))
	require.NoError(t, c.Set(settings.Context{Name: "a", Hub: "https://hub.example.com"}))
	require.NoError(t, c.Use("a"))
	require.NoError(t, c.Write(file))
	info, err := os.Stat(file)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode().Perm())
	again, err := settings.ReadContexts(file)
	require.NoError(t, err)
	require.Equal(t, c, again)
	require.Equal(t, []string{"a", "b"}, again.Names())
	require.NoError(t, again.Remove("a"))
	require.Empty(t, again.Current)
	left, err := os.ReadDir(filepath.Dir(file))
	require.NoError(t, err)
	require.Len(t, left, 1)
}

func FuzzNoSettingsFileStopsTheProgram(f *testing.F) {
	f.Add([]byte("registry: oci://a/b\nkeys: [a]\n"))
	f.Add([]byte("a: &a [*a]\n<<: *a\n"))
	f.Add([]byte("mirrors:\n\t'https://user:t0ken@h/': [x]\r\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		dir := t.TempDir()
		require.NoError(t, os.WriteFile(filepath.Join(dir, "wherry.yaml"), data, 0o600))
		s, err := settings.Open(dir, settings.Sources{Getenv: none})
		if err == nil {
			_ = s.Rows()
		}
	})
}
