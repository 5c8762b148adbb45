package content_test

import (
	"crypto/ed25519"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/ledger"
	"github.com/wherry-dev/wherry/rollout/content"
	"github.com/wherry-dev/wherry/rollout/gate"
	"github.com/wherry-dev/wherry/scheduler/promotion"
)

var (
	now  = time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)
	cart = ledger.Key{Registration: "shop", Workload: "cart"}
)

// rec is the record of an hour before now; hours count back.
func rec(hoursAgo int) ledger.Record {
	return ledger.Record{Epoch: 1, Sequence: ago(hoursAgo).Unix()}
}

func ago(hours int) time.Time { return now.Add(-time.Duration(hours) * time.Hour) }

// revision is version v of a workload of a shared repository in an environment, whose folder there is the environment's.
func revision(environment, version string, stay ledger.Stay) ledger.Revision {
	source := ledger.Source{Repo: "https://git.example/shop", Ref: "main", Commit: "commit of " + version}
	r := ledger.Revision{
		Version: version, Object: digest.FromString("object"), Source: source, In: []ledger.Stay{stay},
		Targets:   []ledger.Target{{Name: "live", Source: source, Path: "deploy/" + environment, ID: "folder " + environment + version}},
		Artifacts: []ledger.Artifact{{Type: bundle.ArtifactImage, Reference: "web:" + version, Digest: digest.FromString(version).String()}},
	}
	r.Revision = ledger.RevisionOf(r.Object, r.Targets, r.Artifacts)
	return r
}

// proofOf is the proof of a version in stage that came so many hours ago, with base commit b1.
func proofOf(version string, hours int, change ...func(*ledger.Proof)) ledger.Proof {
	r := revision("stage", version, ledger.Stay{})
	p := ledger.Proof{
		Revision: r.Revision, Record: rec(hours), Object: r.Object, Source: r.Source, Targets: r.Targets, Artifacts: r.Artifacts, Proved: ago(1),
		Met: []ledger.Met{{BaseCommit: "b1", At: ago(1), Clusters: 2, Compliant: 2}},
	}
	for _, c := range change {
		c(&p)
	}
	return p
}

func from(version string, hours int) ledger.From {
	return ledger.From{Environment: "stage", Revision: revision("stage", version, ledger.Stay{}).Revision, Record: rec(hours)}
}

// situation is a question about shop/cart: prod has 1.0, which is made of what stage had 100 hours ago, and stage has 2.0 since 10 hours.
// The gate wants a soak of 4 hours.
type situation struct {
	content.Question
	stage, prod *ledger.Workload
	count       *content.Count
}

func usual() *situation {
	anna := promotion.Member{Name: "anna", Key: annaKey}
	gateOf := promotion.Default()
	gateOf.Soak, gateOf.Content.Held = 4*time.Hour, true
	s := &situation{Question: content.Question{
		Policy: promotion.Policy{Name: "chain", Environment: "prod", Chain: []string{"dev", "stage", "prod"}, Gate: gateOf, Groups: []promotion.Group{{Name: "leads", Members: []promotion.Member{anna}}}},
		Own:    &ledger.Ledger{Schema: 1}, Below: &ledger.Ledger{Schema: 1}, BaseCommit: "b1", Now: now,
	}}
	s.stage = &ledger.Workload{Key: cart, Revisions: []ledger.Revision{revision("stage", "2.0", ledger.Stay{Since: ago(10), Record: rec(10), BaseCommit: "b1"})}}
	s.prod = &ledger.Workload{Key: cart, Revisions: []ledger.Revision{revision("prod", "1.0", ledger.Stay{Since: ago(90), Record: rec(90), BaseCommit: "b1", From: from("1.0", 100)})}}
	s.count = &content.Count{Cohort: counted(2, 2)}
	return s
}

func counted(compliant, clusters int) gate.Cohort {
	return gate.Cohort{From: gate.FromHub, Source: "https://hub.example", Clusters: clusters, Compliant: compliant, Unknown: clusters - compliant}
}

func (s *situation) stay() *ledger.Stay { return &s.stage.Revisions[0].In[0] }

func (s *situation) mine() *ledger.Stay { return &s.prod.Revisions[0].In[0] }

// decide asks, and returns what becomes of shop/cart; nil if nothing.
func (s *situation) decide() (*content.Take, *content.Decision) {
	q := s.Question
	if q.Own != nil && s.prod != nil {
		q.Own.Workloads = append(q.Own.Workloads, *s.prod)
	}
	if q.Below != nil && s.stage != nil {
		q.Below.Workloads = append(q.Below.Workloads, *s.stage)
	}
	if s.count != nil {
		q.Counts = map[ledger.Key]content.Count{cart: *s.count}
	}
	d := content.Decide(q)
	return d.Take(cart), d
}

var (
	annaSecret = ed25519.NewKeyFromSeed(make([]byte, 32))
	annaKey    = annaSecret.Public()
	annaID, _  = bundle.KeyID(annaKey)
)

// anna returns what she decided about version 2.0 of stage, an hour ago.
func anna(action bundle.Action) content.Decided {
	return content.Decided{About: content.Subject{Key: cart, Revision: revision("stage", "2.0", ledger.Stay{}).Revision}, Decided: gate.Decided{Member: "anna", KeyID: annaID, Decision: bundle.Decision{Action: action, Reason: "because", IssuedAt: ago(1)}}}
}

// overrides returns what anna overrode for version 2.0 of stage, an hour ago.
func overrides(rules ...string) content.Decided {
	d := anna(bundle.Override)
	d.Rules = rules
	return d
}

// leads has anna of group leads be asked.
func (s *situation) leads(a *promotion.Approvals) {
	*a = promotion.Approvals{Required: 1, Group: "leads", Members: s.Policy.Groups[0].Members}
}

// removed takes the workload away from stage.
func (s *situation) removed(at time.Time) {
	s.stage = nil
	s.Below.Removed = []ledger.Removed{{Key: cart, In: []ledger.Stay{{Since: at, Record: ledger.Record{Epoch: 1, Sequence: at.Unix()}, BaseCommit: "b1"}}}}
}

func TestWhatStandsWhenItIsDecidedAgain(t *testing.T) {
	_, before := usual().decide()
	for name, c := range map[string]struct {
		change func(*situation)
		want   bool
	}{
		"nothing happened": {func(*situation) {}, true},
		"a rejection":      {func(s *situation) { s.Decisions = append(s.Decisions, anna(bundle.Reject)) }, false},
		"an approval":      {func(s *situation) { s.Decisions = append(s.Decisions, anna(bundle.Approve)) }, true},
		"another was taken back": {func(s *situation) {
			s.Below.Undone = []ledger.Undone{{Key: cart, At: ago(1), Record: rec(1), Revision: from("1.5", 50).Revision}}
		}, true},
		"stage took it back": {func(s *situation) {
			s.Below.Undone = []ledger.Undone{{Key: cart, At: ago(1), Record: rec(1), Revision: s.stage.Revisions[0].Revision}}
		}, false},
	} {
		s := usual()
		c.change(s)
		_, later := s.decide()
		require.Equal(t, c.want, before.StandsWith(later), name)
	}
	s := usual() // it did not come yet, and its proof was about to be written
	s.Closed = "closed until Monday"
	_, before = s.decide()
	s = usual()
	s.Closed, s.Decisions = "closed until Monday", []content.Decided{anna(bundle.Reject)}
	_, later := s.decide()
	require.False(t, before.StandsWith(later))
}

func TestWhatDecisionsMayBeAbout(t *testing.T) {
	s := usual()
	q := s.Question
	own, below := *s.prod, *s.stage
	own.Proofs = []ledger.Proof{proofOf("1.0", 100), proofOf("1.5", 50)}
	q.Own.Workloads, q.Below.Workloads = []ledger.Workload{own}, []ledger.Workload{below}
	q.Below.Removed = []ledger.Removed{{Key: ledger.Key{Registration: "shop", Workload: "menu"}, In: []ledger.Stay{{Record: rec(1)}}}}
	q.Own.Workloads = append(q.Own.Workloads, ledger.Workload{Key: q.Below.Removed[0].Key, Revisions: own.Revisions})
	of := func(version string) content.Subject {
		return content.Subject{Key: cart, Revision: revision("stage", version, ledger.Stay{}).Revision}
	}
	require.Equal(t, []content.Subject{of("2.0"), of("1.5"), {Key: q.Below.Removed[0].Key}}, content.Open(q), "neither what prod has, nor what is older")
	q.Policy.Gate.Content.Exempt.Workloads = []string{"shop/cart", "shop/menu"}
	require.Empty(t, content.Open(q))
}

func TestDecide(t *testing.T) {
	const moreSoak = "cart 2.0 waits for stage: soak 3h left, 2 of 2 clusters"
	for _, c := range []struct {
		name   string
		change func(*situation)
		kind   content.Kind
		waits  string
	}{
		{"numbers and soak hold", func(*situation) {}, content.Proved, ""},
		{"the soak is not over", func(s *situation) { s.stay().Since = ago(1) }, content.Admitted, moreSoak},
		{"the soak is not over, and clusters are silent", func(s *situation) { s.stay().Since, s.count.Cohort = ago(1), counted(41, 45) }, content.Admitted, "cart 2.0 waits for stage: soak 3h left, 41 of 45 clusters"},
		{"a time ahead of the clock is no soak", func(s *situation) { s.stay().Since = now.Add(time.Hour) }, content.Admitted, "cart 2.0 waits for stage: soak 5h left, 2 of 2 clusters"},
		{"a time ahead of the clock, without a soak", func(s *situation) { s.stay().Since, s.Policy.Gate.Soak = now.Add(time.Hour), 0 }, content.Admitted, "cart 2.0 waits for stage: its time is ahead of the clock"},
		{"an old proof outlives silence", func(s *situation) { s.count.Cohort = counted(0, 2); s.prod.Proofs = []ledger.Proof{proofOf("2.0", 10)} }, content.Proved, ""},
		{"silence", func(s *situation) { s.count.Cohort = counted(0, 2) }, content.Admitted, "cart 2.0 waits for stage: 0 of 2 clusters"},
		{"the reports are too old", func(s *situation) {
			s.count.Cohort = counted(0, 2)
			s.count.Open = []gate.Cluster{{Verdict: "unknown", LastSeen: ago(170)}}
		}, content.Admitted, "cart 2.0 waits for stage: 0 of 2 clusters, a cluster reported 7d2h ago, which counts for 24h"},
		{"no cluster is no proof", func(s *situation) { s.count.Cohort, s.Policy.Gate.AllowEmptyCohort = gate.Cohort{}, true }, content.Admitted, "cart 2.0 waits for stage: no cluster of stage that was registered before 2026-11-23T02:00:00Z has it"},
		{"a workload that was not counted", func(s *situation) { s.Counts, s.count = map[ledger.Key]content.Count{}, nil }, content.Admitted, "cart 2.0 waits for stage: no cluster of stage that was registered before 2026-11-23T02:00:00Z has it"},
		{"nobody counted", func(s *situation) { s.count = nil }, content.Admitted, "cart 2.0 waits for stage: the clusters of stage were not counted"},
		{"a cluster failed", func(s *situation) {
			s.count.Cohort = gate.Cohort{Clusters: 2, Compliant: 1, Failed: 1, Open: []gate.Cluster{{Name: "plant-7", Verdict: "failed"}}}
		}, content.Admitted, "cart 2.0 waits for stage: 1 of 2 clusters, 1 cluster failed (plant-7); none may"},
		{"a cluster is in quarantine", func(s *situation) { s.count.Quarantined = 1 }, content.Admitted, "cart 2.0 waits for stage: 1 cluster quarantined the release; none may"},
		{"a required cluster is not compliant", func(s *situation) {
			required := counted(0, 1)
			s.Policy.Gate.MinCompliant, s.count.Required = 50, &required
			s.Policy.Gate.Required = everything{}
		}, content.Admitted, "cart 2.0 waits for stage: 0 of 1 (0.0 %) required clusters"},
		{"a cluster type has other content", func(s *situation) { s.stay().Unlike = []string{"drone"} }, content.Admitted, "cart 2.0 waits for stage: drone of stage has other content"},
		{"soakIn is not for content", func(s *situation) { s.Policy.Gate.SoakIn = []string{"dev", "stage"} }, content.Proved, ""},

		{"approvals are missing", func(s *situation) { s.leads(&s.Policy.Gate.Content.Approvals) }, content.Admitted, "cart 2.0 waits for stage: approved by 0, wants 1 of leads"},
		{"approved", func(s *situation) {
			s.leads(&s.Policy.Gate.Content.Approvals)
			s.Decisions = []content.Decided{anna(bundle.Approve)}
		}, content.Proved, ""},
		{"approved, and not proved", func(s *situation) {
			s.leads(&s.Policy.Gate.Content.Approvals)
			s.Decisions, s.stay().Since = []content.Decided{anna(bundle.Approve)}, ago(1)
		}, content.Admitted, moreSoak},
		{"an approval that is over", func(s *situation) {
			s.leads(&s.Policy.Gate.Content.Approvals)
			over := anna(bundle.Approve)
			over.ExpiresAt = now
			s.Decisions = []content.Decided{over}
		}, content.Admitted, "cart 2.0 waits for stage: approved by 0, wants 1 of leads"},
		{"another revision is approved", func(s *situation) {
			s.leads(&s.Policy.Gate.Content.Approvals)
			other := anna(bundle.Approve)
			other.About.Revision = digest.FromString("other")
			s.Decisions = []content.Decided{other}
		}, content.Admitted, "cart 2.0 waits for stage: approved by 0, wants 1 of leads"},
		{"another workload is approved", func(s *situation) {
			s.leads(&s.Policy.Gate.Content.Approvals)
			other := anna(bundle.Approve)
			other.About.Registration = ""
			s.Decisions = []content.Decided{other}
		}, content.Admitted, "cart 2.0 waits for stage: approved by 0, wants 1 of leads"},
		{"overridden without a group", func(s *situation) {
			s.Decisions, s.count = []content.Decided{overrides("content")}, nil
		}, content.Admitted, "cart 2.0 waits for stage: the clusters of stage were not counted"},
		{"overridden", func(s *situation) {
			s.leads(&s.Policy.Gate.Override)
			s.Decisions, s.count = []content.Decided{overrides("content")}, nil
		}, content.Proved, ""},
		{"overridden, and the base commit is another one", func(s *situation) {
			s.leads(&s.Policy.Gate.Override)
			s.Decisions, s.BaseCommit = []content.Decided{overrides("content")}, "b2"
		}, content.Proved, ""},
		{"another rule is overridden", func(s *situation) {
			s.leads(&s.Policy.Gate.Override)
			s.Decisions, s.stay().Since = []content.Decided{overrides("approvals")}, ago(1)
		}, content.Admitted, moreSoak},
		{"an override of the proof does not approve", func(s *situation) {
			s.leads(&s.Policy.Gate.Override)
			s.leads(&s.Policy.Gate.Content.Approvals)
			s.Decisions, s.count = []content.Decided{overrides("content")}, nil
		}, content.Admitted, "cart 2.0 waits for stage: approved by 0, wants 1 of leads"},
		{"proof and approvals are overridden", func(s *situation) {
			s.leads(&s.Policy.Gate.Override)
			s.leads(&s.Policy.Gate.Content.Approvals)
			s.Decisions, s.count = []content.Decided{overrides("approvals", "content")}, nil
		}, content.Proved, ""},
		{"overridden and undone below", func(s *situation) {
			s.leads(&s.Policy.Gate.Override)
			s.Decisions = []content.Decided{overrides("content")}
			s.Below.Undone = []ledger.Undone{{Key: cart, Revision: s.stage.Revisions[0].Revision, At: ago(2), Record: rec(2)}}
		}, content.Admitted, "cart 2.0 waits for stage: undone in stage since 2026-11-23 10:00"},
		{"an override lets nothing in during a freeze", func(s *situation) {
			s.leads(&s.Policy.Gate.Override)
			s.Decisions, s.Closed = []content.Decided{overrides("content")}, "Christmas"
		}, content.Admitted, "cart 2.0 waits for stage: Christmas"},
		{"an override lets it in during a freeze if a person asks", func(s *situation) {
			s.leads(&s.Policy.Gate.Override)
			s.Decisions, s.Closed, s.Unproved = []content.Decided{overrides("content")}, "Christmas", func(ledger.Key) bool { return true }
		}, content.Proved, ""},
		{"a person asks, and the group has not overridden", func(s *situation) {
			s.leads(&s.Policy.Gate.Override)
			s.count, s.Unproved = nil, func(ledger.Key) bool { return true }
		}, content.Admitted, "cart 2.0 waits for stage: the clusters of stage were not counted"},
		{"a removal is approved", func(s *situation) {
			s.leads(&s.Policy.Gate.Content.Approvals)
			s.removed(ago(10))
			s.Decisions = []content.Decided{anna(bundle.Approve)}
			s.Decisions[0].About.Revision = ""
		}, content.Proved, ""},
		{"an earlier removal was approved", func(s *situation) {
			s.leads(&s.Policy.Gate.Content.Approvals)
			s.removed(ago(10))
			s.Decisions = []content.Decided{anna(bundle.Approve)}
			s.Decisions[0].About.Revision, s.Decisions[0].IssuedAt = "", ago(11)
		}, content.Admitted, "cart, removed in stage, waits for stage: approved by 0, wants 1 of leads"},
		{"approvals of the base commit are not asked for content", func(s *situation) {
			s.Policy.Gate.Approvals = promotion.Approvals{Required: 1, Group: "leads", Members: s.Policy.Groups[0].Members}
		}, content.Proved, ""},
		{"rejected, although nobody has to approve", func(s *situation) { s.Decisions = []content.Decided{anna(bundle.Reject)} }, content.Admitted, "cart 2.0 waits for stage: rejected by anna (because)"},
		{"rejected by nobody of the policy", func(s *situation) {
			no := anna(bundle.Reject)
			no.Member = "eve"
			s.Decisions = []content.Decided{no}
		}, content.Proved, ""},

		{"undone below", func(s *situation) {
			s.Below.Undone = []ledger.Undone{{Key: cart, Revision: s.stage.Revisions[0].Revision, At: ago(2), Record: rec(2), Reason: "orders fail"}}
		}, content.Admitted, "cart 2.0 waits for stage: undone in stage since 2026-11-23 10:00 (orders fail)"},
		{"undone below takes a proof back", func(s *situation) {
			s.Below.Undone = []ledger.Undone{{Key: cart, Revision: s.stage.Revisions[0].Revision, At: ago(2), Record: rec(2)}}
			s.prod.Proofs = []ledger.Proof{proofOf("2.0", 10)}
			s.stage.Revisions[0] = revision("stage", "1.0", ledger.Stay{Since: ago(2), Record: rec(100), BaseCommit: "b1"})
		}, content.Admitted, "cart waits for stage: undone in stage since 2026-11-23 10:00"},
		{"undone below, and it came again", func(s *situation) {
			s.Below.Undone = []ledger.Undone{{Key: cart, Revision: s.stage.Revisions[0].Revision, At: ago(12), Record: rec(12)}}
		}, content.Proved, ""},
		{"another workload was undone below", func(s *situation) {
			s.Below.Undone = []ledger.Undone{{Key: ledger.Key{Workload: "cart"}, Revision: s.stage.Revisions[0].Revision, At: ago(2), Record: rec(2)}}
		}, content.Proved, ""},
		{"undone here", func(s *situation) {
			s.Own.Undone = []ledger.Undone{{Key: cart, From: s.stage.Revisions[0].Revision, At: ago(2), Record: rec(2)}}
		}, content.Admitted, "cart 2.0 waits for stage: undone in prod since 2026-11-23 10:00"},
		{"undone here, and what it went back to is made of the same", func(s *situation) {
			s.prod.Revisions[0].In[0].From = from("2.0", 10)
			s.Own.Undone = []ledger.Undone{{Key: cart, Version: "1.9", Revision: digest.FromString("prod's own"), From: s.stage.Revisions[0].Revision, At: ago(2), Record: rec(2)}}
		}, content.Proved, "cart 1.9 stays out: undone in prod since 2026-11-23 10:00"},
		{"undone here, and resumed with again", func(s *situation) {
			s.Own.Undone = []ledger.Undone{{Key: cart, From: s.stage.Revisions[0].Revision, At: ago(2), Record: rec(2)}}
			s.Again = ago(1)
		}, content.Proved, ""},
		{"undone here, and another one came since", func(s *situation) {
			s.Own.Undone = []ledger.Undone{{Key: cart, From: s.stage.Revisions[0].Revision, At: ago(95), Record: rec(95)}}
		}, content.Proved, ""},
		{"undone here stays out although it came again below", func(s *situation) {
			s.Own.Undone = []ledger.Undone{{Key: cart, From: s.stage.Revisions[0].Revision, At: ago(20), Record: rec(20)}}
		}, content.Admitted, "cart 2.0 waits for stage: undone in prod since 2026-11-22 16:00"},

		{"undone here, of what stage never had", func(s *situation) {
			s.Own.Undone = []ledger.Undone{{Key: cart, Version: "1.9", Revision: digest.FromString("prod's own"), At: ago(2), Record: rec(2), Reason: "slow"}}
			s.stage.Revisions[0] = revision("stage", "1.0", ledger.Stay{Since: ago(100), Record: rec(100), BaseCommit: "b1"})
		}, content.Proved, "cart 1.9 stays out: undone in prod since 2026-11-23 10:00 (slow)"},
		{"undone here, of what stage never had, and something newer comes", func(s *situation) {
			s.Own.Undone = []ledger.Undone{{Key: cart, Version: "1.9", Revision: digest.FromString("prod's own"), At: ago(2), Record: rec(2)}}
		}, content.Proved, ""},

		{"the base moves, and stage ran it with that", func(s *situation) { s.BaseCommit = "b2"; s.stay().BaseCommit = "b2" }, content.Proved, ""},
		{"stage runs another commit with the same base", func(s *situation) { s.stay().BaseCommit, s.SameBase = "b2", []string{"b2"} }, content.Proved, ""},
		{"the base moves to a commit with the same base", func(s *situation) { s.BaseCommit, s.SameBase = "b2", []string{"b1"} }, content.Proved, ""},
		{"the base moves to a commit with the same base, and nothing is proved", func(s *situation) {
			s.BaseCommit, s.SameBase, s.count.Cohort = "b2", []string{"b1"}, counted(0, 2)
		}, content.Admitted, "cart 2.0 waits for stage: 0 of 2 clusters"},
		{"the base moves, and stage has not run it with that", func(s *situation) { s.BaseCommit = "b2" }, content.FilesStay, "cart 2.0 waits for stage: stage has not run it well with base commit b2"},
		{"the base moves, and what runs has met it", func(s *situation) {
			s.BaseCommit = "b2"
			s.prod.Proofs = []ledger.Proof{proofOf("1.0", 100, func(p *ledger.Proof) { p.Met = append(p.Met, ledger.Met{BaseCommit: "b2"}) })}
			s.count.Cohort = counted(0, 2)
		}, content.Proved, "cart 2.0 waits for stage: 0 of 2 clusters"}, // what runs, anew
		{"the base moves, and the group overrides that stage has not run with it what prod has", func(s *situation) {
			s.leads(&s.Policy.Gate.Override)
			s.BaseCommit, s.Decisions, s.count.Cohort = "b2", []content.Decided{overrides("content")}, counted(0, 2)
			s.mine().From = from("2.0", 10)
		}, content.Proved, ""},
		{"the base moves, and stage still has what runs", func(s *situation) {
			s.BaseCommit = "b2"
			s.stage.Revisions[0] = revision("stage", "1.0", ledger.Stay{Since: ago(100), Record: rec(100), BaseCommit: "b2"})
		}, content.Proved, ""},
		{"the base moves under what ran before there was a chain", func(s *situation) {
			s.BaseCommit, s.mine().From = "b2", ledger.From{}
			s.stage.Revisions[0] = revision("stage", "1.0", ledger.Stay{Since: ago(100), Record: rec(100), BaseCommit: "b2"})
		}, content.Proved, ""},
		{"before there was a chain: stage has the same, and proves it", func(s *situation) {
			s.mine().From = ledger.From{}
			s.stage.Revisions[0] = revision("stage", "1.0", ledger.Stay{Since: ago(100), Record: rec(100), BaseCommit: "b1"})
		}, content.Proved, ""},
		{"before there was a chain: stage has the same, and has not proved it", func(s *situation) {
			s.mine().From, s.count.Cohort = ledger.From{}, counted(0, 2)
			s.stage.Revisions[0] = revision("stage", "1.0", ledger.Stay{Since: ago(100), Record: rec(100), BaseCommit: "b1"})
		}, content.Admitted, ""},
		{"the base moves under what ran before there was a chain, and stage has other content", func(s *situation) {
			s.BaseCommit, s.mine().From = "b2", ledger.From{}
			s.stage.Revisions[0] = revision("stage", "1.1", ledger.Stay{Since: ago(100), Record: rec(100), BaseCommit: "b2"})
		}, content.FilesStay, "cart waits for stage: stage has not run it well with base commit b2"},

		{"the older of two versions is proved last", func(s *situation) {
			s.mine().From = from("3.0", 5)
			s.prod.Proofs = []ledger.Proof{proofOf("2.0", 10)}
		}, content.Admitted, ""},
		{"before there was a chain: what came below earlier stays out", func(s *situation) { s.mine().From, s.mine().Record = ledger.From{}, rec(5) }, content.Admitted, ""},
		{"before there was a chain: what came below later comes", func(s *situation) { s.mine().From, s.mine().Record = ledger.From{}, rec(20) }, content.Proved, ""},
		{"a newer push does not lose a proof", func(s *situation) {
			s.stage.Revisions[0] = revision("stage", "3.0", ledger.Stay{Since: ago(1), Record: rec(1), BaseCommit: "b1"})
			s.prod.Proofs = []ledger.Proof{proofOf("2.0", 10)}
		}, content.Proved, "cart 3.0 waits for stage: soak 3h left, 2 of 2 clusters"},
		{"what met the numbers and not the soak is no proof", func(s *situation) {
			s.stage.Revisions[0] = revision("stage", "3.0", ledger.Stay{Since: ago(1), Record: rec(1), BaseCommit: "b1"})
			s.prod.Proofs = []ledger.Proof{proofOf("2.0", 10, func(p *ledger.Proof) { p.Proved = time.Time{} })}
		}, content.Admitted, "cart 3.0 waits for stage: soak 3h left, 2 of 2 clusters"},
		{"a rollback in stage after prod took it", func(s *situation) {
			s.prod.Revisions[0] = revision("prod", "2.0", ledger.Stay{Since: ago(5), Record: rec(5), BaseCommit: "b1", From: from("2.0", 10)})
			s.Below.Undone = []ledger.Undone{{Key: cart, Revision: revision("stage", "2.0", ledger.Stay{}).Revision, At: ago(2), Record: rec(2)}}
			s.stage.Revisions[0] = revision("stage", "1.0", ledger.Stay{Since: ago(2), Record: rec(100), BaseCommit: "b1"})
		}, content.Admitted, "cart runs in prod: undone in stage since 2026-11-23 10:00"},
		{"a rollback in stage before prod took it", func(s *situation) {
			s.Below.Undone = []ledger.Undone{{Key: cart, Version: "2.0", Revision: revision("stage", "2.0", ledger.Stay{}).Revision, At: ago(2), Record: rec(2)}}
			s.stage.Revisions[0] = revision("stage", "1.0", ledger.Stay{Since: ago(2), Record: rec(100), BaseCommit: "b1"})
		}, content.Admitted, "cart 2.0 waits for stage: undone in stage since 2026-11-23 10:00"},
		{"a rollback in stage, and something newer there", func(s *situation) {
			s.Below.Undone = []ledger.Undone{{Key: cart, Version: "1.5", Revision: revision("stage", "1.5", ledger.Stay{}).Revision, At: ago(20), Record: rec(20)}}
		}, content.Proved, ""},
		{"undone in another ring of prod alone", func(s *situation) {
			s.mine().From = from("2.0", 10)
			s.Own.Undone = []ledger.Undone{{Key: cart, Revision: s.prod.Revisions[0].Revision, From: from("2.0", 10).Revision, At: ago(2), Record: rec(2)}}
		}, content.Proved, ""},

		{"closed", func(s *situation) { s.Closed = "frozen until 2027-01-07" }, content.Admitted, "cart 2.0 waits for stage: frozen until 2027-01-07"},
		{"exempt by name", func(s *situation) { s.count = nil; s.Policy.Gate.Content.Exempt.Workloads = []string{"shop/cart"} }, content.Head, ""},
		{"a team takes an exempt name", func(s *situation) {
			s.count = nil
			s.Policy.Gate.Content.Exempt.Workloads = []string{"cart", "other/cart"}
		}, content.Admitted, "cart 2.0 waits for stage: the clusters of stage were not counted"},
		{"exempt by workspace", func(s *situation) {
			s.count, s.Workspaces = nil, map[string]string{"shop": "ops"}
			s.Policy.Gate.Content.Exempt.Workspaces = []string{"ops"}
		}, content.Head, ""},
		{"taken without a proof", func(s *situation) { s.count, s.Unproved = nil, func(ledger.Key) bool { return true } }, content.Head, ""},
		{"content any", func(s *situation) { s.count = nil; s.Policy.Gate.Content.Held = false }, content.Head, ""},
		{"the first environment", func(s *situation) { s.count = nil; s.Policy.Environment = "dev" }, content.Head, ""},

		{"new and proved", func(s *situation) { s.prod = nil }, content.Proved, ""},
		{"new and not proved", func(s *situation) { s.prod, s.stay().Since = nil, ago(1) }, content.LeftOut, moreSoak},
		{"new and not proved, and nobody knows what runs", func(s *situation) { s.Own, s.stay().Since = nil, ago(1) }, content.Refused, moreSoak},
		{"new and proved, and nobody knows what runs", func(s *situation) { s.Own = nil }, content.Proved, ""},
		{"a target in prod alone", func(s *situation) { s.prod, s.stage, s.Workloads = nil, nil, []ledger.Key{cart} }, content.LeftOut, "cart waits for stage: stage does not have it; if it never will, exempt shop/cart in the PromotionPolicy, or publish with --unproved REASON --unproved-workload shop/cart"},
		{"a newer wherry wrote below's ledger", func(s *situation) { s.Below = nil }, content.Admitted, ""},
		{"new, with a proof that was seen", func(s *situation) {
			s.count.Cohort = counted(0, 2)
			s.prod = &ledger.Workload{Key: cart, Proofs: []ledger.Proof{proofOf("2.0", 10)}}
		}, content.Proved, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := usual()
			c.change(s)
			take, d := s.decide()
			require.NotNil(t, take)
			require.Equal(t, c.kind, take.Kind, "%+v", take)
			require.Equal(t, c.waits, take.Waits)
			require.Equal(t, c.kind == content.Refused, len(d.Refused()) == 1)
			if take.Kind == content.Proved {
				require.NotNil(t, take.Proof)
			}
		})
	}
}

// everything is a selector of all clusters; who counts reads it, and not the decision.
type everything struct{ labels.Selector }

func (everything) String() string { return "pilot=true" }

func TestRemovals(t *testing.T) {
	removed := func(hours int, stay ledger.Stay) []ledger.Removed {
		stay.Since, stay.Record = ago(hours), rec(hours)
		return []ledger.Removed{{Key: cart, In: []ledger.Stay{stay}, Assignments: map[string][]string{"drone": {"cart-live"}}}}
	}
	for _, c := range []struct {
		name    string
		change  func(*situation)
		kind    content.Kind
		removed bool
		waits   string
	}{
		{"proved", func(s *situation) { s.stage = nil; s.Below.Removed = removed(10, ledger.Stay{}) }, content.Proved, true, ""},
		{"not proved", func(s *situation) { s.stage = nil; s.Below.Removed = removed(1, ledger.Stay{}) }, content.Admitted, false, "cart, removed in stage, waits for stage: soak 3h left, 2 of 2 clusters"},
		{"done", func(s *situation) {
			s.stage, s.prod, s.Below.Removed = nil, nil, removed(10, ledger.Stay{})
			s.Own.Removed = removed(5, ledger.Stay{From: ledger.From{Environment: "stage", Record: rec(10)}})
		}, content.Admitted, true, ""},
		{"it has come back, and is proved", func(s *situation) {
			s.prod, s.Own.Removed = nil, removed(5, ledger.Stay{From: ledger.From{Environment: "stage", Record: rec(20)}})
		}, content.Proved, false, ""},
		{"it has come back, and is not proved", func(s *situation) {
			s.prod, s.Own.Removed = nil, removed(5, ledger.Stay{From: ledger.From{Environment: "stage", Record: rec(20)}})
			s.count.Cohort = counted(0, 2)
		}, content.Admitted, true, "cart 2.0 waits for stage: 0 of 2 clusters"},
		{"it has come back before its removal was taken", func(s *situation) {
			s.count.Cohort = counted(0, 2)
			s.prod.Proofs = []ledger.Proof{{Removal: true, Record: rec(20), Proved: ago(3), Met: []ledger.Met{{BaseCommit: "b1"}}}}
		}, content.Admitted, false, "cart 2.0 waits for stage: 0 of 2 clusters"},
		{"a removal with another base commit", func(s *situation) {
			s.stage, s.BaseCommit = nil, "b2"
			s.Below.Removed = removed(10, ledger.Stay{BaseCommit: "b1"})
		}, content.Proved, true, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := usual()
			c.change(s)
			take, _ := s.decide()
			require.NotNil(t, take)
			require.Equal(t, c.kind, take.Kind)
			require.Equal(t, c.removed, take.Removed)
			require.Equal(t, c.waits, take.Waits)
		})
	}
	s := usual()
	s.stage, s.prod, s.Below.Removed = nil, nil, removed(10, ledger.Stay{})
	take, d := s.decide()
	require.Nil(t, take, "own never had it")
	require.Empty(t, d.Proofs)
}

// A renaming neither stops a workload nor runs it twice: the removal and the new name pass together.
func TestARenamingPassesTogether(t *testing.T) {
	basket := ledger.Key{Registration: "shop", Workload: "basket"}
	rename := func(record ledger.Record, count gate.Cohort) *situation {
		s := usual()
		renamed := revision("stage", "2.0", ledger.Stay{Since: ago(10), Record: record, BaseCommit: "b1"})
		s.Below.Workloads = []ledger.Workload{{Key: basket, Revisions: []ledger.Revision{renamed}}}
		s.Below.Removed = []ledger.Removed{{Key: cart, In: []ledger.Stay{{Since: ago(10), Record: rec(10)}}, Assignments: map[string][]string{"drone": {"cart-live"}}}}
		s.Own.Workloads = []ledger.Workload{*s.prod}
		s.stage, s.prod = nil, nil
		s.Counts = map[ledger.Key]content.Count{cart: *s.count, basket: {Cohort: count}}
		s.count = nil
		return s
	}
	d := content.Decide(rename(rec(10), counted(2, 2)).Question)
	require.True(t, d.Take(cart).Removed)
	require.Equal(t, content.Proved, d.Take(basket).Kind)

	d = content.Decide(rename(rec(10), counted(0, 2)).Question)
	require.Equal(t, content.Admitted, d.Take(cart).Kind)
	require.False(t, d.Take(cart).Removed)
	require.Equal(t, "cart, removed in stage, waits for stage: waits for shop/basket, which belongs to the same change", d.Take(cart).Waits)
	require.Equal(t, content.LeftOut, d.Take(basket).Kind)
	require.Len(t, d.Proofs[cart], 1, "the removal was proved")

	d = content.Decide(rename(rec(9), counted(0, 2)).Question)
	require.True(t, d.Take(cart).Removed, "another record: they do not belong together")

	// An assignment of the same name in another registration belongs to it, too.
	s := rename(rec(9), counted(0, 2))
	other := ledger.Key{Registration: "store", Workload: "cart"}
	s.Below.Workloads = []ledger.Workload{{Key: other, Revisions: s.Below.Workloads[0].Revisions}}
	d = content.Decide(s.Question)
	require.False(t, d.Take(cart).Removed)

	// New workloads alone do not wait for one another.
	s = rename(rec(10), counted(0, 2))
	s.Below.Removed = nil
	s.Below.Workloads = append(s.Below.Workloads, ledger.Workload{Key: other, Revisions: s.Below.Workloads[0].Revisions})
	s.Counts[other] = content.Count{Cohort: counted(2, 2)}
	d = content.Decide(s.Question)
	require.Equal(t, content.LeftOut, d.Take(basket).Kind)
	require.Equal(t, content.Proved, d.Take(other).Kind)
}

func TestProofsForTheNextLedger(t *testing.T) {
	texts := func(d *content.Decision) string {
		var all []string
		for _, p := range d.Proofs[cart] {
			var met []string
			for _, m := range p.Met {
				met = append(met, m.BaseCommit)
			}
			version := strings.TrimPrefix(p.Artifacts[0].Reference, "web:")
			all = append(all, fmt.Sprint(version, " ", strings.Join(met, "+"), " ", !p.Proved.IsZero()))
		}
		return fmt.Sprint(strings.Join(all, ", "), " new ", len(d.NewProofs) > 0)
	}
	for _, c := range []struct {
		name   string
		change func(*situation)
		want   string
	}{
		{"proved", func(*situation) {}, "2.0 b1 true new true"},
		{"the numbers are met", func(s *situation) { s.stay().Since = ago(1) }, "2.0 b1 false new true"},
		{"silence says nothing", func(s *situation) { s.count.Cohort = counted(0, 2) }, " new false"},
		{"it was seen", func(s *situation) { s.prod.Proofs = []ledger.Proof{proofOf("2.0", 10)} }, "2.0 b1 true new false"},
		{"it was seen, and there is silence", func(s *situation) {
			s.prod.Proofs, s.count.Cohort = []ledger.Proof{proofOf("2.0", 10)}, counted(0, 2)
		}, "2.0 b1 true new false"},
		{"another base commit", func(s *situation) { s.prod.Proofs = []ledger.Proof{proofOf("2.0", 10)}; s.stay().BaseCommit = "b2" }, "2.0 b1+b2 true new true"},
		{"another commit with the same base", func(s *situation) {
			s.prod.Proofs = []ledger.Proof{proofOf("2.0", 10)}
			s.stay().BaseCommit, s.SameBase = "b2", []string{"b2"}
		}, "2.0 b1 true new false"},
		{"own's name for the base is written", func(s *situation) { s.stay().BaseCommit, s.SameBase = "b2", []string{"b2"} }, "2.0 b1 true new true"},
		{"what runs keeps its proof, until another one comes", func(s *situation) {
			s.prod.Proofs, s.stay().Since = []ledger.Proof{proofOf("1.0", 100)}, ago(1)
		}, "2.0 b1 false, 1.0 b1 true new true"},
		{"what ran needs none", func(s *situation) { s.prod.Proofs = []ledger.Proof{proofOf("1.0", 100)} }, "2.0 b1 true new true"},
		{"pushes during a freeze do not lose a proof", func(s *situation) {
			s.Closed = "frozen"
			s.stage.Revisions[0] = revision("stage", "9.0", ledger.Stay{Since: ago(1), Record: rec(1), BaseCommit: "b1"})
			met := func(p *ledger.Proof) { p.Proved = time.Time{} }
			s.prod.Proofs = []ledger.Proof{proofOf("4.0", 3, met), proofOf("3.0", 5, met), proofOf("2.0", 10), proofOf("1.0", 100)}
		}, "9.0 b1 false, 4.0 b1 false, 2.0 b1 true, 1.0 b1 true new true"},
		{"undone below", func(s *situation) {
			s.Below.Undone = []ledger.Undone{{Key: cart, Revision: s.stage.Revisions[0].Revision, At: ago(2), Record: rec(2)}}
		}, " new false"},
		{"rejected", func(s *situation) { s.Decisions = []content.Decided{anna(bundle.Reject)} }, " new false"},
		{"a force-push: the same revision at another commit", func(s *situation) {
			s.prod.Proofs = []ledger.Proof{proofOf("2.0", 10, func(p *ledger.Proof) { p.Source.Commit = "gone" })}
		}, "2.0 b1 true new false"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := usual()
			c.change(s)
			_, d := s.decide()
			require.Equal(t, c.want, texts(d))
			for _, p := range d.Proofs[cart] {
				require.NotEqual(t, "gone", p.Source.Commit)
			}
		})
	}
}

func TestNextLook(t *testing.T) {
	s := usual()
	s.stay().Since = ago(1)
	_, d := s.decide()
	require.Equal(t, now.Add(3*time.Hour), d.NextLook, "the end of the soak")
	s = usual()
	s.Closed, s.OpensAt = "closed", now.Add(time.Hour)
	_, d = s.decide()
	require.Equal(t, now.Add(time.Hour), d.NextLook)
	_, d = usual().decide()
	require.Zero(t, d.NextLook)
}

// What was rendered is judged again: prod's own folder may name an image that no cluster below has run.
func TestCheck(t *testing.T) {
	render := func(version string, change ...func(*ledger.Revision)) ledger.Revision {
		r := revision("prod", version, ledger.Stay{})
		for _, c := range change {
			c(&r)
		}
		r.Revision = ledger.RevisionOf(r.Object, r.Targets, r.Artifacts)
		return r
	}
	elsewhere := func(r *ledger.Revision) {
		r.Source.Repo, r.Targets[0].Source.Repo = "https://git.example/prod", "https://git.example/prod"
	}
	for _, c := range []struct {
		name     string
		change   func(*situation)
		rendered ledger.Revision
		passes   bool
		from     string
	}{
		{"what was proved", func(*situation) {}, render("2.0"), true, "2.0"},
		{"an image that nobody below has", func(*situation) {}, render("2.0", func(r *ledger.Revision) { r.Artifacts[0].Digest = digest.FromString("hotfix").String() }), false, "2.0"},
		{"an image of what own has", func(*situation) {}, render("1.0"), true, "2.0"},
		{"a hotfix in prod's own repository, by manifests alone", func(*situation) {}, render("2.0", elsewhere, func(r *ledger.Revision) { r.Targets[0].ID = "hotfix" }), true, "2.0"},
		{"prod's own repository has an image of an earlier proof", func(s *situation) {
			s.prod.Revisions[0] = render("1.0", elsewhere)
			s.prod.Revisions[0].In = []ledger.Stay{{Since: ago(90), Record: rec(90), BaseCommit: "b1", From: from("1.0", 100)}}
			s.prod.Proofs = []ledger.Proof{proofOf("1.5", 50), proofOf("1.0", 100)}
		}, render("1.5", elsewhere), true, "1.5"},
		{"a tag without a digest that below names by its digest: it may have been withdrawn", func(*situation) {}, render("2.0", func(r *ledger.Revision) { r.Artifacts[0].Digest = "" }), false, "2.0"},
		{"a tag without a digest that below names without one, too", func(s *situation) {
			s.stage.Revisions[0].Artifacts[0].Digest = ""
		}, render("2.0", func(r *ledger.Revision) { r.Artifacts[0].Digest = "" }), true, "2.0"},
		{"a tag without a digest that own has without one", func(s *situation) {
			s.prod.Revisions[0].Artifacts[0] = ledger.Artifact{Type: bundle.ArtifactImage, Reference: "web:2.0"}
		}, render("2.0", func(r *ledger.Revision) { r.Artifacts[0].Digest = "" }), true, "2.0"},
		{"a tag without a digest that nobody below names", func(*situation) {}, render("2.0", func(r *ledger.Revision) { r.Artifacts[0].Reference, r.Artifacts[0].Digest = "evil:1", "" }), false, "2.0"},
		{"the same where what moves is let in", func(s *situation) { s.Policy.Gate.AllowFloating = true }, render("2.0", func(r *ledger.Revision) { r.Artifacts[0].Reference, r.Artifacts[0].Digest = "evil:1", "" }), true, "2.0"},
		{"an exempt workload", func(s *situation) { s.Policy.Gate.Content.Exempt.Registrations = []string{"shop"} }, render("7.0"), true, ""},
		{"a proof of the numbers alone does not count", func(s *situation) {
			s.stay().Since = ago(1)
		}, render("2.0"), false, ""},
		{"a workload that nobody decided about", func(s *situation) { s.stage, s.prod = nil, nil }, render("2.0"), false, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := usual()
			c.change(s)
			_, d := s.decide()
			got := d.Check(c.rendered, cart)
			require.Equal(t, c.passes, got.Passes(), "%+v", got)
			from := ""
			if got.From != nil {
				from = strings.TrimPrefix(got.From.Artifacts[0].Reference, "web:")
			}
			require.Equal(t, c.from, from)
		})
	}
}
