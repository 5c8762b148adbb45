package agent

import (
	"cmp"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// row is an attack, its test, and what the agent reports. A line of the table in docs/security.md has the attacks of one test
// with the same report, with semicolons between them.
type row struct{ attack, test, reported string }

func (r row) String() string {
	return fmt.Sprintf("| %s | `%s` | `%s` |", r.attack, r.test, r.reported)
}

// rowsInSource are the attacks that are mounted. A test without cases of its own is one attack, whose name
// and report the page alone has.
func rowsInSource(t *testing.T) (rows []row) {
	t.Helper()
	files, err := filepath.Glob("attack_*_test.go")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, name := range files {
		parsed, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		require.NoError(t, err)
		for _, d := range parsed.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && strings.HasPrefix(f.Name.Name, "TestAttack") {
				cases := casesOf(f)
				rows = append(rows, cases...)
				if len(cases) == 0 {
					rows = append(rows, row{test: f.Name.Name})
				}
			}
		}
	}
	return rows
}

func casesOf(f *ast.FuncDecl) (rows []row) {
	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.CompositeLit:
			r := row{test: f.Name.Name}
			for _, e := range n.Elts {
				if kv, ok := e.(*ast.KeyValueExpr); ok {
					switch fmt.Sprint(kv.Key) {
					case "name":
						r.attack = literal(kv.Value)
					case "want":
						r.reported = reason(kv.Value)
					}
				}
			}
			if r.attack != "" {
				rows = append(rows, r)
			}
		case *ast.CallExpr:
			if s, ok := n.Fun.(*ast.SelectorExpr); ok && s.Sel.Name == "Run" && len(n.Args) == 2 && literal(n.Args[0]) != "" {
				rows = append(rows, row{attack: literal(n.Args[0]), test: f.Name.Name})
			}
		}
		return true
	})
	return rows
}

func literal(e ast.Expr) string {
	if l, ok := e.(*ast.BasicLit); ok {
		s, _ := strconv.Unquote(l.Value)
		return s
	}
	return ""
}

// reason is the reason that an expression such as bundle.Unsigned stands for; constants have their values'
// names.
func reason(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.SelectorExpr:
		return e.Sel.Name
	case *ast.Ident:
		return strings.ToUpper(e.Name[:1]) + e.Name[1:]
	}
	return literal(e)
}

func TestThePageOnSecurityListsEveryAttackThatIsMounted(t *testing.T) {
	page, err := os.ReadFile("../docs/security.md")
	require.NoError(t, err)
	var listed, missing []row
	for _, m := range regexp.MustCompile("(?m)^\\| (.+?) \\| `(TestAttack\\w+)` \\| (.+?) \\|$").FindAllStringSubmatch(string(page), -1) {
		for attack := range strings.SplitSeq(m[1], "; ") {
			listed = append(listed, row{attack, m[2], m[3]})
		}
	}
	mounted := rowsInSource(t)
	for _, m := range mounted {
		if !slices.ContainsFunc(listed, func(l row) bool {
			return l.test == m.test && cmp.Or(m.attack, l.attack) == l.attack && strings.Contains(l.reported, m.reported)
		}) {
			missing = append(missing, m)
		}
	}
	for _, l := range listed {
		require.True(t, slices.ContainsFunc(mounted, func(m row) bool {
			return l.test == m.test && cmp.Or(m.attack, l.attack) == l.attack
		}), "nobody mounts this attack: %s", l)
	}
	require.True(t, len(missing) == 0, "attacks that docs/security.md does not list, or with another reason:\n%s", joined(missing))
}

func TestThePageOnSecurityNamesNoTestThatIsNot(t *testing.T) {
	page, err := os.ReadFile("../docs/security.md")
	require.NoError(t, err)
	var source strings.Builder
	for _, pattern := range []string{"../*/*_test.go", "../*/*/*_test.go", "../*/*/*/*_test.go", "../*/*/*/*/*_test.go"} {
		files, err := filepath.Glob(pattern)
		require.NoError(t, err)
		for _, name := range files {
			data, err := os.ReadFile(name)
			require.NoError(t, err)
			source.Write(data)
		}
	}
	for _, name := range regexp.MustCompile("`(Test\\w+)`").FindAllStringSubmatch(string(page), -1) {
		require.True(t, strings.Contains(source.String(), "func "+name[1]+"(t *testing.T)"), "no test is called %s", name[1])
	}
}

func joined(rows []row) string {
	var b strings.Builder
	for _, r := range rows {
		fmt.Fprintln(&b, r)
	}
	return b.String()
}
