package fleet

import (
	"net/url"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/duration"
	"github.com/wherry-dev/wherry/hub/store"
)

var noon = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

// everything is a query with all fields set.
func everything() Query {
	return Query{
		Selector: "region=east,gpu!=true", Cluster: "plant-7", Platform: "shop", Environments: []string{"prod"}, Type: "drone", Ring: "canary",
		Workspace: "team", Application: "retail", Workload: "till", Target: "main", Adapter: "flux", Version: "1.2", Commit: "c0ffee1",
		ConfigDigest: "1234567", Content: "2345678", Release: "sha256:3456789", Image: "registry.example/till:1.2",
		State: []bundle.State{bundle.Failed, store.Stale}, Relation: []Relation{Behind, Foreign}, SilentFor: 36 * time.Hour,
		AsOf: noon.Add(-time.Hour - time.Millisecond), Sort: "-lastSeen", After: "a/b", Limit: 7,
	}
}

func TestAQueryIsReadAsItWasWritten(t *testing.T) {
	q := everything()
	for v, i := reflect.ValueOf(q), 0; i < v.NumField(); i++ {
		require.False(t, v.Field(i).IsZero(), "field %s has no parameter here", v.Type().Field(i).Name)
	}
	values := q.Values()
	require.Len(t, values, reflect.TypeFor[Query]().NumField(), "each field is one parameter")
	again, err := ParseQuery(values, noon)
	require.NoError(t, err)
	require.Equal(t, q, again)
	again, err = ParseQuery(Query{}.Values(), noon)
	require.NoError(t, err)
	require.Zero(t, again)
}

func TestParametersThatAreNotAcceptable(t *testing.T) {
	for query, want := range map[string]string{
		"enviroment=prod":              `unknown parameter "enviroment"; did you mean environment?`,
		"xyzzyfoo=1":                   `unknown parameter "xyzzyfoo"`,
		"type=a&type=b":                "parameter type is given 2 times",
		"l=a&selector=b":               "give one of them",
		"limit=0":                      "not a positive number",
		"limit=-1":                     "not a positive number",
		"limit=many":                   "not a positive number",
		"limit=1001":                   "parameter limit: 1001 is more than 1000",
		"asOf=yesterday":               "neither a time",
		"asOf=2030-01-01T00:00:00Z":    "in the future",
		"silentFor=-1h":                "not a duration",
		"silentFor=99999999d":          "not a duration",
		"workload=%1b%5b2J":            "control characters",
		"type=" + long(513):            "longer than 512 bytes",
		"selector=" + long(4097):       "longer than 4096 bytes",
		strings.Repeat("state=a&", 17): "given 17 times",

		"state=a,b,c,d,e,f,g,h,i,j,k,l,m,n,o,p,q": "more than 16 values",
	} {
		values, err := url.ParseQuery(query)
		require.NoError(t, err)
		_, err = ParseQuery(values, noon, "of", "by")
		require.ErrorIs(t, err, store.ErrInvalid, query)
		require.ErrorContains(t, err, want, query)
		require.Equal(t, store.Plain(err.Error()), err.Error())
	}
}

func long(n int) string { return strings.Repeat("x", n) }

func TestAnEmptyParameterIsNone(t *testing.T) {
	q, err := ParseQuery(url.Values{"environment": {""}, "state": {"", "failed"}, "limit": {""}, "of": {"x"}}, noon, "of")
	require.NoError(t, err)
	require.Equal(t, Query{State: []bundle.State{bundle.Failed}}, q)
}

func TestStatesAreRepeatedOrHaveCommas(t *testing.T) {
	for _, values := range []url.Values{{"state": {"failed,stale"}}, {"state": {"failed", "stale"}}, {"state": {"failed, stale,failed"}}} {
		q, err := ParseQuery(values, noon)
		require.NoError(t, err)
		require.Equal(t, []bundle.State{bundle.Failed, store.Stale}, q.State)
	}
}

func TestMomentsAndDurations(t *testing.T) {
	for text, want := range map[string]time.Time{
		"2026-11-20T13:00:00+01:00": noon.Add(-24 * time.Hour), "2026-11-21": noon.Add(-12 * time.Hour),
		"24h": noon.Add(-24 * time.Hour), "7d": noon.Add(-7 * 24 * time.Hour), "2w": noon.Add(-14 * 24 * time.Hour), "0s": noon,
	} {
		got, err := duration.Moment(text, noon)
		require.NoError(t, err)
		require.Equal(t, want, got, text)
		got, err = duration.Moment(FormatMoment(got), noon.Add(time.Hour))
		require.NoError(t, err)
		require.Equal(t, want, got, text)
	}
}

func TestSidesOfAComparison(t *testing.T) {
	for text, want := range map[string]Query{
		"prod":                          {Environments: []string{"prod"}},
		"prod,asOf=24h":                 {Environments: []string{"prod"}, AsOf: noon.Add(-24 * time.Hour)},
		"type=drone,asOf=24h":           {Type: "drone", AsOf: noon.Add(-24 * time.Hour)},
		"prod,environment=dev":          {Environments: []string{"prod", "dev"}},
		"type=drone, environment=prod":  {Type: "drone", Environments: []string{"prod"}},
		everything().Values().Encode():  everything(),
		"selector=region%3Deast%2Cgpu":  {Selector: "region=east,gpu"},
		"environment=prod&state=failed": {Environments: []string{"prod"}, State: []bundle.State{bundle.Failed}},
	} {
		side, err := ParseSide(text, noon)
		require.NoError(t, err)
		require.Equal(t, Side{Query: want, Name: text}, side, text)
	}
	for _, text := range []string{"", " ", "typ=drone", "type=drone,prod", "a=b=c,", "\x1b", long(5000), "type=%zz"} {
		_, err := ParseSide(text, noon)
		require.ErrorIs(t, err, store.ErrInvalid, text)
	}
}

func FuzzParseQuery(f *testing.F) {
	f.Add(everything().Values().Encode())
	f.Add("state=a,b&asOf=7d&l=x%1b")
	f.Fuzz(func(t *testing.T, text string) {
		values, err := url.ParseQuery(text)
		if err != nil {
			return
		}
		q, err := ParseQuery(values, noon)
		if err != nil {
			require.ErrorIs(t, err, store.ErrInvalid)
			return
		}
		again, err := ParseQuery(q.Values(), noon)
		require.NoError(t, err)
		require.Equal(t, q, again)
	})
}

func TestAllTextsOfAnAnswerArePlain(t *testing.T) {
	const bad = "x\x1b[2J\u202e"
	answer := Clusters{Next: bad, Totals: Totals{States: map[bundle.State]int{bad: 2}}, Clusters: []Cluster{{
		ClusterStatus: store.ClusterStatus{Identity: store.Identity{Name: bad, Labels: map[string]string{bad: bad}}, Observed: &bundle.ReportRelease{Digest: bad}, Since: noon},
		Desired:       &Desired{Release: &bundle.ReportRelease{BaseCommit: bad}},
	}}}
	Plain(&answer)
	const good = "x[2J"
	require.Equal(t, Clusters{Next: good, Totals: Totals{States: map[bundle.State]int{good: 2}}, Clusters: []Cluster{{
		ClusterStatus: store.ClusterStatus{Identity: store.Identity{Name: good, Labels: map[string]string{good: good}}, Observed: &bundle.ReportRelease{Digest: good}, Since: noon},
		Desired:       &Desired{Release: &bundle.ReportRelease{BaseCommit: good}},
	}}}, answer)
}
