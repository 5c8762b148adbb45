package lazyregexp_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// A program would panic only when it uses an expression that does not compile.
func TestEveryExpressionOfTheModuleCompiles(t *testing.T) {
	compiled := 0
	require.NoError(t, filepath.WalkDir("../..", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") {
			return err
		}
		files := token.NewFileSet()
		file, err := parser.ParseFile(files, path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		ast.Inspect(file, func(n ast.Node) bool {
			call, _ := n.(*ast.CallExpr)
			if call == nil || !calls(call, "lazyregexp", "New") {
				return true
			}
			literal, ok := call.Args[0].(*ast.BasicLit)
			require.True(t, ok, "%s: not a literal", files.Position(call.Pos()))
			text, err := strconv.Unquote(literal.Value)
			require.NoError(t, err)
			_, err = regexp.Compile(text)
			require.NoError(t, err, files.Position(call.Pos()))
			compiled++
			return true
		})
		return nil
	}))
	require.Positive(t, compiled)
}

func calls(call *ast.CallExpr, pkg, name string) bool {
	selector, _ := call.Fun.(*ast.SelectorExpr)
	if selector == nil || selector.Sel.Name != name {
		return false
	}
	x, _ := selector.X.(*ast.Ident)
	return x != nil && x.Name == pkg
}
