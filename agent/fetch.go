package agent

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2/content"
	"oras.land/oras-go/v2/errdef"

	"github.com/wherry-dev/wherry/agent/state"
	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/oci"
)

// fetch brings the target's tree into the store, unless it is here already, under whatever release it came.
// It is the one place that moves many bytes.
func (p *pass) fetch(ctx context.Context) outcome {
	if p.passesOver(p.target) {
		return idle
	}
	_, err := p.content.assignments(p.target)
	p.staged = err == nil
	if p.staged && p.target.digest() == p.running.digest() && !p.isRefused(p.target) {
		return idle
	}
	return outcomeOf(ctx, p.bring(ctx))
}

// bring keeps manifest and release document first, so that what a later pass needs of them is here.
func (p *pass) bring(ctx context.Context) error {
	repo, err := p.content.repository(p.target.Release.Stream())
	if err != nil {
		return state.Local("store: %w", err)
	}
	if err := p.content.index(p.kept()...); err != nil {
		return state.Local("store: %w", err)
	}
	m, err := p.keepDocuments(ctx, repo)
	if p.staged {
		var here *state.LocalError
		if err != nil && !errors.As(err, &here) && ctx.Err() == nil {
			p.opts.Log.Info("the store lacks the documents of a release whose tree it has", "digest", p.target.digest(), "err", err)
			return nil
		}
	} else if err == nil {
		err = p.layer(ctx, repo, m)
	}
	if err != nil {
		return err
	}
	p.state.db.At("fetch: all is in the store")
	if err := p.content.index(p.kept()...); err != nil {
		return state.Local("store: %w", err)
	}
	return nil
}

// kept are the releases whose content stays in the store: what runs, what is to run, what ran well last and
// what did before, for a person who goes back to that without a link, and what a person has decided for. Deltas
// start from what runs and what ran well last.
func (p *pass) kept() []*release {
	kept := []*release{p.target, p.accepted, p.running, p.good, p.former}
	if p.held != nil {
		kept = append(kept, p.held.To)
	}
	return kept
}

// keepDocuments returns the target's manifest, and has it and the release document in the store.
func (p *pass) keepDocuments(ctx context.Context, repo oci.Target) (m ocispec.Manifest, err error) {
	data, err := p.document(ctx, repo, p.target.Manifest, bundle.MaxManifestBytes)
	if err != nil {
		return m, fmt.Errorf("manifest: %w", err)
	}
	if err := json.Unmarshal(data, &m); err != nil {
		return m, fmt.Errorf("manifest: %w", err)
	}
	if _, err := p.document(ctx, repo, m.Config, bundle.MaxReleaseBytes); err != nil {
		return m, fmt.Errorf("release document: %w", err)
	}
	return m, nil
}

// document reads a small blob from the store, or else from the offer, and then has it in the store.
func (p *pass) document(ctx context.Context, repo oci.Target, d ocispec.Descriptor, limit int64) ([]byte, error) {
	inStore := d
	inStore.Data = nil
	data, err := bundle.ReadBlob(ctx, repo, inStore, limit)
	if err == nil {
		return data, nil
	}
	if err := p.content.remove(d.Digest); err != nil {
		return nil, state.Local("store: %w", err)
	}
	if data, err = bundle.ReadBlob(ctx, p.from, d, limit); err != nil {
		return nil, err
	}
	p.state.db.At("fetch: a document has arrived")
	if err := repo.Push(ctx, inStore, bytes.NewReader(data)); err != nil && !errors.Is(err, errdef.ErrAlreadyExists) {
		return nil, state.Local("store: %w", err)
	}
	return data, nil
}

// layer has the target's tree in the store: made by a delta from one that is here, or as the full layer.
func (p *pass) layer(ctx context.Context, repo oci.Target, m ocispec.Manifest) (err error) {
	if p.content.intact(ctx, p.target) {
		return nil
	}
	if err := p.content.discard(p.target); err != nil {
		return state.Local("store: %w", err)
	}
	p.state.db.At("fetch: the layer begins")
	from, ok := p.offer.(oci.Target)
	if !ok {
		return p.copyLayer(ctx, repo)
	}
	ctx, leave, err := p.opts.Window.enter(ctx, p.opts.Now())
	if err != nil {
		return err
	}
	defer func() { err = leave(err) }()
	deltas := p.deltas(m)
	if p.taken {
		wanted := []digest.Digest{p.target.Tree.Digest}
		for _, d := range deltas {
			wanted = append(wanted, d.layer.Digest)
		}
		if err := p.content.layout.DropParts(ctx, wanted...); err != nil {
			return arrival(err)
		}
	}
	for _, d := range deltas {
		if made, err := p.byDelta(ctx, from, d); made || err != nil {
			return err
		}
	}
	return p.download(ctx, from, p.target.Tree)
}

func (p *pass) download(ctx context.Context, from oci.Target, blob ocispec.Descriptor) error {
	return arrival(p.content.download(ctx, from, blob, p.opts.Download))
}

// arrival gives the errors of a download their kind: the link's, the registry's, who has something else than was
// signed, or this machine's.
func arrival(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, content.ErrMismatchedDigest), errors.Is(err, content.ErrTrailingData):
		return &bundle.Refusal{Reason: bundle.DigestMismatch, Message: bundle.Clip("layer: " + err.Error())}
	case errors.Is(err, oci.ErrUnreachable), errors.Is(err, oci.ErrUnauthorized), errors.Is(err, errdef.ErrNotFound),
		errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("layer: %w", err)
	case errors.As(err, new(*fs.PathError)), errors.As(err, new(*os.LinkError)), errors.As(err, new(*os.SyscallError)):
		return state.Local("store: %w", err)
	}
	return fmt.Errorf("layer: %w", err)
}

// copyLayer is for media. It reads no more than the signed size. What it has written has the signed digest, or
// is gone.
func (p *pass) copyLayer(ctx context.Context, repo oci.Target) error {
	desc := p.target.Tree
	body, err := p.offer.Fetch(ctx, desc)
	if err != nil {
		return mediumError(err)
	}
	defer body.Close()
	remote := &noted{Reader: body}
	err = repo.Push(ctx, desc, remote)
	p.state.db.At("import: the layer is in the store")
	switch {
	case err == nil:
		return nil
	case errors.Is(err, content.ErrMismatchedDigest), errors.Is(err, content.ErrTrailingData):
		return &bundle.Refusal{Reason: bundle.DigestMismatch, Message: fmt.Sprintf("layer %s: the bytes received have another digest", desc.Digest)}
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
