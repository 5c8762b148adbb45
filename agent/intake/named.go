package intake

import (
	"slices"
	"time"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"go.etcd.io/bbolt"

	"github.com/wherry-dev/wherry/agent/content"
	"github.com/wherry-dev/wherry/agent/state"
	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/oci"
)

// Named lists, for package content, what the store keeps of packages. The index names the stored releases of other streams
// with their signatures, and the artifacts of all releases that are whole. What is arriving is kept without a name, as is the
// release of the own stream, which package content names once it was accepted.
//
// They are in the order in which they have come: see Unambiguous.
func (k *Keeper) Named(tx *bbolt.Tx) (all []content.Named, err error) {
	type since struct {
		time.Time
		named []content.Named
	}
	var lists []since
	err = each(tx, func(key string, r record) error {
		if c := r.Stored; c != nil {
			lists = append(lists, since{c.Since, k.named(key, c)})
		}
		for _, c := range []*kept{r.Arriving, r.Waiting} {
			switch {
			case c == nil:
			case c.Whole:
				lists = append(lists, since{c.Since, k.named(key, c)})
			default:
				lists = append(lists, since{c.Since, unnamed(c)})
			}
		}
		return nil
	})
	slices.SortStableFunc(lists, func(a, b since) int { return a.Compare(b.Time) })
	for _, l := range lists {
		all = append(all, l.named...)
	}
	return all, err
}

func (k *Keeper) named(key string, c *kept) []content.Named {
	if c.Release.Release.Platform != k.opts.Own.Platform { // the agent was bound to another platform since
		return unnamed(c)
	}
	repository := c.Release.Release.Stream().Repository()
	if key == state.OrderKey(k.opts.Own) {
		repository = ""
	}
	all := []content.Named{
		{Repository: repository, Tag: c.Release.Release.Tag(), Manifest: c.Release.Manifest},
		{Repository: repository, Tag: bundle.SignatureTag(c.digest()), Manifest: c.Signature},
	}
	if c.Signature.Digest == "" {
		all = all[:1]
	}
	if repository != "" {
		for _, tag := range c.Tags {
			all = append(all, content.Named{Repository: repository, Tag: tag, Manifest: c.Release.Manifest})
		}
	}
	for _, a := range c.Artifacts {
		all = append(all, content.Named{Repository: a.Repository, Manifest: a.Manifest})
		if a.Tag != "" {
			all = append(all, content.Named{Repository: a.Repository, Tag: a.Tag, Manifest: a.Manifest})
		}
	}
	return all
}

// artifacts counts the artifacts without their referrers.
func (c *kept) artifacts() (n int) {
	for _, a := range c.Artifacts {
		if a.Subject == "" {
			n++
		}
	}
	return n
}

// unnamed keeps a release and its artifacts without any name.
func unnamed(c *kept) []content.Named {
	all := []content.Named{{Manifest: c.Release.Manifest}}
	if c.Signature.Digest != "" {
		all = append(all, content.Named{Manifest: c.Signature})
	}
	for _, a := range c.Artifacts {
		all = append(all, content.Named{Manifest: ocispec.Descriptor{Digest: a.Manifest.Digest}})
	}
	return all
}

// Unambiguous returns list without the tags that stand for several manifests there: two streams may mean different things
// by the tag of one image. Of the signatures of one manifest, under cosign's tag, the last in list keep the tag.
func Unambiguous(list []content.Named) []content.Named {
	type name struct{ repository, tag string }
	means, several := map[name]digest.Digest{}, map[name]bool{}
	for _, n := range list {
		at := name{n.Repository, n.Tag}
		if d, known := means[at]; n.Tag != "" && n.Repository != "" && known && d != n.Manifest.Digest {
			several[at] = oci.SubjectOfTag(n.Tag) == ""
		}
		means[at] = n.Manifest.Digest
	}
	kept := make([]content.Named, 0, len(list))
	for _, n := range list {
		if at := (name{n.Repository, n.Tag}); several[at] || n.Tag != "" && n.Repository != "" && means[at] != n.Manifest.Digest {
			n.Tag = ""
		}
		kept = append(kept, n)
	}
	return kept
}

// StreamStatus is a stream in the store, from a package. Its JSON is an interface.
type StreamStatus struct {
	Environment string `json:"environment"`
	ClusterType string `json:"clusterType"`
	// Release is the short name of the stored release, such as "12 (68846e7d)", and Digest that of its manifest. They are
	// empty while the first release of the stream is not whole.
	Release string        `json:"release,omitempty"`
	Digest  digest.Digest `json:"digest,omitempty"`
	// Bytes is the size of the release with its artifacts, and Artifacts the number of these.
	Bytes     int64 `json:"bytes,omitempty"`
	Artifacts int   `json:"artifacts,omitempty"`
	// Since is when it was stored.
	Since *time.Time `json:"since,omitempty"`
	// AllowExpired is why a person has let it be taken although it had expired; empty if it had not.
	AllowExpired string `json:"allowExpired,omitempty"`
	// Arriving is the short name of a release of which a part may be here; empty if there is none.
	Arriving string `json:"arriving,omitempty"`
}

// ReadStatus returns the streams that packages have brought, sorted by environment and cluster type.
func ReadStatus(tx *bbolt.Tx) (all []StreamStatus, err error) {
	err = each(tx, func(_ string, r record) error {
		var s StreamStatus
		for _, c := range []*kept{r.Waiting, r.Arriving} {
			if c == nil {
				continue
			}
			s.Environment, s.ClusterType = c.Release.Release.Environment, c.Release.Release.ClusterType
			if !c.Whole {
				s.Arriving = c.Release.Name()
			}
		}
		if c := r.Stored; c != nil {
			s.Environment, s.ClusterType = c.Release.Release.Environment, c.Release.Release.ClusterType
			s.Release, s.Digest, s.Bytes, s.Artifacts = c.Release.Name(), c.digest(), c.Bytes, c.artifacts()
			s.Since, s.AllowExpired = &c.Since, c.Release.AllowExpired
		}
		all = append(all, s)
		return nil
	})
	return all, err
}
