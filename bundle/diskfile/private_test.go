package diskfile

import (
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestKeepTakesTheRightsOfOthers(t *testing.T) {
	for _, tt := range []struct {
		name             string
		dir              fs.FileMode
		wantDir          fs.FileMode
		wantFile, wantIn fs.FileMode
	}{
		{"a folder that all may read", 0o755, fs.ModeDir | 0o700, 0o600, fs.ModeDir | 0o700},
		{"a folder that all may write", 0o777, fs.ModeDir | 0o700, 0o600, fs.ModeDir | 0o700},
		{"a private one", 0o700, fs.ModeDir | 0o700, 0o600, fs.ModeDir | 0o700},
		{"a group's", fs.ModeSetgid | 0o775, fs.ModeDir | fs.ModeSetgid | 0o770, 0o660, fs.ModeDir | 0o770},
		{"one that is shared by all", fs.ModeSticky | 0o777, fs.ModeDir | fs.ModeSticky | 0o777, 0o600, fs.ModeDir | 0o700},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "state")
			in := func(name string) string { return filepath.Join(dir, name) }
			mode := func(path string) fs.FileMode {
				info, err := os.Lstat(path)
				require.NoError(t, err)
				return info.Mode()
			}
			outside := filepath.Join(t.TempDir(), "theirs")
			for _, path := range []string{outside, in("db"), in("foreign")} {
				require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
				require.NoError(t, os.WriteFile(path, nil, 0o600))
				require.NoError(t, os.Chmod(path, 0o666))
			}
			require.NoError(t, os.Symlink(outside, in("link")))
			require.NoError(t, os.Mkdir(in("store"), 0o700))
			require.NoError(t, os.Chmod(in("store"), 0o777))
			require.NoError(t, os.Chmod(dir, tt.dir))

			for range 2 {
				require.NoError(t, KeepPrivate(dir, "db", "store", "link", "missing"))
				require.Equal(t, tt.wantDir, mode(dir))
				require.Equal(t, tt.wantFile, mode(in("db")))
				require.Equal(t, tt.wantIn, mode(in("store")))
				require.Equal(t, fs.FileMode(0o666), mode(in("foreign")), "what it is not told of stays as it is")
				require.Equal(t, fs.FileMode(0o666), mode(outside))
			}
		})
	}
}
