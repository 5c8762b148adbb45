package lint

import (
	"context"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/scheduler"
	"github.com/wherry-dev/wherry/scheduler/finding"
)

// hostileFiles are inputs that are too costly to read, each with its expected first finding, which is
// empty if the input is accepted.
var hostileFiles = map[string]struct {
	file string
	says string // part of the first finding
}{
	"a ConfigMap of a hundred megabytes":   {"", "a.yaml: the file is larger than 8388608 bytes"},
	"flow lists ten thousand deep":         {"a: " + strings.Repeat("[", 100_000), "a.yaml: exceeded max depth of 10000"},
	"block lists ten thousand deep":        {strings.Repeat("- ", 100_000), "a.yaml: exceeded max depth of 10000"},
	"just deep enough":                     {"kind: ConfigMap\napiVersion: v1\nmetadata:\n  labels: " + strings.Repeat("{a: ", 9_000) + strings.Repeat("}", 9_000), "metadata.labels.a must be a string, not a mapping"},
	"a value that nests":                   {oneValue(strings.Repeat("[", 9_000) + strings.Repeat("]", 9_000)), ""},
	"a value that nests too deep":          {oneValue(strings.Repeat("[", 20_000)), ""},
	"a value of braces":                    {oneValue(strings.Repeat("{", 20_000)), `unexpected "{" in command`},
	"aliases of aliases in a value":        {oneValue(laughs), ""},
	"aliases of aliases in labels":         {bomb(), "the document holds more than 1048576 values once its aliases are expanded"},
	"aliases of aliases in a Template":     {"apiVersion: scheduler.kalypso.io/v1alpha1\nkind: Template\nmetadata: {name: bomb}\nspec:\n  manifests:\n    - " + strings.ReplaceAll(laughs, "\n", "\n      "), "W1110"},
	"aliases of aliases that nobody reads": {laughs, "no object (there is no kind): passed over"},
	"an alias of itself":                   {"a: &a [*a]\nkind: &k {x: *k}", "passed over"},
	"a List that holds itself":             {"&l\napiVersion: v1\nkind: List\nitems: [*l, *l]", "passed over"},
	"a merge key that is itself":           {"apiVersion: scheduler.kalypso.io/v1alpha1\nkind: ClusterType\nmetadata: &m {<<: [*m, *m], name: x}", "merge keys nest more than 16 deep"},
	"a rendered List that holds itself":    {templateYAML("x", "---\n&l\napiVersion: v1\nkind: List\nitems: [*l, *l]") + "apiVersion: scheduler.kalypso.io/v1alpha1\nkind: ClusterType\nmetadata: {name: core}\nspec: {reconciler: x, namespaceService: ns}\n", "anchor 'l' value contains itself"},
	"a template in a value of itself":      {oneValue("{{ .ConfigData.A }}{{ .ConfigData.A }}"), "the value of A refers to itself"},
	"invalid UTF-8":                        {"a: b\nkind: \xff\xfe", "a.yaml:2: the text is not UTF-8: save it as UTF-8"},
	"a NUL":                                {"kind: \x00", "a.yaml:1: control characters are not allowed"},
	"UTF-16":                               {"\xff\xfek\x00i\x00n\x00d\x00:\x00 \x00x\x00\n\x00", "kind x of no apiVersion is not part of a platform"},
	"a byte order mark":                    {"\ufeff" + templateYAML("t", "x"), `Template "t" is used by no ClusterType`},
	"line ends of Windows":                 {strings.ReplaceAll(templateYAML("t", "x"), "\n", "\r\n"), `Template "t" is used by no ClusterType`},
	"a thousand documents":                 {strings.Repeat("---\na: 1\n", 1000), "no object"},
	"a key of a megabyte":                  {"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n" + strings.Repeat("k", 1<<20) + ": x", "a key has no \":\" after it, or more than 1024 characters"},
	"a field of a thousand letters":        {"apiVersion: scheduler.kalypso.io/v1alpha1\nkind: ClusterType\nmetadata: {name: x}\nspec: {reconciler: rec, namespaceService: ns}\n" + strings.Repeat("k", 1000) + ": x", "W1007"},
	"a name of a megabyte":                 {"apiVersion: scheduler.kalypso.io/v1alpha1\nkind: ClusterType\nmetadata: {name: " + strings.Repeat("x", 1<<20) + "}", "ClusterType cannot be called"},
}

// laughs is ten lists, each of ten times the one before.
var laughs = func() string {
	var b strings.Builder
	b.WriteString("a: &l0 [lol]\n")
	for i := range 9 {
		fmt.Fprintf(&b, "b%d: &l%d [%s*l%d]\n", i, i+1, strings.Repeat(fmt.Sprintf("*l%d, ", i), 9), i)
	}
	return b.String()
}()

// oneValue is a ConfigMap with this value.
func oneValue(s string) string {
	return configMapYAML("cm", "  A: |\n    "+strings.ReplaceAll(s, "\n", "\n    "))
}

// endless is a file of a hundred megabytes.
type endless struct{ left int }

func (e *endless) Read(p []byte) (int, error) {
	n := min(len(p), e.left)
	if e.left -= n; n == 0 {
		return 0, io.EOF
	}
	copy(p, strings.Repeat("a", n))
	return n, nil
}

func (e *endless) Stat() (fs.FileInfo, error) { return fstest.MapFS{"a": {}}.Stat("a") }
func (e *endless) Close() error               { return nil }

// withEndless has a hundred megabytes under a.yaml.
type withEndless struct{ fstest.MapFS }

func (w withEndless) Open(name string) (fs.File, error) {
	if name == "a.yaml" {
		return &endless{100 << 20}, nil
	}
	return w.MapFS.Open(name)
}

// TestHostileFilesEndWithAFinding reads each in a process of its own, with a bound on its memory.
func TestHostileFilesEndWithAFinding(t *testing.T) {
	if name := os.Getenv("WHERRY_HOSTILE_FILE"); name != "" {
		c, ok := hostileFiles[name]
		require.True(t, ok)
		found := lintHostile(t, c.file)
		if c.says == "" {
			require.Empty(t, found)
			return
		}
		require.NotEmpty(t, found)
		require.Contains(t, found[0].Code+" "+found[0].String(), c.says)
		require.Less(t, len(found[0].String()), 2500, "fit for a terminal")
		return
	}
	for name := range hostileFiles {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			out, err := alone(t, "WHERRY_HOSTILE_FILE="+name).CombinedOutput()
			require.NoError(t, err, "%.3000s", out)
		})
	}
}

// lintHostile lints a sound platform with one more file.
func lintHostile(t *testing.T, content string) []finding.Finding {
	m := scheduler.NewModel("dev")
	require.NoError(t, load(m, "", "p.yaml", sound))
	require.NoError(t, load(m, "reg", "app.yaml", oneTarget))
	files := fstest.MapFS{"a.yaml": {Data: []byte(content)}}
	var src fs.FS = files
	if content == "" {
		src = withEndless{files}
	}
	if err := m.Load(context.Background(), scheduler.Source{FS: src}); err != nil {
		found := finding.In(err)
		require.NotEmpty(t, found, "%v", err)
		return found
	}
	report, err := Run(context.Background(), m, Options{})
	require.NoError(t, err)
	return report.Findings
}

// alone runs the test that t is part of in a process of its own, with a bound on its memory where the
// system knows one; the race detector takes more addresses than that.
func alone(t *testing.T, variable string) *exec.Cmd {
	script := "ulimit -v 3000000 2>/dev/null; "
	if info, ok := debug.ReadBuildInfo(); ok && slices.Contains(info.Settings, debug.BuildSetting{Key: "-race", Value: "true"}) {
		script = ""
	}
	test, _, _ := strings.Cut(t.Name(), "/")
	cmd := exec.Command("sh", "-c", script+`exec "$0" -test.run "^$1\$"`, os.Args[0], test)
	cmd.Env = append(os.Environ(), variable, "GOMEMLIMIT=1GiB")
	return cmd
}
