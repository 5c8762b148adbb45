package diff

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/scheduler"
)

// What is new to the agents' Roles is named, once, and what another assignment had already is not.
func TestTheRightsThatAReleaseNeedsAnew(t *testing.T) {
	files := map[string]map[string][]byte{
		"till-a": {"reconciler.yaml": []byte("apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: till}\n")},
		"menu-a": {"reconciler.yaml": []byte("apiVersion: batch/v1\nkind: Job\nmetadata: {name: j, namespace: shared}\n")},
	}
	old := &Tree{
		Listed: []bundle.Assignment{{Name: "menu-a", Adapter: "kubernetes", Namespace: "menu"}, {Name: "till-a", Adapter: "kubernetes", Namespace: "till"}},
		Read:   func(a bundle.Assignment) (map[string][]byte, error) { return files[a.Name], nil },
	}
	assignment := func(name, adapter, namespace, text string) scheduler.Assignment {
		return scheduler.Assignment{Name: name, Adapter: adapter, Namespace: namespace, Files: []scheduler.File{{Path: "reconciler.yaml", Data: []byte(text)}}}
	}
	const deployment, job, role = "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: till}\n", "apiVersion: batch/v1\nkind: Job\nmetadata: {name: j, namespace: shared}\n", "apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\nmetadata: {name: r}\n"
	for _, test := range []struct {
		name string
		now  scheduler.Assignment
		want []Right
	}{
		{"the same kinds", assignment("till-a", "kubernetes", "till", deployment), nil},
		{"a kind that another assignment has there", assignment("till-a", "kubernetes", "till", deployment+"---\n"+job), nil},
		{"another kind", assignment("till-a", "kubernetes", "till", deployment+"---\napiVersion: v1\nkind: Service\nmetadata: {name: s}\n"), []Right{{"Service", "till"}}},
		{"a kind of the cluster", assignment("till-a", "kubernetes", "till", role), []Right{{"ClusterRole.rbac.authorization.k8s.io", ""}}},
		{"a new namespace", assignment("new", "flux", "new", "apiVersion: v1\nkind: Namespace\nmetadata: {name: new}\n---\napiVersion: example.com/v1\nkind: Oven\nmetadata: {name: o}\n"), []Right{{"Namespace", "new"}, {"Oven.example.com", "new"}}},
		{"an adapter that applies no objects", assignment("new", "ansible", "new", deployment), nil},
		{"a file that no agent reads", assignment("new", "kubernetes", "new", "a: [\n"), nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, err := lacking([]scheduler.Assignment{test.now}, []AssignmentDifference{{Name: test.now.Name, Change: ChangeChanged}}, old)
			require.NoError(t, err)
			require.Equal(t, test.want, got)
			got, err = lacking([]scheduler.Assignment{test.now}, nil, old)
			require.NoError(t, err)
			require.Empty(t, got, "it does not change")
		})
	}
}
