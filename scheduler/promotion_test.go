package scheduler

import (
	"context"
	"crypto/ed25519"
	"fmt"
	"strings"
	"testing"
	"testing/fstest"
	"time"
	_ "time/tzdata" // as cmd/wherry has it

	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/scheduler/finding"
	"github.com/wherry-dev/wherry/scheduler/promotion"
)

// publicKey returns a key made from a number, in PEM as one line of YAML in quotes.
func publicKey(t *testing.T, n byte) (ed25519.PublicKey, string) {
	key := ed25519.NewKeyFromSeed([]byte(strings.Repeat(string(rune(n)), 32))).Public().(ed25519.PublicKey)
	pem, err := bundle.MarshalPublicKey(key)
	require.NoError(t, err)
	return key, fmt.Sprintf("%q", pem)
}

func loadPolicies(t *testing.T, environment string, files ...string) (*Model, error) {
	t.Helper()
	m, src := NewModel(environment), fstest.MapFS{}
	for i, f := range files {
		src[string(rune('a'+i))+".yaml"] = &fstest.MapFile{Data: []byte(f)}
	}
	return m, m.Load(context.Background(), Source{FS: src})
}

func policyOf(name, spec string) string {
	return "apiVersion: wherry.dev/v1alpha1\nkind: PromotionPolicy\nmetadata: {name: " + name + "}\nspec:\n" + spec
}

// TestPromotionOfEveryField reads a policy that has all fields.
func TestPromotionOfEveryField(t *testing.T) {
	anna, annaPEM := publicKey(t, 'a')
	hub, hubPEM := publicKey(t, 'h')
	text := policyOf("coffee", `  chain: [dev, stage, prod]
  groups:
    - name: leads
      members:
        - {name: anna, publicKey: `+annaPEM+`}
        - {name: ben}
      hubs: [`+hubPEM+`]
  gate: {minCompliant: 95}
  environments:
    - name: prod
      rings: [canary, early, stable]
      changeRequest: true
      gate:
        minReported: 90
        minCompliant: 95.5
        maxFailed: 2
        maxQuarantined: 1
        maxFailures: 20
        soak: 1d
        soakIn: [dev, stage]
        maxReportAge: 36h
        requiredClusters: {matchLabels: {pilot: "true"}}
        allowEmptyCohort: true
        allowFloating: true
        approvals: {required: 2, group: leads}
        override: {required: 1, group: leads}
        check: {name: smoke, command: ./smoke.sh, timeout: 5m}
        schedule:
          timeZone: Europe/Berlin
          open: ["Mon-Thu 08:00-16:00", "Fri,Sat-Mon", "22:00-04:00"]
          freeze: [{from: 2026-12-20, until: 2027-01-07T06:00:00Z, reason: Christmas}]
`)
	m, err := loadPolicies(t, "prod", text)
	require.NoError(t, err)
	got, err := m.Promotion()
	require.NoError(t, err)
	require.Equal(t, "pilot=true", got.Gate.Required.String())
	berlin, err := time.LoadLocation("Europe/Berlin")
	require.NoError(t, err)
	members := []promotion.Member{{Name: "anna", Key: anna}, {Name: "ben"}}
	groups := []promotion.Group{{Name: "leads", Members: members, Hubs: bundle.Keys{hub}}}
	gate := promotion.Gate{
		MinReported: 90, MinCompliant: 95.5, MaxFailed: 2, MaxQuarantined: 1, MaxFailures: 20,
		Soak: 24 * time.Hour, SoakIn: []string{"dev", "stage"}, MaxReportAge: 36 * time.Hour, Required: got.Gate.Required,
		AllowEmptyCohort: true, AllowFloating: true,
		Approvals: promotion.Approvals{Required: 2, Group: "leads", Members: members, Hubs: bundle.Keys{hub}},
		Override:  promotion.Approvals{Required: 1, Group: "leads", Members: members, Hubs: bundle.Keys{hub}},
		Check:     &promotion.Check{Name: "smoke", Command: "./smoke.sh", Timeout: 5 * time.Minute},
		Schedule: promotion.Schedule{
			Open: []promotion.Period{
				{Days: []time.Weekday{1, 2, 3, 4}, Opens: 8 * time.Hour, Closes: 16 * time.Hour, Location: berlin},
				{Days: []time.Weekday{0, 1, 5, 6}, Closes: 24 * time.Hour, Location: berlin},
				{Opens: 22 * time.Hour, Closes: 4 * time.Hour, Location: berlin},
			},
			Freezes: []promotion.Freeze{{From: time.Date(2026, 12, 20, 0, 0, 0, 0, berlin), Until: time.Date(2027, 1, 7, 6, 0, 0, 0, time.UTC), Reason: "Christmas"}},
		},
	}
	gate.Content = promotion.Content{Held: true, Approvals: gate.Approvals, BatchAfter: promotion.DefaultBatchAfter}
	rings := gate
	rings.SoakIn, rings.Approvals, rings.Check, rings.Content = nil, promotion.Approvals{}, nil, promotion.Default().Content
	require.Equal(t, promotion.Policy{
		Name: "coffee", Environment: "prod", Chain: []string{"dev", "stage", "prod"}, Rings: []string{"canary", "early", "stable"},
		Gate: gate, RingGate: rings, ChangeRequest: true, Groups: groups,
	}, got)
	require.Equal(t, "stage", got.Below())

	m.SetEnvironment("stage") // which has the gate of the policy
	got, err = m.Promotion()
	require.NoError(t, err)
	gate = promotion.Default()
	gate.MinCompliant = 95
	require.Equal(t, promotion.Policy{Name: "coffee", Environment: "stage", Chain: []string{"dev", "stage", "prod"}, Gate: gate, RingGate: gate, Groups: groups}, got)
}

func TestPromotionWithoutAPolicy(t *testing.T) {
	m, err := loadPolicies(t, "dev", "apiVersion: wherry.dev/v1alpha1\nkind: Platform\nmetadata: {name: coffee}\nspec: {rings: [first, last]}\n")
	require.NoError(t, err)
	got, err := m.Promotion()
	require.NoError(t, err)
	require.Equal(t, promotion.Policy{Environment: "dev", Rings: []string{"first", "last"}, Gate: promotion.Default(), RingGate: promotion.Default()}, got)
}

// TestPromotionGatesStandAlone: a gate has nothing of the policy's, and a ring gate nothing of the environment's.
func TestPromotionGatesStandAlone(t *testing.T) {
	text := policyOf("p", `  chain: [dev, prod]
  gate: {minCompliant: 50, soak: 1h, maxFailed: 3}
  environments:
    - {name: prod, gate: {maxFailed: 0, minCompliant: 0}, ringGate: {soak: 2h}}
    - {name: other, gate: {}}
`)
	m, err := loadPolicies(t, "prod", text)
	require.NoError(t, err)
	got, err := m.Promotion()
	require.NoError(t, err)
	want := promotion.Default()
	want.MinCompliant = 0
	require.Equal(t, want, got.Gate)
	want = promotion.Default()
	want.Soak = 2 * time.Hour
	require.Equal(t, want, got.RingGate)

	m.SetEnvironment("other") // outside the chain
	got, err = m.Promotion()
	require.NoError(t, err)
	require.Equal(t, promotion.Policy{Name: "p", Environment: "other", Gate: promotion.Default(), RingGate: promotion.Default()}, got)
}

func TestPromotionOfTwoPolicies(t *testing.T) {
	one := policyOf("one", "  chain: [dev, prod]\n")
	for name, two := range map[string]string{
		"the list": policyOf("two", "  environments: [{name: prod, rings: [a]}]\n"),
		"a chain":  policyOf("two", "  chain: [stage, prod]\n"),
	} {
		t.Run(name, func(t *testing.T) {
			m, err := loadPolicies(t, "prod", one, two)
			require.NoError(t, err)
			_, err = m.Promotion()
			require.EqualError(t, err, `b.yaml:5: two PromotionPolicies name environment "prod", "one" and "two": first at a.yaml:5 (remove it from one of them)`)
			_, err = m.Rings()
			require.ErrorContains(t, err, "two PromotionPolicies")
			m.SetEnvironment("dev")
			p, err := m.Promotion()
			require.NoError(t, err)
			require.Equal(t, "one", p.Name)
		})
	}
}

// TestPromotionMistakes has every mistake with its place.
func TestPromotionMistakes(t *testing.T) {
	_, key := publicKey(t, 'a')
	gate := func(fields string) string {
		return "  chain: [dev, stage, prod]\n  groups: [{name: leads, members: [{name: anna, publicKey: " + key + "}]}]\n  environments:\n    - name: stage\n      gate:\n        " + fields + "\n"
	}
	group := func(fields string) string { return "  groups:\n    - " + fields + "\n" }
	for _, c := range []struct{ name, spec, want, code string }{
		{"an unknown field", gate("minComplient: 95"), `a.yaml:10: PromotionPolicy "p": unknown field spec.environments[0].gate.minComplient (did you mean "minCompliant"?)`, "E1020"},
		{"percent as a text", gate(`minCompliant: "95"`), "a.yaml:10: spec.environments[0].gate.minCompliant must be a number", "E1002"},
		{"a percent that is no number", gate("minCompliant: .nan"), "must be a number", "E1002"},
		{"more than all", gate("minCompliant: 101"), "a.yaml:10: minCompliant is 101 (it is a share in percent, from 0 to 100)", "E1021"},
		{"less than none", gate("minReported: -1"), "a.yaml:10: minReported is -1", "E1021"},
		{"a negative number", gate("maxFailed: -1"), "a.yaml:10: maxFailed is -1: nothing can have less than none", "E1021"},
		{"negative failures", gate("maxFailures: -1"), "maxFailures is -1", "E1021"},
		{"negative quarantine", gate("maxQuarantined: -2"), "maxQuarantined is -2", "E1021"},
		{"pinned, and floating", gate("{requirePinned: true, allowFloating: true}"), "a.yaml:10: allowFloating lets pass what requirePinned refuses (remove one of them)", "E1020"},
		{"half a cluster", gate("maxFailed: 1.5"), "must be a whole number", "E1002"},
		{"a soak without a unit", gate("soak: one day"), `a.yaml:10: soak: "one day" is not a duration`, "E1020"},
		{"a report age without a unit", gate("maxReportAge: a day"), `a.yaml:10: maxReportAge: "a day" is not a duration`, "E1020"},
		{"a report age of nothing", gate("maxReportAge: 0s"), "maxReportAge is 0s", "E1021"},
		{"a report age at which agents report", gate("maxReportAge: 60m"), "a.yaml:10: maxReportAge is 60m, and agents without news report each hour: clusters count as offline in between (give it several hours)", "E1021"},
		{"a soak outside the chain", gate("soakIn: [qa]"), `a.yaml:10: soakIn of environment "stage" names "qa", which is not in the chain`, "E1021"},
		{"a soak in itself", gate("soakIn: [dev, stage]"), `names "stage", which does not come before it`, "E1021"},
		{"a soak above", gate("soakIn: [prod]"), `names "prod", which does not come before it`, "E1021"},
		{"a soak of the policy's gate", "  chain: [dev, stage, prod]\n  gate: {soakIn: [stage]}\n", `a.yaml:6: soakIn of environment "stage" names "stage"`, "E1021"},
		{"a soak between rings", "  environments:\n    - {name: dev, rings: [a, b], ringGate: {soakIn: [dev]}}\n", "a.yaml:6: soakIn has no meaning in a ringGate", "E1020"},
		{"a selector", gate("requiredClusters: {matchExpressions: [{key: a, operator: Is}]}"), `a.yaml:10: PromotionPolicy "p": "Is" is not a valid label selector operator`, "E1303"},
		{"a selector with an unknown field", gate("requiredClusters: {matchLabel: {a: b}}"), "unknown field", "E1020"},
		{"an unknown group", gate("approvals: {required: 1, group: leeds}"), `a.yaml:10: approvals: there is no group "leeds" (did you mean "leads"?)`, "E1020"},
		{"no group", gate("override: {required: 1}"), "a.yaml:10: override has no group", "E1020"},
		{"nobody required", gate("approvals: {group: leads}"), "approvals.required must be 1 at least", "E1020"},
		{"more than there are", gate("approvals: {required: 2, group: leads}"), `a.yaml:10: approvals asks for 2 people, and group "leads" has 1`, "E1021"},
		{"a check of nothing", gate("check: {name: x}"), "a.yaml:10: the check has neither a command nor a URL", "E1020"},
		{"a check of both", gate("check: {command: x, url: https://x}"), "the check has a command and a URL", "E1020"},
		{"a check of a file", gate("check: {url: file:///etc/passwd}"), "must begin with https:// or http://", "E1020"},
		{"a check with a password", gate("check: {url: https://u:p@host/}"), "must not hold a password", "E1020"},
		{"a check of a day", gate("check: {command: x, timeout: 1d}"), "timeout: 1d is too long", "E1020"},
		{"a time zone", gate("schedule: {timeZone: Europe/Bremen}"), `a.yaml:10: there is no time zone "Europe/Bremen"`, "E1020"},
		{"the zone of this machine", gate("schedule: {timeZone: Local}"), `there is no time zone "Local"`, "E1020"},
		{"a zone that is a path", gate("schedule: {timeZone: ../../etc/passwd}"), "there is no time zone", "E1020"},
		{"a day", gate("schedule: {open: [Mo-Fr 08:00-16:00]}"), `a.yaml:10: open: "Mo-Fr 08:00-16:00": "Mo-Fr" is not a day`, "E1020"},
		{"a time", gate(`schedule: {open: ["Mon 8:00-16:00"]}`), `"8:00-16:00" is not a time from 00:00 to 24:00`, "E1020"},
		{"an hour", gate(`schedule: {open: ["Mon 08:00-24:01"]}`), "is not a time", "E1020"},
		{"a minute", gate(`schedule: {open: ["08:60-10:00"]}`), "is not a time", "E1020"},
		{"nothing", gate(`schedule: {open: [""]}`), "is not a day", "E1020"},
		{"no minute", gate(`schedule: {open: ["Mon 08:00-08:00"]}`), `open: "Mon 08:00-08:00" has no minute`, "E1021"},
		{"a freeze without an end", gate("schedule: {freeze: [{from: 2026-12-20}]}"), "a.yaml:10: a freeze has no end", "E1021"},
		{"a freeze without a beginning", gate("schedule: {freeze: [{until: 2026-12-20}]}"), "a freeze has no beginning", "E1020"},
		{"a freeze that ends before", gate("schedule: {freeze: [{from: 2026-12-20, until: 2026-12-20}]}"), "a freeze ends at 2026-12-20, which is not after 2026-12-20", "E1020"},
		{"a freeze of no date", gate("schedule: {freeze: [{from: Christmas, until: 2026-12-20}]}"), `freeze: "Christmas" is not a date`, "E1020"},
		{"an environment twice in the chain", "  chain: [dev, dev]\n", `a.yaml:5: the chain names environment "dev" twice`, "E1020"},
		{"a chain of texts", "  chain: [Dev!]\n", `the chain has "Dev!", which is not the name`, "E1020"},
		{"an environment twice in the list", "  environments:\n    - {name: dev}\n    - {name: dev}\n", `a.yaml:7: environment "dev" is listed twice: first at a.yaml:6`, "E1020"},
		{"a group twice", "  groups: [{name: a}, {name: a}]\n", `group "a" is defined twice`, "E1020"},
		{"a group without a name", group("{members: []}"), `a.yaml:6: a group cannot be called ""`, "E1020"},
		{"a member twice", group("{name: a, members: [{name: x, publicKey: " + key + "}, {name: x}], hubs: [" + strings.Replace(key, "a", "a", 1) + "]}"), `a.yaml:6: group "a" has member "x" twice`, "E1020"},
		{"one key of two", group("{name: a, members: [{name: x, publicKey: " + key + "}, {name: yan, publicKey: " + key + "}]}"), `a.yaml:6: group "a": member "yan" has the key of member "x"`, "E1020"},
		{"a member's key as a hub's", group("{name: a, members: [{name: x, publicKey: " + key + "}], hubs: [" + key + "]}"), `group "a": hub 1 has the key of member "x"`, "E1020"},
		{"no key", group("{name: a, members: [{name: x, publicKey: nonsense}]}"), `a.yaml:6: group "a": the key of member "x": no public key in PEM`, "E1020"},
		{"two keys in one", group(`{name: a, members: [{name: x, publicKey: ` + strings.TrimSuffix(key, `"`) + strings.TrimPrefix(key, `"`) + `}]}`), "there are 2 keys, and must be one", "E1020"},
		{"an empty hub", group(`{name: a, hubs: [""]}`), `group "a" has a hub without a key`, "E1020"},
		{"a member who cannot decide", group("{name: a, members: [{name: x}]}"), `a.yaml:6: member "x" of group "a" has no key`, "E1021"},
		{"a member whose name is two lines", group(`{name: a, members: [{name: "x\ny", publicKey: ` + key + "}]}"), "cannot be called", "E1020"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := loadPolicies(t, "dev", policyOf("p", c.spec))
			require.ErrorContains(t, err, c.want)
			require.Equal(t, c.code, finding.In(err)[0].Code, "%v", err)
		})
	}
}
