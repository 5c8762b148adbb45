package publisher

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/rsa"
	"encoding/json"
	"io"

	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/specs-go"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/sigstore/sigstore/pkg/signature"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/delta"
	"github.com/wherry-dev/wherry/publisher/diff"
)

// maxTriedBytes bounds the trees, of all cluster types together, of which a comparison makes deltas, in bytes: a plan is to be
// quick, and a person can do with "up to".
const maxTriedBytes = 16 << 20

// download is what agents would fetch of a planned release. It makes the release as publishing would, once, and pushes
// nothing.
type download struct {
	*publication
	plan *plan

	made bool
	// frame is the size of the manifest and the signatures, full that of the whole tree's layer, and deltas those of the
	// deltas, by the tree that they start from.
	frame, full int64
	deltas      map[digest.Digest]int64
	untried     bool // deltas
}

// to returns the download of an agent that has the release last, which is nil if it has none.
func (s *download) to(ctx context.Context, last *bundle.Verified) (diff.Fetch, error) {
	if err := s.make(ctx); err != nil {
		return diff.Fetch{}, err
	}
	f := diff.Fetch{Bytes: s.frame + s.full, FullBytes: s.frame + s.full}
	if last == nil {
		return f, nil
	}
	from := last.Release.Content.DiffID
	switch n, there := s.deltas[from]; {
	case from == s.plan.tree.Content.DiffID:
		f.Bytes = s.frame
	case there:
		f.Bytes = s.frame + n
	default:
		f.UpTo = s.untried
	}
	return f, nil
}

// again returns the download of an agent whose release is made anew with the same content.
func (s *download) again(ctx context.Context, last *bundle.Verified) (diff.Fetch, error) {
	frame, err := s.frameOf(s.plannedRelease(s.plan), append([]ocispec.Descriptor{last.Tree}, last.Manifest.Layers[1:]...))
	return diff.Fetch{Bytes: frame, FullBytes: frame + last.Tree.Size}, err
}

func (s *download) make(ctx context.Context) error {
	if s.made {
		return nil
	}
	pl := s.plan
	layers, err := s.layers(ctx)
	if err != nil {
		return err
	}
	r := s.plannedRelease(pl)
	r.Rings = pl.aim.Names()
	s.deltas, s.full = map[digest.Digest]int64{}, layers[0].Size
	for _, l := range layers[1:] {
		s.deltas[digest.Digest(l.Annotations[delta.AnnotationFrom])] = l.Size
	}
	s.frame, err = s.frameOf(r, layers)
	s.made = err == nil
	return err
}

// layers returns those of the planned release. Beyond the bound it tries no deltas.
func (s *download) layers(ctx context.Context) ([]ocispec.Descriptor, error) {
	pl := s.plan
	if pl.withContent(pl.tree.Content) == nil && pl.Verified != nil {
		if s.tried += pl.Verified.Release.Content.Size + pl.tree.Content.Size; s.tried > maxTriedBytes {
			s.untried = true
			return []ocispec.Descriptor{bundle.NewBlob(bundle.MediaTypeTree, pl.tree.Gzip).Descriptor}, nil
		}
	}
	layers, _, err := s.maker().layers(ctx, pl, pl.tree.Content, nil)
	return layers, err
}

// frameOf returns the size of the manifest of a release, and of its signatures.
func (s *download) frameOf(r bundle.Release, layers []ocispec.Descriptor) (int64, error) {
	r.Sequence, r.Number = max(s.plan.lastOf(r.Epoch)+1, s.IssuedAt.Unix()), bundle.NextNumber(s.plan.highestNumbered())
	m, _, err := s.maker().manifest(s.plan, r, nil, layers)
	if err != nil {
		return 0, err
	}
	m.Versioned, m.MediaType = specs.Versioned{SchemaVersion: 2}, ocispec.MediaTypeImageManifest
	data, err := json.Marshal(m)
	if err != nil {
		return 0, err
	}
	var signers []signature.Signer
	for _, k := range s.Trust.Keys[:min(s.Trust.Need(), len(s.Trust.Keys))] {
		signers = append(signers, blank{k})
	}
	signed, err := bundle.SignManifest(digest.FromBytes(data), s.Location.Name(r.Stream().Repository()), signers...)
	if err != nil {
		return 0, err
	}
	return int64(len(data) + len(signed.Manifest.Data)), nil
}

// blank makes signatures of the length of a key's own, which nobody accepts.
type blank struct{ key crypto.PublicKey }

func (b blank) PublicKey(...signature.PublicKeyOption) (crypto.PublicKey, error) { return b.key, nil }

func (b blank) SignMessage(io.Reader, ...signature.SignOption) ([]byte, error) {
	switch k := b.key.(type) {
	case *rsa.PublicKey:
		return make([]byte, k.Size()), nil
	case *ecdsa.PublicKey:
		return make([]byte, 2*((k.Params().BitSize+7)/8)+7), nil // two integers in DER, of which half have a zero before them
	}
	return make([]byte, 64), nil
}
