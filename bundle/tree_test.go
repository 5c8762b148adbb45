package bundle

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/opencontainers/go-digest"
	"github.com/stretchr/testify/require"
)

func sampleFiles() []File {
	return []File{
		{Path: "shop-dev/reconciler.yaml", Data: []byte("kind: A\n")},
		{Path: "shop-dev/namespace.yaml", Data: []byte("kind: Namespace\n")},
		{Path: "shop-dev/hooks/run.sh", Executable: true, Data: []byte("#!/bin/sh\n")},
		{Path: ".wherry/assignments.ndjson", Data: []byte("{}\n")},
	}
}

func openRoot(t *testing.T) *os.Root {
	root, err := os.OpenRoot(t.TempDir())
	require.NoError(t, err)
	t.Cleanup(func() { root.Close() })
	return root
}

func TestPackedTreeUnpacksToTheSameFiles(t *testing.T) {
	packed, err := Pack(sampleFiles())
	require.NoError(t, err)
	root := openRoot(t)
	require.NoError(t, Unpack(bytes.NewReader(packed.Gzip), root, packed.Content))
	for _, f := range sampleFiles() {
		got, err := root.ReadFile(f.Path)
		require.NoError(t, err)
		require.Equal(t, string(f.Data), string(got))
		info, err := root.Stat(f.Path)
		require.NoError(t, err)
		require.Equal(t, f.Executable, info.Mode()&0o100 != 0, f.Path)
	}
}

func TestATarUnpacksAsItsGzipDoes(t *testing.T) {
	packed, err := Pack(sampleFiles())
	require.NoError(t, err)
	zip, err := gzip.NewReader(bytes.NewReader(packed.Gzip))
	require.NoError(t, err)
	data, err := io.ReadAll(zip)
	require.NoError(t, err)
	root := openRoot(t)
	u := &Unpacker{Root: root}
	require.NoError(t, u.Tar(bytes.NewReader(data), packed.Content))
	require.Empty(t, u.Passed())
	got, err := root.ReadFile("shop-dev/namespace.yaml")
	require.NoError(t, err)
	require.Equal(t, "kind: Namespace\n", string(got))
	u = &Unpacker{Root: openRoot(t)}
	require.ErrorIs(t, u.Tar(bytes.NewReader(append(data, 0)), packed.Content), ErrTooLarge)
}

func TestAFolderThatIsThereIsDigestedAndNotWritten(t *testing.T) {
	files := sampleFiles()
	packed, err := Pack(files)
	require.NoError(t, err)
	root, asked := openRoot(t), map[string]int{}
	u := &Unpacker{Root: root, Have: func(folder string) bool {
		asked[folder]++
		return folder == "shop-dev"
	}}
	require.NoError(t, u.Gzip(bytes.NewReader(packed.Gzip), packed.Content))
	require.NoDirExists(t, filepath.Join(root.Name(), "shop-dev"))
	for folder, n := range asked {
		require.Equal(t, 1, n, folder)
	}
	var own []File
	for _, f := range files {
		if rest, ok := strings.CutPrefix(f.Path, "shop-dev/"); ok {
			f.Path = rest
			own = append(own, f)
		}
	}
	require.NotEmpty(t, own)
	require.Equal(t, map[string]digest.Digest{"shop-dev": ContentDigest(own)}, u.Passed())
}

func TestPackDependsOnNothingButTheFiles(t *testing.T) {
	want, err := Pack(sampleFiles())
	require.NoError(t, err)
	files := sampleFiles()
	rand.Shuffle(len(files), func(i, j int) { files[i], files[j] = files[j], files[i] })
	got, err := Pack(files)
	require.NoError(t, err)
	require.Equal(t, want, got)
	// The content digest is part of the format: it must not move with a Go release.
	require.Equal(t, "sha256:305daa15326a759f897ae19473f8d3eeea92e3f7aa9925bc3227f064092bf47c", want.Content.DiffID.String())
}

func TestPackRefusesNamesThatUnpackRefuses(t *testing.T) {
	for _, name := range []string{"", ".", "/etc/passwd", "../up", "a//b", "a/./b", `a\b`, "a\x00b", strings.Repeat("d/", 300) + "f"} {
		_, err := Pack([]File{{Path: name}})
		require.Error(t, err, "%q", name)
	}
	_, err := Pack([]File{{Path: "a/Config"}, {Path: "a/config"}})
	require.ErrorContains(t, err, "is there twice")
	_, err = Pack([]File{{Path: "a"}, {Path: "a/b"}})
	require.ErrorContains(t, err, "lies below the file")
	_, err = Pack([]File{{Path: "A/b"}, {Path: "a/c"}})
	require.ErrorContains(t, err, "differ in case only")
}

func TestNamesBoundFoldersToo(t *testing.T) {
	names, deep := NewNames(MaxFiles), strings.Repeat("d/", 200)
	var err error
	for i := 0; err == nil && i < MaxFiles; i++ {
		err = names.Add(fmt.Sprintf("%d/%sf", i, deep), false)
	}
	require.ErrorIs(t, err, ErrTooLarge)
	require.Less(t, names.files, 1000, "each name has 201 folders of its own")
}

// entry is a tar entry that Pack would not write.
type entry struct {
	header tar.Header
	data   string
}

func layerOf(t testing.TB, entries ...entry) ([]byte, Content) {
	var raw bytes.Buffer
	w := tar.NewWriter(&raw)
	files := 0
	for _, e := range entries {
		e.header.Size = int64(len(e.data))
		if e.header.Typeflag == 0 {
			e.header.Typeflag = tar.TypeReg
		}
		if e.header.Typeflag == tar.TypeReg {
			files++
		}
		require.NoError(t, w.WriteHeader(&e.header))
		_, err := w.Write([]byte(e.data))
		require.NoError(t, err)
	}
	require.NoError(t, w.Close())
	return compress(t, raw.Bytes()), Content{DiffID: digest.FromBytes(raw.Bytes()), Size: int64(raw.Len()), Files: files}
}

func compress(t testing.TB, raw []byte) []byte {
	var zipped bytes.Buffer
	zip := gzip.NewWriter(&zipped)
	_, err := zip.Write(raw)
	require.NoError(t, err)
	require.NoError(t, zip.Close())
	return zipped.Bytes()
}

func TestUnpackRefuses(t *testing.T) {
	file := func(name string) entry { return entry{header: tar.Header{Name: name, Mode: 0o644}, data: "x"} }
	tests := []struct {
		name    string
		entries []entry
		change  func(layer []byte, want *Content) []byte
		reason  Reason
	}{
		{name: "a path that leads out", entries: []entry{file("../evil")}, reason: BadContent},
		{name: "an absolute path", entries: []entry{file("/etc/cron.d/evil")}, reason: BadContent},
		{name: "a symbolic link", entries: []entry{{header: tar.Header{Name: "l", Linkname: "/etc", Typeflag: tar.TypeSymlink}}}, reason: BadContent},
		{name: "a hard link", entries: []entry{file("a"), {header: tar.Header{Name: "l", Linkname: "a", Typeflag: tar.TypeLink}}}, reason: BadContent},
		{name: "a device", entries: []entry{{header: tar.Header{Name: "d", Typeflag: tar.TypeBlock}}}, reason: BadContent},
		{name: "a name twice", entries: []entry{file("a"), file("a")}, reason: BadContent},
		{name: "names that differ in case only", entries: []entry{file("a"), file("A")}, reason: BadContent},
		{name: "names that differ in the case of other letters", entries: []entry{file("straße/\u017fite"), file("straße/Site")}, reason: BadContent},
		{name: "folders that differ in case only", entries: []entry{file("d/a"), file("D/b")}, reason: BadContent},
		{name: "a folder with the name of a file", entries: []entry{file("a"), {header: tar.Header{Name: "a/", Typeflag: tar.TypeDir}}}, reason: BadContent},
		{name: "a file below a file", entries: []entry{file("a"), file("a/b")}, reason: BadContent},
		{name: "a path that is too long", entries: []entry{file(strings.Repeat("d/", 300) + "f")}, reason: TooLarge},
		{name: "more files than signed", entries: []entry{file("a"), file("b")}, change: func(l []byte, c *Content) []byte { c.Files--; return l }, reason: TooLarge},
		{name: "fewer files than signed", entries: []entry{file("a")}, change: func(l []byte, c *Content) []byte { c.Files++; return l }, reason: BadContent},
		{name: "more bytes than signed", entries: []entry{file("a")}, change: func(l []byte, c *Content) []byte { c.Size--; return l }, reason: TooLarge},
		{name: "another digest than signed", entries: []entry{file("a")}, change: func(l []byte, c *Content) []byte { c.DiffID = digest.FromString("other"); return l }, reason: DigestMismatch},
		{name: "bytes after the archive's end", entries: []entry{file("a")}, change: func(l []byte, c *Content) []byte { return append(l, compress(t, make([]byte, 1<<20))...) }, reason: TooLarge},
		{name: "no gzip", entries: []entry{file("a")}, change: func([]byte, *Content) []byte { return []byte("plain text, longer than a header") }, reason: BadContent},
		{name: "a layer that was cut", entries: []entry{file("a")}, change: func(l []byte, _ *Content) []byte { return l[:len(l)-9] }, reason: BadContent},
		{name: "a deflate stream that is broken", entries: []entry{file("a")}, change: func(l []byte, _ *Content) []byte {
			for i := 12; i < len(l); i++ {
				l[i] = 0xff
			}
			return l
		}, reason: BadContent},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			layer, want := layerOf(t, tt.entries...)
			if tt.change != nil {
				layer = tt.change(layer, &want)
			}
			err := Unpack(bytes.NewReader(layer), openRoot(t), want)
			var refusal *Refusal
			require.ErrorAs(t, err, &refusal)
			require.Equal(t, tt.reason, refusal.Reason, refusal.Message)
		})
	}
}

func TestUnpackStopsABombAtTheSignedSize(t *testing.T) {
	layer := compress(t, make([]byte, 64<<20))
	err := Unpack(bytes.NewReader(layer), openRoot(t), Content{DiffID: digest.FromString("x"), Size: 1000, Files: 1})
	require.ErrorIs(t, err, ErrTooLarge)
}

func TestUnpackRefusesASparseFileLargerThanTheTar(t *testing.T) {
	// GNU's sparse format 1.0: a map of no data regions, then a real size of 1 TiB.
	sparse := entry{header: tar.Header{Name: "GNUSparseFile.0/f", Mode: 0o644, Format: tar.FormatPAX}, data: "0\n" + strings.Repeat("\x00", 510)}
	layer, _ := layerOf(t, sparse)
	raw := gunzip(t, layer)
	records := paxRecord("GNU.sparse.major", "1") + paxRecord("GNU.sparse.minor", "0") + paxRecord("GNU.sparse.name", "f") + paxRecord("GNU.sparse.realsize", "1099511627776")
	var header bytes.Buffer
	w := tar.NewWriter(&header)
	require.NoError(t, w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: "PaxHeaders.0/f", Size: int64(len(records))}))
	_, err := w.Write([]byte(records))
	require.NoError(t, err)
	require.NoError(t, w.Flush())
	pax := header.Bytes()
	pax[156] = tar.TypeXHeader
	fixChecksum(pax[:512])
	raw = append(pax, raw...)
	want := Content{DiffID: digest.FromBytes(raw), Size: int64(len(raw)), Files: 1}

	err = Unpack(bytes.NewReader(compress(t, raw)), openRoot(t), want)
	require.ErrorIs(t, err, ErrTooLarge)
}

func paxRecord(key, value string) string {
	for n := len(key) + len(value) + 3; ; n++ {
		if s := fmt.Sprintf("%d %s=%s\n", n, key, value); len(s) == n {
			return s
		}
	}
}

func fixChecksum(block []byte) {
	copy(block[148:156], "        ")
	sum := 0
	for _, b := range block {
		sum += int(b)
	}
	copy(block[148:156], fmt.Sprintf("%06o\x00 ", sum))
}

func gunzip(t testing.TB, layer []byte) []byte {
	zip, err := gzip.NewReader(bytes.NewReader(layer))
	require.NoError(t, err)
	var out bytes.Buffer
	_, err = out.ReadFrom(zip)
	require.NoError(t, err)
	return out.Bytes()
}

func TestUnpackTellsADiskErrorFromBadContent(t *testing.T) {
	layer, want := layerOf(t, entry{header: tar.Header{Name: "a", Mode: 0o644}, data: "x"})
	root := openRoot(t)
	require.NoError(t, root.Close())
	err := Unpack(bytes.NewReader(layer), root, want)
	var refusal *Refusal
	require.Error(t, err)
	require.NotErrorAs(t, err, &refusal)
}

func FuzzUnpack(f *testing.F) {
	layer, _ := layerOf(f, entry{header: tar.Header{Name: "d/a", Mode: 0o644}, data: "x"})
	f.Add(gunzip(f, layer))
	f.Fuzz(func(t *testing.T, raw []byte) {
		root := openRoot(t)
		content := Content{DiffID: digest.FromBytes(raw), Size: int64(len(raw)), Files: 3}
		if Unpack(bytes.NewReader(compress(t, raw)), root, content) != nil {
			return
		}
		files := 0
		require.NoError(t, fs.WalkDir(root.FS(), ".", func(_ string, d fs.DirEntry, err error) error {
			if !d.IsDir() {
				require.True(t, d.Type().IsRegular())
				files++
			}
			return err
		}))
		require.Equal(t, 3, files)
	})
}
