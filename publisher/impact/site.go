package impact

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/opencontainers/go-digest"

	"github.com/wherry-dev/wherry/bundle"
)

// SiteLabel is the label of a cluster that names its site.
const SiteLabel = "site"

// Site is what one medium serves: the clusters whose label names the same site.
type Site struct {
	// Name is the label's value. Clusters without the label are a site for each cluster type; Name is "(cluster type T)" then.
	Name string
	// Clusters are sorted by cluster type and name.
	Clusters []Cluster
}

// Sites returns the sites of the clusters by a label, sorted by name; those without the label come last.
func (f Fleet) Sites(label string) []Site {
	type key struct{ label, clusterType string }
	by := map[key][]Cluster{}
	for _, c := range f.Clusters {
		k := key{label: c.Labels[label]}
		if k.label == "" {
			k.clusterType = c.ClusterType
		}
		by[k] = append(by[k], c)
	}
	keys := slices.SortedFunc(maps.Keys(by), func(a, b key) int {
		if (a.label == "") != (b.label == "") {
			return cmp.Compare(b.label, a.label)
		}
		return cmp.Or(cmp.Compare(a.label, b.label), cmp.Compare(a.clusterType, b.clusterType))
	})
	sites := make([]Site, 0, len(keys))
	for _, k := range keys {
		s := Site{Name: k.label, Clusters: by[k]}
		if k.label == "" {
			s.Name = fmt.Sprintf("(cluster type %s)", k.clusterType)
		}
		slices.SortFunc(s.Clusters, func(a, b Cluster) int {
			return cmp.Or(cmp.Compare(a.ClusterType, b.ClusterType), cmp.Compare(a.Name, b.Name), cmp.Compare(a.UID, b.UID))
		})
		sites = append(sites, s)
	}
	return sites
}

// ClusterTypes returns the cluster types of the site, sorted.
func (s Site) ClusterTypes() []string {
	var types []string
	for _, c := range s.Clusters {
		types = append(types, c.ClusterType)
	}
	slices.Sort(types)
	return slices.Compact(types)
}

// Of returns the site's clusters of a cluster type.
func (s Site) Of(clusterType string) []Cluster { return Fleet{Clusters: s.Clusters}.Of(clusterType) }

// Common returns the releases that clusters have, by cluster type: those at which its clusters are compliant. A cluster type with a
// cluster that is not known to have any is left out.
func Common(clusters []Cluster) map[string][]digest.Digest {
	releases, lacking := map[string][]digest.Digest{}, map[string]bool{}
	for _, c := range clusters {
		if c.Has() == "" {
			lacking[c.ClusterType] = true
		} else if !slices.Contains(releases[c.ClusterType], c.Has()) {
			releases[c.ClusterType] = append(releases[c.ClusterType], c.Has())
		}
	}
	for clusterType, list := range releases {
		if slices.Sort(list); lacking[clusterType] {
			delete(releases, clusterType)
		}
	}
	return releases
}

// OfReports returns the clusters of an environment as the newest report of each says, sorted by uid. The caller has verified the
// reports. An empty platform stands for all of them.
func OfReports(reports []bundle.Report, platform, environment string) Fleet {
	newest := map[string]bundle.Report{}
	for _, r := range reports {
		before, known := newest[r.Cluster.UID]
		if !known || cmp.Or(cmp.Compare(before.Agent.Incarnation, r.Agent.Incarnation), cmp.Compare(before.Agent.Seq, r.Agent.Seq)) < 0 {
			newest[r.Cluster.UID] = r
		}
	}
	f := Fleet{From: FromReports}
	for _, uid := range slices.Sorted(maps.Keys(newest)) {
		r := newest[uid]
		if r.Cluster.Environment != environment || platform != "" && r.Cluster.Platform != platform {
			continue
		}
		c := Cluster{
			Name: r.Cluster.Name, UID: uid, ClusterType: r.Cluster.Type, Ring: r.Cluster.Ring, Labels: r.Cluster.Labels,
			State: r.State, LastSeen: r.OccurredAt,
		}
		if r.Observed != nil {
			c.Release = r.Observed.Digest
		}
		f.Clusters = append(f.Clusters, c)
	}
	return f
}
