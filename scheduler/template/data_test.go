package template

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/scheduler/finding"
)

// What the Platform says about a workspace is there for templates that ask for it, and changes nothing for those that print
// or hash the whole data, as Kalypso's templates may.
func TestATenantIsSeenByNameOnly(t *testing.T) {
	plain := Data{Namespace: "ns", Workspace: "team", Labels: map[string]string{"a": "b"}}
	tenant := WithTenant(plain, &Tenant{
		Groups: []Group{{Name: "payments-dev", Role: "edit"}, {Name: "payments-ops", Role: "view"}}, ServiceAccount: "wherry-team",
		NamespaceLabels: map[string]string{"cost": "42"}, NamespaceAnnotations: map[string]string{"owner": "x"},
	})
	render := func(d Data, text string) string {
		l := NewLibrary(nil, nil)
		got, err := NewEvaluator(l).evaluate(t.Context(), l.text("t", text, finding.Position{}), &Input{Data: &d, Config: configOf(map[string]any{})})
		require.NoError(t, err)
		return string(got)
	}
	for _, whole := range []string{
		"{{ . }}", "{{ hash . }}", "{{ toYaml . }}", "{{ toJson . }}", "{{ typeOf . }}", "{{ list . }}", "{{ deepCopy . }}", "{{ dict `a` . }}",
		"{{ printf `%v %+v %#v %s %q` . . . . . }}", "{{ print . }}", "{{ toString . }}", "{{ cat . }}",
	} {
		require.Equal(t, render(plain, whole), render(tenant, whole), whole)
	}
	require.Equal(t, `scheduler.dataType{DeploymentTargetName:"", Namespace:"ns", Environment:"", Workspace:"team", Workload:"", Labels:map[string]string{"a":"b"}, Manifests:map[string]string(nil), ClusterType:"", ConfigData:map[string]interface {}{}}`,
		render(plain, "{{ printf `%#v` . }}"))

	const text = "{{ range .Groups }}{{ .Name }}={{ .Role }} {{ end }}{{ .ServiceAccount }} {{ .NamespaceLabels }} {{ .NamespaceLabels.cost }} {{ toYaml .NamespaceAnnotations }}"
	require.Equal(t, "payments-dev=edit payments-ops=view wherry-team map[cost:42] 42 owner: x", render(tenant, text))
	require.Equal(t, " map[] <no value> {}", render(plain, text))
	require.Equal(t, fmt.Sprint(plain), fmt.Sprint(tenant))
}
