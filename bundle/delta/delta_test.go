package delta

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"testing"

	"github.com/klauspost/compress/zstd"
	"github.com/opencontainers/go-digest"
	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/bundle"
)

// manifests are as many bytes of YAML as a tree has, of which a good part cannot be guessed.
func manifests(size int) []byte {
	const one = "apiVersion: apps/v1\nkind: Deployment\nmetadata:\n  name: shop-%d\n  namespace: shop-%d\nspec:\n  replicas: %d\n  image: registry.example/shop@sha256:%016x%016x%016x%016x\n"
	r := rand.New(rand.NewPCG(1, 2))
	var out bytes.Buffer
	out.Grow(size + len(one)*2)
	for i := 0; out.Len() < size; i++ {
		fmt.Fprintf(&out, one, i, i%97, r.IntN(9), r.Uint64(), r.Uint64(), r.Uint64(), r.Uint64())
	}
	return out.Bytes()[:size]
}

// inserted is base with a line more near its start, so that all behind it has moved.
func inserted(base []byte) []byte {
	return slices.Insert(slices.Clone(base), len(base)/100, []byte("  annotations: {note: this was not here before}\n")...)
}

func content(tree []byte) bundle.Content {
	return bundle.Content{DiffID: digest.FromBytes(tree), Size: int64(len(tree)), Files: 1}
}

func TestADeltaMakesTheTreeThatItWasMadeOf(t *testing.T) {
	small := manifests(300 << 10)
	for name, c := range map[string]struct {
		base, next []byte
		most       int
	}{
		"a line more":          {small, inserted(small), 200},
		"a line less":          {inserted(small), small, 200},
		"nothing has changed":  {small, small, 100},
		"nothing was there":    {nil, small, len(small) / 2},
		"nothing is there":     {small, nil, 20},
		"nothing at all":       {nil, nil, 20},
		"a few bytes":          {[]byte("tea: 2\n"), []byte("tea: 3\n"), 30},
		"one behind the other": {small[:200<<10], small, len(small) / 4},
	} {
		t.Run(name, func(t *testing.T) {
			d, err := Make(c.base, c.next)
			require.NoError(t, err)
			require.LessOrEqual(t, len(d), c.most)
			again, err := Make(c.base, c.next)
			require.NoError(t, err)
			require.Equal(t, d, again)
			got, err := Apply(c.base, d, content(c.next))
			require.NoError(t, err)
			require.True(t, bytes.Equal(c.next, got))
		})
	}
}

// A window or a table that is too small shows in nothing but the size. The largest tree is that of
// TestMemoryIsBoundedAndGivenBack.
func TestASmallInsertionIsASmallDelta(t *testing.T) {
	t.Parallel()
	for size, most := range map[int]int{smallBytes/2 - 1<<10: 512, 4 << 20: 1 << 10, 16 << 20: 4 << 10} {
		base := manifests(size)
		next := inserted(base)
		d, err := Make(base, next)
		require.NoError(t, err)
		require.LessOrEqual(t, len(d), most, "of %d bytes", size)
		got, err := Apply(base, d, content(next))
		require.NoError(t, err)
		require.True(t, bytes.Equal(next, got))
	}
}

func TestTreesThatAreTooLargeHaveNoDelta(t *testing.T) {
	large := make([]byte, MaxTreeBytes+1)
	_, err := Make(large, nil)
	require.ErrorIs(t, err, bundle.ErrTooLarge)
	_, err = Make(nil, large)
	require.ErrorIs(t, err, bundle.ErrTooLarge)
	_, err = Apply(nil, nil, bundle.Content{Size: MaxTreeBytes + 1})
	require.ErrorIs(t, err, bundle.ErrTooLarge)
	_, err = Apply(nil, nil, bundle.Content{Size: -1})
	require.ErrorIs(t, err, bundle.ErrTooLarge)
	_, err = Apply(nil, large[:MaxBytes+1], bundle.Content{Size: 1})
	require.ErrorIs(t, err, bundle.ErrTooLarge)

	require.True(t, Worth(49, 100))
	require.False(t, Worth(50, 100))
}

func TestZstdReadsADelta(t *testing.T) {
	program, err := exec.LookPath("zstd")
	if err != nil {
		t.Log("there is no zstd to ask")
		return
	}
	dir := t.TempDir()
	base := manifests(1 << 20)
	next := inserted(base)
	d, err := Make(base, next)
	require.NoError(t, err)
	for name, data := range map[string][]byte{"base": base, "delta": d} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), data, 0o600))
	}
	said, err := exec.Command(program, "-d", "--patch-from="+filepath.Join(dir, "base"), filepath.Join(dir, "delta"), "-o", filepath.Join(dir, "next")).CombinedOutput()
	require.NoError(t, err, "%s", said)
	got, err := os.ReadFile(filepath.Join(dir, "next"))
	require.NoError(t, err)
	require.True(t, bytes.Equal(next, got))
}

func TestAHostileDeltaIsRefusedWithinTheMemoryOfTheTree(t *testing.T) {
	base := manifests(64 << 10)
	next := inserted(base)
	good, err := Make(base, next)
	require.NoError(t, err)
	bomb := func(dict []byte, size int) []byte {
		w, err := zstd.NewWriter(nil, zstd.WithEncoderDictRaw(0, dict), zstd.WithEncoderConcurrency(1))
		require.NoError(t, err)
		return w.EncodeAll(make([]byte, size), nil)
	}
	const magic = "\x28\xb5\x2f\xfd"
	for name, c := range map[string]struct {
		delta  []byte
		reason bundle.Reason
	}{
		"empty":                       {nil, bundle.BadContent},
		"no zstd":                     {next, bundle.BadContent},
		"no end":                      {good[:len(good)-1], bundle.BadContent},
		"a second frame":              {slices.Concat(good, good), bundle.BadContent},
		"garbage behind it":           {append(slices.Clone(good), "garbage"...), bundle.BadContent},
		"a bomb":                      {bomb(base, 256<<20), bundle.BadContent},
		"many bombs":                  {bytes.Repeat(bomb(nil, len(next)), 1000), bundle.BadContent},
		"a bomb without its size":     {append([]byte(magic+"\x00\x38"), bytes.Repeat([]byte("\x02\x00\x10\x00"), 4000)...), bundle.BadContent},
		"a window of 3 TiB":           {[]byte(magic + "\x00\xff\x01\x00\x00"), bundle.BadContent},
		"a size of 2^63":              {[]byte(magic + "\xe0\xff\xff\xff\xff\xff\xff\xff\x7f\x01\x00\x00"), bundle.BadContent},
		"another dictionary":          {[]byte(magic + "\x23\x07\x00\x00\x00\x01\x01\x00\x00"), bundle.BadContent},
		"a tree of the wrong length":  {must(Make(base, next[:len(next)-1])), bundle.BadContent},
		"a tree of the wrong content": {must(Make(base, append(slices.Clone(next[:len(next)-1]), 'x'))), bundle.DigestMismatch},
		"a delta from elsewhere":      {must(Make(next, next)), bundle.DigestMismatch},
		"frames that are passed over": {bytes.Repeat([]byte("\x50\x2a\x4d\x18\x00\x00\x00\x00"), 1000), bundle.BadContent},
	} {
		t.Run(name, func(t *testing.T) {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			_, err := Apply(base, c.delta, content(next))
			runtime.ReadMemStats(&after)
			var refusal *bundle.Refusal
			require.ErrorAs(t, err, &refusal)
			require.Equal(t, c.reason, refusal.Reason, refusal.Message)
			require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(len(next)+8<<20))
		})
	}
}

func must(data []byte, err error) []byte {
	if err != nil {
		panic(err)
	}
	return data
}

func TestADamagedDeltaMakesTheTreeOrNone(t *testing.T) {
	base := manifests(4 << 10)
	next := inserted(base)
	good, err := Make(base, next)
	require.NoError(t, err)
	for i := range good {
		_, err := Apply(base, good[:i], content(next))
		require.Error(t, err, "cut at %d", i)
		bad := slices.Clone(good)
		for bit := range 8 {
			bad[i] = good[i] ^ 1<<bit
			if got, err := Apply(base, bad, content(next)); err == nil {
				require.Equal(t, next, got, "bit %d of byte %d", bit, i)
			}
		}
	}
	_, err = Apply(bytes.ToUpper(base), good, content(next))
	require.Error(t, err, "a damaged base")
}

func FuzzApply(f *testing.F) {
	base := manifests(2 << 10)
	next := inserted(base)
	f.Add(must(Make(base, next)))
	f.Add(must(Make(nil, next)))
	f.Add([]byte("\x28\xb5\x2f\xfd\x00\x38\x03\x00\x10\x00"))
	want := content(next)
	f.Fuzz(func(t *testing.T, delta []byte) {
		got, err := Apply(base, delta, want)
		var refusal *bundle.Refusal
		if err != nil {
			require.ErrorAs(t, err, &refusal)
			return
		}
		require.Equal(t, next, got)
	})
}
