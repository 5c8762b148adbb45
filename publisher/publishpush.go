package publisher

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2/errdef"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/oci"
)

// errRace means that another publisher changed a repository at the same time.
var errRace = errors.New("another publisher is at work there")

// push sends all parts of a. Nothing of it is visible before settle, except the signature, which is found
// by the manifest's digest alone.
func (p *publication) push(ctx context.Context, repo oci.Target, a artifact) error {
	for _, b := range append(a.blobs, a.manifest) {
		if err := pushBlob(ctx, repo, b); err != nil {
			return err
		}
	}
	return pushSignatures(ctx, repo, a.signed, bundle.SignatureTag(a.manifest.Descriptor.Digest))
}

// putTag takes it for another's work where what was pushed, or found, before is not there any more.
func putTag(ctx context.Context, repo oci.Target, desc ocispec.Descriptor, tag string) error {
	err := repo.Tag(ctx, desc, tag)
	if errors.Is(err, errdef.ErrNotFound) {
		return fmt.Errorf("%w: %w", errRace, err)
	}
	return err
}

func pushBlob(ctx context.Context, repo oci.Target, b bundle.Blob) error {
	_, err := oci.CopyBlob(ctx, nil, repo, b.WithData())
	return err
}

// settle makes the complete artifact desc visible: first under its own tag, then under the moving ones,
// and says whether that changed anything. Registries cannot compare and swap, so it looks before and after: it
// returns errRace when own is taken, when a moving tag is not what seen says, or when a newer tag than own has
// come since, whose publisher may have moved the moving ones first.
func settle(ctx context.Context, repo oci.Target, desc ocispec.Descriptor, own string, moving []string, seen tags) (changed bool, err error) {
	now, err := current(ctx, repo, own)
	if err != nil {
		return false, err
	}
	if now == "" {
		if err := putTag(ctx, repo, desc, own); err != nil {
			return false, err
		}
		changed = true
	}
	if err := readBack(ctx, repo, own, desc.Digest); err != nil {
		return changed, err
	}
	moved := false
	for _, tag := range moving {
		now, err := current(ctx, repo, tag)
		if err != nil {
			return changed, err
		}
		if now == desc.Digest {
			continue
		}
		if now != seen.moving[tag] {
			return changed, fmt.Errorf("tag %s: %w", tag, errRace)
		}
		if err := putTag(ctx, repo, desc, tag); err != nil {
			return changed, err
		}
		moved = true
	}
	if !moved {
		return changed, nil
	}
	if err := readBack(ctx, repo, own, desc.Digest); err != nil {
		return true, err
	}
	return true, noneAbove(ctx, repo, own, seen)
}

// noneAbove returns errRace where repo has tags of newer releases than own's that are not among those seen.
func noneAbove(ctx context.Context, repo oci.Target, own string, seen tags) error {
	all, err := repo.Tags(ctx)
	if err != nil {
		return err
	}
	for _, tag := range (tags{all: all}).releases() {
		if tag == own {
			break
		}
		if !slices.Contains(seen.all, tag) {
			return fmt.Errorf("tag %s: %w", tag, errRace)
		}
	}
	return nil
}

// current returns what tag points at, or nothing.
func current(ctx context.Context, repo oci.Target, tag string) (digest.Digest, error) {
	desc, err := repo.Resolve(ctx, tag)
	if errors.Is(err, errdef.ErrNotFound) {
		return "", nil
	}
	return desc.Digest, err
}

func readBack(ctx context.Context, repo oci.Target, tag string, want digest.Digest) error {
	got, err := current(ctx, repo, tag)
	if err == nil && got != want {
		err = fmt.Errorf("tag %s: %w", tag, errRace)
	}
	return err
}
