package oci

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2/content"
	"oras.land/oras-go/v2/errdef"
)

// Copy copies a manifest or index with everything that it names, and returns the number of bytes sent. It writes content
// before the manifest that names it, so an interrupted copy leaves no incomplete manifest and can be repeated.
//
// Unlike oras.CopyGraph, it checks that every part exists, even below a manifest that the destination has: after a
// restore or a mistake of a garbage collector, a manifest does not prove that its layers exist. A manifest may have up to
// 4 MiB. Content that does not match its descriptor is not written. The caller tags the copy; see Target.Tag.
func Copy(ctx context.Context, from content.Fetcher, to content.Storage, root ocispec.Descriptor) (sent int64, err error) {
	return copyGraph(ctx, from, to, root, map[digest.Digest]bool{})
}

// CopyBlob copies one blob, or one manifest without its parts, and returns the number of bytes sent: zero if the
// destination has it already. It sends d.Data if d has any, or if from is nil.
func CopyBlob(ctx context.Context, from content.Fetcher, to content.Storage, d ocispec.Descriptor) (sent int64, err error) {
	if err := d.Digest.Validate(); err != nil {
		return 0, fmt.Errorf("descriptor of %.100q: %w", d.MediaType, err)
	}
	if there, err := to.Exists(ctx, Plain(d)); err != nil || there {
		return 0, err
	}
	switch err := push(ctx, from, to, d); {
	case errors.Is(err, errdef.ErrAlreadyExists):
		return 0, nil
	case err != nil:
		return 0, err
	}
	return d.Size, nil
}

// push writes d. It checks d.Data against the digest, because a registry may store content without checking it.
func push(ctx context.Context, from content.Fetcher, to content.Storage, d ocispec.Descriptor) error {
	if len(d.Data) > 0 || from == nil {
		if err := checkData(d); err != nil {
			return err
		}
		return to.Push(ctx, Plain(d), bytes.NewReader(d.Data)) // which can be sent twice; see Target
	}
	body, err := from.Fetch(ctx, Plain(d))
	if err != nil {
		return err
	}
	defer body.Close()
	return to.Push(ctx, Plain(d), body)
}

func copyGraph(ctx context.Context, from content.Fetcher, to content.Storage, d ocispec.Descriptor, done map[digest.Digest]bool) (sent int64, err error) {
	if done[d.Digest] {
		return 0, nil
	}
	done[d.Digest] = true
	if isManifest(d.MediaType) {
		if d.Size > maxManifestBytes {
			return 0, fmt.Errorf("manifest %s has %d bytes, at most %d are allowed", d.Digest, d.Size, maxManifestBytes)
		}
		if len(d.Data) > 0 {
			err = checkData(d)
		} else {
			d.Data, err = content.FetchAll(ctx, from, d)
		}
		if err != nil {
			return 0, err
		}
		var named references
		if err := json.Unmarshal(d.Data, &named); err != nil {
			return 0, fmt.Errorf("manifest %s: %w", d.Digest, err)
		}
		for _, part := range named.all() {
			n, err := copyGraph(ctx, from, to, part, done)
			sent += n
			if err != nil {
				return sent, err
			}
		}
	}
	n, err := CopyBlob(ctx, from, to, d)
	return sent + n, err
}

func checkData(d ocispec.Descriptor) error {
	if err := d.Digest.Validate(); err != nil {
		return fmt.Errorf("%.100q: %w", d.Digest, err)
	}
	if int64(len(d.Data)) != d.Size || d.Digest.Algorithm().FromBytes(d.Data) != d.Digest {
		return fmt.Errorf("data of descriptor %s: %w", d.Digest, content.ErrMismatchedDigest)
	}
	return nil
}

// isManifest reports whether content of this media type names other content.
func isManifest(mediaType string) bool {
	switch mediaType {
	case ocispec.MediaTypeImageManifest, ocispec.MediaTypeImageIndex,
		"application/vnd.docker.distribution.manifest.v2+json", "application/vnd.docker.distribution.manifest.list.v2+json":
		return true
	}
	return false
}
