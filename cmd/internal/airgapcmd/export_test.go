package airgapcmd

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestSizesOfParts(t *testing.T) {
	for text, want := range map[string]int64{
		"": 0, "fat32": 4<<30 - 1, "2GiB": 2 << 30, "700MB": 700e6, "4 GiB": 4 << 30, "1048576": 1 << 20, "1TiB": 1 << 40,
	} {
		got, err := parseSplit(text)
		require.NoError(t, err, text)
		require.Equal(t, want, got, text)
	}
	for _, text := range []string{"large", "0", "-1GiB", "10", "1KiB", "9999999999TiB", "GiB", "1.5GiB"} {
		_, err := parseSplit(text)
		require.Error(t, err, text)
	}
}

func TestWhatAnInterruptedExportHasLeft(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"s[1].tar.partial", "s[1].tar.001.partial", "s[1].tar2.partial", "s1.tar.partial"} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), nil, 0o644))
	}
	path := filepath.Join(dir, "s[1].tar")
	require.Equal(t, []string{path + ".partial", path + ".001.partial"}, unfinished(path))
}
