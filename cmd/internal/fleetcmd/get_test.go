package fleetcmd

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/hubapi"
	"github.com/wherry-dev/wherry/cmd/internal/cli"
	"github.com/wherry-dev/wherry/hub/fleet"
	"github.com/wherry-dev/wherry/hub/store"
)

func TestAListBeginsWithTotalsAndSilenceSaysSo(t *testing.T) {
	out, _, code := terminal{make: newGetCommand, answers: canned{clusters: threeClusters}}.run("clusters")
	require.Equal(t, cli.OK, code)
	require.Equal(t, `1,204 clusters: 12 failed, 29 stale, 1 unreported, 1,162 compliant · 40 behind
CLUSTER  ENVIRONMENT  TYPE   STATE                  REASON     RELEASE                  LAST SEEN
plant-7  prod         drone  failed                 Unhealthy  11 (abcdef01), 2 behind  5m ago
island   prod         drone  stale (was compliant)  -          11 (abcdef01)            31d ago by medium
new      prod         drone  unreported             -          -                        never
`, out)
}

func TestANarrowTerminalCutsReasonsAlone(t *testing.T) {
	answers := canned{clusters: func(fleet.Query) (fleet.Clusters, error) {
		c := cluster("plant-7", bundle.Failed, "", time.Minute, store.ViaHTTP)
		c.Reason = "a reason that goes on and on and never comes to its end"
		return fleet.Clusters{Clusters: []fleet.Cluster{c}}, nil
	}}
	out, _, _ := terminal{make: newGetCommand, answers: answers, width: 90}.run("clusters")
	for line := range strings.Lines(out) {
		require.LessOrEqual(t, len([]rune(strings.TrimSpace(line))), 90)
	}
	require.Contains(t, out, "a reason that goes on and…")
	out, _, _ = terminal{make: newGetCommand, answers: answers, width: 20}.run("clusters")
	require.Contains(t, out, "plant-7  prod         drone  failed  a reason th…")
	out, _, _ = terminal{make: newGetCommand, answers: answers}.run("clusters")
	require.Contains(t, out, "comes to its end")
}

func TestTextOfOthersIsHarmlessInEachForm(t *testing.T) {
	answers := canned{clusters: func(fleet.Query) (fleet.Clusters, error) {
		c := cluster("=cmd|' /C calc'!A0", bundle.Failed, "", time.Minute, store.ViaHTTP)
		c.Environment, c.Type, c.Ring, c.Platform = "+1", "@x", "-2", " =3"
		c.Reason = "two\nlines\tand \x1b[31mred"
		return fleet.Clusters{Clusters: []fleet.Cluster{c}}, nil
	}}
	out, _, _ := terminal{make: newGetCommand, answers: answers}.run("clusters", "-o", "csv")
	require.Contains(t, out, `'=cmd|' /C calc'!A0,uid-=cmd|' /C calc'!A0,' =3,'+1,'@x,'-2,failed,,two lines and [31mred,sha256:abcdef01`)
	require.Equal(t, 2, strings.Count(out, "\n"))
	for _, f := range listFormats {
		out, _, code := terminal{make: newGetCommand, answers: answers}.run("clusters", "-o", string(f))
		require.Equal(t, cli.OK, code)
		require.NotContains(t, out, "\x1b", f)
	}
	out, _, _ = terminal{make: newGetCommand, answers: answers}.run("clusters")
	require.Equal(t, 3, strings.Count(out, "\n"))
}

func TestJSONIsTheDocumentOfTheRoute(t *testing.T) {
	answers := canned{clusters: threeClusters}
	want, err := threeClusters(fleet.Query{})
	require.NoError(t, err)
	out, said, _ := terminal{make: newGetCommand, answers: answers}.run("clusters", "-o", "json")
	var got fleet.Clusters
	require.NoError(t, json.Unmarshal([]byte(out), &got))
	require.Equal(t, want, got)
	require.Empty(t, said)
	out, _, _ = terminal{make: newGetCommand, answers: answers}.run("clusters", "-o", "ndjson")
	require.Equal(t, 3, strings.Count(out, "\n"))
	require.True(t, strings.HasPrefix(out, `{"uid":"uid-plant-7","name":"plant-7"`))
	out, _, _ = terminal{make: newGetCommand, answers: answers}.run("clusters", "-o", "name")
	require.Equal(t, "plant-7\nisland\nnew\n", out)
	out, _, _ = terminal{make: newGetCommand, answers: answers}.run("clusters", "-o", "yaml")
	require.Contains(t, out, "name: island\n")
	out, _, _ = terminal{make: newGetCommand, answers: answers}.run("clusters", "-o", "csv")
	require.Contains(t, out, "\nisland,uid-island,,prod,drone,,stale,compliant,,sha256:abcdef01")
	require.Contains(t, out, ",2026-10-01T12:00:00Z,medium,0,,\n")
}

// many is a hub with so many clusters, which answers in pages.
func many(n int, asked *[]fleet.Query) canned {
	return canned{clusters: func(q fleet.Query) (fleet.Clusters, error) {
		*asked = append(*asked, q)
		page := fleet.Clusters{Totals: fleet.Totals{Count: n}}
		from, _ := strconv.Atoi(q.After)
		for i := from; i < n && len(page.Clusters) < q.Limit; i++ {
			page.Clusters = append(page.Clusters, cluster(fmt.Sprintf("c%05d", i), bundle.Compliant, "", time.Minute, store.ViaHTTP))
		}
		if end := from + len(page.Clusters); end < n {
			page.Next = strconv.Itoa(end)
		}
		return page, nil
	}}
}

func TestTheClientAsksForPages(t *testing.T) {
	var asked []fleet.Query
	out, _, _ := terminal{make: newGetCommand, answers: many(2500, &asked)}.run("clusters", "-o", "name")
	require.Equal(t, 2500, strings.Count(out, "\n"))
	require.Len(t, asked, 3)
	require.Empty(t, asked[0].Sort)

	out, _, _ = terminal{make: newGetCommand, answers: many(2500, &asked)}.run("clusters", "-o", "json")
	require.Equal(t, 2500, strings.Count(out, `"uid"`))
	require.NotContains(t, out, `"next"`)

	asked = nil
	out, _, _ = terminal{make: newGetCommand, answers: many(2500, &asked)}.run("clusters", "--limit", "1200")
	require.Equal(t, 1203, strings.Count(out, "\n"))
	require.True(t, strings.HasSuffix(out, "\n… and 1,300 more; --limit 0 shows all\n"))
	require.Equal(t, 200, asked[1].Limit)
	require.Equal(t, "state", asked[0].Sort, "the worst first")

	out, _, _ = terminal{make: newGetCommand, answers: many(2500, &asked), width: 200}.run("clusters")
	require.True(t, strings.HasSuffix(out, "\n… and 2,400 more; --limit 0 shows all\n"))
	out, _, _ = terminal{make: newGetCommand, answers: many(2500, &asked), width: 200}.run("clusters", "--limit", "0")
	require.Equal(t, 2502, strings.Count(out, "\n"))
}

func TestFlagsAreTheQuery(t *testing.T) {
	var asked []fleet.Query
	_, said, code := terminal{make: newGetCommand, answers: many(1, &asked)}.run("clusters", "plant-7", "-l", "region=east,gpu!=true", "-e", "prod", "--type", "drone", "--ring", "canary",
		"--workload", "web", "--version", "1.4.0", "--commit", "3f2a9c1", "--config", "abcdef0", "--release", "1234567", "--image", "nginx", "--state", "failed,stale", "--state", "drifted",
		"--relation", "behind", "--silent-for", "7d", "--as-of", "24h", "--sort", "-lastSeen", "--limit", "5")
	require.Equal(t, cli.OK, code, said)
	require.Equal(t, []fleet.Query{{
		Selector: "region=east,gpu!=true", Cluster: "plant-7", Environments: []string{"prod"}, Type: "drone", Ring: "canary", Workload: "web", Version: "1.4.0", Commit: "3f2a9c1",
		ConfigDigest: "abcdef0", Release: "1234567", Image: "nginx", State: []bundle.State{bundle.Failed, store.Stale, bundle.Drifted}, Relation: []fleet.Relation{fleet.Behind},
		SilentFor: 7 * 24 * time.Hour, AsOf: noon.Add(-24 * time.Hour), Sort: "-lastSeen", Limit: 5,
	}}, asked)
}

func TestAgesAreOfTheMomentThatIsAskedAbout(t *testing.T) {
	answers := canned{clusters: func(q fleet.Query) (fleet.Clusters, error) {
		return fleet.Clusters{AsOf: q.AsOf, Totals: fleet.Totals{Count: 1}, Clusters: []fleet.Cluster{cluster("plant-7", bundle.Compliant, "", 26*time.Hour, store.ViaRegistry)}}, nil
	}}
	out, _, _ := terminal{make: newGetCommand, answers: answers}.run("clusters", "--as-of", "2026-10-31T12:00:00Z")
	require.True(t, strings.HasPrefix(out, "1 cluster as of 2026-10-31 12:00 UTC\n"), out)
	require.Contains(t, out, "2h ago by registry\n")
}

func TestWrongFlagsOfListsAreSaid(t *testing.T) {
	for want, args := range map[string][]string{
		`--output "xml": must be table, wide, json, yaml, ndjson, csv or name`: {"-o", "xml"},
		`--sort "size": must be name, state, environment`:                      {"--sort", "size"},
		`state "complaint": not valid: expected one of`:                        {"--state", "complaint"},
		`--relation "behnd": expected one of current, behind`:                  {"--relation", "behnd"},
		`--silent-for: "7" is not a duration`:                                  {"--silent-for", "7"},
		`--as-of: "yesterday" is neither a time`:                               {"--as-of", "yesterday"},
		`--as-of 2027-01-01 is in the future`:                                  {"--as-of", "2027-01-01"},
		`--limit -1: expected a number of rows`:                                {"--limit", "-1"},
		`--environment "": must not be empty`:                                  {"--environment", ""},
		`--cluster and the argument name two clusters`:                         {"a", "--cluster", "b"},
	} {
		out, said, code := terminal{make: newGetCommand, answers: canned{}}.run(append([]string{"clusters"}, args...)...)
		require.Equal(t, cli.Usage, code, args)
		require.Contains(t, said, want)
		require.Empty(t, out)
	}
	_, said, code := terminal{make: newGetCommand, answers: canned{}}.run("reports")
	require.Equal(t, cli.Usage, code)
	require.Contains(t, said, "wherry get reports CLUSTER")
	_, said, code = terminal{make: newGetCommand, answers: canned{}}.run("counts", "--by", "a,b,c,d,e")
	require.Equal(t, cli.Usage, code)
	require.Contains(t, said, "at most 4 fields")
}

func TestErrorsOfTheHubHaveCodesAndHints(t *testing.T) {
	for _, test := range []struct {
		err  error
		code int
		want string
	}{
		{&fleet.UnknownNameError{Kind: "environment", Name: "prdo", Near: []string{"dev", "prod"}}, cli.Failed, "hint: did you mean prod?"},
		{&fleet.UnknownNameError{Kind: "environment", Name: "x", Near: []string{"dev", "prod"}}, cli.Failed, "hint: known: dev, prod"},
		{fmt.Errorf("selector: %w", store.ErrInvalid), cli.Usage, "selector"},
		{store.ErrForgotten, cli.Failed, "hint: ask about a later moment"},
		{&hubapi.Error{Code: hubapi.CodeForbidden, Message: "no"}, cli.Denied, "no"},
	} {
		_, said, code := terminal{make: newGetCommand, answers: canned{clusters: func(fleet.Query) (fleet.Clusters, error) { return fleet.Clusters{}, test.err }}}.run("clusters")
		require.Equal(t, test.code, code, test.err)
		require.Contains(t, said, test.want)
	}
}

func TestNothingThatMatchesIsSaid(t *testing.T) {
	none := canned{clusters: func(fleet.Query) (fleet.Clusters, error) { return fleet.Clusters{Clusters: []fleet.Cluster{}}, nil }}
	for f, want := range map[format]string{asTable: "0 clusters\n", asNDJSON: "", asName: ""} {
		out, said, code := terminal{make: newGetCommand, answers: none}.run("clusters", "-o", string(f), "--limit", "7")
		require.Equal(t, cli.OK, code)
		require.Equal(t, "there is nothing yet\n", said)
		require.Equal(t, want, out)
		out, said, code = terminal{make: newGetCommand, answers: none}.run("clusters", "-o", string(f), "--state", "failed")
		require.Equal(t, cli.OK, code)
		require.Equal(t, "nothing matches\n", said)
		require.Equal(t, want, out)
	}
	out, _, _ := terminal{make: newGetCommand, answers: none}.run("clusters", "-o", "csv")
	require.True(t, strings.HasPrefix(out, "cluster,uid,platform,"), out)
}

func TestDeploymentsSayWhatTheyWaitFor(t *testing.T) {
	deployment := func(workload string, state bundle.State, reason, message string) fleet.Deployment {
		return fleet.Deployment{
			DeploymentStatus: store.DeploymentStatus{Cluster: "plant-7", Workload: workload, Target: "main", State: state, Reason: reason, Message: message, Since: noon},
			Proof:            store.Proof{OccurredAt: noon.Add(-2 * time.Hour), ReceivedAt: noon, Via: store.ViaMedia},
		}
	}
	out, _, _ := terminal{make: newGetCommand, answers: canned{deployments: func(fleet.Query) (fleet.Deployments, error) {
		return fleet.Deployments{Totals: fleet.Totals{Count: 2, States: map[bundle.State]int{bundle.Failed: 1, bundle.Pending: 1}}, Deployments: []fleet.Deployment{
			deployment("db", bundle.Failed, "Unhealthy", "many words"),
			deployment("web", bundle.Pending, "DependencyNotReady", "waits for db-main (failed: Unhealthy)"),
		}}, nil
	}}}.run("deployments")
	require.Equal(t, `2 deployments: 1 failed, 1 pending
CLUSTER  WORKLOAD  TARGET  STATE    REASON                                                     VERSION  SINCE  LAST SEEN
plant-7  db        main    failed   Unhealthy: many words                                      -        now    2h ago by medium
plant-7  web       main    pending  DependencyNotReady: waits for db-main (failed: Unhealthy)  -        now    2h ago by medium
`, out)
}

func TestReleasesEnvironmentsAndCounts(t *testing.T) {
	answers := canned{
		releases: []fleet.Release{
			{ReportRelease: bundle.ReportRelease{Digest: digestOf("68846e7d"), Number: 12, BaseCommit: "3f2a9c1e77aa", IssuedAt: noon.Add(-3 * time.Hour)}, Environment: "prod", Type: "drone", Current: true, Clusters: 5, Compliant: 3, Failed: 1, Unknown: 1},
			{ReportRelease: bundle.ReportRelease{Digest: digestOf("0badf00d")}, Environment: "prod", Type: "drone", Foreign: true, Running: 1},
		},
		environments: []fleet.Environment{{Environment: "prod", Types: 1, BaseCommit: "3f2a9c1e77aa", IssuedAt: noon.Add(-time.Minute), Since: noon.Add(-3 * time.Hour), Totals: fleet.Totals{Count: 5, States: map[bundle.State]int{bundle.Compliant: 5}}}},
		counts: func(of string, by []string) (fleet.Counts, error) {
			return fleet.Counts{Of: of, By: by, Rows: []fleet.Count{{Values: []string{"prod", "compliant"}, Count: 1160}, {Values: []string{"prod", "failed"}, Count: 40}}}, nil
		},
	}
	get := func(args ...string) string {
		out, said, code := terminal{make: newGetCommand, answers: answers}.run(args...)
		require.Equal(t, cli.OK, code, said)
		return out
	}
	require.Equal(t, `2 releases: 1 current · 1 foreign
ENVIRONMENT  TYPE   RELEASE        STANDING  COMMIT    ISSUED  CLUSTERS  COMPLIANT  PROGRESSING  FAILED  WAITING  UNKNOWN
prod         drone  12 (68846e7d)  current   3f2a9c1e  3h ago  5         3          0            1       0        1
prod         drone  0badf00d       foreign   -         -       0         0          0            0       0        0
`, get("releases"))
	require.Equal(t, "prod/drone:12\nprod/drone:0badf00d\n", get("releases", "-o", "name"))
	require.Equal(t, `1 environment with 5 clusters: 5 compliant
ENVIRONMENT  TYPES  COMMIT    SINCE   CLUSTERS
prod         1      3f2a9c1e  3h ago  5 clusters: 5 compliant
`, get("environments"))
	require.Equal(t, `1,200 clusters by environment and state
ENVIRONMENT  STATE      CLUSTERS
prod         compliant  1,160
prod         failed     40
`, get("counts"))
	require.Equal(t, "environment,state,clusters\nprod,compliant,1160\nprod,failed,40\n", get("counts", "-o", "csv"))
}

func TestCompletionAsksTheHub(t *testing.T) {
	answers := canned{
		clusters: func(fleet.Query) (fleet.Clusters, error) {
			return fleet.Clusters{Clusters: []fleet.Cluster{cluster("plant-7", bundle.Failed, "", 0, store.ViaHTTP), cluster("island", bundle.Failed, "", 0, store.ViaHTTP)}}, nil
		},
		counts: func(_ string, by []string) (fleet.Counts, error) {
			return fleet.Counts{Rows: []fleet.Count{{Values: []string{by[0] + "-b"}}, {Values: []string{by[0] + "-a"}}}}, nil
		},
	}
	s := &source{answers: answers}
	cmd := newGetCommand(s)
	find := func(path ...string) []string {
		sub, _, err := cmd.Find(path)
		require.NoError(t, err)
		all, _ := sub.ValidArgsFunction(sub, nil, "pl")
		return all
	}
	require.Equal(t, []string{"plant-7"}, find("clusters"))
	clusters, _, err := cmd.Find([]string{"clusters"})
	require.NoError(t, err)
	complete, ok := clusters.GetFlagCompletionFunc("workload")
	require.True(t, ok)
	all, _ := complete(clusters, nil, "")
	require.Equal(t, []string{"workload-a", "workload-b"}, all)
	complete, ok = clusters.GetFlagCompletionFunc("state")
	require.True(t, ok)
	all, _ = complete(clusters, nil, "failed,")
	require.Contains(t, all, "failed,stale")
	require.NotContains(t, all, "failed,failed")

	s.answers, s.url = nil, "http://127.0.0.1:1"
	all, _ = clusters.ValidArgsFunction(clusters, nil, "pl")
	require.Empty(t, all)
}
