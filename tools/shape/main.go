// Command shape prints the size of each package below a folder as a Markdown table: files, lines of code without
// comments and blank lines, exported names, and the struct with the most fields. Tests are left out.
//
//	go run -C tools ./shape "$PWD"
//
// Packages of one file and those of tests are counted in the totals alone; -all lists them too.
package main

import (
	"cmp"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/scanner"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// size is that of a package.
type size struct {
	files, lines, exported, fields int
	largest                        string // the struct with the most fields
}

func main() {
	all := flag.Bool("all", false, "list small packages and packages for tests too")
	flag.Parse()
	if flag.NArg() != 1 {
		fmt.Fprintln(os.Stderr, "usage: shape [-all] CHECKOUT")
		os.Exit(2)
	}
	sizes, err := measure(flag.Arg(0))
	if err != nil {
		fmt.Fprintln(os.Stderr, "shape:", err)
		os.Exit(1)
	}
	fmt.Print("| package | files | code lines | exported names | largest struct |\n|-|-|-|-|-|\n")
	var total size
	folders := map[string]int{}
	for _, dir := range slices.Sorted(maps.Keys(sizes)) {
		s := sizes[dir]
		total.files, total.lines, total.exported = total.files+s.files, total.lines+s.lines, total.exported+s.exported
		folder, _, _ := strings.Cut(dir, "/")
		folders[folder] += s.lines
		if *all || s.files > 1 && !strings.HasSuffix(dir, "test") {
			fmt.Printf("| `%s` | %d | %d | %d | %s |\n", dir, s.files, s.lines, s.exported, s.largest)
		}
	}
	fmt.Printf("| all %d packages | %d | %d | %d | |\n\n", len(sizes), total.files, total.lines, total.exported)
	var list []string
	for _, folder := range slices.Sorted(maps.Keys(folders)) {
		list = append(list, fmt.Sprintf("%s %d", folder, folders[folder]))
	}
	fmt.Printf("Code lines by folder: %s.\n", strings.Join(list, ", "))
}

// measure returns the sizes by folder. Nested modules and testdata are no packages of this one.
func measure(root string) (map[string]size, error) {
	sizes := map[string]size{}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			_, nested := os.Stat(filepath.Join(path, "go.mod"))
			if path != root && (nested == nil || d.Name() == "testdata" || strings.HasPrefix(d.Name(), ".")) {
				return filepath.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return nil
		}
		dir, err := filepath.Rel(root, filepath.Dir(path))
		if err != nil {
			return err
		}
		s := sizes[dir]
		err = s.add(path)
		sizes[dir] = s
		return err
	})
	return sizes, err
}

func (s *size) add(path string) error {
	src, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	set := token.NewFileSet()
	file, err := parser.ParseFile(set, path, src, parser.SkipObjectResolution)
	if err != nil {
		return err
	}
	s.files++
	s.lines += codeLines(src)
	for _, d := range file.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			if d.Recv == nil && d.Name.IsExported() {
				s.exported++
			}
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				s.spec(spec)
			}
		}
	}
	return nil
}

func (s *size) spec(spec ast.Spec) {
	switch spec := spec.(type) {
	case *ast.ValueSpec:
		for _, name := range spec.Names {
			if name.IsExported() {
				s.exported++
			}
		}
	case *ast.TypeSpec:
		if spec.Name.IsExported() {
			s.exported++
		}
		t, ok := spec.Type.(*ast.StructType)
		if !ok {
			return
		}
		n := 0
		for _, f := range t.Fields.List {
			n += cmp.Or(len(f.Names), 1)
		}
		if n > s.fields {
			s.fields, s.largest = n, fmt.Sprintf("%s, %d fields", spec.Name.Name, n)
		}
	}
}

// codeLines counts the lines that hold a token, with all lines of a text in backquotes.
func codeLines(src []byte) int {
	var sc scanner.Scanner
	set := token.NewFileSet()
	file := set.AddFile("", set.Base(), len(src))
	sc.Init(file, src, nil, 0)
	lines := map[int]bool{}
	for {
		pos, tok, text := sc.Scan()
		if tok == token.EOF {
			return len(lines)
		}
		if tok == token.SEMICOLON && text == "\n" {
			continue
		}
		first := file.Line(pos)
		for i := range 1 + strings.Count(text, "\n") {
			lines[first+i] = true
		}
	}
}
