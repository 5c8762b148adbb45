package content

import (
	"errors"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"go.etcd.io/bbolt"

	"github.com/wherry-dev/wherry/agent/state"
	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/oci"
)

// Named is a manifest that the store keeps beside those of releases, with everything that it refers to. The index names
// it, so the agent's endpoint serves it: it has to be verified, or derived from verified content alone.
type Named struct {
	// Repository is the manifest's repository, such as assignments/NAME, or HOST/REPOSITORY for a carried artifact.
	// Empty keeps the content of an artifact that is not whole yet, and leaves it out of the index.
	Repository string
	// Tag may be empty: then the manifest is named by its digest alone.
	Tag      string
	Manifest ocispec.Descriptor
	// Blobs are kept as well, such as blobs that have arrived before their manifest.
	Blobs []digest.Digest
}

// Blobs returns the blobs of all repositories of the store. Push checks and syncs a blob; a later Prune deletes it
// unless a release or a Named needs it. Tags are set by Index alone.
func (c *Store) Blobs() oci.Target {
	repo, err := c.layout.Repository("blobs")
	if err != nil {
		panic(err) // the name is valid
	}
	return repo
}

// Index has the layout's index name these releases and what Options.Named lists, as far as the manifests are here, and
// nothing else. A caller that has pushed a Named and saved what Options.Named reads calls it before anybody is to fetch it.
func (c *Store) Index(keep ...*state.Release) error {
	err := c.index(keep...)
	if err != nil {
		return state.Local("store: %w", err)
	}
	return nil
}

func (c *Store) index(keep ...*state.Release) error {
	all, err := c.retained(keep)
	if err != nil {
		return err
	}
	return c.layout.SetRefs(all, c.db.At)
}

// retained lists, for the layout, what stays: of each release its manifest, its release document, its signature if it is
// known, and its tree, in whichever form it is here; then the moving tags, and what Options.Named lists.
func (c *Store) retained(keep []*state.Release) ([]oci.Retained, error) {
	var all []oci.Retained
	err := c.db.View(func(tx *bbolt.Tx) error {
		var errs []error
		for _, r := range keep {
			if r != nil {
				signature, err := loadSignature(tx, r)
				all, errs = append(all, c.retain(r, signature)...), append(errs, err)
			}
		}
		all = append(all, c.moving(tx, keep)...)
		for _, list := range c.opts.Named {
			named, err := list(tx)
			for _, n := range named {
				all = append(all, oci.Retained{Repository: n.Repository, Tag: n.Tag, Manifest: n.Manifest, Blobs: n.Blobs, All: true})
			}
			errs = append(errs, err)
		}
		return errors.Join(errs...)
	})
	return all, err
}

// retain lists what stays of one release. A release of another platform has no name: it is not served.
func (c *Store) retain(r *state.Release, signature ocispec.Descriptor) []oci.Retained {
	name := r.Release.Stream().Repository()
	if s := c.opts.Serving; s != nil && r.Release.Platform != s.Platform {
		name = ""
	}
	all := []oci.Retained{{
		Repository: name, Tag: r.Release.Tag(), Manifest: r.Manifest,
		Blobs: []digest.Digest{r.Tree.Digest, r.Release.Content.DiffID},
	}}
	if signature.Digest != "" {
		all = append(all, oci.Retained{Repository: name, Tag: bundle.SignatureTag(r.Digest()), Manifest: signature, All: true})
	}
	return all
}
