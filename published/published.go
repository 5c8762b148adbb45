// Package published reads what was published to a registry, an OCI layout or an archive: environment records, releases, and
// trust documents.
//
// Begin with [Open], which returns a [Place], and name what to read: [Place.Environment] has the records of an environment, and
// [Place.Type] the releases of a cluster type, with their trees. What a tag or a digest names is judged by the place's [Signers]:
//
//   - as it lies there ([AsItLies]): it is whole and of the right kind, and may be anybody's;
//   - verified by a trust ([Pinned], [Of]): signed as the trust asks, of this environment and cluster type, under its own tag,
//     and of no epoch to come.
//
// An error is about content that is not there, content that is refused (a *[bundle.Refusal]), or a place that cannot be
// reached. [IgnoreRefused] drops the first two.
//
// A Place remembers what it has read by its digest and never reads it again, even if it is deleted meanwhile: use one for one
// short run. The package writes nothing. Several goroutines may use a Place.
package published

import (
	"cmp"
	"context"
	"errors"
	"sync"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"golang.org/x/sync/errgroup"
	"oras.land/oras-go/v2/errdef"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/ledger"
	"github.com/wherry-dev/wherry/bundle/oci"
)

// readsAtOnce is how many manifests are read at the same time.
const readsAtOnce = 8

// Place is an opened location.
type Place struct {
	Location oci.Location
	Store    oci.Store
	Trust    Signers

	releases *memory[bundle.Verified]
	records  *memory[bundle.VerifiedEnvironment]
}

// Open opens a location, whose content is judged by signers. It makes no request.
func Open(loc oci.Location, opts oci.Options, signers Signers) (*Place, error) {
	store, err := loc.Open(opts)
	return At(loc, store, signers), err
}

// At is Open for a store that is open.
func At(loc oci.Location, store oci.Store, signers Signers) *Place {
	return &Place{loc, store, signers, newMemory[bundle.Verified](), newMemory[bundle.VerifiedEnvironment]()}
}

// By returns the same place with other signers.
func (p *Place) By(signers Signers) *Place { return At(p.Location, p.Store, signers) }

// Repository is one repository of a place.
type Repository struct {
	Repo oci.Target
	Name string // below the place's prefix

	place *Place
}

// String returns the repository's name with the registry's.
func (r Repository) String() string { return r.place.Location.Name(r.Name) }

func (p *Place) repository(name string) (Repository, error) {
	repo, err := p.Store.Repository(name)
	return Repository{repo, name, p}, err
}

// Environment is the repository of an environment's records and decisions.
type Environment struct {
	Reader[bundle.VerifiedEnvironment]
	Environment string
}

// Environment returns an environment of the place.
func (p *Place) Environment(name string) (Environment, error) {
	r, err := p.repository(bundle.EnvironmentRepository(name))
	parse := func(ctx context.Context, desc ocispec.Descriptor, ids []string) (*bundle.VerifiedEnvironment, error) {
		v, err := bundle.ReadEnvironment(ctx, r.Repo, desc)
		if err == nil {
			v.KeyIDs = ids
		}
		return v, err
	}
	check := func(s Signers, ref string, v *bundle.VerifiedEnvironment) error {
		if err := s.checkPlace(ref, v.Record.Epoch, v.Record.Sequence); err != nil {
			return err
		}
		if v.Record.Environment != name {
			return bundle.Refuse(bundle.WrongEnvironment, "record is for environment %q of platform %q", v.Record.Environment, v.Record.Platform)
		}
		return nil
	}
	return Environment{Reader[bundle.VerifiedEnvironment]{r, p.records, parse, check}, name}, err
}

// By returns the same repository with other signers.
func (e Environment) By(signers Signers) Environment {
	e.Reader = e.by(signers)
	return e
}

// Ledger returns what a record of this repository says of workloads, which is read now: whole, as the record's manifest names it. It is
// nil if the record has none. The error is a *bundle.Refusal for other content, with the reason bundle.UnsupportedSchema if it needs a
// newer version of wherry.
func (e Environment) Ledger(ctx context.Context, v *bundle.VerifiedEnvironment) (*ledger.Ledger, error) {
	data, err := e.PackedLedger(ctx, v)
	if data == nil || err != nil {
		return nil, err
	}
	return ledger.Parse(data)
}

// PackedLedger is Ledger as it is stored.
func (e Environment) PackedLedger(ctx context.Context, v *bundle.VerifiedEnvironment) ([]byte, error) {
	switch v.Ledger.MediaType {
	case "":
		return nil, nil
	case bundle.MediaTypeLedger:
		return bundle.ReadBlob(ctx, e.Repo, v.Ledger, ledger.MaxBytes)
	}
	return nil, bundle.Refuse(bundle.UnsupportedSchema, "the ledger of record %s is a %q: it needs a newer version of wherry", v.Record.Tag(), v.Ledger.MediaType)
}

// Type is the repository of a cluster type's releases. A stream without a platform stands for any platform, and the zero stream for
// any release.
type Type struct {
	Reader[bundle.Verified]
	Stream bundle.Stream
}

// Type returns a cluster type of the place.
func (p *Place) Type(of bundle.Stream) (Type, error) { return p.releasesIn(of.Repository(), of) }

// Named returns the repository of that name. It is that of a cluster type if its name says so, and else may have any release.
func (p *Place) Named(repository string) (Type, error) {
	of, _ := StreamOf(repository)
	return p.releasesIn(repository, of)
}

func (p *Place) releasesIn(repository string, of bundle.Stream) (Type, error) {
	r, err := p.repository(repository)
	parse := func(ctx context.Context, desc ocispec.Descriptor, ids []string) (*bundle.Verified, error) {
		v, err := bundle.Read(ctx, r.Repo, desc)
		if err == nil {
			v.KeyIDs = ids
		}
		return v, err
	}
	check := func(s Signers, ref string, v *bundle.Verified) error {
		if err := s.checkPlace(ref, v.Release.Epoch, v.Release.Sequence); err != nil {
			return err
		}
		got, want := v.Release.Stream(), of
		want.Platform = cmp.Or(want.Platform, got.Platform)
		if want.ClusterType != "" && got != want {
			reason := bundle.WrongClusterType
			if got.Platform != want.Platform {
				reason = bundle.WrongPlatform
			} else if got.Environment != want.Environment {
				reason = bundle.WrongEnvironment
			}
			return bundle.Refuse(reason, "release is for %s/%s/%s", got.Platform, got.Environment, got.ClusterType)
		}
		return nil
	}
	return Type{Reader[bundle.Verified]{r, p.releases, parse, check}, of}, err
}

// By returns the same repository with other signers.
func (t Type) By(signers Signers) Type {
	t.Reader = t.by(signers)
	return t
}

// Reader reads the records or the releases of a repository.
type Reader[T any] struct {
	Repository
	known *memory[T]
	// parse reads a manifest that the keys with these ids have signed. Check refuses what signers do not accept, or not under ref.
	parse func(ctx context.Context, desc ocispec.Descriptor, ids []string) (*T, error)
	check func(s Signers, ref string, v *T) error
}

func (r Reader[T]) by(signers Signers) Reader[T] {
	r.place, r.known = r.place.By(signers), newMemory[T]()
	return r
}

// Read returns what a tag or a digest names. Current is true if it meets the trust in force.
func (r Reader[T]) Read(ctx context.Context, ref string) (v *T, current bool, err error) {
	return r.read(ctx, ref, ocispec.Descriptor{})
}

// ReadAt is Read for a descriptor.
func (r Reader[T]) ReadAt(ctx context.Context, desc ocispec.Descriptor) (v *T, current bool, err error) {
	return r.read(ctx, "", desc)
}

// ReadAll returns what each of several references names, in their order.
func (r Reader[T]) ReadAll(ctx context.Context, refs []string) ([]Found[T], error) {
	all := make([]Found[T], len(refs))
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(readsAtOnce)
	for i, ref := range refs {
		g.Go(func() error {
			v, current, err := r.Read(ctx, ref)
			all[i] = Found[T]{ref, v, current, err}
			return IgnoreRefused(err)
		})
	}
	return all, g.Wait()
}

func (r Reader[T]) read(ctx context.Context, ref string, desc ocispec.Descriptor) (*T, bool, error) {
	one, err := r.remembered(ctx, ref, desc)
	if err == nil && r.place.Trust.Verify() {
		err = r.check(r.place.Trust, ref, one.value)
	}
	if err != nil {
		return nil, false, err
	}
	return one.value, one.current, nil
}

// remembered returns what desc or, if that is zero, ref names. It is read unless it was read before.
func (r Reader[T]) remembered(ctx context.Context, ref string, desc ocispec.Descriptor) (one remembered[T], err error) {
	if one, ok := r.known.get(r.Name, cmp.Or(desc.Digest, digest.Digest(ref))); ok {
		return one, nil
	}
	if desc.Digest == "" {
		if desc, err = bundle.ResolveManifest(ctx, r.Repo, ref); err != nil {
			return one, err
		}
		if one, ok := r.known.get(r.Name, desc.Digest); ok {
			return one, nil
		}
	}
	ids, current, err := r.place.Trust.SignersOf(ctx, r.Repo, desc.Digest)
	if err != nil {
		return one, err
	}
	v, err := r.parse(ctx, desc, ids)
	if err != nil {
		return one, err
	}
	one = remembered[T]{v, current}
	r.known.add(r.Name, desc.Digest, one)
	return one, nil
}

// Found is what a reference names: a Value or, in Err, the reason why it is not there or refused.
type Found[T any] struct {
	Ref     string
	Value   *T
	Current bool
	Err     error
}

// memory has what was read, by repository and digest: what a digest names does not change.
type memory[T any] struct {
	mu  sync.Mutex
	all map[string]remembered[T]
}

type remembered[T any] struct {
	value   *T
	current bool
}

func newMemory[T any]() *memory[T] { return &memory[T]{all: map[string]remembered[T]{}} }

func (m *memory[T]) get(name string, d digest.Digest) (remembered[T], bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	one, ok := m.all[name+"@"+d.String()]
	return one, ok
}

func (m *memory[T]) add(name string, d digest.Digest, one remembered[T]) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.all[name+"@"+d.String()] = one
}

// IgnoreRefused returns nil for an error about content that is not there or refused, and any other error as it is.
func IgnoreRefused(err error) error {
	if errors.Is(err, errdef.ErrNotFound) || errors.As(err, new(*bundle.Refusal)) {
		return nil
	}
	return err
}
