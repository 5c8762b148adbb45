package airgapcmd

import (
	"bytes"
	"context"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/airgap/medium"
)

func TestAPackageIsWrittenAgainInOtherParts(t *testing.T) {
	data := make([]byte, 3<<20+77)
	_, _ = rand.NewChaCha8([32]byte{}).Read(data)
	content := func() *io.SectionReader { return io.NewSectionReader(bytes.NewReader(data), 0, int64(len(data))) }
	for _, split := range []int64{0, 1 << 20, 2 << 20, int64(len(data))} {
		path := filepath.Join(t.TempDir(), "site.tar")
		for range 2 { // the second replaces the first
			files, err := rewrite(t.Context(), content(), path, split)
			require.NoError(t, err)
			for _, file := range files {
				require.FileExists(t, file)
			}
			src, err := medium.Open(medium.OS{}, nil, filepath.Dir(path))
			require.NoError(t, err)
			got, err := io.ReadAll(src.Content())
			require.NoError(t, err)
			require.True(t, bytes.Equal(data, got))
			require.NoError(t, src.Damaged(t.Context()))
			require.NoError(t, src.Close())
		}
	}
}

func TestAnInterruptedSplitLeavesNothing(t *testing.T) {
	dir := t.TempDir()
	ctx, cancel := context.WithCancel(t.Context())
	reads := 0
	data := io.NewSectionReader(readerAt(func(b []byte, _ int64) (int, error) {
		if reads++; reads == 2 {
			cancel()
		}
		return len(b), nil
	}), 0, 8<<20)
	_, err := rewrite(ctx, data, filepath.Join(dir, "site.tar"), 1<<20)
	require.ErrorIs(t, err, context.Canceled)
	left, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Empty(t, left)
}

type readerAt func([]byte, int64) (int, error)

func (r readerAt) ReadAt(b []byte, at int64) (int, error) { return r(b, at) }
