package main

import (
	"bytes"
	"flag"
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
	"github.com/wherry-dev/wherry/cmd/internal/failure"
	"github.com/wherry-dev/wherry/publisher/gittest"
)

// hostileText would command a terminal and a CI system, and tell its reader lies in lines of its own.
const hostileText = "x\x1b]0;a\a\u009b31m\u202e\u2028\r\nFORGED\t##[error]b\n::error::c\n ::error::d ##vso[e]\nhint: FORGED\nwherry: FORGED"

// commandLine is what GitHub or Azure would take for a command.
var commandLine = regexp.MustCompile(`(?m)^\s*::|##\w*\[`)

// forgedLine is a line that the text has begun.
var forgedLine = regexp.MustCompile(`(?m)^(hint: |wherry: )?FORGED`)

// forgedName is the name that hostile text has for its field.
var forgedName = regexp.MustCompile(`FORGED\d+`)

var everyField = flag.Bool("every-field", false, "put hostile text into one field of a platform at a time, which takes minutes")

// TestNoFieldOfAPlatformCommandsATerminal puts hostile text into each kind of field of each kind of object, and runs the
// commands that show platforms. Without -every-field, each platform has one such field in each of its files, and a
// third of the commands are run for it: an error about one file can hide another, so make soak tries all by themselves.
func TestNoFieldOfAPlatformCommandsATerminal(t *testing.T) {
	t.Parallel()
	coffee := filepath.Join(t.TempDir(), "coffee")
	require.NoError(t, gittest.CopyKnown(coffee, filepath.Join("..", "..", "examples", "coffee")))
	rendered := filepath.Join(t.TempDir(), "rendered")
	source := func(root string) []string {
		return []string{
			filepath.Join(root, "dev"), "--environment", "dev", "--base", filepath.Join(root, "main"), "--timeout", "10m",
			"--workload", "storefront=" + filepath.Join(root, "workloads/storefront"), "--workload", "roasting=" + filepath.Join(root, "workloads/roasting"),
		}
	}
	wherry := func(args ...string) (string, int) {
		var out bytes.Buffer
		root := newRootCommand()
		root.SetOut(&out)
		root.SetErr(&out)
		root.SetArgs(args)
		code := cli.Main(root, failure.Everywhere)
		return out.String(), code
	}
	_, code := wherry(append([]string{"render", "--cache", filepath.Join(t.TempDir(), "cache"), "-o", rendered}, source(coffee)...)...)
	require.Equal(t, cli.OK, code)

	fields := fieldsOf(t, coffee)
	require.Greater(t, len(fields), 50)
	dir := t.TempDir()
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
	shown := map[string]bool{}
	platforms := hostilePlatforms(fields)
	for i, hostile := range platforms {
		root := filepath.Join(t.TempDir(), "coffee")
		copyWith(t, coffee, root, hostile)
		for j, command := range commands {
			// Opening the key that publish needs is slow on purpose.
			if slow := command[0] == "publish"; !*everyField && (slow && i%15 != 5 || !slow && (i+j)%3 != 0) {
				continue
			}
			args := append(slices.Clone(command), source(root)...)
			switch command[1%len(command)] {
			case "config":
				args = append(args, "shop/till-test", "GREETING")
			case "assignment":
				args = append(args, "shop/till-test")
			}
			out, _ := wherry(args...)
			requireHarmless(t, out, fmt.Sprintf("%s, with %s", strings.Join(command, " "), hostile))
			for _, name := range forgedName.FindAllString(out, -1) {
				shown[name] = true
			}
		}
	}
	require.Greater(t, len(shown), len(fields)/4, "fields that are shown, escaped")
}

// hostilePlatforms returns the fields that are hostile in one platform after the other.
func hostilePlatforms(fields []field) [][]field {
	var platforms [][]field
	taken := map[string]int{} // platforms that have a field of the file
	for _, f := range fields {
		i := taken[f.file]
		taken[f.file]++
		if *everyField {
			i = f.number
		}
		if i == len(platforms) {
			platforms = append(platforms, nil)
		}
		platforms[i] = append(platforms[i], f)
	}
	return platforms
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

	number int // of all kinds of fields
}

func (f field) String() string { return f.file + ": " + f.path }

// hostileText is what the field is given, with a name that tells where it is shown.
func (f field) hostileText() string {
	return strings.ReplaceAll(hostileText, "FORGED", fmt.Sprintf("FORGED%d", f.number))
}

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
				all = append(all, field{name, path, nth, len(all)})
			}
		})
		return nil
	}))
	return all
}

// copyWith copies the folder from to to, with hostile text after what these fields hold.
func copyWith(t *testing.T, from, to string, fields []field) {
	t.Helper()
	require.NoError(t, os.CopyFS(to, os.DirFS(from)))
	hostile := map[string]map[int]string{}
	for _, f := range fields {
		if hostile[f.file] == nil {
			hostile[f.file] = map[int]string{}
		}
		hostile[f.file][f.nth] = f.hostileText()
	}
	for file, texts := range hostile {
		data, err := os.ReadFile(filepath.Join(from, file))
		require.NoError(t, err)
		data = eachScalar(t, data, func(_ string, nth int, n *yaml.Node) {
			if text, ok := texts[nth]; ok {
				n.Value, n.Style, n.Tag = n.Value+text, yaml.DoubleQuotedStyle, "!!str"
			}
		})
		require.NoError(t, os.WriteFile(filepath.Join(to, file), data, 0o600))
	}
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
