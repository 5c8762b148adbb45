package directory

import (
	"context"
	"encoding/json"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/wherry-dev/wherry/reconcilers"
)

// entry is the notes about an assignment that has artifacts. Without it only time is lost: manifests are read, and
// files hashed, again; unpacked archives are fetched again.
type entry struct {
	// Applied is Desired of the content that the folder was given last.
	Applied digest.Digest
	// Artifacts are the layers of each artifact, by the digest of its manifest.
	Artifacts map[digest.Digest][]layer
	// Parts are the files of layers that were fetched and found to be what their digest says, by layer.key.
	Parts map[string][]part
	// Unpacked is the room that the files of an archive take, by layer.key; less than that if there was not even so much.
	Unpacked map[string]int64
	// Seen is the metadata of the live folder's files when they were last read, by path.
	Seen map[string]seen
}

// layer is one layer of an artifact.
type layer struct {
	MediaType string
	Digest    digest.Digest
	Size      int64
	// Title is the file's path, or the folder that all files of an archive are below; it may be empty then.
	Title string
	// Unpack is "tar" or "tar+gzip" for an archive.
	Unpack string `json:",omitempty"`
}

func (l layer) descriptor() ocispec.Descriptor {
	return ocispec.Descriptor{MediaType: l.MediaType, Digest: l.Digest, Size: l.Size}
}

// key names the layer's folder. It has no extension that a reader of manifests could look for.
func (l layer) key() string {
	if l.Unpack != "" {
		return l.Digest.Encoded() + "-" + l.Unpack[:len("tar")]
	}
	return l.Digest.Encoded()
}

// packed returns the layer as the one file that was fetched.
func (l layer) packed() layer {
	l.Unpack = ""
	return l
}

// part is one file of a layer.
type part struct {
	Path       string
	Executable bool `json:",omitempty"`
	Size       int64
	Content    digest.Digest
	// ID is the file's metadata when it was fetched.
	ID identity
}

func (p part) file() file { return file{p.Executable, p.Size, p.Content} }
func (p part) seen() seen { return seen{p.ID, p.Content} }

// parts are the files of a layer, as far as they are known: those of an archive once it was unpacked.
func (e *entry) parts(l layer) (parts []part, known bool) {
	parts, known = e.Parts[l.key()]
	if l.Unpack == "" { // the name is the manifest's, and two may share a blob
		p := part{Path: l.Title, Size: l.Size, Content: l.Digest}
		if known {
			p.ID = parts[0].ID
		}
		return []part{p}, true
	}
	return parts, known
}

// remember notes how the i-th file of a fetched layer looks.
func (e *entry) remember(l layer, i int, id identity) {
	if parts := e.Parts[l.key()]; i < len(parts) {
		parts[i].ID = id
	}
}

// racyTime is the age of a change below which another change may leave the same time stamp.
const racyTime = 2 * time.Second

// learn notes how those fetched files look that are as they should be, and reports whether that is news.
func (e *entry) learn(v *survey, now time.Time) (news bool) {
	next := map[string]seen{}
	for name := range v.fetched {
		id := v.ids[name]
		if v.keeps(name) && id.certain() && id.settled(now) {
			next[name] = seen{id, v.want[name].content}
		}
	}
	if maps.Equal(next, e.Seen) {
		return false
	}
	e.Seen = next
	return true
}

// applied notes that the folder holds what v wants, and forgets what belongs to other content.
func (e *entry) applied(a reconcilers.Assignment) {
	e.Applied = a.Desired()
	keys := map[string]bool{}
	for d, layers := range e.Artifacts {
		wanted := slices.ContainsFunc(a.Fetched, func(f fetchedArtifact) bool { return f.Digest == d })
		for _, l := range layers {
			keys[l.key()] = keys[l.key()] || wanted
		}
		if !wanted {
			delete(e.Artifacts, d)
		}
	}
	maps.DeleteFunc(e.Parts, func(key string, _ []part) bool { return !keys[key] })
	clear(e.Unpacked)
}

// entries are the notes about assignments, in memory and in the ledger. The Reconciler's turn guards them.
type entries struct {
	ledger reconcilers.Ledger
	log    *slog.Logger
	byName map[string]*entry
}

func newEntry() *entry {
	return &entry{Artifacts: map[digest.Digest][]layer{}, Parts: map[string][]part{}, Unpacked: map[string]int64{}}
}

// load returns the entry of an assignment. One that cannot be read counts as none.
func (es *entries) load(ctx context.Context, name string) *entry {
	if e := es.byName[name]; e != nil {
		return e
	}
	e := newEntry()
	data, err := es.ledger.Load(name)
	if err == nil && len(data) > 0 {
		err = json.Unmarshal(data, e)
	}
	if err != nil {
		es.log.WarnContext(ctx, "what was remembered of fetched files is not readable", "assignment", name, "err", err)
		e = newEntry()
	}
	es.byName[name] = e
	return e
}

// save keeps an entry. A failure costs time later, and is no reason to give up.
func (es *entries) save(ctx context.Context, name string, e *entry) {
	data, err := json.Marshal(e)
	if err == nil {
		err = es.ledger.Save(name, data)
	}
	if err != nil {
		es.log.WarnContext(ctx, "fetched files are not remembered", "assignment", name, "err", err)
	}
}

// forget deletes the entry of an assignment.
func (es *entries) forget(ctx context.Context, name string) {
	if e := es.load(ctx, name); len(e.Artifacts)+len(e.Parts) == 0 && e.Applied == "" {
		return
	}
	delete(es.byName, name)
	if err := es.ledger.Save(name, nil); err != nil {
		es.log.WarnContext(ctx, "fetched files are not forgotten", "assignment", name, "err", err)
	}
}
