package graph

import (
	"errors"
	"fmt"
	"strings"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2/errdef"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/oci"
)

// The bounds of the referrers of one artifact, which anybody may have pushed who can write to its repository.
const (
	maxReferrers     = 64
	maxReferrerBytes = 64 << 20 // of all their manifests and blobs
	maxReferrerHead  = 4 << 20  // of all their manifests
)

// Referrer is a signature, an attestation or an SBOM of an artifact, or another artifact about it.
type Referrer struct {
	// Tag is cosign's tag for it; empty for one that names its subject itself.
	Tag string
	Graph
}

// Bytes returns the size of its manifests and blobs.
func (r Referrer) Bytes() (total int64) {
	for _, d := range r.All() {
		total += d.Size
	}
	return total
}

// WalkReferrers returns the referrers of the manifests of g, and their own: an SBOM may be signed too. Look lists those of one
// manifest, and get reads a manifest. Nobody vouches for referrers, so those that are damaged or gone, and those beyond a bound, are left
// out, each with a text in leftOut; a look that does not find the manifest has none. The error is that of look, or of get if it is neither
// an *InvalidError nor a *bundle.Refusal.
func WalkReferrers(g Graph, look func(ocispec.Descriptor) ([]oci.Referrer, error), get func(ocispec.Descriptor) ([]byte, error)) (all []Referrer, leftOut []string, err error) {
	seen := map[digest.Digest]bool{}
	for _, d := range g.Manifests {
		seen[d.Digest] = true
	}
	var total, head int64
	for queue := g.Manifests; len(queue) > 0; queue = queue[1:] {
		found, err := look(queue[0])
		if err != nil && !errors.Is(err, errdef.ErrNotFound) {
			return nil, nil, err
		}
		for _, f := range found {
			known := seen[f.Digest]
			if known && f.Tag == "" {
				continue
			}
			seen[f.Digest] = true
			r := Referrer{Tag: f.Tag}
			r.Graph, err = Walk(f.Descriptor, nil, func(d ocispec.Descriptor) ([]byte, error) {
				if head+d.Size > maxReferrerHead {
					return nil, Invalid("the manifests of all referrers have more than %d bytes", maxReferrerHead)
				}
				head += d.Size
				return get(d)
			})
			switch {
			case err == nil && len(all) == maxReferrers:
				err = Invalid("there are more than %d", maxReferrers)
			case err == nil && total+r.Bytes() > maxReferrerBytes:
				err = Invalid("all of them have more than %d bytes", maxReferrerBytes)
			case err == nil:
				total += r.Bytes()
				all = append(all, r)
				if !known && !isLeaf(f) {
					queue = append(queue, r.Manifests[0])
				}
				continue
			}
			if !isTheirs(err) {
				return nil, nil, err
			}
			if leftOut = append(leftOut, fmt.Sprintf("referrer %s of %s: %v", f.Digest, queue[0].Digest, err)); len(leftOut) == maxReferrers {
				return all, leftOut, nil
			}
		}
	}
	return all, leftOut, nil
}

// isLeaf reports whether a referrer has none: nobody signs a signature.
func isLeaf(r oci.Referrer) bool {
	return strings.HasSuffix(r.Tag, ".sig") || strings.HasSuffix(r.Tag, ".att")
}

// isTheirs reports whether an error is about the content of one referrer.
func isTheirs(err error) bool {
	return errors.As(err, new(*InvalidError)) || errors.As(err, new(*bundle.Refusal)) || errors.Is(err, errdef.ErrNotFound)
}
