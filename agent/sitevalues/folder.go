package sitevalues

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/opencontainers/go-digest"

	"github.com/wherry-dev/wherry/agent/content"
	"github.com/wherry-dev/wherry/agent/state"
	shared "github.com/wherry-dev/wherry/bundle/sitevalues"
)

// EnvFile is the file with the values beside the files of an assignment of the adapter directory.
const EnvFile = "site.env"

// maxFilesBytes bounds all files of an assignment that are changed, after the change.
const maxFilesBytes = 64 << 20

// folders makes copies of assignments' files. It may be used by several goroutines.
type folders struct {
	db *state.DB

	mu sync.Mutex
	// whole are the folders that this process has made or compared.
	whole map[string]bool
}

// folderName is that of the copy of content with values; env is true if it has an EnvFile.
func folderName(content, values digest.Digest, env bool) string {
	return digest.FromString(fmt.Sprintf("1 %s %s %t", content, values, env)).Encoded()
}

// make returns the folder of the copy of dir, which holds the verified content that is given. The copy is made if it is missing, or if this
// process has not compared it yet and it differs: files are not synced, as they can be made again.
func (f *folders) make(of digest.Digest, dir string, values shared.Values, env bool) (string, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	name := folderName(of, identity(values), env)
	folder := filepath.Join(f.db.Dir(), content.SitesDir, name)
	info, err := os.Lstat(folder)
	if err == nil && info.IsDir() && f.whole[name] {
		return folder, nil
	}
	src, err := os.OpenRoot(dir)
	if err != nil {
		return "", err
	}
	defer src.Close()
	changed, err := replaced(src, values, env)
	if err != nil {
		return "", err
	}
	if info == nil || !info.IsDir() || !same(src, folder, changed) {
		if err := f.write(src, folder, changed); err != nil {
			return "", err
		}
	}
	if f.whole == nil {
		f.whole = map[string]bool{}
	}
	f.whole[name] = true
	return folder, nil
}

// write makes a folder, which gets its name once it is complete.
func (f *folders) write(src *os.Root, folder string, changed map[string][]byte) error {
	all := filepath.Dir(folder)
	temp := filepath.Join(all, ".new")
	if err := errors.Join(os.RemoveAll(temp), os.MkdirAll(temp, 0o700)); err != nil {
		return err
	}
	f.db.At("site: the folder is empty")
	err := fs.WalkDir(src.FS(), ".", func(name string, d fs.DirEntry, err error) error {
		to := filepath.Join(temp, filepath.FromSlash(name))
		switch {
		case err != nil:
			return err
		case d.IsDir():
			return os.MkdirAll(to, 0o755)
		case changed[name] != nil:
			return nil
		}
		return link(src, name, to)
	})
	for name, data := range changed {
		err = errors.Join(err, os.WriteFile(filepath.Join(temp, filepath.FromSlash(name)), data, modeOf(src, name)))
	}
	f.db.At("site: the folder is complete")
	if err == nil {
		err = errors.Join(os.RemoveAll(folder), os.Rename(temp, folder))
	}
	if err != nil {
		return errors.Join(err, os.RemoveAll(temp))
	}
	f.db.At("site: the folder has its name")
	return nil
}

func modeOf(src *os.Root, name string) fs.FileMode {
	if info, err := src.Stat(name); err == nil && info.Mode()&0o100 != 0 {
		return 0o700
	}
	return 0o600
}

// link gives a file that stays as it is another name, or copies it where the disk has no links.
func link(src *os.Root, name, to string) error {
	if os.Link(filepath.Join(src.Name(), filepath.FromSlash(name)), to) == nil {
		return nil
	}
	in, err := src.Open(name)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, modeOf(src, name))
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}

// same reports whether a folder has the files of src, those of changed with their new content, and no others.
func same(src *os.Root, folder string, changed map[string][]byte) bool {
	have, err := os.OpenRoot(folder)
	if err != nil {
		return false
	}
	defer have.Close()
	want, err := files(src)
	if err != nil {
		return false
	}
	for name := range changed {
		want[name] = true
	}
	found, err := files(have)
	if err != nil || len(found) != len(want) {
		return false
	}
	for name := range want {
		if !found[name] || modeOf(have, name) != modeOf(src, name) {
			return false
		}
		if data := changed[name]; data != nil {
			got, err := fs.ReadFile(have.FS(), name)
			if err != nil || !bytes.Equal(got, data) {
				return false
			}
		} else if !sameFile(src, have, name) {
			return false
		}
	}
	return true
}

// files lists the regular files below a folder. Anything else is an error.
func files(root *os.Root) (map[string]bool, error) {
	all := map[string]bool{}
	err := fs.WalkDir(root.FS(), ".", func(name string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			all[name] = true
			if !d.Type().IsRegular() {
				err = fmt.Errorf("%s is not a regular file", name)
			}
		}
		return err
	})
	return all, err
}

func sameFile(a, b *os.Root, name string) bool {
	one, err1 := a.Open(name)
	if err1 != nil {
		return false
	}
	defer one.Close()
	other, err2 := b.Open(name)
	if err2 != nil {
		return false
	}
	defer other.Close()
	info1, err1 := one.Stat()
	info2, err2 := other.Stat()
	if err1 != nil || err2 != nil || info1.Size() != info2.Size() {
		return false
	}
	if os.SameFile(info1, info2) {
		return true
	}
	d1, err1 := digest.FromReader(one)
	d2, err2 := digest.FromReader(other)
	return err1 == nil && err2 == nil && d1 == d2
}

// prune deletes all folders but those in keep.
func (f *folders) prune(keep map[string]bool) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	dir := filepath.Join(f.db.Dir(), content.SitesDir)
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	for _, e := range entries {
		if !keep[e.Name()] {
			delete(f.whole, e.Name())
			err = errors.Join(err, os.RemoveAll(filepath.Join(dir, e.Name())))
			f.db.At("site: a folder is gone")
		}
	}
	return err
}

// replaced returns the files of src that change, and an EnvFile if env is true. Errors about the content are of type
// *sitevalues.ContentError.
func replaced(src *os.Root, values shared.Values, env bool) (map[string][]byte, error) {
	changed := map[string][]byte{}
	if env {
		if _, err := src.Lstat(EnvFile); err == nil {
			return nil, shared.NewContentError(EnvFile, 0, "the assignment has a file of this name, which the agent writes")
		}
		changed[EnvFile] = environment(values)
	}
	left := maxFilesBytes
	err := fs.WalkDir(src.FS(), ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !isYAML(name) {
			return err
		}
		f, err := src.Open(name)
		if err != nil {
			return err
		}
		defer f.Close()
		if found, err := hasReference(f); err != nil || !found {
			return err
		}
		if _, err := f.Seek(0, io.SeekStart); err != nil {
			return err
		}
		data, err := io.ReadAll(io.LimitReader(f, int64(left)+1))
		if err != nil {
			return err
		}
		if len(data) > left {
			return shared.NewContentError(name, 0, "files with site values have more than %d bytes", maxFilesBytes)
		}
		data, err = shared.Replace(name, data, values, left)
		if left -= len(data); err == nil {
			changed[name] = data
		}
		return err
	})
	return changed, err
}

func isYAML(name string) bool {
	return slices.Contains([]string{".yaml", ".yml", ".json"}, strings.ToLower(path.Ext(name)))
}

// hasReference reports whether a text has shared.Marker, without holding all of it.
func hasReference(r io.Reader) (bool, error) {
	buffer := make([]byte, 64<<10)
	kept := 0
	for {
		n, err := r.Read(buffer[kept:])
		text := buffer[:kept+n]
		if bytes.Contains(text, []byte(shared.Marker)) {
			return true, nil
		}
		if errors.Is(err, io.EOF) {
			return false, nil
		}
		if err != nil {
			return false, err
		}
		kept = copy(buffer, text[max(0, len(text)-len(shared.Marker)+1):])
	}
}
