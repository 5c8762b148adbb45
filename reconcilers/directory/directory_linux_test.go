package directory_test

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/reconcilers/directory"
)

func TestAFullAndAReadOnlyFileSystemKeepTheLastGoodState(t *testing.T) {
	root := small(t, "64k")
	r := directory.New(root, directory.Options{})
	require.Equal(t, bundle.Compliant, r.Apply(t.Context(), assignment(t, "drone", map[string]string{"a": "1"})).State)

	big := assignment(t, "drone", map[string]string{"a": "2", "big": string(make([]byte, 1<<20))})
	res := r.Apply(t.Context(), big)
	require.Equal(t, bundle.Pending, res.State)
	require.Equal(t, directory.DiskFull, res.Reason)
	require.Equal(t, map[string]string{"drone/a": "1"}, contents(t, root), "nothing half-written stays")

	require.NoError(t, syscall.Mount("", root, "", syscall.MS_REMOUNT|syscall.MS_RDONLY, ""))
	res = r.Apply(t.Context(), big)
	require.Equal(t, bundle.Failed, res.State)
	require.Equal(t, directory.NotWritable, res.Reason)
	require.Equal(t, map[string]string{"drone/a": "1"}, contents(t, root))
}

// small mounts a file system of some size at a new folder.
func small(t *testing.T, size string) string {
	root := t.TempDir()
	err := syscall.Mount("tmpfs", root, "tmpfs", 0, "size="+size)
	if errors.Is(err, syscall.EPERM) && os.Geteuid() != 0 {
		t.Skipf("needs a user who may mount a small file system: %v", err)
	}
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, syscall.Unmount(root, 0)) })
	return root
}

func TestTooLittleRoomIsSaidBeforeTheFirstByte(t *testing.T) {
	h := newHost(t)
	h.root = small(t, "3m")
	h.restart()
	model := sized(2 << 20)
	a := with(assignment(t, "drone", map[string]string{"a": "1"}), h.push(titled("model", model)))
	h.compliant(a)
	newer := with(assignment(t, "drone", map[string]string{"a": "2"}), h.push(titled("model", sized(2 << 20)[1:])))
	h.answer(nil)
	res := h.settled(newer)
	require.Equal(t, bundle.Pending, res.State)
	require.Equal(t, directory.DiskFull, res.Reason)
	require.Regexp(t, h.root+` needs 2\.0 MiB more beside what runs, and has 10[0-9]{2}\.[0-9] KiB free`, res.Message)
	require.Empty(t, h.asked())
	require.Equal(t, map[string]string{"drone/a": "1", "drone/model": model}, contents(t, h.root))

	// The model alone fills the disk by two thirds: another configuration does not need it twice.
	h.compliant(with(assignment(t, "drone", map[string]string{"a": "3"}), a.Fetched...))
	h.only(map[string]string{"drone/a": "3", "drone/model": model})
}

func TestAnArchiveThatFillsTheDiskLeavesTheLastGoodState(t *testing.T) {
	h := newHost(t)
	h.root = small(t, "1m")
	h.restart()
	h.compliant(assignment(t, "drone", map[string]string{"a": "1"}))
	name := strings.Repeat("0", 100)
	headers := make([]tar.Header, 0, 1000)
	for i := range cap(headers) { // each takes a page of the disk, and next to nothing of the archive
		headers = append(headers, tar.Header{Name: fmt.Sprintf("%s/%d", name, i)})
	}
	a := with(assignment(t, "drone", map[string]string{"a": "2"}), h.push(blob{mediaType: ocispec.MediaTypeImageLayerGzip, data: zipped(t, archive(t, headers...))}))
	res := h.settled(a)
	require.Equal(t, bundle.Pending, res.State, res.Message)
	require.Equal(t, directory.DiskFull, res.Reason)
	require.Equal(t, "1", contents(t, h.root)["drone/a"])
	require.NotContains(t, contents(t, h.root), ".part")
}

// A layer of some KiB that unpacks to gigabytes filled the disk, and was fetched again at once.
func TestWhatAnArchiveUnpacksToIsCountedBeforeTheDiskIsTouched(t *testing.T) {
	h := newHost(t)
	h.root = small(t, "8m")
	h.restart()
	h.compliant(assignment(t, "drone", map[string]string{"a": "1"}))
	large := zeros(t, "large", 64<<20)
	a := with(assignment(t, "drone", map[string]string{"a": "2"}), h.push(blob{mediaType: ocispec.MediaTypeImageLayerGzip, data: zipped(t, large)}))
	before := free(t, h.root)
	res := h.settled(a)
	require.Equal(t, []any{bundle.Pending, directory.DiskFull}, []any{res.State, res.Reason}, res.Message)
	require.Regexp(t, `needs 64\.0 MiB more beside what runs, and has 7\.[0-9] MiB free`, res.Message)
	require.Less(t, before-free(t, h.root), uint64(512<<10), "the archive alone is there")
	require.Equal(t, "1", contents(t, h.root)["drone/a"])

	h.answer(nil)
	require.Equal(t, directory.DiskFull, h.settled(a).Reason)
	h.restart()
	require.Equal(t, directory.DiskFull, h.settled(a).Reason)
	require.Empty(t, h.asked(), "nothing is fetched a second time")

	// What leaves less than a tenth of the disk free is too much too; what leaves more is unpacked.
	most := zeros(t, "most", 7<<20+600<<10)
	res = h.settled(with(assignment(t, "drone", map[string]string{"a": "2"}), h.push(blob{mediaType: ocispec.MediaTypeImageLayerGzip, data: zipped(t, most)})))
	require.Equal(t, directory.DiskFull, res.Reason, res.Message)
	require.Contains(t, res.Message, "of which a tenth of the disk, 819.2 KiB, is reserved")
	fits := zeros(t, "fits", 6<<20)
	h.compliant(with(assignment(t, "drone", map[string]string{"a": "2"}), h.push(blob{mediaType: ocispec.MediaTypeImageLayerGzip, data: zipped(t, fits)})))
}

// zeros is the archive of one file of zeros.
func zeros(t *testing.T, name string, size int) []byte {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	require.NoError(t, w.WriteHeader(&tar.Header{Name: name, Typeflag: tar.TypeReg, Mode: 0o644, Size: int64(size)}))
	_, err := w.Write(make([]byte, size))
	require.NoError(t, errors.Join(err, w.Close()))
	return b.Bytes()
}

func free(t *testing.T, dir string) uint64 {
	var s syscall.Statfs_t
	require.NoError(t, syscall.Statfs(dir, &s))
	return s.Bfree * uint64(s.Bsize)
}
