package desired

import (
	"context"
	"sync"
	"time"

	"github.com/opencontainers/go-digest"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/hub/store"
)

// known is what a follower has in memory of what the store has. The store may have more, by other hubs.
type known struct {
	keys bundle.Keys

	mu     sync.Mutex
	loaded bool
	chains map[string]bundle.TrustChain // by platform
	// releases and records are those that need not be read again.
	releases, records map[digest.Digest]bool
	// tags are the own tags of releases by stream, and of records by platform and environment.
	tags map[bundle.Stream]map[string]bool
	// contents names a release of each tree.
	contents map[digest.Digest]digest.Digest
	// noticed are releases that clusters run and that were not known.
	noticed map[digest.Digest]bool
	// newest is the place of the newest record by platform and environment.
	newest map[bundle.Stream]bundle.Order
}

func newKnown(t Trust) *known {
	k := &known{
		keys: t.Keys, chains: map[string]bundle.TrustChain{}, releases: map[digest.Digest]bool{}, records: map[digest.Digest]bool{},
		tags: map[bundle.Stream]map[string]bool{}, contents: map[digest.Digest]digest.Digest{}, newest: map[bundle.Stream]bundle.Order{},
	}
	for _, c := range t.Chains {
		k.chains[c.Current().Platform] = c
	}
	return k
}

// load reads what is stored, once.
func (f *Follower) load(ctx context.Context) error {
	k := f.known
	k.mu.Lock()
	loaded := k.loaded
	k.mu.Unlock()
	if loaded {
		return nil
	}
	err := f.store.Releases(ctx, func(r store.PublishedRelease) error {
		k.addRelease(r)
		return nil
	})
	if err != nil {
		return err
	}
	err = f.store.Records(ctx, func(r store.PublishedRecord) error {
		k.addRecord(r)
		return nil
	})
	if err != nil {
		return err
	}
	k.mu.Lock()
	k.loaded = true
	k.mu.Unlock()
	return nil
}

func (k *known) addRelease(r store.PublishedRelease) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.releases[r.Digest] = true
	k.tag(r.Stream(), r.Tag())
	k.contents[r.Content.DiffID] = r.Digest
}

func (k *known) addRecord(r store.PublishedRecord) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.records[r.Digest] = true
	at := environmentOf(r.EnvironmentRecord)
	k.tag(at, r.Tag())
	if o := orderOf(r); o.Compare(k.newest[at]) > 0 {
		k.newest[at] = o
	}
}

func (k *known) tag(s bundle.Stream, tag string) {
	if k.tags[s] == nil {
		k.tags[s] = map[string]bool{}
	}
	k.tags[s][tag] = true
}

// environmentOf names an environment: the stream without a cluster type.
func environmentOf(r bundle.EnvironmentRecord) bundle.Stream {
	return bundle.Stream{Platform: r.Platform, Environment: r.Environment}
}

func orderOf(r store.PublishedRecord) bundle.Order {
	return bundle.Order{Epoch: r.Epoch, Sequence: r.Sequence, IssuedAt: r.IssuedAt, Digest: r.Digest}
}

func (k *known) hasRelease(d digest.Digest) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.releases[d]
}

// hasPlatform reports whether a record of an environment of the platform is stored.
func (k *known) hasPlatform(platform, environment string) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	_, ok := k.newest[bundle.Stream{Platform: platform, Environment: environment}]
	return ok
}

// maxNoticed bounds the unknown releases that are remembered.
const maxNoticed = 10_000

// notice reports whether a release is not known, and was not noticed before.
func (k *known) notice(d digest.Digest) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if d == "" || !k.loaded || k.releases[d] || k.noticed[d] {
		return false
	}
	if k.noticed == nil || len(k.noticed) >= maxNoticed {
		k.noticed = map[digest.Digest]bool{}
	}
	k.noticed[d] = true
	return true
}

func (k *known) hasRecord(d digest.Digest) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.records[d]
}

func (k *known) hasTag(s bundle.Stream, tag string) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.tags[s][tag]
}

// withContent returns a stored release with that tree; empty if there is none.
func (k *known) withContent(tree digest.Digest) digest.Digest {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.contents[tree]
}

// newestRecord returns the place of the newest record of an environment; the zero value without one.
func (k *known) newestRecord(at bundle.Stream) bundle.Order {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.newest[at]
}

// environments returns the environments of which there are records.
func (k *known) environments() []string {
	k.mu.Lock()
	defer k.mu.Unlock()
	var names []string
	for s := range k.newest {
		names = append(names, s.Environment)
	}
	return names
}

// epoch returns the highest epoch of a platform's records.
func (k *known) epoch(platform string) (highest int64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for s, o := range k.newest {
		if s.Platform == platform {
			highest = max(highest, o.Epoch)
		}
	}
	return highest
}

func (k *known) chain(platform string) (bundle.TrustChain, bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	c, ok := k.chains[platform]
	return c, ok
}

// TrustEnds returns when the trust document in force of each platform expires.
func (f *Follower) TrustEnds() map[string]time.Time {
	f.known.mu.Lock()
	defer f.known.mu.Unlock()
	ends := map[string]time.Time{}
	for platform, chain := range f.known.chains {
		ends[platform] = chain.Current().ExpiresAt
	}
	return ends
}

// grow replaces the chain of a platform by a longer one. It returns the version before and the longest chain.
func (k *known) grow(platform string, c bundle.TrustChain) (before int64, longest bundle.TrustChain) {
	k.mu.Lock()
	defer k.mu.Unlock()
	before = k.chains[platform].Current().Version
	if len(c) > len(k.chains[platform]) {
		k.chains[platform] = c
	}
	return before, k.chains[platform]
}

func (k *known) trusts() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return len(k.keys)+len(k.chains) > 0
}
