package oci

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
)

// writeFile atomically replaces the content of name by that of from, and returns once it is on disk.
func writeFile(root *os.Root, name string, from io.Reader) (err error) {
	for _, dir := range []string{ingestDir, path.Dir(name)} {
		if err := makeDir(root, dir); err != nil {
			return err
		}
	}
	temp := path.Join(ingestDir, rand.Text())
	f, err := root.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = root.Remove(temp)
		}
	}()
	_, err = io.Copy(f, from)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	if err = root.Rename(temp, name); err != nil {
		return err
	}
	return syncDir(root, path.Dir(name))
}

// makeDir creates dir and its parents and syncs each of them to disk.
func makeDir(root *os.Root, dir string) error {
	if _, err := root.Stat(dir); err == nil {
		return nil
	}
	if err := root.MkdirAll(dir, 0o777); err != nil {
		return err
	}
	for dir != "." {
		dir = path.Dir(dir)
		if err := syncDir(root, dir); err != nil {
			return err
		}
	}
	return nil
}

func syncDir(root *os.Root, dir string) error {
	d, err := root.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}

// readFile returns a regular file of at most limit bytes.
func readFile(root *os.Root, name string, limit int64) ([]byte, error) {
	info, err := regular(root, name)
	if err != nil {
		return nil, err
	}
	if info.Size() > limit {
		return nil, fmt.Errorf("%s has %d bytes, at most %d are allowed", name, info.Size(), limit)
	}
	f, err := root.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, limit))
}
