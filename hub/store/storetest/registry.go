package storetest

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/hub/store"
)

func registryTests() []test {
	return []test{
		{"a cluster that sends no reports has no key", aClusterThatSendsNoReportsHasNoKey},
		{"registering the same again changes nothing", registeringTheSameAgainChangesNothing},
		{"a registration keeps what it was given", aRegistrationKeepsWhatItWasGiven},
		{"what a registration leaves open stays", whatARegistrationLeavesOpenStays},
		{"replacing a cluster revokes its previous key", replacingAClusterRevokesItsPreviousKey},
		{"a removed cluster is unknown, and its name and key are free", aRemovedClusterIsUnknownAndItsNameAndKeyAreFree},
		{"a retired cluster is refused for good, with the reason, until a person brings it back", aRetiredClusterIsRefusedForGoodWithTheReasonUntilAPersonBringsItBack},
		{"a long reason is cut", aLongReasonIsCut},
		{"a name is preferred to a uid, and a registered cluster to a retired one", aNameIsPreferredToAUidAndARegisteredClusterToARetiredOne},
		{"lists are by name", listsAreByName},
	}
}

func registeringTheSameAgainChangesNothing(t *testing.T, f *fixture) {
	base := f.added("plant-7", "plant-8")[0]
	before, err := f.Registrations(t.Context())
	require.NoError(t, err)
	with := func(change func(*store.Cluster)) store.Cluster {
		c := base
		change(&c)
		return c
	}
	for _, tt := range []struct {
		name    string
		cluster store.Cluster
		want    error
	}{
		{"the same", base, nil},
		{"the same interval in words", with(func(c *store.Cluster) { c.ExpectedInterval = time.Hour }), nil},
		{"no platform", with(func(c *store.Cluster) { c.Platform = "" }), nil},
		{"another platform", with(func(c *store.Cluster) { c.Platform = "mine" }), store.ErrExists},
		{"another interval", with(func(c *store.Cluster) { c.ExpectedInterval = time.Minute }), store.ErrExists},
		{"another key", with(func(c *store.Cluster) { c.Key = keyOf(9) }), store.ErrExists},
		{"another type", with(func(c *store.Cluster) { c.Type = "large" }), store.ErrExists},
		{"another label", with(func(c *store.Cluster) { c.Labels = map[string]string{"region": "eu"} }), store.ErrExists},
		{"the name for another uid", with(func(c *store.Cluster) { c.UID, c.Key = "uid-9", keyOf(9) }), store.ErrExists},
		{"the key for another uid", with(func(c *store.Cluster) { c.UID, c.Name = "uid-9", "plant-9" }), store.ErrExists},
		{"a name that is not acceptable", with(func(c *store.Cluster) { c.Name = "a\x1b" }), store.ErrInvalid},
	} {
		changed, err := f.AddCluster(t.Context(), tt.cluster)
		require.ErrorIs(t, err, tt.want, tt.name)
		require.False(t, changed, tt.name)
		after, err := f.Registrations(t.Context())
		require.NoError(t, err)
		require.Equal(t, before, after, tt.name)
	}
}

func aRegistrationKeepsWhatItWasGiven(t *testing.T, f *fixture) {
	c := cluster("plant-7", 1)
	c.Ring, c.Labels, c.ExpectedInterval = "canary", map[string]string{"site": "north"}, 24*time.Hour
	_, err := f.AddCluster(t.Context(), c)
	require.NoError(t, err)
	want := c
	want.Key = nil
	for _, nameOrUID := range []string{"plant-7", "uid-plant-7"} {
		r, err := f.Registration(t.Context(), nameOrUID)
		require.NoError(t, err)
		require.Equal(t, store.Registration{Cluster: want, KeyIDs: []string{kidOf(t, c.Key)}, AddedAt: Epoch, ExpectedSeconds: 86400}, r)
	}
	r, err := f.Registered(t.Context(), c.UID)
	require.NoError(t, err)
	require.Equal(t, want, r.Cluster)
	_, err = f.Registered(t.Context(), c.Name)
	require.ErrorIs(t, err, store.ErrUnknownCluster, "by uid alone")
}

func whatARegistrationLeavesOpenStays(t *testing.T, f *fixture) {
	open := cluster("plant-7", 1)
	open.Platform, open.ExpectedInterval = "", 24*time.Hour
	full := cluster("plant-7", 1)
	other := cluster("plant-7", 2)
	for _, step := range []struct {
		cluster  store.Cluster
		replace  bool
		changed  bool
		platform string
	}{{open, false, true, ""}, {full, false, true, "shop"}, {open, false, false, "shop"}, {open, true, false, "shop"}, {other, true, true, "shop"}} {
		add := f.AddCluster
		if step.replace {
			add = f.ReplaceCluster
		}
		changed, err := add(t.Context(), step.cluster)
		require.NoError(t, err)
		require.Equal(t, step.changed, changed)
		r, err := f.Registration(t.Context(), "plant-7")
		require.NoError(t, err)
		require.Equal(t, step.platform, r.Platform)
		require.Equal(t, 24*time.Hour, r.ExpectedInterval)
	}
}

func replacingAClusterRevokesItsPreviousKey(t *testing.T, f *fixture) {
	c := f.added("plant-7")[0]
	c.Key, c.Type = keyOf(2), "large"
	changed, err := f.ReplaceCluster(t.Context(), c)
	require.NoError(t, err)
	require.True(t, changed)
	keys, err := f.Keys(t.Context(), c.UID)
	require.NoError(t, err)
	require.Len(t, keys.Current, 1)
	require.Equal(t, c.Key, keys.Current[kidOf(t, c.Key)])
	require.Empty(t, keys.Previous)
	r, err := f.Registration(t.Context(), c.Name)
	require.NoError(t, err)
	require.Equal(t, "large", r.Type)
}

func aRemovedClusterIsUnknownAndItsNameAndKeyAreFree(t *testing.T, f *fixture) {
	c := f.added("plant-7")[0]
	removed, err := f.RemoveCluster(t.Context(), c.UID)
	require.NoError(t, err)
	require.Equal(t, "plant-7", removed.Name)
	_, err = f.RemoveCluster(t.Context(), "plant-7")
	require.ErrorIs(t, err, store.ErrUnknownCluster)
	_, err = f.Keys(t.Context(), c.UID)
	require.ErrorIs(t, err, store.ErrUnknownCluster)
	_, err = f.Registration(t.Context(), c.UID)
	require.ErrorIs(t, err, store.ErrUnknownCluster)
	require.Empty(t, f.scanned(time.Time{}, store.Scope{}))
	retired, err := f.RetiredClusters(t.Context())
	require.NoError(t, err)
	require.Empty(t, retired)
	c.UID = "uid-other"
	_, err = f.AddCluster(t.Context(), c)
	require.NoError(t, err)
}

func aRetiredClusterIsRefusedForGoodWithTheReasonUntilAPersonBringsItBack(t *testing.T, f *fixture) {
	c := f.added("plant-7", "plant-8")[0]
	for _, reason := range []string{"sold\x1b in May", "again"} {
		r, err := f.RetireCluster(t.Context(), "plant-7", reason)
		require.NoError(t, err)
		require.Equal(t, c.UID, r.UID)
	}
	_, err := f.RetireCluster(t.Context(), "nobody", "")
	require.ErrorIs(t, err, store.ErrUnknownCluster)
	var retired *store.RetiredError
	_, err = f.Keys(t.Context(), c.UID)
	require.ErrorIs(t, err, store.ErrRetired)
	require.ErrorAs(t, err, &retired)
	require.Equal(t, store.RetiredError{UID: c.UID, Reason: "sold in May", At: Epoch}, *retired)
	all, err := f.Registrations(t.Context())
	require.NoError(t, err)
	require.Equal(t, []string{"plant-8"}, names(all))
	all, err = f.RetiredClusters(t.Context())
	require.NoError(t, err)
	require.Equal(t, []string{"plant-7"}, names(all))
	require.Equal(t, Epoch, *all[0].RetiredAt)
	require.Equal(t, "sold in May", all[0].RetiredReason)
	r, err := f.Registration(t.Context(), "plant-7")
	require.NoError(t, err)
	require.NotNil(t, r.RetiredAt)

	f.clock.Add(time.Hour)
	changed, err := f.AddCluster(t.Context(), c)
	require.NoError(t, err)
	require.True(t, changed)
	keys, err := f.Keys(t.Context(), c.UID)
	require.NoError(t, err)
	require.Len(t, keys.Current, 1)

	f.clock.Add(time.Hour)
	c.Ring = "canary"
	_, err = f.ReplaceCluster(t.Context(), c)
	require.NoError(t, err)
	r, err = f.Registered(t.Context(), c.UID)
	require.NoError(t, err)
	require.Equal(t, Epoch.Add(time.Hour), r.AddedAt, "since when it is registered without a break")
}

func aLongReasonIsCut(t *testing.T, f *fixture) {
	f.added("plant-7")
	_, err := f.RetireCluster(t.Context(), "plant-7", strings.Repeat("x", 1<<20))
	require.NoError(t, err)
	all, err := f.RetiredClusters(t.Context())
	require.NoError(t, err)
	require.Less(t, len(all[0].RetiredReason), 2<<10)
}

func aNameIsPreferredToAUidAndARegisteredClusterToARetiredOne(t *testing.T, f *fixture) {
	f.added("plant-7")
	other := cluster("plant-9", 9)
	other.Name = "uid-plant-7"
	_, err := f.AddCluster(t.Context(), other)
	require.NoError(t, err)
	r, err := f.Registration(t.Context(), "uid-plant-7")
	require.NoError(t, err)
	require.Equal(t, other.UID, r.UID)
	_, err = f.RetireCluster(t.Context(), other.UID, "")
	require.NoError(t, err)
	r, err = f.Registration(t.Context(), "uid-plant-7")
	require.NoError(t, err)
	require.Equal(t, "plant-7", r.Name)
}

func listsAreByName(t *testing.T, f *fixture) {
	f.added("c", "a", "b")
	all, err := f.Registrations(t.Context())
	require.NoError(t, err)
	require.Equal(t, []string{"a", "b", "c"}, names(all))
	for _, name := range []string{"c", "b"} {
		_, err := f.RetireCluster(t.Context(), name, "")
		require.NoError(t, err)
	}
	all, err = f.RetiredClusters(t.Context())
	require.NoError(t, err)
	require.Equal(t, []string{"b", "c"}, names(all))
}

func aClusterThatSendsNoReportsHasNoKey(t *testing.T, f *fixture) {
	quiet, loud := cluster("plant-7", 1), cluster("plant-7", 1)
	quiet.Key, quiet.Reporting = nil, store.NotReporting
	both := quiet
	both.Key = keyOf(2)
	for _, c := range []store.Cluster{both, {Identity: quiet.Identity}, {Identity: quiet.Identity, Reporting: "some"}} {
		_, err := f.AddCluster(t.Context(), c)
		require.ErrorIs(t, err, store.ErrInvalid)
	}
	registered := func() store.Registration {
		t.Helper()
		r, err := f.Registered(t.Context(), quiet.UID)
		require.NoError(t, err)
		return r
	}
	for _, want := range []bool{true, false} {
		changed, err := f.AddCluster(t.Context(), quiet)
		require.NoError(t, err)
		require.Equal(t, want, changed)
		require.Equal(t, store.NotReporting, registered().Reporting)
		require.Empty(t, registered().KeyIDs)
	}
	require.Equal(t, store.NotReporting, f.scanned(time.Time{}, store.Scope{})[0].Reporting)
	keys, err := f.Keys(t.Context(), quiet.UID)
	require.NoError(t, err)
	require.Empty(t, keys.Current)

	_, err = f.AddCluster(t.Context(), loud)
	require.ErrorIs(t, err, store.ErrExists)
	_, err = f.ReplaceCluster(t.Context(), loud)
	require.NoError(t, err)
	require.Empty(t, registered().Reporting)
	_, err = f.AddCluster(t.Context(), quiet)
	require.ErrorIs(t, err, store.ErrExists)
	_, err = f.ReplaceCluster(t.Context(), quiet)
	require.NoError(t, err)
	require.Equal(t, store.NotReporting, registered().Reporting)
	keys, err = f.Keys(t.Context(), quiet.UID)
	require.NoError(t, err)
	require.Empty(t, keys.Current, "the key of before is revoked")
	require.Empty(t, keys.Previous)
}
