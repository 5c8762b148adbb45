package state

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"go.etcd.io/bbolt"

	"github.com/wherry-dev/wherry/bundle/sweeptest"
)

// A page that names a wrong one is damage, and no end of memory: bbolt would go round in a circle.
func TestPagesThatLeadBackAreDamage(t *testing.T) {
	dir := t.TempDir()
	db, err := Open(dir, "many")
	require.NoError(t, err)
	var root uint64
	require.NoError(t, db.Init(CheckSchema, func(*bbolt.Tx) error { return nil }))
	require.NoError(t, db.Update(func(tx *bbolt.Tx) error {
		for i := range 2000 {
			if err := tx.Bucket([]byte("many")).Put(fmt.Appendf(nil, "key %d", i), make([]byte, 100)); err != nil {
				return err
			}
		}
		return nil
	}))
	require.NoError(t, db.View(func(tx *bbolt.Tx) error {
		root = uint64(tx.Bucket([]byte("many")).RootPage())
		return nil
	}))
	size := db.db.Info().PageSize
	require.NoError(t, db.Close())
	path := filepath.Join(dir, File)
	whole, err := os.ReadFile(path)
	require.NoError(t, err)
	page := whole[int(root)*size:]
	require.EqualValues(t, branchPage, binary.NativeEndian.Uint16(page[8:]))
	last := int(binary.NativeEndian.Uint16(page[10:])) - 1
	require.Positive(t, last)

	for _, element := range []int{0, last} {
		at := int(root)*size + pageHeader + element*pageElement + 8
		for name, id := range map[string]uint64{
			"itself": root, "what makes commits count": 1, "no page": 0, "the end": uint64(len(whole) / size), "far beyond": 1 << 60,
			"its neighbour's": binary.NativeEndian.Uint64(whole[int(root)*size+pageHeader+(last-element)*pageElement+8:]),
		} {
			t.Run(fmt.Sprint(element, " names ", name), func(t *testing.T) {
				damaged := bytes.Clone(whole)
				binary.NativeEndian.PutUint64(damaged[at:], id)
				require.NoError(t, os.Remove(path)) // where bbolt has panicked it keeps the file locked
				require.NoError(t, os.WriteFile(path, damaged, 0o600))
				_, err := Open(dir, "many")
				require.ErrorIs(t, err, ErrDamaged)
			})
		}
	}
	require.NoError(t, os.Remove(path))
	require.NoError(t, os.WriteFile(path, whole, 0o600))
	db, err = Open(dir, "many")
	require.NoError(t, err)
	require.NoError(t, db.Close())
}

// Whatever a disk has made of it, opening a file comes to an end.
func TestADamagedFileIsOpenedOrRefused(t *testing.T) {
	dir := t.TempDir()
	db, err := Open(dir, "many", "small", "empty")
	require.NoError(t, err)
	require.NoError(t, db.Init(CheckSchema, func(*bbolt.Tx) error { return nil }))
	require.NoError(t, db.Update(func(tx *bbolt.Tx) error {
		for i := range 200 {
			if err := tx.Bucket([]byte("many")).Put(fmt.Appendf(nil, "key %d", i), make([]byte, 100)); err != nil {
				return err
			}
		}
		return tx.Bucket([]byte("small")).Put([]byte("key"), []byte("value"))
	}))
	require.NoError(t, db.Close())
	path := filepath.Join(dir, File)
	whole, err := os.ReadFile(path)
	require.NoError(t, err)
	used := bytes.LastIndexFunc(whole, func(r rune) bool { return r != 0 })

	random := rand.New(rand.NewPCG(7, 0))
	refused := 0
	for n := range 8000 / sweeptest.Every(19) {
		damaged := bytes.Clone(whole)
		at := random.IntN(used) &^ 1
		for i := range damaged[at:min(at+2<<random.IntN(9), used)] {
			damaged[at+i] = []byte{0, 1, 2, 16, 255, byte(random.IntN(256))}[(n+i*(n%2))%6]
		}
		require.NoError(t, os.Remove(path))
		require.NoError(t, os.WriteFile(path, damaged, 0o600))
		db, err := Open(dir, "many", "small", "empty")
		if err != nil {
			require.ErrorIs(t, err, ErrDamaged)
			refused++
			continue
		}
		require.NoError(t, db.Close())
	}
	require.Positive(t, refused)
}
