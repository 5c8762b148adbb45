// Package garbage finds published content that is no longer needed, and deletes it.
//
// [Collect] finds it; nothing is deleted before the Delete of the [Collection] is called.
package garbage

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/opencontainers/go-digest"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/oci"
	"github.com/wherry-dev/wherry/published"
)

const (
	// DefaultKeep is how many releases of a cluster type, and records of an environment, are kept.
	DefaultKeep = 10
	// DefaultKeepFor is how long they are kept in any case.
	DefaultKeepFor = 7 * 24 * time.Hour
	// grace is how long a publisher or signer may be at work on what has no tag of its own yet.
	grace = time.Hour
)

// Options selects the releases to keep. The zero value keeps the newest release of each cluster type.
type Options struct {
	// Environment limits Collect to one environment. It is required if a registry does not list its repositories.
	Environment string
	// Keep is the number of the newest releases of a cluster type, and of records of an environment, to keep.
	// Values below 1 mean 1.
	Keep int
	// KeepFor is the age below which releases and records are kept in any case.
	KeepFor time.Duration
	// OCI configures the access to the registry.
	OCI oci.Options
	// Now is the clock. Nil is time.Now.
	Now func() time.Time
}

// Kind is the kind of a manifest that is no longer needed.
type Kind string

// The kinds.
const (
	// Release and Record are older than all kept ones.
	Release Kind = "release"
	Record  Kind = "record"
	// Pending waited for signatures, and a newer release was accepted meanwhile.
	Pending Kind = "pending"
	// Untagged is signed and has no tag: its publisher was killed, or lost a race.
	Untagged Kind = "untagged"
	// Signature is the signature of a manifest that no longer exists.
	Signature Kind = "signature"
	// Decision is a decision about a commit that the environment below has not had lately, or no decision under the tag of one.
	Decision Kind = "decision"
)

// Item is one thing that is not needed: a manifest with its tags and its signature. Its JSON form is an
// interface.
type Item struct {
	Kind Kind `json:"kind"`
	// Tags are the tags to delete, sorted.
	Tags []string `json:"tags"`
	// Digest is the manifest's; empty if only the tags are deleted, because other tags name the manifest too.
	Digest   digest.Digest `json:"digest,omitempty"`
	IssuedAt time.Time     `json:"issuedAt,omitzero"`
	Deleted  bool          `json:"deleted"`
	// signature is the tag of the signature that goes with it, and subject the manifest that this is about.
	signature string
	subject   digest.Digest
}

// Repository is what Collection has of one repository.
type Repository struct {
	Repository string `json:"repository"`
	// Kept counts the releases or records that stay, and those that wait for signatures.
	Kept    int    `json:"kept"`
	Garbage []Item `json:"garbage"`
	// Foreign lists the tags that wherry does not know. They stay, with their manifests.
	Foreign []string `json:"foreign,omitempty"`
	repo    oci.Target
}

// Collection lists the content that a location no longer needs. Its JSON form is an interface.
type Collection struct {
	Location     string       `json:"location"`
	Repositories []Repository `json:"repositories"`
	// Blobs counts the blobs that a layout can free; nil for a registry, which frees space itself.
	Blobs *oci.Swept `json:"blobs,omitempty"`

	at  *published.Place
	now time.Time
}

// Count returns the number of manifests that are not needed, and how many of them were deleted.
func (c *Collection) Count() (all, deleted int) {
	for _, r := range c.Repositories {
		for _, g := range r.Garbage {
			all++
			if g.Deleted {
				deleted++
			}
		}
	}
	return all, deleted
}

// Collect finds out what loc no longer needs, and deletes nothing. Who signed it is not asked. Where the
// registry does not list repositories it follows the environment's records, for which the environment must
// be named; else the error wraps errors.ErrUnsupported. It is a *NoEnvironmentError where other
// environments alone are there.
func Collect(ctx context.Context, loc oci.Location, opts Options) (*Collection, error) {
	at, err := published.Open(loc, opts.OCI, published.AsItLies())
	if err != nil {
		return nil, err
	}
	now := time.Now
	if opts.Now != nil {
		now = opts.Now
	}
	opts.Keep = max(opts.Keep, 1)
	c := &Collection{Location: loc.String(), Repositories: []Repository{}, at: at, now: now()}
	names, err := at.Store.Repositories(ctx)
	if errors.Is(err, errors.ErrUnsupported) && opts.Environment != "" {
		names, err = []string{bundle.EnvironmentRepository(opts.Environment)}, nil
	} else if err == nil && opts.Environment != "" {
		err = published.CheckEnvironment(opts.Environment, loc, names)
	}
	if err != nil {
		return nil, err
	}
	named, types, err := c.addRecords(ctx, names, opts)
	if err != nil {
		return nil, err
	}
	if err := c.addReleases(ctx, append(names, types...), named, opts); err != nil {
		return nil, err
	}
	if layout, ok := at.Store.(*oci.Layout); ok {
		err = c.measure(ctx, layout)
	}
	return c, err
}

// addRecords judges the environments' records. It returns the manifests that those which stay name, and the
// repositories of the cluster types in any of them.
func (c *Collection) addRecords(ctx context.Context, names []string, opts Options) (named map[digest.Digest]bool, types []string, err error) {
	named = map[digest.Digest]bool{}
	for _, name := range slices.Sorted(slices.Values(names)) {
		environment, ok := published.EnvironmentOf(name)
		if !ok || opts.Environment != "" && environment != opts.Environment {
			continue
		}
		s, err := c.sort(ctx, name, nil, opts)
		if err != nil {
			return nil, nil, err
		}
		for _, r := range s.judged {
			for _, ct := range r.names.Types() {
				types = append(types, bundle.Stream{Environment: environment, ClusterType: ct}.Repository())
				for _, d := range r.names.ReleasesOf(ct) {
					named[d] = named[d] || r.kept
				}
			}
		}
		c.Repositories = append(c.Repositories, s.result)
	}
	return named, types, nil
}

func (c *Collection) addReleases(ctx context.Context, names []string, named map[digest.Digest]bool, opts Options) error {
	slices.Sort(names)
	for _, of := range published.StreamsOf(slices.Compact(names), opts.Environment) {
		s, err := c.sort(ctx, of.Repository(), named, opts)
		if err != nil {
			return err
		}
		c.Repositories = append(c.Repositories, s.result)
	}
	return nil
}

// measure counts the blobs that a layout frees.
func (c *Collection) measure(ctx context.Context, layout *oci.Layout) error {
	without := map[string]bool{}
	for _, r := range c.Repositories {
		for _, g := range r.Garbage {
			for _, tag := range append(slices.Clone(g.Tags), g.signature) {
				without[r.Repository+"/"+tag] = true
			}
		}
	}
	swept, err := layout.Sweepable(ctx, c.now.Add(-grace), without)
	c.Blobs = &swept
	return err
}

// newestFirst orders tags by the place they name.
func newestFirst(a, b taggedPlace) int {
	return cmp.Or(b.place.Compare(a.place), cmp.Compare(a.tag, b.tag))
}
