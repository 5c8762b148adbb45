package oci

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2/content"
	"oras.land/oras-go/v2/errdef"
)

// MaxReferrers bounds the manifests that name one subject and are listed. A registry may list any number of them.
const MaxReferrers = 1000

// maxReferrerPages bounds the pages of such a list.
const maxReferrerPages = 20

// cosignSuffixes end the tags under which cosign keeps what is about a manifest, sorted.
var cosignSuffixes = []string{".att", ".sbom", ".sig"}

// Referrer is a manifest about another one, its subject: a signature, an attestation or an SBOM.
type Referrer struct {
	// Tag is the tag under which cosign looks for it, such as sha256-<hex>.sig. It is empty for a manifest that names its
	// subject itself.
	Tag string
	ocispec.Descriptor
}

// Referrers lists the manifests of a repository that are about subject, sorted by tag and digest: those that name it as their
// subject, and those under cosign's tags. A registry that lists none, or does not know of referrers, has none. The error wraps
// errdef.ErrNotFound if the repository does not have subject either.
func Referrers(ctx context.Context, repo Target, subject ocispec.Descriptor) ([]Referrer, error) {
	named, err := repo.Referrers(ctx, subject)
	if err != nil {
		return nil, err
	}
	var all []Referrer
	for _, d := range named {
		all = append(all, Referrer{"", Plain(d)})
	}
	for _, suffix := range cosignSuffixes {
		tag := fmt.Sprintf("%s-%s%s", subject.Digest.Algorithm(), subject.Digest.Encoded(), suffix)
		d, err := repo.Resolve(ctx, tag)
		switch {
		case err == nil:
			all = append(all, Referrer{tag, Plain(d)})
		case !errors.Is(err, errdef.ErrNotFound):
			return nil, err
		}
	}
	if len(all) == 0 {
		if there, err := repo.Exists(ctx, subject); err != nil || there {
			return nil, err
		}
		return nil, fmt.Errorf("%s: %w", subject.Digest, errdef.ErrNotFound)
	}
	slices.SortFunc(all, func(a, b Referrer) int {
		return cmp.Or(cmp.Compare(a.Tag, b.Tag), cmp.Compare(a.Digest, b.Digest))
	})
	return slices.CompactFunc(all, func(a, b Referrer) bool { return a.Tag == b.Tag && a.Digest == b.Digest }), nil
}

// Referrers asks the referrers API, and the tag of the referrers tag schema if the registry has no such API. Registries, and proxies
// before them, refuse the request in many ways: each of them means that there is no list.
func (r *remoteRepository) Referrers(ctx context.Context, subject ocispec.Descriptor) ([]ocispec.Descriptor, error) {
	ctx, cancel := context.WithTimeout(ctx, r.patience)
	defer cancel()
	var all []ocispec.Descriptor
	err := r.repo.Referrers(ctx, subject, "", func(page []ocispec.Descriptor) error {
		for _, d := range page {
			if err := d.Digest.Validate(); err != nil || d.Size < 0 {
				return fmt.Errorf("a referrer has the digest %.100q and %d bytes", d.Digest, d.Size)
			}
		}
		if all = append(all, page...); len(all) > MaxReferrers {
			return fmt.Errorf("it has more than %d referrers", MaxReferrers)
		}
		return nil
	})
	err = explain("list referrers of", r.ref(subject.Digest.String()), err)
	if errors.Is(err, errdef.ErrNotFound) || Refused(err) {
		return nil, nil
	}
	return all, err
}

// Referrers reads the manifests that the index names in the repository.
func (r *layoutRepository) Referrers(ctx context.Context, subject ocispec.Descriptor) ([]ocispec.Descriptor, error) {
	index, err := r.layout.readIndex()
	if errors.Is(err, errdef.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return referrersIn(ctx, *index, r.name, subject.Digest, r)
}

// Referrers reads the manifests that the index names in the repository.
func (r *archivedRepository) Referrers(ctx context.Context, subject ocispec.Descriptor) ([]ocispec.Descriptor, error) {
	l, err := r.archived.open()
	if err != nil {
		return nil, err
	}
	return referrersIn(ctx, l.Index(), r.name, subject.Digest, r)
}

// referrersIn returns the manifests that an index names in a repository, and that name subject. What cannot be read is left out.
func referrersIn(ctx context.Context, index ocispec.Index, repository string, subject digest.Digest, from content.Fetcher) (all []ocispec.Descriptor, err error) {
	seen := map[digest.Digest]bool{subject: true}
	for _, d := range index.Manifests {
		if repositoryOf(d) != repository || seen[d.Digest] || d.Size > maxManifestBytes {
			continue
		}
		seen[d.Digest] = true
		data, err := content.FetchAll(ctx, from, Plain(d))
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if err == nil && SubjectOf(data) == subject {
			all = append(all, Plain(d))
		}
	}
	return all, nil
}

// SubjectOfTag returns the digest of the manifest that a tag of cosign's is about; it is empty for other tags.
func SubjectOfTag(tag string) digest.Digest {
	name, suffix, _ := strings.Cut(tag, ".")
	encoded, ok := strings.CutPrefix(name, "sha256-")
	d := digest.NewDigestFromEncoded(digest.SHA256, encoded)
	if !ok || !slices.Contains(cosignSuffixes, "."+suffix) || d.Validate() != nil {
		return ""
	}
	return d
}

// SubjectOf returns the digest of the manifest that a manifest is about; it is empty for one about no other.
func SubjectOf(manifest []byte) digest.Digest {
	var m struct {
		Subject *ocispec.Descriptor `json:"subject"`
	}
	if json.Unmarshal(manifest, &m) != nil || m.Subject == nil {
		return ""
	}
	return m.Subject.Digest
}
