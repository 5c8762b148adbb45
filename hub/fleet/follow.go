package fleet

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/opencontainers/go-digest"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/hub/store"
)

// Source is the part of a store that a Fleet needs; see the interfaces of package store, and package memory for a command without a hub.
type Source interface {
	store.Past
	store.Feed

	ReportList(ctx context.Context, f store.ReportFilter) (store.ReportList, error)
	Envelope(ctx context.Context, uid string, at store.Order) ([]byte, error)
	Place(ctx context.Context, uid string, id digest.Digest) (store.Order, error)
	SigningKeys(ctx context.Context, uid string) ([]store.SigningKey, error)

	Release(ctx context.Context, d digest.Digest) (store.PublishedRelease, error)
	Releases(ctx context.Context, each func(store.PublishedRelease) error) error
	Records(ctx context.Context, each func(store.PublishedRecord) error) error
	Decisions(ctx context.Context, environment string) ([]store.StoredDecision, error)
	Promotions(ctx context.Context) ([]store.Promotion, error)
}

// Options are the optional parts of a Fleet; the zero value works.
type Options struct {
	// Now is the clock; nil means time.Now.
	Now func() time.Time
	// Log is nil for silence.
	Log *slog.Logger
	// Patience bounds how long a question waits for the database before it is answered from memory. Zero means five
	// seconds.
	Patience time.Duration
}

// Fleet is the present of all clusters in memory. It follows the feed of its store, and may be used by several
// goroutines. Ask it through a View.
//
// A question sees every change that was committed before it, also by another process. While the database cannot be read,
// questions about now are answered from memory, with the time of the data in ReadAt.
type Fleet struct {
	source   Source
	now      func() time.Time
	log      *slog.Logger
	patience time.Duration
	// following is held by the one that reads the feed, asOf by the one that has a moment of the past in memory, and uses kept.
	following, asOf chan struct{}
	kept            keptMoment

	mu        sync.RWMutex
	tables    *tables
	byUID     map[string]*cluster
	order     []*cluster // by name
	position  store.Position
	published *published
	// gone is the time of the first of the reads of the database that fail, tried of the last; read that of the last that
	// did not.
	gone, tried, read time.Time
	// snapshot is shared by readers until the next change.
	snapshot *snapshot

	contents kept[*store.PublishedRelease]
	lines    kept[[]contentLine]
	recent   recent
}

// snapshot is the present of one moment. Nothing in it changes.
type snapshot struct {
	clusters  []*cluster // by name
	texts     []string
	kinds     []kind
	releases  []bundle.ReportRelease
	messages  []string
	published *published
}

// Open reads the present of all clusters into memory. Call Run to follow the changes; without it each question reads those
// that came since the one before.
func Open(ctx context.Context, from Source, o Options) (*Fleet, error) {
	f := &Fleet{
		source: from, now: o.Now, log: o.Log, patience: cmp.Or(o.Patience, 5*time.Second),
		following: make(chan struct{}, 1), asOf: make(chan struct{}, 1),
	}
	if f.now == nil {
		f.now = time.Now
	}
	if f.log == nil {
		f.log = slog.New(slog.DiscardHandler)
	}
	if err := f.load(ctx); err != nil {
		return nil, err
	}
	return f, nil
}

const (
	// retry is the pause after a read of the database that failed.
	retry = time.Second
	// settle is the pause between a change and the reading of the feed. By then most changes of this process were applied,
	// and need not be read.
	settle = 250 * time.Millisecond
)

// Run follows the changes until ctx ends, and returns nil then.
func (f *Fleet) Run(ctx context.Context) error {
	for {
		err := f.catchUp(ctx)
		if err == nil {
			err = f.source.Await(ctx, f.Position())
		}
		pause := settle
		if err != nil {
			pause = retry
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(pause):
		}
	}
}

// Position returns the newest change of the feed that the fleet in memory has.
func (f *Fleet) Position() store.Position {
	f.mu.RLock()
	defer f.mu.RUnlock()
	return f.position
}

// Apply takes the state of a cluster from who has just stored it, so that it need not be read. A state that is older than
// the one in memory changes nothing.
func (f *Fleet) Apply(s store.ClusterState) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if s.Change <= f.position { // and so read already
		return
	}
	f.set(s)
}

// load reads everything.
func (f *Fleet) load(ctx context.Context) error {
	position, err := f.source.End(ctx)
	if err != nil {
		return err
	}
	p, err := readPublished(ctx, f.source)
	if err != nil {
		return err
	}
	t, byUID, order := newTables(), map[string]*cluster{}, []*cluster{}
	err = f.source.Scan(ctx, store.Scope{}, func(s store.ClusterState) error {
		c := t.pack(s)
		byUID[c.uid], order = c, append(order, c)
		return nil
	})
	if err != nil {
		return err
	}
	slices.SortFunc(order, byName)
	t.kept = t.size()
	f.mu.Lock()
	defer f.mu.Unlock()
	f.tables, f.byUID, f.order, f.position, f.published, f.snapshot = t, byUID, order, position, p, nil
	return nil
}

// entriesAtOnce is how many entries of the feed are read at once.
const entriesAtOnce = 5000

// catchUp reads all changes that were committed before it was called.
func (f *Fleet) catchUp(ctx context.Context) error {
	end, err := f.source.End(ctx)
	if err != nil {
		return f.note(ctx, err)
	}
	f.mu.RLock()
	behind := f.position < end
	f.mu.RUnlock()
	if !behind {
		return f.note(ctx, nil)
	}
	select {
	case f.following <- struct{}{}:
		defer func() { <-f.following }()
	case <-ctx.Done():
		return f.note(ctx, ctx.Err())
	}
	for {
		f.mu.RLock()
		position := f.position
		f.mu.RUnlock()
		if position >= end {
			return f.note(ctx, nil)
		}
		entries, err := f.source.Entries(ctx, position, entriesAtOnce)
		switch {
		case errors.Is(err, store.ErrForgotten):
			err = f.load(ctx)
		case err == nil && len(entries) == 0: // the newest ones were removed
			f.mu.Lock()
			f.position = max(f.position, end)
			f.mu.Unlock()
		case err == nil:
			err = f.follow(ctx, entries)
		}
		if err != nil {
			return f.note(ctx, err)
		}
	}
}

// follow reads what the entries are about. One of this process has often been applied.
func (f *Fleet) follow(ctx context.Context, entries []store.FeedEntry) error {
	var uids []string
	var p *published
	wanted, learned, judged := map[string]bool{}, false, false
	f.mu.RLock()
	for _, e := range entries {
		switch e.Kind {
		case store.FeedPublished:
			learned = true
		case store.FeedPromotion, store.FeedLook:
			judged = true
		case store.FeedReports, store.FeedCluster:
			if c := f.byUID[e.UID]; (c == nil || c.change < e.Position) && !wanted[e.UID] {
				wanted[e.UID], uids = true, append(uids, e.UID)
			}
		}
	}
	before := f.published
	f.mu.RUnlock()
	var err error
	switch {
	case learned:
		p, err = readPublished(ctx, f.source)
	case judged:
		p, err = before.judgedAgain(ctx, f.source)
	}
	if err != nil {
		return err
	}
	var states []store.ClusterState
	if len(uids) > 0 {
		err := f.source.Scan(ctx, store.Scope{UIDs: uids}, func(s store.ClusterState) error {
			states = append(states, s)
			delete(wanted, s.UID)
			return nil
		})
		if err != nil {
			return err
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for uid := range wanted { // not registered any more
		f.remove(f.byUID[uid])
	}
	for _, s := range states {
		f.set(s)
	}
	if p != nil {
		f.published, f.snapshot = p, nil
	}
	f.position = max(f.position, entries[len(entries)-1].Position)
	return nil
}

// set makes s the present of its cluster, unless a newer one is. The caller holds mu.
func (f *Fleet) set(s store.ClusterState) {
	before := f.byUID[s.UID]
	if before != nil && before.change > s.Change {
		return
	}
	c := f.tables.pack(s)
	f.snapshot = nil
	i, found := slices.BinarySearchFunc(f.order, c, byName)
	switch {
	case found:
		f.order[i] = c
	default:
		f.remove(before) // under another name
		i, _ = slices.BinarySearchFunc(f.order, c, byName)
		f.order = slices.Insert(f.order, i, c)
	}
	f.byUID[c.uid] = c
	if f.tables.crowded() {
		f.tables.sweep(f.order)
	}
}

// remove forgets a cluster, if c is one. The caller holds mu.
func (f *Fleet) remove(c *cluster) {
	if c == nil {
		return
	}
	if i, found := slices.BinarySearchFunc(f.order, c, byName); found {
		f.order = slices.Delete(f.order, i, i+1)
	}
	delete(f.byUID, c.uid)
	f.snapshot = nil
}

// note records whether the database could be read, and returns err.
func (f *Fleet) note(ctx context.Context, err error) error {
	if err != nil && ctx.Err() != nil && errors.Is(ctx.Err(), context.Canceled) { // the one who asked has gone
		return err
	}
	now := f.now()
	f.mu.Lock()
	defer f.mu.Unlock()
	f.tried = now
	switch {
	case err == nil && !f.gone.IsZero():
		f.log.Info("the database can be read again", "after", now.Sub(f.gone).Round(time.Second))
		f.gone = time.Time{}
	case err != nil && f.gone.IsZero():
		f.log.Error("the database cannot be read; questions are answered from memory", "err", err)
		f.gone = now
	}
	if err == nil {
		f.read = now
	}
	return err
}

// present returns the present, and the time of the last read of the database if it cannot be read now.
func (f *Fleet) present(ctx context.Context) (*snapshot, time.Time, error) {
	f.mu.Lock()
	now := f.now()
	waits := f.gone.IsZero() || now.Sub(f.tried) >= retry
	if waits && !f.gone.IsZero() {
		f.tried = now // the others need not wait for this one
	}
	f.mu.Unlock()
	if waits {
		bounded, cancel := context.WithTimeout(ctx, f.patience)
		_ = f.catchUp(bounded) // noted
		cancel()
		if err := ctx.Err(); err != nil {
			return nil, time.Time{}, err
		}
	}
	f.mu.RLock()
	s, gone, read := f.snapshot, f.gone, f.read
	f.mu.RUnlock()
	if s == nil {
		f.mu.Lock()
		if f.snapshot == nil {
			f.snapshot = f.tables.snapshot(slices.Clone(f.order), f.published)
		}
		s, gone, read = f.snapshot, f.gone, f.read
		f.mu.Unlock()
	}
	if gone.IsZero() {
		read = time.Time{}
	}
	return s, read, nil
}

// snapshot returns the clusters with what the tables have now.
func (t *tables) snapshot(clusters []*cluster, p *published) *snapshot {
	return &snapshot{clusters: clusters, texts: t.texts.values, kinds: t.kinds.values, releases: t.releases.values, messages: t.messages.values, published: p}
}

// then returns the fleet as of a time: the clusters that push chooses, which are at least those that are asked about.
func (f *Fleet) then(ctx context.Context, at time.Time, push store.Scope) (*snapshot, error) {
	f.mu.RLock()
	p := f.published
	f.mu.RUnlock()
	t, all := newTables(), []*cluster{}
	err := f.source.ScanAt(ctx, at, push, func(s store.ClusterState) error {
		all = append(all, t.pack(s))
		return nil
	})
	if err != nil {
		return nil, err
	}
	slices.SortFunc(all, byName)
	return t.snapshot(all, p.at(at)), nil
}

// keptMoment is the fleet of then that a list was made from, for its further pages: reading it takes long.
type keptMoment struct {
	mu    sync.Mutex
	at    time.Time
	push  store.Scope // without UIDs
	all   *snapshot
	until *time.Timer
}

// keepFor is how long a fleet of then is kept after a page.
const keepFor = time.Minute

// thenKept is then. Further pages of a list are of the fleet that the page before has read, if it is still there.
func (f *Fleet) thenKept(ctx context.Context, at time.Time, push store.Scope, further bool) (*snapshot, error) {
	k := &f.kept
	k.mu.Lock()
	all := k.all
	same := all != nil && k.at.Equal(at) && k.push.Environment == push.Environment && k.push.Type == push.Type && k.push.Workspace == push.Workspace && k.push.Workload == push.Workload
	if !same || !further {
		all, k.all = nil, nil // before there is another one
	}
	k.mu.Unlock()
	if all == nil {
		var err error
		if all, err = f.then(ctx, at, push); err != nil {
			return nil, err
		}
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.at, k.push, k.all = at, push, all
	if k.until != nil {
		k.until.Stop()
	}
	k.until = time.AfterFunc(keepFor, func() {
		k.mu.Lock()
		defer k.mu.Unlock()
		k.all = nil
	})
	return all, nil
}

// scan reads clusters from the database as of a time, zero for now.
func (f *Fleet) scan(ctx context.Context, at time.Time, s store.Scope, each func(store.ClusterState) error) error {
	if at.IsZero() {
		return f.source.Scan(ctx, s, each)
	}
	return f.source.ScanAt(ctx, at, s, each)
}

// Position is that of the newest event that the view's answers about now have.
func (v *View) Position() store.Position { return v.fleet.Position() }
