package promotecmd

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/opencontainers/go-digest"

	"github.com/wherry-dev/wherry/cmd/internal/cli"
	"github.com/wherry-dev/wherry/hub/store"
	"github.com/wherry-dev/wherry/published/watch"
	"github.com/wherry-dev/wherry/publisher"
	"github.com/wherry-dev/wherry/rollout/advance"
	"github.com/wherry-dev/wherry/rollout/content"
	"github.com/wherry-dev/wherry/rollout/gate"
	"github.com/wherry-dev/wherry/rollout/promote"
	"github.com/wherry-dev/wherry/scheduler/promotion"
)

// posted is what promote --watch tells a hub of a chain. The zero value is ready to use.
type posted struct {
	platform     string
	chain        []string
	environments map[string]store.JudgedEnvironment
	content      digest.Digest // of what was told last
	again        time.Time     // when the same is told again
}

// note notes the policy of an environment.
func (p *posted) note(platform string, policy promotion.Policy) {
	if p.environments == nil {
		p.environments = map[string]store.JudgedEnvironment{}
	}
	p.platform, p.chain = cmp.Or(platform, publisher.DefaultPlatform), policy.Chain
	e := p.environments[policy.Environment]
	e.Environment, e.Rings, e.People = policy.Environment, policy.Rings, nil
	for _, g := range policy.Groups {
		for _, m := range g.Members {
			e.People = append(e.People, plain(m.Name))
		}
	}
	slices.Sort(e.People)
	e.People = slices.Compact(e.People)
	p.environments[policy.Environment] = e
}

// verdicts notes what the gates of environments say.
func (p *posted) verdicts(results []promote.Result) {
	for _, r := range results {
		e, known := p.environments[r.Environment]
		switch {
		case known && r.State == promote.Failed: // nobody knows
		case known && r.Verdict != nil:
			p.judged(e, *r.Verdict)
		case known: // it has what is below
			e.Gates = slices.DeleteFunc(slices.Clone(e.Gates), func(g store.JudgedGate) bool { return g.Ring == "" })
			p.environments[r.Environment] = e
		}
	}
}

// ring forgets what was said of rings, and notes what judge says of them.
func (p *posted) ring(judge advance.Gate) advance.Gate {
	for name, e := range p.environments {
		e.Gates = slices.DeleteFunc(slices.Clone(e.Gates), func(g store.JudgedGate) bool { return g.Ring != "" })
		p.environments[name] = e
	}
	return func(ctx context.Context, ask advance.Ask) (gate.Verdict, error) {
		v, err := judge(ctx, ask)
		if e, known := p.environments[ask.Environment]; known && err == nil {
			said := v
			said.Ring, said.From = ask.Ring, cmp.Or(v.From, ask.Environment)
			p.judged(e, said)
		}
		return v, err
	}
}

func (p *posted) judged(e store.JudgedEnvironment, v gate.Verdict) {
	g := store.JudgedGate{Ring: v.Ring, From: v.From, Commit: v.Commit, Result: string(v.Result)}
	for _, r := range v.Rules {
		g.Rules = append(g.Rules, store.JudgedRule{Rule: r.Name, Result: string(r.Result), Has: plain(r.Has), Wants: plain(r.Wants), Ends: r.Ends, Overridden: plain(r.Overridden)})
	}
	e.Gates = append(slices.DeleteFunc(slices.Clone(e.Gates), func(b store.JudgedGate) bool { return b.Ring == g.Ring }), g)
	slices.SortFunc(e.Gates, func(a, b store.JudgedGate) int {
		return cmp.Compare(slices.Index(e.Rings, a.Ring), slices.Index(e.Rings, b.Ring))
	})
	p.environments[e.Environment] = e
}

// waits notes the workloads that do not come to an environment.
func (p *posted) waits(environment string, d *content.Decision) {
	e, known := p.environments[environment]
	if !known {
		return
	}
	e.Waits = nil
	for i := range d.Takes {
		if t := &d.Takes[i]; t.Waits != "" {
			w := store.WaitingWorkload{Registration: t.Registration, Workload: t.Workload, Why: plain(t.Waits)}
			if len(t.Newer) > 0 {
				w.Version = plain(t.Newer[0].Version)
			}
			e.Waits = append(e.Waits, w)
		}
	}
	p.environments[environment] = e
}

// of returns what to post about the chain; false if its policy was not read.
func (p *posted) of(now time.Time) (store.Promotion, bool) {
	next := watch.ForAnything
	all := store.Promotion{Platform: p.platform, JudgedAt: now, Version: cli.Version()}
	for _, name := range p.chain {
		e, known := p.environments[name]
		if !known {
			e.Environment = name
		}
		if len(e.Waits) > 0 || slices.ContainsFunc(e.Gates, func(g store.JudgedGate) bool { return g.Result != store.GatePasses }) {
			next = watch.ForReports
		}
		all.Chain = append(all.Chain, e)
	}
	all.NextLook = now.Add(next)
	return fitting(all), len(all.Chain) > 0
}

// fitting returns what a hub takes of a post: it leaves out the half of the longest list of people or of workloads that wait until the rest is
// small enough, and counts them.
func fitting(p store.Promotion) store.Promotion {
	p.Chain = slices.Clone(p.Chain)
	for {
		body, err := json.Marshal(p)
		if err != nil || len(body) <= store.MaxPromotion {
			return p
		}
		longest, most := 0, 0
		for i, e := range p.Chain {
			if n := max(len(e.People), len(e.Waits)); n > most {
				longest, most = i, n
			}
		}
		switch e := &p.Chain[longest]; {
		case most == 0: // nothing is left that may go
			return p
		case len(e.Waits) == most:
			e.Waits, e.MoreWaits = e.Waits[:most/2], e.MoreWaits+most-most/2
		default:
			e.People, e.MorePeople = e.People[:most/2], e.MorePeople+most-most/2
		}
	}
}

// plain returns a text as a hub takes it.
func plain(s string) string { return store.Plain(store.Clip(strings.TrimSpace(s))) }

// post tells the hub, if there is one, what gates say. With a token that is no publisher's the hub learns nothing, and no promotion waits for that.
func (w *watching) post(ctx context.Context, now time.Time, of func() (poster, error)) {
	p, any := w.posted.of(now)
	if !any || w.Fleet.URL() == "" {
		return
	}
	content := p.Content()
	if content == w.posted.content && now.Before(w.posted.again) {
		return
	}
	hub, err := of()
	if err == nil {
		_, err = hub.PutPromotion(ctx, p)
	}
	if err == nil {
		w.posted.content, w.posted.again = content, now.Add(p.NextLook.Sub(now)/2)
	}
}

// poster is the part of a hub's client that post needs.
type poster interface {
	PutPromotion(ctx context.Context, p store.Promotion) (store.PostedPromotion, error)
}
