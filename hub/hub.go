// Package hub receives the compliance reports of a fleet, keeps them, and answers questions about them.
//
// Begin with Open, register clusters with AddCluster, then Serve. A hub is one process and one folder: a database and
// the hub's own Ed25519 key. Other processes may open the same folder at the same time, to register a cluster or to
// import reports while the hub serves. The database may be on a PostgreSQL server, and belong to several processes on several
// machines that have the same key.
//
// Guarantees: a report is stored only if a key registered for its own cluster signed it. An acknowledgement,
// signed by the hub's key, is given only for reports whose transaction is on disk, and an agent deletes nothing without
// one; so a crash at any point loses nothing. Repeats change nothing. Reports are ordered by the (incarnation, seq) that
// the agent gave them: a late one adds to the history and never changes the present.
//
// Limits: it never contacts a cluster.
//
// The parts have folders of their own: store is the database behind an interface, admission bounds the work that strangers
// and agents may cause, fleet answers questions, which api takes over HTTP and web shows. Package bundle/hubapi is the protocol between agents and a hub.
package hub

import (
	"cmp"
	"context"
	"crypto"
	"crypto/ed25519"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/opencontainers/go-digest"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/diskfile"
	"github.com/wherry-dev/wherry/bundle/oci"
	"github.com/wherry-dev/wherry/bundle/show"
	"github.com/wherry-dev/wherry/hub/access"
	"github.com/wherry-dev/wherry/hub/admission"
	"github.com/wherry-dev/wherry/hub/api"
	"github.com/wherry-dev/wherry/hub/desired"
	"github.com/wherry-dev/wherry/hub/login"
	"github.com/wherry-dev/wherry/hub/metrics"
	"github.com/wherry-dev/wherry/hub/store"
	"github.com/wherry-dev/wherry/hub/store/postgres"
	"github.com/wherry-dev/wherry/hub/store/sqlite"
	"github.com/wherry-dev/wherry/hub/upstream"
	"github.com/wherry-dev/wherry/hub/web"
)

// ErrNoHub means that a folder holds no hub.
var ErrNoHub = errors.New("holds no hub")

// DatabaseFile is the database's name in a hub's folder.
const DatabaseFile = "hub.db"

// ErrNoKey means that there is no key for the hub that a database belongs to.
var ErrNoKey = errors.New("there is no key")

// Options are the optional parts of a hub; the zero value works.
type Options struct {
	// Database is the URL of a PostgreSQL database; see postgres.Open. Empty means a file in the hub's folder.
	Database string
	// KeyFile is a file with the hub's private key; empty means KeyFile in the folder, which is made if the hub is new.
	KeyFile string
	// AdminTokenFile is a file with the first access token, of role admin; empty means access.AdminTokenFile in the folder,
	// which is made if the hub is new.
	AdminTokenFile string
	// Now is the clock; nil means time.Now.
	Now func() time.Time
	// Log is nil for silence.
	Log *slog.Logger
	// MustExist makes Open fail with ErrNoHub instead of making a new hub.
	MustExist bool
	// Admission bounds the work that strangers and agents may cause.
	Admission admission.Options
	// Hosts are the names, beside localhost, by which a hub that listens on loopback may be asked for.
	Hosts []string
	// Anonymous is the role of requests without an access token. Serve then needs a listener on loopback. If it is empty,
	// they are refused, but for those of agents.
	Anonymous access.Role
	// Login lets people sign in with their company's accounts; nil for access tokens alone. It excludes Anonymous.
	Login *login.Config
	// RequestsPerMinute bounds the requests of each access token, and of each address; see access.Options.
	RequestsPerMinute int
	// Streams bounds the streams of events that are open at once, StreamsEach those of one access token or session; see api.Options.
	Streams, StreamsEach int
	// Trust says whose releases the hub learns; the zero value learns none. Watch has the locations that it follows while
	// it serves; its other fields but OCI and Interval are set by Open.
	Trust desired.Trust
	Watch desired.Options
	// Version is shown among the metrics.
	Version string
}

// Hub is an open hub. It may be used by several goroutines.
type Hub struct {
	// Registry is the clusters and tokens that people have registered.
	store.Registry

	store    store.Store
	log      *slog.Logger
	intake   intake
	enroller enroller
	gate     *admission.Gate
	hosts    []string

	published publications
	dir       string
	shared    bool   // the database, with other hubs
	admin     string // Options.AdminTokenFile
	guard     *access.Guard
	tokens    access.Tokens
	login     *login.Login // nil without Options.Login
	remember  *access.Memory
	present   *present
	ready     readiness
	reads     *api.API
	anonymous bool

	version  string
	counters *metrics.Counters
	// forwarder is nil unless the hub has an upper one.
	forwarder *upstream.Forwarder
}

// Open opens the hub in dir, and makes folder, key and database if they are missing. The caller closes it. The error
// wraps ErrNoHub, ErrNoKey, store.ErrCorrupt, store.ErrNewer, store.ErrOtherKey, or those of postgres.Open.
func Open(dir string, o Options) (*Hub, error) {
	if _, err := os.Stat(filepath.Join(dir, DatabaseFile)); o.Database == "" && o.MustExist && errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("folder %s %w", dir, ErrNoHub)
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	o.Log = slog.New(newRepeats(o.Log.Handler(), o.Now))
	if err := o.keepPrivate(dir); err != nil {
		return nil, fmt.Errorf("hub: %w", err)
	}
	open := o.openFile
	if o.Database != "" {
		open = o.openServer
	}
	db, key, err := open(dir)
	if err != nil {
		return nil, err
	}
	kid, err := bundle.KeyID(key.Public())
	if err == nil {
		err = db.PinKey(context.Background(), kid)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("hub: %w", err), db.Close())
	}
	h := join(db, key, o)
	h.dir, h.admin, h.shared = dir, o.AdminTokenFile, o.Database != ""
	return h, nil
}

// ErrServed means that another process serves from a hub's folder.
var ErrServed = errors.New("another process serves this hub")

// Claim makes this process the one that serves from the hub's folder, until it calls release: two would have two views of the fleet. It
// returns ErrServed if there is another. Hubs that share a database on a server need no claim.
func (h *Hub) Claim() (release func() error, err error) {
	if h.shared {
		return func() error { return nil }, nil
	}
	dir, err := os.Open(h.dir)
	if err != nil {
		return nil, fmt.Errorf("hub: %w", err)
	}
	if free, err := diskfile.TryLock(dir); !free && err == nil { // a file system without locks lets everybody in
		return nil, errors.Join(fmt.Errorf("folder %s: %w", h.dir, ErrServed), dir.Close())
	}
	return dir.Close, nil
}

// keepPrivate makes the hub's folder, and takes other users' rights on it.
func (o Options) keepPrivate(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	err := diskfile.KeepPrivate(dir, append(sqlite.Files(DatabaseFile), KeyFile, PublicKeyFile, access.AdminTokenFile)...)
	if errors.Is(err, fs.ErrPermission) {
		o.Log.Warn("other users of this machine may have rights on the hub's folder, which is not this user's to change", "folder", dir, "err", err)
		return nil
	}
	return err
}

// database is a store that knows which hub it belongs to.
type database interface {
	store.Store
	store.Access
}

// openFile opens the database in the hub's folder, and the hub's key. A new hub's key is written first: a database without one
// is damaged.
func (o Options) openFile(dir string) (database, ed25519.PrivateKey, error) {
	path := filepath.Join(dir, DatabaseFile)
	_, err := os.Stat(path)
	key, err := o.loadKey(dir, !errors.Is(err, fs.ErrNotExist))
	if err != nil {
		return nil, nil, fmt.Errorf("hub key: %w", err)
	}
	db, err := sqlite.Open(path, sqlite.Options{Now: o.Now})
	if err != nil {
		return nil, nil, fmt.Errorf("hub database %s: %w", path, err)
	}
	return db, key, nil
}

// openServer opens the database on a server, and the hub's key. The database knows whether the hub is new.
func (o Options) openServer(dir string) (database, ed25519.PrivateKey, error) {
	ctx, cancel := context.WithTimeout(context.Background(), openTime)
	defer cancel()
	db, err := postgres.Open(ctx, o.Database, postgres.Options{Now: o.Now})
	if err != nil {
		return nil, nil, err
	}
	pinned, err := db.PinnedKey(ctx)
	if err == nil && pinned == "" && o.MustExist {
		err = fmt.Errorf("database %s %w", postgres.Name(o.Database), ErrNoHub)
	}
	if err != nil {
		return nil, nil, errors.Join(err, db.Close())
	}
	key, err := o.loadKey(dir, pinned != "")
	if err != nil {
		return nil, nil, errors.Join(fmt.Errorf("hub key: %w", err), db.Close())
	}
	return db, key, nil
}

// openTime bounds the time in which a database on a server is opened, and its tables are brought up to date.
const openTime = 5 * time.Minute

// DatabaseName returns the URL of a database as logs and errors show it, without its password.
func DatabaseName(url string) string { return postgres.Name(url) }

// join returns a hub of a store and a key.
func join(s store.Store, key ed25519.PrivateKey, o Options) *Hub {
	sign, counters, gate, known := signer{key, o.Now}, &metrics.Counters{}, admission.New(o.Admission), &present{}
	published, remember := newPublications(s, o), &access.Memory{Access: s, Now: o.Now}
	h := &Hub{
		Registry: access.Registry{Registry: s, Log: s, Now: o.Now}, store: s, log: o.Log,
		intake:    intake{store: s, sign: sign, log: o.Log, counters: counters, quota: store.Quota(gate.Quota()), present: known, follower: published.follower},
		enroller:  enroller{store: s, sign: sign, log: o.Log},
		gate:      gate,
		present:   known,
		hosts:     o.Hosts,
		published: published,
		tokens:    access.Tokens{Store: remember, Now: o.Now, Log: o.Log},
		remember:  remember,
		anonymous: o.Anonymous != "",
		version:   o.Version,
		counters:  counters,
	}
	sources := []access.Source{h.tokens}
	if o.Anonymous != "" {
		sources = append(sources, access.Anonymous{Role: o.Anonymous})
	}
	if o.Login != nil {
		h.login = login.New(o.Login, login.Options{Tokens: h.tokens, Now: o.Now, Log: o.Log, Fail: h.fail, SignedOut: web.SignedOut})
		h.enroller.kept = o.Login.Labels()
		sources = []access.Source{h.login}
	}
	h.guard = access.NewGuard(access.Options{
		Sources: sources, Client: h.gate.ClientOf, Fail: h.fail, Now: o.Now, RequestsPerMinute: o.RequestsPerMinute, SignedIn: h.noteSignIn, Away: remember.Away,
		SignIn: h.login != nil,
	})
	h.reads = api.New(api.Options{Answers: h.answersFor, ReadBody: h.gate.ReadBody, Now: o.Now, Log: o.Log, Streams: o.Streams, StreamsEach: o.StreamsEach})
	return h
}

// Access returns the access tokens.
func (h *Hub) Access() access.Tokens { return h.tokens }

// FirstAccess makes the first access token of a hub that has none, of role admin, and keeps it in the hub's folder, or takes it
// from Options.AdminTokenFile. It returns its secret, or the zero Token if the hub has tokens already.
func (h *Hub) FirstAccess(ctx context.Context) (access.Token, error) {
	return h.tokens.First(ctx, h.adminFile(), func(path string, data []byte) error {
		if h.admin != "" {
			return fs.ErrExist // it is not the hub's to write
		}
		return diskfile.Create(path, data)
	})
}

func (h *Hub) adminFile() string { return cmp.Or(h.admin, filepath.Join(h.dir, access.AdminTokenFile)) }

// AdminToken returns the token whose secret is in the file of the first; the zero token if there is none that the hub knows.
func (h *Hub) AdminToken(ctx context.Context) (store.AccessToken, error) {
	kept, err := h.tokens.ReadFile(ctx, h.adminFile())
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, access.ErrToken) || errors.Is(err, store.ErrUnknownAccess) {
		return store.AccessToken{}, nil
	}
	return kept, err
}

// Close waits for running writes and closes the database.
func (h *Hub) Close() error { return h.store.Close() }

// PublicKey returns the key that verifies the hub's acknowledgements.
func (h *Hub) PublicKey() crypto.PublicKey { return h.enroller.sign.key.Public() }

// Check reads the whole database and returns an error wrapping store.ErrCorrupt if it is damaged. It takes about a
// second for each few hundred megabytes.
func (h *Hub) Check(ctx context.Context) error { return h.store.Check(ctx) }

// Import verifies and stores envelopes of reports of any clusters. When it returns nil, all reports that the result
// counts as accepted or duplicate are on disk; with an error some may be, and importing again is safe.
func (h *Hub) Import(ctx context.Context, envelopes [][]byte, via store.Via) (ImportResult, error) {
	return h.intake.importAll(ctx, envelopes, via)
}

// ImportEach is Import for envelopes that are not in memory all at once: each calls take with one after the other. If each
// returns an error, the reports that the result counts are stored. From names their origin for the audit log.
func (h *Hub) ImportEach(ctx context.Context, from string, each func(take func(envelope []byte) error) error, via store.Via) (ImportResult, error) {
	result, err := h.intake.importEach(ctx, each, via)
	return result, cmp.Or(err, h.noteImport(ctx, from, result))
}

// noteImport notes in the audit log what was imported, unless that is nothing.
func (h *Hub) noteImport(ctx context.Context, from string, r ImportResult) error {
	if r.Accepted+r.Duplicates+len(r.Rejected) == 0 {
		return nil
	}
	return access.Note(ctx, h.store, store.AuditEntry{
		At: h.enroller.sign.now(), Action: "import reports", Object: from,
		Detail: fmt.Sprintf("%d new, %d known, %d refused, of %s", r.Accepted, r.Duplicates, len(r.Rejected), show.Count(len(r.Clusters), "cluster")),
	})
}

// noteSignIn notes in the audit log that a token is used from an address, or was refused.
func (h *Hub) noteSignIn(ctx context.Context, i access.Identity, client string, refused error) error {
	if h.remember.Away() {
		return store.ErrUnavailable // noted with a later request
	}
	e := store.AuditEntry{At: h.enroller.sign.now(), Action: "sign in", Object: client}
	if refused != nil {
		e.Action, e.Detail = "refuse sign-in", refused.Error()
	}
	return access.Note(access.With(ctx, i), h.store, e)
}

// Silent returns the clusters that the hub has not heard of for longer than limit, the longest first; zero means that it
// has missed three of the cluster's expected intervals. Clusters that have never reported are the first.
func (h *Hub) Silent(ctx context.Context, limit time.Duration) ([]SilentCluster, error) {
	return silent(ctx, h.store, h.enroller.sign.now(), limit)
}

// Collect stores the reports of all registered clusters that lie in a registry, and puts a signed acknowledgement beside
// those of each cluster that had new ones. The rules are those of Import. Reports that were collected before are not
// fetched again. Several may collect at once. With an error, the reports that the result counts are stored, and the
// clusters that it does not name could not be read. Name is the registry's, for the audit log.
func (h *Hub) Collect(ctx context.Context, name string, from oci.Store) (ImportResult, error) {
	result, err := h.intake.collectAll(ctx, from)
	return result, cmp.Or(err, h.noteImport(ctx, name, result))
}

// Acks returns signed acknowledgements of the stored reports that came by media and were not passed to MarkExported
// since, for the clusters with the given uids, or for all.
func (h *Hub) Acks(ctx context.Context, uids ...string) (*Acks, error) {
	return h.intake.owed(ctx, uids)
}

// MarkExported notes that the acknowledgements have been written to the medium. A report that is imported again
// afterwards is owed one again.
func (h *Hub) MarkExported(ctx context.Context, a *Acks) error { return h.intake.markExported(ctx, a) }

// Enroll does what an agent's request asks for, if it may: registers the agent by a token, or replaces its key. It
// returns the signed answer. The same request again is answered again and changes nothing. The error is a
// *hubapi.Error if the hub understands the request and refuses it.
func (h *Hub) Enroll(ctx context.Context, envelope []byte) ([]byte, error) {
	return h.enroller.enroll(ctx, envelope)
}

// ParseRequest verifies a request that came as a file, and returns it with its id and the cluster that it asks to be
// registered as. The error wraps store.ErrInvalid, or is a *hubapi.Error.
func (h *Hub) ParseRequest(envelope []byte) (bundle.EnrollmentRequest, digest.Digest, store.Cluster, error) {
	return h.enroller.parse(envelope)
}

// AnswerRequest returns the signed statement that the cluster of this uid is registered, as the answer to the request of
// that id. The error wraps store.ErrUnknownCluster.
func (h *Hub) AnswerRequest(ctx context.Context, uid string, request digest.Digest) ([]byte, error) {
	return h.enroller.answer(ctx, uid, request)
}

// CreateToken makes a token and returns it with its secret, which the hub does not keep. The error wraps
// store.ErrInvalid.
func (h *Hub) CreateToken(ctx context.Context, s store.TokenScope) (bundle.EnrollToken, error) {
	token, err := h.enroller.createToken(ctx, s)
	if err != nil {
		return token, err
	}
	return token, access.Note(ctx, h.store, store.AuditEntry{
		At: h.enroller.sign.now(), Action: "create enrollment token", Object: token.ID(), Environment: s.Environment,
		Detail: fmt.Sprintf("type %s, %s, until %s", s.Type, show.Count(max(s.Uses, 1), "use"), s.ExpiresAt.UTC().Format(time.RFC3339)),
	})
}

// AllRegistrations returns the clusters that are registered, or were retired, by name.
func (h *Hub) AllRegistrations(ctx context.Context) ([]store.Registration, error) {
	all, err := h.Registrations(ctx)
	if err != nil {
		return nil, err
	}
	retired, err := h.RetiredClusters(ctx)
	all = append(all, retired...)
	slices.SortStableFunc(all, func(a, b store.Registration) int { return strings.Compare(a.Name, b.Name) })
	return all, err
}

// Register registers a cluster by AddCluster, or if replace is true by ReplaceCluster. With the envelope of an agent's request, it
// returns the signed answer; see ParseRequest and AnswerRequest.
func (h *Hub) Register(ctx context.Context, c store.Cluster, request []byte, replace bool) (changed bool, answer []byte, err error) {
	var id digest.Digest
	if request != nil {
		if _, id, _, err = h.ParseRequest(request); err != nil {
			return false, nil, err
		}
	}
	add := h.AddCluster
	if replace {
		add = h.ReplaceCluster
	}
	if changed, err = add(ctx, c); err == nil && request != nil {
		answer, err = h.AnswerRequest(ctx, c.UID, id)
	}
	return changed, answer, err
}

// Registered returns the registered cluster of this uid. The error wraps store.ErrUnknownCluster.
func (h *Hub) Registered(ctx context.Context, uid string) (store.Registration, error) {
	return h.store.Registered(ctx, uid)
}
