package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// A program that is installed alone has no folder docs. So texts name what "wherry help" prints, and that exists.
func TestTextsNamePagesThatTheProgramHas(t *testing.T) {
	known := map[string]bool{}
	for _, topic := range topics {
		known[topic.name] = true
	}
	for _, cmd := range rootOf(program).Commands() {
		known[cmd.Name()] = true
	}
	page := regexp.MustCompile(`(^|[^/\w])docs/[a-z]`)
	help := regexp.MustCompile(`wherry help ([a-z][a-z-]*(?:, [a-z][a-z-]*)*)`)
	named := 0
	check := func(file, text string) {
		require.NotRegexp(t, page, text, file)
		for _, match := range help.FindAllStringSubmatch(text, -1) {
			for name := range strings.SplitSeq(match[1], ", ") {
				require.True(t, known[name], "%s: wherry help %s", file, name)
				named++
			}
		}
	}
	// These folders hold nothing that anybody reads outside the repository.
	apart := []string{"deploy/kind", "reconcilers/reconcilertest"}
	root := os.DirFS("../..")
	for _, folder := range []string{"agent", "airgap", "bundle", "cmd", "deploy", "hub", "publisher", "published", "reconcilers", "rollout", "scheduler"} {
		require.NoError(t, fs.WalkDir(root, folder, func(name string, entry fs.DirEntry, err error) error {
			switch {
			case err != nil:
				return err
			case entry.IsDir() && (entry.Name() == "testdata" || slices.Contains(apart, name)):
				return fs.SkipDir
			case entry.IsDir() || strings.HasSuffix(name, "_test.go") || path.Ext(name) == ".md":
				return nil
			}
			text, err := fs.ReadFile(root, name)
			if err != nil {
				return err
			}
			if path.Ext(name) == ".go" {
				eachText(t, name, text, check)
			} else if strings.HasPrefix(name, "deploy/") || strings.HasPrefix(name, "publisher/author/scaffold/") || path.Base(name) == "codes.yaml" {
				check(name, string(text))
			}
			return nil
		}))
	}
	require.Greater(t, named, 50)
}

// eachText calls check with each string of a Go file.
func eachText(t *testing.T, name string, source []byte, check func(file, text string)) {
	file, err := parser.ParseFile(token.NewFileSet(), name, source, parser.SkipObjectResolution)
	require.NoError(t, err)
	ast.Inspect(file, func(n ast.Node) bool {
		if lit, ok := n.(*ast.BasicLit); ok && lit.Kind == token.STRING {
			check(name, strings.Trim(lit.Value, "`\""))
		}
		_, isImport := n.(*ast.ImportSpec)
		return !isImport
	})
}
