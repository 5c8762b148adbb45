package store

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/opencontainers/go-digest"
)

// Promotion is what the judge of a platform's chain has posted: the environments in order, what their gates say, and what waits. The
// hub judges nothing, and keeps the newest one.
type Promotion struct {
	Platform string `json:"platform"`
	// JudgedAt is the time of the look, and NextLook that of the next one at the latest.
	JudgedAt time.Time `json:"judgedAt"`
	NextLook time.Time `json:"nextLook"`
	// Version is that of the program that has judged.
	Version string `json:"version,omitempty"`
	// Chain has the environments, the first one first.
	Chain []JudgedEnvironment `json:"chain"`
}

// JudgedEnvironment is an environment of a chain as its policy and its gates have it.
type JudgedEnvironment struct {
	Environment string `json:"environment"`
	// Rings are in order, the narrowest first.
	Rings []string `json:"rings,omitempty"`
	// People are those whom the policy names.
	People []string `json:"people,omitempty"`
	// Gates are that of the environment, and those of its rings.
	Gates []JudgedGate `json:"gates,omitempty"`
	// Waits are workloads that the environment before has newer.
	Waits []WaitingWorkload `json:"waits,omitempty"`
	// MorePeople and MoreWaits count those that were left out, so that a request is not too large.
	MorePeople int `json:"morePeople,omitempty"`
	MoreWaits  int `json:"moreWaits,omitempty"`
}

// JudgedGate is what a gate says.
type JudgedGate struct {
	// Ring is the ring that it leads to; empty for the gate of the environment.
	Ring string `json:"ring,omitempty"`
	// From is the environment, or the ring, that has the commit.
	From   string       `json:"from,omitempty"`
	Commit string       `json:"commit,omitempty"`
	Result string       `json:"result"` // pass, wait or fail
	Rules  []JudgedRule `json:"rules,omitempty"`
}

// JudgedRule is what a rule of a gate says.
type JudgedRule struct {
	Rule   string `json:"rule"`
	Result string `json:"result"`
	Has    string `json:"has,omitempty"`
	Wants  string `json:"wants,omitempty"`
	// Ends is when a rule passes that waits for time alone.
	Ends       time.Time `json:"ends,omitzero"`
	Overridden string    `json:"overridden,omitempty"`
}

// WaitingWorkload is a workload that does not come, and why.
type WaitingWorkload struct {
	Registration string `json:"registration,omitempty"`
	Workload     string `json:"workload"`
	Version      string `json:"version,omitempty"`
	Why          string `json:"why"`
}

// The results of gates and rules.
const (
	GatePasses = "pass"
	GateWaits  = "wait"
	GateFails  = "fail"
)

// Bounds of a Promotion, and of a request with one, in bytes.
const (
	MaxPromotion  = 1 << 20
	maxChain      = 256
	MaxPlatforms  = 256
	maxJudgedText = 1024
)

// Content returns the digest of everything but times, what rules have, and why workloads wait, which go on by themselves: two looks with one
// content say the same.
func (p *Promotion) Content() digest.Digest {
	c := *p
	c.JudgedAt, c.NextLook, c.Chain = time.Time{}, time.Time{}, slices.Clone(p.Chain)
	for i := range c.Chain {
		gates := slices.Clone(c.Chain[i].Gates)
		for j := range gates {
			gates[j].Rules = slices.Clone(gates[j].Rules)
			for k := range gates[j].Rules {
				gates[j].Rules[k].Has, gates[j].Rules[k].Ends = "", time.Time{}
			}
		}
		c.Chain[i].Gates, c.Chain[i].Waits = gates, slices.Clone(c.Chain[i].Waits)
		for j := range c.Chain[i].Waits {
			c.Chain[i].Waits[j].Why = ""
		}
	}
	data, _ := json.Marshal(c) // texts and times can always be written
	return digest.FromBytes(data)
}

// Old reports whether nobody has judged for two looks: what is posted may not hold any more.
func (p *Promotion) Old(now time.Time) bool {
	return now.Sub(p.JudgedAt) > 2*max(p.NextLook.Sub(p.JudgedAt), time.Minute)
}

// Check returns an error that wraps ErrInvalid for what no judge posts at this time.
func (p *Promotion) Check(now time.Time) error {
	wrong := func(format string, args ...any) error {
		return fmt.Errorf("promotion: %w: %s", ErrInvalid, fmt.Sprintf(format, args...))
	}
	switch {
	case p.Platform == "":
		return wrong("platform is missing")
	case len(p.Chain) == 0 || len(p.Chain) > maxChain:
		return wrong("%d environments: expected 1 to %d", len(p.Chain), maxChain)
	case p.JudgedAt.IsZero() || p.JudgedAt.Sub(now) > 10*time.Minute:
		return wrong("judgedAt %s is not a time up to now", p.JudgedAt.UTC().Format(time.RFC3339))
	case p.NextLook.Before(p.JudgedAt):
		return wrong("nextLook is before judgedAt")
	}
	texts := []string{p.Platform, p.Version}
	seen := map[string]bool{}
	for _, e := range p.Chain {
		if e.Environment == "" || seen[e.Environment] {
			return wrong("environment %q is empty, or there twice", Plain(Clip(e.Environment)))
		}
		seen[e.Environment] = true
		texts = append(texts, e.Environment)
		texts = append(append(texts, e.Rings...), e.People...)
		for _, g := range e.Gates {
			results := []string{g.Result}
			texts = append(texts, g.Ring, g.From, g.Commit)
			for _, r := range g.Rules {
				results = append(results, r.Result)
				texts = append(texts, r.Rule, r.Has, r.Wants, r.Overridden)
			}
			for _, r := range results {
				if r != GatePasses && r != GateWaits && r != GateFails {
					return wrong("result %q: expected %s, %s or %s", Plain(Clip(r)), GatePasses, GateWaits, GateFails)
				}
			}
		}
		for _, w := range e.Waits {
			if w.Workload == "" {
				return wrong("a workload that waits has no name")
			}
			texts = append(texts, w.Registration, w.Workload, w.Version, w.Why)
		}
	}
	for _, text := range texts {
		if len(text) > maxJudgedText || text != Plain(text) {
			return wrong("the text %q is longer than %d bytes, or has control characters", Plain(Clip(text)), maxJudgedText)
		}
	}
	return nil
}

// PostedPromotion is what a hub answers to a Promotion. New is false if it has a later one, and Changed is false if the one before has the same Content.
type PostedPromotion struct {
	New     bool `json:"new"`
	Changed bool `json:"changed"`
}

// Promotions are what judges have posted, one for each platform.
type Promotions interface {
	// PutPromotion keeps what was posted about a platform, unless there is a later one. Content is p.Content().
	PutPromotion(ctx context.Context, p Promotion, content digest.Digest) (PostedPromotion, error)
	// Promotions returns the newest of each platform, by platform.
	Promotions(ctx context.Context) ([]Promotion, error)
}
