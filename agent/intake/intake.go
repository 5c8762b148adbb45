// Package intake stores the streams of site packages in the content store of an agent, for its own cluster and for the
// other agents of the site.
//
// Begin with New, then Keeper.Take for each package. Take reads the package once, from front to back: it verifies every
// release before it copies anything, writes down what is arriving, and copies what is missing to the store. Named lists,
// for package content, what has to stay there and by which names it is served. Settle forgets what nobody needs any more.
//
// A stream counts as stored once all of its release is here: the documents, the tree, and each artifact that the signed
// list in the tree names and that the package carries. Until then the former content of the stream stays. What has
// arrived of a package that was not read to its end stays too, and the next Take goes on from there.
//
// The release of the agent's own stream is verified here like all others, but a pass of the agent judges it once more and
// accepts it. Deltas are not stored: followers fetch the whole tree.
package intake

import (
	"context"
	"log/slog"
	"path/filepath"
	"sync"
	"time"

	"github.com/wherry-dev/wherry/agent/state"
	"github.com/wherry-dev/wherry/agent/trust"
	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/graph"
	"github.com/wherry-dev/wherry/bundle/oci"
)

// Options configures a Keeper.
type Options struct {
	// Own is the stream that the agent follows, and Ring its ring, which may be empty.
	Own  bundle.Stream
	Ring string
	// Others has the other streams of the platform stored as well.
	Others bool
	// Budget bounds the release of each other stream with its artifacts, in bytes. Zero means what leaves the larger of a
	// tenth of the disk and 1 GiB free.
	Budget int64
	// Platforms are those that the site needs. Empty means those of the release, or else Linux on this machine's architecture; then packages of several platforms
	// are stored whole.
	Platforms graph.Platforms
	// WithoutReferrers leaves the signatures and other referrers of artifacts on the medium.
	WithoutReferrers bool
	// Trust holds the trust documents, which a package may add to. Judge returns what releases are judged by; its error
	// refuses all of them.
	Trust *trust.Store
	Judge func() (trust.Judge, error)
	// Back is the release of the own stream that a person goes back to, which was accepted before; nil if there is none. It is
	// taken from a package although it is older.
	Back func() (*state.Release, error)
	// Prune deletes what Named does not list any more.
	Prune func() error
	// Space is oci.SpaceIn, but for tests.
	Space func(dir string) (free, size int64, known bool)
	// Now is the clock; nil means time.Now.
	Now func() time.Time
	// Log is nil for silence.
	Log *slog.Logger
}

// Keeper stores the streams of site packages in one state folder. It may be used by several goroutines: one Take goes on at
// a time.
type Keeper struct {
	db    *state.DB
	opts  Options
	blobs oci.Target
	// usual is true if nobody has said which platforms the site needs.
	usual bool
	turn  chan struct{} // holds a token while a Take goes on
	// documents is held while a manifest is written, or what it refers to is claimed, and while unused blobs are deleted;
	// see Guard.
	documents sync.Mutex
}

// New returns the keeper for the store beside a state file. It reads nothing.
func New(db *state.DB, opts Options) *Keeper {
	usual := len(opts.Platforms) == 0
	if usual {
		opts.Platforms = graph.ThisMachine()
	}
	if opts.Back == nil {
		opts.Back = func() (*state.Release, error) { return nil, nil }
	}
	if opts.Prune == nil {
		opts.Prune = func() error { return nil }
	}
	if opts.Space == nil {
		opts.Space = oci.SpaceIn
	}
	if opts.Now == nil {
		opts.Now = time.Now
	}
	if opts.Log == nil {
		opts.Log = slog.New(slog.DiscardHandler)
	}
	blobs, err := oci.NewLayout(filepath.Join(db.Dir(), state.StoreDir)).Repository("arriving")
	if err != nil {
		panic(err) // the name is valid
	}
	return &Keeper{db: db, opts: opts, usual: usual, blobs: blobs, turn: make(chan struct{}, 1)}
}

// Guard runs f, which deletes blobs that Named does not list, while nothing is claimed and no manifest is written.
func (k *Keeper) Guard(f func() error) error {
	k.documents.Lock()
	defer k.documents.Unlock()
	return f()
}

// begin waits until no other Take goes on. The caller calls end.
func (k *Keeper) begin(ctx context.Context) (end func(), err error) {
	select {
	case k.turn <- struct{}{}:
		return func() { <-k.turn }, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}
