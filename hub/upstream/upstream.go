// Package upstream passes the envelopes that a hub has stored on to another hub: the same bytes that agents have signed, so that
// the upper hub trusts the agents' keys and not the hub between.
//
// Begin with New; Run forwards until its context ends, Once forwards what is there. A Forwarder sends to the route that agents
// send to, and has no rights of its own at the upper hub, which has to know the clusters and their keys.
//
// Its queue is the hub's database; package queue has the guarantee. A position is remembered only after the upper hub has
// acknowledged everything up to it, with its signature, or has refused it for good. So nothing is skipped, whichever hub is
// killed at whatever moment, and what is sent twice is a duplicate there. Reports of a cluster that the upper hub does not know wait, and those of the others go on. What is refused
// for good is recorded and logged once. If the hub's own database is restored from a backup, forwarding begins anew.
//
// Limits: retention may remove envelopes that wait for a cluster to be known. One process of a database forwards; two do no
// harm, but send everything twice.
package upstream

import (
	"cmp"
	"context"
	"crypto"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/opencontainers/go-digest"
	"golang.org/x/sync/errgroup"

	"github.com/wherry-dev/wherry/bundle/hubapi"
	"github.com/wherry-dev/wherry/bundle/queue"
	"github.com/wherry-dev/wherry/hub/store"
)

// ErrTooManyWaiting means that the upper hub does not know more than MaxWaiting clusters. Nothing is forwarded until it knows
// some of them.
var ErrTooManyWaiting = errors.New("too many clusters are not known to the upper hub")

// Bounds of a forwarder.
const (
	// MaxWaiting bounds the clusters whose reports wait.
	MaxWaiting = 100_000
	// MaxRefused bounds the refused reports that Status lists.
	MaxRefused = 100

	windowReports  = 1000 // in memory at once
	windowBytes    = 8 << 20
	requestsAtOnce = 8
	// catchUpClusters bounds the waiting clusters that are tried between two windows of all clusters.
	catchUpClusters = 100
	// giveUp is how long reports wait for their key to be known, where the upper hub takes other reports of their cluster.
	giveUp = 7 * 24 * time.Hour
	// Times between tries.
	minRetry, maxRetry     = 5 * time.Second, 5 * time.Minute
	minWaiting, maxWaiting = time.Minute, time.Hour
	requestTime            = 5 * time.Minute
)

// request bounds one request.
var request = queue.Bounds{Entries: 200, Bytes: hubapi.MaxRequestBytes - 4<<10}

// Source is the hub's own store.
type Source interface {
	End(ctx context.Context) (store.Position, error)
	Await(ctx context.Context, after store.Position) error
	Envelopes(ctx context.Context, after store.Position, uid string, each func(store.StoredEnvelope) error) error
}

// Memory keeps a forwarder's state, which is small. A store.Position is of one database, so the memory should be beside it.
type Memory interface {
	// Load returns what Save was given last, and nil if there is nothing.
	Load() ([]byte, error)
	// Save returns once data is on disk.
	Save(data []byte) error
}

// Options are the optional parts of a Forwarder; the zero value works.
type Options struct {
	// Client sends the requests; nil means http.DefaultClient. Each request has a deadline of its own.
	Client *http.Client
	// Now is the clock; nil means time.Now.
	Now func() time.Time
	// Log is nil for silence.
	Log *slog.Logger
	// Anew forgets what was forwarded, such as when the upper hub has lost its database.
	Anew bool
}

// Forwarder passes envelopes on. Run and Once may not be called at the same time; Status may.
type Forwarder struct {
	hub    queue.Hub
	from   Source
	memory Memory
	client *http.Client
	now    func() time.Time
	log    *slog.Logger

	mu     sync.Mutex
	state  state
	behind time.Time // of the oldest envelope that was read and not forwarded yet
	looked bool      // and so behind is known
	failed string
	acked  time.Time
}

// state is what outlives the process.
type state struct {
	Upstream string `json:"upstream"`
	// Position is that of Last, the newest report up to which everything is forwarded, refused or waiting.
	Position store.Position `json:"position"`
	Last     digest.Digest  `json:"last,omitempty"`
	// Waiting are the clusters whose reports wait, by uid.
	Waiting map[string]*waiting `json:"waiting,omitempty"`
	// Forwarded and RefusedCount count reports.
	Forwarded    int64     `json:"forwarded"`
	RefusedCount int64     `json:"refusedCount"`
	Refused      []Refused `json:"refused,omitempty"` // the newest
}

// waiting is a cluster whose reports after From wait, without those up to Done, if there is such a one.
type waiting struct {
	From  store.Position `json:"from"`
	Done  digest.Digest  `json:"done,omitempty"`
	Code  hubapi.Code    `json:"code"`
	Since time.Time      `json:"since"`
	Tries int            `json:"tries"`
	Next  time.Time      `json:"next"`
}

// Refused is a report that the upper hub refuses for good.
type Refused struct {
	UID     string        `json:"uid"`
	Report  digest.Digest `json:"report"`
	Code    hubapi.Code   `json:"code"`
	Message string        `json:"message"`
	At      time.Time     `json:"at"`
}

// Status is how a forwarder stands.
type Status struct {
	Upstream string `json:"upstream"`
	// Position is the place in the feed up to which everything is forwarded, refused or waiting.
	Position store.Position `json:"position"`
	// Behind is when the oldest report that is not forwarded was stored here; zero if there is none. Those that wait do not
	// count.
	Behind time.Time `json:"behind,omitzero"`
	// Read is true once it is known whether there is one.
	Read bool `json:"-"`
	// Waiting counts clusters by the reason for which their reports wait.
	Waiting map[hubapi.Code]int `json:"waiting,omitempty"`
	// Forwarded and RefusedCount count reports since the first.
	Forwarded    int64 `json:"forwarded"`
	RefusedCount int64 `json:"refusedCount"`
	// Refused are the newest of those that were refused for good.
	Refused []Refused `json:"refused,omitempty"`
	// AckedAt is when the upper hub has acknowledged last in this process, Failed why the last try failed; empty if it did not.
	AckedAt time.Time `json:"ackedAt,omitzero"`
	Failed  string    `json:"failed,omitempty"`
}

// New returns a forwarder to the hub at a URL, whose acknowledgements that key verifies. It goes on from the memory if that is of
// the same URL.
func New(url string, key crypto.PublicKey, from Source, memory Memory, o Options) (*Forwarder, error) {
	if _, err := hubapi.ReportsURL(url, "x"); err != nil {
		return nil, fmt.Errorf("upstream %s: %w", url, err)
	}
	f := &Forwarder{hub: queue.Hub{URL: url, Key: key}, from: from, memory: memory, client: o.Client, now: o.Now, log: o.Log}
	if f.client == nil {
		f.client = http.DefaultClient
	}
	if f.now == nil {
		f.now = time.Now
	}
	if f.log == nil {
		f.log = slog.New(slog.DiscardHandler)
	}
	data, err := memory.Load()
	if err == nil && len(data) > 0 {
		err = json.Unmarshal(data, &f.state)
	}
	if err != nil {
		return nil, fmt.Errorf("upstream: read what was forwarded: %w", err)
	}
	if f.state.Upstream != url || o.Anew {
		f.state = state{Upstream: url}
	}
	if f.state.Waiting == nil {
		f.state.Waiting = map[string]*waiting{}
	}
	return f, nil
}

// Status returns how the forwarder stands.
func (f *Forwarder) Status() Status {
	f.mu.Lock()
	defer f.mu.Unlock()
	s := Status{
		Upstream: f.hub.URL, Position: f.state.Position, Behind: f.behind, Read: f.looked, Forwarded: f.state.Forwarded,
		RefusedCount: f.state.RefusedCount, Refused: slices.Clone(f.state.Refused), AckedAt: f.acked, Failed: f.failed,
	}
	for _, w := range f.state.Waiting {
		if s.Waiting == nil {
			s.Waiting = map[hubapi.Code]int{}
		}
		s.Waiting[w.Code]++
	}
	return s
}

// Run forwards whatever is stored until ctx ends, and returns nil then. If the upper hub cannot be reached, it tries again,
// every five minutes in the end.
func (f *Forwarder) Run(ctx context.Context) error {
	pause := minRetry
	for {
		seen, err := f.from.End(ctx)
		if err == nil {
			err = f.Once(ctx)
		}
		if ctx.Err() != nil {
			return nil
		}
		if err == nil {
			pause = minRetry
			f.await(ctx, seen)
			continue
		}
		wait := max(pause+rand.N(pause), min(queue.RetryAfter(err), maxRetry))
		pause = min(2*pause, maxRetry/2)
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return nil
		}
	}
}

// await returns once there is something new, or a waiting cluster is to be tried.
func (f *Forwarder) await(ctx context.Context, seen store.Position) {
	f.mu.Lock()
	next := f.now().Add(maxWaiting)
	for _, w := range f.state.Waiting {
		if w.Next.Before(next) {
			next = w.Next
		}
	}
	f.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, max(next.Sub(f.now()), time.Second))
	defer cancel()
	if err := f.from.Await(ctx, seen); err != nil && ctx.Err() == nil {
		f.log.Error("changes cannot be awaited", "err", err)
		<-ctx.Done()
	}
}

// Once forwards what is stored, and tries the waiting clusters whose time has come. With nil everything is acknowledged, refused
// for good or waiting. With an error it may go on later, and nothing is lost.
func (f *Forwarder) Once(ctx context.Context) error {
	err := f.once(ctx)
	if ctx.Err() != nil {
		return cmp.Or(err, ctx.Err())
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	failed := ""
	if err != nil {
		failed = err.Error()
	}
	switch {
	case failed != "" && f.failed == "":
		f.log.Warn("reports are not forwarded; trying again", "upstream", f.hub.URL, "err", err)
	case failed == "" && f.failed != "":
		f.log.Info("reports are forwarded again", "upstream", f.hub.URL)
	}
	f.failed = failed
	return err
}

func (f *Forwarder) once(ctx context.Context) error {
	if err := f.check(ctx); err != nil {
		return err
	}
	for {
		if err := f.catchUp(ctx); err != nil {
			return err
		}
		more, err := f.forward(ctx)
		if err != nil || !more {
			return err
		}
	}
}

// check begins anew if the database is not the one of which the state speaks, such as after it was restored: there, other
// reports have the positions after those of the backup.
func (f *Forwarder) check(ctx context.Context) error {
	at, last := f.state.Position, f.state.Last
	if at == 0 {
		return nil
	}
	same := false
	err := f.from.Envelopes(ctx, at-1, "", func(e store.StoredEnvelope) error {
		if e.Position > at {
			return errEnough
		}
		same = same || e.ID == last
		return nil
	})
	if err != nil && !errors.Is(err, errEnough) {
		return err
	}
	if same {
		return nil
	}
	f.log.Warn("the newest report that was forwarded is not stored here any more; forwarding begins anew", "report", last)
	f.mu.Lock()
	f.state.Position, f.state.Last, f.state.Waiting = 0, "", map[string]*waiting{}
	f.mu.Unlock()
	return nil
}

// errEnough ends a read.
var errEnough = errors.New("enough")

// window is stored envelopes that are forwarded together. It ends between two positions.
type window struct {
	envelopes []store.StoredEnvelope
	more      bool
}

// read returns the envelopes after a position.
func (f *Forwarder) read(ctx context.Context, after store.Position, uid string) (w window, err error) {
	size := 0
	err = f.from.Envelopes(ctx, after, uid, func(e store.StoredEnvelope) error {
		n := len(w.envelopes)
		if n > 0 && e.Position != w.envelopes[n-1].Position && (n >= windowReports || size >= windowBytes) {
			w.more = true
			return errEnough
		}
		w.envelopes, size = append(w.envelopes, e), size+len(e.Envelope)
		return nil
	})
	if errors.Is(err, errEnough) {
		err = nil
	}
	return w, err
}

// end returns the position of the window's last envelope.
func (w window) end() (store.Position, digest.Digest) {
	last := w.envelopes[len(w.envelopes)-1]
	return last.Position, last.ID
}

// without returns the window without the envelopes up to a report, or all of it if that is not there.
func (w window) without(done digest.Digest) window {
	if i := slices.IndexFunc(w.envelopes, func(e store.StoredEnvelope) bool { return e.ID == done }); i >= 0 {
		w.envelopes = w.envelopes[i+1:]
	}
	return w
}

// settled notes that the first n of the reports that were read after from are forwarded or refused.
func (w *waiting) settled(from store.Position, all []store.StoredEnvelope, n int) {
	if n == len(all) {
		w.From, w.Done = all[n-1].Position, ""
		return
	}
	w.From, w.Done = from, ""
	for _, e := range all[:n] {
		if e.Position < all[n].Position {
			w.From = e.Position
		} else {
			w.Done = e.ID
		}
	}
}

// forward forwards a window of the envelopes of all clusters.
func (f *Forwarder) forward(ctx context.Context) (more bool, err error) {
	before := f.state.Position
	w, err := f.read(ctx, before, "")
	if err != nil {
		return false, err
	}
	f.mu.Lock()
	f.behind, f.looked = time.Time{}, true
	if len(w.envelopes) > 0 {
		f.behind = w.envelopes[0].ReceivedAt
	}
	f.mu.Unlock()
	if len(w.envelopes) == 0 {
		return false, nil
	}
	byCluster := map[string][]store.StoredEnvelope{}
	for _, e := range w.envelopes {
		if f.state.Waiting[e.UID] == nil {
			byCluster[e.UID] = append(byCluster[e.UID], e)
		}
	}
	var mu sync.Mutex
	outcomes := map[string]outcome{}
	g, inner := errgroup.WithContext(ctx)
	g.SetLimit(requestsAtOnce)
	for uid, all := range byCluster {
		g.Go(func() error {
			o, err := f.deliver(inner, uid, all)
			mu.Lock()
			defer mu.Unlock()
			outcomes[uid] = o
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return false, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	waits := 0
	for _, o := range outcomes {
		if o.wait != "" {
			waits++
		}
	}
	if len(f.state.Waiting)+waits > MaxWaiting {
		return false, ErrTooManyWaiting
	}
	for _, uid := range slices.Sorted(maps.Keys(outcomes)) {
		o := outcomes[uid]
		f.record(o)
		if o.wait != "" {
			entry := &waiting{From: before, Code: o.wait, Since: f.now().UTC()}
			if o.wait != hubapi.CodeUnknownKey {
				entry.settled(before, byCluster[uid], o.settled)
			}
			entry.again(f.now(), o.after)
			f.state.Waiting[uid] = entry
			f.log.Warn("reports of a cluster wait", "cluster", uid, "upstream", f.hub.URL, "reason", o.wait)
		}
	}
	f.state.Position, f.state.Last = w.end()
	if !w.more {
		f.behind = time.Time{}
	}
	return w.more, f.save()
}

// again sets the time of the next try.
func (w *waiting) again(now time.Time, after time.Duration) {
	pause := min(minWaiting<<min(w.Tries, 10), maxWaiting)
	w.Tries++
	w.Next = now.Add(max(pause, after)).UTC()
}

// record notes what has become of reports. f.mu is held.
func (f *Forwarder) record(o outcome) {
	f.state.Forwarded += int64(o.forwarded)
	f.state.RefusedCount += int64(len(o.refused))
	for _, r := range o.refused {
		f.log.Warn("report refused for good by the upper hub", "cluster", r.UID, "report", r.Report, "reason", r.Code, "message", r.Message)
	}
	f.state.Refused = append(f.state.Refused, o.refused...)
	f.state.Refused = slices.Delete(f.state.Refused, 0, max(0, len(f.state.Refused)-MaxRefused))
}

// save keeps the state. f.mu is held.
func (f *Forwarder) save() error {
	data, err := json.Marshal(f.state)
	if err == nil {
		err = f.memory.Save(data)
	}
	if err != nil {
		return fmt.Errorf("upstream: keep what was forwarded: %w", err)
	}
	return nil
}

// catchUp tries the waiting clusters whose time has come.
func (f *Forwarder) catchUp(ctx context.Context) error {
	now := f.now()
	var due []string
	for uid, w := range f.state.Waiting {
		if !w.Next.After(now) {
			due = append(due, uid)
		}
	}
	slices.SortFunc(due, func(a, b string) int {
		return cmp.Or(f.state.Waiting[a].Next.Compare(f.state.Waiting[b].Next), cmp.Compare(a, b))
	})
	for _, uid := range due[:min(len(due), catchUpClusters)] {
		if err := f.catchUpCluster(ctx, uid); err != nil {
			return err
		}
	}
	return nil
}

// catchUpCluster forwards what waits of a cluster, up to the position of all clusters.
func (f *Forwarder) catchUpCluster(ctx context.Context, uid string) error {
	entry := f.state.Waiting[uid]
	late := f.now().Sub(entry.Since) > giveUp
	var held hubapi.Code
	var after time.Duration
	for from := entry.From; from < f.state.Position; {
		part, err := f.read(ctx, from, uid)
		if err != nil {
			return err
		}
		if len(part.envelopes) == 0 {
			break
		}
		end, _ := part.end()
		todo := part.without(entry.Done).envelopes
		o, err := f.deliver(ctx, uid, todo)
		if err != nil {
			return err
		}
		if late && o.wait == hubapi.CodeUnknownKey {
			o.refused, o.wait = append(o.refused, o.unknown...), ""
		}
		if o.wait != "" && o.wait != held {
			held, after = o.wait, o.after
		}
		f.mu.Lock()
		f.record(o)
		if held != hubapi.CodeUnknownKey && len(todo) > 0 {
			entry.settled(from, todo, o.settled)
		}
		err = f.save()
		f.mu.Unlock()
		if err != nil {
			return err
		}
		if o.wait != "" && o.wait != hubapi.CodeUnknownKey { // later ones would fare the same
			break
		}
		from = end
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if held == "" {
		delete(f.state.Waiting, uid)
		f.log.Info("a cluster's reports wait no longer", "cluster", uid, "upstream", f.hub.URL)
	} else {
		entry.Code = held
		entry.again(f.now(), after)
	}
	return f.save()
}
