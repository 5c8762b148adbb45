// Package delta encodes a tree as its difference from an earlier one, so that only the changes
// go over a slow link.
//
// A publisher calls Make for the trees that agents are likely to have, and keeps the deltas that are Worth it; an agent that
// has one of them calls Apply. A delta is a zstd frame whose dictionary is the base, so that
// "zstd -d --patch-from=BASE" reads it too. It needs no signature of its own: Apply returns the signed tree or an error,
// and after an error the agent fetches the full layer.
//
// Both hold whole trees in memory. Job does the same from file to file in a process of its own, whose memory is freed when
// it ends.
package delta

import (
	"errors"
	"fmt"
	"math/bits"

	"github.com/klauspost/compress/zstd"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2/errdef"

	"github.com/wherry-dev/wherry/bundle"
)

const (
	// MediaType is the type of a layer that is a delta.
	MediaType = "application/vnd.wherry.delta.v1+zstd"
	// AnnotationFrom is the annotation of such a layer with the digest of its base, an uncompressed tar.
	AnnotationFrom = "dev.wherry.delta.from"
	// MaxLayers bounds the deltas of a release, since their descriptors cost every agent bytes.
	MaxLayers = 4
	// MaxTreeBytes bounds both trees: above it the memory that a delta takes at either end is not worth it.
	MaxTreeBytes = 64 << 20
	// MaxBytes bounds a delta. One that is worth it has less than half a full layer's bytes.
	MaxBytes = MaxTreeBytes / 2
	// smallBytes bounds the size of two small trees together. Up to it, a lower level of the compressor finds the
	// same matches in a fifth of the time and with a tenth of the memory.
	smallBytes = 4 << 20
)

// MissingError means that a place has a release without one of its deltas. The endpoints of agents do: who reads there takes
// the whole layer.
type MissingError struct {
	Delta digest.Digest
	Err   error
}

func (e *MissingError) Error() string { return fmt.Sprintf("a delta is missing: %v", e.Err) }
func (e *MissingError) Unwrap() error { return e.Err }

// Missing returns err as a MissingError if it means that the place lacks the content of d, and d is a delta.
func Missing(d ocispec.Descriptor, err error) error {
	if d.MediaType == MediaType && errors.Is(err, errdef.ErrNotFound) {
		return &MissingError{d.Digest, err}
	}
	return err
}

// Small reports whether Make of trees with these sizes, in bytes, is so cheap that it needs no process of its own: at most
// 100 ms, and 24 MiB including the trees. Use Job for larger trees.
func Small(base, next int64) bool { return base+next <= smallBytes }

// Worth reports whether a delta is small enough to be published beside the full layer: less than half of it.
func Worth(delta, full int64) bool { return delta < full/2 && delta <= MaxBytes }

// Make returns the delta from base to next, which are uncompressed tars. It takes some milliseconds for trees of
// a few hundred assignments, and some seconds for the largest. The same input gives the same bytes with one version
// of the compressor.
func Make(base, next []byte) ([]byte, error) {
	if err := check(int64(len(base)), int64(len(next))); err != nil {
		return nil, err
	}
	level := zstd.SpeedBestCompression // lower levels forget most of a large base
	if Small(int64(len(base)), int64(len(next))) {
		level = zstd.SpeedBetterCompression
	}
	w, err := zstd.NewWriter(nil,
		zstd.WithEncoderDictRaw(0, base),
		zstd.WithEncoderLevel(level),
		zstd.WithWindowSize(window(len(base), len(next))),
		zstd.WithEncoderConcurrency(1), // each further encoder would take tables of its own
		zstd.WithLowerEncoderMem(true),
		zstd.WithEncoderCRC(false), // the tree has a digest
		zstd.WithZeroFrames(true),  // an empty output would be no delta
	)
	if err != nil {
		return nil, fmt.Errorf("make a delta: %w", err)
	}
	defer w.Close()
	return w.EncodeAll(next, nil), nil
}

// window returns the next power of two that reaches from the end of the new tree to the start of its base. The compressor
// would silently ignore matches further back.
func window(base, next int) int {
	return 1 << bits.Len(uint(max(base+next, zstd.MinWindowSize)-1))
}

// Apply returns the tree with the signed content want, made from base and delta. Its errors are of type *bundle.Refusal:
// after any of them, fetch the full layer, and do not refuse the release. It allocates want.Size bytes, whatever size
// the delta claims.
func Apply(base, delta []byte, want bundle.Content) ([]byte, error) {
	if err := check(int64(len(base)), want.Size); err != nil {
		return nil, err
	}
	if len(delta) > MaxBytes {
		return nil, bundle.Refuse(bundle.TooLarge, "delta has %d bytes, at most %d are allowed", len(delta), MaxBytes)
	}
	r, err := zstd.NewReader(nil,
		zstd.WithDecoderDictRaw(0, base),
		zstd.WithDecoderConcurrency(1),
		zstd.WithDecoderMaxWindow(uint64(window(len(base), int(want.Size)))),
		zstd.WithDecoderMaxMemory(uint64(max(want.Size, zstd.MinWindowSize))),
		zstd.WithDecodeAllCapLimit(true), // it does not grow the given buffer
	)
	if err != nil {
		return nil, bundle.Refuse(bundle.BadContent, "delta: %v", err)
	}
	defer r.Close()
	tree, err := r.DecodeAll(delta, make([]byte, 0, want.Size))
	switch {
	case err != nil:
		return nil, bundle.Refuse(bundle.BadContent, "delta cannot be applied: %v", err)
	case int64(len(tree)) != want.Size:
		return nil, bundle.Refuse(bundle.BadContent, "delta makes a tree of %d bytes, signed are %d", len(tree), want.Size)
	case digest.FromBytes(tree) != want.DiffID:
		return nil, bundle.Refuse(bundle.DigestMismatch, "delta makes a tree that is not the signed %s", want.DiffID)
	}
	return tree, nil
}

func check(base, next int64) error {
	if base > MaxTreeBytes || next > MaxTreeBytes || next < 0 {
		return bundle.Refuse(bundle.TooLarge, "there are no deltas of trees above %d bytes, and these have %d and %d", MaxTreeBytes, base, next)
	}
	return nil
}
