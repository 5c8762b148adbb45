package agent

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2/content"
	"oras.land/oras-go/v2/errdef"
	"oras.land/oras-go/v2/registry/remote/errcode"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/oci"
)

// fetch brings the target's layer into the store, unless its tree is here already. It is the one place
// that moves many bytes.
func (p *pass) fetch(ctx context.Context) outcome {
	switch _, err := p.content.assignments(p.target); {
	case err == nil && p.target.digest() == p.running.digest() && !p.isRefused(p.target):
		return idle
	case err == nil:
		p.staged = true
		return done
	}
	repo, err := p.content.repository(p.target.Release.Stream())
	if err != nil {
		return outcomeOf(ctx, local("store: %w", err))
	}
	if err := p.store(ctx, repo); err != nil {
		return outcomeOf(ctx, err)
	}
	return done
}

// store copies layer, release document and manifest, and tags the manifest when all of it is on disk.
func (p *pass) store(ctx context.Context, repo oci.Target) error {
	if p.memo == nil || p.memo.data.Len() == 0 {
		p.memo = &memo{Source: p.offer, want: p.target.digest()}
		if _, err := bundle.ReadBlob(ctx, p.memo, p.target.Manifest, bundle.MaxManifestBytes); err != nil {
			return fmt.Errorf("manifest: %w", err)
		}
	}
	var m ocispec.Manifest
	if err := json.Unmarshal(p.memo.data.Bytes(), &m); err != nil {
		return fmt.Errorf("manifest: %w", err)
	}
	if err := p.copyLayer(ctx, repo); err != nil {
		return err
	}
	document, err := bundle.ReadBlob(ctx, p.offer, m.Config, bundle.MaxReleaseBytes)
	if err != nil {
		return fmt.Errorf("release document: %w", err)
	}
	for _, b := range []bundle.Blob{{Descriptor: m.Config, Data: document}, {Descriptor: p.target.Manifest, Data: p.memo.data.Bytes()}} {
		if err := repo.Push(ctx, b.Descriptor, bytes.NewReader(b.Data)); err != nil && !errors.Is(err, errdef.ErrAlreadyExists) {
			return local("store: %w", err)
		}
	}
	if err := repo.Tag(ctx, p.target.Manifest, p.target.Release.Tag()); err != nil {
		return local("store: %w", err)
	}
	return nil
}

// copyLayer reads no more than the signed size. What it has written has the signed digest, or is gone.
func (p *pass) copyLayer(ctx context.Context, repo oci.Target) error {
	desc := p.target.Tree
	if p.content.intact(ctx, p.target) {
		return nil
	}
	if err := p.content.discard(p.target); err != nil {
		return local("store: %w", err)
	}
	body, err := p.offer.Fetch(ctx, desc)
	if err != nil {
		return layerError(err)
	}
	defer body.Close()
	remote := &noted{Reader: body}
	err = repo.Push(ctx, desc, remote)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, content.ErrMismatchedDigest), errors.Is(err, content.ErrTrailingData):
		return &bundle.Refusal{Reason: bundle.DigestMismatch, Message: fmt.Sprintf("layer %s: the bytes received have another digest", desc.Digest)}
	case remote.err != nil:
		return layerError(remote.err)
	case errors.Is(err, io.ErrUnexpectedEOF):
		return fmt.Errorf("layer %s: %w", desc.Digest, err) // cut short: a matter of the link
	}
	return local("store: %w", err)
}

// layerError tells a link that failed from an answer that cannot be the signed layer, such as one of
// another length.
func layerError(err error) error {
	var onDisk *fs.PathError
	switch {
	case errors.As(err, new(*bundle.Refusal)), errors.As(err, &onDisk), errors.Is(err, context.Canceled),
		errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, errdef.ErrNotFound),
		errors.Is(err, oci.ErrUnreachable), errors.Is(err, oci.ErrUnauthorized), errors.As(err, new(*errcode.ErrorResponse)):
		return fmt.Errorf("layer: %w", err)
	}
	return &bundle.Refusal{Reason: bundle.DigestMismatch, Message: "layer: " + err.Error()}
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
