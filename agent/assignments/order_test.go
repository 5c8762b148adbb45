package assignments

import (
	"testing"
	"time"

	"github.com/opencontainers/go-digest"
	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/bundle"
)

func TestAHoldKeepsNewContentFromBeginning(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	fresh := Record{Spec: bundle.Assignment{Name: "a", Content: digest.FromString("2")}, Applied: digest.FromString("1"), Adapter: "directory", Item: bundle.Item{State: bundle.Compliant}}
	later := fresh
	later.Spec.Name, later.Spec.Wave = "b", 1
	adapter := func(bundle.Assignment) string { return "directory" }
	for _, c := range []struct {
		name   string
		hold   Wait
		change func(*Record)
		first  Wait // of a
		second string
	}{
		{"none", Wait{}, nil, Wait{State: bundle.Pending}, ReasonWaveNotReady},
		{"one that ends by itself keeps later waves", Wait{bundle.Pulling, "Carrying", "1 of 2", true}, nil, Wait{bundle.Pulling, "Carrying", "1 of 2", true}, ReasonWaveNotReady},
		{"one that needs a person keeps nobody else", Wait{bundle.Pending, "SiteValueMissing", "dns", false}, nil, Wait{bundle.Pending, "SiteValueMissing", "dns", false}, ""},
		{
			"content that was begun is not held",
			Wait{bundle.Pulling, "Carrying", "", true},
			func(r *Record) { r.Applied, r.Item.State = r.Spec.Content, bundle.Compliant },
			Wait{},
			"",
		},
		{
			"neither is a removal",
			Wait{bundle.Pulling, "Carrying", "", true},
			func(r *Record) { r.Removing, r.Item.State = true, bundle.Compliant },
			Wait{State: bundle.Pending},
			"",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			a := fresh
			a.Item.State = bundle.Pending
			if c.change != nil {
				c.change(&a)
			}
			rollout := NewRollout([]Record{a, later}, adapter, time.Minute)
			rollout.HoldBack(func(r Record) Wait {
				if r.Spec.Name == "a" {
					return c.hold
				}
				return Wait{}
			})
			rollout.HoldBack(func(r Record) Wait { return Wait{} })
			gate := rollout.Gate(now)
			require.Equal(t, c.first, gate.Waits(a))
			require.Equal(t, c.second, gate.Waits(later).Reason)
		})
	}
	held := fresh.Held(Wait{bundle.Pulling, "Carrying", "1 of 2", true}, now)
	require.Equal(t, bundle.Item{State: bundle.Pulling, Reason: "Carrying", Message: "1 of 2", Since: now}, held.Item)
	require.Equal(t, Change, held.Unfinished("directory"), "no engine has it, so none is observed")
}
