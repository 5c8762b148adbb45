// Package verify verifies what is published, in full: signatures, release and content.
//
// Begin with [ByKeys], or [ByIdentity] where a certificate has signed and no key. A key's signature may also be in a Sigstore
// bundle, which agents do not read. [Environment] verifies a record with all releases that it names. The package writes nothing.
package verify

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/oci"
	"github.com/wherry-dev/wherry/bundle/sitevalues"
	"github.com/wherry-dev/wherry/published"
	"github.com/wherry-dev/wherry/publisher/catalog"
	"github.com/wherry-dev/wherry/publisher/releases"
)

// Trusted is a bundle or environment record that was verified. Its JSON form is an interface.
type Trusted struct {
	// Kind is "bundle" or "environment".
	Kind      string        `json:"kind"`
	Reference string        `json:"reference"`
	Digest    digest.Digest `json:"digest"`
	// Keys names the keys that signed; see bundle.KeyID. It is empty where Identity says who did.
	Keys []string `json:"keys"`
	// SigstoreBundle is true if these signatures are enough only with those in Sigstore bundles, which agents do not read.
	SigstoreBundle bool      `json:"sigstoreBundle,omitempty"`
	Identity       *Identity `json:"identity,omitempty"`
	Signed
	TrustedBundle
	TrustedRecord
}

// Signed is what the document of a bundle or record says of itself.
type Signed struct {
	Platform    string   `json:"platform"`
	Environment string   `json:"environment"`
	ClusterType string   `json:"clusterType,omitempty"`
	Rings       []string `json:"rings,omitempty"`
	Epoch       int64    `json:"epoch"`
	Sequence    int64    `json:"sequence"`
	// Number and ExpiresAt are those of a bundle's release.
	Number            int64     `json:"number,omitempty"`
	IssuedAt          time.Time `json:"issuedAt"`
	ExpiresAt         time.Time `json:"expiresAt,omitzero"`
	BaseCommit        string    `json:"baseCommit,omitempty"`
	EnvironmentCommit string    `json:"environmentCommit,omitempty"`
	// Message is that of a bundle's publication; see bundle.CheckMessage.
	Message string `json:"message,omitempty"`
}

// TrustedBundle is what a bundle holds; the zero value where a Trusted is a record.
type TrustedBundle struct {
	Content *bundle.Content `json:"content,omitempty"`
	// Assignments counts them.
	Assignments *int `json:"assignments,omitempty"`
	// Held lists the assignments whose content is that of an earlier release.
	Held []HeldAssignment `json:"held,omitempty"`
	// HeldSites lists the clusters whose site values are those of an earlier release.
	HeldSites []HeldSite      `json:"heldSites,omitempty"`
	Deltas    []catalog.Delta `json:"deltas,omitempty"`
}

// TrustedRecord is what an environment record names; the zero value where a Trusted is a bundle.
type TrustedRecord struct {
	ClusterTypes map[string]digest.Digest `json:"clusterTypes,omitempty"`
	// RingReleases are what each ring has, by cluster type and ring.
	RingReleases map[string]map[string]digest.Digest `json:"ringReleases,omitempty"`
	// Incomplete names the cluster types that are not all that the commit asks for.
	Incomplete []string `json:"incomplete,omitempty"`
}

// HeldAssignment is an assignment that could not be rendered and keeps the content that it had.
type HeldAssignment struct {
	Name string `json:"name"`
	bundle.Held
}

// HeldSite is a cluster whose newer site values had a mistake, so that it keeps those that it had.
type HeldSite struct {
	Cluster string `json:"cluster"`
	UID     string `json:"uid"`
	bundle.Held
}

func heldSitesOf(rows []sitevalues.Row) []HeldSite {
	var held []HeldSite
	for _, r := range rows {
		if r.HeldFrom != nil {
			held = append(held, HeldSite{r.Name, r.UID, *r.HeldFrom})
		}
	}
	return held
}

func heldOf(assignments []bundle.Assignment) []HeldAssignment {
	var held []HeldAssignment
	for _, a := range assignments {
		if a.HeldFrom != nil {
			held = append(held, HeldAssignment{a.Name, *a.HeldFrom})
		}
	}
	return held
}

// ByKeys fetches what ref names in full and checks it as an agent would, except for what only an
// agent knows. The error is a *bundle.Refusal where it is not to be trusted.
func ByKeys(ctx context.Context, ref oci.Reference, trust bundle.Trust, now time.Time, opts oci.Options) (*Trusted, error) {
	t, err := verifyReference(ctx, ref, now, opts, func(src oci.Target, d ocispec.Descriptor, t *Trusted) (err error) {
		t.Keys, t.SigstoreBundle, err = verifyKeyed(ctx, src, d, trust)
		return err
	})
	if err == nil && t.Epoch != trust.Epoch {
		return nil, &bundle.Refusal{Reason: bundle.OldEpoch, Message: fmt.Sprintf("it has epoch %d, the trust in force has %d", t.Epoch, trust.Epoch)}
	}
	return t, err
}

// ByIdentity does what ByKeys does, where an identity has signed and no key.
func ByIdentity(ctx context.Context, ref oci.Reference, trust *Keyless, now time.Time, opts oci.Options) (*Trusted, error) {
	return verifyReference(ctx, ref, now, opts, func(src oci.Target, d ocispec.Descriptor, t *Trusted) (err error) {
		t.Keys = []string{}
		t.Identity, err = trust.Verify(ctx, src, d.Digest)
		return err
	})
}

// verifyKeyed returns the ids of trust's keys that have signed a manifest, and whether they are enough only together with Sigstore
// bundles, which agents do not read.
func verifyKeyed(ctx context.Context, src oci.Target, d ocispec.Descriptor, trust bundle.Trust) (ids []string, byBundle bool, err error) {
	ids, err = bundle.VerifySignature(ctx, src, d.Digest, trust)
	var refusal *bundle.Refusal
	if !errors.As(err, &refusal) {
		return ids, false, err
	}
	more, failed := signersOf(ctx, src, d, trust.Keys)
	if failed != nil || len(more) == 0 {
		return nil, false, cmp.Or(failed, err)
	}
	anyOf := trust
	anyOf.Threshold = 1
	if ids, failed = bundle.VerifySignature(ctx, src, d.Digest, anyOf); failed != nil && !errors.As(failed, &refusal) {
		return nil, false, failed
	}
	ids = slices.Compact(slices.Sorted(slices.Values(append(ids, more...))))
	if len(ids) < trust.Threshold {
		return nil, false, &bundle.Refusal{Reason: bundle.BelowThreshold, Message: fmt.Sprintf("manifest %s is signed by %d of the keys that are trusted here, %d are needed", d.Digest, len(ids), trust.Threshold)}
	}
	return ids, true, nil
}

// verifyReference calls judge to verify the signatures before it reads the content.
func verifyReference(ctx context.Context, ref oci.Reference, now time.Time, opts oci.Options,
	judge func(src oci.Target, d ocispec.Descriptor, t *Trusted) error,
) (*Trusted, error) {
	at, desc, err := published.Resolve(ctx, ref, opts, published.AsItLies())
	if err != nil {
		return nil, err
	}
	t := &Trusted{Reference: ref.String(), Digest: desc.Digest}
	if err := judge(at.Repo, desc, t); err != nil {
		return nil, err
	}
	m, err := releases.ReadManifest(ctx, at.Repo, desc)
	if err != nil {
		return nil, err
	}
	if m.ArtifactType == bundle.MediaTypeEnvironment {
		err = t.readRecord(ctx, at.Repo, desc)
	} else {
		err = t.readBundle(ctx, at, desc, now)
	}
	if err != nil {
		return nil, err
	}
	return t, nil
}

func (t *Trusted) readRecord(ctx context.Context, repo bundle.Source, desc ocispec.Descriptor) error {
	v, err := bundle.ReadEnvironment(ctx, repo, desc)
	if err != nil {
		return err
	}
	r := v.Record
	t.Kind = "environment"
	t.Signed = Signed{
		Platform: r.Platform, Environment: r.Environment, Epoch: r.Epoch, Sequence: r.Sequence, IssuedAt: r.IssuedAt,
		BaseCommit: r.BaseCommit, EnvironmentCommit: r.EnvironmentCommit,
	}
	t.TrustedRecord = TrustedRecord{r.ClusterTypes, r.Rings, r.Incomplete}
	return nil
}

func (t *Trusted) readBundle(ctx context.Context, at published.Type, desc ocispec.Descriptor, now time.Time) error {
	v, _, err := at.ReadAt(ctx, desc)
	if err != nil {
		return err
	}
	r := v.Release
	if !now.Before(r.ExpiresAt) {
		return &bundle.Refusal{Reason: bundle.Expired, Message: "release " + bundle.ReleaseName(r.Number, desc.Digest) + " expired at " + r.ExpiresAt.Format(time.RFC3339)}
	}
	tree, err := at.Tree(ctx, v)
	if err != nil {
		return err
	}
	assignments := tree.Assignments
	_, rows, err := tree.Sites()
	if err = errors.Join(err, tree.Close()); err != nil {
		return err
	}
	deltas, err := catalog.ApplyDeltas(ctx, at, v)
	if err != nil {
		return err
	}
	n := len(assignments)
	t.Kind = "bundle"
	t.Signed = Signed{
		r.Platform, r.Environment, r.ClusterType, r.Rings, r.Epoch, r.Sequence, r.Number, r.IssuedAt, r.ExpiresAt, r.BaseCommit, r.EnvironmentCommit,
		bundle.MessageOf(v.Manifest),
	}
	t.TrustedBundle = TrustedBundle{&r.Content, &n, heldOf(assignments), heldSitesOf(rows), deltas}
	return nil
}
