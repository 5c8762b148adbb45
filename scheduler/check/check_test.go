package check

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/wherry-dev/wherry/scheduler/kinds"
)

// parse reads PlatformChecks.
func parse(t testing.TB, text string) []*kinds.PlatformCheck {
	t.Helper()
	var all []*kinds.PlatformCheck
	documents := yaml.NewDecoder(strings.NewReader(text))
	for {
		var n yaml.Node
		if documents.Decode(&n) != nil {
			return all
		}
		if n.Content[0].ShortTag() == "!!null" {
			continue
		}
		o := new(kinds.PlatformCheck)
		d := kinds.Decode("c.yaml", n.Content[0], o, true)
		require.Empty(t, d.Errs)
		require.Empty(t, d.Unknown)
		o.At.File, o.At.Line = "c.yaml", n.Content[0].Line
		all = append(all, o)
	}
}

func one(spec string) string {
	return "kind: PlatformCheck\nmetadata: {name: c}\nspec:\n  " + strings.ReplaceAll(strings.TrimSpace(spec), "\n", "\n  ") + "\n---\n"
}

func compileOne(t *testing.T, spec string) *Set {
	t.Helper()
	s, err := Compile(parse(t, one(spec)), "prod")
	require.NoError(t, err)
	return s
}

const services = `apiVersion: v1
kind: Service
metadata: {name: a, namespace: x, labels: {team: one, tier: two}}
spec: {type: LoadBalancer, ports: [{port: 80}, {port: 443}]}
---
apiVersion: v1
kind: Service
metadata: {name: b}
spec: {ports: [{port: 8080}]}
---
apiVersion: serving.knative.dev/v1
kind: Service
metadata: {name: k}
spec: {type: LoadBalancer}
`

// messages runs a check over a file and returns its messages.
func messages(t *testing.T, spec, file string) []string {
	t.Helper()
	var all []string
	for _, v := range compileOne(t, spec).For(map[string]string{"size": "small"}).Run(&Assignment{
		Environment: "prod", Workload: "shop", Workspace: "team",
		ClusterType: ClusterType{"drone", map[string]string{"size": "small"}},
		Target:      Target{Name: "shop-main", Labels: map[string]string{"b": "2", "a": "1"}, Namespace: "prod-drone-shop-main", Registration: "reg", Adapter: "kubernetes"},
		Files:       []File{{"namespace.yaml", nil}, {"platform-config.sh", []byte("kind: Service")}, {"reconciler.yaml", []byte(file)}},
	}) {
		all = append(all, v.Message)
	}
	return all
}

func TestObjectsAreChecked(t *testing.T) {
	for name, c := range map[string]struct {
		spec string
		says []string
	}{
		"a kind": {"objects: {kinds: [Service]}\nexpression: \"!has(object.spec.type) || object.spec.type != 'LoadBalancer'\"\nmessage: not here", []string{
			"Service x/a in reconciler.yaml: not here", "Service k in reconciler.yaml: not here",
		}},
		"a kind of a group":  {"objects: {kinds: [Service.serving.knative.dev]}\nexpression: 'false'", []string{"Service k in reconciler.yaml: it does not meet false"}},
		"no kind of another": {"objects: {kinds: [Service.apps, Deployment]}\nexpression: 'false'", nil},
		"all objects":        {"expression: object.metadata.name != 'b'", []string{"Service b in reconciler.yaml: it does not meet object.metadata.name != 'b'"}},
		"lists":              {"objects: {kinds: [Service]}\nexpression: \"!has(object.spec.ports) || object.spec.ports.all(p, p.port > 80)\"", []string{"Service x/a in reconciler.yaml: it does not meet !has(object.spec.ports) || object.spec.ports.all(p, p.port > 80)"}},
		"a default":          {"expression: object.?spec.?type.orValue('ClusterIP') == 'ClusterIP'\nmessage: m", []string{"Service x/a in reconciler.yaml: m", "Service k in reconciler.yaml: m"}},
		"all variables":      {"expression: >-\n  clusterType.name == 'drone' && clusterType.labels.size == 'small' && target.name == 'shop-main' && target.labels.a == '1' &&\n  target.namespace == 'prod-drone-shop-main' && target.registration == 'reg' && target.adapter == 'kubernetes' &&\n  environment == 'prod' && workload == 'shop' && workspace == 'team'", nil},
		"a message in CEL": {"objects: {kinds: [Service]}\nexpression: object.metadata.name != 'b'\nmessageExpression: \"object.metadata.name + ' of ' + workspace + ' is\\\\n not wanted'\"", []string{
			"Service b in reconciler.yaml: b of team is not wanted",
		}},
		"a message in CEL that fails": {"expression: object.metadata.name != 'b'\nmessage: plain\nmessageExpression: object.metadata.labels.team", []string{"Service b in reconciler.yaml: plain"}},
		"maps in the order of their keys": {"objects: {kinds: [Service]}\nexpression: object.metadata.name != 'a'\nmessageExpression: \"object.metadata.labels.map(k, k)[0] + target.labels.map(k, k)[0]\"", []string{
			"Service x/a in reconciler.yaml: teama",
		}},
		"no answer refuses": {"expression: object.spec.type != 'LoadBalancer'\nmessage: m", []string{
			"Service x/a in reconciler.yaml: m", "Service b in reconciler.yaml: the check cannot be evaluated: no such key: type", "Service k in reconciler.yaml: m",
		}},
		"nor anything but a boolean": {"objects: {kinds: [Service.serving.knative.dev]}\nexpression: object.spec.type", []string{"Service k in reconciler.yaml: the check gives a string, not true or false"}},
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, c.says, messages(t, c.spec, services))
		})
	}
}

func TestObjectsAreReadAsAnAPIServerReadsThem(t *testing.T) {
	const secret = "objects: {kinds: [Service]}\nexpression: object.?spec.?type.orValue('') != 'LoadBalancer'\nmessage: m"
	refused := []string{"Service a in reconciler.yaml: m"}
	for name, c := range map[string]struct {
		file string
		says []string
	}{
		"in a list":            {"apiVersion: v1\nkind: List\nitems: [{kind: Service, metadata: {name: a}, spec: {type: LoadBalancer}}]", refused},
		"in a list of lists":   {"apiVersion: v1\nkind: List\nitems: [{kind: ServiceList, items: [{kind: Service, metadata: {name: a}, spec: {type: LoadBalancer}}]}]", refused},
		"by an alias":          {"x: &t LoadBalancer\nkind: Service\nmetadata: {name: a}\nspec: {type: *t}", refused},
		"by a merge":           {"x: &t {type: LoadBalancer}\nkind: Service\nmetadata: {name: a}\nspec: {<<: *t}", refused},
		"by a merge of two":    {"x: [&t {type: LoadBalancer}, &u {type: ClusterIP}]\nkind: Service\nmetadata: {name: a}\nspec: {<<: [*t, *u]}", refused},
		"a merge that loses":   {"x: &t {type: LoadBalancer}\nkind: Service\nmetadata: {name: a}\nspec: {<<: *t, type: ClusterIP}", nil},
		"in escapes":           {"kind: \"\\x53ervice\"\nmetadata: {name: a}\nspec: {type: \"Load\\\n  Balancer\"}", refused},
		"in JSON":              {`{"kind":"Service","metadata":{"name":"a"},"spec":{"type":"LoadBalancer"}}`, refused},
		"a key given twice":    {"kind: Service\nkind: X", []string{`reconciler.yaml cannot be read, so it cannot be checked: line 2: the key "kind" is given twice`}},
		"no YAML":              {"kind: Service\n\t- x: [", []string{"reconciler.yaml cannot be read, so it cannot be checked: line 2: found a tab character that violates indentation"}},
		"no YAML without it":   {"kind: Pod\n\t- x: [", nil},
		"an alias of itself":   {"kind: Service\nx: &x [*x]", []string{"reconciler.yaml cannot be read, so it cannot be checked: line 2: values nest more than 200 deep"}},
		"a list of plays":      {"- {hosts: all, name: Service}", nil},
		"an empty document":    {"---\n---\n# Service", nil},
		"a mapping of no kind": {"Service: {type: LoadBalancer}", nil},
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, c.says, messages(t, secret, c.file))
		})
	}
	require.Empty(t, messages(t, "expression: object.on == true && object.n == 8 && object.f == 1.5 && object.none == null && object.day == '2026-01-02' && object.big > 1u && object.hex == 16",
		"kind: X\non: yes\nn: 8\nf: 1.5\nnone: ~\nday: 2026-01-02\nbig: 18446744073709551615\nhex: 0x10"))
}

// A file that is split into its documents has the same objects.
func TestDocumentsAreSplitWhereYAMLSplitsThem(t *testing.T) {
	for _, text := range []string{
		services, "---\nkind: A\n---\n---\nkind: B\n", "kind: A\ntext: |\n  a\n  ---\n  b\n--- # c\nkind: B\n---", "kind: A\r\n---\r\nkind: B\r\n",
		"%YAML 1.2\n---\nkind: A\n...\n%YAML 1.2\n---\nkind: B\n", "kind: A\na: b\n ---\n---x: 1\n---\tkind\n", "--- {kind: A}\n--- {kind: B}\n",
	} {
		whole, err := objectsIn([]byte(text))
		parts, partsErr := relevantObjects([]byte(text), nil)
		require.Equal(t, err, partsErr, text)
		require.Equal(t, len(whole), len(parts), text)
		for i := range whole {
			require.Equal(t, whole[i].String(), parts[i].String())
		}
	}
	found, err := relevantObjects([]byte("kind: A\n---\nkind: B\n---\n]\n"), []groupKind{{"A", ""}})
	require.NoError(t, err, "what cannot have the kind is not parsed")
	require.Len(t, found, 1)
	_, err = relevantObjects([]byte("kind: A\n---\nkind: B\n---\nA: ]\n"), []groupKind{{"A", ""}})
	require.ErrorContains(t, err, "line 4: did not find expected node content")
}

func TestBounds(t *testing.T) {
	deep := "kind: Service\na0: &a0 [x, x, x, x, x, x, x, x, x, x]\n"
	for i := range 8 {
		deep += strings.NewReplacer("N", string(rune('1'+i)), "P", string(rune('0'+i))).Replace("aN: &aN [*aP, *aP, *aP, *aP, *aP, *aP, *aP, *aP, *aP, *aP]\n")
	}
	require.Contains(t, messages(t, "expression: 'true'", deep)[0], "the file holds more than 262144 values once its aliases are expanded")

	long := "kind: X\nmetadata: {name: a}\nlist: [" + strings.Repeat("1, ", 1000) + "1]"
	require.Equal(t, []string{"X a in reconciler.yaml: the check cannot be evaluated: it costs more than 200000 steps"},
		messages(t, "expression: object.list.all(x, object.list.all(y, x == y))", long))

	many := strings.Repeat("---\nkind: X\nmetadata: {name: a}\n", 30)
	require.Len(t, messages(t, "expression: 'false'", many), maxViolations)

	half := "kind: X\nmetadata: {name: a}\nlist: [" + strings.Repeat("1, ", 150) + "1]\n---\n"
	found := messages(t, "expression: object.list.all(x, object.list.all(y, x == y))", strings.Repeat(half, 60))
	require.Contains(t, found[0], "the checks of one assignment cost more than 2000000 steps together")
}

func TestMistakesInChecks(t *testing.T) {
	for name, c := range map[string]struct{ spec, says string }{
		"no expression":      {"message: m", `c.yaml:4: PlatformCheck "c": it has neither an expression nor a plan (expression is about rendered objects, plan about a publication)`},
		"two":                {"expression: 'true'\nplan: 'true'", `c.yaml:4: PlatformCheck "c": it has both an expression and a plan (make two checks of it)`},
		"kinds of a plan":    {"objects: {kinds: [Pod]}\nplan: 'true'", `objects.kinds have no meaning for a plan`},
		"a severity":         {"severity: fatal\nexpression: 'true'", `unknown severity "fatal" (known: error, warning)`},
		"a kind":             {"objects: {kinds: [.apps]}\nexpression: 'true'", `".apps" is not a kind (write Service, or Deployment.apps)`},
		"a selector":         {"clusterTypeSelector: {labelSelector: {matchExpressions: [{key: a, operator: Inn}]}}\nexpression: 'true'", `clusterTypeSelector: "Inn" is not a valid label selector operator`},
		"an unknown name":    {"expression: objet.spec == 1", `c.yaml:4: PlatformCheck "c": column 1 of the expression: undeclared reference to 'objet' (did you mean "object"?)`},
		"a variable of both": {"plan: object.x == 1", `undeclared reference to 'object' (variables: environment, plan)`},
		"an unknown field":   {"expression: clusterType.labls.size == 'x'", `c.yaml:4: PlatformCheck "c": column 12 of the expression: undefined field 'labls'`},
		"a line":             {"message: m\nexpression: |\n  object.x == 1 &&\n  target.nme == 'x'", `c.yaml:7: PlatformCheck "c": column 7 of the expression: undefined field 'nme'`},
		"syntax":             {"expression: \"object.spec &&\"", `c.yaml:4: PlatformCheck "c": column 15 of the expression: Syntax error: mismatched input '<EOF>'`},
		"not a boolean":      {"expression: size(environment)", `the expression gives a int, and must give a bool`},
		"types":              {"expression: environment > 3", `found no matching overload for '_>_' applied to '(string, int)'`},
		"a count":            {"plan: plan.clusters.changed * 10 <= plan.clusters.total", `(counts have a fraction: write 10.0 in place of 10)`},
		"a regexp":           {"expression: environment.matches('(')", `invalid matches argument`},
		"no clock":           {"expression: now() > timestamp('2020-01-01T00:00:00Z')", `undeclared reference to 'now'`},
		"loops":              {"expression: object.a.all(b, b.all(c, c.all(d, d.all(e, e == 1))))", `the expression may cost too much: use fewer nested loops`},
		"too many loops":     {"expression: object.a.all(b, b.all(c, c.all(d, d.all(e, e.all(f, f == 1)))))", `comprehension exceeds nesting limit`},
		"length":             {"expression: \"environment == '" + strings.Repeat("x", maxExpression) + "'\"", `bytes, 4096 are permitted`},
		"a long message":     {"expression: 'true'\nmessage: " + strings.Repeat("x", maxExpression+1), `the message has 4097 bytes, 4096 are permitted`},
		"a message in CEL":   {"expression: 'true'\nmessageExpression: 1 + 1", `the expression gives a int, and must give a string`},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Compile(parse(t, one(c.spec)), "prod")
			require.ErrorContains(t, err, c.says)
			_, err = Compile(parse(t, one(c.spec)), "another environment")
			require.Error(t, err, "mistakes are found wherever they are")
		})
	}
	_, err := Compile(parse(t, strings.Repeat(one("expression: 'true'"), maxChecks+1)), "prod")
	require.ErrorContains(t, err, "the platform has 257 checks, 256 are permitted")
}

func TestChecksAreForTheirEnvironmentsAndClusterTypes(t *testing.T) {
	none, err := Compile(nil, "prod")
	require.NoError(t, err)
	require.Nil(t, none.For(nil))
	require.Nil(t, none.For(nil).Run(nil))
	require.False(t, none.HasPlans())
	require.Empty(t, none.Plan(Facts{}))

	require.Nil(t, compileOne(t, "environments: [dev]\nexpression: 'false'").For(nil))
	require.NotNil(t, compileOne(t, "environments: [dev, prod]\nexpression: 'false'").For(nil))
	const small = "clusterTypeSelector: {labelSelector: {matchLabels: {size: small}}}\nexpression: 'false'"
	require.Nil(t, compileOne(t, small).For(map[string]string{"size": "large"}))
	require.NotNil(t, compileOne(t, small).For(map[string]string{"size": "small"}))
	require.True(t, Applies(parse(t, one(small))[0], map[string]string{"size": "small"}))
	require.False(t, Applies(parse(t, one(small))[0], nil))
}

func TestTheDigestChangesWithWhatDecides(t *testing.T) {
	digest := func(spec string) [32]byte { return compileOne(t, spec).For(nil).Digest }
	base := digest("expression: 'true'\nmessage: a")
	require.Equal(t, base, digest("expression: 'true'\nmessage: b"))
	for _, other := range []string{"expression: 'false'", "expression: 'true'\nseverity: warning", "expression: 'true'\nobjects: {kinds: [Pod]}"} {
		require.NotEqual(t, base, digest(other))
	}
}

func TestPlansAreChecked(t *testing.T) {
	facts := func(known bool, changed float64) Facts {
		return Facts{Environment: "prod", ClustersKnown: known, ClusterTypes: []PlannedType{
			{Name: "shop", Labels: map[string]string{"size": "small"}, Changed: changed > 0, Clusters: Counts{30, changed}, Assignments: AssignmentCounts{10, 1}},
			{Name: "drone", Clusters: Counts{70, 0}, Assignments: AssignmentCounts{5, 0}},
		}}
	}
	const tenth = "plan: plan.clusters.changed <= 0.1 * plan.clusters.total\nmessageExpression: \"string(plan.clusters.changed) + ' of ' + string(plan.clusters.total) + ' clusters at once'\""
	const unknown = "the check counts clusters, and they are not known"
	for name, c := range map[string]struct {
		spec  string
		facts Facts
		says  string
	}{
		"a tenth":                   {tenth, facts(true, 10), ""},
		"more than a tenth":         {tenth, facts(true, 11), "11 of 100 clusters at once"},
		"clusters that are unknown": {tenth, facts(false, 0), unknown},
		"of each type":              {"plan: plan.clusterTypes.all(t, t.clusters.changed <= 1 || t.clusters.changed <= 0.1 * t.clusters.total)\nmessage: m", facts(true, 4), "m"},
		"of each type, unknown":     {"plan: plan.clusterTypes.all(t, t.clusters.changed == 0.0)", facts(false, 4), unknown},
		"of some types":             {"clusterTypeSelector: {labelSelector: {matchLabels: {size: small}}}\n" + tenth, facts(true, 4), "4 of 30 clusters at once"},
		"without clusters":          {"plan: plan.assignments.failed == 0.0 && plan.clusterTypes.exists(t, t.changed)\nmessage: m", facts(false, 1), "m"},
		"the order of types":        {"plan: plan.clusterTypes[0].name == 'drone' && environment == 'prod' && size(plan.clusterTypes) == 2", facts(false, 1), ""},
		"another environment":       {"environments: [dev]\nplan: 'false'", facts(true, 1), ""},
	} {
		t.Run(name, func(t *testing.T) {
			s := compileOne(t, c.spec)
			got := s.Plan(c.facts)
			if c.says == "" {
				require.Empty(t, got)
				return
			}
			require.True(t, s.HasPlans())
			require.Len(t, got, 1)
			require.Equal(t, c.says, got[0].Message)
			require.Equal(t, "c", got[0].Check)
		})
	}
}

func FuzzObjects(f *testing.F) {
	f.Add(services)
	f.Add("x: &x [*x]\n<<: {a: 1}\nkind: List\nitems: [{kind: A}]")
	set, err := Compile(parse(f, one("expression: object.?spec.?type.orValue('') != 'LoadBalancer' && object.all(k, k != 'x')")), "prod")
	if err != nil {
		f.Fatal(err)
	}
	checks := set.For(nil)
	f.Fuzz(func(t *testing.T, text string) {
		a := &Assignment{Files: []File{{"reconciler.yaml", []byte(text)}}}
		require.Equal(t, checks.Run(a), checks.Run(a))
	})
}
