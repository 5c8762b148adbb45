package diff

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestValuesThatDiffer(t *testing.T) {
	for name, c := range map[string]struct {
		file, before, after string
		differs             []string
	}{
		"a ConfigMap": {
			"platform-config.yaml",
			"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: platform-config}\ndata: {A: \"1\", B: x, C: \"\"}\n",
			"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: platform-config}\ndata: {A: \"2\", B: x, D: \"\"}\n",
			[]string{"A: 1 → 2 of A", "C:  → none of C", "D: none →  of D"},
		},
		"what is around a ConfigMap's data": {
			"platform-config.yaml",
			"kind: ConfigMap\nmetadata: {name: one}\ndata: {A: x}\n",
			"kind: ConfigMap\nmetadata: {name: one, labels: {a: b}}\ndata: {A: x}\n",
			[]string{"ConfigMap/one metadata.labels.a: none → b of "},
		},
		"values without an object around them": {"platform-config.yaml", "A: x\nB: y\n", "A: z\nB: y\n", []string{"A: x → z of A"}},
		"values below data without a kind":     {"platform-config.yaml", "data:\n  A: x\n", "data:\n  A: z\n", []string{"A: x → z of A"}},
		"structured values, as text and as they are": {
			"platform-config.yaml",
			"data:\n  T: |\n    - {name: a, n: 1}\n    - {name: b}\n  M: {k: [1, 2]}\n",
			"data:\n  T: |\n    - {name: c}\n    - {name: a, n: 2}\n    - {name: b}\n  M: {k: [1, 3]}\n",
			[]string{"M.k[1]: 2 → 3 of M", "T[a].n: 1 → 2 of T", "T[c].name: none → c of T"},
		},
		"a text of several lines that is not a structure": {"platform-config.yaml", "data: {A: \"x\\ny\"}", "data: {A: \"x\\nz\"}", []string{"A: x\ny → x\nz of A"}},
		"an environment file": {
			"platform-config.sh", "export A=\"1\"\nexport B=\"x\ny\"\n", "export A=\"2\"\nexport B=\"x\nz\"\n", []string{"A: 1 → 2 of A", "B: x\ny → x\nz of B"},
		},
		"objects": {
			"reconciler.yaml",
			"kind: Deployment\nmetadata: {name: a}\nspec: {replicas: 1}\n---\nkind: Service\nmetadata: {name: a}\n",
			"kind: Service\nmetadata: {name: a}\n---\nkind: Deployment\nmetadata: {name: a}\nspec: {replicas: 2}\n",
			[]string{"Deployment/a spec.replicas: 1 → 2 of "},
		},
		"a playbook": {"reconciler.yaml", "- hosts: localhost\n  tasks: [{name: x, a: 1}]\n", "- hosts: localhost\n  tasks: [{name: x, a: 2}]\n", []string{"[0].tasks[x].a: 1 → 2 of "}},
		"secrets": {
			"reconciler.yaml",
			"kind: Deployment\nmetadata: {name: a}\nenv: [{name: DB_PASSWORD, value: old}]\n---\nkind: Secret\nmetadata: {name: s}\ndata: {x: b2xk}\n",
			"kind: Deployment\nmetadata: {name: a}\nenv: [{name: DB_PASSWORD, value: new}]\n---\nkind: Secret\nmetadata: {name: s}\ndata: {x: bmV3}\n",
			[]string{"Deployment/a env[DB_PASSWORD].value: (secret) → (secret) of ", "Secret/s data.x: (secret) → (secret) of "},
		},
		"a value that was a secret": {"platform-config.yaml", "data: {DB: \"postgres://u:hunter2@db/x\"}", "data: {DB: \"postgres://db/x\"}", []string{"DB: (secret) → (secret) of DB"}},
		"an alias, which is not followed": {
			"reconciler.yaml", "a: &a {b: 1}\nc: *a\n", "a: &a {b: 2}\nc: *a\n", []string{"a.b: 1 → 2 of "},
		},
		"a file that was empty": {"platform-config.yaml", "", "data: {A: x}", []string{"A: none → x of A"}},
	} {
		t.Run(name, func(t *testing.T) {
			found, ok := compareValues(c.file, []byte(c.before), []byte(c.after))
			require.True(t, ok)
			var lines []string
			for _, d := range found {
				lines = append(lines, d.Key+": "+textOf(d.Old)+" → "+textOf(d.New)+" of "+d.configKey)
			}
			require.Equal(t, c.differs, lines)
		})
	}
}

func TestWhatIsNoFileOfValues(t *testing.T) {
	for _, c := range []struct{ file, content string }{
		{"reconciler.yaml", "a: [\n"},
		{"platform-config.sh", "#!/bin/sh\nset -e\nexport A=1\n"},
		{"reconciler.yaml", strings.Repeat("[", 20_000)},
	} {
		_, ok := compareValues(c.file, []byte("A: x"), []byte(c.content))
		require.False(t, ok, c.content[:5])
	}
}

// FuzzCompareValues looks for files that end the process, or do not equal themselves.
func FuzzCompareValues(f *testing.F) {
	for _, seed := range []string{"data: {A: x}", "- a\n- b", "export A=\"x\"", "a: &a [*a]", "? {a: b}\n: c", "data: {A: \"- x\\n- y\"}", "a: 1\na: 2"} {
		f.Add("platform-config.yaml", []byte(seed), []byte("data: {A: z}"))
		f.Add("platform-config.sh", []byte(seed), []byte("export A=z"))
	}
	f.Fuzz(func(t *testing.T, file string, before, after []byte) {
		compareValues(file, before, after)
		if same, ok := compareValues(file, before, before); ok {
			require.Empty(t, same)
		}
	})
}

func textOf(s *string) string {
	if s == nil {
		return "none"
	}
	return *s
}
