package garbage

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2/errdef"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/published"
)

// taggedPlace is a tag that says which release it is.
type taggedPlace struct {
	tag   string
	place bundle.Order
}

// judged is a release or record that was looked at.
type judged struct {
	issuedAt time.Time
	kept     bool
	names    bundle.EnvironmentRecord // of a record
}

// sorting is how one repository is gone through.
type sorting struct {
	published.Type
	place  *published.Place
	opts   Options
	now    time.Time
	result Repository
	// records is true if the repository has the records of an environment.
	records     bool
	environment published.Environment
	// releases are newest first, and stale are the pending ones that no longer wait for anything.
	releases, pending, stale []taggedPlace
	signatures               []string
	// decided are the tags of decisions, and past what environments had, as far as it was read.
	decided []string
	past    map[string]past
	// tagged maps all tags but those of signatures to their manifests, found has the manifests' descriptors, and judged
	// the releases and records that were read from them.
	tagged map[string]digest.Digest
	found  map[digest.Digest]ocispec.Descriptor
	judged map[digest.Digest]*judged
	// needed holds the manifests that stay.
	needed map[digest.Digest]bool
}

// sort separates a repository's needed manifests from its garbage. Named are manifests that a record names and that stay.
func (c *Collection) sort(ctx context.Context, name string, named map[digest.Digest]bool, opts Options) (*sorting, error) {
	at, err := c.at.Named(name)
	if err != nil {
		return nil, err
	}
	environment, records := published.EnvironmentOf(name)
	of, err := c.at.Environment(environment)
	if err != nil && records {
		return nil, err
	}
	s := &sorting{
		Type: at, place: c.at, past: map[string]past{}, opts: opts, now: c.now, environment: of, records: records,
		result: Repository{Repository: name, Garbage: []Item{}, repo: at.Repo},
		tagged: map[string]digest.Digest{}, found: map[digest.Digest]ocispec.Descriptor{}, judged: map[digest.Digest]*judged{}, needed: maps.Clone(named),
	}
	if s.needed == nil {
		s.needed = map[digest.Digest]bool{}
	}
	for _, step := range []func(context.Context) error{s.readTags, s.keepNewest, s.addDecisions, s.addSuperseded, s.addUnfound} {
		if err := step(ctx); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// readTags resolves all tags but those of signatures. Moving tags and foreign ones stay.
func (s *sorting) readTags(ctx context.Context) error {
	all, err := s.Repo.Tags(ctx)
	if err != nil {
		return err
	}
	for _, tag := range all {
		parsed := published.ParseTag(tag)
		if parsed.Kind == published.Signature {
			s.signatures = append(s.signatures, tag)
			continue
		}
		desc, err := s.Repo.Resolve(ctx, tag)
		if err != nil && !errors.Is(err, errdef.ErrNotFound) {
			return err
		}
		s.tagged[tag], s.found[desc.Digest] = desc.Digest, desc
		switch {
		case parsed.Kind == published.Own:
			s.releases = append(s.releases, taggedPlace{tag, parsed.Order()})
		case parsed.Kind == published.Pending:
			s.pending = append(s.pending, taggedPlace{tag, parsed.Order()})
		case parsed.Kind == published.Decision && s.records:
			s.decided = append(s.decided, tag)
		default:
			s.needed[desc.Digest] = true
			if parsed.Kind != published.Moving {
				s.result.Foreign = append(s.result.Foreign, tag)
			}
		}
	}
	slices.SortFunc(s.releases, newestFirst)
	slices.SortFunc(s.pending, newestFirst)
	return nil
}

// keepNewest marks as needed: the newest releases, young ones, pending ones above the newest release, and manifests that
// do not match their tag.
func (s *sorting) keepNewest(ctx context.Context) error {
	kept := 0
	for _, r := range s.releases {
		j, err := s.judge(ctx, r.tag)
		if err != nil {
			return err
		}
		if j == nil || kept < s.opts.Keep || s.now.Sub(j.issuedAt) < s.opts.KeepFor {
			s.needed[s.tagged[r.tag]] = true
		}
		if j != nil {
			kept++
		}
	}
	for _, p := range s.pending {
		j, err := s.judge(ctx, p.tag)
		if err != nil {
			return err
		}
		// One for all rings waits below the release of a narrower one, which its signer releases first: the record of
		// both names it.
		overtaken := len(s.releases) > 0 && p.place.Compare(s.releases[0].place) <= 0 && (!s.needed[s.tagged[p.tag]] || s.isReleased(p))
		if j != nil && overtaken && s.now.Sub(j.issuedAt) >= grace {
			s.stale = append(s.stale, p)
		} else {
			s.needed[s.tagged[p.tag]] = true
			s.result.Kept++
		}
	}
	slices.Sort(s.result.Foreign)
	return nil
}

// isReleased reports whether what waited has a release's tag.
func (s *sorting) isReleased(p taggedPlace) bool {
	return s.tagged[published.ReleaseTag(p.place.Epoch, p.place.Sequence)] == s.tagged[p.tag]
}

// judge reads what a tag of a release names. It returns nil, and counts the tag among the foreign ones, where
// that is nothing, or no release of this repository.
func (s *sorting) judge(ctx context.Context, tag string) (*judged, error) {
	d := s.tagged[tag]
	if s.judged[d] == nil && d != "" {
		if err := s.read(ctx, s.found[d]); err != nil {
			return nil, err
		}
	}
	if s.judged[d] == nil {
		s.result.Foreign = append(s.result.Foreign, tag)
	}
	return s.judged[d], nil
}

// read notes what a manifest is, if it is a release or record of this repository.
func (s *sorting) read(ctx context.Context, manifest ocispec.Descriptor) error {
	j, err := s.parse(ctx, manifest)
	if err := published.IgnoreRefused(err); err != nil {
		return err
	}
	if j != nil {
		s.judged[manifest.Digest] = j
	}
	return nil
}

func (s *sorting) parse(ctx context.Context, desc ocispec.Descriptor) (*judged, error) {
	if s.records {
		v, _, err := s.environment.ReadAt(ctx, desc)
		if err != nil || v.Record.Environment != s.environment.Environment {
			return nil, err
		}
		return &judged{issuedAt: v.Record.IssuedAt, names: v.Record}, nil
	}
	v, _, err := s.ReadAt(ctx, desc)
	if err != nil || v.Release.Stream().Repository() != s.Name {
		return nil, err
	}
	return &judged{issuedAt: v.Release.IssuedAt}, nil
}

// addSuperseded turns into garbage the releases that nothing needs, and what waited in vain.
func (s *sorting) addSuperseded(context.Context) error {
	garbage := map[digest.Digest]*Item{}
	add := func(tag string, kind Kind) {
		d := s.tagged[tag]
		if garbage[d] == nil {
			garbage[d] = &Item{Kind: kind, Digest: d, IssuedAt: s.judged[d].issuedAt, signature: bundle.SignatureTag(d), subject: d}
		}
		garbage[d].Tags = append(garbage[d].Tags, tag)
	}
	kind := Release
	if s.records {
		kind = Record
	}
	for _, r := range s.releases {
		switch d := s.tagged[r.tag]; {
		case !s.needed[d]:
			add(r.tag, kind)
		case s.judged[d] != nil:
			s.result.Kept++
		}
	}
	for _, p := range s.stale {
		d := s.tagged[p.tag]
		if s.needed[d] { // a release was made of it
			s.result.Garbage = append(s.result.Garbage, Item{Kind: Pending, Tags: []string{p.tag}, IssuedAt: s.judged[d].issuedAt, subject: d})
		} else {
			add(p.tag, Pending)
		}
	}
	for _, g := range garbage {
		slices.Sort(g.Tags)
		s.result.Garbage = append(s.result.Garbage, *g)
	}
	for d, j := range s.judged {
		j.kept = s.needed[d]
	}
	return nil
}

// addUnfound turns into garbage what only a signature still tells of: a signed manifest without a tag, which
// nobody is going to tag any more, and the signature of one that is gone.
func (s *sorting) addUnfound(ctx context.Context) error {
	tagged := map[digest.Digest]bool{}
	for _, d := range s.tagged {
		tagged[d] = true
	}
	for _, tag := range s.signatures {
		d := published.ParseTag(tag).Subject
		if tagged[d] || s.needed[d] {
			continue
		}
		desc, err := s.Repo.Resolve(ctx, d.String())
		if errors.Is(err, errdef.ErrNotFound) {
			s.result.Garbage = append(s.result.Garbage, Item{Kind: Signature, Tags: []string{}, signature: tag, subject: d})
			continue
		}
		if tag != bundle.SignatureTag(d) {
			continue // one signer's own: it goes when the manifest has gone
		}
		if err == nil {
			err = s.read(ctx, desc)
		}
		if err != nil {
			return err
		}
		if j := s.judged[d]; j != nil && s.now.Sub(j.issuedAt) >= grace {
			s.result.Garbage = append(s.result.Garbage, Item{Kind: Untagged, Tags: []string{}, Digest: d, IssuedAt: j.issuedAt, signature: tag, subject: d})
		}
	}
	slices.SortFunc(s.result.Garbage, func(a, b Item) int {
		return cmp.Or(a.IssuedAt.Compare(b.IssuedAt), cmp.Compare(a.subject, b.subject), slices.Compare(a.Tags, b.Tags))
	})
	return nil
}
