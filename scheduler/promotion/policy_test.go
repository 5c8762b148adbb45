package promotion_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/wherry-dev/wherry/scheduler"
	"github.com/wherry-dev/wherry/scheduler/finding"
	"github.com/wherry-dev/wherry/scheduler/promotion"
)

// read returns what a PromotionPolicy with a spec says of environment prod. Mistakes of a gate's fields are in a table of package scheduler.
func read(spec string) (promotion.Policy, *scheduler.Model, error) {
	m := scheduler.NewModel("prod")
	text := "apiVersion: wherry.dev/v1alpha1\nkind: PromotionPolicy\nmetadata: {name: p}\nspec:\n" + spec
	if err := m.Load(context.Background(), scheduler.Source{FS: fstest.MapFS{"p.yaml": {Data: []byte(text)}}}); err != nil {
		return promotion.Policy{}, nil, err
	}
	p, err := m.Promotion()
	return p, m, err
}

// gateOf has a gate before prod on line 8. Its group leads has two members, who decide through a hub.
func gateOf(fields string) string {
	return "  chain: [dev, prod]\n  groups:\n    - {name: leads, members: [{name: anna}, {name: ben}], hubs: [" + fmt.Sprintf("%q", hub) + "]}\n  environments: [{name: prod, gate: " + fields + "}]\n"
}

const hub = `-----BEGIN PUBLIC KEY-----
MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAECxfUxEjYw5P98GPnz9BSq6w7NKXlzccwpPUGc5X6fGdhvlP3XVJbZg0tFg4sZnJcpVbqe7GrPgNS3XGPbEgYPA==
-----END PUBLIC KEY-----
`

func TestEachFieldHasItsDefaultAndMayBeAtItsBounds(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		fields string
		want   func(g *promotion.Gate) // what differs from the default
	}{
		{"{}", func(*promotion.Gate) {}},
		{"{minReported: 0, minCompliant: 100, maxFailed: 0, maxQuarantined: 0, maxReportAge: 24h, requirePinned: false}", func(*promotion.Gate) {}},
		{`{soak: "", maxReportAge: ""}`, func(*promotion.Gate) {}},
		{"{soak: 0s}", func(*promotion.Gate) {}},
		{"{minReported: 100}", func(g *promotion.Gate) { g.MinReported = 100 }},
		{"{minReported: 33.3}", func(g *promotion.Gate) { g.MinReported = 33.3 }},
		{"{minCompliant: 0}", func(g *promotion.Gate) { g.MinCompliant = 0 }},
		{"{maxFailed: 1}", func(g *promotion.Gate) { g.MaxFailed = 1 }},
		{"{maxFailed: 9000000000}", func(g *promotion.Gate) { g.MaxFailed = 1<<31 - 1 }},
		{"{maxQuarantined: 1}", func(g *promotion.Gate) { g.MaxQuarantined = 1 }},
		{"{maxFailures: 0}", func(g *promotion.Gate) { g.MaxFailures = 0 }},
		{"{soak: 90m}", func(g *promotion.Gate) { g.Soak = 90 * time.Minute }},
		{"{soak: 7d}", func(g *promotion.Gate) { g.Soak = 7 * 24 * time.Hour }},
		{"{soak: 2w}", func(g *promotion.Gate) { g.Soak = 14 * 24 * time.Hour }},
		{"{soakIn: [dev]}", func(g *promotion.Gate) { g.SoakIn = []string{"dev"} }},
		{"{maxReportAge: 61m}", func(g *promotion.Gate) { g.MaxReportAge = 61 * time.Minute }},
		{"{requiredClusters: {}}", func(g *promotion.Gate) { g.Required = labels.Everything() }},
		{"{requiredClusters: {matchExpressions: [{key: a, operator: In, values: [b, c]}]}}", func(g *promotion.Gate) {
			g.Required, _ = labels.Parse("a in (b,c)")
		}},
		{"{requirePinned: true}", func(g *promotion.Gate) { g.RequirePinned = true }},
		{"{allowEmptyCohort: true}", func(g *promotion.Gate) { g.AllowEmptyCohort = true }},
		{"{allowFloating: true}", func(g *promotion.Gate) { g.AllowFloating = true }},
		{"{content: any}", func(g *promotion.Gate) { g.Content.Held = false }},
		{"{content: {}}", func(g *promotion.Gate) {}},
		{"{content: {approvals: {required: 0}}}", func(g *promotion.Gate) {}},
		{"{content: {batchAfter: 12h}}", func(g *promotion.Gate) { g.Content.BatchAfter = 12 * time.Hour }},
		{"{content: {exempt: {workspaces: [ops], registrations: [old], workloads: [shop/cart, menu]}}}", func(g *promotion.Gate) {
			g.Content.Exempt = promotion.Exempt{Workspaces: []string{"ops"}, Registrations: []string{"old"}, Workloads: []string{"shop/cart", "menu"}}
		}},
		{"{check: {command: x}}", func(g *promotion.Gate) {
			g.Check = &promotion.Check{Name: "check", Command: "x", Timeout: time.Minute}
		}},
		{"{check: {url: http://x, timeout: 1h}}", func(g *promotion.Gate) {
			g.Check = &promotion.Check{Name: "check", URL: "http://x", Timeout: time.Hour}
		}},
		{`{schedule: {open: ["00:00-24:00"]}}`, func(g *promotion.Gate) {
			g.Schedule.Open = []promotion.Period{{Closes: 24 * time.Hour, Location: time.UTC}}
		}},
		{"{schedule: {freeze: [{from: 2026-12-20, until: 2026-12-21}]}}", func(g *promotion.Gate) {
			g.Schedule.Freezes = []promotion.Freeze{{From: time.Date(2026, 12, 20, 0, 0, 0, 0, time.UTC), Until: time.Date(2026, 12, 21, 0, 0, 0, 0, time.UTC)}}
		}},
	} {
		t.Run(c.fields, func(t *testing.T) {
			p, _, err := read(gateOf(c.fields))
			require.NoError(t, err)
			want := promotion.Default()
			c.want(&want)
			if want.Required != nil {
				require.Equal(t, want.Required.String(), p.Gate.Required.String())
				want.Required = p.Gate.Required
			}
			require.Equal(t, want, p.Gate)
			want.SoakIn, want.RequirePinned, want.Check, want.Content = nil, false, nil, promotion.Default().Content
			require.Equal(t, want, p.RingGate, "what it takes over")
		})
	}
	p, _, err := read(gateOf("{approvals: {required: 2, group: leads}, override: {required: 2, group: leads}}"))
	require.NoError(t, err, "all members")
	require.Equal(t, 2, p.Gate.Approvals.Required)
	require.Zero(t, p.RingGate.Approvals)
	require.Equal(t, 2, p.RingGate.Override.Required)
}

func TestApprovalsOfContentAreTheGates(t *testing.T) {
	t.Parallel()
	for fields, want := range map[string]int{
		"{approvals: {required: 2, group: leads}}":                                                    2,
		"{approvals: {required: 2, group: leads}, content: {}}":                                       2,
		"{approvals: {required: 2, group: leads}, content: {approvals: {required: 1, group: leads}}}": 1,
		"{approvals: {required: 2, group: leads}, content: {approvals: {required: 0}}}":               0,
		"{content: {approvals: {required: 2, group: leads}}}":                                         2,
		"{approvals: {required: 2, group: leads}, content: any}":                                      0,
	} {
		p, _, err := read(gateOf(fields))
		require.NoError(t, err)
		require.Equal(t, want, p.Gate.Content.Approvals.Required, fields)
		require.Len(t, p.Gate.Content.Approvals.Members, min(want, 1)*2, fields)
	}
}

func TestExempt(t *testing.T) {
	t.Parallel()
	e := promotion.Exempt{Workspaces: []string{"ops"}, Registrations: []string{"old"}, Workloads: []string{"shop/cart", "menu"}}
	for _, c := range []struct {
		workspace, registration, workload string
		want                              bool
	}{
		{"ops", "any", "any", true},
		{"", "old", "any", true},
		{"", "shop", "cart", true},
		{"", "", "menu", true},
		{"", "shop", "menu", false}, // a team chooses the name of an exempt workload
		{"", "", "cart", false},
		{"", "ops", "old", false},
		{"", "", "shop", false},
	} {
		require.Equal(t, c.want, e.Has(c.workspace, c.registration, c.workload), "%+v", c)
	}
	require.False(t, promotion.Exempt{}.Has("", "", "x"))
}

func TestWhatIsNoPolicy(t *testing.T) {
	t.Parallel()
	many := strings.Repeat("x, ", 1001)
	for _, c := range []struct{ name, spec, want, code string }{
		{"an unknown field of the spec", "  chains: [dev]\n", `p.yaml:5: PromotionPolicy "p": unknown field spec.chains (did you mean "chain"?)`, "E1020"},
		{"an unknown field of an environment", "  environments: [{name: prod, changerequest: true}]\n", "unknown field spec.environments[0].changerequest", "E1020"},
		{"an unknown field of a ring gate", "  environments: [{name: prod, ringGate: {soaks: 1h}}]\n", "unknown field spec.environments[0].ringGate.soaks", "E1020"},
		{"an unknown field of a check", gateOf("{check: {command: x, timeouts: 1s}}"), "unknown field spec.environments[0].gate.check.timeouts", "E1020"},
		{"an unknown field of a schedule", gateOf("{schedule: {opens: []}}"), "unknown field spec.environments[0].gate.schedule.opens", "E1020"},
		{"a report age of the agents' interval", gateOf("{maxReportAge: 1h}"), "maxReportAge is 1h, and agents without news report each hour", "E1021"},
		{"another word for content", gateOf("{content: all}"), `content is "all"`, "E1020"},
		{"content of a ring gate", "  environments: [{name: prod, ringGate: {content: {}}}]\n", "content has no meaning in a ringGate", "E1020"},
		{"a batch that is reported at once", gateOf("{content: {batchAfter: 1s}}"), "content.batchAfter: 1s is too short", "E1020"},
		{"a number for content", gateOf("{content: 7}"), "content must be a string, and 7 is a number", "E1002"},
		{"a list for content", gateOf("{content: [any]}"), "content must be a mapping, not a list", "E1002"},
		{"an unknown field of content", gateOf("{content: {exemptions: {}}}"), "unknown field spec.environments[0].gate.content.exemptions", "E1020"},
		{"an exempt workload with a workspace", gateOf("{content: {exempt: {workloads: [a/b/c]}}}"), `content.exempt.workloads has "a/b/c"`, "E1020"},
		{"an exempt registration with a workload", gateOf("{content: {exempt: {registrations: [a/b]}}}"), `content.exempt.registrations has "a/b"`, "E1020"},
		{"an exempt workload without a name", gateOf(`{content: {exempt: {workloads: ["a/"]}}}`), `content.exempt.workloads has "a/"`, "E1020"},
		{"approvals of content by nobody", gateOf("{content: {approvals: {required: 1}}}"), "content.approvals has no group", "E1020"},
		{"a check without time", gateOf("{check: {command: x, timeout: 0s}}"), "timeout: 0s is too short, it must be 1s at least", "E1020"},
		{"a check that takes over an hour", gateOf("{check: {command: x, timeout: 61m}}"), "timeout: 61m is too long, it must be 1h at most", "E1020"},
		{"a check whose name is two lines", gateOf(`{check: {command: x, name: "a\nb"}}`), "a check cannot be called", "E1020"},
		{"a negative soak", gateOf("{soak: -1h}"), "soak: ", "E1020"},
		{"an environment without a name", "  environments: [{gate: {}}]\n", "an environment of the PromotionPolicy has no name", "E1018"},
		{"rings of an environment twice", "  environments: [{name: prod, rings: [a]}, {name: prod, rings: [b]}]\n", `the rings of environment "prod" are named twice`, "E1018"},
		{"a ring twice", "  environments: [{name: prod, rings: [a, a]}]\n", `ring "a" is named twice`, "E1018"},
		{"a ring that is no tag", "  environments: [{name: prod, rings: [a/b]}]\n", `a ring cannot be called "a/b"`, "E1018"},
		{"too many rings", "  environments: [{name: prod, rings: [" + strings.Join(ringNames(30), ", ") + "]}]\n", "the names of the rings have 330 bytes together, at most 256 are allowed", "E1018"},
		{"too long a chain", "  chain: [" + many + "]\n", "there are 1001 environments in the chain, at most 1000 are read", "E1020"},
		{"too many periods", gateOf("{schedule: {open: [" + many + "]}}"), "there are 1001 periods, at most 1000 are read", "E1020"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, _, err := read(c.spec)
			require.ErrorContains(t, err, c.want)
			require.Equal(t, c.code, finding.In(err)[0].Code, "%v", err)
		})
	}
}

func ringNames(n int) (all []string) {
	for i := range n {
		all = append(all, fmt.Sprintf("ring-%03d", i))
	}
	return all
}

func TestExplainSaysWhatIsWrittenAndWhatIsADefault(t *testing.T) {
	t.Parallel()
	_, m, err := read(`  chain: [dev, prod]
  environments:
    - name: prod
      rings: [canary, early]
      gate: {maxFailed: 1, soak: 2h, check: {command: ./smoke.sh}}
`)
	require.NoError(t, err)
	x, err := m.ExplainPromotion()
	require.NoError(t, err)
	said := func(rules []promotion.Rule, field string) string {
		for _, r := range rules {
			if r.Field == field {
				return fmt.Sprintf("%s (%d)", r.Meaning, r.Line)
			}
		}
		return "nothing"
	}
	require.Equal(t, "dev, prod: commits come from dev (5)", said(x.Order, "chain"))
	require.Equal(t, "canary, early (7)", said(x.Order, "rings"))
	require.Equal(t, "at most 1 cluster has failed (9)", said(x.Gate, "maxFailed"))
	require.Equal(t, "the commit has been in dev for 2h (9)", said(x.Gate, "soak"))
	require.Equal(t, "no cluster has put the release into quarantine (0)", said(x.Gate, "maxQuarantined"))
	require.Equal(t, `"check" passes: the command "./smoke.sh", within 1m (9)`, said(x.Gate, "check"))
	require.Equal(t, "the release has been in the ring before for 2h (9)", said(x.RingGate, "soak"))
	require.Equal(t, "no external check (0)", said(x.RingGate, "check"), "a ring gate does not take it over")
	require.Equal(t, "each workload of an application team waits until it is proved in dev (0)", said(x.Gate, "content"))
	require.Equal(t, "nothing", said(x.RingGate, "content"))

	_, m, err = read(gateOf("{content: {exempt: {workspaces: [ops], workloads: [shop/cart]}, approvals: {required: 1, group: leads}}}"))
	require.NoError(t, err)
	x, err = m.ExplainPromotion()
	require.NoError(t, err)
	require.Equal(t, "each workload of an application team waits until it is proved in dev (8)", said(x.Gate, "content"))
	require.Equal(t, "but not workspaces ops; workloads shop/cart (8)", said(x.Gate, "content.exempt"))
	require.Equal(t, "1 person of group leads (anna, ben) has approved each new revision (8)", said(x.Gate, "content.approvals"))
}
