package findings

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/publisher/platform"
)

func TestAMistakeIsInTheResultAndNotAnError(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "objects.yaml"), []byte("kind: [\n"), 0o600))
	loaded := 0
	r, err := Collect(t.Context(), []platform.Source{{Platform: dir, Environment: "dev", Timeout: time.Minute}}, Options{AfterLoad: func(*platform.Loaded) { loaded++ }})
	require.NoError(t, err)
	require.Zero(t, loaded)
	require.True(t, r.Incomplete)
	require.Equal(t, []string{"dev"}, r.Environments)
	require.Equal(t, 1, r.Errors)
	require.Len(t, r.Findings, 1)
	found := r.Findings[0]
	require.Equal(t, filepath.Join(dir, "objects.yaml"), found.File)
	require.Equal(t, []string{"dev"}, found.Environments)

	r, err = Collect(t.Context(), []platform.Source{{Platform: dir, Environment: "dev", Timeout: time.Minute}}, Options{Ignore: []string{found.Code}})
	require.NoError(t, err)
	require.Empty(t, r.Findings)
	require.Zero(t, r.Errors)

	_, err = Collect(t.Context(), []platform.Source{{Platform: filepath.Join(dir, "gone"), Environment: "dev", Timeout: time.Minute}}, Options{})
	require.ErrorAs(t, err, new(*platform.SourceError))
}

func TestCodeScanningFindsFilesOfTheWorkTree(t *testing.T) {
	here, err := os.Getwd()
	require.NoError(t, err)
	places := sarifPlaces{top: filepath.Dir(here), platform: "dev#main"}
	for file, want := range map[string]string{
		"a b.yaml":                   filepath.Base(here) + "/a%20b.yaml",
		"../../other/a.yaml":         "file://" + filepath.Join(here, "../../other/a.yaml"),
		"https://host/repo#main/a b": "https://host/repo/main/a%20b",
		"":                           filepath.Base(here) + "/dev",
	} {
		require.Equal(t, want, places.uri(file), file)
	}
}
