package hub

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/wherry-dev/wherry/hub/store"
	"github.com/wherry-dev/wherry/hub/store/sqlite"
)

// ErrOnServer means that the hub's database is on a server, which has its own tools for backups.
var ErrOnServer = errors.New("the database is on a server")

// ErrInUse means that another process has the hub's database open.
var ErrInUse = errors.New("in use by another process")

// ErrHubThere means that a folder holds a hub already.
var ErrHubThere = errors.New("holds a hub")

// ErrNoBackup means that a file is not a hub's backup, or is damaged.
var ErrNoBackup = errors.New("not a hub's backup")

// Backup writes the hub to w, as of one moment: its database and its key, in a tar that is compressed with gzip. Reports are
// stored meanwhile. It needs room for a copy of the database in the hub's folder. Whoever has the backup can acknowledge
// reports as this hub. The error wraps ErrOnServer.
func (h *Hub) Backup(ctx context.Context, w io.Writer) error {
	db, ok := h.store.(*sqlite.DB)
	if !ok {
		return fmt.Errorf("backup: %w", ErrOnServer)
	}
	dir, err := os.MkdirTemp(h.dir, ".backup-*")
	if err != nil {
		return fmt.Errorf("backup: %w", err)
	}
	defer os.RemoveAll(dir)
	file := filepath.Join(dir, DatabaseFile)
	if err := db.Backup(ctx, file); err != nil {
		return err
	}
	der, err := x509.MarshalPKCS8PrivateKey(h.enroller.sign.key)
	if err != nil {
		return fmt.Errorf("backup: %w", err)
	}
	z, err := gzip.NewWriterLevel(w, gzip.BestSpeed)
	if err != nil {
		return fmt.Errorf("backup: %w", err)
	}
	t := tar.NewWriter(z)
	err = errors.Join(addBytes(t, KeyFile, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})), addFile(ctx, t, DatabaseFile, file))
	if err = errors.Join(err, t.Close(), z.Close()); err != nil {
		return fmt.Errorf("backup: %w", err)
	}
	return nil
}

func addBytes(t *tar.Writer, name string, data []byte) error {
	if err := t.WriteHeader(&tar.Header{Name: name, Mode: 0o600, Size: int64(len(data)), Format: tar.FormatPAX}); err != nil {
		return err
	}
	_, err := t.Write(data)
	return err
}

func addFile(ctx context.Context, t *tar.Writer, name, path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if err := t.WriteHeader(&tar.Header{Name: name, Mode: 0o600, Size: info.Size(), Format: tar.FormatPAX}); err != nil {
		return err
	}
	_, err = io.Copy(t, reader{ctx, f})
	return err
}

// reader ends with its context.
type reader struct {
	ctx context.Context
	io.Reader
}

func (r reader) Read(b []byte) (int, error) {
	if err := r.ctx.Err(); err != nil {
		return 0, err
	}
	return r.Reader.Read(b)
}

// maxBackupKey bounds the key in a backup, in bytes.
const maxBackupKey = 64 << 10

// Restore makes the hub in dir that Backup has written. All of it is read and checked before anything of the folder changes.
// It returns when the newest report of the backup was received, zero if it has none. A hub that is there is replaced if force
// is true, and no other process has it open. The error wraps ErrNoBackup, store.ErrCorrupt, store.ErrNewer, ErrHubThere
// or ErrInUse.
func Restore(ctx context.Context, dir string, from io.Reader, force bool) (newest time.Time, err error) {
	path := filepath.Join(dir, DatabaseFile)
	there := false
	for _, name := range []string{DatabaseFile, KeyFile} {
		if _, err := os.Lstat(filepath.Join(dir, name)); !errors.Is(err, fs.ErrNotExist) {
			there = true
		}
	}
	if there && !force {
		return newest, fmt.Errorf("restore: folder %s %w", dir, ErrHubThere)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return newest, fmt.Errorf("restore: %w", err)
	}
	part, err := os.MkdirTemp(dir, ".restore-*")
	if err != nil {
		return newest, fmt.Errorf("restore: %w", err)
	}
	defer os.RemoveAll(part)
	if err := unpackBackup(ctx, part, from); err != nil {
		return newest, fmt.Errorf("restore: %w", err)
	}
	if newest, err = checkRestored(ctx, part); err != nil {
		return newest, fmt.Errorf("restore: %w", err)
	}
	if err := sqlite.Release(ctx, path); errors.Is(err, sqlite.ErrBusy) {
		return newest, fmt.Errorf("restore: the hub in %s is %w", dir, ErrInUse)
	} else if err != nil {
		return newest, fmt.Errorf("restore: %w", err)
	}
	// The database remembers the key. If the machine stops in between, the two do not belong together, and no hub starts.
	for _, name := range []string{KeyFile, PublicKeyFile, DatabaseFile} {
		if err := os.Rename(filepath.Join(part, name), filepath.Join(dir, name)); err != nil {
			return newest, fmt.Errorf("restore: %w", err)
		}
	}
	return newest, syncFolder(dir)
}

// unpackBackup writes the files of a backup into a folder.
func unpackBackup(ctx context.Context, dir string, from io.Reader) error {
	z, err := gzip.NewReader(reader{ctx, from})
	if err != nil {
		return notBackup(ctx, err)
	}
	t := tar.NewReader(z)
	missing := map[string]bool{KeyFile: true, DatabaseFile: true}
	for {
		header, err := t.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return notBackup(ctx, err)
		}
		if !missing[header.Name] || header.Typeflag != tar.TypeReg || header.Name == KeyFile && header.Size > maxBackupKey {
			return fmt.Errorf("%w: it has an entry %q", ErrNoBackup, store.Plain(store.Clip(header.Name)))
		}
		delete(missing, header.Name)
		f, err := os.OpenFile(filepath.Join(dir, header.Name), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
		if err != nil {
			return err
		}
		_, err = io.Copy(writerOnly{f}, t)
		if copied := err; copied != nil {
			err = notBackup(ctx, copied)
			if errors.As(copied, new(*fs.PathError)) { // of writing
				err = copied
			}
		}
		if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
			return err
		}
	}
	if len(missing) > 0 {
		return fmt.Errorf("%w: it lacks %s or %s", ErrNoBackup, DatabaseFile, KeyFile)
	}
	// The checksum of gzip is at its end.
	if _, err := io.Copy(io.Discard, z); err != nil {
		return notBackup(ctx, err)
	}
	return nil
}

// writerOnly keeps io.Copy from asking the file to read.
type writerOnly struct{ io.Writer }

func notBackup(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return fmt.Errorf("%w: %w", ErrNoBackup, err)
}

// checkRestored opens the hub in a folder, which brings its database up to date, and reads all of it.
func checkRestored(ctx context.Context, dir string) (newest time.Time, err error) {
	h, err := Open(dir, Options{MustExist: true})
	if err != nil {
		return newest, err
	}
	err = h.Check(ctx)
	if err == nil {
		err = h.store.Scan(ctx, store.Scope{WithoutDeployments: true}, func(c store.ClusterState) error {
			if c.LastSeen.After(newest) {
				newest = c.LastSeen
			}
			return nil
		})
	}
	return newest, errors.Join(err, h.Close())
}

func syncFolder(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
