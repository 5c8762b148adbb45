package medium_test

import (
	"bytes"
	"crypto/sha256"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/opencontainers/go-digest"
	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/airgap/medium"
	"github.com/wherry-dev/wherry/bundle/oci/archive"
)

// names lists the files of a folder.
func names(t *testing.T, dir string) (all []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	for _, e := range entries {
		all = append(all, e.Name())
	}
	return all
}

// whole reads what was written under path, by the manifest if it is in parts, and compares it with the manifest.
func whole(t *testing.T, path string) []byte {
	t.Helper()
	f, err := archive.Find(archive.OS{}, path)
	require.NoError(t, err)
	defer f.Close()
	data, err := io.ReadAll(f.File())
	require.NoError(t, err)
	require.NoError(t, f.Damaged(t.Context()))
	if f.Parts != nil {
		require.Equal(t, f.Parts.Digest, digest.FromBytes(data))
	}
	return data
}

var sample = bytes.Repeat([]byte("0123456789abcdef"), 1000)

func TestWhatIsCommittedReplacesWhatWasThere(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "site.tar")
	for _, step := range []struct {
		name  string
		split int64
		data  []byte
		want  []string
	}{
		{"one file", 0, sample, []string{"site.tar"}},
		{"parts in its place", 7000, sample, []string{"site.tar.001", "site.tar.002", "site.tar.003", "site.tar.parts.json", "site.tar.sha256"}},
		{"fewer parts", 7000, sample[:8000], []string{"site.tar.001", "site.tar.002", "site.tar.parts.json", "site.tar.sha256"}},
		{"a part that is full", 7000, sample[:7000], []string{"site.tar.001", "site.tar.parts.json", "site.tar.sha256"}},
		{"one file again", 0, sample[:10], []string{"site.tar"}},
	} {
		t.Run(step.name, func(t *testing.T) {
			writePackage(t, path, step.split, step.data)
			require.Equal(t, step.want, names(t, dir))
			require.Equal(t, step.data, whole(t, path))
		})
	}
}

func TestNothingIsVisibleBeforeACommit(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "site.tar")
	for _, split := range []int64{0, 7000} {
		o, err := medium.Create(medium.OS{}, path, split)
		require.NoError(t, err)
		_, err = o.Write(sample)
		require.NoError(t, err)
		require.EqualValues(t, len(sample), o.Size())
		for _, name := range names(t, dir) {
			require.Equal(t, ".partial", filepath.Ext(name))
		}
		_, err = medium.Create(medium.OS{}, path, split)
		require.ErrorIs(t, err, fs.ErrExist)
		_, err = medium.Reopen(medium.OS{}, path, split)
		require.ErrorIs(t, err, medium.ErrBusy)
		require.ErrorIs(t, medium.RemovePartial(medium.OS{}, path), medium.ErrBusy)
		require.NoError(t, o.Discard())
		require.Empty(t, names(t, dir))
	}
}

// TestAnOutputIsContinued cuts an unfinished output anywhere and goes on: the files are those of a single run.
func TestAnOutputIsContinued(t *testing.T) {
	for _, split := range []int64{0, 5000} {
		for _, wrote := range []int{0, 1, 4999, 5000, 5001, 10_000, 12_345, len(sample)} {
			for _, keep := range []int{0, 1, 4999, 5000, 5001, 9999, 10_000, 12_345, len(sample)} {
				if keep > wrote {
					continue
				}
				dir := t.TempDir()
				path := filepath.Join(dir, "site.tar")
				o, err := medium.Create(medium.OS{}, path, split)
				require.NoError(t, err)
				_, err = o.Write(sample[:wrote])
				require.NoError(t, err)
				require.NoError(t, o.Close())

				o, err = medium.Reopen(medium.OS{}, path, split)
				require.NoError(t, err)
				require.EqualValues(t, wrote, o.Size())
				read, err := io.ReadAll(io.NewSectionReader(o, 0, o.Size()))
				require.NoError(t, err)
				require.Equal(t, sha256.Sum256(sample[:wrote]), sha256.Sum256(read))
				require.NoError(t, o.Truncate(int64(keep)))
				require.EqualValues(t, keep, o.Size())
				_, err = o.Write(sample[keep:])
				require.NoError(t, err)
				require.NoError(t, o.Commit())
				require.NoError(t, o.Close(), "a second end does nothing")
				require.NoError(t, o.Discard())
				require.Equal(t, sha256.Sum256(sample), sha256.Sum256(whole(t, path)), "split %d, %d written, %d kept", split, wrote, keep)
				for _, name := range names(t, dir) {
					require.NotEqual(t, ".partial", filepath.Ext(name))
				}
			}
		}
	}
}

// killed is a file system on which everything fails from some operation on.
type killed struct {
	medium.OS
	left int
}

func (k *killed) step() error {
	if k.left--; k.left < 0 {
		return syscall.EIO
	}
	return nil
}

func (k *killed) Rename(from, to string) error {
	if err := k.step(); err != nil {
		return err
	}
	return k.OS.Rename(from, to)
}

func (k *killed) Remove(name string) error {
	if err := k.step(); err != nil {
		return err
	}
	return k.OS.Remove(name)
}

func (k *killed) Create(name string) (medium.File, error) {
	if err := k.step(); err != nil {
		return nil, err
	}
	return k.OS.Create(name)
}

func (k *killed) SyncDir(dir string) error {
	if err := k.step(); err != nil {
		return err
	}
	return k.OS.SyncDir(dir)
}

// TestAnInterruptedCommitLeavesNoMix ends at each step of replacing one package by another. What can be opened afterwards
// is one of the two, and the next run succeeds.
func TestAnInterruptedCommitLeavesNoMix(t *testing.T) {
	older, newer := sample, bytes.Repeat([]byte("fedcba9876543210"), 800)
	for _, from := range []int64{0, 5000} {
		for _, to := range []int64{0, 5000} {
			finished := false
			for steps := 0; !finished; steps++ {
				require.Less(t, steps, 40)
				path := filepath.Join(t.TempDir(), "site.tar")
				writePackage(t, path, from, older)
				fsys := &killed{left: steps}
				finished = writeOn(fsys, path, to, newer) == nil

				if f, err := archive.Find(archive.OS{}, path); err == nil {
					data, err := io.ReadAll(f.File())
					require.NoError(t, err)
					require.NoError(t, f.Damaged(t.Context()))
					require.True(t, bytes.Equal(data, older) || bytes.Equal(data, newer), "from %d to %d after %d steps", from, to, steps)
					require.NoError(t, f.Close())
				}
				require.NoError(t, medium.RemovePartial(medium.OS{}, path))
				require.NoError(t, writeOn(medium.OS{}, path, to, newer))
				require.Equal(t, newer, whole(t, path))
				for _, name := range names(t, filepath.Dir(path)) {
					require.NotEqual(t, ".partial", filepath.Ext(name), "from %d to %d after %d steps", from, to, steps)
				}
			}
		}
	}
}

func writeOn(fsys medium.FS, path string, split int64, data []byte) error {
	o, err := medium.Create(fsys, path, split)
	if err != nil {
		return err
	}
	defer o.Close()
	if _, err := o.Write(data); err != nil {
		return err
	}
	return o.Commit()
}

// small is a file system that holds no file above a size.
type small struct {
	medium.OS
	max int64
}

type smallFile struct {
	medium.File
	left int64
}

func (s small) Create(name string) (medium.File, error) {
	f, err := s.OS.Create(name)
	return &smallFile{f, s.max}, err
}

func (f *smallFile) Write(b []byte) (int, error) {
	if int64(len(b)) > f.left {
		return 0, &fs.PathError{Op: "write", Path: "x", Err: syscall.EFBIG}
	}
	f.left -= int64(len(b))
	return f.File.Write(b)
}

func TestAFileTooLargeForItsFileSystem(t *testing.T) {
	path := filepath.Join(t.TempDir(), "site.tar")
	require.ErrorIs(t, writeOn(small{max: 5000}, path, 0, sample), medium.ErrFileTooLarge)
	require.NoError(t, medium.RemovePartial(medium.OS{}, path))
	require.NoError(t, writeOn(small{max: 5000}, path, 5000, sample))
	require.Equal(t, sample, whole(t, path))
}
