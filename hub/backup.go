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
	"slices"
	"time"

	"github.com/wherry-dev/wherry/bundle/diskfile"
	"github.com/wherry-dev/wherry/bundle/show"
	"github.com/wherry-dev/wherry/hub/access"
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
	err = errors.Join(addBytes(t, KeyFile, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})), addFile(ctx, t, DatabaseFile, file, h.enroller.sign.now()))
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

// addFile adds a file as of a time: the backup's, which Restore reads.
func addFile(ctx context.Context, t *tar.Writer, name, path string, at time.Time) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if err := t.WriteHeader(&tar.Header{Name: name, Mode: 0o600, Size: info.Size(), ModTime: at.Truncate(time.Second), Format: tar.FormatPAX}); err != nil {
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

// RestoreOptions are the optional parts of Restore; the zero value works.
type RestoreOptions struct {
	// Force replaces a hub that is there.
	Force bool
	// AcceptTokens makes the backup's tokens good at once, those that were revoked after the backup too.
	AcceptTokens bool
}

// Restored is the result of Restore.
type Restored struct {
	// BackupAt is when the backup was made.
	BackupAt time.Time
	// Newest is when the newest report of the backup was received, zero if it has none.
	Newest time.Time
	// Revoked counts the tokens that stay revoked, as they were in the hub that was replaced.
	Revoked int
	// Waiting counts the tokens that wait for AcceptTokens: nobody knows whether they were revoked after the backup.
	Waiting int
}

// Restore makes the hub in dir that Backup has written. All of it is read and checked before anything of the folder changes.
// No other process may have a hub that is there open. The error wraps ErrNoBackup, store.ErrCorrupt, store.ErrNewer,
// ErrHubThere or ErrInUse.
//
// A token that was revoked after the backup, or used up, would be good again. If the hub that is replaced can be read, and goes
// on from where the backup was made, as its audit log proves, its revocations hold. Else all tokens of the backup wait, unless
// they are accepted. Agents' keys do not wait.
func Restore(ctx context.Context, dir string, from io.Reader, o RestoreOptions) (Restored, error) {
	done, err := restore(ctx, dir, from, o)
	if err != nil {
		return done, fmt.Errorf("restore: %w", err)
	}
	return done, nil
}

func restore(ctx context.Context, dir string, from io.Reader, o RestoreOptions) (done Restored, err error) {
	path := filepath.Join(dir, DatabaseFile)
	there := false
	for _, name := range []string{DatabaseFile, KeyFile} {
		if _, err := os.Lstat(filepath.Join(dir, name)); !errors.Is(err, fs.ErrNotExist) {
			there = true
		}
	}
	if there && !o.Force {
		return done, fmt.Errorf("folder %s %w", dir, ErrHubThere)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return done, err
	}
	part, err := os.MkdirTemp(dir, ".restore-*")
	if err != nil {
		return done, err
	}
	defer os.RemoveAll(part)
	if done.BackupAt, err = unpackBackup(ctx, part, from); err != nil {
		return done, err
	}
	h, err := Open(part, Options{MustExist: true})
	if err != nil {
		return done, err
	}
	err = h.checkRestored(ctx, &done)
	if err == nil {
		err = release(ctx, dir)
	}
	if err == nil {
		err = h.settleTokens(ctx, path, o, &done)
	}
	if err = errors.Join(err, h.Close()); err == nil {
		err = release(ctx, dir) // again: it was read
	}
	if err != nil {
		return done, err
	}
	// The database remembers the key. If the machine stops in between, the two do not belong together, and no hub starts.
	for _, name := range []string{KeyFile, PublicKeyFile, DatabaseFile} {
		if err := os.Rename(filepath.Join(part, name), filepath.Join(dir, name)); err != nil {
			return done, err
		}
	}
	return done, diskfile.SyncDir(dir)
}

// release brings the database in a folder into its one file. The error wraps ErrInUse.
func release(ctx context.Context, dir string) error {
	err := sqlite.Release(ctx, filepath.Join(dir, DatabaseFile))
	if errors.Is(err, sqlite.ErrBusy) {
		return fmt.Errorf("the hub in %s is %w", dir, ErrInUse)
	}
	return err
}

// settleTokens brings over what the hub that is replaced, whose database is at path, knows of tokens; or else makes them wait.
func (h *Hub) settleTokens(ctx context.Context, path string, o RestoreOptions, done *Restored) error {
	known, err := h.carryRevocations(ctx, path, done)
	if err != nil {
		return err
	}
	detail := fmt.Sprintf("%s revoked since stay so", show.Count(done.Revoked, "token"))
	switch {
	case o.AcceptTokens:
		_, err = h.store.AcceptTokens(ctx)
		detail += ", all others are accepted"
	case !known:
		done.Waiting, err = h.store.HoldTokens(ctx)
		detail = fmt.Sprintf("%s wait until they are accepted", show.Count(done.Waiting, "token"))
	}
	if err != nil {
		return err
	}
	return access.Note(ctx, h.store, store.AuditEntry{
		At: h.enroller.sign.now(), Action: "restore hub", Object: "backup of " + done.BackupAt.UTC().Format(time.RFC3339), Detail: detail,
	})
}

// carryRevocations revokes the tokens that the hub with its database at path has revoked, or used up. It returns false if that
// hub cannot be read, or is not known to go on from where this one is.
func (h *Hub) carryRevocations(ctx context.Context, path string, done *Restored) (known bool, err error) {
	if _, err := os.Lstat(path); err != nil {
		return false, nil
	}
	replaced, err := sqlite.Open(path, sqlite.Options{})
	if err != nil {
		return false, nil // damaged, or of a newer version
	}
	defer replaced.Close()
	tokens, enrollment, err := h.laterTokens(ctx, replaced)
	if err != nil {
		return false, nil // such as of a damaged database
	}
	for _, t := range tokens {
		if have, err := h.store.AccessToken(ctx, t.ID); err != nil || !have.RevokedAt.IsZero() || t.RevokedAt.IsZero() {
			continue
		}
		if _, err := h.tokens.Revoke(ctx, t.ID); err != nil {
			return false, err
		}
		done.Revoked++
	}
	have, err := h.store.Tokens(ctx)
	if err != nil {
		return false, err
	}
	for _, t := range enrollment {
		gone := t.State == store.TokenRevoked || t.State == store.TokenUsedUp
		if !gone || !slices.ContainsFunc(have, func(h store.Token) bool { return h.ID == t.ID && h.State == store.TokenGood }) {
			continue
		}
		if err := h.RevokeToken(ctx, t.ID); err != nil {
			return false, err
		}
		done.Revoked++
	}
	return true, nil
}

// laterTokens returns the tokens of another database, if that goes on from where this hub is: it has the newest entry of this
// hub's audit log, with the same digest, belongs to a hub with the same key, and none of its tokens wait.
func (h *Hub) laterTokens(ctx context.Context, other database) (tokens []store.AccessToken, enrollment []store.Token, err error) {
	here, err := h.store.PinnedKey(ctx)
	if err != nil {
		return nil, nil, err
	}
	there, err := other.PinnedKey(ctx)
	if err != nil {
		return nil, nil, err
	}
	position, head, err := h.store.AuditHead(ctx)
	if err != nil {
		return nil, nil, err
	}
	if position > 0 {
		log, err := other.AuditLog(ctx, position-1, 1)
		if err != nil {
			return nil, nil, err
		}
		if len(log) == 0 || log[0].Position != position || log[0].Digest != head {
			there = ""
		}
	}
	if here != there {
		return nil, nil, errors.New("the old hub is another one, or older than the backup")
	}
	if tokens, err = other.AccessTokens(ctx); err != nil {
		return nil, nil, err
	}
	if enrollment, err = other.Tokens(ctx); err != nil {
		return nil, nil, err
	}
	if slices.ContainsFunc(tokens, func(t store.AccessToken) bool { return t.Waits }) || slices.ContainsFunc(enrollment, func(t store.Token) bool { return t.State == store.TokenWaits }) {
		return nil, nil, errors.New("its own tokens wait")
	}
	return tokens, enrollment, nil
}

// AcceptTokens makes the tokens of a restored backup good, and returns how many waited.
func (h *Hub) AcceptTokens(ctx context.Context) (int, error) {
	n, err := h.store.AcceptTokens(ctx)
	if err != nil || n == 0 {
		return n, err
	}
	return n, access.Note(ctx, h.store, store.AuditEntry{At: h.enroller.sign.now(), Action: "accept tokens", Object: show.Count(n, "token"), Detail: "of the backup"})
}

// unpackBackup writes the files of a backup into a folder, and returns when it was made.
func unpackBackup(ctx context.Context, dir string, from io.Reader) (at time.Time, err error) {
	z, err := gzip.NewReader(reader{ctx, from})
	if err != nil {
		return at, notBackup(ctx, err)
	}
	t := tar.NewReader(z)
	missing := map[string]bool{KeyFile: true, DatabaseFile: true}
	for {
		header, err := t.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return at, notBackup(ctx, err)
		}
		if !missing[header.Name] || header.Typeflag != tar.TypeReg || header.Name == KeyFile && header.Size > maxBackupKey {
			return at, fmt.Errorf("%w: it has an entry %q", ErrNoBackup, store.Plain(store.Clip(header.Name)))
		}
		delete(missing, header.Name)
		if header.Name == DatabaseFile {
			at = header.ModTime
		}
		f, err := os.OpenFile(filepath.Join(dir, header.Name), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
		if err != nil {
			return at, err
		}
		_, err = io.Copy(writerOnly{f}, t)
		if copied := err; copied != nil {
			err = notBackup(ctx, copied)
			if errors.As(copied, new(*fs.PathError)) { // of writing
				err = copied
			}
		}
		if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
			return at, err
		}
	}
	if len(missing) > 0 {
		return at, fmt.Errorf("%w: it lacks %s or %s", ErrNoBackup, DatabaseFile, KeyFile)
	}
	// The checksum of gzip is at its end.
	if _, err := io.Copy(io.Discard, z); err != nil {
		return at, notBackup(ctx, err)
	}
	return at, nil
}

// writerOnly keeps io.Copy from asking the file to read.
type writerOnly struct{ io.Writer }

func notBackup(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return fmt.Errorf("%w: %w", ErrNoBackup, err)
}

// checkRestored reads all of a hub that was opened, which has brought its database up to date.
func (h *Hub) checkRestored(ctx context.Context, done *Restored) error {
	if err := h.Check(ctx); err != nil {
		return err
	}
	return h.store.Scan(ctx, store.Scope{WithoutDeployments: true}, func(c store.ClusterState) error {
		if c.LastSeen.After(done.Newest) {
			done.Newest = c.LastSeen
		}
		return nil
	})
}
