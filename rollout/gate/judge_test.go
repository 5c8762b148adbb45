package gate_test

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"fmt"
	mathrand "math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/ledger"
	"github.com/wherry-dev/wherry/rollout/gate"
	"github.com/wherry-dev/wherry/scheduler/promotion"
)

var (
	now    = time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC) // a Monday
	anna   = newPerson("anna")
	ben    = newPerson("ben")
	carla  = newPerson("carla") // decides through a hub alone
	hub    = newPerson("hub")
	nobody = newPerson("nobody")

	contents = map[string]digest.Digest{"drone": digest.FromString("drone"), "large": digest.FromString("large")}
)

const commit = "3f2a9c1000000000000000000000000000000000"

type person struct {
	name string
	key  crypto.PublicKey
	id   string
}

func newPerson(name string) person {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		panic(err)
	}
	id, err := bundle.KeyID(key.Public())
	if err != nil {
		panic(err)
	}
	return person{name, key.Public(), id}
}

// decides returns what a person decided about the candidate, an hour ago.
func (p person) decides(action bundle.Action, change ...func(*gate.Decided)) gate.Decided {
	d := gate.Decided{Member: p.name, KeyID: p.id, Decision: bundle.Decision{
		Schema: bundle.DecisionSchema, Action: action, Platform: "coffee", Environment: "prod", From: "stage",
		BaseCommit: commit, Contents: contents, Reason: "because", IssuedAt: now.Add(-time.Hour),
	}}
	if action == bundle.Pause || action == bundle.Resume {
		d.From, d.BaseCommit, d.Contents = "", "", nil
	}
	for _, c := range change {
		c(&d)
	}
	return d
}

func at(t time.Time) func(*gate.Decided) { return func(d *gate.Decided) { d.IssuedAt = t } }

func expires(t time.Time) func(*gate.Decided) { return func(d *gate.Decided) { d.ExpiresAt = t } }

func about(rules ...string) func(*gate.Decided) { return func(d *gate.Decided) { d.Rules = rules } }

func forCommit(c string) func(*gate.Decided) { return func(d *gate.Decided) { d.BaseCommit = c } }

func byHub(name string) func(*gate.Decided) {
	return func(d *gate.Decided) { d.By, d.KeyID = name, hub.id }
}

func forContent(other string) func(*gate.Decided) {
	return func(d *gate.Decided) {
		d.Contents = map[string]digest.Digest{"drone": digest.FromString(other), "large": contents["large"]}
	}
}

// question returns a question about prod with every rule given, all of which pass.
func question() gate.Question {
	leads := []promotion.Member{{Name: "anna", Key: anna.key}, {Name: "ben", Key: ben.key}, {Name: "carla"}}
	selector, err := labels.Parse("pilot=true")
	if err != nil {
		panic(err)
	}
	g := promotion.Gate{
		MinReported: 90, MinCompliant: 95, MaxFailed: 1, MaxQuarantined: 0, MaxFailures: 20, Soak: 24 * time.Hour, SoakIn: []string{"dev", "stage"},
		MaxReportAge: 24 * time.Hour, Required: selector, RequirePinned: true,
		Approvals: promotion.Approvals{Required: 2, Group: "leads", Members: leads, Hubs: []crypto.PublicKey{hub.key}},
		Override:  promotion.Approvals{Required: 1, Group: "leads", Members: leads, Hubs: []crypto.PublicKey{hub.key}},
		Check:     &promotion.Check{Name: "smoke", Command: "true"},
		Schedule: promotion.Schedule{
			Open:    []promotion.Period{{Days: []time.Weekday{time.Monday, time.Tuesday}, Opens: 8 * time.Hour, Closes: 16 * time.Hour}},
			Freezes: []promotion.Freeze{{From: now.AddDate(0, 0, 1).Truncate(24 * time.Hour), Until: now.AddDate(0, 0, 14).Truncate(24 * time.Hour), Reason: "Advent"}},
		},
	}
	return gate.Question{
		Policy: promotion.Policy{Name: "coffee", Environment: "prod", Chain: []string{"dev", "stage", "prod"}, Gate: g}, Gate: g,
		Commit: commit, Candidate: &gate.Candidate{Platform: "coffee", Environment: "stage", BaseCommit: commit, IssuedAt: now.Add(-48 * time.Hour), Contents: contents},
		Cohort:   gate.Cohort{From: "hub", AsOf: now, Clusters: 100, Compliant: 95, Progressing: 1, Waiting: 1, Failed: 1, Unknown: 2, Failures: 20, NotReporting: 1},
		Required: &gate.Cohort{Clusters: 3, Compliant: 3},
		Stays: map[string][]gate.Stay{
			"dev":   {{From: now.Add(-90 * time.Hour), Until: now.Add(-80 * time.Hour)}, {From: now.Add(-70 * time.Hour), Until: now.Add(-50 * time.Hour)}},
			"stage": {{From: now.Add(-48 * time.Hour)}},
		},
		Decisions: []gate.Decided{anna.decides(bundle.Approve), ben.decides(bundle.Approve)},
		Check:     &gate.Checked{Result: gate.Pass, Message: "12 requests", At: now},
		Automatic: true, Now: now,
	}
}

// Where content is held, a decision about a promotion names the base commit alone: the push of a workload does not void it.
func TestADecisionAboutAPromotionNamesTheBaseCommitAloneWhereContentIsHeld(t *testing.T) {
	alone := func(d *gate.Decided) { d.Contents = nil }
	for _, c := range []struct {
		name      string
		held      bool
		ring      string
		decisions []gate.Decided
		want      gate.Result
	}{
		{"without contents", true, "", []gate.Decided{anna.decides(bundle.Approve, alone), ben.decides(bundle.Approve, alone)}, gate.Pass},
		{"with contents", true, "", []gate.Decided{anna.decides(bundle.Approve), ben.decides(bundle.Approve)}, gate.Wait},
		{"of another commit", true, "", []gate.Decided{anna.decides(bundle.Approve, alone), ben.decides(bundle.Approve, alone, forCommit("aaaa"))}, gate.Wait},
		{"of a workload", true, "", []gate.Decided{anna.decides(bundle.Approve, alone), ben.decides(bundle.Approve, alone, func(d *gate.Decided) {
			d.BaseCommit, d.Workload = "", bundle.DecisionWorkload{Name: "cart"}
		})}, gate.Wait},
		{"without contents where content is not held", false, "", []gate.Decided{anna.decides(bundle.Approve, alone), ben.decides(bundle.Approve, alone)}, gate.Wait},
		{"of a ring, which gets its contents as they are", true, "early", []gate.Decided{anna.decides(bundle.Approve, alone, func(d *gate.Decided) { d.Ring = "early" })}, gate.Wait},
	} {
		q := question()
		q.Policy.Gate.Content.Held, q.Ring, q.Decisions = c.held, c.ring, c.decisions
		require.Equal(t, c.want, gate.Judge(q).Rule(gate.RuleApprovals).Result, c.name)
	}
}

// Each rule: pass, wait and fail, as far as it has them.
func TestEachRule(t *testing.T) {
	const P, W, F = gate.Pass, gate.Wait, gate.Fail
	type q = gate.Question
	decided := func(all ...gate.Decided) func(*q) { return func(q *q) { q.Decisions = all } }
	more := func(all ...gate.Decided) func(*q) { return func(q *q) { q.Decisions = append(q.Decisions, all...) } }
	cohort := func(change func(*gate.Cohort)) func(*q) { return func(q *q) { change(&q.Cohort) } }
	counts := func(clusters, compliant, failed, unknown int) func(*q) {
		return cohort(func(c *gate.Cohort) {
			*c = gate.Cohort{Clusters: clusters, Compliant: compliant, Failed: failed, Unknown: unknown, Progressing: clusters - compliant - failed - unknown}
		})
	}
	required := func(c *gate.Cohort) func(*q) { return func(q *q) { q.Required = c } }
	stays := func(environment string, all ...gate.Stay) func(*q) {
		return func(q *q) { q.Stays[environment] = all }
	}
	ago := func(hours int) time.Time { return now.Add(-time.Duration(hours) * time.Hour) }
	day := func(text string) time.Time {
		d, err := time.Parse(time.DateTime, text)
		require.NoError(t, err)
		return d
	}
	both := func(all ...func(*q)) func(*q) {
		return func(q *q) {
			for _, f := range all {
				f(q)
			}
		}
	}
	none := func(*q) {}
	moving := func(requirePinned bool, floating, unpinned []string) func(*q) {
		return func(q *q) {
			q.Gate.RequirePinned, q.Candidate.Floating, q.Candidate.Unpinned = requirePinned, floating, unpinned
		}
	}

	for _, c := range []struct {
		rule, when string
		change     func(*q)
		result     gate.Result
		has, wants string
		needs      string // Change
	}{
		{"published", "a record has the commit", none, P, "record of 2026-11-21T12:00:00Z", "a record of stage with the commit", ""},
		{"published", "no record has it", func(q *q) { q.Candidate = nil }, W, "no record of 3f2a9c1", "a record of stage with the commit", "publish 3f2a9c1 in stage"},
		{"published", "nothing was ever published", func(q *q) { q.Candidate, q.Commit = nil, "" }, W, "no record", "a record of stage with the commit", "publish stage: wherry promote -e stage"},
		{"published", "the record has another", func(q *q) { q.Candidate.BaseCommit = "aaaaaaaa" }, F, "a record of aaaaaaa", "a record of stage with the commit", "ask for aaaaaaa, or publish 3f2a9c1 in stage"},
		{"published", "the platform has no base", func(q *q) { q.Candidate.BaseCommit = "" }, F, "a record without a commit of the base", "a record of stage with the commit", "publish stage from a base in git"},

		{"complete", "nothing is held", none, P, "0", "0 incomplete cluster types", ""},
		{"complete", "there is no record", func(q *q) { q.Candidate = nil }, W, "unknown: no record", "0 incomplete cluster types", "publish the commit first"},
		{"complete", "a type is held", func(q *q) { q.Candidate.Incomplete = []string{"drone"} }, F, "1: drone", "0 incomplete cluster types", "mend what is held in stage, and publish a commit without it"},

		{"pinned", "all is pinned", none, P, "0", "0 assignments without commit or digest", ""},
		{"pinned", "images need no digest", moving(false, nil, []string{"drone/till"}), P, "0", "0 floating assignments", ""},
		{"pinned", "images need a digest", moving(true, nil, []string{"drone/till"}), F, "1: drone/till", "0 assignments without commit or digest", "have their sources name a commit, their charts and images a digest, and publish that commit"},
		{"pinned", "one is floating", moving(false, []string{"drone/till"}, nil), F, "1: drone/till", "0 floating assignments", "have their sources name a commit or a digest, or deliver them embedded, and publish that commit"},
		{"pinned", "one is floating, and one has no digest", moving(true, []string{"drone/till"}, []string{"drone/api"}), F, "2: drone/api, drone/till", "0 assignments without commit or digest", "have their sources name a commit, their charts and images a digest, and publish that commit"},
		{"pinned", "they may be floating", both(moving(false, []string{"drone/till"}, nil), func(q *q) { q.Gate.AllowFloating = true }), P, "-", "-", ""},
		{"pinned", "there is no record", func(q *q) { q.Candidate = nil }, W, "unknown: no record", "0 assignments without commit or digest", "publish the commit first"},
		{"pinned", "there is no record, and images need no digest", func(q *q) { q.Candidate, q.Gate.RequirePinned = nil, false }, W, "unknown: no record", "0 floating assignments", "publish the commit first"},
		{"pinned", "there is no record, and they may be floating", func(q *q) { q.Candidate, q.Gate.RequirePinned, q.Gate.AllowFloating = nil, false, true }, P, "-", "-", ""},
		{"pinned", "many are floating", moving(false, []string{"a/1", "a/2", "a/3", "b/1", "b/2", "b/3", "c/1"}, nil), F, "7: a/1, a/2, a/3, b/1, b/2 and 2 more", "0 floating assignments", "have their sources name a commit or a digest, or deliver them embedded, and publish that commit"},

		{"cohort", "there are clusters", none, P, "100, and 1 that do not report", "at least 1 cluster that was registered before the record", ""},
		{"cohort", "nobody has to be there", func(q *q) { q.Gate.AllowEmptyCohort = true; counts(0, 0, 0, 0)(q) }, P, "0", "-", ""},
		{"cohort", "there is none", counts(0, 0, 0, 0), W, "0", "at least 1 cluster that was registered before the record", "register a cluster of stage that reports, and publish again; or set allowEmptyCohort"},
		{"cohort", "none reports", cohort(func(c *gate.Cohort) { *c = gate.Cohort{NotReporting: 4} }), W, "0, and 4 that do not report", "at least 1 cluster that was registered before the record", "register a cluster of stage that reports, and publish again; or set allowEmptyCohort"},

		{"reported", "enough have", none, P, "98 of 100 (98.0 %)", "at least 90 %", ""},
		{"reported", "just enough have", counts(100, 90, 0, 10), P, "90 of 100 (90.0 %)", "at least 90 %", ""},
		{"reported", "a tenth and one are offline", counts(100, 89, 0, 11), W, "89 of 100 (89.0 %)", "at least 90 %", "1 more cluster has to report"},
		{"reported", "the newest report of those is too old", both(counts(100, 89, 0, 11), func(q *q) {
			q.Gate.MaxReportAge = 24 * time.Hour
			q.Cohort.Open = []gate.Cluster{{Name: "plant-6", Verdict: "unknown"}, {Name: "plant-7", Verdict: "unknown", LastSeen: now.Add(-170 * time.Hour)}, {Name: "plant-8", Verdict: "waiting", LastSeen: now}}
		}), W, "89 of 100 (89.0 %), plant-7 reported 7d2h ago, which counts for 24h", "at least 90 %", "1 more cluster has to report"},
		{"reported", "99.96 % is not 100 %", both(counts(2500, 2499, 0, 1), func(q *q) { q.Gate.MinReported = 100 }), W, "2499 of 2500 (99.9 %)", "at least 100 %", "1 more cluster has to report"},
		{"reported", "offline clusters block only by minReported", both(counts(100, 1, 0, 99), func(q *q) { q.Gate.MinReported = 0 }), P, "1 of 100 (1.0 %)", "at least 1", ""},
		{"reported", "but one has to have reported", both(counts(100, 0, 0, 100), func(q *q) { q.Gate.MinReported = 0 }), W, "0 of 100 (0.0 %)", "at least 1", "1 more cluster has to report"},
		{"reported", "unless nobody has to", both(counts(100, 0, 0, 100), func(q *q) { q.Gate.MinReported, q.Gate.AllowEmptyCohort = 0, true }), P, "0 of 100 (0.0 %)", "at least 0 %", ""},

		{"compliant", "enough of those that reported are", none, P, "95 of 98 (96.9 %)", "at least 95 % of those that have reported", ""},
		{"compliant", "just enough are", counts(60, 38, 0, 20), P, "38 of 40 (95.0 %)", "at least 95 % of those that have reported", ""},
		{"compliant", "some are not there yet", counts(100, 40, 1, 10), W, "40 of 90 (44.4 %)", "at least 95 % of those that have reported", "46 more clusters have to become compliant"},
		{"compliant", "nobody has reported", counts(100, 0, 0, 100), W, "0 of 0", "at least 95 % of those that have reported", "a cluster has to report"},
		{"compliant", "those that are offline may still be", counts(100, 10, 5, 85), W, "10 of 15 (66.6 %)", "at least 95 % of those that have reported", "5 more clusters have to become compliant"},
		{"compliant", "too many failed, whatever the others do", counts(100, 94, 6, 0), F, "94 of 100 (94.0 %)", "at least 95 % of those that have reported", "6 failed, and the other 94 are too few: mend them, or publish a commit that does"},

		{"failed", "as many as may", none, P, "1", "at most 1", ""},
		{"failed", "one more", cohort(func(c *gate.Cohort) { c.Failed++ }), F, "2", "at most 1", "mend 1 cluster, or publish a commit that does"},

		{"quarantine", "none", none, P, "0", "at most 0", ""},
		{"quarantine", "one", cohort(func(c *gate.Cohort) { c.Quarantined = 1 }), F, "1", "at most 0", "publish a commit that they can run: agents have put this release into quarantine"},
		{"quarantine", "without a bound", func(q *q) { q.Gate.MaxQuarantined, q.Cohort.Quarantined = -1, 4 }, P, "4", "-", ""},

		{"failures", "as many as may", none, P, "20", "at most 20 since the record", ""},
		{"failures", "one more", cohort(func(c *gate.Cohort) { c.Failures++ }), F, "21", "at most 20 since the record", "find out what fails, and publish a commit that mends it"},
		{"failures", "without a bound", func(q *q) { q.Gate.MaxFailures, q.Cohort.Failures = -1, 4000 }, P, "4000", "-", ""},

		{"required", "all are compliant", none, P, "3 of 3 (100.0 %)", "all clusters with pilot=true compliant", ""},
		{"required", "nobody asks", func(q *q) { q.Gate.Required, q.Required = nil, nil }, P, "-", "-", ""},
		{"required", "one is offline", required(&gate.Cohort{Clusters: 3, Compliant: 2, Unknown: 1}), W, "2 of 3 (66.6 %)", "all clusters with pilot=true compliant", "1 more cluster has to become compliant"},
		{"required", "there is none", required(&gate.Cohort{}), W, "0 of 0", "all clusters with pilot=true compliant", "register a cluster with these labels, and publish again"},
		{"required", "there is no record", func(q *q) { q.Candidate = nil }, W, "unknown: no record", "all clusters with pilot=true compliant", "publish the commit first"},
		{"required", "nobody can tell", required(nil), W, "unknown", "all clusters with pilot=true compliant", "ask a source that knows the labels of clusters"},
		{"required", "one failed", required(&gate.Cohort{Clusters: 3, Compliant: 2, Failed: 1}), F, "2 of 3 (66.6 %), 1 failed", "all clusters with pilot=true compliant", "mend 1 cluster, or publish a commit that does"},
		{"required", "none of them reports", required(&gate.Cohort{NotReporting: 2}), F, "2 that do not report", "all clusters with pilot=true compliant", "select clusters that report"},

		{"soak", "long enough, in several stays, and one that lasts", none, P, "dev 30h, stage 2d", "24h in dev, stage", ""},
		{"soak", "to the second", stays("stage", gate.Stay{From: ago(24)}), P, "dev 30h, stage 24h", "24h in dev, stage", ""},
		{"soak", "nobody asks", func(q *q) { q.Gate.Soak, q.Stays = 0, nil }, P, "-", "-", ""},
		{"soak", "the stay lasts", stays("stage", gate.Stay{From: ago(20)}), W, "dev 30h, stage 20h", "24h in dev, stage", "the soak in stage ends at 2026-11-23T16:00:00Z"},
		{"soak", "an earlier stay and this one", stays("stage", gate.Stay{From: ago(90), Until: ago(80)}, gate.Stay{From: ago(13)}), W, "dev 30h, stage 23h", "24h in dev, stage", "the soak in stage ends at 2026-11-23T13:00:00Z"},
		{"soak", "time counts once", stays("stage", gate.Stay{From: ago(13), Until: ago(1)}, gate.Stay{From: ago(12)}), W, "dev 30h, stage 13h", "24h in dev, stage", "the soak in stage ends at 2026-11-23T23:00:00Z"},
		{"soak", "it is elsewhere now", stays("dev", gate.Stay{From: ago(90), Until: ago(80)}), W, "dev 10h, stage 2d", "24h in dev, stage", "dev has to have the commit for 14h more"},
		{"soak", "it never was in one of them", stays("dev"), W, "dev 0, stage 2d", "24h in dev, stage", "dev has to have the commit for 24h more"},
		{"soak", "the environment below counts if none is named", both(stays("dev"), func(q *q) { q.Gate.SoakIn = nil }), P, "stage 2d", "24h in stage", ""},

		{"approvals", "two people", none, P, "2: anna, ben", "2 of leads", ""},
		{"approvals", "one through a hub", decided(anna.decides(bundle.Approve), carla.decides(bundle.Approve, byHub("carla"))), P, "2: anna, carla", "2 of leads", ""},
		{"approvals", "nobody asks", both(decided(), func(q *q) { q.Gate.Approvals = promotion.Approvals{} }), P, "-", "-", ""},
		{"approvals", "one person", decided(anna.decides(bundle.Approve)), W, "1: anna", "2 of leads", "1 more of leads has to approve it: wherry gate approve --environment prod --commit 3f2a9c1"},
		{"approvals", "one person, twice", decided(anna.decides(bundle.Approve), anna.decides(bundle.Approve, byHub("anna"))), W, "1: anna", "2 of leads", "1 more of leads has to approve it: wherry gate approve --environment prod --commit 3f2a9c1"},
		{"approvals", "of another commit", decided(anna.decides(bundle.Approve), ben.decides(bundle.Approve, forCommit("aaaa"))), W, "1: anna", "2 of leads", "1 more of leads has to approve it: wherry gate approve --environment prod --commit 3f2a9c1"},
		{"approvals", "of other content", decided(anna.decides(bundle.Approve), ben.decides(bundle.Approve, forContent("other"))), W, "1: anna", "2 of leads", "1 more of leads has to approve it: wherry gate approve --environment prod --commit 3f2a9c1"},
		{"approvals", "of another ring", decided(anna.decides(bundle.Approve), ben.decides(bundle.Approve, func(d *gate.Decided) { d.Ring = "canary" })), W, "1: anna", "2 of leads", "1 more of leads has to approve it: wherry gate approve --environment prod --commit 3f2a9c1"},
		{"approvals", "of another platform", decided(anna.decides(bundle.Approve), ben.decides(bundle.Approve, func(d *gate.Decided) { d.Platform = "tea" })), W, "1: anna", "2 of leads", "1 more of leads has to approve it: wherry gate approve --environment prod --commit 3f2a9c1"},
		{"approvals", "that has expired", decided(anna.decides(bundle.Approve), ben.decides(bundle.Approve, expires(now))), W, "1: anna", "2 of leads", "1 more of leads has to approve it: wherry gate approve --environment prod --commit 3f2a9c1"},
		{"approvals", "that has not expired", decided(anna.decides(bundle.Approve), ben.decides(bundle.Approve, expires(now.Add(1)))), P, "2: anna, ben", "2 of leads", ""},
		{"approvals", "of somebody else", decided(anna.decides(bundle.Approve), nobody.decides(bundle.Approve)), W, "1: anna", "2 of leads", "1 more of leads has to approve it: wherry gate approve --environment prod --commit 3f2a9c1"},
		{"approvals", "in the name of a member", decided(anna.decides(bundle.Approve), ben.decides(bundle.Approve, func(d *gate.Decided) { d.KeyID = nobody.id })), W, "1: anna", "2 of leads", "1 more of leads has to approve it: wherry gate approve --environment prod --commit 3f2a9c1"},
		{"approvals", "a hub that speaks for another", decided(anna.decides(bundle.Approve), carla.decides(bundle.Approve, byHub("ben"))), W, "1: anna", "2 of leads", "1 more of leads has to approve it: wherry gate approve --environment prod --commit 3f2a9c1"},
		{"approvals", "before there is a record", func(q *q) { q.Candidate = nil }, W, "0", "2 of leads", "2 more of leads have to approve it: wherry gate approve --environment prod --commit 3f2a9c1"},
		{"approvals", "before there is a commit", func(q *q) { q.Candidate, q.Commit = nil, "" }, W, "0", "2 of leads", "2 more of leads have to approve it: wherry gate approve --environment prod"},
		{"approvals", "one took it back", more(ben.decides(bundle.Reject, at(ago(0)))), F, "1: anna; rejected by ben (because)", "2 of leads", "whoever rejected it approves it: wherry gate approve --environment prod --commit 3f2a9c1"},
		{"approvals", "a third says no", more(carla.decides(bundle.Reject, byHub("carla"))), F, "2: anna, ben; rejected by carla (because)", "2 of leads", "whoever rejected it approves it: wherry gate approve --environment prod --commit 3f2a9c1"},
		{"approvals", "a no that was taken back", more(ben.decides(bundle.Reject, at(ago(2)))), P, "2: anna, ben", "2 of leads", ""},
		{"approvals", "yes and no in one second", more(ben.decides(bundle.Reject)), F, "1: anna; rejected by ben (because)", "2 of leads", "whoever rejected it approves it: wherry gate approve --environment prod --commit 3f2a9c1"},

		{"check", "it passes", none, P, "pass: 12 requests", `"smoke" passes`, ""},
		{"check", "nobody asks", func(q *q) { q.Gate.Check = nil }, P, "-", "-", ""},
		{"check", "it was not asked", func(q *q) { q.Check = nil }, W, "not asked yet", `"smoke" passes`, "it is asked once all other rules pass"},
		{"check", "it waits", func(q *q) { q.Check = &gate.Checked{Result: gate.Wait, Message: "warming up"} }, W, "wait: warming up", `"smoke" passes`, "ask again later"},
		{"check", "it fails", func(q *q) { q.Check = &gate.Checked{Result: gate.Fail} }, F, "fail", `"smoke" passes`, "mend what the check found"},
		{"check", "it says nothing that is known", func(q *q) { q.Check = &gate.Checked{} }, F, "", `"smoke" passes`, "mend what the check found"},

		{"schedule", "open", none, P, "open", "open", ""},
		{"schedule", "always open", func(q *q) { q.Gate.Schedule = promotion.Schedule{} }, P, "-", "-", ""},
		{"schedule", "before it opens", func(q *q) { q.Now = day("2026-11-23 07:59:59") }, W, "closed", "open", "it opens at 2026-11-23T08:00:00Z"},
		{"schedule", "as it closes, and a freeze covers the next days", func(q *q) { q.Now = day("2026-11-23 16:00:00") }, W, "closed", "open", "it opens at 2026-12-07T08:00:00Z"},
		{"schedule", "frozen", func(q *q) { q.Now = day("2026-11-24 09:00:00") }, W, "frozen until 2026-12-07T00:00:00Z: Advent", "open", "it opens at 2026-12-07T08:00:00Z"},
		{"schedule", "never open", func(q *q) {
			q.Gate.Schedule = promotion.Schedule{Open: []promotion.Period{{Opens: time.Hour, Closes: time.Hour}}}
		}, F, "closed", "open", "change the schedule: it never opens"},

		{"removals", "nobody looked", none, P, "-", "-", ""},
		{"removals", "few", func(q *q) { q.Removals = &gate.Removals{} }, P, "0", "no more than maxRemoved of the platform", ""},
		{"removals", "many", func(q *q) { q.Removals = &gate.Removals{Over: []string{"edge"}} }, W, "1: edge", "no more than maxRemoved of the platform", "agree to it: wherry promote -e prod --allow-removals"},
		{"removals", "many, and somebody agrees", func(q *q) { q.Removals = &gate.Removals{Over: []string{"edge"}, Allowed: true} }, P, "1: edge", "no more than maxRemoved of the platform", ""},

		{"undone", "nothing was", none, P, "not undone", "-", ""},
		{"undone", "another commit", undone(bundle.Undone{At: ago(60), BaseCommit: "0123456"}), P, "not undone", "-", ""},
		{"undone", "this commit", undone(bundle.Undone{At: ago(60), BaseCommit: commit, Reason: "orders fail"}), F, "commit " + commit[:12] + " was undone at 2026-11-21T00:00:00Z (orders fail)", "not undone", "mend it and publish another commit; or wherry rollout resume --environment prod --again"},
		{"undone", "a workload that a ring would pass on", func(q *gate.Question) {
			q.UndoneWorkloads = []ledger.Undone{{Key: ledger.Key{Registration: "shop", Workload: "web"}, Version: "2.0", At: ago(60), Reason: "orders fail"}}
		}, F, "shop/web 2.0 was undone at 2026-11-21T00:00:00Z (orders fail)", "not undone", "mend it and publish another commit; or wherry rollout resume --environment prod --again"},
		{"undone", "the same content of another environment", undone(bundle.Undone{At: ago(60), Contents: contentsOf(question())}), P, "not undone", "-", ""},
		{"undone", "this commit, and somebody says again", both(undone(bundle.Undone{At: ago(120), BaseCommit: commit}), more(anna.decides(bundle.Resume, func(d *gate.Decided) { d.Again = true }))), P, "not undone", "-", ""},
		{"undone", "somebody said so before", both(undone(bundle.Undone{At: ago(0), BaseCommit: commit}), more(anna.decides(bundle.Resume, func(d *gate.Decided) { d.Again = true }))), F, "commit " + commit[:12] + " was undone at 2026-11-23T12:00:00Z", "not undone", "mend it and publish another commit; or wherry rollout resume --environment prod --again"},

		{"automation", "not paused", none, P, "not paused", "not paused", ""},
		{"automation", "paused", more(anna.decides(bundle.Pause)), W, "paused by anna at 2026-11-23T11:00:00Z: because", "not paused", "resume it: wherry rollout resume --environment prod"},
		{"automation", "paused, but somebody asks by hand", both(more(anna.decides(bundle.Pause)), func(q *q) { q.Automatic = false }), P, "paused by anna at 2026-11-23T11:00:00Z: because", "-", ""},
		{"automation", "resumed by another", more(anna.decides(bundle.Pause), ben.decides(bundle.Resume, at(ago(0)))), P, "not paused", "not paused", ""},
		{"automation", "paused again", more(anna.decides(bundle.Pause, at(ago(0))), ben.decides(bundle.Resume)), W, "paused by anna at 2026-11-23T12:00:00Z: because", "not paused", "resume it: wherry rollout resume --environment prod"},
		{"automation", "another environment is paused", more(anna.decides(bundle.Pause, func(d *gate.Decided) { d.Environment = "stage" })), P, "not paused", "not paused", ""},
		{"automation", "a ring is paused, and this is not about it", more(anna.decides(bundle.Pause, func(d *gate.Decided) { d.Ring = "canary" })), P, "not paused", "not paused", ""},
	} {
		t.Run(c.rule+"/"+c.when, func(t *testing.T) {
			q := question()
			c.change(&q)
			got := gate.Judge(q).Rule(c.rule)
			require.EqualExportedValues(t, gate.Rule{Name: c.rule, Result: c.result, Has: c.has, Wants: c.wants, Change: c.needs, Ends: endOf(c.needs)}, got)
		})
	}
}

// undone returns a change of a question: it was taken back.
func undone(u bundle.Undone) func(*gate.Question) {
	return func(of *gate.Question) { of.Undone = []bundle.Undone{u} }
}

func contentsOf(of gate.Question) map[string][]digest.Digest {
	all := map[string][]digest.Digest{}
	for name, d := range of.Candidate.Contents {
		all[name] = []digest.Digest{d}
	}
	return all
}

// endOf returns the time at the end of what a rule waits for; zero if it does not wait for time alone.
func endOf(change string) time.Time {
	end, _ := time.Parse(time.RFC3339, change[strings.LastIndexByte(change, ' ')+1:])
	return end
}

func TestTheGateIsAsGoodAsItsWorstRule(t *testing.T) {
	q := question()
	v := gate.Judge(q)
	require.Equal(t, gate.Pass, v.Result)
	require.Equal(t, []string{
		"published", "complete", "pinned", "cohort", "reported", "compliant", "failed", "quarantine", "failures", "required",
		"soak", "approvals", "check", "schedule", "removals", "undone", "automation",
	}, names(v))
	require.Equal(t, []string{"prod", "stage", commit, "coffee"}, []string{v.Environment, v.From, v.Commit, v.Policy})
	require.Zero(t, v.NextLook)

	q.Decisions = q.Decisions[:1]
	require.Equal(t, gate.Wait, gate.Judge(q).Result)
	q.Cohort.Failed = 5
	require.Equal(t, gate.Fail, gate.Judge(q).Result)

	// Without facts, nothing passes that asks for any.
	v = gate.Judge(gate.Question{Policy: q.Policy, Gate: q.Gate, Commit: commit, Automatic: true, Now: now})
	require.Equal(t, gate.Wait, v.Result)
	for _, r := range v.Rules {
		if slices.Contains([]string{"failed", "quarantine", "failures", "schedule", "removals", "undone", "automation"}, r.Name) {
			continue // nothing bad is known
		}
		require.Equal(t, gate.Wait, r.Result, r.Name)
	}
}

func names(v gate.Verdict) (all []string) {
	for _, r := range v.Rules {
		all = append(all, r.Name)
	}
	return all
}

func TestOverride(t *testing.T) {
	failed := func(q *gate.Question) { q.Cohort.Failed = 3 }
	for _, c := range []struct {
		name   string
		change func(*gate.Question)
		rule   string
		result gate.Result
		who    string
	}{
		{"by a member, with a reason", func(q *gate.Question) {
			failed(q)
			q.Decisions = append(q.Decisions, anna.decides(bundle.Override, about("failed")))
		}, "failed", gate.Pass, "anna (because)"},
		{"of another rule", func(q *gate.Question) {
			failed(q)
			q.Decisions = append(q.Decisions, anna.decides(bundle.Override, about("soak")))
		}, "failed", gate.Fail, ""},
		{"without a reason", func(q *gate.Question) {
			failed(q)
			q.Decisions = append(q.Decisions, anna.decides(bundle.Override, about("failed"), func(d *gate.Decided) { d.Reason = "" }))
		}, "failed", gate.Fail, ""},
		{"by somebody else", func(q *gate.Question) {
			failed(q)
			q.Decisions = append(q.Decisions, nobody.decides(bundle.Override, about("failed")))
		}, "failed", gate.Fail, ""},
		{"where nobody may", func(q *gate.Question) {
			failed(q)
			q.Gate.Override = promotion.Approvals{}
			q.Decisions = append(q.Decisions, anna.decides(bundle.Override, about("failed")))
		}, "failed", gate.Fail, ""},
		{"that has expired", func(q *gate.Question) {
			failed(q)
			q.Decisions = append(q.Decisions, anna.decides(bundle.Override, about("failed"), expires(now.Add(-1))))
		}, "failed", gate.Fail, ""},
		{"of other content", func(q *gate.Question) {
			failed(q)
			q.Decisions = append(q.Decisions, anna.decides(bundle.Override, about("failed"), forContent("other")))
		}, "failed", gate.Fail, ""},
		{"by too few", func(q *gate.Question) {
			failed(q)
			q.Gate.Override.Required = 2
			q.Decisions = append(q.Decisions, anna.decides(bundle.Override, about("failed")), anna.decides(bundle.Override, about("failed"), byHub("anna")))
		}, "failed", gate.Fail, ""},
		{"by two", func(q *gate.Question) {
			failed(q)
			q.Gate.Override.Required = 2
			q.Decisions = append(q.Decisions, ben.decides(bundle.Override, about("failed", "soak")), anna.decides(bundle.Override, about("failed")))
		}, "failed", gate.Pass, "anna (because), ben (because)"},
		{"of approvals", func(q *gate.Question) {
			q.Decisions = []gate.Decided{anna.decides(bundle.Override, about("approvals"))}
		}, "approvals", gate.Pass, "anna (because)"},
		{"of incomplete content, which nobody may", func(q *gate.Question) {
			q.Candidate.Incomplete = []string{"drone"}
			q.Decisions = append(q.Decisions, anna.decides(bundle.Override, about("complete")))
		}, "complete", gate.Fail, ""},
		{"of floating content, which nobody may", func(q *gate.Question) {
			q.Candidate.Floating = []string{"drone/till"}
			q.Decisions = append(q.Decisions, anna.decides(bundle.Override, about("pinned")))
		}, "pinned", gate.Fail, ""},
		{"of a record that is not there, which nobody may", func(q *gate.Question) {
			q.Candidate.BaseCommit = "aaaa"
			q.Decisions = append(q.Decisions, anna.decides(bundle.Override, about("published"), forCommit("aaaa")))
		}, "published", gate.Fail, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			q := question()
			c.change(&q)
			got := gate.Judge(q).Rule(c.rule)
			require.Equal(t, c.result, got.Result)
			require.Equal(t, c.who, got.Overridden)
			require.Equal(t, got.Result == gate.Pass, got.Change == "", "what passes needs nothing, what does not says what it needs")
		})
	}
}

func TestTheGateOfARing(t *testing.T) {
	q := question()
	q.Ring, q.Candidate.Environment = "early", "prod"
	q.Policy.Rings = []string{"canary", "early"}
	q.Gate = promotion.Gate{MinCompliant: 95, MaxFailed: 1, MaxFailures: -1, Soak: time.Hour, SoakIn: []string{"dev"}, Approvals: promotion.Approvals{Required: 1, Group: "leads", Members: q.Gate.Approvals.Members}}
	q.Stays = map[string][]gate.Stay{"prod": {{From: now.Add(-time.Minute)}}}
	forRing := func(d *gate.Decided) { d.Ring, d.From = "early", "prod" }
	q.Decisions = []gate.Decided{anna.decides(bundle.Approve, forRing), anna.decides(bundle.Pause, forRing, at(now))}
	v := gate.Judge(q)
	require.Equal(t, []string{"early", "prod", "prod"}, []string{v.Ring, v.Environment, v.From})
	require.Equal(t, gate.Rule{Name: "soak", Result: gate.Wait, Has: "prod 1m", Wants: "1h in prod", Change: "the soak in prod ends at 2026-11-23T12:59:00Z", Ends: now.Add(59 * time.Minute)}, v.Rule("soak"))
	require.Equal(t, gate.Pass, v.Rule("approvals").Result)
	require.Equal(t, gate.Wait, v.Rule("automation").Result)
	require.Equal(t, now.Add(59*time.Minute), v.NextLook)
}

func TestNextLook(t *testing.T) {
	ago := func(hours int) time.Time { return now.Add(-time.Duration(hours) * time.Hour) }
	berlin, err := time.LoadLocation("Europe/Berlin")
	require.NoError(t, err)
	for _, c := range []struct {
		name   string
		change func(*gate.Question)
		want   string
	}{
		{"nothing waits", func(*gate.Question) {}, ""},
		{"people are waited for", func(q *gate.Question) { q.Decisions = nil }, ""},
		{"the end of the longest soak", func(q *gate.Question) {
			q.Stays["stage"], q.Stays["dev"] = []gate.Stay{{From: ago(23)}}, []gate.Stay{{From: ago(21)}}
		}, "2026-11-23T15:00:00Z"},
		{"a soak that ends while the gate is closed", func(q *gate.Question) { q.Stays["stage"] = []gate.Stay{{From: ago(20)}} }, "2026-12-07T08:00:00Z"},
		{"a soak that does not go on", func(q *gate.Question) { q.Stays["stage"] = []gate.Stay{{From: ago(20), Until: ago(19)}} }, ""},
		{"a soak, beside reports that are missing", func(q *gate.Question) {
			q.Stays["stage"], q.Cohort.Unknown = []gate.Stay{{From: ago(23)}}, 60
		}, "2026-11-23T13:00:00Z"},
		{"a soak that does not matter", func(q *gate.Question) { q.Stays["stage"], q.Cohort.Failed = []gate.Stay{{From: ago(23)}}, 90 }, ""},
		{"a schedule that was overridden", func(q *gate.Question) {
			q.Stays["stage"] = []gate.Stay{{From: ago(19)}}
			q.Now = time.Date(2026, 11, 23, 16, 30, 0, 0, time.UTC)
			q.Decisions = append(q.Decisions, anna.decides(bundle.Override, about("schedule")))
		}, "2026-11-23T17:00:00Z"},
		{"a soak whose record is of the future", func(q *gate.Question) {
			q.Gate.Schedule, q.Stays["stage"] = promotion.Schedule{}, []gate.Stay{{From: ago(-1)}}
		}, "2026-11-24T13:00:00Z"},
		{"a night, over the end of the week", func(q *gate.Question) {
			q.Gate.Schedule = promotion.Schedule{Open: []promotion.Period{{Days: []time.Weekday{time.Sunday}, Opens: 22 * time.Hour, Closes: 4 * time.Hour}}}
		}, "2026-11-29T22:00:00Z"},
		{"within such a night", func(q *gate.Question) {
			q.Gate.Schedule = promotion.Schedule{Open: []promotion.Period{{Days: []time.Weekday{time.Sunday}, Opens: 22 * time.Hour, Closes: 13 * time.Hour}}}
		}, ""},
		{"the morning after clocks went forward", func(q *gate.Question) {
			q.Now = time.Date(2027, 3, 27, 20, 0, 0, 0, time.UTC)
			q.Gate.Schedule = promotion.Schedule{Open: []promotion.Period{{Opens: 8 * time.Hour, Closes: 16 * time.Hour, Location: berlin}}}
		}, "2027-03-28T06:00:00Z"},
		{"between two freezes", func(q *gate.Question) {
			q.Gate.Schedule = promotion.Schedule{Freezes: []promotion.Freeze{{From: ago(1), Until: ago(-2)}, {From: ago(-2), Until: ago(-5)}, {From: ago(-6), Until: ago(-8)}}}
		}, "2026-11-23T17:00:00Z"},
	} {
		t.Run(c.name, func(t *testing.T) {
			q := question()
			c.change(&q)
			v := gate.Judge(q)
			got := ""
			if !v.NextLook.IsZero() {
				got = v.NextLook.Format(time.RFC3339)
			}
			require.Equal(t, c.want, got)
			if got == "" {
				return
			}
			// As time alone goes on: no rule waits for time from then on, and some rule does a second before.
			timed := func(at time.Time) []gate.Result {
				q.Now = at
				v := gate.Judge(q)
				return []gate.Result{v.Rule("soak").Result, v.Rule("schedule").Result}
			}
			require.Equal(t, []gate.Result{gate.Pass, gate.Pass}, timed(v.NextLook))
			require.Contains(t, timed(v.NextLook.Add(-time.Second)), gate.Wait)
		})
	}
}

// Another cluster that is compliant makes no verdict worse, nor does one that mends itself; a failure makes none better.
func TestVerdictsFollowTheClusters(t *testing.T) {
	r := mathrand.New(mathrand.NewPCG(1, 2))
	worse := map[gate.Result]int{gate.Pass: 0, gate.Wait: 1, gate.Fail: 2}
	cohort := func() gate.Cohort {
		c := gate.Cohort{Compliant: r.IntN(30), Progressing: r.IntN(4), Failed: r.IntN(3), Waiting: r.IntN(4), Unknown: r.IntN(6)}
		c.Clusters = c.Reported() + c.Unknown
		return c
	}
	seen := map[gate.Result]bool{}
	for range 5_000 {
		q := question()
		q.Gate.MinReported, q.Gate.MinCompliant, q.Gate.MaxFailed = float64(r.IntN(101)), float64(r.IntN(1001))/10, r.IntN(3)
		q.Gate.AllowEmptyCohort = r.IntN(4) == 0
		q.Cohort = cohort()
		before := gate.Judge(q)
		seen[before.Result] = true
		was := worse[before.Result]
		change := func(f func(*gate.Cohort)) int {
			other := q
			f(&other.Cohort)
			return worse[gate.Judge(other).Result]
		}
		what := fmt.Sprintf("%+v %+v", q.Gate, q.Cohort)
		require.LessOrEqual(t, change(func(c *gate.Cohort) { c.Clusters++; c.Compliant++ }), was, what)
		for _, from := range []func(*gate.Cohort) *int{
			func(c *gate.Cohort) *int { return &c.Failed },
			func(c *gate.Cohort) *int { return &c.Waiting },
			func(c *gate.Cohort) *int { return &c.Progressing },
			func(c *gate.Cohort) *int { return &c.Unknown },
		} {
			if *from(&q.Cohort) > 0 {
				require.LessOrEqual(t, change(func(c *gate.Cohort) { *from(c)--; c.Compliant++ }), was, what)
			}
		}
		if q.Cohort.Compliant > 0 {
			require.GreaterOrEqual(t, change(func(c *gate.Cohort) { c.Compliant--; c.Failed++ }), was, what)
		}
	}
	require.Len(t, seen, 3, "the numbers have to reach every result")
}

func TestTheCheckIsAskedLast(t *testing.T) {
	q := question()
	q.Check = nil
	require.True(t, gate.Judge(q).OnlyCheckIsMissing(q))
	q.Decisions = nil
	require.False(t, gate.Judge(q).OnlyCheckIsMissing(q))
	q = question()
	require.False(t, gate.Judge(q).OnlyCheckIsMissing(q))
}

// The sentences that people read name the clusters.
func TestARuleAboutFailuresIsASentence(t *testing.T) {
	open := func(names ...string) (all []gate.Cluster) {
		for _, name := range names {
			all = append(all, gate.Cluster{Name: name, Verdict: "failed"})
		}
		return append(all, gate.Cluster{Name: "offline", Verdict: "unknown"})
	}
	for want, q := range map[string]gate.Question{
		"1 cluster failed (plant-7); none may":                   {Cohort: gate.Cohort{Clusters: 2, Failed: 1, Open: open("plant-7")}},
		"2 clusters failed (a, b); at most 1 may":                {Cohort: gate.Cohort{Clusters: 3, Failed: 2, Open: open("a", "b")}, Gate: promotion.Gate{MaxFailed: 1}},
		"7 clusters failed (a, b, c, d, e and 2 more); none may": {Cohort: gate.Cohort{Clusters: 9, Failed: 7, Open: open("a", "b", "c", "d", "e", "f")}},
		"1 cluster failed; none may":                             {Cohort: gate.Cohort{Clusters: 2, Failed: 1}},
	} {
		require.Equal(t, want, sentence(q, gate.RuleFailed))
	}
	require.Equal(t, "1 failure of assignments since the record; at most 0 permitted", sentence(gate.Question{Cohort: gate.Cohort{Failures: 1}}, gate.RuleFailures))
}

// sentence returns what a rule says in a question about prod.
func sentence(q gate.Question, rule string) string {
	q.Policy = promotion.Policy{Environment: "prod", Chain: []string{"stage", "prod"}}
	for _, r := range gate.Judge(q).Rules {
		if r.Name == rule {
			return r.String()
		}
	}
	return ""
}

// Without a hub, the registry's reports are all that is known.
func TestAnEmptyCohortOfARegistrySaysWhomToAsk(t *testing.T) {
	v := gate.Judge(gate.Question{Policy: promotion.Policy{Environment: "prod", Chain: []string{"dev", "prod"}}, Cohort: gate.Cohort{From: gate.FromRegistry}})
	for _, r := range v.Rules {
		if r.Name == gate.RuleCohort {
			require.Equal(t, "no hub was asked (give --hub) and the registry has no reports of dev", r.Change)
		}
	}
}

func TestPeopleMayOverrideAllRulesButThoseThatSayWhatItIs(t *testing.T) {
	require.ElementsMatch(t, []string{
		gate.RuleApprovals, gate.RuleCheck, gate.RuleCohort, gate.RuleCompliant, gate.RuleFailed, gate.RuleFailures, gate.RuleQuarantine, gate.RuleRemovals, gate.RuleReported, gate.RuleRequired, gate.RuleSchedule, gate.RuleSoak,
	}, bundle.Decision{}.OverridableRules())
}
