package content

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	orascontent "oras.land/oras-go/v2/content"
	"oras.land/oras-go/v2/errdef"

	"github.com/wherry-dev/wherry/agent/state"
	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/oci"
)

// Wanted is a release that is to be in the layout, and what there is to make it of.
type Wanted struct {
	Release *state.Release
	// Documents has the manifest and the release document, and Layers the layers. A Layers that is no oci.Target is a
	// medium, which has no deltas and no window.
	Documents, Layers bundle.Source
	// Staged means that the tree is usable already: only the documents are brought, as far as they can be had.
	Staged bool
	// New means that no transfer of this release has begun, so that the parts of others are of no use any more.
	New bool
	// Bases are the releases from whose trees a delta may start. Keep are those whose content stays.
	Bases, Keep []*state.Release
}

// Bring fetches a release's tree into the layout, unless it came with another release. No other code moves many bytes.
// It fetches manifest and release document first, which a later pass needs. The error is a
// *bundle.Refusal if the content differs from the signed one, a *state.LocalError of this machine, the error of
// Options.Window, or one of the link.
func (c *Store) Bring(ctx context.Context, w Wanted) error {
	repo, err := c.repository(w.Release.Release.Stream())
	if err != nil {
		return state.Local("store: %w", err)
	}
	if err := c.index(w.Keep...); err != nil {
		return state.Local("store: %w", err)
	}
	m, err := c.keepDocuments(ctx, repo, w)
	if w.Staged {
		var here *state.LocalError
		if err != nil && !errors.As(err, &here) && ctx.Err() == nil {
			c.opts.Log.Info("the store lacks the documents of a release whose tree it has", "digest", w.Release.Digest(), "err", err)
			return nil
		}
	} else if err == nil {
		err = c.layer(ctx, repo, m, w)
	}
	if err != nil {
		return err
	}
	c.db.At("fetch: all is in the store")
	if err := c.index(w.Keep...); err != nil {
		return state.Local("store: %w", err)
	}
	return nil
}

// keepDocuments returns the release's manifest, and has it and the release document in the store.
func (c *Store) keepDocuments(ctx context.Context, repo oci.Target, w Wanted) (m ocispec.Manifest, err error) {
	data, err := c.document(ctx, repo, w.Documents, w.Release.Manifest, bundle.MaxManifestBytes)
	if err != nil {
		return m, fmt.Errorf("manifest: %w", err)
	}
	if err := json.Unmarshal(data, &m); err != nil {
		return m, fmt.Errorf("manifest: %w", err)
	}
	if _, err := c.document(ctx, repo, w.Documents, m.Config, bundle.MaxReleaseBytes); err != nil {
		return m, fmt.Errorf("release document: %w", err)
	}
	return m, nil
}

// document reads a small blob from the store, or else from the given place, and then has it in the store.
func (c *Store) document(ctx context.Context, repo oci.Target, from bundle.Source, d ocispec.Descriptor, limit int64) ([]byte, error) {
	inStore := d
	inStore.Data = nil
	data, err := bundle.ReadBlob(ctx, repo, inStore, limit)
	if err == nil {
		return data, nil
	}
	if err := c.remove(d.Digest); err != nil {
		return nil, state.Local("store: %w", err)
	}
	if data, err = bundle.ReadBlob(ctx, from, d, limit); err != nil {
		return nil, err
	}
	c.db.At("fetch: a document has arrived")
	if err := repo.Push(ctx, inStore, bytes.NewReader(data)); err != nil && !errors.Is(err, errdef.ErrAlreadyExists) {
		return nil, state.Local("store: %w", err)
	}
	return data, nil
}

// layer has the release's tree in the store: made by a delta from one that is here, or as the full layer.
func (c *Store) layer(ctx context.Context, repo oci.Target, m ocispec.Manifest, w Wanted) (err error) {
	if c.intact(ctx, w.Release) {
		return nil
	}
	if err := c.discard(w.Release); err != nil {
		return state.Local("store: %w", err)
	}
	c.db.At("fetch: the layer begins")
	from, ok := w.Layers.(oci.Target)
	if !ok {
		return c.copyLayer(ctx, repo, w)
	}
	if c.opts.Window != nil {
		inWindow, leave, err1 := c.opts.Window(ctx)
		if err1 != nil {
			return err1
		}
		ctx = inWindow
		defer func() { err = leave(err) }()
	}
	deltas := c.deltas(m, w)
	if w.New {
		wanted := []digest.Digest{w.Release.Tree.Digest}
		for _, d := range deltas {
			wanted = append(wanted, d.layer.Digest)
		}
		if err := c.layout.DropParts(ctx, wanted...); err != nil {
			return arrival(err)
		}
	}
	for _, d := range deltas {
		if made, err := c.byDelta(ctx, from, d, w); made || err != nil {
			return err
		}
	}
	return c.download(ctx, from, w.Release.Tree)
}

func (c *Store) download(ctx context.Context, from oci.Target, blob ocispec.Descriptor) error {
	return arrival(c.DownloadBlob(ctx, from, blob, c.opts.Download))
}

// arrival classifies the error of a download: of the link, of the registry, if it has other content than the signed one,
// or of this machine.
func arrival(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, orascontent.ErrMismatchedDigest), errors.Is(err, orascontent.ErrTrailingData):
		return &bundle.Refusal{Reason: bundle.DigestMismatch, Message: bundle.Clip("layer: " + err.Error())}
	case errors.As(err, new(*oci.DiskError)):
		return state.Local("store: %w", err)
	}
	return fmt.Errorf("layer: %w", err)
}

// copyLayer copies the layer from a medium. It reads at most the signed size. The written blob has the signed digest, or
// is removed.
func (c *Store) copyLayer(ctx context.Context, repo oci.Target, w Wanted) error {
	desc := w.Release.Tree
	body, err := w.Layers.Fetch(ctx, desc)
	if err != nil {
		return mediumError(err)
	}
	defer body.Close()
	remote := &noted{Reader: body}
	err = repo.Push(ctx, desc, remote)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, orascontent.ErrMismatchedDigest), errors.Is(err, orascontent.ErrTrailingData):
		return bundle.Refuse(bundle.DigestMismatch, "layer %s: the bytes received have another digest", desc.Digest)
	case remote.err != nil:
		return mediumError(remote.err)
	case errors.Is(err, io.ErrUnexpectedEOF):
		return fmt.Errorf("layer %s: %w", desc.Digest, err)
	}
	return state.Local("store: %w", err)
}

// mediumError tells a medium that cannot be read from one whose content cannot be the signed layer, such as one
// of another length.
func mediumError(err error) error {
	switch {
	case errors.As(err, new(*bundle.Refusal)), errors.As(err, new(*fs.PathError)), errors.Is(err, context.Canceled),
		errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, errdef.ErrNotFound):
		return fmt.Errorf("layer: %w", err)
	}
	return &bundle.Refusal{Reason: bundle.DigestMismatch, Message: bundle.Clip("layer: " + err.Error())}
}

// noted remembers the error of its reader, which the writer's error then is not.
type noted struct {
	io.Reader
	err error
}

func (n *noted) Read(p []byte) (int, error) {
	k, err := n.Reader.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		n.err = err
	}
	return k, err
}
