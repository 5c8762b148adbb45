// Package site makes a web site of the documentation: static files that a browser reads without a network, from a folder or from a hub.
//
// The pages are rendered from those that are in the program, so that a program and its documentation are of one version. What they need is
// beside them; no page has an inline script or style, so that the hub's policy for content holds.
package site

import (
	"bytes"
	"embed"
	"encoding/json"
	"fmt"
	"html/template"
	"io/fs"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	extast "github.com/yuin/goldmark/extension/ast"
	"github.com/yuin/goldmark/parser"
	"github.com/yuin/goldmark/text"
	"github.com/yuin/goldmark/util"

	"github.com/wherry-dev/wherry/docs"
)

// repository has what pages refer to besides pages.
const repository = "https://github.com/wherry-dev/wherry/blob/main/"

//go:embed assets
var assets embed.FS

// Files returns the content of each file of the site, by its path below the site's folder. It is made once; nobody may change it.
var Files = sync.OnceValues(render)

// Handler answers with the files of the site; a request's path is that of a file below the site's folder.
func Handler() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		files, err := Files()
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		name := strings.TrimPrefix(r.URL.Path, "/")
		if name == "" || strings.HasSuffix(name, "/") {
			name += "index.html"
		}
		content, found := files[name]
		if !found {
			http.NotFound(w, r)
			return
		}
		w.Header().Set("Content-Security-Policy", "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'")
		w.Header().Set("Content-Type", contentType(name))
		_, _ = w.Write(content) // the other side may have gone
	})
}

// contentType does not ask the machine, which may have other types.
func contentType(name string) string {
	switch path.Ext(name) {
	case ".html":
		return "text/html; charset=utf-8"
	case ".css":
		return "text/css; charset=utf-8"
	case ".js":
		return "text/javascript; charset=utf-8"
	case ".svg":
		return "image/svg+xml"
	case ".png":
		return "image/png"
	case ".pdf":
		return "application/pdf"
	}
	return "application/octet-stream"
}

// Write writes the site into a folder, which it makes.
func Write(dir string) error {
	files, err := Files()
	if err != nil {
		return err
	}
	for name, content := range files {
		to := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(to, content, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// page is a page of the site, for its template.
type page struct {
	Title string
	Body  template.HTML
	// Up is the way from the page to the site's folder: empty, or ends with a slash.
	Up       string
	Source   string
	Contents []section
	// Rows are those of tables about a code or a reason.
	Rows []section
}

// section is what follows a heading of a page. The search finds sections; each is a row of its index.
type section struct {
	Page   string `json:"page"`
	Title  string `json:"title"`
	Name   string `json:"name"`
	Anchor string `json:"anchor"`
	Text   string `json:"text"`
	level  int
}

// Level is 2 or more, and 1 for the page.
func (s section) Level() int { return s.level }

func render() (map[string][]byte, error) {
	frame, err := template.ParseFS(assets, "assets/page.html")
	if err != nil {
		return nil, err
	}
	var names []string
	if err := fs.WalkDir(docs.Pages, ".", func(name string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			names = append(names, name)
		}
		return err
	}); err != nil {
		return nil, err
	}
	files, index := map[string][]byte{}, []section(nil)
	add := func(name, from string, p page) error {
		var html bytes.Buffer
		p.Up, p.Source = strings.Repeat("../", strings.Count(name, "/")), repository+"docs/"+from
		if err := frame.Execute(&html, p); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		files[name] = html.Bytes()
		return nil
	}
	for _, name := range names {
		source, err := docs.Pages.ReadFile(name)
		if err != nil {
			return nil, err
		}
		if path.Ext(name) != ".md" {
			files[name] = source
			continue
		}
		p, err := markdown(name, source, names)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		if err := add(htmlName(name), name, p); err != nil {
			return nil, err
		}
		index = append(append(index, p.Contents...), p.Rows...)
	}
	if err := add("search.html", "README.md", page{Title: "Search", Body: `<h1>Search</h1><p id="found" role="status">The search needs JavaScript. <a href="index.html">All pages</a></p><ol id="results"></ol>`}); err != nil {
		return nil, err
	}
	for _, name := range []string{"docs.css", "icon.svg", "search.js"} {
		if files[name], err = assets.ReadFile("assets/" + name); err != nil {
			return nil, err
		}
	}
	rows, err := json.Marshal(index)
	// A script and no JSON, since a page from a folder may not read other files.
	files["index.js"] = slices.Concat([]byte("const sections = "), rows, []byte(";\n"))
	return files, err
}

// htmlName is the path in the site of a page's Markdown.
func htmlName(name string) string {
	if path.Base(name) == "README.md" {
		return path.Join(path.Dir(name), "index.html")
	}
	return strings.TrimSuffix(name, ".md") + ".html"
}

// markdown renders a page. Names are those of all pages and pictures.
func markdown(name string, source []byte, names []string) (page, error) {
	md := goldmark.New(goldmark.WithExtensions(extension.GFM), goldmark.WithParserOptions(parser.WithAutoHeadingID()))
	doc := md.Parser().Parse(text.NewReader(source), parser.WithContext(parser.NewContext(parser.WithIDs(anchors{}))))
	var p page
	err := ast.Walk(doc, func(n ast.Node, entering bool) (ast.WalkStatus, error) {
		if !entering {
			return ast.WalkContinue, nil
		}
		switch n := n.(type) {
		case *ast.Link:
			n.Destination = []byte(destination(name, string(n.Destination), names))
		case *ast.Image:
			n.Destination = []byte(destination(name, string(n.Destination), names))
		case *ast.Heading:
			id, _ := n.AttributeString("id")
			anchor, _ := id.([]byte)
			title := plain(n, source)
			if n.Level == 1 && p.Title == "" {
				p.Title = title
			}
			p.Contents = append(p.Contents, section{Page: htmlName(name), Title: p.Title, Name: title, Anchor: string(anchor), level: n.Level})
		case *ast.Paragraph, *ast.TextBlock, *ast.FencedCodeBlock, *ast.CodeBlock:
			p.addText(plain(n, source))
		case *extast.TableRow:
			p.addRow(htmlName(name), n, source)
		case *extast.TableCell:
			p.addText(plain(n, source))
		}
		return ast.WalkContinue, nil
	})
	if err != nil {
		return p, err
	}
	var html bytes.Buffer
	err = md.Renderer().Render(&html, source, doc)
	p.Body = template.HTML(html.String()) // of pages that are in the program; raw HTML in them is left out
	return p, err
}

// code is the form of the codes of findings.
var code = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[EWN][0-9]{4}$`) })

// addRow gives the codes and reasons in a row's first cell an anchor, by which links and the search find them. The anchor is the word
// itself, which no heading has, since those have small letters.
func (p *page) addRow(name string, row *extast.TableRow, source []byte) {
	add := func(n ast.Node, word string) {
		if slices.ContainsFunc(p.Rows, func(s section) bool { return s.Name == word }) {
			return // two rows are about one reason
		}
		n.SetAttributeString("id", []byte(word))
		p.Rows = append(p.Rows, section{Page: name, Title: p.Title, Name: word, Anchor: word, Text: plain(row, source)})
	}
	first := row.FirstChild()
	if word := plain(first, source); code().MatchString(word) {
		add(row, word)
		return
	}
	for n := first.FirstChild(); n != nil; n = n.NextSibling() {
		if word := plain(n, source); n.Kind() == ast.KindCodeSpan && reasons()[word] != nil {
			add(n, word)
		}
	}
}

var reasons = sync.OnceValue(docs.Reasons)

func (p *page) addText(s string) {
	if len(p.Contents) > 0 {
		last := &p.Contents[len(p.Contents)-1]
		last.Text = strings.TrimSpace(last.Text + " " + s)
	}
}

// plain is the text of a node without its marks.
func plain(n ast.Node, source []byte) string {
	var b strings.Builder
	if n.Type() == ast.TypeBlock && (n.Kind() == ast.KindFencedCodeBlock || n.Kind() == ast.KindCodeBlock) {
		b.Write(n.Lines().Value(source))
	}
	_ = ast.Walk(n, func(n ast.Node, entering bool) (ast.WalkStatus, error) { // no error is returned
		if entering {
			switch n := n.(type) {
			case *ast.Text:
				b.Write(n.Value(source))
				if n.SoftLineBreak() {
					b.WriteByte(' ')
				}
			case *ast.String:
				b.Write(n.Value)
			case *ast.AutoLink:
				b.Write(n.Label(source))
			}
		}
		return ast.WalkContinue, nil
	})
	return strings.Join(strings.Fields(b.String()), " ")
}

// destination is where a link of a page leads in the site: to another page, to a picture, or to the repository.
func destination(from, to string, names []string) string {
	file, anchor, _ := strings.Cut(to, "#")
	if file == "" || strings.Contains(to, ":") {
		return to
	}
	if anchor != "" {
		anchor = "#" + anchor
	}
	name := path.Join(path.Dir(from), file)
	if !slices.Contains(names, name) {
		return repository + path.Join("docs", name) + anchor
	}
	if path.Ext(name) != ".md" {
		return file
	}
	return path.Join(path.Dir(file), path.Base(htmlName(name))) + anchor
}

// anchors makes the ids of a page's headings as forges do, so that one link holds for both.
type anchors map[string]bool

func (a anchors) Generate(value []byte, _ ast.NodeKind) []byte {
	id := strings.Map(func(r rune) rune {
		switch {
		case r == ' ' || r == '-':
			return '-'
		case r == '_' || r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r > 127:
			return r
		case r >= 'A' && r <= 'Z':
			return r + 'a' - 'A'
		}
		return -1
	}, strings.TrimSpace(string(util.UnescapePunctuations(value))))
	unique := id
	for n := 1; a[unique]; n++ {
		unique = fmt.Sprintf("%s-%d", id, n)
	}
	a[unique] = true
	return []byte(unique)
}

func (a anchors) Put(value []byte) { a[string(value)] = true }
