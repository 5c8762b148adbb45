package medium_test

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/airgap/medium"
)

// noise does not repeat itself.
func noise(n int) string {
	var b strings.Builder
	for i := 0; b.Len() < n; i++ {
		fmt.Fprintf(&b, "%x", sha256.Sum256(fmt.Append(nil, i)))
	}
	return b.String()[:n]
}

// write writes data to the stick, in parts of split bytes.
func write(s *medium.Stick, name string, split int64, data []byte) error {
	o, err := medium.Create(s, medium.Path(name), split)
	if err != nil {
		return err
	}
	if _, err = io.Copy(o, bytes.NewReader(data)); err == nil {
		err = o.Commit()
	}
	return errors.Join(err, o.Close())
}

func TestAPackageTravelsOnFAT(t *testing.T) {
	data := sitePackage(t, noise(40_000))
	s := medium.NewStick()
	s.Limit = 10_000 // stands for 4 GiB − 1
	s.Now = func() time.Time { return time.Date(2026, 3, 1, 12, 0, 1, 999, time.UTC) }
	require.ErrorIs(t, write(s, "site.tar", 0, data), medium.ErrFileTooLarge)
	require.NoError(t, medium.RemovePartial(s, medium.Path("site.tar")))
	require.Empty(t, s.Names())
	require.EqualValues(t, 10_000, s.Space(medium.Dir).MaxFile)

	require.NoError(t, write(s, "Site.tar", 10_000, data))
	names := []string{"Site.tar.001", "Site.tar.002", "Site.tar.003", "Site.tar.004", "Site.tar.005", "Site.tar.parts.json", "Site.tar.sha256"}
	require.Equal(t, names, s.Names())
	s.Lose()
	require.Equal(t, names, s.Names(), "all is on the stick once it is done")
	info, err := s.Stat(medium.Path("SITE.TAR.001"))
	require.NoError(t, err)
	require.Zero(t, info.ModTime().Nanosecond())
	require.Zero(t, info.ModTime().Second()%2)

	s.ReadOnly, s.Upper = true, true
	for _, named := range [][]string{
		{medium.Dir},
		{medium.Path("SITE.TAR.003")},
		{medium.Path("site.TAR.005"), medium.Path("SITE.TAR.001"), medium.Path("Site.tar.003"), medium.Path("site.tar.002"), medium.Path("site.tar.004")},
		{medium.Path("SITE.TAR.PARTS.JSON")},
		{medium.Path("site.tar")},
	} {
		source, err := medium.Open(s, nil, named...)
		require.NoError(t, err, named)
		require.Contains(t, read(t, source), noise(40_000), named)
		require.NoError(t, source.Damaged(t.Context()))
		require.NoError(t, source.Close())
	}
}

func TestNamesThatDifferInCaseAreOneFileOnFAT(t *testing.T) {
	s := medium.NewStick()
	require.NoError(t, write(s, "SITE.TAR", 0, sitePackage(t, "old")))
	require.NoError(t, write(s, "site.tar", 0, sitePackage(t, "new")))
	require.Len(t, s.Names(), 1)
	source, err := medium.Open(s, nil, medium.Dir)
	require.NoError(t, err)
	require.Contains(t, read(t, source), "new")
	require.Error(t, write(s, "site?.tar", 0, nil))
}

// A stick is pulled out at each operation of an export. What lies on it then is the package of before or the next one, or, in
// parts, nothing that passes for a package; and the next export goes through.
func TestAStickThatIsPulledOutHasNothingHalf(t *testing.T) {
	before, after := sitePackage(t, noise(5_000)), sitePackage(t, "new"+noise(9_000))
	for _, split := range []int64{0, 4_000} {
		through := false
		for at := 0; !through; at++ {
			s := medium.NewStick()
			require.NoError(t, write(s, "site.tar", split, before))
			operations := 0
			s.Before = func(string, string) error {
				if operations++; operations > at {
					return syscall.EIO
				}
				return nil
			}
			err := write(s, "site.tar", split, after)
			through = err == nil
			s.Before = nil
			s.Lose()
			source, openErr := medium.Open(s, nil, medium.Path("site.tar"))
			if openErr == nil {
				if source.Damaged(t.Context()) == nil {
					texts := strings.Join(read(t, source), " ")
					require.True(t, strings.Contains(texts, noise(5_000)), "split %d, pulled out at %d", split, at)
				}
				require.NoError(t, source.Close())
			} else {
				require.NotZero(t, split, "a file is replaced as a whole: %v", openErr)
			}
			if !through {
				require.ErrorIs(t, err, syscall.EIO)
				require.NoError(t, medium.RemovePartial(s, medium.Path("site.tar")))
				require.NoError(t, write(s, "site.tar", split, after))
			}
			source, err = medium.Open(s, nil, medium.Path("site.tar"))
			require.NoError(t, err)
			require.NoError(t, source.Damaged(t.Context()))
			require.Contains(t, read(t, source), "new"+noise(9_000))
			require.NoError(t, source.Close())
			require.False(t, slices.ContainsFunc(s.Names(), func(name string) bool { return strings.HasSuffix(name, ".partial") }))
		}
	}
}

func TestAFullStickSaysSo(t *testing.T) {
	s := medium.NewStick()
	s.Room = 12_000
	err := write(s, "site.tar", 0, sitePackage(t, noise(20_000)))
	require.ErrorIs(t, err, syscall.ENOSPC)
	require.NotErrorIs(t, err, fs.ErrExist)
	s.Room = 0
	s.ReadOnly = true
	require.ErrorIs(t, write(s, "other.tar", 0, nil), syscall.EROFS)
}

// A stick that is pulled out while it is read fails with the error of the stick, wherever that is.
func TestAStickThatIsPulledOutWhileItIsRead(t *testing.T) {
	s := medium.NewStick()
	require.NoError(t, write(s, "site.tar", 4_000, sitePackage(t, noise(20_000))))
	through := false
	for at := 0; !through; at++ {
		operations := 0
		s.Before = func(string, string) error {
			if operations++; operations > at {
				return syscall.EIO
			}
			return nil
		}
		err := readAll(s)
		if through = err == nil; !through {
			require.ErrorIs(t, err, syscall.EIO, "pulled out at %d", at)
		}
	}
}

func readAll(s *medium.Stick) error {
	source, err := medium.Open(s, nil, medium.Dir)
	if err != nil {
		return err
	}
	defer source.Close()
	r, err := source.Reader()
	for err == nil {
		e, next := r.Next()
		if errors.Is(next, io.EOF) {
			return nil
		}
		if err = next; err == nil {
			_, err = io.Copy(io.Discard, e.Content)
		}
	}
	return err
}
