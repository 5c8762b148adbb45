package agent

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/agent/state"
	"github.com/wherry-dev/wherry/airgap/packagetest"
)

// FuzzImport imports packages that were changed at random: each 5 bytes of the input choose an entry, what happens to it,
// where, and how. Half of the packages come from a pipe. Whatever comes of it, the agent runs what it had or what was
// signed, and its store names nothing but that, whole.
func FuzzImport(f *testing.F) {
	d := depotFor(f)
	goods := d.goods(6)
	good := d.pack(goods)
	d.cutOff(true)
	signed := map[digest.Digest]bool{d.good.Digest: true}
	for _, e := range good.Entries {
		signed[digest.FromBytes(e.Data)] = true
	}
	before := map[digest.Digest]bool{}
	for _, m := range d.served(f).Manifests {
		before[m.Digest] = true
	}
	f.Add([]byte{0, 0, 0, 0, 0}, false)
	f.Add([]byte{1, 1, 0, 9, 7}, true)
	f.Add([]byte{5, 2, 0, 0, 0, 9, 3, 1, 0, 0}, false)
	f.Add([]byte{12, 4, 0, 0, 3, 12, 5, 0, 0, 0}, true)
	f.Fuzz(func(t *testing.T, edits []byte, pipe bool) {
		data := edited(good.Clone(), edits)
		request := ImportRequest{Paths: []string{"-"}, Stdin: io.MultiReader(bytes.NewReader(data))}
		if !pipe {
			path := filepath.Join(t.TempDir(), "site.tar")
			require.NoError(t, os.WriteFile(path, data, 0o600))
			request = ImportRequest{Paths: []string{path}}
		}
		r, err := d.client.Import(t.Context(), request)
		require.NoError(t, err)
		require.Contains(t, []digest.Digest{d.good.Digest, goods.offered}, r.Status.Release.Running.Digest)
		for _, m := range d.served(t).Manifests {
			require.True(t, signed[m.Digest] || before[m.Digest], "%s is named, and nobody has signed it", m.Digest)
			content, err := os.ReadFile(filepath.Join(d.dir, state.StoreDir, packagetest.BlobName(m.Digest)))
			require.NoError(t, err)
			require.Equal(t, m.Digest, digest.FromBytes(content))
		}
	})
}

// served returns the index of the store.
func (d *depot) served(t testing.TB) (index ocispec.Index) {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(d.dir, state.StoreDir, ocispec.ImageIndexFile))
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(raw, &index))
	return index
}

// edited changes a package.
func edited(p *packagetest.Package, edits []byte) []byte {
	for ; len(edits) >= 5 && len(p.Entries) > 0; edits = edits[5:] {
		i, where := int(edits[0])%len(p.Entries), int(binary.BigEndian.Uint16(edits[2:4]))
		e := &p.Entries[i]
		at := 0
		if len(e.Data) > 0 {
			at = where % len(e.Data)
		}
		switch edits[1] % 8 {
		case 0:
			if len(e.Data) > 0 {
				e.Data[at] ^= edits[4]
			}
		case 1:
			changed := bytes.Clone(e.Data)
			if len(changed) > 0 {
				changed[at] ^= edits[4]
				p.Replace(e.Name, changed)
			}
		case 2:
			e.Data = e.Data[:at]
		case 3:
			p.Entries = slices.Delete(p.Entries, i, i+1)
		case 4:
			j := where % len(p.Entries)
			p.Entries[i], p.Entries[j] = p.Entries[j], p.Entries[i]
		case 5:
			p.Entries = append(p.Entries, packagetest.File(e.Name, append(bytes.Clone(e.Data), edits[4])))
		case 6:
			j := where % len(p.Entries)
			e.Data = bytes.Clone(p.Entries[j].Data)
		case 7:
			whole := p.Bytes()
			return whole[:len(whole)*(1+where)/(1<<16+1)]
		}
	}
	return p.Bytes()
}
