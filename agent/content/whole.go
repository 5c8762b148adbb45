package content

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"go.etcd.io/bbolt"
	"oras.land/oras-go/v2/errdef"

	"github.com/wherry-dev/wherry/agent/state"
	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/oci"
)

// BucketSignatures has, by the encoded digest of a release's manifest, the descriptor of its signature's manifest. It
// exists once there is one.
const BucketSignatures = "signatures"

// Serving is the agent's place, by which releases get their moving tags.
type Serving struct {
	Platform string
	Ring     string // may be empty
}

// ErrNotWhole means that a part of a release is not here and cannot be had now. The endpoint does not serve the release.
var ErrNotWhole = errors.New("release is not whole")

// Complete brings the parts of a release that clients need to verify it themselves: its signature, and the signed layer.
// A tree that a delta has made is compressed again; if the result is not the signed layer, Complete fetches the layer once.
// If Documents or Layers of w is nil, Complete makes no request for them. Then it updates the index. The error wraps
// ErrNotWhole if a part is not available now, and is like that of Bring if a transfer failed.
func (c *Store) Complete(ctx context.Context, w Wanted) error {
	repo, err := c.repository(w.Release.Release.Stream())
	if err != nil {
		return state.Local("store: %w", err)
	}
	if err := c.completeRelease(ctx, repo, w); err != nil {
		return err
	}
	return c.Index(w.Keep...)
}

func (c *Store) completeRelease(ctx context.Context, repo oci.Target, w Wanted) error {
	if w.Documents == nil {
		w.Documents = nowhere{}
	}
	if _, err := c.keepDocuments(ctx, repo, w); err != nil {
		return err
	}
	if err := c.keepSignature(ctx, repo, w); err != nil {
		return fmt.Errorf("signature: %w", err)
	}
	return c.signedLayer(ctx, repo, w)
}

// nowhere is a source that nobody is asked for.
type nowhere struct{}

func (nowhere) Resolve(context.Context, string) (ocispec.Descriptor, error) {
	return ocispec.Descriptor{}, ErrNotWhole
}

func (nowhere) Fetch(context.Context, ocispec.Descriptor) (io.ReadCloser, error) {
	return nil, ErrNotWhole
}

func loadSignature(tx *bbolt.Tx, r *state.Release) (ocispec.Descriptor, error) {
	if tx.Bucket([]byte(BucketSignatures)) == nil {
		return ocispec.Descriptor{}, nil
	}
	return state.Load[ocispec.Descriptor](tx, BucketSignatures, r.Digest().Encoded())
}

// keepSignature has the signature of a release in the store, as it was when the release was accepted.
func (c *Store) keepSignature(ctx context.Context, repo oci.Target, w Wanted) error {
	var known ocispec.Descriptor
	err := c.db.View(func(tx *bbolt.Tx) (err error) {
		known, err = loadSignature(tx, w.Release)
		return err
	})
	if err != nil {
		return state.Local("read state: %w", err)
	}
	desc := known
	if known.Digest == "" {
		if desc, err = w.Documents.Resolve(ctx, bundle.SignatureTag(w.Release.Digest())); err != nil {
			return err
		}
	}
	data, err := c.document(ctx, repo, w.Documents, desc, bundle.MaxManifestBytes)
	if err != nil {
		return err
	}
	var m ocispec.Manifest
	if err := json.Unmarshal(data, &m); err != nil {
		return err
	}
	config, err := bundle.SignatureConfig(m.Layers)
	if err != nil {
		return err
	}
	if config.Descriptor.Digest == m.Config.Digest {
		m.Config.Data = config.Data
	}
	for _, part := range append([]ocispec.Descriptor{m.Config}, m.Layers...) {
		if _, err := c.document(ctx, repo, w.Documents, part, bundle.MaxManifestBytes); err != nil {
			return err
		}
	}
	if known.Digest != "" {
		return nil
	}
	desc = ocispec.Descriptor{MediaType: desc.MediaType, Digest: desc.Digest, Size: desc.Size}
	err = c.db.Update(func(tx *bbolt.Tx) error {
		if _, err := tx.CreateBucketIfNotExists([]byte(BucketSignatures)); err != nil {
			return err
		}
		return state.Save(tx, BucketSignatures, w.Release.Digest().Encoded(), desc)
	})
	if err != nil {
		return state.Local("save signature: %w", err)
	}
	return nil
}

// signedLayer has the tree of a release in the store as the layer that was signed, and in no other form.
func (c *Store) signedLayer(ctx context.Context, repo oci.Target, w Wanted) error {
	if !c.hasBlob(w.Release.Tree) {
		made, err := c.compressAgain(ctx, w.Release)
		if err != nil {
			return state.Local("store: %w", err)
		}
		if !made {
			if err := c.fetchLayer(ctx, repo, w); err != nil {
				return err
			}
		}
	}
	if w.Release.Release.Content.DiffID != w.Release.Tree.Digest {
		if err := c.remove(w.Release.Release.Content.DiffID); err != nil {
			return state.Local("store: %w", err)
		}
	}
	return nil
}

func (c *Store) fetchLayer(ctx context.Context, repo oci.Target, w Wanted) (err error) {
	switch from := w.Layers.(type) {
	case nil:
		return fmt.Errorf("%w: layer %s of release %s is not here as it was signed", ErrNotWhole, w.Release.Tree.Digest, w.Release.Name())
	case oci.Target:
		if c.opts.Window != nil {
			inWindow, leave, err1 := c.opts.Window(ctx)
			if err1 != nil {
				return err1
			}
			ctx = inWindow
			defer func() { err = leave(err) }()
		}
		return c.download(ctx, from, w.Release.Tree)
	}
	return c.copyLayer(ctx, repo, w)
}

// compressAgain makes the signed layer of the tree that a delta has made, and reports whether the result is that layer.
// Another version of the compressor makes another one.
func (c *Store) compressAgain(ctx context.Context, r *state.Release) (made bool, err error) {
	tree, want := r.Release.Content, r.Tree
	if tree.DiffID == want.Digest || c.unlike[want.Digest] || !c.hasBlob(forms(r)[0]) {
		return false, nil
	}
	from, err := os.Open(c.blob(tree.DiffID))
	if err != nil {
		return false, err
	}
	defer from.Close()
	path := filepath.Join(filepath.Dir(c.made(tree.DiffID)), want.Digest.Encoded()+".gz")
	out, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return false, err
	}
	verifier := want.Digest.Verifier()
	err = bundle.Compress(io.MultiWriter(&bounded{out, want.Size}, verifier), &interrupted{ctx, from}, tree.Size)
	if errors.Is(err, errLonger) {
		err = nil
	} else if err == nil && verifier.Verified() {
		err, made = out.Sync(), true
	}
	err = errors.Join(err, out.Close())
	if err == nil && made {
		c.db.At("whole: the layer is compressed")
		return true, c.keepMade(path, want.Digest)
	}
	c.unlike[want.Digest] = err == nil
	return false, errors.Join(err, os.Remove(path))
}

// errLonger means that a layer is longer than the signed one.
var errLonger = errors.New("longer than it was signed")

// bounded writes at most left bytes.
type bounded struct {
	io.Writer
	left int64
}

func (b *bounded) Write(p []byte) (int, error) {
	if b.left -= int64(len(p)); b.left < 0 {
		return 0, errLonger
	}
	return b.Writer.Write(p)
}

// interrupted reads until its context ends.
type interrupted struct {
	ctx context.Context
	io.Reader
}

func (i *interrupted) Read(p []byte) (int, error) {
	if err := i.ctx.Err(); err != nil {
		return 0, err
	}
	return i.Reader.Read(p)
}

// hasBlob reports whether a blob is here, going by its size.
func (c *Store) hasBlob(d ocispec.Descriptor) bool {
	info, err := os.Stat(c.blob(d.Digest))
	return err == nil && info.Mode().IsRegular() && info.Size() == d.Size
}

// KeepTrust has the trust documents in these envelopes in the store, as a registry has them. NamedTrust then names them.
func (c *Store) KeepTrust(ctx context.Context, envelopes [][]byte) error {
	for _, envelope := range envelopes {
		blobs, err := bundle.TrustManifest(envelope)
		if err != nil {
			return err
		}
		for _, b := range blobs {
			err := c.Blobs().Push(ctx, b.Descriptor, bytes.NewReader(b.Data))
			if err != nil && !errors.Is(err, errdef.ErrAlreadyExists) {
				return state.Local("store: %w", err)
			}
		}
	}
	return nil
}

// NamedTrust lists the trust documents in these envelopes, version 1 first.
func NamedTrust(envelopes [][]byte) ([]Named, error) {
	var all []Named
	for i, envelope := range envelopes {
		blobs, err := bundle.TrustManifest(envelope)
		if err != nil {
			return nil, err
		}
		all = append(all, Named{
			Repository: bundle.TrustRepository, Tag: bundle.TrustTag(int64(i) + 1), Manifest: blobs[len(blobs)-1].Descriptor,
		})
	}
	return all, nil
}

// Recheck deletes those of the blobs that do not have their digest, so that they are brought again.
func (c *Store) Recheck(ctx context.Context, blobs []digest.Digest) error {
	for _, d := range blobs {
		f, err := os.Open(c.blob(d))
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return state.Local("store: %w", err)
		}
		verifier := d.Verifier()
		_, err = io.Copy(verifier, &interrupted{ctx, f})
		if err = errors.Join(err, f.Close()); err == nil && !verifier.Verified() {
			err = c.remove(d)
		}
		if err != nil {
			return state.Local("store: %w", err)
		}
	}
	return nil
}

// moving lists the moving tags of each stream: they name the newest release whose content was checked and which is whole.
func (c *Store) moving(tx *bbolt.Tx, keep []*state.Release) []oci.Retained {
	if c.opts.Serving == nil {
		return nil
	}
	newest := map[[2]string]*state.Release{}
	for _, r := range keep {
		if r == nil || r.Release.Platform != c.opts.Serving.Platform || !c.whole(tx, r) {
			continue
		}
		for _, tag := range c.tagsOf(r.Release) {
			name := [2]string{r.Release.Stream().Repository(), tag}
			if old := newest[name]; old == nil || old.Order().Compare(r.Order()) < 0 {
				newest[name] = r
			}
		}
	}
	var all []oci.Retained
	for name, r := range newest {
		all = append(all, oci.Retained{Repository: name[0], Tag: name[1], Manifest: r.Manifest, Blobs: []digest.Digest{r.Tree.Digest, r.Release.Content.DiffID}})
	}
	slices.SortFunc(all, func(a, b oci.Retained) int {
		return bytes.Compare([]byte(a.Repository+" "+a.Tag), []byte(b.Repository+" "+b.Tag))
	})
	return all
}

// tagsOf are the moving tags that a publisher gives to a release, as far as the agent knows of their rings.
func (c *Store) tagsOf(r bundle.Release) (tags []string) {
	if len(r.Rings) == 0 {
		tags = []string{bundle.LatestTag}
		if c.opts.Serving.Ring != "" {
			tags = append(tags, bundle.MovingTag(c.opts.Serving.Ring))
		}
	}
	for _, ring := range r.Rings {
		tags = append(tags, bundle.MovingTag(ring))
	}
	return tags
}

// whole reports whether the store has the layer and the signature of a release that was staged: staging has compared its
// content with the signed digest.
func (c *Store) whole(tx *bbolt.Tx, r *state.Release) bool {
	staged, err := state.Load[digest.Digest](tx, BucketTrees, r.Release.Content.DiffID.Encoded())
	if err != nil || staged == "" {
		return false
	}
	signature, err := loadSignature(tx, r)
	return err == nil && signature.Digest != "" && c.hasBlob(signature) && c.hasBlob(r.Manifest) && c.hasBlob(r.Tree)
}
