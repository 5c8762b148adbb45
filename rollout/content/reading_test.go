package content_test

import (
	"testing"

	"github.com/opencontainers/go-digest"
	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/ledger"
	"github.com/wherry-dev/wherry/rollout/content"
	"github.com/wherry-dev/wherry/scheduler/promotion"
)

const (
	shopRepo = "https://git.example/shop"
	prodRepo = "https://git.example/prod"
)

// reading decides about the workloads of a situation, and how their sources are read.
func (s *situation) reading(more ...[2]ledger.Workload) *content.Reading {
	q := s.Question
	q.Own.Workloads, q.Below.Workloads = []ledger.Workload{*s.prod}, []ledger.Workload{*s.stage}
	q.Counts = map[ledger.Key]content.Count{cart: *s.count}
	for _, both := range more {
		q.Own.Workloads, q.Below.Workloads = append(q.Own.Workloads, both[0]), append(q.Below.Workloads, both[1])
		q.Counts[both[0].Key] = content.Count{Cohort: counted(0, 2)}
	}
	q.Own.Sort()
	q.Below.Sort()
	return content.Decide(q).Reading(q)
}

// made is version v as prod renders it from a commit of the shared repository.
func made(v string, change ...func(*ledger.Revision)) ledger.Revision {
	r := revision("prod", v, ledger.Stay{})
	for _, c := range change {
		c(&r)
	}
	r.Revision = ledger.RevisionOf(r.Object, r.Targets, r.Artifacts)
	return r
}

func TestAProvedWorkloadIsReadWhereItWasProved(t *testing.T) {
	r := usual().reading()
	require.Equal(t, "commit of 2.0", r.Commit("shop", shopRepo, "main"))
	require.Empty(t, r.Commit("shop", shopRepo, "prod"), "nobody below can have a branch of prod's own")
	require.Empty(t, r.Commit("other", shopRepo, "main"), "each registration is read for itself")
	digestOf, _ := r.Version("shop", bundle.ArtifactImage, "web:2.0")
	require.Equal(t, digest.FromString("2.0").String(), digestOf)

	require.Empty(t, r.Waiting(map[ledger.Key]ledger.Revision{cart: made("2.0")}))
	ownFolder := made("2.0", func(r *ledger.Revision) { r.Targets[0].ID = "a hotfix in prod's folder" })
	require.Empty(t, r.Waiting(map[ledger.Key]ledger.Revision{cart: ownFolder}), "the team decides about it")
	newImage := made("2.0", func(r *ledger.Revision) { r.Artifacts[0].Digest = digest.FromString("3.0").String() })
	require.Equal(t, map[ledger.Key]string{cart: "cart waits: stage has not proved image web:2.0 at " + digest.FromString("3.0").String()},
		r.Waiting(map[ledger.Key]ledger.Revision{cart: newImage}))
	byDigest := made("2.0", func(r *ledger.Revision) {
		r.Artifacts[0].Digest = digest.FromString("3.0").String()
		r.Artifacts[0].Reference = "web@" + r.Artifacts[0].Digest
	})
	require.Equal(t, map[ledger.Key]string{cart: "cart waits: stage has not proved image web@" + digest.FromString("3.0").String()},
		r.Waiting(map[ledger.Key]ledger.Revision{cart: byDigest}))
	folder := made("2.0", func(r *ledger.Revision) { r.Source, r.Targets[0].Source = ledger.Source{}, ledger.Source{} })
	require.Equal(t, map[ledger.Key]string{cart: "cart waits: registration shop was read from a folder, so no commit says what stage would have proved"},
		r.Waiting(map[ledger.Key]ledger.Revision{cart: folder}))
	otherObject := made("2.0", func(r *ledger.Revision) { r.Object = digest.FromString("other") })
	require.Empty(t, r.Waiting(map[ledger.Key]ledger.Revision{cart: otherObject}), "prod's folder has a Workload of its own at the proved commit")
	otherObject.Source.Commit = "commit of 1.0"
	require.Len(t, r.Waiting(map[ledger.Key]ledger.Revision{cart: otherObject}), 1)
	require.Len(t, r.Waiting(nil), 1, "a removal is proved, too")
	news := ledger.Key{Registration: "shop", Workload: "new"}
	for _, free := range []func(*situation){
		func(s *situation) { s.Policy.Gate.Content.Exempt.Workloads = []string{"shop/new"} },
		func(s *situation) { s.Unproved = func(k ledger.Key) bool { return k == news } },
	} {
		s := usual()
		free(s)
		require.Empty(t, s.reading().Waiting(map[ledger.Key]ledger.Revision{cart: made("2.0"), news: made("2.0")}), "only own has it")
	}
	require.Equal(t, "new waits: stage does not have it; if it never will, exempt shop/new in the PromotionPolicy, or publish with --unproved REASON --unproved-workload shop/new", r.Waiting(map[ledger.Key]ledger.Revision{cart: made("2.0"), news: made("2.0")})[news])
}

// prod's own repository may name any image that was proved: by its digest of then, wherever its tag is now.
func TestAnImageOfAnEarlierProofIsReadByItsDigest(t *testing.T) {
	s := usual()
	elsewhere := func(r *ledger.Revision) { r.Source.Repo, r.Targets[0].Source.Repo = prodRepo, prodRepo }
	mine := made("1.0", elsewhere)
	mine.In = s.prod.Revisions[0].In
	s.prod.Revisions[0] = mine
	s.prod.Proofs = []ledger.Proof{proofOf("1.5", 50), proofOf("1.0", 100)}
	s.prod.Proofs[0].Artifacts = append(s.prod.Proofs[0].Artifacts, ledger.Artifact{Type: bundle.ArtifactImage, Reference: "web:1.0", Digest: digest.FromString("moved").String()})
	r := s.reading()
	for _, v := range []string{"1.0", "1.5", "2.0"} {
		got, _ := r.Version("shop", bundle.ArtifactImage, "web:"+v)
		require.Equal(t, digest.FromString(v).String(), got, "what own has counts before an earlier proof")
	}
}

// The team changed the folder that only prod has, and prod undid that. The next change of that folder comes with the commit that stage reads.
func TestTheNextChangeOfProdsOwnComesAfterAnUndo(t *testing.T) {
	s := usual()
	s.prod.Revisions[0] = made("2.0")
	s.prod.Revisions[0].In = []ledger.Stay{{Since: ago(8), Record: rec(8), BaseCommit: "b1", From: from("2.0", 10)}}
	bad := made("2.0", func(r *ledger.Revision) { r.Targets[0].ID = "bad" })
	s.Own.Undone = []ledger.Undone{{Key: cart, Revision: bad.Revision, From: s.stage.Revisions[0].Revision, At: ago(2), Record: rec(2)}}
	stage := &s.stage.Revisions[0]
	stage.Source.Commit, stage.Targets[0].Source.Commit = "later", "later"
	r := s.reading()
	require.Equal(t, "later", r.Commit("shop", shopRepo, "main"))
	next := made("2.0", func(r *ledger.Revision) {
		r.Source.Commit, r.Targets[0].Source.Commit, r.Targets[0].ID = "later", "later", "mended"
	})
	require.Empty(t, r.Waiting(map[ledger.Key]ledger.Revision{cart: next}))
}

// People let in what no proof can, by its revision.
func TestWhatOnlyPeopleCanLetIn(t *testing.T) {
	lone, hotfix := ledger.Key{Registration: "shop", Workload: "new"}, func(r *ledger.Revision) { r.Artifacts[0].Digest = digest.FromString("hotfix").String() }
	for _, c := range []struct {
		name   string
		change func(*situation)
		of     ledger.Key
		made   ledger.Revision
		want   bool
	}{
		{"a workload that stage does not have", func(*situation) {}, lone, made("1.0"), true},
		{"one of a plain folder, which has no ID", func(*situation) {}, lone, made("1.0", func(r *ledger.Revision) {
			r.Source, r.Targets[0].Source, r.Targets[0].ID = ledger.Source{}, ledger.Source{}, ""
		}), false},
		{"one of the platform in a plain folder", func(*situation) {}, ledger.Key{Workload: "new"}, made("1.0", func(r *ledger.Revision) {
			r.Source, r.Targets[0].Source, r.Targets[0].ID = ledger.Source{}, ledger.Source{}, ""
		}), false},
		{"one that follows a branch", func(*situation) {}, lone, made("1.0", func(r *ledger.Revision) { r.Targets[0].ID = "" }), false},
		{"an image that stage has not proved", func(*situation) {}, cart, made("2.0", hotfix), true},
		{"the same beside what prod has", func(s *situation) { s.stay().Since = ago(1) }, cart, made("1.0", hotfix), true},
		{"what stage has and has not proved yet", func(s *situation) { s.stay().Since = ago(1) }, cart, made("2.0"), false},
		{"what prod has of stage, with a base commit that stage has not run it with", func(s *situation) { s.BaseCommit, s.count = "b2", nil }, cart, made("1.0"), false},
		{"what prod alone has, with another base commit", func(s *situation) { s.BaseCommit, s.stage = "b2", nil }, cart, made("1.0"), true},
		{"the next revision of what prod alone has", func(s *situation) { s.stage = nil }, cart, made("1.0", func(r *ledger.Revision) { r.Targets[0].ID = "next" }), true},
	} {
		s := usual()
		c.change(s)
		q := s.Question
		q.Own.Workloads = []ledger.Workload{*s.prod}
		if s.stage != nil {
			q.Below.Workloads = []ledger.Workload{*s.stage}
		}
		if s.count != nil {
			q.Counts = map[ledger.Key]content.Count{cart: *s.count}
		}
		require.Equal(t, c.want, content.Decide(q).Reading(q).Overridable(c.of, c.made), c.name)
	}
}

// A force-push has removed the commit that stage has proved, so the head was read.
func TestTheHeadInPlaceOfAProvedCommitIsTakenIfAllOfItIsKnown(t *testing.T) {
	const waits = "cart waits: commit commit  is gone from main of https://git.example/shop, which has other content now"
	s := usual()
	folder := func(r *ledger.Revision) { r.Targets[0].Path = "deploy" } // of both environments
	folder(&s.stage.Revisions[0])
	s.stage.Revisions[0].Targets[0].ID = "folder of 2.0"
	r := s.reading()
	head := func(change func(*ledger.Revision)) map[ledger.Key]ledger.Revision {
		return map[ledger.Key]ledger.Revision{cart: made("2.0", folder, func(r *ledger.Revision) {
			r.Source.Commit, r.Targets[0].Source.Commit, r.Targets[0].ID = "head", "head", "folder of 2.0"
			change(r)
		})}
	}
	require.Empty(t, r.Waiting(head(func(*ledger.Revision) {})))
	for name, change := range map[string]func(*ledger.Revision){
		"other content":                func(r *ledger.Revision) { r.Targets[0].ID = "other" },
		"another object":               func(r *ledger.Revision) { r.Object = digest.FromString("other") },
		"a folder that prod alone has": func(r *ledger.Revision) { r.Targets[0].Path, r.Targets[0].ID = "deploy/prod", "folder prod2.0" },
	} {
		require.Equal(t, map[ledger.Key]string{cart: waits}, r.Waiting(head(change)), name)
	}
}

func TestAWorkloadThatWaitsIsReadWhereTheEnvironmentHasIt(t *testing.T) {
	s := usual()
	s.stay().Since = ago(1)
	r := s.reading()
	require.Equal(t, "commit of 1.0", r.Commit("shop", shopRepo, "main"))
	require.Empty(t, r.Waiting(map[ledger.Key]ledger.Revision{cart: made("1.0")}), "it is rendered as it is, and no byte changes")
	require.Equal(t, map[ledger.Key]string{cart: "cart 2.0 waits for stage: soak 3h left, 2 of 2 clusters"}, r.Waiting(map[ledger.Key]ledger.Revision{cart: made("2.0")}))
}

func TestWhatTheTeamHasDecided(t *testing.T) {
	r := usual().reading()
	for _, c := range []struct {
		name   string
		change func(*ledger.Revision)
		want   []string
	}{
		{"the folder of prod in a repository that stage reads", func(*ledger.Revision) {}, []string{shopRepo + " main deploy/prod"}},
		{"a folder that prod has", func(r *ledger.Revision) { r.Targets = made("1.0").Targets }, nil},
		{"the folder of stage", func(r *ledger.Revision) { r.Targets[0].Path = "deploy/stage" }, nil},
		{"a folder of the default branch of another repository", func(r *ledger.Revision) { r.Targets[0].Source = ledger.Source{Repo: prodRepo} }, []string{prodRepo + " deploy/prod"}},
		{"a branch for each environment", func(r *ledger.Revision) {
			r.Source.Ref, r.Object = "prod", digest.FromString("other")
			r.Targets[0].Source = r.Source
		}, []string{shopRepo + " prod", shopRepo + " prod deploy/prod"}},
		{"the object that prod has", func(r *ledger.Revision) {
			r.Source.Ref = "prod"
			r.Targets = made("1.0").Targets
		}, nil},
		{"what the site fetches", func(r *ledger.Revision) { r.Targets[0].ID = "" }, nil},
	} {
		t.Run(c.name, func(t *testing.T) { require.Equal(t, c.want, r.Decided(cart, made("2.0", c.change))) })
	}
	s := usual()
	s.Policy.Gate.Content.Exempt = promotion.Exempt{Registrations: []string{"shop"}}
	require.Empty(t, s.reading().Decided(cart, made("2.0")), "nothing holds it")
}

func TestANeighbourThatIsProvedTakesNothingElseAlong(t *testing.T) {
	menu := ledger.Key{Registration: "shop", Workload: "menu"}
	of := func(r ledger.Revision) ledger.Workload {
		return ledger.Workload{Key: menu, Revisions: []ledger.Revision{r}}
	}
	own := revision("prod", "1.0", ledger.Stay{Since: ago(90), Record: rec(90), BaseCommit: "b1", From: from("1.0", 100)})
	r := usual().reading([2]ledger.Workload{of(own), of(revision("stage", "2.0", ledger.Stay{Since: ago(1), Record: rec(1), BaseCommit: "b1"}))})
	require.Equal(t, "commit of 2.0", r.Commit("shop", shopRepo, "main"), "cart is proved there")
	waiting := r.Waiting(map[ledger.Key]ledger.Revision{cart: made("2.0"), menu: made("2.0")})
	require.Equal(t, map[ledger.Key]string{menu: "menu 2.0 waits for stage: soak 3h left, 0 of 2 clusters"}, waiting)
	require.Empty(t, r.Waiting(map[ledger.Key]ledger.Revision{cart: made("2.0"), menu: made("1.0")}), "a commit that does not change it")
	folder := made("2.0", func(r *ledger.Revision) { r.Artifacts = own.Artifacts })
	require.Len(t, r.Waiting(map[ledger.Key]ledger.Revision{cart: made("2.0"), menu: folder}), 1, "its folder for prod, which stage does not have")
	known := of(own)
	known.Proofs = []ledger.Proof{proofOf("1.0", 100)}
	r = usual().reading([2]ledger.Workload{known, of(revision("stage", "2.0", ledger.Stay{Since: ago(1), Record: rec(1), BaseCommit: "b1"}))})
	require.Len(t, r.Waiting(map[ledger.Key]ledger.Revision{cart: made("2.0"), menu: folder}), 1, "also if it is known what proved the present one")
	require.Empty(t, r.Waiting(map[ledger.Key]ledger.Revision{cart: made("2.0"), menu: made("1.0")}))
}

// Stage keeps 1.0 of menu although the commit where cart is proved has 2.0 of it: it was undone there, or waits for the environment below stage.
func TestANeighbourThatIsProvedTakesAlongNothingThatTheEnvironmentBelowKeptBack(t *testing.T) {
	menu := ledger.Key{Registration: "shop", Workload: "menu"}
	own := revision("prod", "1.0", ledger.Stay{Since: ago(90), Record: rec(90), BaseCommit: "b1", From: from("1.0", 100)})
	below := revision("stage", "1.0", ledger.Stay{Since: ago(2), Record: rec(100), BaseCommit: "b1"})
	both := [2]ledger.Workload{
		{Key: menu, Revisions: []ledger.Revision{own}, Proofs: []ledger.Proof{proofOf("1.0", 100)}}, {Key: menu, Revisions: []ledger.Revision{below}},
	}
	both[0].Revisions[0].Targets[0].Path = "menu/prod" // a folder that only prod reads
	made2 := made("2.0", func(r *ledger.Revision) { r.Targets[0].Path = "menu/prod" })
	made2.Object, made2.Artifacts = own.Object, own.Artifacts
	waits := func(s *situation) map[ledger.Key]string {
		return s.reading(both).Waiting(map[ledger.Key]ledger.Revision{cart: made("2.0"), menu: made2})
	}
	require.Equal(t, map[ledger.Key]string{menu: "menu waits: its repository was read where another workload is proved"}, waits(usual()))

	s := usual()
	s.Below.Undone = []ledger.Undone{{Key: menu, Version: "2.0", Revision: revision("stage", "2.0", ledger.Stay{}).Revision, At: ago(2), Record: rec(2)}}
	require.Equal(t, map[ledger.Key]string{menu: "menu 2.0 waits for stage: undone in stage since 2026-11-23 10:00"}, waits(s))

	// Prod does not have what stage was given back yet, and gets that from where it was read.
	both[0].Revisions[0].In[0].From = from("0.9", 200)
	require.Len(t, waits(s), 1)
}

func TestWhatNobodyBelowCanHaveIsReadAtItsHeadWhileTheEnvironmentIsOpen(t *testing.T) {
	s := usual()
	at := ledger.Source{Repo: prodRepo, Ref: "main", Commit: "known"}
	s.prod.Revisions[0].Targets[0].Source = at
	r := s.reading()
	require.Empty(t, r.Commit("shop", prodRepo, "main"))
	s.Closed = "frozen"
	r = s.reading()
	require.Equal(t, "known", r.Commit("shop", prodRepo, "main"))
	require.Equal(t, "commit of 1.0", r.Commit("shop", shopRepo, "main"))
}

func TestAnExemptWorkloadIsReadAtItsHead(t *testing.T) {
	s := usual()
	s.Policy.Gate.Content.Exempt = promotion.Exempt{Registrations: []string{"shop"}}
	r := s.reading()
	require.Empty(t, r.Commit("shop", shopRepo, "main"))
	require.Empty(t, r.Waiting(map[ledger.Key]ledger.Revision{cart: made("3.0")}))
}
