package metrics

import (
	"flag"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/bundle/hubapi"
	"github.com/wherry-dev/wherry/hub/store"
)

func TestPage(t *testing.T) {
	var c Counters
	c.Stored(store.ViaHTTP, 3, 1)
	c.Rejected(hubapi.CodeConflict)
	c.Refused(hubapi.CodeOverQuota)
	c.Refused(hubapi.CodeOverQuota)
	c.Answered("GET /v1/clusters", 200, 20*time.Millisecond)
	c.Answered("GET /v1/clusters", 200, 2*time.Minute)
	c.Answered("", 404, time.Millisecond)
	c.Trimmed(store.Trimmed{Envelopes: 7, Transitions: 2})
	page := string(c.Page(Snapshot{
		Version: "v1", End: 12, Applied: 10, DatabaseBytes: 4096,
		Environments: []Clusters{{"pr\"od", "compliant", 5}, {"stage", "failed", 1}},
		Types:        []Clusters{{"drone", "compliant", 6}},
		Releases: []Release{
			{Platform: "shop", Environment: "prod", Type: "drone", Name: "2 (ab)", Commit: "c0ffee", IssuedAt: time.Unix(10, 0), ExpiresAt: time.Unix(20, 0), Compliant: 4, Failed: 1},
			{Platform: "shop", Environment: "dev", Type: "drone", Name: "3 (cd)"},
		},
		Deployments: []Deployments{{"prod", "web", "1.4.2", 5}},
		Trust:       map[string]time.Time{"shop": time.Unix(30, 0)},
		Tokens:      []Token{{"ci", "publisher", time.Unix(40, 0)}},
		DiskFree:    0, DiskSize: 100,
		Upstream: &Upstream{Position: 9, BehindSeconds: 1.5, Forwarded: 8, Waiting: map[hubapi.Code]int{hubapi.CodeUnknownCluster: 2}, Failing: true},
	}))
	for _, line := range []string{
		`wherry_hub_clusters{environment="pr\"od",state="compliant"} 5`,
		`wherry_hub_clusters_by_type{type="drone",state="compliant"} 6`,
		`wherry_hub_release_clusters{platform="shop",environment="prod",type="drone",release="2 (ab)",commit="c0ffee",verdict="compliant"} 4`,
		`wherry_hub_release_clusters{platform="shop",environment="prod",type="drone",release="2 (ab)",commit="c0ffee",verdict="failed"} 1`,
		`wherry_hub_release_clusters{platform="shop",environment="dev",type="drone",release="3 (cd)",commit="",verdict="failed"} 0`,
		`wherry_hub_release_issued_timestamp_seconds{platform="shop",environment="prod",type="drone",release="2 (ab)"} 10`,
		`wherry_hub_release_expires_timestamp_seconds{platform="shop",environment="prod",type="drone",release="2 (ab)"} 20`,
		`wherry_hub_deployments{environment="prod",workload="web",version="1.4.2"} 5`,
		`wherry_hub_trust_expires_timestamp_seconds{platform="shop"} 30`,
		`wherry_hub_access_token_expires_timestamp_seconds{name="ci",role="publisher"} 40`,
		`wherry_hub_disk_free_bytes 0`,
		`wherry_hub_disk_size_bytes 100`,
		`wherry_hub_reports_rejected_total{code="BadSignature"} 0`,
		`wherry_hub_requests_refused_total{code="Unavailable"} 0`,
		`wherry_hub_reports_stored_total{via="http"} 3`,
		`wherry_hub_reports_stored_total{via="media"} 0`,
		`wherry_hub_reports_duplicate_total 1`,
		`wherry_hub_reports_rejected_total{code="Conflict"} 1`,
		`wherry_hub_requests_refused_total{code="OverQuota"} 2`,
		`wherry_hub_request_duration_seconds_bucket{route="GET /v1/clusters",status="2xx",le="0.025"} 1`,
		`wherry_hub_request_duration_seconds_bucket{route="GET /v1/clusters",status="2xx",le="60"} 1`,
		`wherry_hub_request_duration_seconds_bucket{route="GET /v1/clusters",status="2xx",le="+Inf"} 2`,
		`wherry_hub_request_duration_seconds_count{route="none",status="4xx"} 1`,
		`wherry_hub_trimmed_envelopes_total 7`,
		`wherry_hub_feed_position 12`,
		`wherry_hub_feed_lag 2`,
		`wherry_hub_upstream_waiting_clusters{code="UnknownCluster"} 2`,
		`wherry_hub_upstream_behind_seconds 1.5`,
		`wherry_hub_database_bytes 4096`,
	} {
		require.Contains(t, page, "\n"+line+"\n")
	}

	const documented = "../../docs/reference/hub-metrics.md"
	if *update {
		require.NoError(t, os.WriteFile(documented, []byte(documentation(page)), 0o644))
	}
	got, err := os.ReadFile(documented)
	require.NoError(t, err)
	require.Equal(t, documentation(page), string(got), "-update writes it")
}

var update = flag.Bool("update", false, "write docs/reference/hub-metrics.md anew")

var aMetric = regexp.MustCompile("# HELP (wherry_\\w+) (.*)\\.\n# TYPE \\w+ (\\w+)\n.*?(\\{.*\\})? \\S+\n")

// documentation returns the page of the documentation that lists the metrics of a page.
func documentation(page string) string {
	var b strings.Builder
	b.WriteString("# Metrics of a hub\n\n`GET /metrics` needs an access token of role metrics. Made of their help by `go test ./hub/metrics -update`. No label names a cluster. Beyond 500, " +
		"environments, cluster types, releases and versions count together as `(others)`.\n\n| metric | type | |\n|-|-|-|\n")
	for _, m := range aMetric.FindAllStringSubmatch(page, -1) {
		labels := regexp.MustCompile(`="(\\.|[^"])*"`).ReplaceAllString(strings.Replace(m[4], `,le="0.005"`, "", 1), "")
		fmt.Fprintf(&b, "| `%s%s` | %s | %s |\n", m[1], labels, m[3], m[2])
	}
	return b.String()
}

func TestALargeFleetHasAPageOfBoundedSize(t *testing.T) {
	var many []Clusters
	for i := range 10 * MaxNames {
		for _, state := range store.States() {
			many = append(many, Clusters{fmt.Sprintf("type-%05d", i), string(state), 2})
		}
	}
	s := Snapshot{Types: many, DatabaseBytes: -1, End: -1, Trust: map[string]time.Time{}}
	for i := range 2 * MaxNames {
		name := fmt.Sprint(i)
		s.Releases = append(s.Releases, Release{Type: name, Waiting: 1, Failed: i / (2*MaxNames - 1), ExpiresAt: time.Unix(1, 0)})
		s.Deployments = append(s.Deployments, Deployments{Version: name, Count: 1})
		s.Tokens = append(s.Tokens, Token{Name: name, ExpiresAt: time.Unix(int64(i), 0)})
		s.Trust[name] = time.Unix(1, 0)
	}
	page := string((&Counters{}).Page(s))
	for metric, most := range map[string]int{
		"wherry_hub_release_clusters": 5 * (MaxNames + 1), "wherry_hub_release_expires_timestamp_seconds": MaxNames, "wherry_hub_deployments": MaxNames + 1,
		"wherry_hub_access_token_expires_timestamp_seconds": MaxNames, "wherry_hub_trust_expires_timestamp_seconds": MaxNames,
	} {
		require.Equal(t, most, strings.Count(page, metric+"{"), metric)
	}
	require.Contains(t, page, `type="999",release="",commit="",verdict="failed"} 1`, "what fails is named")
	require.Contains(t, page, fmt.Sprintf(`type="(others)",release="(others)",commit="(others)",verdict="waiting"} %d`, MaxNames))
	require.Contains(t, page, fmt.Sprintf(`workload="(others)",version="(others)"} %d`, MaxNames))
	require.LessOrEqual(t, strings.Count(page, "wherry_hub_clusters_by_type{"), (MaxNames+1)*len(store.States()))
	require.Contains(t, page, fmt.Sprintf(`wherry_hub_clusters_by_type{type="(others)",state="failed"} %d`, 9*MaxNames*2))
	require.NotContains(t, page, "wherry_hub_database_bytes")
	require.NotContains(t, page, "wherry_hub_upstream")
}
