// Package rendercache keeps between runs what rendering and packing made, so that cost follows change.
//
// [Open] returns a [Cache] for [scheduler.Options]; call [Cache.Trim] when rendering is done. Nothing depends on the
// cache but time: a file that is missing, torn or foreign counts as absent.
package rendercache

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/klauspost/compress/s2"
)

const (
	// DefaultBytes is enough for some tens of environments of 100,000 assignments.
	DefaultBytes = 512 << 20
	// maxEntryBytes bounds what one file may unpack to: the files of one cluster type are a bundle, whose
	// tree is bounded by the same.
	maxEntryBytes = 1 << 30
	// cacheMagic begins each file.
	cacheMagic = "wherry render cache 1\n"
	// touchAfter is how old the time of use may become. It spares most readings a writing.
	touchAfter = time.Hour
	// abandonedAfter is how long a file that is being written may take before it counts as left behind.
	abandonedAfter = time.Hour
)

// Cache holds results of [scheduler.Model.Render], in files of a folder. The folder may be deleted
// at any time, several processes may use it at once, and its files may be damaged: a file that is
// incomplete, or does not match its name, counts as absent. If the folder is not writable, nothing
// is stored.
//
// Results of another build of the program are not used.
type Cache struct {
	dir      string
	owner    string // the program, and the scope
	maxBytes int64
	now      func() time.Time
	written  atomic.Bool
	// writing is held while a file is made: several at once in one folder wait for each other in the
	// kernel, which takes more of a core's time than the work.
	writing sync.Mutex
}

// Options are the optional settings of a Cache.
type Options struct {
	// Scope tells apart platforms whose environments and cluster types have the same names: without it,
	// each would take the other's place.
	Scope string
	// MaxBytes bounds the files. Zero means DefaultBytes.
	MaxBytes int64
}

// Open returns a cache in dir, which it creates for the user alone, since anybody with write access could change the
// rendered output. Call Trim after rendering.
func Open(dir string, opts Options) (*Cache, error) {
	if opts.MaxBytes <= 0 {
		opts.MaxBytes = DefaultBytes
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("open cache: %w", err)
	}
	info, err := os.Stat(dir)
	if err != nil {
		return nil, fmt.Errorf("open cache: %w", err)
	}
	if runtime.GOOS != "windows" && info.Mode().Perm()&0o002 != 0 { // there, the bits say nothing
		return nil, fmt.Errorf("open cache: %s: everybody can write there, and so decide what is rendered", dir)
	}
	return &Cache{dir: dir, owner: programIdentity() + "\x00" + opts.Scope, maxBytes: opts.MaxBytes, now: time.Now}, nil
}

// DefaultDir is the folder render in the user's cache folder (see os.UserCacheDir).
func DefaultDir() (string, error) {
	dir, err := os.UserCacheDir()
	return filepath.Join(dir, "wherry", "render"), err
}

// programIdentity changes with the program. Of a build that is not of a known commit the file's size and
// time are part of it.
func programIdentity() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		info = &debug.BuildInfo{}
	}
	known := strings.Contains(info.String(), "vcs.modified=false") || info.Main.Sum != ""
	if known {
		return info.String()
	}
	exe, err := os.Executable()
	if err != nil {
		return info.String()
	}
	file, err := os.Stat(exe)
	if err != nil {
		return info.String()
	}
	return fmt.Sprintf("%s\n%d %d", info, file.Size(), file.ModTime().UnixNano())
}

// name is the file of a key. All are in one folder: there are some for each cluster type.
func (c *Cache) name(key string) string {
	sum := sha256.Sum256([]byte(c.owner + "\x00" + key))
	return filepath.Join(c.dir, hex.EncodeToString(sum[:]))
}

// Get returns the data that was put under key, or nil if there is none.
func (c *Cache) Get(key string) []byte {
	name := c.name(key)
	info, err := os.Lstat(name)
	if err != nil || !info.Mode().IsRegular() || info.Size() > c.maxBytes {
		return nil
	}
	file, err := os.ReadFile(name)
	if err != nil {
		return nil
	}
	data, ok := c.unseal(key, file)
	if !ok {
		_ = os.Remove(name)
		return nil
	}
	if now := c.now(); now.Sub(info.ModTime()) > touchAfter {
		_ = os.Chtimes(name, now, now) // Trim keeps recently used files
	}
	return data
}

// seal makes a file of data: its digest, which is also that of the key, and then data, compressed.
func (c *Cache) seal(key string, data []byte) []byte {
	packed := s2.Encode(nil, data)
	sum := c.sum(key, packed)
	return slices.Concat([]byte(cacheMagic), sum[:], packed)
}

func (c *Cache) unseal(key string, file []byte) ([]byte, bool) {
	file, ok := bytes.CutPrefix(file, []byte(cacheMagic))
	if !ok || len(file) < sha256.Size {
		return nil, false
	}
	packed := file[sha256.Size:]
	if c.sum(key, packed) != [sha256.Size]byte(file[:sha256.Size]) {
		return nil, false
	}
	if n, err := s2.DecodedLen(packed); err != nil || n > maxEntryBytes {
		return nil, false
	}
	data, err := s2.Decode(nil, packed)
	return data, err == nil
}

func (c *Cache) sum(key string, packed []byte) (sum [sha256.Size]byte) {
	h := sha256.New()
	_, _ = fmt.Fprintf(h, "%s\x00%s\x00", c.owner, key)
	_, _ = h.Write(packed)
	h.Sum(sum[:0])
	return sum
}

// Put keeps data under key, if it can. A file appears whole or not at all; it is not synced to disk, for
// a torn one counts as absent.
func (c *Cache) Put(key string, data []byte) {
	sealed := c.seal(key, data)
	c.writing.Lock()
	defer c.writing.Unlock()
	temp, err := os.CreateTemp(c.dir, tempPrefix)
	if err != nil {
		return
	}
	_, err = temp.Write(sealed)
	if err = errors.Join(err, temp.Close()); err == nil {
		// Where a file takes another's place, ext4 waits for the disk: ten times as long as all the rest.
		_ = os.Remove(c.name(key))
		err = os.Rename(temp.Name(), c.name(key))
	}
	if err != nil {
		_ = os.Remove(temp.Name())
		return
	}
	c.written.Store(true)
}

const tempPrefix = "new-"

// Trim removes the least recently used files until the rest is within MaxBytes, and the leftovers of killed
// processes. It does nothing if nothing was written.
func (c *Cache) Trim() {
	if !c.written.Load() {
		return
	}
	entries, err := os.ReadDir(c.dir)
	if err != nil {
		return
	}
	var files []fs.FileInfo
	var total int64
	for _, e := range entries {
		info, err := e.Info()
		switch {
		case err != nil || !info.Mode().IsRegular():
		case strings.HasPrefix(e.Name(), tempPrefix):
			if c.now().Sub(info.ModTime()) > abandonedAfter {
				_ = os.Remove(filepath.Join(c.dir, e.Name()))
			}
		case len(e.Name()) == 2*sha256.Size: // anything else is not ours
			files = append(files, info)
			total += info.Size()
		}
	}
	if total <= c.maxBytes {
		return
	}
	slices.SortFunc(files, func(a, b fs.FileInfo) int { return a.ModTime().Compare(b.ModTime()) })
	for _, f := range files {
		if total <= c.maxBytes*3/4 { // so that not every run has to
			return
		}
		if os.Remove(filepath.Join(c.dir, f.Name())) == nil {
			total -= f.Size()
		}
	}
}
