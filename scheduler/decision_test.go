package scheduler

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/stretchr/testify/require"
	"github.com/wherry-dev/wherry/scheduler/finding"
)

// decidedFleet returns the fleet of selection_test.go with two policies, and their decision.
func decidedFleet(t *testing.T) (*Model, *Decision) {
	t.Helper()
	m := NewModel("dev")
	require.NoError(t, load(m, "", "platform.yaml", fleet+
		policyYAML("spread", "workspace: team, labelSelector: {matchExpressions: [{key: purpose, operator: In, values: [x, w]}]}", "")+
		policyYAML("large", "labelSelector: {matchLabels: {purpose: x}}", "labelSelector: {matchLabels: {size: large}}")+
		policyYAML("none", "workspace: nobody", "")))
	require.NoError(t, load(m, "reg", "app.yaml", fleetApp))
	require.NoError(t, load(m, "other", "svc.yaml", fleetService))
	d, err := m.Decide(t.Context())
	require.NoError(t, err)
	return m, d
}

func readDecision(t *testing.T, text string) *Decision {
	t.Helper()
	d, err := ReadDecision("decision.json", strings.NewReader(text))
	require.NoError(t, err)
	return d
}

func marshalled(t *testing.T, d *Decision) string {
	t.Helper()
	data, err := json.MarshalIndent(d, "", "  ")
	require.NoError(t, err)
	return string(data)
}

func TestADecisionSaysWhatIsWhereAndWhy(t *testing.T) {
	_, d := decidedFleet(t)
	require.Equal(t, "dev", d.Environment)
	var all []string
	for _, a := range d.Assignments {
		all = append(all, a.ClusterType+"/"+a.Name)
	}
	require.Equal(t, "c1/app-w c1/app-x c2/app-w c2/app-x c3/app-w c3/app-x", strings.Join(all, " "))
	require.Equal(t, Decided{
		ClusterType: "c1", Name: "app-x", Workspace: "team", Workload: "app", Target: "x", Policies: []DecidedBy{
			{Name: "large", TargetTerms: []string{"purpose=x"}, ClusterTypeTerms: []string{"size=large"}},
			{Name: "spread", TargetTerms: []string{"workspace=team", "purpose in (w,x)"}},
		},
	}, d.Assignments[1])
	require.Len(t, d.Warnings, 1)
	require.Contains(t, d.Warnings[0].Message, `SchedulingPolicy "none" selects no deployment target`)
}

func TestADecisionThatGoesThroughAFileRendersTheSame(t *testing.T) {
	for _, c := range []struct {
		name, thief, policy string
		failures            int
	}{
		{name: "no thief"},
		{"a thief that nothing selects", oneTarget + "    - {name: x, environment: dev}\n", "", 0},
		{"a thief that is selected", oneTarget + "    - {name: x, environment: dev, labels: {purpose: x}}\n", "", 1},
		{"a thief that has a policy of its own", oneTarget + "    - {name: x, environment: dev}\n", policyYAML("thief", "workspace: other-team", ""), 1},
	} {
		m, _ := decidedFleet(t)
		require.NoError(t, load(m, "", "policy.yaml", c.policy))
		require.NoError(t, load(m, "other", "thief.yaml", c.thief))
		d, err := m.Decide(t.Context())
		require.NoError(t, err)
		for _, last := range [][]Released{nil, {{Name: "app-x", Registration: "reg", Workload: "app", Target: "x"}}} {
			opts := Options{LastRelease: func(context.Context, string) ([]Released, error) { return last, nil }}
			want, err := m.Render(t.Context(), opts)
			require.NoError(t, err)
			opts.Decision = readDecision(t, marshalled(t, d))
			got, err := m.Render(t.Context(), opts)
			require.NoError(t, err)
			require.Len(t, want.ClusterTypes[0].Failures, c.failures, c.name)
			require.Equal(t, want.ClusterTypes, got.ClusterTypes, c.name)
		}
	}
}

func TestADecisionReplacesThePolicies(t *testing.T) {
	m, _ := decidedFleet(t)
	result, err := m.Render(t.Context(), Options{Decision: readDecision(t, `{"environment": "dev", "assignments": [
		{"clusterType": "c2", "name": "svc-main", "policies": [{"name": "cheapest: 3.50 a day"}, {"name": "b"}]},
		{"clusterType": "c1", "name": "app-z"}], "schema": 1}`)})
	require.NoError(t, err)
	require.Equal(t, "c1/app-z c2/svc-main", pairs(result))
	require.Empty(t, result.ClusterTypes[0].Assignments[0].Policies)
	require.Equal(t, []string{"b", "cheapest: 3.50 a day"}, result.ClusterTypes[1].Assignments[0].Policies)
	require.Equal(t, "c2/svc-main", content(result.ClusterTypes[1].Assignments[0], "reconciler.yaml"))

	result, err = m.Render(t.Context(), Options{Decision: readDecision(t, `{"schema": 1, "environment": "dev", "assignments": []}`)})
	require.NoError(t, err)
	require.Empty(t, pairs(result))
}

func TestADecisionThatDoesNotFitThePlatform(t *testing.T) {
	m, _ := decidedFleet(t)
	for name, c := range map[string]struct{ assignments, want string }{
		"an unknown cluster type":           {`{"clusterType": "c9", "name": "app-x"}`, `decision.json:2: there is no cluster type "c9" (did you mean "c1"?)`},
		"an unknown target":                 {`{"clusterType": "c1", "name": "app-xx"}`, `decision.json:2: there is no deployment target "app-xx" in environment "dev" (did you mean "app-x"?)`},
		"another environment's target":      {`{"clusterType": "c1", "name": "app-q"}`, `decision.json:2: deployment target "app-q" is for environment "prod" (app.yaml:9), not for "dev"`},
		"one assignment twice":              {"{\"clusterType\": \"c1\", \"name\": \"app-x\"},\n\n{\"clusterType\": \"c1\", \"name\": \"app-x\"}", `decision.json:4: app-x is on c1 twice, first at decision.json:2 (remove one of them)`},
		"another workspace":                 {`{"clusterType": "c1", "name": "app-x", "workspace": "other"}`, `decision.json:2: app-x has workspace "team", not "other" (leave it out, or decide again on this input)`},
		"a policy without a name":           {`{"clusterType": "c1", "name": "app-x", "policies": [{}]}`, `decision.json:2: a policy cannot be called "" (use 1 to 253 printable characters)`},
		"a policy that would clear screens": {`{"clusterType": "c1", "name": "app-x", "policies": [{"name": "a\u001b[2J"}]}`, `decision.json:2: a policy cannot be called "a\x1b[2J" (use 1 to 253 printable characters)`},
		"several": {
			"{\"clusterType\": \"c9\", \"name\": \"app-x\"},\n{\"clusterType\": \"c1\", \"name\": \"other\"}",
			"decision.json:2: there is no cluster type \"c9\" (did you mean \"c1\"?)\ndecision.json:3: there is no deployment target \"other\" in environment \"dev\"",
		},
	} {
		t.Run(name, func(t *testing.T) {
			d := readDecision(t, "{\"schema\": 1, \"environment\": \"dev\", \"assignments\": [\n"+c.assignments+"]}")
			_, err := m.Render(t.Context(), Options{Decision: d})
			require.EqualError(t, err, c.want)
		})
	}
	_, err := m.Render(t.Context(), Options{Decision: readDecision(t, `{"schema": 1, "environment": "prod", "assignments": []}`)})
	require.EqualError(t, err, `decision.json:1: the decision is for environment "prod", not for "dev"`)
	wrong := strings.Repeat(`{"clusterType": "nowhere", "name": "x"},`, 1000) + `{"clusterType": "nowhere", "name": "x"}`
	_, err = m.Render(t.Context(), Options{Decision: readDecision(t, `{"schema": 1, "environment": "dev", "assignments": [`+wrong+`]}`)})
	require.Len(t, strings.Split(err.Error(), "\n"), finding.MaxReported+1, "what is wrong throughout is not told a thousand times")
}

func TestAnUnknownTargetFailsAloneWhereASourceIsMissing(t *testing.T) {
	m, _ := decidedFleet(t)
	d := readDecision(t, `{"schema": 1, "environment": "dev", "assignments": [
		{"clusterType": "c1", "name": "web-y"}, {"clusterType": "c1", "name": "app-x"}, {"clusterType": "c1", "name": "web-x"}]}`)
	result, err := m.Render(t.Context(), Options{Decision: d, Incomplete: true})
	require.NoError(t, err)
	require.Equal(t, "c1/app-x", pairs(result))
	const want = `there is no deployment target "web-%" in environment "dev"`
	requireFailures(t, result, map[string]string{"c1/web-x": strings.ReplaceAll(want, "%", "x"), "c1/web-y": strings.ReplaceAll(want, "%", "y")})
	require.Equal(t, []FailureReason{TargetUnknown, TargetUnknown}, []FailureReason{result.ClusterTypes[0].Failures[0].Reason, result.ClusterTypes[0].Failures[1].Reason})
	require.Equal(t, "web-x", result.ClusterTypes[0].Failures[0].Name)
}

func TestEachFailureHasItsReason(t *testing.T) {
	long := strings.Repeat("long-", 10) + "name"
	clash := oneTarget + "    - {name: b-c, environment: dev}\n---\n" + strings.NewReplacer("name: app,", "name: app-b,", "name: t1", "name: c").Replace(oneTarget)
	schema := "apiVersion: scheduler.kalypso.io/v1alpha1\nkind: ConfigSchema\nmetadata: {name: s}\nspec: {schema: '{\"required\": [\"NOPE\"]}'}\n---\n"
	for _, c := range []struct {
		platform, workloads string
		want                FailureReason
	}{
		{basics, clash, NameClash},
		{basics, strings.Replace(oneTarget, "name: t1", "name: "+long, 1), NameTooLong},
		{basics + schema, oneTarget, SchemaViolated},
		{strings.Replace(basics, "reconciler: ", "reconciler: no-", 1), oneTarget, TemplateFailed},
		{basics, strings.Replace(oneTarget, "labels: {type: application}", "annotations: {wherry.dev/adapter: pigeon}", 1), BadAnnotation},
	} {
		failures := render(t, c.platform, c.workloads).ClusterTypes[0].Failures
		require.Len(t, failures, 1, c.want)
		require.Equal(t, c.want, failures[0].Reason, failures[0].Err)
		var bare *reasonedError
		require.False(t, errors.As(failures[0].Err, &bare))
	}
}

func TestWhatIsNoDecision(t *testing.T) {
	const hint = ` ("wherry schedule --schema" prints the form)`
	for name, c := range map[string]struct{ text, want string }{
		"nothing":                  {"", `decision.json:1: no decision in JSON: unexpected end of JSON input` + hint},
		"no JSON":                  {"\n\nassignments: []", `decision.json:3: no decision in JSON: invalid character 'a' looking for beginning of value` + hint},
		"cut off":                  {"{\"schema\": 1,\n\"assignments\": [{\"name\": \"a\"", `decision.json:2: no decision in JSON: unexpected end of JSON input` + hint},
		"a comma too many":         {"{\"schema\": 1,\n\"assignments\": [\n{\"clusterType\": \"a\", \"name\": \"b\",}]}", `decision.json:3: no decision in JSON: invalid character '}' looking for beginning of object key string` + hint},
		"a list":                   {"[]", `decision.json:1: a decision must be an object`},
		"null":                     {"null", `decision.json:1: a decision must be an object`},
		"an unknown field":         {"{\n\"schema\": 1, \"enviroment\": \"dev\"}", `decision.json:2: a decision has no field "enviroment" (did you mean "environment"?)`},
		"a field twice":            {"{\"schema\": 1,\n\"schema\": 1}", `decision.json:2: the field "schema" is given twice`},
		"a missing field":          {`{"schema": 1, "environment": "dev"}`, `decision.json:1: a decision needs the field "assignments"`},
		"a schema to come":         {`{"schema": 2, "environment": "dev", "assignments": []}`, `decision.json:1: a decision of schema 2: this version reads 1`},
		"a schema of another type": {"{\n\"schema\": \"1\"}", `decision.json:2: a string stands in the wrong place`},
		"assignments as an object": {"{\n\"assignments\": {}}", `decision.json:2: assignments must be a list`},
		"an assignment as a text":  {"{\"assignments\": [\n\"c1/app-x\"]}", `decision.json:2: a string stands in the wrong place`},
		"a name as a number":       {"{\"assignments\": [\n{\"clusterType\": \"c1\", \"name\": 7}]}", `decision.json:2: name cannot be a number`},
		"a misspelt field":         {"{\"assignments\": [\n{\"clusterType\": \"c1\", \"polices\": []}]}", `decision.json:2: an assignment has no field "polices" (did you mean "policies"?)`},
		"an assignment of nothing": {"{\"assignments\": [\n\n{}]}", `decision.json:3: an assignment needs clusterType and name (name is <workload>-<target>)`},
		"two decisions":            {"{\"schema\": 1, \"environment\": \"dev\", \"assignments\": []}\n{}", `decision.json:2: more text after the decision`},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := ReadDecision("decision.json", strings.NewReader(c.text))
			require.ErrorContains(t, err, c.want)
			var known *finding.Error
			require.ErrorAs(t, err, &known)
		})
	}
	_, err := ReadDecision("decision.json", errorReader{})
	require.EqualError(t, err, "read decision.json: the disk is gone")
}

type errorReader struct{}

func (errorReader) Read([]byte) (int, error) { return 0, errors.New("the disk is gone") }

func TestTheSchemaDescribesDecisions(t *testing.T) {
	_, d := decidedFleet(t)
	document, err := jsonschema.UnmarshalJSON(strings.NewReader(DecisionSchema))
	require.NoError(t, err)
	c := jsonschema.NewCompiler()
	require.NoError(t, c.AddResource("decision", document))
	schema, err := c.Compile("decision")
	require.NoError(t, err)
	for text, valid := range map[string]bool{
		marshalled(t, d): true,
		`{"schema": 1, "environment": "dev", "assignments": []}`:                                           true,
		`{"schema": 1, "environment": "dev", "assignments": [{"clusterType": "c1", "name": "a"}]}`:         true,
		`{"schema": 1, "environment": "dev", "assignments": [{"clusterType": "c1"}]}`:                      false,
		`{"schema": 1, "environment": "dev", "assignments": [{"clusterType": "c1", "name": "a", "x": 1}]}`: false,
		`{"schema": 2, "environment": "dev", "assignments": []}`:                                           false,
		`{"schema": 1, "environment": "dev"}`:                                                              false,
	} {
		value, err := jsonschema.UnmarshalJSON(strings.NewReader(text))
		require.NoError(t, err)
		require.Equal(t, valid, schema.Validate(value) == nil, text)
	}
}

func FuzzReadDecision(f *testing.F) {
	f.Add(`{"schema": 1, "environment": "dev", "assignments": [{"clusterType": "c1", "name": "app-x", "policies": [{"name": "p", "targetTerms": ["a=b"]}]}]}`)
	f.Add("{\"assignments\": [\n{\"clusterType\": \"c1\"")
	f.Fuzz(func(t *testing.T, text string) {
		d, err := ReadDecision("f", strings.NewReader(text))
		if err != nil {
			var known *finding.Error
			require.ErrorAs(t, err, &known)
			return
		}
		again := readDecision(t, marshalled(t, d))
		require.Equal(t, marshalled(t, d), marshalled(t, again))
	})
}
