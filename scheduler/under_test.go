package scheduler

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/wherry-dev/wherry/scheduler/kinds"
)

// The index agrees with a comparison of each policy with each cluster type, name by name.
func TestUnderSelectsAsANaiveEvaluationDoes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		path := rapid.Custom(func(t *rapid.T) string {
			return strings.Join(rapid.SliceOfN(rapid.SampledFrom([]string{"a", "b", "ab", "a-b"}), 1, 4).Draw(t, "names"), "/")
		})
		label := rapid.SampledFrom([]string{"group", "region"})
		size := rapid.SampledFrom([]string{"small", "large"})
		m := NewModel("dev")
		var text strings.Builder
		text.WriteString(oneTarget + "---\n")
		types := rapid.SliceOfN(rapid.MapOfN(label, path, 0, 2), 1, 8).Draw(t, "types")
		for i, labels := range types {
			labels["size"] = size.Draw(t, "size")
			var list []string
			for _, key := range sortedKeys(labels) {
				list = append(list, key+": "+labels[key])
			}
			fmt.Fprintf(&text, "apiVersion: scheduler.kalypso.io/v1alpha1\nkind: ClusterType\nmetadata: {name: t%d, labels: {%s}}\n---\n", i, strings.Join(list, ", "))
		}
		type policy struct {
			under kinds.Under
			size  string
		}
		var policies []policy
		for i := range rapid.IntRange(1, 4).Draw(t, "policies") {
			p := policy{kinds.Under{Key: label.Draw(t, "label"), Path: path.Draw(t, "path")}, size.Draw(t, "size")}
			policies = append(policies, p)
			fmt.Fprintf(&text, "apiVersion: scheduler.kalypso.io/v1alpha1\nkind: SchedulingPolicy\nmetadata: {name: p%d, annotations: {wherry.dev/under: \"%s=%s\"}}\nspec: {clusterTypeSelector: {labelSelector: {matchLabels: {size: %s}}}}\n---\n",
				i, p.under.Key, p.under.Path, p.size)
		}
		if err := load(m, "", "p.yaml", text.String()); err != nil {
			t.Fatal(err)
		}
		d, err := m.Decide(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		got := map[string]bool{}
		for _, a := range d.Assignments {
			for _, by := range a.Policies {
				got[a.ClusterType+" "+by.Name] = true
			}
		}
		want := map[string]bool{}
		for i, labels := range types {
			for j, p := range policies {
				if labels["size"] == p.size && naivelyUnder(labels, p.under) {
					want[fmt.Sprintf("t%d p%d", i, j)] = true
				}
			}
		}
		require.Equal(t, want, got)
	})
}

func naivelyUnder(labels map[string]string, at kinds.Under) bool {
	value, ok := labels[at.Key]
	has, wants := strings.Split(value, "/"), strings.Split(at.Path, "/")
	if !ok || len(has) < len(wants) {
		return false
	}
	for i := range wants {
		if has[i] != wants[i] {
			return false
		}
	}
	return true
}

func TestTheExplanationOfAPolicyNamesThePlace(t *testing.T) {
	m := NewModel("dev")
	require.NoError(t, load(m, "", "p.yaml", strings.Replace(fleet, "size: large,", "group: a/b,", 1)+
		strings.Replace(policyYAML("p", "", ""), "name: p", "name: p, annotations: {wherry.dev/under: a}", 1)))
	require.NoError(t, load(m, "reg", "app.yaml", fleetApp))
	require.NoError(t, load(m, "other", "svc.yaml", fleetService))
	x, err := explainerOf(t, m).Pair(context.Background(), "c1", "app-x")
	require.NoError(t, err)
	require.True(t, x.Assigned)
	require.Equal(t, []string{"p=true: ✓ group under a [a/b]"}, matchLines(x.Policies))
	x, err = explainerOf(t, m).Pair(context.Background(), "c2", "app-x")
	require.NoError(t, err)
	require.False(t, x.Assigned)
	require.Equal(t, []string{"p=false: ✗ group under a []"}, matchLines(x.Policies))
	requireAgreement(t, m)
}

func TestAPathThatIsNoneIsWrittenAsOne(t *testing.T) {
	for path, want := range map[string]string{
		"/europe/plant-7/":      "write europe/plant-7",
		"europe//plant 7/paint": "write europe/plant-7/paint",
		"..":                    "a path looks like europe/plant-7",
		"":                      "a path looks like europe/plant-7",
	} {
		require.Equal(t, want, pathHint(path, ""), path)
	}
	require.Equal(t, "write site=a/b", pathHint("a/b/", "site"))
}
