package gitrepo

import (
	"bytes"
	"compress/zlib"
	"context"
	"crypto/sha1"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/bundle/child/childtest"
)

// packed is a pack that a test writes by hand.
type packed struct {
	count uint32
	body  bytes.Buffer
}

// object adds an object, or a delta with the given base, and returns the offset.
func (p *packed) object(kind plumbing.ObjectType, declared int, base, content []byte) {
	p.count++
	first, size := byte(kind)<<4|byte(declared&15), declared>>4
	for ; size > 0; size >>= 7 {
		p.body.WriteByte(first | 0x80)
		first = byte(size & 0x7f)
	}
	p.body.WriteByte(first)
	p.body.Write(base)
	w := zlib.NewWriter(&p.body)
	_, _ = w.Write(content)
	_ = w.Close()
}

func (p *packed) bytes() []byte {
	data := binary.BigEndian.AppendUint32([]byte("PACK\x00\x00\x00\x02"), p.count)
	data = append(data, p.body.Bytes()...)
	sum := sha1.Sum(data)
	return append(data, sum[:]...)
}

// delta makes an object of the given size by copying the beginning of its base again and again.
func delta(base, target int) []byte {
	data := binary.AppendUvarint(binary.AppendUvarint(nil, uint64(base)), uint64(target))
	for left := target; left > 0; {
		n := min(left, base, 0xffff)
		data = append(data, 0x80|0x10|0x20, byte(n), byte(n>>8))
		left -= n
	}
	return data
}

func hashOf(kind plumbing.ObjectType, content []byte) []byte {
	sum := plumbing.ComputeHash(kind, content)
	return sum[:]
}

func received(t *testing.T, pack []byte) error {
	t.Helper()
	g := reader(t, 0)
	store, err := g.newStore()
	require.NoError(t, err)
	return receive(t.Context(), store, bytes.NewReader(pack))
}

func TestPacksBeyondTheBoundsAreRefusedBeforeADeltaIsApplied(t *testing.T) {
	base := bytes.Repeat([]byte("x"), 0xffff)
	blob := hashOf(plumbing.BlobObject, base)
	for name, c := range map[string]struct {
		make func(p *packed)
		want string
	}{
		"a delta to 10 GiB": {func(p *packed) {
			d := delta(len(base), 10<<30)
			p.object(plumbing.BlobObject, len(base), nil, base)
			p.object(plumbing.REFDeltaObject, len(d), blob, d)
		}, "too large: an object of 10737418240 bytes, at most 134217728 are read"},
		"a size that has no end": {func(p *packed) {
			p.object(plumbing.REFDeltaObject, 1, blob, []byte{0x80})
		}, "malformed PACK file: a delta without sizes"},
		"many deltas to 128 MiB": {func(p *packed) {
			d := delta(len(base), 128<<20)
			p.object(plumbing.BlobObject, len(base), nil, base)
			for range 40 {
				p.object(plumbing.REFDeltaObject, len(d), blob, d)
			}
		}, "too large: the objects of the pack have more than 4294967296 bytes"},
		"an object of 1 GiB": {func(p *packed) {
			p.object(plumbing.BlobObject, 1<<30, nil, nil)
		}, "too large: an object of 1073741824 bytes, at most 134217728 are read"},
		"one object twice, with deltas that are applied to both": {func(p *packed) {
			p.object(plumbing.BlobObject, 1, nil, []byte("x"))
			p.object(plumbing.BlobObject, 1, nil, []byte("x"))
		}, fmt.Sprintf("malformed PACK file: object %x is there twice", hashOf(plumbing.BlobObject, []byte("x")))},
		"five million objects": {func(p *packed) { p.count = 5_000_000 }, "too large: a pack of 5000000 objects, at most 1000000 are read"},
	} {
		t.Run(name, func(t *testing.T) {
			p := &packed{}
			c.make(p)
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			err := received(t, p.bytes())
			runtime.ReadMemStats(&after)
			require.EqualError(t, err, c.want)
			require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(64<<20))
		})
	}
}

func TestAPackWithDeltasIsRead(t *testing.T) {
	p := &packed{}
	base := []byte("0123456789")
	p.object(plumbing.BlobObject, len(base), nil, base)
	d := delta(len(base), 25)
	p.object(plumbing.REFDeltaObject, len(d), hashOf(plumbing.BlobObject, base), d)
	g := reader(t, 0)
	store, err := g.newStore()
	require.NoError(t, err)
	require.NoError(t, receive(t.Context(), store, bytes.NewReader(p.bytes())))
	found, err := store.EncodedObject(plumbing.BlobObject, plumbing.ComputeHash(plumbing.BlobObject, []byte("0123456789012345678901234")))
	require.NoError(t, err)
	require.EqualValues(t, 25, found.Size())
	require.ErrorContains(t, received(t, p.bytes()[:40]), "EOF")
}

func TestTheCostOfAPackIsLinear(t *testing.T) {
	cost := func(n int) uint64 {
		p := &packed{}
		base := bytes.Repeat([]byte("x"), 1000)
		p.object(plumbing.BlobObject, len(base), nil, base)
		for i := range n {
			d := delta(len(base), 1000+i%100)
			p.object(plumbing.REFDeltaObject, len(d), hashOf(plumbing.BlobObject, base), d)
		}
		data := p.bytes()
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		require.NoError(t, received(t, data))
		runtime.ReadMemStats(&after)
		return after.TotalAlloc - before.TotalAlloc
	}
	require.Less(t, float64(cost(4000))/float64(cost(1000)), 6.0)
}

func TestALargeTreeIsNotParsed(t *testing.T) {
	p := &packed{}
	tree := bytes.Repeat(append([]byte("100644 a\x00"), make([]byte, 20)...), 700_000)
	p.object(plumbing.TreeObject, len(tree), nil, tree)
	commit := fmt.Appendf(nil, "tree %x\nauthor a <a@example.com> 0 +0000\ncommitter a <a@example.com> 0 +0000\n\nx\n", hashOf(plumbing.TreeObject, tree))
	p.object(plumbing.CommitObject, len(commit), nil, commit)
	g := reader(t, 0)
	store, err := g.newStore()
	require.NoError(t, err)
	require.NoError(t, receive(t.Context(), store, bytes.NewReader(p.bytes())))
	_, err = readCommit(store, plumbing.ComputeHash(plumbing.CommitObject, commit), Ref{})
	require.ErrorIs(t, err, ErrTooLarge)
	require.ErrorContains(t, err, "20300000 bytes, at most 16777216 are read")
}

// looked is a context that ends when it has been asked so many times.
type looked struct {
	context.Context
	left int
}

func (l *looked) Err() error {
	if l.left--; l.left < 0 {
		return context.Canceled
	}
	return nil
}

// The pack of a server is given up wherever it is, also while deltas are applied, and leaves nothing.
func TestAPackThatIsReadEndsWithItsContext(t *testing.T) {
	settled := childtest.Settled(t)
	p := &packed{}
	base := bytes.Repeat([]byte("x"), 1000)
	p.object(plumbing.BlobObject, len(base), nil, base)
	for i := range 20 {
		d := delta(len(base), 1000+i)
		p.object(plumbing.REFDeltaObject, len(d), hashOf(plumbing.BlobObject, base), d)
	}
	receiveIn := func(looks int) (left int, err error) {
		store, err := reader(t, 0).newStore()
		require.NoError(t, err)
		ctx := &looked{t.Context(), looks}
		err = receive(ctx, store, bytes.NewReader(p.bytes()))
		if err != nil {
			entries, err := os.ReadDir(filepath.Join(store.Filesystem().Root(), "objects", "pack"))
			require.NoError(t, err)
			require.Empty(t, entries)
		}
		return ctx.left, err
	}
	const many = 100_000
	left, err := receiveIn(many)
	require.NoError(t, err)
	require.Greater(t, many-left, 20, "each delta is read again when it is applied")
	for looks := range many - left {
		_, err := receiveIn(looks)
		require.ErrorIs(t, err, context.Canceled)
	}
	settled()
}
