package agent

import (
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

// reasonsInSource returns the reasons that the agent itself gives: what is named so, what is of that type, and
// literals that stand where a reason is set.
func reasonsInSource(t *testing.T) []string {
	names := []string{dependencyNotReady, waveNotReady, removing, orphaned}
	files, err := filepath.Glob("*.go")
	require.NoError(t, err)
	for _, name := range append(files, "../bundle/refusal.go") {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		require.NoError(t, err)
		ast.Inspect(file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.ValueSpec:
				typed, _ := n.Type.(*ast.Ident)
				if strings.HasPrefix(n.Names[0].Name, "reason") || typed != nil && typed.Name == "Reason" {
					names = append(names, literals(n.Values...)...)
				}
			case *ast.AssignStmt:
				if len(n.Lhs) > 1 || strings.HasSuffix(strings.ToLower(nameOf(n.Lhs[0])), "reason") {
					for i, left := range n.Lhs {
						if i < len(n.Rhs) && strings.HasSuffix(strings.ToLower(nameOf(left)), "reason") {
							names = append(names, literals(n.Rhs[i])...)
						}
					}
				}
			case *ast.FuncDecl:
				if n.Name.Name == "reason" {
					ast.Inspect(n.Body, func(n ast.Node) bool {
						if r, ok := n.(*ast.ReturnStmt); ok {
							names = append(names, literals(r.Results...)...)
						}
						return true
					})
				}
			case *ast.CallExpr:
				if nameOf(n.Fun) == "Failure" && len(n.Args) > 0 {
					names = append(names, literals(n.Args[0])...)
				}
			}
			return true
		})
	}
	slices.Sort(names)
	return slices.Compact(names)
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
	_, says, ok := strings.Cut(string(page), "\n## What it says, and what to do\n")
	require.True(t, ok)
	reasons := reasonsInSource(t)
	require.Subset(t, reasons, []string{"Unreachable", "LocalFailure", "NoRelease", "ClockBehind", "Settling", "DeadlineExceeded", "DriftCorrected", "AdapterUnavailable", "Unsigned", "UnsupportedSchema", "Paused"})
	for _, reason := range reasons {
		require.Regexp(t, "(?m)^\\|[^|]*`"+reason+"`[^|]*\\| [^|]+ \\| [^|]+ \\|$", says, "docs/operations.md says nothing of what %s means and what to do", reason)
	}
}
