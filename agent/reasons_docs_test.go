package agent

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// declaredReasons are those that the agent itself gives.
func declaredReasons(t *testing.T) (names []string) {
	for _, name := range []string{"reasons.go", "assignments/reasons.go", "carry/reasons.go", "freeze/reasons.go", "../bundle/refusal.go"} {
		inspect(t, name, func(n ast.Node) {
			if v, ok := n.(*ast.ValueSpec); ok {
				names = append(names, literals(v.Values...)...)
			}
		})
	}
	return names
}

// strayReasons are the literals that stand where a file of the agent sets a reason.
func strayReasons(t *testing.T, file string) (found []string) {
	isReason := func(e ast.Expr) bool { return strings.HasSuffix(strings.ToLower(nameOf(e)), "reason") }
	inspect(t, file, func(n ast.Node) {
		switch n := n.(type) {
		case *ast.ValueSpec:
			if strings.HasPrefix(strings.ToLower(n.Names[0].Name), "reason") {
				found = append(found, literals(n.Values...)...)
			}
		case *ast.KeyValueExpr:
			if isReason(n.Key) {
				found = append(found, literals(n.Value)...)
			}
		case *ast.AssignStmt:
			for i, left := range n.Lhs {
				if i < len(n.Rhs) && isReason(left) {
					found = append(found, literals(n.Rhs[i])...)
				}
			}
		case *ast.FuncDecl:
			if n.Name.Name == "reason" {
				ast.Inspect(n.Body, func(n ast.Node) bool {
					if r, ok := n.(*ast.ReturnStmt); ok {
						found = append(found, literals(r.Results...)...)
					}
					return true
				})
			}
		case *ast.CallExpr:
			if nameOf(n.Fun) == "Failure" && len(n.Args) > 0 {
				found = append(found, literals(n.Args[0])...)
			}
		}
	})
	return found
}

func inspect(t *testing.T, file string, f func(ast.Node)) {
	parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
	require.NoError(t, err)
	ast.Inspect(parsed, func(n ast.Node) bool { f(n); return true })
}

// literals returns the codes in expressions, also in a call such as cmp.Or.
func literals(all ...ast.Expr) (found []string) {
	for _, e := range all {
		ast.Inspect(e, func(n ast.Node) bool {
			if l, ok := n.(*ast.BasicLit); ok && l.Kind == token.STRING {
				if s, err := strconv.Unquote(l.Value); err == nil && regexp.MustCompile(`^[A-Z][A-Za-z]+$`).MatchString(s) {
					found = append(found, s)
				}
			}
			return true
		})
	}
	return found
}

func nameOf(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.Ident:
		return e.Name
	case *ast.SelectorExpr:
		return e.Sel.Name
	}
	return ""
}

func TestThePageOnOperatingHasEveryReason(t *testing.T) {
	page, err := os.ReadFile("../docs/operations.md")
	require.NoError(t, err)
	_, says, ok := strings.Cut(string(page), "\n## Reasons\n")
	require.True(t, ok)
	reasons := declaredReasons(t)
	require.Subset(t, reasons, []string{"Unreachable", "ClockBehind", "Settling", "Unsigned", "UnsupportedSchema", "Paused"})
	for _, reason := range reasons {
		require.Regexp(t, "(?m)^\\|[^|]*`"+reason+"`[^|]*\\| [^|]+ \\| [^|]+ \\|$", says, "docs/operations.md says nothing of what %s means and what to do", reason)
	}
}

func TestReasonsHaveOnePlace(t *testing.T) {
	files, err := filepath.Glob("*.go")
	require.NoError(t, err)
	for _, below := range []string{"assignments", "backup", "carry", "engines", "enroll", "freeze", "health", "identity", "intake", "metrics", "trust", "veto"} {
		more, err := filepath.Glob(below + "/*.go")
		require.NoError(t, err)
		files = append(files, more...)
	}
	for _, file := range files {
		if filepath.Base(file) != "reasons.go" && !strings.HasSuffix(file, "_test.go") {
			require.Empty(t, strayReasons(t, file), "%s: a reason is declared in reasons.go", file)
		}
	}
}

// The page on air gaps says of each outcome of a stream what it means, and of each reason of packages alone who can mend it, and how. The
// page on operating has those of releases.
func TestThePageOnAirGapsHasEveryRefusal(t *testing.T) {
	page, err := os.ReadFile("../docs/sites/air-gap.md")
	require.NoError(t, err)
	var outcomes, reasons []string
	inspect(t, "intake/result.go", func(n ast.Node) {
		if v, ok := n.(*ast.ValueSpec); ok && len(v.Values) == 1 {
			if l, ok := v.Values[0].(*ast.BasicLit); ok {
				outcome, err := strconv.Unquote(l.Value)
				require.NoError(t, err)
				outcomes = append(outcomes, outcome)
			}
		}
	})
	require.Contains(t, outcomes, "lacks its base")
	for _, outcome := range outcomes {
		require.Regexp(t, "(?m)^\\| `"+outcome+"` \\| [^|]+ \\|$", string(page), "docs/sites/air-gap.md says nothing of the outcome %q", outcome)
	}
	inspect(t, "intake/reasons.go", func(n ast.Node) {
		if v, ok := n.(*ast.ValueSpec); ok {
			reasons = append(reasons, literals(v.Values...)...)
		}
	})
	require.Subset(t, reasons, []string{"LacksBase", "NoRoom"})
	for _, reason := range reasons {
		require.Regexp(t, "(?m)^\\|[^|]*`"+reason+"`[^|]*\\| [^|]+ \\| [^|]+ \\| [^|]+ \\|$", string(page), "docs/sites/air-gap.md says nothing of %s, who can mend it, and how", reason)
	}
}
