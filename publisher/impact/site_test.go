package impact

import (
	"testing"
	"time"

	"github.com/opencontainers/go-digest"
	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/bundle"
)

func TestASiteIsTheClustersWithOneLabel(t *testing.T) {
	at := func(site string) map[string]string { return map[string]string{"site": site, "region": "north"} }
	f := Fleet{From: FromRoster, Clusters: []Cluster{
		{Name: "till-2", ClusterType: "shop", Labels: at("quay")},
		{Name: "roof", ClusterType: "drone"},
		{Name: "till-1", ClusterType: "shop", Labels: at("quay")},
		{Name: "mast", ClusterType: "antenna", Labels: at("hill")},
		{Name: "cart", ClusterType: "shop", Labels: map[string]string{"site": ""}},
		{Name: "gate", ClusterType: "drone", Labels: at("quay")},
	}}
	names := func(label string) map[string][]string {
		all := map[string][]string{}
		for _, s := range f.Sites(label) {
			for _, c := range s.Clusters {
				all[s.Name] = append(all[s.Name], c.Name)
			}
		}
		return all
	}
	require.Equal(t, map[string][]string{
		"hill": {"mast"}, "quay": {"gate", "till-1", "till-2"}, "(cluster type drone)": {"roof"}, "(cluster type shop)": {"cart"},
	}, names(SiteLabel))
	require.Equal(t, map[string][]string{
		"north": {"mast", "gate", "till-1", "till-2"}, "(cluster type drone)": {"roof"}, "(cluster type shop)": {"cart"},
	}, names("region"))

	sites := f.Sites(SiteLabel)
	var order []string
	for _, s := range sites {
		order = append(order, s.Name)
	}
	require.Equal(t, []string{"hill", "quay", "(cluster type drone)", "(cluster type shop)"}, order)
	require.Equal(t, []string{"drone", "shop"}, sites[1].ClusterTypes())
	require.Equal(t, "gate", sites[1].Of("drone")[0].Name)
	require.Empty(t, Fleet{}.Sites(SiteLabel))
}

func TestTheNewestReportOfEachClusterCounts(t *testing.T) {
	old, now := digest.FromString("old"), digest.FromString("now")
	report := func(uid, environment string, incarnation, seq int64, state bundle.State, release digest.Digest) bundle.Report {
		r := bundle.Report{State: state, OccurredAt: time.Unix(seq, 0), Agent: bundle.ReportAgent{Incarnation: incarnation, Seq: seq}}
		r.Cluster = bundle.ReportCluster{UID: uid, Name: "n" + uid, Platform: "p", Type: "shop", Environment: environment, Labels: map[string]string{"site": "quay"}}
		if release != "" {
			r.Observed = &bundle.ReportRelease{Digest: release}
		}
		return r
	}
	reports := []bundle.Report{
		report("b", "prod", 1, 9, bundle.Compliant, old),
		report("b", "prod", 2, 1, bundle.Failed, now), // a later incarnation is newer
		report("a", "prod", 1, 2, bundle.Compliant, now),
		report("a", "prod", 1, 1, bundle.Compliant, old),
		report("c", "dev", 1, 1, bundle.Compliant, now),
		report("d", "prod", 1, 1, bundle.Pending, ""),
	}
	f := OfReports(reports, "p", "prod")
	require.Equal(t, FromReports, f.From)
	require.Len(t, f.Clusters, 3)
	require.Equal(t, Cluster{
		Name: "na", UID: "a", ClusterType: "shop", Labels: map[string]string{"site": "quay"}, Release: now,
		State: bundle.Compliant, LastSeen: time.Unix(2, 0),
	}, f.Clusters[0])
	require.Equal(t, now, f.Clusters[0].Has())
	require.Equal(t, now, f.Clusters[1].Release)
	require.Empty(t, f.Clusters[1].Has(), "it has failed")
	require.Empty(t, f.Clusters[2].Has())
	require.Empty(t, OfReports(reports, "other", "prod").Clusters)
}
