package scheduler

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// annotate adds annotations, in flow style, to the object of that name.
func annotate(yaml, name, annotations string) string {
	return strings.Replace(yaml, "name: "+name+",", "name: "+name+", annotations: {"+annotations+"},", 1)
}

// workloadYAML is a Workload with targets for dev.
func workloadYAML(name, annotations string, targets ...string) string {
	s := "apiVersion: scheduler.kalypso.io/v1alpha1\nkind: Workload\nmetadata: {name: " + name + ", annotations: {" + annotations + "}}\nspec:\n  deploymentTargets:\n"
	for _, t := range targets {
		s += "    - {name: " + t + ", environment: dev}\n"
	}
	return s + "---\n"
}

func TestAnnotationsAskSomethingOfTheAgent(t *testing.T) {
	for name, c := range map[string]struct {
		onType, onWorkload string
		want               Settings
	}{
		"nothing":                     {"", "", Settings{}},
		"the defaults are not listed": {"wherry.dev/drift: correct, wherry.dev/on-failure: rollback, wherry.dev/on-remove: delete, wherry.dev/delivery: reference", "", Settings{}},
		"the cluster type asks for all": {
			`wherry.dev/drift: report, wherry.dev/on-failure: hold, wherry.dev/on-remove: orphan, wherry.dev/health: ".status.phase == Running"`, "",
			Settings{Drift: "report", OnFailure: "hold", OnRemove: "orphan", Health: []string{".status.phase == Running"}},
		},
		"the workload wins, also with a default": {
			"wherry.dev/drift: report, wherry.dev/on-remove: orphan", "wherry.dev/drift: correct",
			Settings{OnRemove: "orphan"},
		},
		"the target wins": {
			"wherry.dev/on-failure: rollback", "wherry.dev/on-failure: rollback, t1.wherry.dev/on-failure: hold, wherry.dev/wave: \"5\", t1.wherry.dev/wave: \"-2\"",
			Settings{OnFailure: "hold", Wave: -2},
		},
		"several conditions, with filters": {
			"", `wherry.dev/health: "{.status.conditions[?(@.type == \"Ready\")].status} == True\n\n  $.spec.replicas == 2 \n"`,
			Settings{Health: []string{`.status.conditions[?(@.type == "Ready")].status == True`, "$.spec.replicas == 2"}},
		},
		"conditions about some objects": {
			"", `wherry.dev/health: "GitRepo:  {.status.readyClusters} == \"1\"\nGitRepo/shop: .status.phase == Running"`,
			Settings{Health: []string{"GitRepo: .status.readyClusters == 1", "GitRepo/shop: .status.phase == Running"}},
		},
		"restarts, for one target": {
			`wherry.dev/restart-on-config: "false"`, `t1.wherry.dev/restart-on-config: "true"`,
			Settings{RestartOnConfig: true},
		},
		"restarts of all but one": {
			`wherry.dev/restart-on-config: "true"`, `t1.wherry.dev/restart-on-config: "false"`,
			Settings{},
		},
	} {
		t.Run(name, func(t *testing.T) {
			result := render(t, annotate(basics, "edge", c.onType), annotate(oneTarget, "app", c.onWorkload))
			require.Equal(t, c.want, only(t, result).Settings)
			require.Empty(t, result.Warnings)
		})
	}
}

func TestAnnotationsWithMistakesFailTheAssignmentsTheyAreFor(t *testing.T) {
	for annotation, want := range map[string]string{
		"wherry.dev/drift: repair":                                     `annotation wherry.dev/drift: unknown value "repair" (known: correct, report)`,
		"t1.wherry.dev/on-failure: stop":                               `annotation t1.wherry.dev/on-failure: unknown value "stop" (known: rollback, hold)`,
		"wherry.dev/on-remove: keep":                                   `annotation wherry.dev/on-remove: unknown value "keep" (known: delete, orphan)`,
		"wherry.dev/delivery: bundled":                                 `annotation wherry.dev/delivery: unknown value "bundled" (known: reference, embedded)`,
		"wherry.dev/wave: first":                                       `annotation wherry.dev/wave: "first" is not a whole number (write one such as 0, 1 or -1)`,
		"wherry.dev/health: Running":                                   `annotation wherry.dev/health: "Running" is not a condition (write .status.phase == Running or GitRepo: .status.readyClusters == 1, one condition to a line)`,
		`wherry.dev/restart-on-config: "yes"`:                          `annotation wherry.dev/restart-on-config: unknown value "yes" (known: false, true)`,
		`wherry.dev/health: "gitrepo: .status.phase == x"`:             `annotation wherry.dev/health: "gitrepo: .status.phase == x" does not begin with a path`,
		`wherry.dev/health: "status == x"`:                             `annotation wherry.dev/health: "status == x" does not begin with a path (write .status.phase == Running or GitRepo: .status.readyClusters == 1, one condition to a line)`,
		`wherry.dev/health: ".status[ == x"`:                           `annotation wherry.dev/health: JSONPath .status[: `,
		`wherry.dev/health: ""`:                                        `annotation wherry.dev/health: it has 0 conditions`,
		"wherry.dev/depends-on: db":                                    `annotation wherry.dev/depends-on: "db" is not assigned to cluster type "edge"`,
		"wherry.dev/depends-on: app/t2":                                `"app/t2" is not assigned to cluster type "edge" (did you mean "app/t1"?)`,
		`wherry.dev/depends-on: "app/t1,"`:                             `annotation wherry.dev/depends-on: "" names no workload`,
		"wherry.dev/depends-on: app/t1":                                `annotation wherry.dev/depends-on: assignments wait for each other: app-t1 → app-t1`,
		"wherry.dev/depends-on: '" + strings.Repeat("app,", 256) + "'": `it names 257, at most 256 are permitted`,
	} {
		t.Run(annotation[:min(40, len(annotation))], func(t *testing.T) {
			got := failure(t, render(t, basics, annotate(oneTarget, "app", annotation)))
			require.True(t, strings.HasPrefix(got, "app.yaml:3: "), got)
			require.Contains(t, got, want)
		})
	}
	require.Equal(t, `platform.yaml:25: annotation wherry.dev/platforms: "arm64" is not OS/ARCHITECTURE, such as linux/arm64 (give such as linux/amd64,linux/arm64)`,
		failure(t, render(t, annotate(basics, "edge", "wherry.dev/platforms: 'linux/amd64,arm64'"), oneTarget)))
	require.Equal(t, `platform.yaml:25: annotation wherry.dev/pin: unknown value "tag" (known: commit)`,
		failure(t, render(t, annotate(basics, "edge", "wherry.dev/pin: tag"), oneTarget)))
}

func TestAnnotationsThatNobodyReadsAreWarnings(t *testing.T) {
	result := render(t, annotate(basics, "edge", "wherry.dev/depends-on: db, wherry.dev/pim: commit, example.com/x: z"),
		annotate(oneTarget, "app", "wherry.dev/pin: commit, t2.wherry.dev/drift: report"))
	var warnings []string
	for _, w := range result.Warnings {
		warnings = append(warnings, w.String())
	}
	require.Equal(t, []string{
		`app.yaml:3: Workload "app": annotation t2.wherry.dev/drift is for a deployment target "t2", which there is not (did you mean "t1"?)`,
		`app.yaml:3: Workload "app": unknown annotation wherry.dev/pin`,
		`platform.yaml:25: ClusterType "edge": unknown annotation wherry.dev/depends-on`,
		`platform.yaml:25: ClusterType "edge": unknown annotation wherry.dev/pim (did you mean "pin"?)`,
	}, warnings)
}

func TestDependenciesAreAssignmentsOfTheSameClusterType(t *testing.T) {
	dependsOn := func(result *Result) map[string][]string {
		all := map[string][]string{}
		for _, a := range result.ClusterTypes[0].Assignments {
			all[a.Name] = a.DependsOn
		}
		return all
	}
	result := render(t, basics,
		workloadYAML("db", "", "main", "standby")+
			workloadYAML("cache", "wherry.dev/depends-on: db/main", "main")+
			workloadYAML("web", `wherry.dev/depends-on: "cache, db,db/main", admin.wherry.dev/depends-on: web/shop`, "shop", "admin"))
	require.Empty(t, result.ClusterTypes[0].Failures)
	require.Equal(t, map[string][]string{
		"db-main": nil, "db-standby": nil, "cache-main": {"db-main"},
		"web-shop": {"cache-main", "db-main", "db-standby"}, "web-admin": {"web-shop"},
	}, dependsOn(result))

	t.Run("a circle fails those in it alone", func(t *testing.T) {
		result := render(t, basics,
			workloadYAML("a", "wherry.dev/depends-on: b", "x")+workloadYAML("b", "wherry.dev/depends-on: c", "x")+
				workloadYAML("c", "wherry.dev/depends-on: a", "x")+workloadYAML("d", "wherry.dev/depends-on: a", "x")+workloadYAML("e", "", "x"))
		require.Equal(t, map[string][]string{"d-x": {"a-x"}, "e-x": nil}, dependsOn(result))
		var failures []string
		for _, f := range result.ClusterTypes[0].Failures {
			failures = append(failures, f.Name+": "+f.Err.Error())
		}
		const circle = "annotation wherry.dev/depends-on: assignments wait for each other: a-x → b-x → c-x → a-x (leave out one of these dependencies)"
		require.Equal(t, []string{"a-x: app.yaml:3: " + circle, "b-x: app.yaml:10: " + circle, "c-x: app.yaml:17: " + circle}, failures)
	})
	t.Run("one target waits for the others of its workload", func(t *testing.T) {
		result := render(t, basics, workloadYAML("web", "v.wherry.dev/depends-on: web", "u", "v", "w"))
		require.Equal(t, map[string][]string{"web-u": nil, "web-v": {"web-u", "web-w"}, "web-w": nil}, dependsOn(result))
		require.Len(t, render(t, basics, workloadYAML("web", "wherry.dev/depends-on: web", "u", "v")).ClusterTypes[0].Failures, 2)
		require.Len(t, render(t, basics, workloadYAML("web", "wherry.dev/depends-on: web", "u")).ClusterTypes[0].Failures, 1)
	})
}

func TestParseValidity(t *testing.T) {
	for in, want := range map[string]time.Duration{"90d": 90 * 24 * time.Hour, "36h": 36 * time.Hour, "1d12h": 36 * time.Hour, "1m": time.Minute} {
		got, err := ParseValidity(in)
		require.NoError(t, err)
		require.Equal(t, want, got, in)
	}
	for _, in := range []string{"", "d", "90", "-1d", "0d", "1.5d", "d12h", "1d1d", "9999999d", "1s"} {
		_, err := ParseValidity(in)
		require.ErrorContains(t, err, fmt.Sprintf("%q is", in))
	}
}
