package demo

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/duration"
	"github.com/wherry-dev/wherry/hub/store"
)

// looks is the time between two looks of the judge, and hourly that between two reports of a cluster.
const (
	looks  = 5 * time.Minute
	hourly = time.Hour
)

// leads approve what stage and prod get.
var leads = []string{"anna", "ben", "dora"}

// tick does what is due at a time.
func (f *fleet) tick(ctx context.Context, at time.Time) error {
	f.clock.Store(at.UnixNano())
	for _, c := range f.clusters {
		s, ever := f.last[c]
		if silent, _ := c.silentFor(); !ever || silent >= day || at.Sub(s.at) < hourly {
			continue
		}
		s.at, s.report.OccurredAt = at, at
		s.report.Agent.Seq++
		s.report.Items = slices.Clone(s.report.Items)
		states := []bundle.State{}
		for i := range s.report.Items {
			if it := &s.report.Items[i]; it.State == bundle.Progressing { // it is done by now
				it.State, it.Reason, it.Message, it.Since = bundle.Compliant, "", "", at
			}
			states = append(states, s.report.Items[i].State)
		}
		s.report.State = bundle.AgentState(false, states)
		if err := f.take(ctx, s); err != nil {
			return err
		}
		f.last[c] = s
	}
	return f.judge(ctx)
}

// judge posts what gates say now, as a promoter does.
func (f *fleet) judge(ctx context.Context) error {
	now := f.now
	if at := time.Unix(0, f.clock.Load()).UTC(); at.After(now) {
		now = at
	}
	f.clock.Store(now.UnixNano())
	approved, err := f.approved(ctx, "stage", commitOf(3))
	if err != nil {
		return err
	}
	soaks := f.now.Add(time.Hour - since("dev", 3))
	toStage := gate("dev", commitOf(3), f.compliant("dev", "", 0.8), soak(now, soaks), approvals(approved, 1))
	toProd := gate("stage", commitOf(2), f.compliant("stage", "", 0.8), soak(now, now), approvals(leads[:2], 2))
	toEarly := gate("canary", commitOf(2), f.compliant("prod", "canary", 0.8))
	toEarly.Ring = "early"
	toStable := gate("early", commitOf(2), f.compliant("prod", "early", 0.8))
	toStable.Ring = "stable"
	p := store.Promotion{Platform: platform, JudgedAt: now, NextLook: now.Add(looks), Version: "the sample fleet", Chain: []store.JudgedEnvironment{
		{Environment: "dev"},
		{
			Environment: "stage", People: leads, Gates: []store.JudgedGate{toStage},
			Waits: []store.WaitingWorkload{{Registration: "payments", Workload: "till", Version: workloads[2].versions[3], Why: "till waits for the commit of dev, which " + toStage.Result + "s"}},
		},
		{Environment: "prod", People: leads, Rings: rings, Gates: []store.JudgedGate{toProd, toEarly, toStable}},
	}}
	_, err = f.db.PutPromotion(ctx, p, p.Content())
	return err
}

// gate returns a gate with rules, whose result is the worst of them.
func gate(from, commit string, rules ...store.JudgedRule) store.JudgedGate {
	g := store.JudgedGate{From: from, Commit: commit, Result: store.GatePasses, Rules: rules}
	for _, r := range rules {
		if r.Result == store.GateFails || g.Result == store.GatePasses {
			g.Result = r.Result
		}
	}
	return g
}

// compliant counts the clusters of an environment, or of its ring.
func (f *fleet) compliant(environment, ring string, wants float64) store.JudgedRule {
	n, good, failed := 0, 0, 0
	for _, c := range f.clusters {
		s, ever := f.last[c]
		if c.Environment != environment || c.Ring != ring || !ever {
			continue
		}
		n++
		switch s.report.State {
		case bundle.Compliant:
			good++
		case bundle.Failed:
			failed++
		}
	}
	r := store.JudgedRule{Rule: "compliant", Result: store.GatePasses, Has: fmt.Sprintf("%d of %d", good, n), Wants: fmt.Sprintf("at least %.0f %%", 100*wants)}
	if enough := wants * float64(n); float64(n-failed) < enough {
		r.Result = store.GateFails
	} else if float64(good) < enough {
		r.Result = store.GateWaits
	}
	return r
}

func soak(now, ends time.Time) store.JudgedRule {
	if !now.Before(ends) {
		return store.JudgedRule{Rule: "soak", Result: store.GatePasses, Wants: "1h"}
	}
	return store.JudgedRule{Rule: "soak", Result: store.GateWaits, Has: duration.Text(ends.Sub(now)) + " to go", Wants: "1h", Ends: ends}
}

func approvals(by []string, wants int) store.JudgedRule {
	r := store.JudgedRule{Rule: "approvals", Result: store.GatePasses, Has: fmt.Sprint(len(by)), Wants: fmt.Sprintf("%d of leads: %s", wants, strings.Join(leads, ", "))}
	if len(by) > 0 {
		r.Has += " (" + strings.Join(by, ", ") + ")"
	}
	if len(by) < wants {
		r.Result = store.GateWaits
	}
	return r
}

// approved returns who has approved a commit for an environment, and not rejected it since. In the sample fleet everybody may.
func (f *fleet) approved(ctx context.Context, environment, commit string) (by []string, err error) {
	all, err := f.db.Decisions(ctx, environment)
	for _, s := range slices.Backward(all) {
		d, _, err := bundle.ReadDecision(s.Envelope)
		if err != nil || d.BaseCommit != commit || d.Ring != "" {
			continue
		}
		by = slices.DeleteFunc(by, func(name string) bool { return name == d.By })
		if d.Action == bundle.Approve {
			by = append(by, d.By)
		}
	}
	return by, err
}
