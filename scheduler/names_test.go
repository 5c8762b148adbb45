package scheduler

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
)

const everything = "apiVersion: scheduler.kalypso.io/v1alpha1\nkind: SchedulingPolicy\nmetadata: {name: all}\n---\n"

// targetsYAML is a Workload whose targets are all for dev.
func targetsYAML(name, annotations string, targets ...string) string {
	text := "apiVersion: scheduler.kalypso.io/v1alpha1\nkind: Workload\nmetadata: {name: " + name + ", annotations: {" + annotations + "}}\nspec:\n  deploymentTargets:\n"
	for _, target := range targets {
		text += "    - {name: " + target + ", environment: dev}\n"
	}
	return text + "---\n"
}

// twoTeams renders a platform on which everything is on every cluster type.
func twoTeams(t *testing.T, policies, reg, other string, released ...Released) *Result {
	t.Helper()
	m := NewModel("dev")
	require.NoError(t, load(m, "", "platform.yaml", fleet+policies))
	require.NoError(t, load(m, "reg", "app.yaml", reg))
	require.NoError(t, load(m, "other", "thief.yaml", other))
	result, err := m.Render(context.Background(), Options{LastRelease: func(context.Context, string) ([]Released, error) { return released, nil }})
	require.NoError(t, err)
	return result
}

func TestATargetThatNothingSelectsTakesNobodysName(t *testing.T) {
	result := twoTeams(t, policyYAML("p", "workspace: team", ""), targetsYAML("menu", "", "test"), targetsYAML("menu", "", "test"))
	requireFailures(t, result, nil)
	require.Equal(t, "c1/menu-test c2/menu-test c3/menu-test", pairs(result))
	require.Equal(t, "reg", result.ClusterTypes[0].Assignments[0].Registration)
}

func TestANameStaysWithTheRegistrationThatWasReleasedWithIt(t *testing.T) {
	menu := Released{Name: "menu-test", Registration: "reg", Workload: "menu", Target: "test"}
	for _, c := range []struct {
		name, reg, other string
		released         []Released
		owner            string // empty for none
		failures         int
	}{
		{"the other team comes later", targetsYAML("menu", "", "test"), targetsYAML("menu", "", "test"), []Released{menu}, "reg/menu", 1},
		{"with three workloads at once", targetsYAML("menu", "", "test", "x-z"), targetsYAML("menu", "", "test", "x-z") + targetsYAML("menu-x", "", "z"), []Released{menu, {Name: "menu-x-z", Registration: "other", Workload: "menu-x", Target: "z"}}, "reg/menu", 3},
		{"the owner has two of that name now", targetsYAML("a", "", "b-c") + targetsYAML("a-b", "", "c"), targetsYAML("a", "", "b-c"), []Released{{Name: "a-b-c", Registration: "reg", Workload: "a-b", Target: "c"}}, "reg/a-b", 2},
		{"the owner has called its workload and target otherwise", targetsYAML("a", "", "b-c"), targetsYAML("a-b", "", "c"), []Released{{Name: "a-b-c", Registration: "reg", Workload: "x", Target: "y"}}, "reg/a", 1},
		{"it was released for neither", targetsYAML("menu", "", "test"), targetsYAML("menu", "", "test"), nil, "", 1},
		{"it was released for a third one", targetsYAML("menu", "", "test"), targetsYAML("menu", "", "test"), []Released{{Name: "menu-test", Registration: "gone", Workload: "menu", Target: "test"}}, "", 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			ct := twoTeams(t, everything, c.reg, c.other, c.released...).ClusterTypes[0]
			owner := ""
			if len(ct.Assignments) > 0 {
				owner = ct.Assignments[0].Registration + "/" + ct.Assignments[0].Workload
			}
			require.Equal(t, c.owner, owner)
			require.Len(t, ct.Failures, c.failures)
			for _, f := range ct.Failures {
				require.Equal(t, NameClash, f.Reason)
				require.Equal(t, c.owner != "", f.Taken)
			}
		})
	}
	f := twoTeams(t, everything, targetsYAML("menu", "", "test"), targetsYAML("menu", "", "test"), menu).ClusterTypes[0].Failures[0]
	require.Equal(t, "other", f.Registration)
	require.EqualError(t, f.Err, `thief.yaml:6: target "test" of workload "menu" (registration "other") cannot be called "menu-test": `+
		`the last release gave this name to target "test" of workload "menu" (registration "reg") at app.yaml:6 (give the workload or the target another name)`)
}

func TestWhatTheOwnerOfANameGetsWrongIsItsOwnFailure(t *testing.T) {
	menu := Released{Name: "menu-test", Registration: "reg", Workload: "menu", Target: "test"}
	ct := twoTeams(t, everything, targetsYAML("menu", "wherry.dev/drift: maybe", "test"), targetsYAML("menu", "wherry.dev/drift: report", "test"), menu).ClusterTypes[0]
	require.Empty(t, ct.Assignments)
	require.Len(t, ct.Failures, 2)
	require.Equal(t, []bool{true, false}, []bool{ct.Failures[0].Taken, ct.Failures[1].Taken})
	require.Equal(t, BadAnnotation, ct.Failures[1].Reason)
	ct = twoTeams(t, everything, targetsYAML("menu", "wherry.dev/drift: report", "test"), targetsYAML("menu", "wherry.dev/drift: maybe", "test"), menu).ClusterTypes[0]
	require.Equal(t, "report", ct.Assignments[0].Drift, "the annotations are those of the owner's")
}

func TestTheLastReleaseIsReadOnlyWhereANameIsContested(t *testing.T) {
	for _, c := range []struct {
		policy string
		want   int32
	}{{everything, 3}, {policyYAML("p", "workspace: team", ""), 0}} {
		m := NewModel("dev")
		require.NoError(t, load(m, "", "platform.yaml", fleet+c.policy))
		require.NoError(t, load(m, "reg", "app.yaml", targetsYAML("menu", "", "test", "live")))
		require.NoError(t, load(m, "other", "thief.yaml", targetsYAML("menu", "", "test", "live")))
		var reads atomic.Int32
		_, err := m.Render(context.Background(), Options{LastRelease: func(context.Context, string) ([]Released, error) { reads.Add(1); return nil, nil }})
		require.NoError(t, err)
		require.Equal(t, c.want, reads.Load())
		gone := errors.New("no route to host")
		_, err = m.Render(context.Background(), Options{LastRelease: func(_ context.Context, ct string) ([]Released, error) { return nil, fmt.Errorf("%s: %w", ct, gone) }})
		require.Equal(t, c.want > 0, errors.Is(err, gone), "whose a name is must be known")
	}
}

func TestNobodyComesBetweenOthersByTakingAWorkloadsName(t *testing.T) {
	platform := everything
	waits := targetsYAML("app", `wherry.dev/depends-on: redis`, "x")
	evil := targetsYAML("redis", `wherry.dev/depends-on: app`, "evil") // which would also close a circle
	app := Released{Name: "app-x", Registration: "reg", Workload: "app", Target: "x", DependsOn: []string{"redis-main"}}
	redis := Released{Name: "redis-main", Registration: "third", Workload: "redis", Target: "main"}
	thief := Released{Name: "redis-evil", Registration: "other", Workload: "redis", Target: "evil"}
	for _, c := range []struct {
		name, own, third string
		released         []Released
		want             []string
	}{
		{"one's own workload is meant", targetsYAML("redis", "", "own"), targetsYAML("redis", "", "main"), nil, []string{"redis-own"}},
		{"the one that it waits for is meant", "", targetsYAML("redis", "", "main"), []Released{app, redis, thief}, []string{"redis-main"}},
		{"whoever had the name first is meant", "", targetsYAML("redis", "", "main"), []Released{redis}, []string{"redis-main"}},
		{"a further target of the one that is meant", "", targetsYAML("redis", "", "main", "more"), []Released{app, redis}, []string{"redis-main", "redis-more"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := NewModel("dev")
			third := "apiVersion: scheduler.kalypso.io/v1alpha1\nkind: WorkloadRegistration\nmetadata: {name: third}\nspec: {workspace: third-team}\n---\n"
			require.NoError(t, load(m, "", "platform.yaml", fleet+third+platform))
			require.NoError(t, load(m, "reg", "app.yaml", waits+c.own))
			require.NoError(t, load(m, "third", "third.yaml", c.third))
			require.NoError(t, load(m, "other", "thief.yaml", evil))
			result, err := m.Render(context.Background(), Options{LastRelease: func(context.Context, string) ([]Released, error) { return c.released, nil }})
			require.NoError(t, err)
			requireFailures(t, result, nil)
			require.Equal(t, "app-x", result.ClusterTypes[0].Assignments[0].Name)
			require.Equal(t, c.want, result.ClusterTypes[0].Assignments[0].DependsOn)
		})
	}
}

func TestHealthConditionsThatAreTooLongFailAlone(t *testing.T) {
	long := fmt.Sprintf("wherry.dev/health: '.status.phase == %s'", strings.Repeat("x", 1_500_000))
	ct := twoTeams(t, everything, targetsYAML("menu", "", "test"), targetsYAML("evil", long, "x")).ClusterTypes[0]
	require.Len(t, ct.Failures, 1)
	require.Equal(t, "evil-x", ct.Failures[0].Name)
	require.Equal(t, BadAnnotation, ct.Failures[0].Reason)
	require.Equal(t, "menu-test", ct.Assignments[0].Name)
}
