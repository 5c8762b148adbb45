// Package carry brings the images, charts and packages of assignments to the agent's store, before engines get the content
// that needs them.
//
// Start with New. Each pass calls Look with the lists of the releases in use, and then Begin, which transfers the missing
// blobs in the background, one at a time. Wait returns the reason why an assignment has to wait. Named lists, for package
// content, the manifests that the store keeps and those that its index names.
//
// An artifact counts only once it is whole: the manifest that a release lists, the manifests of the cluster's platforms
// below it, and all blobs that these name. Each is compared with its digest on arrival. An interrupted transfer continues
// from its last byte, also after a restart. An assignment whose artifacts cannot be carried keeps its old content and delays
// no other assignment.
//
// The signatures, attestations and SBOMs of an artifact come with it. They are looked for when it is brought, are not verified, and
// it does not wait for those that cannot be had.
package carry

import (
	"cmp"
	"context"
	"log/slog"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/opencontainers/go-digest"
	"go.etcd.io/bbolt"

	"github.com/wherry-dev/wherry/agent/assignments"
	"github.com/wherry-dev/wherry/agent/content"
	"github.com/wherry-dev/wherry/agent/state"
	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/graph"
	"github.com/wherry-dev/wherry/bundle/oci"
)

// Source is a place to ask for the artifacts of one repository.
type Source struct {
	Host string
	oci.Target
}

// Options configures a Carrier. The zero value has no sources, so that every artifact is out of reach.
type Options struct {
	// Sources returns the places to ask for a repository, HOST/NAME, in order. It makes no request but to find out what
	// kind of registry a place is.
	Sources func(ctx context.Context, repository string) ([]Source, error)
	// Platforms are the platforms of the cluster. Empty means those of the releases, or else Linux on this machine's architecture.
	Platforms graph.Platforms
	// Budget bounds the bytes of carried content in the store. Zero means what leaves the larger of a tenth of the disk and
	// 1 GiB free.
	Budget int64
	// WithoutReferrers leaves the signatures and other referrers of artifacts where they are.
	WithoutReferrers bool
	// Download and Window are those of content.Options.
	Download oci.DownloadOptions
	Window   func(context.Context) (context.Context, func(error) error, error)
	// Retry returns the time between two attempts to bring an artifact that failed n times. Nil means from half a minute
	// up to an hour.
	Retry func(failures int) time.Duration
	// Wake is called when a pass would find more here than the last one. Nil calls nobody.
	Wake func()
	// Space is oci.SpaceIn, but for tests.
	Space func(dir string) (free, size int64, known bool)
	// Now is the clock; nil means time.Now.
	Now func() time.Time
	// Log is nil for silence.
	Log *slog.Logger
}

// Carrier brings artifacts to the store of one state folder. Look, Begin and Named belong to the pass that runs; the
// other methods may be called by several goroutines. The caller closes it.
type Carrier struct {
	db     *state.DB
	opts   Options
	layout *oci.Layout
	blobs  oci.Target
	// documents is held while a manifest is written, and while unused blobs are deleted; see Guard.
	documents sync.Mutex

	mu        sync.Mutex
	graphs    map[digest.Digest]graph.Graph // on platforms
	platforms graph.Platforms
	referrers map[digest.Digest][]referrer // by artifact; nil before they were read
	view      view
	failures  map[key]failure
	job       *job // the transfer that runs
	closed    bool
	// stale means that the disk has more than the last Look found.
	stale bool
}

// New returns the carrier for the store beside a state file. It reads nothing and sends no request.
func New(db *state.DB, opts Options) *Carrier {
	opts = opts.withDefaults()
	layout := oci.NewLayout(filepath.Join(db.Dir(), state.StoreDir)).Apart(content.CarriedParts)
	blobs, err := layout.Repository("carried")
	if err != nil {
		panic(err) // the name is valid
	}
	return &Carrier{db: db, opts: opts, layout: layout, blobs: blobs, graphs: map[digest.Digest]graph.Graph{}, failures: map[key]failure{}}
}

func (o Options) withDefaults() Options {
	if o.Sources == nil {
		o.Sources = func(context.Context, string) ([]Source, error) { return nil, nil }
	}
	if o.Retry == nil {
		o.Retry = retryTime
	}
	if o.Wake == nil {
		o.Wake = func() {}
	}
	if o.Space == nil {
		o.Space = oci.SpaceIn
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return o
}

// List is what the assignments of one release have carried.
type List struct {
	// Tree is the digest of the release's tree.
	Tree digest.Digest `json:"tree"`
	// Running is true for the release whose content the assignments are to have. Its tags are the store's.
	Running   bool     `json:"running,omitempty"`
	Artifacts []Wanted `json:"artifacts"`
	// Platforms are those that the release names.
	Platforms graph.Platforms `json:"platforms,omitempty"`
}

// Wanted is an artifact that assignments need.
type Wanted struct {
	Repository string        `json:"repository"` // HOST/NAME
	Tag        string        `json:"tag,omitempty"`
	Digest     digest.Digest `json:"digest"`
	// Size is that of all platforms, in bytes, as the publisher found it; zero if unknown.
	Size int64 `json:"size,omitempty"`
	// UsedBy names the assignments that have it carried, sorted.
	UsedBy []string `json:"usedBy"`
}

// key identifies an artifact.
type key struct {
	repository string
	digest     digest.Digest
}

func (w Wanted) key() key { return key{w.Repository, w.Digest} }

// name returns the artifact's name for messages.
func (w Wanted) name() string {
	if w.Tag != "" {
		return w.Repository + ":" + w.Tag
	}
	return w.Repository + "@" + w.Digest.String()
}

// Needs reports whether any assignment has artifacts carried.
func Needs(list []bundle.Assignment) bool {
	return slices.ContainsFunc(list, func(a bundle.Assignment) bool { return a.Carry != "" })
}

// ListOf returns what the assignments of a release have carried, in the order in which they begin. Sources in git and
// charts of chart repositories are not carried, nor is what an assignment with embedded delivery has in its files.
func ListOf(tree digest.Digest, list []bundle.Assignment, artifacts []bundle.Artifact) List {
	l := List{Tree: tree}
	list = slices.Clone(list)
	slices.SortStableFunc(list, func(a, b bundle.Assignment) int {
		return cmp.Or(cmp.Compare(a.Wave, b.Wave), cmp.Compare(a.Name, b.Name))
	})
	at := map[key]int{}
	byUser := map[string][]bundle.Artifact{}
	for _, artifact := range artifacts {
		for _, name := range artifact.UsedBy {
			byUser[name] = append(byUser[name], artifact)
		}
	}
	for _, a := range list {
		for _, artifact := range byUser[a.Name] {
			if !a.Carries(artifact) {
				continue
			}
			w := wantedOf(artifact)
			i, known := at[w.key()]
			if !known {
				i = len(l.Artifacts)
				at[w.key()], l.Artifacts = i, append(l.Artifacts, w)
			}
			l.Artifacts[i].UsedBy = append(l.Artifacts[i].UsedBy, a.Name)
		}
	}
	for _, w := range l.Artifacts {
		slices.Sort(w.UsedBy)
	}
	return l
}

func wantedOf(a bundle.Artifact) Wanted {
	repository, tag := a.InRegistry()
	return Wanted{Repository: repository, Tag: tag, Digest: digest.Digest(a.Digest), Size: a.Size}
}

// keyRecord is the key of state.Meta with the lists of the last Look.
const keyRecord = "carried"

// record is what the state file has of carried artifacts. The first list is of the release that is wanted most.
type record struct {
	Lists  []List `json:"lists"`
	Status Status `json:"status,omitzero"`
	// Referrers are those of artifacts, by the digest of the artifact.
	Referrers map[digest.Digest][]referrer `json:"referrers,omitempty"`
}

func load(tx *bbolt.Tx) (record, error) { return state.Load[record](tx, state.Meta, keyRecord) }

// Known returns the lists that the state file has, the most wanted first.
func (c *Carrier) Known() (lists []List, err error) {
	err = c.db.View(func(tx *bbolt.Tx) error {
		r, err := load(tx)
		lists = r.Lists
		return err
	})
	if err != nil {
		return nil, state.Local("read state: %w", err)
	}
	return lists, nil
}

// Guard runs f, which deletes blobs that Named does not list, while the carrier writes no manifest.
func (c *Carrier) Guard(f func() error) error {
	c.documents.Lock()
	defer c.documents.Unlock()
	return f()
}

// Wait returns why an assignment of the running release has to wait for its artifacts.
func (c *Carrier) Wait(r assignments.Record) assignments.Wait {
	if r.Spec.Carry == "" {
		return assignments.Wait{}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.view.wait(r.Spec.Name)
}

// Working reports whether a transfer runs, or has brought something that the last Look did not find.
func (c *Carrier) Working() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.job != nil || c.stale
}

// Stale reports whether the disk may have more than the last Look found.
func (c *Carrier) Stale() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.stale
}

// Stop ends the transfer that runs, and waits for its end. What has arrived stays for the next one.
func (c *Carrier) Stop() {
	c.mu.Lock()
	j := c.job
	c.mu.Unlock()
	j.stop()
}

// Close stops the transfer, as Stop does, and keeps others from beginning.
func (c *Carrier) Close() {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	c.Stop()
}
