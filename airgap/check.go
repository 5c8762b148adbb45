package airgap

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/wherry-dev/wherry/bundle/graph"
	"github.com/wherry-dev/wherry/bundle/oci/archive"
)

// Checked is what Check has found.
type Checked struct {
	// Blobs is the number of blobs that were read, and Bytes the sum of their sizes.
	Blobs int   `json:"blobs"`
	Bytes int64 `json:"bytes"`
	// Faults are sorted by the name that needs the blob. None means that all is as it was written.
	Faults []Fault `json:"faults"`
}

// Fault is a blob that is not as it should be.
type Fault struct {
	Digest digest.Digest `json:"digest"`
	// Text is what is wrong with it.
	Text string `json:"text"`
	// NeededBy are the names of the index, such as bundles/dev/drone/latest, that need it, sorted.
	NeededBy []string `json:"neededBy,omitempty"`
}

// Check reads the rest of a package, each byte of it, and compares every blob with its digest. It looks for what a manifest names
// and the package neither holds nor says to leave out. Of an index, what is for other platforms may be missing. It verifies no
// signature. Progress, if set, is called with the bytes that were read.
//
// The error is that of a package that cannot be read to its end; it wraps ErrFormat if it is cut short.
func Check(ctx context.Context, r *Reader, progress func(done int64)) (Checked, error) {
	c := &checking{names: map[digest.Digest]references{}, faults: map[digest.Digest]string{}, here: map[digest.Digest]bool{}}
	for {
		if ctx.Err() != nil {
			return c.Checked, context.Cause(ctx)
		}
		e, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err == nil {
			err = c.blob(e)
		}
		if err != nil {
			return c.Checked, err
		}
		if progress != nil {
			progress(c.Bytes)
		}
	}
	c.conclude(r)
	return c.Checked, nil
}

type checking struct {
	Checked
	names  map[digest.Digest]references // of what may be a manifest
	faults map[digest.Digest]string
	here   map[digest.Digest]bool
}

// blob reads a blob. The error is that of reading.
func (c *checking) blob(e Entry) error {
	hash := digest.SHA256.Digester()
	if e.Size > graph.MaxManifestBytes {
		if n, err := io.Copy(hash.Hash(), e.Content); err != nil || n != e.Size {
			return cutOff(err)
		}
	} else {
		data, err := io.ReadAll(e.Content)
		if err != nil || int64(len(data)) != e.Size {
			return cutOff(err)
		}
		hash.Hash().Write(data)
		var m references
		if len(data) > 0 && data[0] == '{' && json.Unmarshal(data, &m) == nil && (m.Config.Digest != "" || m.Manifests != nil) {
			c.names[e.Digest] = m
		}
	}
	c.Blobs, c.Bytes, c.here[e.Digest] = c.Blobs+1, c.Bytes+e.Size, true
	if hash.Digest() != e.Digest {
		c.faults[e.Digest] = "its content has another digest"
		delete(c.names, e.Digest)
	}
	return nil
}

func cutOff(err error) error {
	if err == nil {
		err = fmt.Errorf("%w: the file is cut short", archive.ErrDamaged)
	}
	return err
}

// conclude finds what is missing, and who needs what is wrong.
func (c *checking) conclude(r *Reader) {
	leftOut := map[digest.Digest]bool{ocispec.DescriptorEmptyJSON.Digest: true}
	if of := r.Contents(); of != nil {
		for _, b := range of.LeftOut {
			leftOut[b.Digest] = true
		}
	}
	neededBy := map[digest.Digest]map[string]bool{}
	for _, root := range r.Index().Manifests {
		name := root.Annotations[ocispec.AnnotationRefName]
		blobs := map[digest.Digest]bool{} // of which nothing is read: what a layer holds may look like a manifest
		for queue := []digest.Digest{root.Digest}; len(queue) > 0; queue = queue[1:] {
			d := queue[0]
			if neededBy[d][name] || leftOut[d] && !c.here[d] {
				continue
			}
			if neededBy[d] == nil {
				neededBy[d] = map[string]bool{}
			}
			neededBy[d][name] = true
			if !c.here[d] {
				c.faults[d] = "it is missing"
			}
			if blobs[d] {
				continue
			}
			m := c.names[d]
			for _, b := range m.blobs() {
				if b != "" {
					blobs[b], queue = true, append(queue, b)
				}
			}
			found := false
			for _, child := range m.Manifests {
				if c.here[child.Digest] || leftOut[child.Digest] {
					found, queue = true, append(queue, child.Digest)
				}
			}
			if len(m.Manifests) > 0 && !found {
				c.faults[d] = "none of its manifests is there"
			}
		}
	}
	for d, text := range c.faults {
		c.Faults = append(c.Faults, Fault{d, text, slices.Sorted(maps.Keys(neededBy[d]))})
	}
	slices.SortFunc(c.Faults, func(a, b Fault) int {
		return cmp.Or(slices.Compare(a.NeededBy, b.NeededBy), cmp.Compare(a.Digest, b.Digest))
	})
}
