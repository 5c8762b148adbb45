// Package hub receives the compliance reports of a fleet, keeps them, and answers what runs where.
//
// Begin with Open, register clusters with AddCluster, then Serve. A hub is one process and one folder:
// an SQLite database and the hub's own Ed25519 key. Other processes may open the same folder at the
// same time, to register a cluster or to import reports while the hub serves.
//
// What it guarantees: a report is stored only if a key registered for its own cluster signed it. An
// acknowledgement, signed by the hub's key, is given only for reports whose transaction is on disk, and
// an agent deletes nothing without one; so a crash at any point loses nothing. Repeats change nothing.
// Reports are ordered by the (incarnation, seq) that the agent gave them: one that comes late adds to
// the history and never changes the present.
//
// What it does not: it keeps no copy of a report's envelope, it never contacts a cluster, and whoever
// reaches its address may read what it shows.
package hub

import (
	"cmp"
	"context"
	"crypto"
	"crypto/ed25519"
	"database/sql"
	"errors"
	"fmt"
	"html/template"
	"io/fs"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"time"

	"github.com/wherry-dev/wherry/bundle/private"
)

// Errors for callers to branch on. Each is wrapped with what it is about.
var (
	// ErrNoHub says that a folder holds no hub.
	ErrNoHub = errors.New("holds no hub")
	// ErrCorrupt says that the database or the hub's key cannot be what the hub wrote.
	ErrCorrupt = errors.New("damaged")
	// ErrNewer says that a newer version has written the database.
	ErrNewer = errors.New("written by a newer version of wherry")
	// ErrUnknownCluster says that no cluster of that uid, or name, is registered.
	ErrUnknownCluster = errors.New("not registered")
	// ErrExists says that the name, uid or key is already registered for something else.
	ErrExists = errors.New("already registered")
	// ErrInvalid says that a caller's value is not acceptable.
	ErrInvalid = errors.New("not valid")
	// ErrClosed says that the hub has been closed.
	ErrClosed = errors.New("hub is closed")
)

// DatabaseFile is the database's name in a hub's folder.
const DatabaseFile = "hub.db"

// Options are the optional parts of a hub; the zero value works.
type Options struct {
	// Now is the clock; nil means time.Now.
	Now func() time.Time
	// Log is nil for silence.
	Log *slog.Logger
	// MustExist makes Open fail with ErrNoHub where it would make a new hub.
	MustExist bool
	// ReportsPerMinute is how many reports the hub asks for in all, divided among the agents that are sending. Zero
	// means DefaultReportsPerMinute.
	ReportsPerMinute int
	// Quota bounds what one cluster may have stored over HTTP. Fields that are zero are as in DefaultQuota.
	Quota Quota
	// TrustedProxies are the addresses of proxies whose X-Forwarded-For is believed. Bounds for each address do not hold
	// for the proxies themselves.
	TrustedProxies []netip.Prefix
	// Hosts are the names, beside localhost, by which a hub that listens on loopback is asked for.
	Hosts []string
}

// Hub is an open hub. It may be used by several goroutines.
type Hub struct {
	now    func() time.Time
	log    *slog.Logger
	key    ed25519.PrivateKey
	read   *sql.DB
	writer *writer
	ingest chan struct{} // holds one token for each request whose reports are being verified and stored
	fleet  *template.Template

	enrolling chan struct{} // holds one token for each request for enrollment that is being judged
	pacer     *pacer
	bodies    *slots // of requests that are being received
	proxies   []netip.Prefix
	hosts     []string
}

// Open opens the hub in dir, and makes folder, key and database where they are missing. The caller
// closes it.
func Open(dir string, o Options) (*Hub, error) {
	path := filepath.Join(dir, DatabaseFile)
	_, err := os.Stat(path)
	exists := !errors.Is(err, fs.ErrNotExist)
	if o.MustExist && !exists {
		return nil, fmt.Errorf("folder %s %w", dir, ErrNoHub)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("hub: %w", err)
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	err = private.Keep(dir, DatabaseFile, DatabaseFile+"-wal", DatabaseFile+"-shm", KeyFile, PublicKeyFile)
	if errors.Is(err, fs.ErrPermission) {
		o.Log.Warn("other users of this machine may have rights on the hub's folder, which is not this user's to change", "folder", dir, "err", err)
	} else if err != nil {
		return nil, fmt.Errorf("hub: %w", err)
	}
	key, err := loadKey(dir, exists)
	if err != nil {
		return nil, fmt.Errorf("hub key: %w", err)
	}
	if !exists {
		if err := makePrivate(path); err != nil {
			return nil, fmt.Errorf("hub database: %w", err)
		}
	}
	fleet, err := fleetTemplate(o.Now)
	if err != nil {
		return nil, err
	}
	w, err := openWriter(path)
	if err != nil {
		return nil, fmt.Errorf("hub database %s: %w", path, err)
	}
	read, err := openReaders(path)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("hub database %s: %w", path, err), w.close())
	}
	return &Hub{
		now: o.Now, log: o.Log, key: key, read: read, writer: w,
		ingest: make(chan struct{}, maxIngests), fleet: fleet,
		enrolling: make(chan struct{}, maxEnrollments),
		pacer: newPacer(cmp.Or(o.ReportsPerMinute, DefaultReportsPerMinute),
			Quota{cmp.Or(o.Quota.Reports, DefaultQuota.Reports), cmp.Or(o.Quota.Bytes, DefaultQuota.Bytes)}),
		bodies:  &slots{perAddress: maxUnreadOfAddress, total: maxUnread, bytes: maxUnreadBytes},
		proxies: o.TrustedProxies, hosts: o.Hosts,
	}, nil
}

// makePrivate makes an empty file that nobody else may read, unless there is one. SQLite gives the files beside its
// database the same mode.
func makePrivate(path string) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	return f.Close()
}

// Close waits for what is being written and closes the database.
func (h *Hub) Close() error { return errors.Join(h.read.Close(), h.writer.close()) }

// PublicKey is the key that verifies the hub's acknowledgements.
func (h *Hub) PublicKey() crypto.PublicKey { return h.key.Public() }

// Check reads the whole database and returns an error wrapping ErrCorrupt if it is damaged. It takes
// about a second for each few hundred megabytes.
func (h *Hub) Check(ctx context.Context) error {
	var verdict string
	if err := h.read.QueryRowContext(ctx, "PRAGMA quick_check(1)").Scan(&verdict); err != nil {
		return fmt.Errorf("hub database: %w", classify(err))
	}
	if verdict != "ok" {
		return fmt.Errorf("hub database: %w: %s", ErrCorrupt, verdict)
	}
	return nil
}

// Ready returns nil if the database gives the lock that a write needs.
func (h *Hub) Ready(ctx context.Context) error {
	// Beginning and ending a transaction is the proof; nothing is to be changed.
	return h.writer.do(ctx, func(context.Context, *conn) error { return nil })
}
