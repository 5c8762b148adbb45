// Package releases signs and writes the releases and records of one repository of a registry or OCI layout.
//
// [Signer.Sign] makes the [Artifact] of a manifest, and [Artifact.Push] sends it with its signatures. [Settle] makes a pushed
// release visible. If several keys have to sign, [Wait] shows it to those who are to sign it, and [Signer.Cosign] adds their
// signatures. Registries have no compare-and-swap, so writers read the tags before and after a write: [ErrRace] means that
// another writer interfered, and that the caller has to plan anew, at most [MaxRaces] times. The package verifies no signature.
package releases

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2/errdef"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/oci"
	"github.com/wherry-dev/wherry/published"
)

// ErrRace means that another publisher changed a repository at the same time.
var ErrRace = errors.New("another publisher is at work there")

// PutTag sets tag to desc; see [oci.Target] for a desc with data. The error wraps [ErrRace] where desc, which was pushed or found
// before, or something that it names, is gone.
func PutTag(ctx context.Context, repo oci.Target, desc ocispec.Descriptor, tag string) error {
	err := repo.Tag(ctx, desc, tag)
	if errors.Is(err, errdef.ErrNotFound) {
		return fmt.Errorf("%w: %w", ErrRace, err)
	}
	return err
}

// PushBlob sends b unless repo has it.
func PushBlob(ctx context.Context, repo oci.Target, b bundle.Blob) error {
	_, err := oci.CopyBlob(ctx, nil, repo, b.WithData())
	return err
}

// PushNew sends b, which was made just now, without asking whether repo has it.
func PushNew(ctx context.Context, repo oci.Target, b bundle.Blob) error {
	err := repo.Push(ctx, b.Descriptor, bytes.NewReader(b.Data))
	if errors.Is(err, errdef.ErrAlreadyExists) {
		return nil
	}
	return err
}

// Settle makes the complete artifact desc, with or without data, visible: first under its own tag, then under the moving ones,
// and reports whether that changed anything. Registries cannot compare and swap, so it looks before and after: it
// returns ErrRace when own is taken, when a moving tag is not what seen says, or when a newer tag than own has
// come since, whose publisher may have moved the moving ones first. It looks at the moving tags before it sets own, so that
// a publisher that was slower leaves no release of its own behind, with the number of the other's; two that come to this point
// at the same moment still do.
func Settle(ctx context.Context, repo oci.Target, desc ocispec.Descriptor, own string, moving []string, seen published.Tags) (changed bool, err error) {
	now, err := Current(ctx, repo, own)
	if err != nil {
		return false, err
	}
	if now == "" {
		for _, tag := range moving {
			if _, err := isDue(ctx, repo, desc, tag, seen); err != nil {
				return false, err
			}
		}
		if err := PutTag(ctx, repo, desc, own); err != nil {
			return false, err
		}
		changed = true
	}
	if err := ReadBack(ctx, repo, own, desc.Digest); err != nil {
		return changed, err
	}
	moved := false
	for _, tag := range moving {
		due, err := isDue(ctx, repo, desc, tag, seen)
		if err != nil {
			return changed, err
		}
		if !due {
			continue
		}
		if err := PutTag(ctx, repo, desc, tag); err != nil {
			return changed, err
		}
		moved = true
	}
	if !moved {
		return changed, nil
	}
	if err := ReadBack(ctx, repo, own, desc.Digest); err != nil {
		return true, err
	}
	return true, noneAbove(ctx, repo, own, seen)
}

// isDue reports whether a moving tag is to be moved to desc. It returns ErrRace if the tag is not what seen says.
func isDue(ctx context.Context, repo oci.Target, desc ocispec.Descriptor, tag string, seen published.Tags) (bool, error) {
	now, err := Current(ctx, repo, tag)
	if err == nil && now != desc.Digest && now != seen.Moving[tag] {
		err = fmt.Errorf("tag %s: %w", tag, ErrRace)
	}
	return now != desc.Digest, err
}

// noneAbove returns ErrRace where repo has tags of newer releases than own's that are not among those seen.
func noneAbove(ctx context.Context, repo oci.Target, own string, seen published.Tags) error {
	all, err := repo.Tags(ctx)
	if err != nil {
		return err
	}
	for _, tag := range (published.Tags{All: all}).Releases() {
		if tag == own {
			break
		}
		if !slices.Contains(seen.All, tag) {
			return fmt.Errorf("tag %s: %w", tag, ErrRace)
		}
	}
	return nil
}

// Wait makes a complete artifact visible to those who are to sign it, and to nobody else.
func Wait(ctx context.Context, repo oci.Target, desc ocispec.Descriptor, tag string) error {
	now, err := Current(ctx, repo, tag)
	if err != nil {
		return err
	}
	if now == "" {
		if err := PutTag(ctx, repo, desc, tag); err != nil {
			return err
		}
	}
	return ReadBack(ctx, repo, tag, desc.Digest)
}

// Current returns what tag points at, or nothing.
func Current(ctx context.Context, repo oci.Target, tag string) (digest.Digest, error) {
	desc, err := repo.Resolve(ctx, tag)
	if errors.Is(err, errdef.ErrNotFound) {
		return "", nil
	}
	return desc.Digest, err
}

// ReadBack returns an error wrapping [ErrRace] unless tag names want.
func ReadBack(ctx context.Context, repo oci.Target, tag string, want digest.Digest) error {
	got, err := Current(ctx, repo, tag)
	if err == nil && got != want {
		err = fmt.Errorf("tag %s: %w", tag, ErrRace)
	}
	return err
}

// MaxRaces is how often a release is made anew because another publisher was faster.
const MaxRaces = 5
