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
	Repository
	Environment string
}

// Environment returns an environment of the place.
func (p *Place) Environment(name string) (Environment, error) {
	r, err := p.repository(bundle.EnvironmentRepository(name))
	return Environment{r, name}, err
}

// By returns the same repository with other signers.
func (e Environment) By(signers Signers) Environment {
	e.place = e.place.By(signers)
	return e
}

// Record returns the record that a tag or a digest names. Current is true if it meets the trust in force.
func (e Environment) Record(ctx context.Context, ref string) (v *bundle.VerifiedEnvironment, current bool, err error) {
	return e.record(ctx, ref, ocispec.Descriptor{})
}

// RecordAt is Record for a descriptor.
func (e Environment) RecordAt(ctx context.Context, desc ocispec.Descriptor) (v *bundle.VerifiedEnvironment, current bool, err error) {
	return e.record(ctx, "", desc)
}

func (e Environment) record(ctx context.Context, ref string, desc ocispec.Descriptor) (*bundle.VerifiedEnvironment, bool, error) {
	v, current, err := read(ctx, e.Repository, e.place.records, ref, desc, func(desc ocispec.Descriptor, ids []string) (*bundle.VerifiedEnvironment, error) {
		v, err := bundle.ReadEnvironment(ctx, e.Repo, desc)
		if err == nil {
			v.KeyIDs = ids
		}
		return v, err
	})
	if err != nil || !e.place.Trust.Verify() {
		return v, current, err
	}
	if err := e.place.Trust.checkPlace(ref, v.Record.Epoch, v.Record.Sequence); err != nil {
		return nil, false, err
	}
	if e.Environment != v.Record.Environment {
		return nil, false, refuse(bundle.WrongEnvironment, "record is for environment %q of platform %q", v.Record.Environment, v.Record.Platform)
	}
	return v, current, nil
}

// ReadAll returns what each of several references names, in their order.
func (e Environment) ReadAll(ctx context.Context, refs []string) ([]Found[bundle.VerifiedEnvironment], error) {
	return each(ctx, refs, e.Record)
}

// Type is the repository of a cluster type's releases. A stream without a platform stands for any platform, and the zero stream for
// any release.
type Type struct {
	Repository
	Stream bundle.Stream
}

// Named returns the repository of that name. It is that of a cluster type if its name says so, and else may have any release.
func (p *Place) Named(repository string) (Type, error) {
	of, _ := StreamOf(repository)
	r, err := p.repository(repository)
	return Type{r, of}, err
}

// By returns the same repository with other signers.
func (t Type) By(signers Signers) Type {
	t.place = t.place.By(signers)
	return t
}

// Type returns a cluster type of the place.
func (p *Place) Type(of bundle.Stream) (Type, error) {
	r, err := p.repository(of.Repository())
	return Type{r, of}, err
}

// Release returns the release that a tag or a digest names. Current is true if it meets the trust in force.
func (t Type) Release(ctx context.Context, ref string) (v *bundle.Verified, current bool, err error) {
	return t.release(ctx, ref, ocispec.Descriptor{})
}

// ReleaseAt is Release for a descriptor.
func (t Type) ReleaseAt(ctx context.Context, desc ocispec.Descriptor) (v *bundle.Verified, current bool, err error) {
	return t.release(ctx, "", desc)
}

func (t Type) release(ctx context.Context, ref string, desc ocispec.Descriptor) (*bundle.Verified, bool, error) {
	v, current, err := read(ctx, t.Repository, t.place.releases, ref, desc, func(desc ocispec.Descriptor, ids []string) (*bundle.Verified, error) {
		v, err := bundle.Read(ctx, t.Repo, desc)
		if err == nil {
			v.KeyIDs = ids
		}
		return v, err
	})
	if err != nil || !t.place.Trust.Verify() {
		return v, current, err
	}
	if err := t.place.Trust.checkPlace(ref, v.Release.Epoch, v.Release.Sequence); err != nil {
		return nil, false, err
	}
	got, want := v.Release.Stream(), t.Stream
	want.Platform = cmp.Or(want.Platform, got.Platform)
	if want.ClusterType != "" && got != want {
		reason := bundle.WrongClusterType
		if got.Platform != want.Platform {
			reason = bundle.WrongPlatform
		} else if got.Environment != want.Environment {
			reason = bundle.WrongEnvironment
		}
		return nil, false, refuse(reason, "release is for %s/%s/%s", got.Platform, got.Environment, got.ClusterType)
	}
	return v, current, nil
}

// ReadAll returns what each of several references names, in their order.
func (t Type) ReadAll(ctx context.Context, refs []string) ([]Found[bundle.Verified], error) {
	return each(ctx, refs, t.Release)
}

// Found is what a reference names: a Value or, in Err, the reason why it is not there or refused.
type Found[T any] struct {
	Ref     string
	Value   *T
	Current bool
	Err     error
}

func each[T any](ctx context.Context, refs []string, read func(context.Context, string) (*T, bool, error)) ([]Found[T], error) {
	all := make([]Found[T], len(refs))
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(readsAtOnce)
	for i, ref := range refs {
		g.Go(func() error {
			v, current, err := read(ctx, ref)
			all[i] = Found[T]{ref, v, current, err}
			return IgnoreRefused(err)
		})
	}
	return all, g.Wait()
}

// read returns what desc or, if that is zero, ref names, judged by the place's signers. Get reads it, with the keys that signed.
func read[T any](ctx context.Context, r Repository, known *memory[T], ref string, desc ocispec.Descriptor, get func(ocispec.Descriptor, []string) (*T, error)) (*T, bool, error) {
	if one, ok := known.get(r.Name, cmp.Or(desc.Digest, digest.Digest(ref))); ok {
		return one.value, one.current, nil
	}
	if desc.Digest == "" {
		var err error
		if desc, err = bundle.ResolveManifest(ctx, r.Repo, ref); err != nil {
			return nil, false, err
		}
		if one, ok := known.get(r.Name, desc.Digest); ok {
			return one.value, one.current, nil
		}
	}
	ids, current, err := r.place.Trust.SignersOf(ctx, r.Repo, desc.Digest)
	if err != nil {
		return nil, false, err
	}
	v, err := get(desc, ids)
	if err != nil {
		return nil, false, err
	}
	known.add(r.Name, desc.Digest, remembered[T]{v, current})
	return v, current, nil
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
