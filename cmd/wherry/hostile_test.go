package main

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/wherry-dev/wherry/cmd/internal/cli"
)

// hostileText would command a terminal and a CI system, and tell its reader lies in lines of its own.
const hostileText = "x\x1b]0;a\a\u009b31m\u202e\u2028\r\nFORGED\t##[error]b\n::error::c\n ::error::d ##vso[e]\nhint: FORGED\nwherry: FORGED"

// commandLine is what GitHub or Azure would take for a command.
var commandLine = regexp.MustCompile(`(?m)^\s*::|##\w*\[`)

// forgedLine is a line that the text has begun.
var forgedLine = regexp.MustCompile(`(?m)^(hint: |wherry: )?FORGED`)

// TestNoFieldOfAPlatformCommandsATerminal puts hostile text into each kind of field of each kind of object, one after
// the other, and runs one of the commands that show platforms.
func TestNoFieldOfAPlatformCommandsATerminal(t *testing.T) {
	t.Parallel()
	coffee := filepath.Join("..", "..", "examples", "coffee")
	rendered := filepath.Join(t.TempDir(), "rendered")
	source := func(root string) []string {
		return []string{
			filepath.Join(root, "dev"), "--environment", "dev", "--base", filepath.Join(root, "main"), "--timeout", "10m",
			"--workload", "storefront=" + filepath.Join(root, "workloads/storefront"), "--workload", "roasting=" + filepath.Join(root, "workloads/roasting"),
		}
	}
	wherry := func(args ...string) (string, int) {
		var out bytes.Buffer
		root := newRootCommand("")
		root.SetOut(&out)
		root.SetErr(&out)
		root.SetArgs(args)
		code := cli.Main(root)
		return out.String(), code
	}
	_, code := wherry(append([]string{"render", "--cache", filepath.Join(t.TempDir(), "cache"), "-o", rendered}, source(coffee)...)...)
	require.Equal(t, cli.OK, code)

	fields := fieldsOf(t, coffee)
	require.Greater(t, len(fields), 50)
	dir, shown := t.TempDir(), 0
	password, key, cache := filepath.Join(dir, "password"), filepath.Join(dir, "cosign"), filepath.Join(dir, "cache")
	require.NoError(t, os.WriteFile(password, []byte("secret"), 0o600))
	_, code = wherry("keys", "generate", "--password-file", password, "-o", key)
	require.Equal(t, cli.OK, code)
	commands := [][]string{
		{"lint"},
		{"schedule"},
		{"plan", "--cache", cache, "--against", rendered},
		{"explain", "config"},
		{"render", "--cache", cache, "-o", filepath.Join(dir, "out")},
		{"plan", "--cache", cache, "--against", rendered, "-o", "markdown"},
		{"explain", "assignment"},
		{"publish", "--cache", cache, "--to", "oci-layout:" + filepath.Join(dir, "releases"), "--key", key + ".key", "--password-file", password},
	}
	for i, f := range fields {
		root := filepath.Join(t.TempDir(), "coffee")
		f.copyWith(t, coffee, root)
		command := commands[i%len(commands)] // all for each would take a minute
		args := append(slices.Clone(command), source(root)...)
		switch command[1%len(command)] {
		case "config":
			args = append(args, "shop/till-test", "GREETING")
		case "assignment":
			args = append(args, "shop/till-test")
		}
		out, _ := wherry(args...)
		requireHarmless(t, out, fmt.Sprintf("%s, with %s", strings.Join(command, " "), f))
		if strings.Contains(out, "FORGED") {
			shown++
		}
	}
	require.Greater(t, shown, len(fields)/8, "hostile text is shown, escaped")
}

func requireHarmless(t *testing.T, text, where string) {
	t.Helper()
	require.True(t, utf8.ValidString(text), where)
	for _, r := range text {
		if unicode.IsControl(r) && r != '\n' && r != '\t' || unicode.Is(unicode.Bidi_Control, r) || r == '\u2028' {
			t.Fatalf("%s: %U in\n%q", where, r, text)
		}
	}
	if found := commandLine.FindString(text); found != "" {
		t.Errorf("%s: a command, %q, in\n%s", where, found, text)
	}
	if found := forgedLine.FindString(text); found != "" {
		t.Errorf("%s: a forged line, %q, in\n%s", where, found, text)
	}
}

// field is a scalar of a file: a key, or a value.
type field struct {
	file string // below the folder
	path string // kind and fields, without numbers: those of a kind are alike
	nth  int    // scalar of the file
}

func (f field) String() string { return f.file + ": " + f.path }

// fieldsOf returns one field of each kind, for all files below root.
func fieldsOf(t *testing.T, root string) []field {
	t.Helper()
	var all []field
	known := map[string]bool{}
	require.NoError(t, fs.WalkDir(os.DirFS(root), ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(name) != ".yaml" {
			return err
		}
		data, err := os.ReadFile(filepath.Join(root, name))
		require.NoError(t, err)
		eachScalar(t, data, func(path string, nth int, _ *yaml.Node) {
			if !known[path] {
				known[path] = true
				all = append(all, field{name, path, nth})
			}
		})
		return nil
	}))
	return all
}

// copyWith copies the folder from to to, with hostile text after what the field holds.
func (f field) copyWith(t *testing.T, from, to string) {
	t.Helper()
	require.NoError(t, os.CopyFS(to, os.DirFS(from)))
	data, err := os.ReadFile(filepath.Join(from, f.file))
	require.NoError(t, err)
	data = eachScalar(t, data, func(_ string, nth int, n *yaml.Node) {
		if nth == f.nth {
			n.Value, n.Style, n.Tag = n.Value+hostileText, yaml.DoubleQuotedStyle, "!!str"
		}
	})
	require.NoError(t, os.WriteFile(filepath.Join(to, f.file), data, 0o600))
}

// eachScalar calls use for each key and value of the documents in data, and returns them as they are then.
func eachScalar(t *testing.T, data []byte, use func(path string, nth int, n *yaml.Node)) []byte {
	t.Helper()
	var out bytes.Buffer
	from, to := yaml.NewDecoder(bytes.NewReader(data)), yaml.NewEncoder(&out)
	nth := 0
	var walk func(n *yaml.Node, path string)
	walk = func(n *yaml.Node, path string) {
		switch n.Kind {
		case yaml.MappingNode:
			for i := 0; i+1 < len(n.Content); i += 2 {
				key := n.Content[i].Value
				walk(n.Content[i], path+" key "+key)
				walk(n.Content[i+1], path+"."+key)
			}
		case yaml.SequenceNode:
			for _, item := range n.Content {
				walk(item, path+"[]")
			}
		case yaml.ScalarNode:
			use(path, nth, n)
			nth++
		}
	}
	for {
		var doc yaml.Node
		if from.Decode(&doc) != nil {
			break
		}
		kind := ""
		for i, n := range doc.Content[0].Content {
			if n.Value == "kind" {
				kind = doc.Content[0].Content[i+1].Value
			}
		}
		walk(doc.Content[0], kind)
		require.NoError(t, to.Encode(&doc))
	}
	require.NoError(t, to.Close())
	return out.Bytes()
}
