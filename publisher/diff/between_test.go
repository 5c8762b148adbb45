package diff

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/scheduler"
)

func of(name, adapter string, files ...string) scheduler.Assignment {
	a := scheduler.Assignment{Name: name, Adapter: adapter, Workload: "w", Target: "t"}
	for i := 0; i < len(files); i += 2 {
		a.Files = append(a.Files, scheduler.File{Path: files[i], Data: []byte(files[i+1])})
	}
	return a
}

func TestBetween(t *testing.T) {
	old := TreeOf([]scheduler.Assignment{
		of("gone", "kubernetes", "a.yaml", "a: 1\n"), of("kept", "kubernetes", "a.yaml", "a: 1\n"),
		of("web", "kubernetes", "platform-config.yaml", "LEVEL: info\nPASSWORD: hunter2\n"),
	})
	now := TreeOf([]scheduler.Assignment{
		of("kept", "kubernetes", "a.yaml", "a: 1\n"), of("new", "flux", "a.yaml", "a: 1\n"),
		of("web", "kubernetes", "platform-config.yaml", "LEVEL: warn\nPASSWORD: hunter3\n"),
	})
	changes, unchanged, err := Between(old, now, true)
	require.NoError(t, err)
	require.Equal(t, 1, unchanged)
	var got []string
	for _, c := range changes {
		got = append(got, fmt.Sprint(c.Change, " ", c.Name))
		for _, v := range c.Values {
			got = append(got, fmt.Sprintf("  %s: %s → %s", v.Key, *v.Old, *v.New))
		}
		for _, f := range c.Files {
			got = append(got, fmt.Sprint("  ", f.Change, " ", f.Path), f.Patch)
		}
	}
	require.Equal(t, []string{
		"removed gone", "  removed a.yaml", "@@ -1 +0,0 @@\n-a: 1\n",
		"added new", "  added a.yaml", "@@ -0,0 +1 @@\n+a: 1\n",
		"changed web", "  LEVEL: info → warn", "  PASSWORD: (secret) → (secret)",
		"  changed platform-config.yaml", "@@ -1,2 +1,2 @@\n-LEVEL: info\n-PASSWORD: (secret)\n+LEVEL: warn\n+PASSWORD: (secret)\n",
	}, got)
}

func TestSecretsAreMaskedInEachLineOfTheirs(t *testing.T) {
	for name, c := range map[string]struct{ file, text, want string }{
		"by its key":             {"a.yaml", "password: hunter2\nuser: me\n", "password: (secret)\nuser: me\n"},
		"quoted over two lines":  {"a.yaml", "password: \"hun\n  ter2\"\nuser: me\n", "password: (secret)\n  (secret)\nuser: me\n"},
		"a block":                {"a.yaml", "data:\n  token: |\n    hunter2\n\n    hunter3\n  user: me\n", "data:\n  token: (secret)\n    (secret)\n(secret)\n    (secret)\n  user: me\n"},
		"at the end":             {"a.yaml", "user: me\npassword: >-\n  hunter2\n  hunter3\n", "user: me\npassword: (secret)\n  (secret)\n  (secret)\n"},
		"in a document before":   {"a.yaml", "password: >-\n  hunter2\n---\nuser: me\n", "password: (secret)\n  (secret)\n---\nuser: me\n"},
		"an object of secrets":   {"a.yaml", "kind: Secret\nmetadata: {name: a}\ndata:\n  key: aHVudGVyMg==\n", "kind: Secret\nmetadata: {name: a}\ndata:\n  key: (secret)\n"},
		"by the name beside it":  {"a.yaml", "env:\n  - name: DB_PASSWORD\n    value: hunter2\n", "env:\n  - name: DB_PASSWORD\n    value: (secret)\n"},
		"in a flow":              {"a.yaml", "db: {user: me, password: hunter2, token: hunter3}\n", "db: {user: me, password: (secret)\n"},
		"by its form":            {"a.yaml", "url: amqp://me:hunter2@broker/\n", "url: (secret)\n"},
		"inside a text":          {"a.yaml", "CONFIG: |\n  user: me\n  password: hunter2\n", "CONFIG: (secret)\n  (secret)\n  (secret)\n"},
		"in a comment":           {"a.yaml", "# password: hunter2\na: 1\n", "# password: (secret)\na: 1\n"},
		"in a file of exports":   {"platform-config.sh", "export PASSWORD=\"hun\nter2\"\nexport USER=me\n", "export PASSWORD=(secret)\n(secret)\nexport USER=me\n"},
		"a private key":          {"key.pem", "-----BEGIN PRIVATE KEY-----\naHVudGVyMg==\n-----END PRIVATE KEY-----\n", "(secret)\n(secret)\n(secret)\n"},
		"a file that is no YAML": {"a.ini", "[db]\npassword = hunter2\nuser = me\n", "[db]\npassword = (secret)\nuser = me\n"},
		"no secret":              {"a.yaml", "secretName: web\npasswordFile: /run/p\n", "secretName: web\npasswordFile: /run/p\n"},
		"no text":                {"a.bin", "\x00\x01", "(no text)\n"},
	} {
		t.Run(name, func(t *testing.T) {
			var shown strings.Builder
			for _, l := range maskedLines(c.file, []byte(c.text)) {
				shown.WriteString(l.Text + "\n")
			}
			require.Equal(t, c.want, shown.String())
		})
	}
}
