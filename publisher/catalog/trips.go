package catalog

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/opencontainers/go-digest"
	"oras.land/oras-go/v2/errdef"

	"github.com/wherry-dev/wherry/airgap/export"
	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/oci"
	"github.com/wherry-dev/wherry/bundle/show"
	"github.com/wherry-dev/wherry/published"
	"github.com/wherry-dev/wherry/publisher/impact"
)

// TripRequest says what to look at.
type TripRequest struct {
	From        oci.Location // of the releases
	Environment string
	Fleet       impact.Fleet
	// Label is the label of clusters that names their site.
	Label string
	// Link is the rate that Site.Seconds are for; zero if there is none.
	Link     impact.Link
	Now      time.Time
	Registry oci.Options
	// Artifact is that of [export.Request].
	Artifact func(repository string) (oci.Target, error)
}

// Trips is what media would carry. Its JSON form is an interface.
type Trips struct {
	Environment string `json:"environment"`
	From        string `json:"from"`
	// ClustersFrom is where the clusters come from: impact.FromRoster, impact.FromHub or impact.FromReports.
	ClustersFrom string      `json:"clustersFrom"`
	SiteLabel    string      `json:"siteLabel"`
	Link         impact.Link `json:"linkBitsPerSecond,omitempty"`
	// Behind counts the sites that a medium would bring something to.
	Behind int `json:"behind"`
	// Bytes is the sum of all sites.
	Bytes int64 `json:"bytes"`
	// About is true if Bytes of some site is an estimate.
	About bool `json:"about,omitempty"`
	// Sites are sorted, the worst first.
	Sites []TripSite `json:"sites"`
	// Warnings are for people.
	Warnings []string `json:"warnings,omitempty"`
}

// TripSite is what a medium would carry to a site.
type TripSite struct {
	Name         string   `json:"site"`
	Clusters     int      `json:"clusters"`
	ClusterTypes []string `json:"clusterTypes"`
	// Behind is true if a cluster does not run the newest release, or if it is unknown what it runs.
	Behind bool `json:"behind"`
	// Releases is how many releases the cluster that is furthest behind lacks; nil if that is unknown of a cluster.
	Releases *int64 `json:"releasesBehind"`
	// Bytes is the length of the package; zero if the site is not behind.
	Bytes int64 `json:"bytes"`
	// ReferrerBytes is the part of Bytes that signatures and other referrers of artifacts take; zero in an estimate, which does not know them.
	ReferrerBytes int64 `json:"referrerBytes,omitempty"`
	// About is true if Bytes is an estimate: see Request, and docs/plan.md.
	About bool `json:"about,omitempty"`
	// Seconds is the time that Bytes take on the link, rounded up.
	Seconds int64 `json:"seconds,omitempty"`
	// ExpiresAt is the first end of validity among the newest releases of the site's clusters; zero if there is no release.
	// A medium has to be imported before it.
	ExpiresAt time.Time `json:"expiresAt,omitzero"`
	// DaysLeft is the number of whole days until then, negative if it has passed; nil without ExpiresAt.
	DaysLeft *int `json:"daysLeft,omitempty"`
	// LastHeard is the time of the newest report of the cluster that has been silent longest; zero if one was never heard of.
	LastHeard time.Time `json:"lastHeard,omitzero"`
	// Streams are what the site's clusters follow, sorted by cluster type and ring.
	Streams []TripStream `json:"streams"`
}

// TripStream is a cluster type and a ring of a site's clusters.
type TripStream struct {
	ClusterType string `json:"clusterType"`
	Ring        string `json:"ring,omitempty"`
	Clusters    int    `json:"clusters"`
	// Number and Digest identify the newest release; zero if there is none.
	Number    int64         `json:"number,omitempty"`
	Digest    digest.Digest `json:"digest,omitempty"`
	ExpiresAt time.Time     `json:"expiresAt,omitzero"`
	Behind    bool          `json:"behind"`
	Releases  *int64        `json:"releasesBehind"`
	clusters  []impact.Cluster
}

// ReadTrips returns what media would carry now. It returns an error wrapping errdef.ErrNotFound if the environment has no release, and
// those of catalog.List.
func ReadTrips(ctx context.Context, r TripRequest) (*Trips, error) {
	list, err := List(ctx, r.From, r.Environment, r.Now, r.Registry)
	if err != nil {
		return nil, err
	}
	if len(list) == 0 {
		return nil, fmt.Errorf("environment %s has no releases at %s: %w", r.Environment, r.From, errdef.ErrNotFound)
	}
	at, err := published.Open(r.From, r.Registry, published.AsItLies())
	if err != nil {
		return nil, err
	}
	l := looking{TripRequest: r, at: at, newest: list, numbers: map[string]*int64{}, sizes: map[string]size{}}
	t := &Trips{Environment: r.Environment, From: r.From.String(), ClustersFrom: r.Fleet.From, SiteLabel: r.Label, Link: r.Link, Sites: []TripSite{}}
	for _, s := range r.Fleet.Sites(r.Label) {
		one, err := l.site(ctx, s)
		if err != nil {
			return nil, fmt.Errorf("site %s: %w", s.Name, err)
		}
		t.add(one)
	}
	slices.SortStableFunc(t.Sites, worst)
	t.Warnings = l.warnings
	return t, nil
}

func (t *Trips) add(s TripSite) {
	t.Sites = append(t.Sites, s)
	t.Bytes, t.About = t.Bytes+s.Bytes, t.About || s.About
	if s.Behind {
		t.Behind++
	}
}

// worst compares two sites: those that are behind first, of these the ones furthest behind, then by what is valid for the shortest
// time, then by size.
func worst(a, b TripSite) int {
	rank := func(s TripSite) int64 {
		switch {
		case !s.Behind:
			return -1
		case s.Releases == nil:
			return 1 << 62
		}
		return *s.Releases
	}
	return cmp.Or(cmp.Compare(rank(b), rank(a)), a.ExpiresAt.Compare(b.ExpiresAt), cmp.Compare(b.Bytes, a.Bytes), cmp.Compare(a.Name, b.Name))
}

// looking has what was read before, since many sites have the same releases.
type looking struct {
	TripRequest
	at       *published.Place
	newest   []Listed
	numbers  map[string]*int64 // of releases that run, by cluster type and digest; nil for one that is gone
	sizes    map[string]size   // of packages
	warnings []string
}

type size struct {
	bytes, referrers int64
	about            bool
}

func (l *looking) warn(format string, args ...any) {
	if text := fmt.Sprintf(format, args...); !slices.Contains(l.warnings, text) {
		l.warnings = append(l.warnings, text)
	}
}

func (l *looking) site(ctx context.Context, from impact.Site) (s TripSite, err error) {
	s = TripSite{Name: from.Name, Clusters: len(from.Clusters), ClusterTypes: from.ClusterTypes(), LastHeard: lastHeard(from.Clusters), Releases: new(int64)}
	for _, st := range streams(from.Clusters) {
		if err := l.complete(ctx, &st); err != nil {
			return s, err
		}
		s.Streams = append(s.Streams, st)
		s.Behind = s.Behind || st.Behind
		switch {
		case st.Releases == nil:
			s.Releases = nil
		case s.Releases != nil:
			s.Releases = new(max(*s.Releases, *st.Releases))
		}
		if at := st.ExpiresAt; !at.IsZero() && (s.ExpiresAt.IsZero() || at.Before(s.ExpiresAt)) {
			s.ExpiresAt = at
		}
	}
	if !s.ExpiresAt.IsZero() {
		const day = 24 * time.Hour
		left := s.ExpiresAt.Sub(l.Now)
		days := int(left / day)
		if left < 0 {
			days--
		}
		s.DaysLeft = &days
	}
	need, err := l.need(ctx, s.Streams, impact.Common(from.Clusters))
	s.Bytes, s.ReferrerBytes, s.About, s.Seconds = need.bytes, need.referrers, need.about, l.Link.Seconds(need.bytes)
	return s, err
}

// lastHeard returns the time at which the cluster that has been silent longest was heard.
func lastHeard(clusters []impact.Cluster) (at time.Time) {
	for i, c := range clusters {
		if i == 0 || c.LastSeen.Before(at) {
			at = c.LastSeen
		}
	}
	return at
}

// streams returns what clusters follow.
func streams(clusters []impact.Cluster) (all []TripStream) {
	for _, c := range clusters {
		i := slices.IndexFunc(all, func(s TripStream) bool { return s.ClusterType == c.ClusterType && s.Ring == c.Ring })
		if i < 0 {
			i = len(all)
			all = append(all, TripStream{ClusterType: c.ClusterType, Ring: c.Ring})
		}
		all[i].Clusters++
		all[i].clusters = append(all[i].clusters, c)
	}
	slices.SortFunc(all, func(a, b TripStream) int {
		return cmp.Or(cmp.Compare(a.ClusterType, b.ClusterType), cmp.Compare(a.Ring, b.Ring))
	})
	return all
}

// complete fills in the newest release, and how far clusters are behind it.
func (l *looking) complete(ctx context.Context, s *TripStream) error {
	i := slices.IndexFunc(l.newest, func(r Listed) bool {
		return r.ClusterType == s.ClusterType && slices.Contains(r.Tags, bundle.MovingTag(s.Ring))
	})
	if i < 0 {
		what := ""
		if s.Ring != "" {
			what = " for ring " + s.Ring
		}
		l.warn("cluster type %s has no release%s at %s", s.ClusterType, what, l.From)
		s.Releases = new(int64)
		return nil
	}
	newest := l.newest[i]
	s.Number, s.Digest, s.ExpiresAt, s.Releases = newest.Number, newest.Digest, newest.ExpiresAt, new(int64)
	for _, c := range s.clusters {
		if c.Release == newest.Digest {
			continue
		}
		s.Behind = true
		number, err := l.number(ctx, s.ClusterType, c.Release)
		switch {
		case err != nil:
			return err
		case number == nil:
			s.Releases = nil
			return nil
		}
		s.Releases = new(max(*s.Releases, newest.Number-*number, 1))
	}
	return nil
}

// number returns the number of a release that runs; nil if it is unknown.
func (l *looking) number(ctx context.Context, clusterType string, d digest.Digest) (*int64, error) {
	if d == "" {
		return nil, nil
	}
	key := clusterType + "@" + d.String()
	if n, known := l.numbers[key]; known {
		return n, nil
	}
	at, err := l.at.Type(bundle.Stream{Environment: l.Environment, ClusterType: clusterType})
	if err != nil {
		return nil, err
	}
	v, _, err := at.Read(ctx, d.String())
	if err == nil {
		l.numbers[key] = &v.Release.Number
		return &v.Release.Number, nil
	}
	if errors.Is(err, errdef.ErrNotFound) {
		l.warn("release %s, which clusters of %s run, is not at %s any more", d, clusterType, l.From)
		l.numbers[key] = nil
		return nil, nil
	}
	return nil, err
}

// need returns the size of the package that the site needs: of the streams that are behind, with what the clusters have as its base.
func (l *looking) need(ctx context.Context, all []TripStream, has map[string][]digest.Digest) (total size, err error) {
	types := map[string][]string{} // by ring
	var rings []string
	for _, s := range all {
		if s.Behind {
			if types[s.Ring] == nil {
				rings = append(rings, s.Ring)
			}
			types[s.Ring] = append(types[s.Ring], s.ClusterType)
		}
	}
	slices.Sort(rings)
	for _, ring := range rings {
		one, err := l.packaged(ctx, ring, types[ring], has)
		if err != nil {
			return total, err
		}
		total.bytes, total.referrers, total.about = total.bytes+one.bytes, total.referrers+one.referrers, total.about || one.about || len(rings) > 1 // rings may share blobs
	}
	return total, nil
}

func (l *looking) packaged(ctx context.Context, ring string, types []string, has map[string][]digest.Digest) (size, error) {
	base, key := map[string][]digest.Digest{}, ring
	for _, ct := range types {
		if key += " " + ct; len(has[ct]) > 0 {
			base[ct] = has[ct]
			key += fmt.Sprint(has[ct])
		}
	}
	if known, ok := l.sizes[key]; ok {
		return known, nil
	}
	r := export.Request{
		From: l.From, Environment: l.Environment, ClusterTypes: types, Rings: []string{ring}, SkipUnpinned: true, Registry: l.Registry, Artifact: l.Artifact,
		Since: export.Releases("the releases that run", l.Environment, base),
	}
	var found size
	p, err := export.Choose(ctx, r)
	var artifact *export.ArtifactError
	switch {
	case err == nil:
		found.bytes = p.Bytes
		_, found.referrers = p.Contents.Referrers()
	case errors.As(err, &artifact) && ctx.Err() == nil:
		l.warn("sizes of %s are estimates: %v", strings.Join(types, ", "), err)
		var e export.Estimate
		if e, err = export.EstimateSize(ctx, r); err != nil {
			return found, err
		}
		if found = (size{bytes: e.Bytes, about: true}); e.Unknown > 0 {
			left := "they are not counted"
			if e.Unknown == 1 {
				left = "it is not counted"
			}
			l.warn("nobody knows the size of %s of %s: %s", show.Count(e.Unknown, "artifact"), strings.Join(types, ", "), left)
		}
	default:
		return found, err
	}
	l.sizes[key] = found
	return found, nil
}
