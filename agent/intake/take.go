package intake

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2/errdef"

	"github.com/wherry-dev/wherry/agent/state"
	"github.com/wherry-dev/wherry/agent/trust"
	"github.com/wherry-dev/wherry/airgap"
	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/graph"
	"github.com/wherry-dev/wherry/bundle/oci"
)

// Result is what came of a package.
type Result struct {
	// Streams has the result of each stream that this agent is to have, sorted. Without Options.Others that is its own.
	Streams []Stream
	// Releases is where a pass of the agent finds the release of the package for it: the documents in memory, and the
	// layers that have been stored. It is nil if there is none to be judged. A package without the agent's own stream, of
	// which nothing else is to be stored either, has its first release there: it is refused for the true reason.
	Releases bundle.Source
	// Order is the place of the agent's own release in its stream, if it was verified.
	Order bundle.Order
	// Trust has the trust documents of the package.
	Trust bundle.Source
	// Changed is true if the store has to name other content than before.
	Changed bool
}

// stream is one stream of a package while it is taken.
type stream struct {
	Stream
	offer   offer
	place   bundle.Stream
	content kept
	// documents are those that followers read, in the order in which they are stored.
	documents []ocispec.Descriptor
	blobs     []ocispec.Descriptor // the tree, and everything of the artifacts
	manifests []ocispec.Descriptor // those of artifacts
	// flawed is true for a good release whose signature lacks, or has changed, something that followers read.
	flawed bool
	// here is the short name of the release of the stream that is stored; empty if there is none.
	here string
	// seen is true for a release that was accepted before, and stored if it is the stored one.
	seen, stored, claimed bool
}

// open reports whether the stream may still be taken.
func (s *stream) open() bool { return s.Outcome == "" }

// end ends a stream with an outcome that is not good.
func (s *stream) end(o Outcome, reason bundle.Reason, format string, args ...any) {
	if s.open() {
		s.Outcome, s.Reason, s.Message = o, reason, bundle.Clip(fmt.Sprintf(format, args...))
	}
}

// fail ends a stream because of an error of its content.
func (s *stream) fail(err error) {
	var refusal *bundle.Refusal
	switch {
	case !errors.As(err, &refusal):
		s.end(Refused, bundle.BadContent, "%v", err)
	case refusal.Reason == bundle.OlderRelease:
		s.end(Older, refusal.Reason, "%s", refusal.Message)
	case refusal.Reason == bundle.WrongPlatform:
		s.end(Foreign, refusal.Reason, "%s", refusal.Message)
	default:
		s.end(Refused, refusal.Reason, "%s", refusal.Message)
	}
}

// Asked is what a person asks for with a package.
type Asked struct {
	// AllowExpired is why releases are taken although they have expired; empty takes none of them.
	AllowExpired string
	// Progress is called with the bytes that were stored or passed over, and with those of the package; zero if that is
	// unknown. Nil is nobody.
	Progress func(done, total int64)
}

// Take takes in the package that r reads, in memory that depends on its documents and manifests alone.
//
// The error is a *state.LocalError of this machine, or that of reading the package: streams that were whole by then are
// taken, and for the others the next Take goes on. The result is valid in any case.
func (k *Keeper) Take(ctx context.Context, r *airgap.Reader, asked Asked) (Result, error) {
	end, err := k.begin(ctx)
	if err != nil {
		return Result{}, err
	}
	defer end()
	t := &taking{Keeper: k, head: newHead(r, k.opts.Ring), Asked: asked, failures: map[digest.Digest]error{}}
	err = t.take(ctx)
	if err != nil {
		t.interrupt(err)
	}
	return t.result(), err
}

// taking is one package that is taken.
type taking struct {
	*Keeper
	*head
	Asked
	streams   []*stream
	other     *offer // the release of another stream, which is judged if the package lacks the own one
	platforms []string
	failures  map[digest.Digest]error // of blobs that are not what their digest says
	changed   bool
	done      int64
}

// take is a list of steps, each of which ends some of the streams.
func (t *taking) take(ctx context.Context) error {
	t.choose()
	if c := t.contents; c != nil && c.Platform != "" && c.Platform != t.opts.Own.Platform {
		for _, s := range t.streams {
			s.end(Foreign, bundle.WrongPlatform, "the package is for platform %q, this agent belongs to %q", c.Platform, t.opts.Own.Platform)
		}
		t.other = nil
		return nil
	}
	if err := t.verify(ctx); err != nil || len(t.left()) == 0 {
		return err
	}
	if err := t.readManifests(ctx); err != nil {
		return err
	}
	t.passOver(ctx)
	t.checkBases(ctx)
	if err := t.admit(ctx); err != nil || len(t.left()) == 0 {
		return err
	}
	if err := t.claim(t.left()); err != nil {
		return err
	}
	t.changed = true
	for _, s := range t.left() {
		s.claimed = true
	}
	if err := t.storeDocuments(ctx); err != nil {
		return err
	}
	if err := t.storeTrees(ctx); err != nil {
		return err
	}
	if err := t.listArtifacts(ctx); err != nil {
		return err
	}
	if err := t.storeManifests(ctx); err != nil {
		return err
	}
	err := t.storeBlobs(ctx)
	return errors.Join(err, t.conclude(err))
}

// choose lists the streams that the agent is to have.
func (t *taking) choose() {
	for i, o := range t.offers {
		own := o.repository == t.opts.Own.Repository()
		if !own && !t.opts.Others {
			if t.other == nil {
				t.other = &t.offers[i]
			}
			continue
		}
		t.streams = append(t.streams, &stream{
			Stream: Stream{Environment: o.environment, ClusterType: o.clusterType, Own: own, Digest: o.manifest.Digest},
			offer:  o, place: bundle.Stream{Platform: t.opts.Own.Platform, Environment: o.environment, ClusterType: o.clusterType},
		})
	}
	if len(t.streams) > 0 {
		t.other = nil
	}
	t.platforms = t.opts.Platforms
	if t.contents != nil && len(t.contents.ImagePlatforms) > 0 && t.usual {
		t.platforms = t.contents.ImagePlatforms
	}
}

// platformsOf returns the platforms that a stream's artifacts are stored for, and those that it must have: what the configuration
// says, else the release, else this machine's; a package of several platforms is then stored whole.
func (t *taking) platformsOf(s *stream) (stored, needed graph.Platforms) {
	if t.usual && s.content.Release != nil && len(s.content.Release.Release.Platforms) > 0 {
		named := s.content.Release.Release.Platforms
		return named, named
	}
	return t.platforms, t.opts.Platforms
}

// left lists the streams that may still be taken, the own one first.
func (t *taking) left() (all []*stream) {
	for _, s := range t.streams {
		if s.open() {
			all = append(all, s)
		}
	}
	slices.SortStableFunc(all, func(a, b *stream) int {
		if a.Own == b.Own {
			return 0
		}
		return cmp.Compare(b2i(b.Own), b2i(a.Own))
	})
	return all
}

func b2i(b bool) int {
	if b {
		return 1
	}
	return 0
}

// verify judges all streams, after it has followed the trust documents.
func (t *taking) verify(ctx context.Context) error {
	var offers []offer
	for _, s := range t.streams {
		offers = append(offers, s.offer)
	}
	if t.other != nil {
		offers = append(offers, *t.other)
	}
	if err := t.readDocuments(ctx, int64(len(t.opts.Trust.Chain())), offers); err != nil {
		return err
	}
	var untrusted error
	if len(t.opts.Trust.Chain()) > 0 {
		untrusted = t.opts.Trust.Follow(ctx, source{t.head, t.trust}, t.opts.Log)
		if errors.As(untrusted, new(*state.LocalError)) {
			return untrusted
		}
	}
	judge, err := t.opts.Judge()
	if errors.As(err, new(*state.LocalError)) {
		return err
	}
	untrusted = cmp.Or(untrusted, err)
	for _, s := range t.streams {
		if err := t.judge(ctx, s, judge, untrusted); errors.As(err, new(*state.LocalError)) {
			return err
		} else if err != nil {
			s.fail(err)
		}
		if s.Outcome == Older {
			t.opts.Log.Info("the medium has an older release; nothing changes", "stream", s.Name(), "release", s.Release, "digest", s.Digest)
		}
	}
	return nil
}

// judge verifies one release as a pass of the agent does. The ring of another stream is judged by the agents that take it.
func (t *taking) judge(ctx context.Context, s *stream, by trust.Judge, untrusted error) error {
	before, highest, floor, err := t.known(s.place, by.Epoch)
	if err != nil {
		return err
	}
	documents := s.offer.source(t.head)
	for _, c := range []*kept{before.Stored, before.whole()} {
		if c != nil {
			s.here = c.Release.Name()
		}
	}
	s.stored = before.Stored.digest() == s.Digest
	s.seen = highest.Digest == s.Digest && (s.Own || s.stored) // acceptance is judged once
	if s.Own && !s.seen {
		if back, err := t.opts.Back(); err != nil || back != nil && back.Digest() == s.Digest {
			return errors.Join(err, t.bringBack(ctx, s, back, before))
		}
	}
	read := func() (*bundle.Verified, error) { return bundle.Verify(ctx, documents, s.offer.manifest, by.Trust) }
	if s.seen {
		read = func() (*bundle.Verified, error) { return bundle.Read(ctx, documents, s.offer.manifest) }
	} else if untrusted != nil {
		return untrusted
	}
	v, err := read()
	if err != nil {
		return err
	}
	s.Release = v.Name()
	now := t.opts.Now()
	if floor.After(now) {
		now = floor
	}
	if w := before.whole(); w != nil && w.digest() != s.Digest && w.Release.Order().Compare(highest) > 0 {
		highest = w.Release.Order() // one package after another may come before a pass
	}
	expect := bundle.Expect{Stream: s.place, Ring: t.opts.Ring, Epoch: by.Epoch, Highest: highest, Now: now, AllowExpired: t.AllowExpired != ""}
	if !s.Own && len(v.Release.Rings) > 0 {
		expect.Ring = v.Release.Rings[0]
	}
	if err := expect.Check(v.Release, s.Digest); err != nil {
		return err
	}
	if !s.seen {
		if err := by.Admits(t.opts.Own.Platform, now); err != nil {
			return err
		}
	}
	if err := oci.CheckName(s.place.Repository()); err != nil {
		return err
	}
	s.content = kept{
		Release: &state.Release{Release: v.Release, Manifest: s.offer.manifest, Tree: v.Tree, AcceptedAt: t.stamp()},
		Tags:    t.tagsOf(s.offer, v.Release), Signature: s.offer.signature, Since: t.stamp(),
	}
	if !s.seen && v.Release.Expiry(now).Expired {
		s.content.Release.AllowExpired = t.AllowExpired
	}
	if s.stored { // the package may bring more artifacts of it
		s.content = *before.Stored
	}
	err = t.listDocuments(ctx, s, v, documents)
	s.flawed = err != nil
	return err
}

// bringBack prepares the stream for the release that a person goes back to. It was judged when it was accepted, and is named by its
// digest.
func (t *taking) bringBack(ctx context.Context, s *stream, back *state.Release, before record) error {
	documents := s.offer.source(t.head)
	v, err := bundle.Read(ctx, documents, s.offer.manifest)
	if err != nil {
		return err
	}
	s.Release = v.Name()
	s.content = kept{Release: back, Signature: s.offer.signature, Since: t.stamp()}
	if s.stored {
		s.content = *before.Stored
	}
	err = t.listDocuments(ctx, s, v, documents)
	s.flawed = err != nil
	return err
}

// tagsOf lists the moving tags of a release: those of its rings, and those that the package gives it.
func (t *taking) tagsOf(o offer, r bundle.Release) []string {
	tags := slices.Clone(o.tags)
	if len(r.Rings) == 0 {
		tags = append(tags, bundle.LatestTag, bundle.MovingTag(t.opts.Ring))
	}
	for _, ring := range r.Rings {
		tags = append(tags, bundle.MovingTag(ring))
	}
	tags = slices.DeleteFunc(tags, func(tag string) bool { return oci.CheckTag(tag) != nil })
	slices.Sort(tags)
	return slices.Compact(tags)
}

// listDocuments lists the documents of a release, each of which is read once so that it is known to be good.
func (t *taking) listDocuments(ctx context.Context, s *stream, v *bundle.Verified, from source) error {
	s.documents = []ocispec.Descriptor{v.Manifest.Config, s.offer.manifest}
	s.blobs = []ocispec.Descriptor{oci.Plain(v.Tree)}
	if s.offer.signature.Digest == "" { // the release was accepted with one
		return nil
	}
	data, err := bundle.ReadBlob(ctx, from, s.offer.signature, bundle.MaxManifestBytes)
	if err != nil {
		return err
	}
	m := referencesOf(data)
	parts := m.Layers
	if m.Config != nil {
		parts = append([]ocispec.Descriptor{*m.Config}, parts...)
	}
	for _, d := range parts {
		if _, err := bundle.ReadBlob(ctx, from, d, bundle.MaxManifestBytes); err != nil {
			return err
		}
	}
	s.documents = slices.Concat(parts, []ocispec.Descriptor{s.offer.signature}, s.documents)
	return nil
}

// interrupt ends the streams that have not come to an end when an error has ended the reading.
func (t *taking) interrupt(err error) {
	for _, s := range t.streams {
		s.end(Unfinished, "", "%v", err)
	}
}

// conclude makes the streams that are whole the stored ones, and forgets what has arrived of those that are refused. Cut is
// the error that has ended the reading of the package, if there was one.
func (t *taking) conclude(cut error) error {
	var whole, refused []*stream
	for _, s := range t.streams {
		if s.open() {
			switch missing, bytes := t.missing(s); {
			case len(missing) == 0:
				whole = append(whole, s)
			case cut == nil:
				t.lacks(s, missing, bytes)
			}
		}
		if s.claimed && !s.open() {
			refused = append(refused, s)
		}
	}
	var errs []error
	if len(whole) > 0 {
		errs = append(errs, t.finish(whole))
	}
	if len(refused) > 0 {
		errs = append(errs, t.drop(refused))
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	for _, s := range whole {
		s.Outcome = Taken
		if s.seen && s.Bytes == 0 {
			s.Outcome = Here
		}
		t.opts.Log.Info("stream is in the store", "stream", s.Name(), "release", s.Release, "digest", s.Digest, "bytes", s.Bytes)
	}
	return nil
}

// result is that of the whole.
func (t *taking) result() Result {
	result := Result{Streams: []Stream{}, Trust: source{t.head, t.trust}, Changed: t.changed}
	for _, s := range t.streams {
		if s.Own && t.judges(s) {
			result.Releases = stored{s.offer.source(t.head), t.blobs, t.failures}
		}
		if s.Own && s.content.Release != nil {
			result.Order = s.content.Release.Order()
		}
		result.Streams = append(result.Streams, s.Stream)
	}
	if t.other != nil {
		result.Releases = stored{t.other.source(t.head), t.blobs, t.failures}
	}
	return result
}

// judges reports whether a pass is to judge the release of the own stream: one that is here, or that was refused by its
// documents or its tree. One that lacks artifacts, or has others than it lists, must not begin to run. An older one lies on an older
// medium, which is no attack as it would be from a registry: it changes nothing.
func (t *taking) judges(s *stream) bool {
	switch s.Outcome {
	case Taken, Here:
		return true
	case Refused:
		return !s.flawed && (!s.claimed || t.failures[s.content.Release.Tree.Digest] != nil)
	}
	return false
}

// stored is an offer whose layers are in the store.
type stored struct {
	source
	blobs    oci.Target
	failures map[digest.Digest]error
}

// Resolve finds the one release of the offer under every moving tag: whether it is for the ring of the agent is said in the
// release.
func (s stored) Resolve(ctx context.Context, reference string) (ocispec.Descriptor, error) {
	d, err := s.source.Resolve(ctx, reference)
	if err == nil || !isMoving(reference) {
		return d, err
	}
	for tag, d := range s.refs {
		if isMoving(tag) {
			return d, nil
		}
	}
	return d, err
}

func (s stored) Fetch(ctx context.Context, d ocispec.Descriptor) (io.ReadCloser, error) {
	if err := s.failures[d.Digest]; err != nil {
		return nil, err
	}
	r, err := s.source.Fetch(ctx, d)
	if errors.Is(err, errdef.ErrNotFound) {
		if r, here := s.blobs.Fetch(ctx, d); here == nil {
			return r, nil
		}
	}
	return r, err
}
