package assignments

import (
	"testing"
	"time"

	"github.com/opencontainers/go-digest"
	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/reconcilers"
)

var (
	good = reconcilers.Result{State: bundle.Compliant}
	bad  = reconcilers.Result{State: bundle.Failed, Reason: "Unhealthy", Fault: reconcilers.FaultRelease}
)

func TestAChangeOfValuesIsAChangeOfContent(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	one, two, declared := digest.FromString("one"), digest.FromString("two"), digest.FromString("declared")
	a := bundle.Assignment{Name: "a", Content: digest.FromString("content"), SiteValues: []string{"dns"}}
	reached := func(values digest.Digest) Record {
		return Record{}.Listed(a, "flux", now).Valued(values, declared, now).Begun("flux", now).After(good, Rules{}, now)
	}
	r := reached(one)
	require.Equal(t, bundle.Compliant, r.Item.State)
	require.Equal(t, one, r.Item.SiteValues)
	require.False(t, r.Stale("flux"))
	require.Equal(t, r, r.Valued(one, declared, now), "the same values change nothing")

	changed := r.Valued(two, declared, now)
	require.True(t, changed.Stale("flux"))
	require.Equal(t, bundle.Pending, changed.Item.State)
	require.Equal(t, Change, changed.Due("flux", true))

	missing := r.Valued(NoValues, declared, now).Held(Wait{State: bundle.Pending, Reason: ReasonSiteValueMissing}, now)
	require.True(t, missing.Stale("flux"))
	require.True(t, missing.Proven("flux"), "only the site can help")
	require.True(t, missing.WaitsForValues())
	require.Empty(t, missing.Item.SiteValues)
	back := missing.Valued(one, declared, now)
	require.False(t, back.Stale("flux"), "it still has these values")
	require.Equal(t, Change, back.Due("flux", true))

	none := a
	none.SiteValues = nil
	r = r.Listed(none, "flux", now)
	require.Equal(t, none.Desired(), r.Desired())
	require.Empty(t, r.Item.SiteValues)
	require.Equal(t, a.Content, Record{Spec: none}.Desired(), "as before there were values")
}

func TestTheReleaseIsNotBlamedForValuesOfTheSite(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	one, two, declared, other := digest.FromString("one"), digest.FromString("two"), digest.FromString("declared"), digest.FromString("other")
	a := bundle.Assignment{Name: "a", Content: digest.FromString("content"), SiteValues: []string{"dns"}}
	newer := a
	newer.Content = digest.FromString("newer")
	start := Record{}.Listed(a, "flux", now).Valued(one, declared, now).Begun("flux", now).After(good, Rules{}, now)
	for _, c := range []struct {
		name   string
		change func(Record) Record
		blamed bool
	}{
		{"a value of the site", func(r Record) Record { return r.Valued(two, declared, now) }, false},
		{"one after another", func(r Record) Record {
			return r.Valued(two, declared, now).Begun("flux", now).After(bad, Rules{}, now).Valued(one, declared, now)
		}, false},
		{"a value of the release", func(r Record) Record { return r.Valued(two, other, now) }, true},
		{"another declaration first, and then a value of the site", func(r Record) Record { return r.Valued(one, other, now).Valued(two, other, now) }, false},
		{"content", func(r Record) Record { return r.Listed(newer, "flux", now).Valued(one, declared, now) }, true},
		{"content and values", func(r Record) Record { return r.Listed(newer, "flux", now).Valued(two, declared, now) }, true},
		{"content that was missing a value first", func(r Record) Record {
			return r.Listed(newer, "flux", now).Valued(NoValues, declared, now).Valued(two, declared, now)
		}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := c.change(start).Begun("flux", now).After(bad, Rules{}, now)
			require.Equal(t, c.blamed, r.Blames())
		})
	}
}
