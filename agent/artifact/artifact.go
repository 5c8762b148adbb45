// Package artifact derives the OCI artifacts that the agent serves to Flux and Argo CD from the folders of assignments with
// embedded delivery.
//
// Begin with New. Bring makes the artifacts that are missing, and Served returns those of one assignment in the form in
// which engines get them. Named lists all of them for the content store, whose index the agent's endpoint serves.
//
// An artifact is a function of the assignment's files, so it is made once for each content, and again only if somebody has
// deleted it. Its blobs are on the disk before the state file knows it, and the state file knows it before Served returns
// it. An earlier artifact stays until the engine has reached the newer content: until then the engine may ask for it again.
// At most three of an assignment are kept, and one whose blobs are missing is made again.
//
// Manifests are one layer application/vnd.oci.image.layer.v1.tar+gzip with the folder manifests, sorted, without times and
// owners, and an empty config. Charts are stored as Helm stores them. All artifacts of an assignment are in the repository
// assignments/NAME; a name that no repository can have becomes sha256- and 32 digits of its digest.
package artifact

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"slices"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"go.etcd.io/bbolt"

	"github.com/wherry-dev/wherry/agent/content"
	"github.com/wherry-dev/wherry/agent/state"
	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/oci"
	"github.com/wherry-dev/wherry/reconcilers"
)

// Bucket has, by the assignment's name, the artifacts that were made of its folders, the newest last. Every state file has
// it.
const Bucket = "artifacts"

// mostKept bounds the artifacts of an assignment: that of the content which its engine has reached last, and of the two
// after it, for releases that follow each other faster than the engine.
const mostKept = 3

// Made names the artifacts of one folder of an assignment. Its JSON is a record of the state file.
type Made struct {
	// Folder identifies the folder's content.
	Folder digest.Digest `json:"folder"`
	// Manifests is the artifact of bundle.ManifestsDir, and Charts are those of bundle.ChartsDir by file name.
	Manifests Artifact            `json:"manifests"`
	Charts    map[string]Artifact `json:"charts,omitempty"`
}

// Artifact is a manifest with the blobs that it names.
type Artifact struct {
	Manifest ocispec.Descriptor   `json:"manifest"`
	Blobs    []ocispec.Descriptor `json:"blobs"`
}

// Wanted is an assignment whose artifacts are to be there.
type Wanted struct {
	Assignment bundle.Assignment
	// Dir is the folder with the assignment's files, and Folder the digest that identifies its content.
	Dir    string
	Folder digest.Digest
	// Changed returns the files of bundle.ManifestsDir that differ in the artifact; see reconcilers.Fetcher. Nil is none.
	Changed func(bundle.Assignment, fs.FS) (map[string][]byte, error)
	// Keep has the artifacts stay as they are, for an assignment that is being removed, or whose folder is not there yet. The
	// other fields but the assignment's name are not used then.
	Keep bool
	// Reached is true once the engine has reached this content: then it needs no earlier one.
	Reached bool
}

// Endpoint is the agent's endpoint as engines reach it.
type Endpoint struct {
	Host     string // HOST:PORT
	CA       []byte // in PEM; empty if the system's certificates are sufficient
	Plain    bool   // HTTP without TLS
	Platform string // the first part of all repositories
}

// Store makes artifacts and knows those of one state folder. Served may be called by several goroutines while no other
// method is.
type Store struct {
	db    *state.DB
	files *content.Store
	known map[string][]Made // nil before the state file was read
	wrong map[string]error  // why there is none
}

// New returns the artifacts of a state file, whose blobs are in files.
func New(db *state.DB, files *content.Store) *Store {
	return &Store{db: db, files: files, wrong: map[string]error{}}
}

// Bring makes the missing artifacts of the listed assignments, and forgets those of others. Each fails alone: Served
// returns the error. Changed is true if the list of Named is another one now, so that the store has to be indexed anew, and
// dropped if it has lost some, so that blobs can be deleted. The error is about the state file, or that of ctx.
func (s *Store) Bring(ctx context.Context, all []Wanted) (changed, dropped bool, err error) {
	if err := s.load(); err != nil {
		return false, false, err
	}
	next, wrong := map[string][]Made{}, map[string]error{}
	for _, w := range all {
		if err := ctx.Err(); err != nil {
			return false, false, err
		}
		name := w.Assignment.Name
		if w.Keep {
			next[name] = s.known[name]
			continue
		}
		made, err := s.bring(ctx, w)
		if err != nil {
			wrong[name] = err
			next[name] = s.known[name]
			continue
		}
		next[name] = w.keep(s.known[name], made)
	}
	s.wrong = wrong
	maps.DeleteFunc(next, func(_ string, made []Made) bool { return len(made) == 0 })
	changed, dropped = differs(s.known, next)
	if !changed {
		return false, false, nil
	}
	if err := s.save(next); err != nil {
		return false, false, err
	}
	s.known = next
	return true, dropped, nil
}

// bring returns the artifacts of a folder, and makes them if the store lacks one.
func (s *Store) bring(ctx context.Context, w Wanted) (Made, error) {
	repo := s.files.Blobs()
	if i := find(s.known[w.Assignment.Name], w.Folder); i >= 0 && s.known[w.Assignment.Name][i].whole(ctx, repo) {
		return s.known[w.Assignment.Name][i], nil
	}
	return derive(ctx, repo, w)
}

func find(made []Made, folder digest.Digest) int {
	return slices.IndexFunc(made, func(m Made) bool { return m.Folder == folder })
}

// whole reports whether all blobs are in the store, going by their sizes.
func (m Made) whole(ctx context.Context, repo oci.Target) bool {
	for _, a := range m.all() {
		for _, d := range append([]ocispec.Descriptor{a.Manifest}, a.Blobs...) {
			if there, err := repo.Exists(ctx, d); err != nil || !there {
				return false
			}
		}
	}
	return true
}

func (m Made) all() []Artifact {
	all := []Artifact{m.Manifests}
	for _, name := range slices.Sorted(maps.Keys(m.Charts)) {
		all = append(all, m.Charts[name])
	}
	return all
}

// keep returns the artifacts that stay once the newest is there.
func (w Wanted) keep(before []Made, newest Made) []Made {
	if w.Reached {
		return []Made{newest}
	}
	kept := slices.DeleteFunc(slices.Clone(before), func(m Made) bool { return m.Folder == newest.Folder })
	if over := len(kept) + 1 - mostKept; over > 0 {
		kept = slices.Delete(kept, 1, 1+over) // the first is the one that was reached
	}
	return append(kept, newest)
}

// differs compares two lists of artifacts by their manifests.
func differs(before, after map[string][]Made) (changed, dropped bool) {
	manifests := func(all map[string][]Made) map[digest.Digest]bool {
		out := map[digest.Digest]bool{}
		for _, list := range all {
			for _, m := range list {
				for _, a := range m.all() {
					out[a.Manifest.Digest] = true
				}
			}
		}
		return out
	}
	same := func(a, b []Made) bool {
		return slices.EqualFunc(a, b, func(a, b Made) bool {
			return a.Folder == b.Folder && slices.EqualFunc(a.all(), b.all(), func(a, b Artifact) bool { return a.Manifest.Digest == b.Manifest.Digest })
		})
	}
	left := manifests(after)
	for d := range manifests(before) {
		dropped = dropped || !left[d]
	}
	return !maps.EqualFunc(before, after, same), dropped
}

// Served returns an assignment's artifacts as engines get them. The error tells why they could not be made.
func (s *Store) Served(a bundle.Assignment, folder digest.Digest, at Endpoint) (*reconcilers.Served, error) {
	if err := s.wrong[a.Name]; err != nil {
		return nil, err
	}
	i := find(s.known[a.Name], folder)
	if i < 0 {
		return nil, fmt.Errorf("the artifact of assignment %s is not made yet", a.Name)
	}
	made, repository := s.known[a.Name][i], path.Join(at.Platform, reconcilers.ServedRepository(a.Name))
	served := &reconcilers.Served{
		Host: at.Host, Plain: at.Plain, Manifests: reconcilers.ServedArtifact{Repository: repository, Digest: made.Manifests.Manifest.Digest},
		Charts: map[string]reconcilers.ServedArtifact{},
	}
	if len(at.CA) > 0 {
		served.CA = at.CA
	}
	for name, chart := range made.Charts {
		served.Charts[name] = reconcilers.ServedArtifact{Repository: repository, Digest: chart.Manifest.Digest}
	}
	return served, nil
}

func (s *Store) load() error {
	if s.known != nil {
		return nil
	}
	err := s.db.View(func(tx *bbolt.Tx) (err error) {
		s.known, err = read(tx)
		return err
	})
	if err != nil {
		s.known = nil
		return state.Local("read state: %w", err)
	}
	return nil
}

func read(tx *bbolt.Tx) (map[string][]Made, error) {
	all := map[string][]Made{}
	b := tx.Bucket([]byte(Bucket))
	if b == nil {
		return all, nil
	}
	err := b.ForEach(func(k, _ []byte) (err error) {
		all[string(k)], err = state.Load[[]Made](tx, Bucket, string(k))
		return err
	})
	return all, err
}

// save writes the records that differ.
func (s *Store) save(next map[string][]Made) error {
	return s.db.Update(func(tx *bbolt.Tx) (err error) {
		for name := range s.known {
			if next[name] == nil {
				err = errors.Join(err, state.Drop(tx, Bucket, name))
			}
		}
		for _, name := range slices.Sorted(maps.Keys(next)) {
			if changed, _ := differs(map[string][]Made{name: s.known[name]}, map[string][]Made{name: next[name]}); changed {
				err = errors.Join(err, state.Save(tx, Bucket, name, next[name]))
			}
		}
		return err
	})
}

// Named lists the artifacts for the content store.
func Named(tx *bbolt.Tx) ([]content.Named, error) {
	all, err := read(tx)
	if err != nil {
		return nil, err
	}
	var named []content.Named
	for _, name := range slices.Sorted(maps.Keys(all)) {
		for _, made := range all[name] {
			for _, a := range made.all() {
				named = append(named, content.Named{Repository: reconcilers.ServedRepository(name), Manifest: a.Manifest})
			}
		}
	}
	return named, nil
}

// Status is the artifact that an assignment's engine is to have.
type Status struct {
	Assignment string        `json:"assignment"`
	Repository string        `json:"repository"` // below the platform's name
	Digest     digest.Digest `json:"digest"`
	// Charts are the digests of the charts, by file name.
	Charts map[string]digest.Digest `json:"charts,omitempty"`
}

// List returns the newest artifact of each assignment, sorted.
func List(tx *bbolt.Tx) ([]Status, error) {
	all, err := read(tx)
	var list []Status
	for _, name := range slices.Sorted(maps.Keys(all)) {
		made := all[name][len(all[name])-1]
		s := Status{Assignment: name, Repository: reconcilers.ServedRepository(name), Digest: made.Manifests.Manifest.Digest}
		for file, chart := range made.Charts {
			if s.Charts == nil {
				s.Charts = map[string]digest.Digest{}
			}
			s.Charts[file] = chart.Manifest.Digest
		}
		list = append(list, s)
	}
	return list, err
}

// open opens an assignment's folder.
func open(dir string) (*os.Root, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, state.Local("artifact: %w", err)
	}
	return root, nil
}
