package queue

import (
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"go.etcd.io/bbolt"
)

func open(t testing.TB, path string) *bbolt.DB {
	t.Helper()
	db, err := bbolt.Open(path, 0o600, nil)
	require.NoError(t, err)
	t.Cleanup(func() { _ = db.Close() })
	return db
}

// entries returns the notes and bodies of a queue, by the order of its keys.
func entries(t testing.TB, tx *bbolt.Tx, name string) (all []string, totals Totals) {
	t.Helper()
	q, err := Open[int](tx, name)
	require.NoError(t, err)
	for e, err := range q.From(nil) {
		require.NoError(t, err)
		body, err := q.Body(e.Key)
		require.NoError(t, err)
		all = append(all, fmt.Sprintf("%s %d %s", e.Key, e.Note, body))
	}
	return all, q.Totals
}

// Two queues of one file, changed at random; a transaction that fails changes neither, and the file is closed at any time.
func TestAQueueIsWhatWasCommitted(t *testing.T) {
	random, path := rand.New(rand.NewPCG(1, 1)), filepath.Join(t.TempDir(), "db")
	db := open(t, path)
	model := map[string]map[string]string{"a": {}, "b": {}}
	for range 300 {
		name, key, body := []string{"a", "b"}[random.IntN(2)], fmt.Sprintf("key-%02d", random.IntN(30)), fmt.Sprint(random.Int64())
		fails := random.IntN(5) == 0
		next := func() {
			if _, there := model[name][key]; there {
				delete(model[name], key)
			} else {
				model[name][key] = fmt.Sprintf("%s %d %s", key, 7, body)
			}
		}
		err := db.Update(func(tx *bbolt.Tx) error {
			q, err := Open[int](tx, name)
			require.NoError(t, err)
			_, there, err := q.Get([]byte(key))
			require.NoError(t, err)
			if there {
				require.NoError(t, q.Delete([]byte(key)))
			} else {
				require.NoError(t, q.Put([]byte(key), 7, []byte(body)))
			}
			if fails {
				return fmt.Errorf("no")
			}
			return nil
		})
		require.Equal(t, fails, err != nil)
		if !fails {
			next()
		}
		if random.IntN(20) == 0 {
			require.NoError(t, db.Close())
			db = open(t, path)
		}
		require.NoError(t, db.View(func(tx *bbolt.Tx) error {
			for name, want := range model {
				var all []string
				totals := Totals{Entries: len(want)}
				for key, e := range want {
					all = append(all, e)
					totals.Bytes += int64(len(e) - len(key) - 3)
				}
				slices.Sort(all)
				got, of := entries(t, tx, name)
				require.Equal(t, all, got)
				require.Equal(t, totals, of)
			}
			return nil
		}))
	}
	require.NoError(t, db.Update(func(tx *bbolt.Tx) error {
		q, err := Open[int](tx, "a")
		require.NoError(t, err)
		require.NoError(t, q.Clear())
		require.NoError(t, q.Put([]byte("new"), 1, nil))
		all, totals := entries(t, tx, "a")
		require.Equal(t, []string{"new 1 "}, all)
		require.Equal(t, Totals{Entries: 1}, totals)
		return nil
	}))
}

// What cannot be read is an error of whoever comes to it, and stays.
func TestADamagedEntryIsNeitherSkippedNorDeleted(t *testing.T) {
	for _, tc := range []struct{ name, bucket, value string }{
		{"its note", "a-index", "{"}, {"its body", "a", ""}, {"the totals", bucketTotals, "{"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			db := open(t, filepath.Join(t.TempDir(), "db"))
			require.NoError(t, db.Update(func(tx *bbolt.Tx) error {
				q, err := Open[int](tx, "a")
				require.NoError(t, err)
				for _, key := range []string{"1", "2", "3"} {
					require.NoError(t, q.Put([]byte(key), 1, []byte("body")))
				}
				b, key := tx.Bucket([]byte(tc.bucket)), []byte("2")
				if tc.bucket == bucketTotals {
					key = []byte("a")
				}
				if tc.value == "" {
					return b.Delete(key)
				}
				return b.Put(key, []byte(tc.value))
			}))
			require.NoError(t, db.View(func(tx *bbolt.Tx) error {
				q, err := Open[int](tx, "a")
				if err == nil {
					_, err = q.Batch(nil, func(Entry[int]) bool { return true }, Bounds{10, 1000})
					if tc.bucket == "a" {
						require.ErrorIs(t, q.Delete([]byte("2")), ErrDamaged)
					}
				}
				require.ErrorIs(t, err, ErrDamaged)
				return nil
			}))
		})
	}
}

func TestABatchIsWithinItsBoundsAndNotEmpty(t *testing.T) {
	b := Bounds{Entries: 2, Bytes: 10}
	require.False(t, b.Full(0, 0, 100), "one that is too large goes alone")
	require.False(t, b.Full(1, 5, 5))
	require.True(t, b.Full(1, 5, 6))
	require.True(t, b.Full(2, 2, 1))
}
