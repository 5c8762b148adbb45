package agent

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/klauspost/compress/zstd"
	"github.com/opencontainers/go-digest"
	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/bundle"
)

func zipped(t testing.TB, raw []byte) []byte {
	t.Helper()
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	_, err := w.Write(raw)
	require.NoError(t, err)
	require.NoError(t, w.Close())
	return out.Bytes()
}

// gzipBomb returns 64 MiB of zeros in gzip. They are compressed once for all tests, which takes a moment.
var gzipBomb = sync.OnceValue(func() []byte {
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	w.Write(make([]byte, 64<<20)) // a bytes.Buffer fails no write
	w.Close()
	return out.Bytes()
})

// withTree offers release 6, signed as it should be, with a tree that no publisher packs: a list of the
// assignment shop-main, its file, and members.
func withTree(members ...member) func(*siege) digest.Digest {
	return func(s *siege) digest.Digest {
		whole := append([]member{file(bundle.AssignmentsPath, listOf("shop-main", "a: evil")), file("shop-main/config.yaml", "a: evil")}, members...)
		raw, content := s.tarOf(whole...)
		return s.offerLayer(6, zipped(s.t, raw), content)
	}
}

// withList is withTree with the content of another list.
func withList(list string) func(*siege) digest.Digest {
	return func(s *siege) digest.Digest {
		raw, content := s.tarOf(file(bundle.AssignmentsPath, list), file("shop-main/config.yaml", "a: evil"))
		return s.offerLayer(6, zipped(s.t, raw), content)
	}
}

func link(kind byte, name, to string) member {
	return member{tar.Header{Typeflag: kind, Name: name, Linkname: to, Mode: 0o777}, ""}
}

// The owner of a trusted key can make agents fetch anything. Agents check all of it before they use any of it.
func TestAttackInTheTree(t *testing.T) {
	small := bundle.Content{DiffID: digest.FromString("x"), Size: 1000, Files: 1}
	mountAll(t, []attack{
		{name: "a gzip bomb", lateAt: 6, says: "larger than the signed 1000 bytes", want: bundle.TooLarge, mount: func(s *siege) digest.Digest {
			return s.offerLayer(6, gzipBomb(), small)
		}},
		{name: "a gzip bomb behind the archive", lateAt: 6, says: "larger than the signed", want: bundle.TooLarge, mount: func(s *siege) digest.Digest {
			raw, content := s.tarOf(file("shop-main/config.yaml", "a: evil"))
			return s.offerLayer(6, append(zipped(s.t, raw), gzipBomb()...), content)
		}},
		{name: "a zstd bomb as gzip", lateAt: 6, says: "layer is not gzip", want: bundle.BadContent, mount: func(s *siege) digest.Digest {
			enc, err := zstd.NewWriter(nil)
			require.NoError(s.t, err)
			return s.offerLayer(6, enc.EncodeAll(make([]byte, 64<<20), nil), small)
		}},
		{name: "an uncompressed layer", lateAt: 6, says: "layer is not gzip", want: bundle.BadContent, mount: func(s *siege) digest.Digest {
			raw, content := s.tarOf(file("shop-main/config.yaml", "a: evil"))
			return s.offerLayer(6, raw, content)
		}},
		{name: "a tree with another digest", lateAt: 6, want: bundle.DigestMismatch, mount: func(s *siege) digest.Digest {
			raw, content := s.tarOf(file("shop-main/config.yaml", "a: evil"))
			content.DiffID = digest.FromString("other")
			return s.offerLayer(6, zipped(s.t, raw), content)
		}},
		{name: "more files than were signed", lateAt: 6, says: "more than 1 files", want: bundle.TooLarge, mount: func(s *siege) digest.Digest {
			raw, content := s.tarOf(file("shop-main/config.yaml", "a: evil"), file("shop-main/more", ""))
			content.Files--
			return s.offerLayer(6, zipped(s.t, raw), content)
		}},
		{name: "a too long path", lateAt: 6, says: "a path of 601 bytes", want: bundle.TooLarge, mount: withTree(file(strings.Repeat("d/", 300)+"f", ""))},
		{name: "a path with ..", lateAt: 6, says: "not a relative, clean path", want: bundle.BadContent, mount: withTree(file("shop-main/../../../agent.db", "evil"))},
		{name: "an absolute path", lateAt: 6, says: "not a relative, clean path", want: bundle.BadContent, mount: withTree(file("/etc/cron.d/evil", "evil"))},
		{name: "a Windows path", lateAt: 6, says: "not a relative, clean path", want: bundle.BadContent, mount: withTree(file(`shop-main\..\..\agent.db`, "evil"))},
		{name: "a symbolic link", lateAt: 6, says: "neither a file nor a folder", want: bundle.BadContent, mount: withTree(link(tar.TypeSymlink, "shop-main/l", "/etc/passwd"))},
		{name: "a link with a huge name", lateAt: 6, says: "tree entry", want: bundle.BadContent, mount: withTree(link(tar.TypeSymlink, strings.Repeat("x", 1<<19), "y"))},
		{name: "a file in a linked folder", lateAt: 6, says: "neither a file nor a folder", want: bundle.BadContent, mount: withTree(
			link(tar.TypeSymlink, "shop-main/up", "../../.."), file("shop-main/up/agent.db", "evil"))},
		{name: "a hard link", lateAt: 6, says: "neither a file nor a folder", want: bundle.BadContent, mount: withTree(link(tar.TypeLink, "shop-main/l", "/etc/passwd"))},
		{name: "a device", lateAt: 6, says: "neither a file nor a folder", want: bundle.BadContent, mount: withTree(link(tar.TypeBlock, "shop-main/sda", ""))},
		{name: "a pipe", lateAt: 6, says: "neither a file nor a folder", want: bundle.BadContent, mount: withTree(link(tar.TypeFifo, "shop-main/pipe", ""))},
		{name: "a file twice", lateAt: 6, says: "is there twice", want: bundle.BadContent, mount: withTree(file("shop-main/config.yaml", "a: other"))},
		{name: "a file and folder of one name", lateAt: 6, says: "is there twice", want: bundle.BadContent, mount: withTree(link(tar.TypeDir, "shop-main/config.yaml/", ""))},
		{name: "files that differ in case", lateAt: 6, says: "is there twice", want: bundle.BadContent, mount: withTree(file("shop-main/CONFIG.yaml", "a: other"))},
		{name: "files that differ in case by Unicode", lateAt: 6, says: "is there twice", want: bundle.BadContent, mount: withTree(
			file("shop-main/s", ""), file("shop-main/\u017f", ""))},
		{name: "folders that differ in case", lateAt: 6, says: "differ in case only", want: bundle.BadContent, mount: withTree(file("Shop-Main/other.yaml", "a: other"))},
		{name: "a second list in .WHERRY", lateAt: 6, says: "is there twice", want: bundle.BadContent, mount: withTree(file(".WHERRY/assignments.ndjson", ""))},
		{name: "a folder as the list", lateAt: 6, says: "is not a file", want: bundle.BadContent, mount: func(s *siege) digest.Digest {
			raw, content := s.tarOf(file(bundle.AssignmentsPath+"/x", ""))
			return s.offerLayer(6, zipped(s.t, raw), content)
		}},
		{name: "a too large list of assignments", lateAt: 6, want: bundle.TooLarge, mount: withList(strings.Repeat("\n", bundle.MaxListBytes+1))},
		{name: "a list with a too long line", lateAt: 6, says: "token too long", want: bundle.BadContent, mount: withList(strings.Repeat(" ", 2<<20))},
		{name: "other files than listed", lateAt: 6, says: "listed is", want: bundle.BadContent, mount: withList(listOf("shop-main", "a: other"))},
		{name: "an unlisted file", lateAt: 6, says: "listed is", want: bundle.BadContent, mount: withTree(file("shop-main/more.yaml", "b: 2"))},
		{name: "a list that names an outside folder", lateAt: 6, says: "is not a folder name", want: bundle.BadContent, mount: withList(listOf("../shop-main", "a: evil"))},
		{name: "a list that names its own folder", lateAt: 6, says: "is not a folder name", want: bundle.BadContent, mount: withList(listOf(bundle.MetaDir, "a: evil"))},
		{name: "a list that names a folder in another case", lateAt: 6, says: "listed is", want: bundle.BadContent, mount: withList(listOf("SHOP-main", "a: evil"))},
		{name: "a list with an assignment twice", lateAt: 6, says: "is listed twice", want: bundle.BadContent, mount: withList(listOf("shop-main", "a: evil") + listOf("shop-main", "a: evil"))},
	})
}

// A folder that no assignment has is signed like the rest, and given to nobody.
func TestAttackWithFilesOfNobody(t *testing.T) {
	s := besiege(t)
	withTree(file("etc/cron.d/evil", "evil"))(s)
	r := s.sync()
	require.Equal(t, bundle.Compliant, r.Status.State, r.Error)
	require.Len(t, r.Status.Items, 1)
	s.requireHost("a: evil")
	require.NoError(t, os.RemoveAll(s.host))
	s.end(9)
}

// Names that are one after Unicode's normalisation are two files here, as they were signed. A file system
// that took them for one would fail the second, and with it the release.
func TestAttackWithTwinNames(t *testing.T) {
	s := besiege(t)
	files := map[string]string{"shop-main/config.yaml": "a: 6", "shop-main/caf\u00e9": "composed", "shop-main/cafe\u0301": "decomposed"}
	offered := s.publish(s.draft(6, files))
	r := s.sync()
	require.Equal(t, offered.Digest, r.Status.Release.Running.Digest, r.Error)
	require.Equal(t, bundle.Compliant, r.Status.State)
	for name, content := range files {
		requireFile(t, s.host, name, content)
	}
	s.end(9)
}
