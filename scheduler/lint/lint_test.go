package lint

import (
	"context"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/scheduler"
	"github.com/wherry-dev/wherry/scheduler/finding"
)

// sound is a platform without a finding; tests add mistakes.
const sound = `apiVersion: scheduler.kalypso.io/v1alpha1
kind: Template
metadata: {name: rec}
spec:
  manifests:
    - |
      apiVersion: apps/v1
      kind: Deployment
      metadata: {name: "{{ .DeploymentTargetName }}", namespace: "{{ .Namespace }}"}
---
apiVersion: scheduler.kalypso.io/v1alpha1
kind: Template
metadata: {name: ns}
spec:
  manifests:
    - |
      apiVersion: v1
      kind: Namespace
      metadata: {name: "{{ .Namespace }}"}
---
apiVersion: scheduler.kalypso.io/v1alpha1
kind: WorkloadRegistration
metadata: {name: reg}
spec: {workspace: team}
---
apiVersion: scheduler.kalypso.io/v1alpha1
kind: ClusterType
metadata: {name: edge, labels: {region: north}}
spec: {reconciler: rec, namespaceService: ns}
---
apiVersion: scheduler.kalypso.io/v1alpha1
kind: SchedulingPolicy
metadata: {name: all}
---
`

// edit replaces one text of sound.
func edit(before, after string) string { return strings.Replace(sound, before, after, 1) }

func lint(t *testing.T, platform, workloads string) *Report {
	t.Helper()
	m := scheduler.NewModel("dev")
	require.NoError(t, load(m, "", "p.yaml", platform))
	require.NoError(t, load(m, "reg", "app.yaml", workloads))
	report, err := Run(context.Background(), m, Options{})
	require.NoError(t, err)
	return report
}

func TestLintFinds(t *testing.T) {
	const environments = "apiVersion: scheduler.kalypso.io/v1alpha1\nkind: Environment\nmetadata: {name: prod}\n---\napiVersion: scheduler.kalypso.io/v1alpha1\nkind: Environment\nmetadata: {name: dev}\n---\n"
	labelled := func(labels string) string {
		return "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: cm, labels: {platform-config: \"true\", " + labels + "}}\ndata: {A: b}\n---\n"
	}
	for name, c := range map[string]struct {
		platform, workloads string
		findings            []string // each the code and what the finding says
	}{
		"nothing in a sound platform": {sound, oneTarget, nil},
		"a template that is not there": {edit("reconciler: rec", "reconciler: recc"), oneTarget, []string{
			`p.yaml:1 W1110 Template "rec" is used by no ClusterType`,
			`p.yaml:26 E1101 ClusterType "edge": spec.reconciler names template "recc", which does not exist (did you mean "rec"?)`,
		}},
		"a configType that is not there, where nothing is assigned": {edit("namespaceService: ns", "namespaceService: ns, configType: envfile"), "", []string{
			`p.yaml:21 W1103 the source of WorkloadRegistration "reg" holds no Workload (look at its branch and path)`,
			`p.yaml:26 E1101 ClusterType "edge": spec.configType names template "envfile", which does not exist (did you mean "envFile"?)`,
			`p.yaml:26 N1113 nothing is assigned to ClusterType "edge" in environment "dev"`,
			`p.yaml:31 N1302 SchedulingPolicy "all" selects no deployment target in environment "dev"`,
		}},
		"a template of another use": {edit("{name: rec}\nspec:\n", "{name: rec}\nspec:\n  type: namespace\n"), oneTarget, []string{
			`p.yaml:27 W1120 ClusterType "edge": spec.reconciler names template "rec", whose type is namespace (name a Template of type reconciler, or correct the type of this one)`,
		}},
		"a template of a type that says nothing here": {edit("{name: rec}\nspec:\n", "{name: rec}\nspec:\n  type: other\n"), oneTarget, nil},
		"an empty reconciler": {edit("reconciler: rec, ", ""), oneTarget, []string{
			`p.yaml:1 W1110 Template "rec" is used by no ClusterType`,
			`p.yaml:26 E1101 ClusterType "edge" has no spec.reconciler (it must name a Template)`,
		}},
		"a workspace that nobody has": {sound + policyYAML("p", "workspace: tean", ""), oneTarget, []string{
			`p.yaml:35 N1302 SchedulingPolicy "p" selects no deployment target in environment "dev"`,
			`p.yaml:35 W1104 SchedulingPolicy "p": no WorkloadRegistration has workspace "tean" (did you mean "team"?)`,
		}},
		"a workspace that nobody has, in the Platform": {sound + "---\n" + platformWith("    - {name: team}\n    - {name: tean}\n"), oneTarget, []string{
			`p.yaml:42 W1114 Platform: no WorkloadRegistration has workspace "tean" (did you mean "team"?)`,
		}},
		"an environment that is not there": {sound + environments, strings.Replace(oneTarget, "environment: dev", "environment: prd", 1), []string{
			`app.yaml:6 W1105 target "t1" of workload "app" is for environment "prd", which does not exist (did you mean "prod"?)`,
			`p.yaml:26 N1113 nothing is assigned to ClusterType "edge" in environment "dev"`,
			`p.yaml:31 N1302 SchedulingPolicy "all" selects no deployment target in environment "dev"`,
		}},
		"a policy that selects no cluster type": {sound + policyYAML("p", "", "labelSelector: {matchLabels: {region: nort}}"), oneTarget, []string{
			`p.yaml:35 W1301 SchedulingPolicy "p" selects no cluster type in environment "dev" (none has region "nort"; did you mean "north"?)`,
		}},
		"a policy by a label that nothing has": {sound + policyYAML("p", "labelSelector: {matchExpressions: [{key: purpse, operator: In, values: [x]}]}", ""), oneTarget, []string{
			`p.yaml:35 N1302 SchedulingPolicy "p" selects no deployment target in environment "dev" (none has a label purpse; did you mean "purpose"?)`,
		}},
		"a selector that says nothing": {sound + policyYAML("p", "labelSelector: {matchExpressions: [{key: a, operator: Is}]}", ""), oneTarget, []string{
			`p.yaml:39 E1303 SchedulingPolicy "p": "Is" is not a valid label selector operator (operators are In, NotIn, Exists and DoesNotExist)`,
		}},
		"a ConfigMap for a cluster type that is not there": {sound + labelled("cluster-type: egde"), oneTarget, []string{
			`p.yaml:35 W1111 ConfigMap "cm" applies nowhere: nothing has cluster-type "egde" (did you mean "edge"?)`,
		}},
		"a ConfigMap for a target by half its name": {sound + labelled("deployment-target: t1"), oneTarget, []string{
			`p.yaml:35 W1111 ConfigMap "cm" applies nowhere: nothing has deployment-target "t1" (did you mean "app-t1"?)`,
		}},
		"a ConfigMap that no pair fulfils": {
			sound + strings.NewReplacer("edge", "core", "north", "south").Replace(sound[strings.Index(sound, "apiVersion: scheduler.kalypso.io/v1alpha1\nkind: ClusterType"):strings.LastIndex(sound, "apiVersion")]) + labelled("cluster-type: core, region: north"), oneTarget,
			[]string{`p.yaml:40 W1111 ConfigMap "cm" applies nowhere: no cluster type and target together have all its labels`},
		},
		"a schema that applies nowhere": {sound + "apiVersion: scheduler.kalypso.io/v1alpha1\nkind: ConfigSchema\nmetadata: {name: s, labels: {workload: ap}}\nspec: {schema: '{}'}\n", oneTarget, []string{
			`p.yaml:35 W1112 ConfigSchema "s" applies nowhere: nothing has workload "ap" (did you mean "app"?)`,
		}},
		"a namespace that is too long": {strings.ReplaceAll(sound, "name: edge", "name: "+strings.Repeat("e", 60)), oneTarget, []string{
			`app.yaml:6 E1402 eeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeee/app-t1: namespace "dev-`,
		}},
		"a template that fails for two assignments": {edit("{{ .DeploymentTargetName }}", "{{ .DeploymentTarget }}"), oneTarget + secondApp("other", ""), []string{
			`p.yaml:9 E1601 edge/app-t1 and 1 more: template "rec": at <.DeploymentTarget>: there is no field DeploymentTarget`,
		}},
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, c.findings, shortFindings(lint(t, c.platform, c.workloads).Findings, c.findings))
		})
	}
}

// shortFindings formats findings in one line each, cut to the length of the wanted ones.
func shortFindings(found []finding.Finding, want []string) []string {
	var lines []string
	for i, f := range found {
		s := f.Position.String() + " " + f.Code + " " + finding.Finding{Message: f.Message, Hint: f.Hint}.String()
		if i < len(want) && strings.HasPrefix(s, want[i]) {
			s = want[i]
		}
		lines = append(lines, s)
	}
	return lines
}

func TestLintFindsOddValues(t *testing.T) {
	for name, c := range map[string]struct {
		data     string // of a ConfigMap, from line 38 on
		findings []string
	}{
		"texts, numbers and structured values as people write them": {"  A: plain\n  B: \"007\"\n  URL: http://host:80/x\n  TIME: \"12:30\"\n  MAP: '{a: 1, b: [x, y2]}'\n  LIST: '[a, b]'\n  JSON: '{\"on\": true}'\n  QUOTED: \"'a: b'\"\n  TEMPLATE: '{{ .Workload }}'", nil},
		"structured values over several lines":                      {"  RULES: |\n    - name: a\n      half: 0.50\n      one: 1.0\n      when: 12:30\n      day: 2020-01-01\n      none: ~\n      yes it is: True", nil},
		"a text with a colon":                                       {"  A: x\n  TITLE: 'Title: foo'", []string{`p.yaml:40 W1201 TITLE of ConfigMap "cm" is read as a mapping (if it is a text, put it in single quotes inside the value, as in TITLE: "'…'")`}},
		"a text with a dash":                                        {"  TITLE: '- foo'", []string{`p.yaml:39 W1201 TITLE of ConfigMap "cm" is read as a list`}},
		"a placeholder":                                             {"  TITLE: '{host}'", []string{`p.yaml:39 W1201 TITLE of ConfigMap "cm" is read as a mapping`}},
		"a key that is a boolean":                                   {"  AXES: |\n    x: 1\n    y: 2", []string{`p.yaml:41 W1202 key y of AXES in ConfigMap "cm" is read as true (put the key in quotes)`}},
		"values that are something else": {"  V: |\n    country: no\n    list: [on, 'on']\n    mode: 0777\n    big: 1_000\n    version: 1.10\n    id: 12e4\n    line: 08\n    hex: 0x1F", []string{
			`p.yaml:40 W1203 V.country of ConfigMap "cm": no is read as false (put it in quotes if it is a text, else write false)`,
			`p.yaml:41 W1203 V.list[0] of ConfigMap "cm": on is read as true`,
			`p.yaml:42 W1203 V.mode of ConfigMap "cm": 0777 is read as 511`,
			`p.yaml:43 W1203 V.big of ConfigMap "cm": 1_000 is read as 1000`,
			`p.yaml:44 W1203 V.version of ConfigMap "cm": 1.10 is read as 1.1`,
			`p.yaml:45 W1203 V.id of ConfigMap "cm": 12e4 is read as 120000`,
			`p.yaml:46 W1203 V.line of ConfigMap "cm": 08 is read as 8`,
			`p.yaml:47 W1203 V.hex of ConfigMap "cm": 0x1F is read as 31`,
		}},
		"a secret, of which nothing is shown": {"  DB_PASSWORD: hunter2", []string{`p.yaml:39 W1207 DB_PASSWORD of ConfigMap "cm" looks like a secret (` + secretHint + ")"}},
		"a value that refers to itself":       {"  A: '{{ .ConfigData.A }}'", []string{`p.yaml:39 E1210 edge/app-t1: configuration value A: the value of A refers to itself: A → A`}},
		"unnamed items that merge": {"  L: '[{port: 80}, {name: a}]'\n---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: cn, labels: {platform-config: \"true\"}}\ndata:\n  L: '[{name: a}, {port: 443}]'", []string{
			`p.yaml:45 W1204 L: items without name of ConfigMap "cn" merge into every item without name of ConfigMap "cm" at p.yaml:39 (give each item a name)`,
		}},
		"a general value that wins": {"  L: info\n---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: a, labels: {platform-config: \"true\", region: north}}\ndata:\n  L: debug", []string{
			`p.yaml:39 W1205 L of ConfigMap "cm" replaces that of ConfigMap "a" at p.yaml:45, which is for fewer assignments (ConfigMaps are merged in the order of their names: rename one of them)`,
		}},
	} {
		t.Run(name, func(t *testing.T) {
			report := lint(t, sound+configMapYAML("cm", c.data), oneTarget)
			require.Equal(t, c.findings, shortFindings(report.Findings, c.findings))
		})
	}
}

func TestLintLooksAtAnnotationsAndDependencies(t *testing.T) {
	for name, c := range map[string]struct {
		workloads string
		findings  []string
	}{
		"sound ones": {oneTarget + secondApp("b", `wherry.dev/depends-on: "app, c/t1", t1.wherry.dev/wave: "2", wherry.dev/drift: report`) + secondApp("c", `wherry.dev/wave: "1"`), nil},
		"values that are none": {secondApp("b", `wherry.dev/drift: ignore`) + secondApp("c", `wherry.dev/wave: first`) + secondApp("d", `t1.wherry.dev/on-remove: ""`), []string{
			`app.yaml:4 E1305 edge/b-t1: annotation wherry.dev/drift: unknown value "ignore" (known: correct, report)`,
			`app.yaml:14 E1305 edge/c-t1: annotation wherry.dev/wave: "first" is not a whole number (write one such as 0, 1 or -1)`,
			`app.yaml:24 E1305 edge/d-t1: annotation t1.wherry.dev/on-remove: unknown value "" (known: delete, orphan)`,
		}},
		"an adapter that is none":    {secondApp("b", `wherry.dev/adapter: fluxx`), []string{`app.yaml:4 E1305 edge/b-t1: annotation wherry.dev/adapter: unknown adapter "fluxx" (did you mean "flux"?)`}},
		"an annotation nobody reads": {secondApp("b", `wherry.dev/wav: "1"`), []string{`app.yaml:4 W1304 Workload "b": unknown annotation wherry.dev/wav (did you mean "wave"?)`}},
		"a target that is not there": {secondApp("b", `t2.wherry.dev/wave: "1"`), []string{`app.yaml:4 W1107 Workload "b": annotation t2.wherry.dev/wave is for a deployment target "t2", which there is not (did you mean "t1"?)`}},
		"one that cannot be read":    {oneTarget + secondApp("b", `wherry.dev/depends-on: "app,"`), []string{`app.yaml:13 E1501 edge/b-t1: annotation wherry.dev/depends-on: "" names no workload`}},
		"one on nothing":             {oneTarget + secondApp("b", `wherry.dev/depends-on: ap`), []string{`app.yaml:13 E1502 edge/b-t1: annotation wherry.dev/depends-on: "ap" is not assigned to cluster type "edge" (did you mean "app"?)`}},
		"one on a target elsewhere": {strings.Replace(oneTarget, "environment: dev", "environment: prod", 1) + secondApp("b", `wherry.dev/depends-on: app/t1`), []string{
			`app.yaml:13 E1502 edge/b-t1: annotation wherry.dev/depends-on: "app/t1" is not assigned to cluster type "edge" (did you mean "b/t1"?)`,
		}},
		"a circle": {secondApp("a", `wherry.dev/depends-on: b`) + secondApp("b", `wherry.dev/depends-on: a`), []string{
			`app.yaml:4 E1503 edge/a-t1: annotation wherry.dev/depends-on: assignments wait for each other: a-t1 → b-t1 → a-t1 (leave out one of these dependencies)`,
			`app.yaml:14 E1503 edge/b-t1: annotation wherry.dev/depends-on: assignments wait for each other: a-t1 → b-t1 → a-t1`,
		}},
		"a later wave": {oneTarget + secondApp("b", `wherry.dev/wave: "3"`) + secondApp("c", `wherry.dev/depends-on: b, wherry.dev/wave: "1"`), []string{
			`app.yaml:21 W1504 edge/c-t1: it depends on b-t1 of wave 3 and is itself of wave 1 (give it a wave that is not lower)`,
		}},
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, c.findings, shortFindings(lint(t, sound, c.workloads).Findings, c.findings))
		})
	}
}

func TestLintLooksAtWhatIsRendered(t *testing.T) {
	const deployment = "      apiVersion: apps/v1\n      kind: Deployment\n      metadata: {name: \"{{ .DeploymentTargetName }}\", namespace: \"{{ .Namespace }}\"}\n"
	config := templateYAML("cfg", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c, namespace: \"{{ .Namespace }}\"}\ndata:\n  {{ toYaml .ConfigData | nindent 2 }}")
	large := func(name string) string { // 12 MiB for agents
		return "apiVersion: example.com/v1\nkind: Large\nmetadata: {name: '{{ .Namespace }}-" + name + "'}\na: &a " + strings.Repeat("x", 128<<10) + "\nspec: [" + strings.Repeat("*a, ", 95) + "*a]\n"
	}
	withConfig := edit("namespaceService: ns", "namespaceService: ns, configType: cfg") + config
	for name, c := range map[string]struct {
		platform, reconciler string // the template's text, which begins on line 7
		findings             []string
	}{
		"nothing at all":         {sound, "", nil},
		"an empty document":      {sound, "---\n    ", nil},
		"no YAML":                {sound, "a: b: c", []string{`p.yaml:1 E1602 edge/app-t1 and 1 more: reconciler.yaml: what is rendered is not YAML: mapping values are not allowed in this context`}},
		"no kind":                {sound, "apiVersion: v1", []string{`p.yaml:1 E1603 edge/app-t1 and 1 more: reconciler.yaml, document 1: no kind`}},
		"no name":                {sound, "apiVersion: v1\nkind: Service\nmetadata: {generateName: x-}", []string{`p.yaml:1 E1603 edge/app-t1 and 1 more: reconciler.yaml, document 1: no metadata.name`}},
		"a list":                 {sound, "[a]", []string{`p.yaml:1 E1603 edge/app-t1 and 1 more: reconciler.yaml, document 1: a list, where a Kubernetes object belongs`}},
		"a playbook":             {sound, "- hosts: localhost\n  tasks: []", nil},
		"a Zarf package":         {sound, "kind: ZarfPackageConfig", nil},
		"a name in capitals":     {sound, "apiVersion: v1\nkind: Pod\nmetadata: {name: A}", []string{`p.yaml:1 E1604 edge/app-t1 and 1 more: reconciler.yaml, document 1: Pod cannot be called "A": `, `p.yaml:1 W1606 edge/other-t1: reconciler.yaml, document 1: Pod A is also in app-t1`}},
		"a role with colons":     {sound, "apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\nmetadata: {name: 'system:{{ .DeploymentTargetName }}'}", nil},
		"a Namespace with dots":  {sound, "apiVersion: v1\nkind: Namespace\nmetadata: {name: a.b}", []string{`p.yaml:1 E1604 edge/app-t1 and 1 more: reconciler.yaml, document 1: Namespace cannot be called "a.b": `}},
		"a shared Namespace":     {sound, "apiVersion: v1\nkind: Namespace\nmetadata: {name: shared}", nil},
		"a label as boolean":     {sound, "apiVersion: v1\nkind: Pod\nmetadata: {name: '{{ .Namespace }}', labels: {edge: yes, a/b: c}}", []string{`p.yaml:1 E1604 edge/app-t1 and 1 more: reconciler.yaml, document 1: Pod dev-edge-app-t1 cannot have edge: "yes" in its labels: yes is a boolean, not a text`}},
		"an object twice":        {sound, "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: \"{{ .DeploymentTargetName }}\", namespace: \"{{ .Namespace }}\"}\n---\napiVersion: apps/v1\nkind: Deployment\nmetadata: {name: \"{{ .DeploymentTargetName }}\", namespace: \"{{ .Namespace }}\"}", []string{`p.yaml:1 E1605 edge/app-t1 and 1 more: reconciler.yaml, document 2: Deployment dev-edge-app-t1/app-t1 is in reconciler.yaml, document 1 already`}},
		"an object of two":       {sound, "apiVersion: v1\nkind: List\nitems:\n- {apiVersion: v1, kind: Service, metadata: {name: web}}", []string{`p.yaml:1 W1606 edge/other-t1: reconciler.yaml, document 1: Service web is also in app-t1 (put .DeploymentTargetName or .Namespace into its name)`}},
		"a version of Flux":      {sound, "kind: Kustomization\n# of old\napiVersion: kustomize.toolkit.fluxcd.io/v1beta2\nmetadata: {name: '{{ .Namespace }}'}", []string{`p.yaml:9 W1607 edge/app-t1 and 1 more: reconciler.yaml, document 1: today's Flux does not serve Kustomization of kustomize.toolkit.fluxcd.io/v1beta2 (write kustomize.toolkit.fluxcd.io/v1)`}},
		"more than agents take":  {sound, strings.Join([]string{large("a"), large("b"), large("c")}, "---\n"), []string{`p.yaml:1 E1610 edge/app-t1 and 1 more: reconciler.yaml: with this file the manifests come to more than the 33554432 bytes that agents take, with each YAML alias counted as what it stands for and each value as some more`}},
		"much, and not too much": {sound, strings.Join([]string{large("a"), large("b")}, "---\n"), nil},
		"a ConfigMap with a map": {withConfig + configMapYAML("cm", "  A: x\n  B: '{c: d}'"), "", []string{`p.yaml:52 E1206 edge/app-t1 and 1 more: platform-config.yaml, document 1: B is a mapping, and a ConfigMap takes only texts`}},
	} {
		t.Run(name, func(t *testing.T) {
			require.Contains(t, c.platform, deployment)
			platform := strings.Replace(c.platform, deployment, "      "+strings.ReplaceAll(c.reconciler, "\n", "\n      ")+"\n", 1)
			if c.reconciler == "" {
				platform = c.platform
			}
			report := lint(t, platform, oneTarget+secondApp("other", ""))
			require.Equal(t, c.findings, shortFindings(report.Findings, c.findings))
		})
	}
}

func TestLintFindsHealthConditionsAboutNothing(t *testing.T) {
	for condition, want := range map[string][]string{
		"Deployment: .status.readyReplicas == 1":        nil,
		"Deployment/app-t1: .status.readyReplicas == 1": nil,
		".status.phase == Running":                      nil, // which kinds are a cluster's own, agents know
		"Deploymnet: .status.readyReplicas == 1": {
			`app.yaml:4 E1608 edge/app-t1: annotation wherry.dev/health: Deploymnet: .status.readyReplicas == 1: nothing that is rendered is it (did you mean "Deployment"?)`,
		},
		"GitRepo: .status.readyClusters == 1": {
			`app.yaml:4 E1608 edge/app-t1: annotation wherry.dev/health: GitRepo: .status.readyClusters == 1: nothing that is rendered is it (known: ConfigMap, Deployment, Namespace)`,
		},
		"Deployment/web: .status.readyReplicas == 1": {
			`app.yaml:4 E1608 edge/app-t1: annotation wherry.dev/health: Deployment/web: .status.readyReplicas == 1: nothing that is rendered is it (leave the name out, and it is about every Deployment)`,
		},
	} {
		t.Run(condition, func(t *testing.T) {
			report := lint(t, sound, secondApp("app", `wherry.dev/health: "`+condition+`"`))
			require.Equal(t, want, shortFindings(report.Findings, want))
		})
	}
}

func TestWhatABaseHasForOtherEnvironmentsIsNoFindingHere(t *testing.T) {
	m := scheduler.NewModel("dev")
	require.NoError(t, load(m, "", "p.yaml", sound))
	require.NoError(t, load(m, "reg", "app.yaml", oneTarget))
	base := fstest.MapFS{"b.yaml": {Data: []byte(templateYAML("other", "x") + "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: cm, labels: {platform-config: \"true\", cluster-type: core}}\n")}}
	require.NoError(t, m.Load(context.Background(), scheduler.Source{FS: base, Base: "main"}))
	report, err := Run(context.Background(), m, Options{})
	require.NoError(t, err)
	require.Empty(t, report.Findings)
	require.Equal(t, []string{
		`b.yaml:1 W1110 Template "other" is used by no ClusterType`,
		`b.yaml:9 W1111 ConfigMap "cm" applies nowhere: nothing has cluster-type "core" (known: edge)`,
	}, shortFindings(report.Unused, nil))
}

func TestAnErrorHoldsAllItsMistakesAsFindings(t *testing.T) {
	err := load(scheduler.NewModel("dev"), "", "a.yaml", "kind: ClusterType\napiVersion: scheduler.kalypso.io/v1alpha1\nmetadata: {name: 5}\n"+strings.Repeat("---\nkind: ClusterType\napiVersion: scheduler.kalypso.io/v1alpha1\n", 30)+"---\n[")
	require.ErrorContains(t, err, "and 12 more mistakes")
	found := finding.In(err)
	require.Len(t, found, 32)
	require.Equal(t, finding.Finding{Position: finding.Position{File: "a.yaml", Line: 3}, Code: "E1002", Column: 18, Message: "metadata.name must be a string, and 5 is a number", Hint: `write it in quotes: "5"`}, found[0])
	require.Equal(t, "E1001", found[31].Code)
	require.Equal(t, finding.SeverityError, found[31].Severity())
}

func TestLintOfAFolderThatIsNoEnvironment(t *testing.T) {
	report, err := Run(context.Background(), scheduler.NewModel("dev"), Options{})
	require.NoError(t, err)
	require.Equal(t, []finding.Finding{{Code: "W1308", Message: `environment "dev" has no ClusterType`, Hint: "of a repository with a branch per environment, give the URL or PATH#BRANCH"}}, report.Findings)
	_, err = Run(context.Background(), scheduler.NewModel("Dev"), Options{})
	require.ErrorContains(t, err, `there can be no environment "Dev"`)
}
