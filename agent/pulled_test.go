package agent

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"go.etcd.io/bbolt"

	"github.com/wherry-dev/wherry/agent/intake"
	"github.com/wherry-dev/wherry/agent/state"
	"github.com/wherry-dev/wherry/airgap/packagetest"
)

// countedReader counts what is read.
type countedReader struct {
	io.Reader
	n atomic.Int64
}

func (c *countedReader) Read(b []byte) (int, error) {
	n, err := c.Reader.Read(b)
	c.n.Add(int64(n))
	return n, err
}

// pulledOut is a medium that fails after some bytes.
func pulledOut(data []byte, after int) io.Reader {
	return io.MultiReader(bytes.NewReader(data[:after]), failing{})
}

type failing struct{}

func (failing) Read([]byte) (int, error) { return 0, syscall.EIO }

// ends are the places in a package after which a medium may be pulled out: behind each entry, and in the middle of each.
func ends(p *packagetest.Package) (at []int) {
	offset := 0
	for _, e := range p.Entries {
		at = append(at, offset+512+len(e.Data)/2)
		offset += 512 + (len(e.Data)+511)/512*512
		at = append(at, offset)
	}
	return at
}

// whole returns how many bytes of a package hold all that the agent's own stream needs. Behind them are blobs of the other one alone.
func whole(p *packagetest.Package) (size int) {
	offset, other := 0, map[string]bool{}
	for _, part := range p.Parts() {
		other[part.Name] = strings.Contains(part.Role, "large")
	}
	for _, e := range p.Entries {
		if offset += 512 + (len(e.Data)+511)/512*512; !other[e.Name] {
			size = offset
		}
	}
	return size
}

// A medium is pulled out behind each blob of a package, and in the middle of each, until all that the agent's own stream needs has
// arrived. The site is as before, and the next import goes on: nothing that has arrived is copied again.
func TestAMediumThatIsPulledOutLeavesTheSiteAsItWas(t *testing.T) {
	d := newDepot(t)
	g := d.goods(6)
	p := d.pack(g)
	data := p.Bytes()
	d.registry.away.Store(true)
	d.images.images.away.Store(true)
	before := d.holding()
	var arrived []string
	for _, at := range ends(p) {
		r, err := d.client.Import(t.Context(), ImportRequest{Paths: []string{"-"}, Stdin: pulledOut(data, at)})
		if err != nil { // the client's error, in place of the agent's
			require.ErrorContains(t, err, "input/output error", at)
		}
		require.Subset(t, d.disk(), arrived, "what had arrived is not copied again")
		arrived = slices.DeleteFunc(d.disk(), func(file string) bool { return !strings.Contains(file, "/blobs/") })
		if at == whole(p) {
			break // it is taken, whatever the other stream lacks
		}
		require.Equal(t, before, d.holding(), "pulled out after %d bytes: %s", at, r.says())
	}
	r := d.imports(d.file(data))
	require.True(t, r.own().Outcome.Good(), r.says())
	require.Subset(t, d.disk(), arrived)
	require.Equal(t, g.offered, r.Status.Release.Running.Digest)
	d.requireHost("a: 6")
	for _, s := range r.Streams {
		require.True(t, s.Outcome.Good(), r.says())
	}
}

// The same package twice changes nothing: neither the store, nor what is served, nor what the state file knows.
func TestTheSamePackageTwiceChangesNothing(t *testing.T) {
	d := newDepot(t)
	path := d.file(d.pack(d.goods(6)).Bytes())
	d.registry.away.Store(true)
	d.images.images.away.Store(true)
	r := d.imports(path)
	require.Equal(t, intake.Taken, r.own().Outcome, r.says())
	d.requireHost("a: 6")
	d.imports(path) // settles what the pass before has left to do
	before, disk, records := d.holding(), d.disk(), d.records()
	r = d.imports(path)
	for _, s := range r.Streams {
		require.Equal(t, intake.Here, s.Outcome, r.says())
		require.Zero(t, s.Bytes)
	}
	require.Equal(t, before, d.holding())
	require.Equal(t, disk, d.disk(), "nothing was written to the store")
	require.Equal(t, records, d.records())
}

// disk lists the files of the store, with their times.
func (d *depot) disk() (files []string) {
	d.t.Helper()
	require.NoError(d.t, filepath.WalkDir(filepath.Join(d.dir, state.StoreDir), func(path string, e os.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) { // the agent is at work
			return nil
		}
		if err != nil || e.IsDir() {
			return err
		}
		info, err := e.Info()
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		files = append(files, strings.TrimPrefix(path, d.dir)+" "+info.ModTime().String())
		return err
	}))
	return files
}

// records are what the state file knows of streams, their releases and their places.
func (d *depot) records() map[string]string {
	d.t.Helper()
	all := map[string]string{}
	require.NoError(d.t, d.state.db.View(func(tx *bbolt.Tx) error {
		for _, name := range []string{intake.Bucket, state.Orders} {
			b := tx.Bucket([]byte(name))
			if b == nil {
				continue
			}
			if err := b.ForEach(func(k, v []byte) error { all[name+"/"+string(k)] = string(v); return nil }); err != nil {
				return err
			}
		}
		for _, key := range []string{keyAccepted, keyRunning, keyGood} {
			all[key] = string(tx.Bucket([]byte(state.Meta)).Get([]byte(key)))
		}
		return nil
	}))
	return all
}
