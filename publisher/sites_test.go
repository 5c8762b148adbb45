package publisher

import (
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/sitevalues"
	"github.com/wherry-dev/wherry/published"
	"github.com/wherry-dev/wherry/publisher/diff"
	"github.com/wherry-dev/wherry/publisher/impact"
	"github.com/wherry-dev/wherry/publisher/pack"
	"github.com/wherry-dev/wherry/publisher/platform"
	"github.com/wherry-dev/wherry/publisher/releases"
	"github.com/wherry-dev/wherry/scheduler"
)

// declaredDNS is a declaration of one site value.
func declaredDNS() *sitevalues.Document {
	d := &sitevalues.Document{Name: "factory", Properties: map[string]sitevalues.Property{"dns": {Type: sitevalues.String, SiteMaySet: true}}}
	if len(d.Check()) > 0 {
		panic("the declaration has a mistake")
	}
	return d
}

func dnsRow(uid, dns string) sitevalues.Row {
	return sitevalues.Row{UID: uid, Name: "plant-" + uid, Values: map[string]any{"dns": dns}}
}

// sites returns the site values in the newest release of a cluster type.
func (w *world) sites(clusterType string) (*sitevalues.Document, []sitevalues.Row) {
	w.t.Helper()
	v := w.verified(clusterType, "latest")
	tree, err := published.OpenTree(w.t.Context(), w.repository("bundles/dev/"+clusterType), v.Tree, v.Release.Content)
	require.NoError(w.t, err)
	document, rows, err := tree.Sites()
	require.NoError(w.t, err)
	require.NoError(w.t, tree.Close())
	return document, rows
}

func TestSiteValuesTravelWithTheBundleOfTheirType(t *testing.T) {
	inBoth(t, func(t *testing.T, w *world) {
		_, before := w.mustPublish()
		document, rows := w.sites("drone")
		require.Nil(t, document)
		require.Empty(t, rows)

		w.now = w.now.Add(time.Hour)
		w.clusterType("drone").Sites = &scheduler.Sites{Document: declaredDNS(), Rows: []sitevalues.Row{dnsRow("2", "two"), dnsRow("1", "one")}}
		w.clusterType("drone").Assignments[0].SiteValues = []string{"dns"}
		outcomes, _ := w.mustPublish()
		require.Equal(t, map[string]releases.Outcome{"drone": releases.OutcomePublished, "large": releases.OutcomeUnchanged, "small": releases.OutcomeUnchanged, "record": releases.OutcomePublished}, outcomes)
		document, rows = w.sites("drone")
		require.Equal(t, declaredDNS(), document)
		require.Equal(t, []sitevalues.Row{dnsRow("1", "one"), dnsRow("2", "two")}, rows)
		list, _ := w.content("drone", "latest")
		require.Equal(t, []string{"dns"}, list["web-live"].SiteValues)
		require.Empty(t, list["db-live"].SiteValues)

		// One other value of one cluster is a release of the type, and of no other type.
		w.now = w.now.Add(time.Hour)
		w.clusterType("drone").Sites.Rows[0] = dnsRow("2", "zwei")
		outcomes, _ = w.mustPublish()
		require.Equal(t, releases.OutcomePublished, outcomes["drone"])
		require.Equal(t, releases.OutcomeUnchanged, outcomes["large"])

		// Without a declaration, not a byte is other than before.
		w.now = w.now.Add(time.Hour)
		w.clusterType("drone").Sites = nil
		w.clusterType("drone").Assignments[0].SiteValues = nil
		w.mustPublish()
		require.Equal(t, w.verified("drone", "latest").Release.Content, w.verified("drone", bundle.Release{Sequence: row(t, before, "drone").Sequence}.Tag()).Release.Content)
	})
}

func TestAnInvalidRowKeepsTheClustersLastValues(t *testing.T) {
	inBoth(t, func(t *testing.T, w *world) {
		drone := w.clusterType("drone")
		drone.Sites = &scheduler.Sites{Document: declaredDNS(), Rows: []sitevalues.Row{dnsRow("1", "one"), dnsRow("2", "two")}}
		_, first := w.mustPublish()

		mistake := errors.New("clusters.yaml:7: site value dns: no")
		w.now, w.result.BaseCommit = w.now.Add(time.Hour), "decaf"
		drone.Sites = &scheduler.Sites{
			Document: declaredDNS(), Rows: []sitevalues.Row{dnsRow("1", "eins")},
			Failures: []scheduler.SiteFailure{{Cluster: "plant-2", UID: "2", Err: mistake}, {Cluster: "plant-3", UID: "3", Err: mistake}},
		}
		outcomes, done := w.mustPublish()
		require.Equal(t, releases.OutcomePublished, outcomes["drone"])
		from := &bundle.Held{Sequence: row(t, first, "drone").Sequence, BaseCommit: "c0ffee", Reason: "SiteValuesFailed"}
		require.Equal(t, []FailedSite{
			{Cluster: "plant-2", UID: "2", Error: mistake.Error(), HeldFrom: from}, {Cluster: "plant-3", UID: "3", Error: mistake.Error()},
		}, row(t, done, "drone").FailedSites)
		require.Equal(t, 2, done.FailedSites())
		held := dnsRow("2", "two")
		held.HeldFrom = from
		_, rows := w.sites("drone")
		require.Equal(t, []sitevalues.Row{dnsRow("1", "eins"), held}, rows)
		require.Equal(t, []string{"drone"}, w.environmentRecord().Incomplete)

		// The same mistake again is nothing new, and the mark names the release of the values still.
		w.now, w.result.BaseCommit = w.now.Add(time.Hour), "cafe"
		outcomes, _ = w.mustPublish()
		require.Equal(t, releases.OutcomeUnchanged, outcomes["drone"])

		// A declaration with a mistake keeps the values of all, and the assignments go on.
		w.now = w.now.Add(time.Hour)
		drone.Sites = &scheduler.Sites{Err: mistake}
		w.assign("drone", "web-live", "v2")
		_, done = w.mustPublish()
		require.Equal(t, []FailedSite{{Error: mistake.Error()}}, row(t, done, "drone").FailedSites)
		document, rows := w.sites("drone")
		require.Equal(t, declaredDNS(), document)
		require.Equal(t, from, rows[1].HeldFrom)
		require.Equal(t, "eins", rows[0].Values["dns"])
		_, files := w.content("drone", "latest")
		require.Equal(t, "text: v2\n", files["web-live/platform-config.yaml"])

		// With --strict nothing is published.
		w.opts.Strict = true
		w.assign("drone", "web-live", "v3")
		_, done = w.mustPublish()
		require.Equal(t, releases.OutcomeSkipped, row(t, done, "drone").Result)
	})
}

func TestAHeldAssignmentKeepsTheSiteValuesThatItUses(t *testing.T) {
	w := newWorld(t, "layout")
	drone := w.clusterType("drone")
	drone.Sites = &scheduler.Sites{Document: declaredDNS(), Rows: []sitevalues.Row{dnsRow("1", "one")}}
	drone.Assignments[1].SiteValues = []string{"dns"}
	w.mustPublish()

	w.now = w.now.Add(time.Hour)
	drone.Sites = nil // the annotation of the cluster type is gone, which fails what uses a value
	w.fail("drone", "db-live")
	w.mustPublish()
	document, rows := w.sites("drone")
	require.Equal(t, declaredDNS(), document)
	require.Equal(t, "one", rows[0].Values["dns"])
	list, _ := w.content("drone", "latest")
	require.Equal(t, []string{"dns"}, list["db-live"].SiteValues)
}

func TestACachedTreeIsNotTakenForOneWithOtherSiteValues(t *testing.T) {
	packer := pack.NewPacker(nil, "dev")
	ct := scheduler.ClusterTypeResult{Name: "drone", Assignments: []scheduler.Assignment{assignment("drone", "web-live", "v1")}}
	ct.Sites = &scheduler.Sites{Failures: []scheduler.SiteFailure{{Cluster: "a", Err: errors.New("no")}}}
	require.NoError(t, packer.Take(&ct))
	_, packed := packer.Of("drone")
	require.False(t, packed, "the last release may have to give values")

	ct.Sites = &scheduler.Sites{Document: declaredDNS(), Rows: []sitevalues.Row{dnsRow("1", "one")}}
	require.NoError(t, packer.Take(&ct))
	one, packed := packer.Of("drone")
	require.True(t, packed)
	files, err := pack.SiteFiles(declaredDNS(), []sitevalues.Row{dnsRow("1", "two")})
	require.NoError(t, err)
	two, err := packer.Once([]scheduler.Assignment{assignment("drone", "web-live", "v1")}, nil, files...)
	require.NoError(t, err)
	require.NotEqual(t, one.Tree.Content, two.Tree.Content)
}

func TestAPlanSaysWhichClustersGetOtherSiteValues(t *testing.T) {
	w := newWorld(t, "layout")
	w.clusterType("drone").Sites = &scheduler.Sites{Document: declaredDNS(), Rows: []sitevalues.Row{dnsRow("1", "one"), dnsRow("2", "two")}}
	w.mustPublish()

	w.clusterType("drone").Sites = &scheduler.Sites{
		Document: declaredDNS(), Rows: []sitevalues.Row{dnsRow("1", "eins"), {UID: "3", Name: "plant-3", Labels: map[string]string{"line": "a"}, Values: map[string]any{"token": "Zm9vYmFyMTIz"}}},
		Failures: []scheduler.SiteFailure{{Cluster: "plant-2", UID: "2", Err: errors.New("no")}},
	}
	w.opts.Fleet = &impact.Fleet{From: impact.FromRoster, Clusters: []impact.Cluster{{Name: "plant-1", ClusterType: "drone"}, {Name: "plant-2", ClusterType: "drone"}, {Name: "plant-3", ClusterType: "drone"}}}
	difference, err := w.compare(platform.Built{Result: w.result, Loaded: &platform.Loaded{Model: scheduler.NewModel("dev")}})
	require.NoError(t, err)
	require.True(t, difference.Incomplete())
	drone := difference.ClusterTypes[0]
	require.Equal(t, diff.ResultChanged, drone.Result)
	require.Empty(t, drone.Changes)
	require.Equal(t, []diff.FailedSite{{Cluster: "plant-2", Error: "no", Stands: true}}, drone.FailedSites)
	data, err := json.Marshal(drone.SiteValues)
	require.NoError(t, err)
	require.JSONEq(t, `{"clusters": [
		{"cluster": "plant-1", "uid": "1", "change": "changed", "values": [{"key": "dns", "old": "one", "new": "eins"}]},
		{"cluster": "plant-2", "uid": "2", "change": "changed", "held": true},
		{"cluster": "plant-3", "uid": "3", "change": "added", "values": [{"key": "labels.line", "old": null, "new": "a"}, {"key": "token", "old": null, "new": "(secret)", "secret": true}]}
	]}`, string(data))
	require.Equal(t, 3, difference.Impact.Type("drone").ChangedClusters)
	require.Positive(t, difference.Impact.Type("drone").Bytes)
}

func TestWhoeverSignsSeesTheSiteValuesThatChange(t *testing.T) {
	q := newQuorum(newWorld(t, "layout"), 2)
	q.small("v1")
	q.clusterType("drone").Sites = &scheduler.Sites{Document: declaredDNS(), Rows: []sitevalues.Row{dnsRow("1", "one")}}
	q.outcomes(q.anna, q.bob)
	q.now = q.now.Add(time.Hour)
	q.clusterType("drone").Sites = &scheduler.Sites{Document: declaredDNS(), Rows: []sitevalues.Row{dnsRow("1", "evil")}}
	_, err := q.publish(q.anna)
	require.NoError(t, err)
	pending, err := q.open()
	require.NoError(t, err)
	one, evil := "one", "evil"
	for _, ct := range pending.ClusterTypes {
		if ct.ClusterType == "drone" {
			require.Empty(t, ct.Changed)
			require.Equal(t, &diff.SitesDifference{Clusters: []diff.SiteDifference{
				{Cluster: "plant-1", UID: "1", Change: diff.ChangeChanged, Values: []diff.SiteValueDifference{{Key: "dns", Old: &one, New: &evil}}},
			}}, ct.SiteValues)
			return
		}
	}
	require.Fail(t, "nothing waits for signatures")
}
