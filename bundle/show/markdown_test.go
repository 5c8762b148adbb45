package show

import (
	"bytes"
	"html"
	"math/rand/v2"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	gfm "github.com/yuin/goldmark/extension/ast"
	renderer "github.com/yuin/goldmark/renderer/html"
	"github.com/yuin/goldmark/text"
)

func TestText(t *testing.T) {
	for s, want := range map[string]string{
		"":                         "",
		"till-main on edge: 1.2.3": "till-main on edge: 1.2.3",
		`\[x](http://evil)`:        "&#92;&#91;x&#93;(http&#58;\u200b//evil)",
		`a\|b`:                     "a&#92;&#124;b",
		"@team, see #12":           "&#64;\u200bteam, see &#35;\u200b12",
		"a\nb":                     "a<br>b",
		"1. one":                   "1&#46; one",
		"- one":                    "&#45; one",
		"a\u202eb\x1b[2J":          "a\ufffdb\ufffd&#91;2J",
		"www.evil.example":         "www&#46;\u200bevil.example",
	} {
		require.Equal(t, want, Markdown(s), "%q", s)
	}
	for s, want := range map[string]string{"": "", "a/b": "`a/b`", "a|b": "<code>a&#124;b</code>", "a`b": "<code>a&#96;b</code>", " \n": ""} {
		require.Equal(t, want, MarkdownCode(s), "%q", s)
	}
}

var tags = regexp.MustCompile(`</?[a-z][^>]*>`)

// check parses Markdown with s in a sentence, at the beginning of a line, in a list and in cells, as a GFM parser does, and
// requires that nothing comes of it but its own text.
func check(t *testing.T, s string) {
	parser := goldmark.New(goldmark.WithExtensions(extension.GFM, extension.Footnote), goldmark.WithRendererOptions(renderer.WithUnsafe()))
	source := []byte("Said: " + Markdown(s) + "\n\n" + Markdown(s) + "\n\n- one " + Markdown(s) + "\n\n| a | b |\n|-|-|\n| " + Markdown(s) + " | " + MarkdownCode(s) + " |\n| c | d |\n")
	document := parser.Parser().Parse(text.NewReader(source))
	rows, cells, lists := 0, 0, 0
	require.NoError(t, ast.Walk(document, func(n ast.Node, entering bool) (ast.WalkStatus, error) {
		if !entering {
			return ast.WalkContinue, nil
		}
		switch n := n.(type) {
		case *ast.Document, *ast.Paragraph, *ast.Text, *ast.String, *ast.TextBlock, *gfm.Table, *gfm.TableHeader:
		case *ast.List, *ast.ListItem:
			lists++
		case *ast.CodeSpan:
			require.IsType(t, &gfm.TableCell{}, n.Parent(), "%q: %s", s, source)
		case *gfm.TableRow:
			rows++
		case *gfm.TableCell:
			cells++
		case *ast.RawHTML:
			raw := string(n.Segments.Value(source))
			require.Contains(t, []string{"<br>", "<code>", "</code>"}, raw, "%q: %s", s, source)
		default:
			t.Fatalf("%q became %s: %s", s, n.Kind(), source)
		}
		return ast.WalkContinue, nil
	}))
	require.Equal(t, 2, rows, "%q: %s", s, source)
	require.Equal(t, 6, cells, "%q: %s", s, source)
	require.Equal(t, 2, lists, "%q: %s", s, source)

	var out bytes.Buffer
	require.NoError(t, parser.Renderer().Render(&out, source, document))
	plain := func(line string) string {
		return strings.TrimSpace(strings.ReplaceAll(html.UnescapeString(tags.ReplaceAllString(strings.ReplaceAll(line, "<br>", "\n"), "")), apart, ""))
	}
	want := strings.ReplaceAll(clean(s), apart, "")
	_, rest, _ := strings.Cut(out.String(), "<p>Said: ")
	said, _, _ := strings.Cut(rest, "</p>")
	require.Equal(t, strings.TrimSpace(want), plain(said), "%q: %s", s, source)
	for _, mention := range []string{"@", "#", "!"} { // which forges find in what is rendered
		for _, found := range regexp.MustCompile(regexp.QuoteMeta(mention)+`\w`).FindAllString(html.UnescapeString(said), -1) {
			t.Fatalf("%q: %q is found in %s", s, found, said)
		}
	}
	require.NotContains(t, html.UnescapeString(said), "://", "%q", s)
}

var nasty = []string{
	`\`, "|", "`", "``", "*", "**", "_", "[", "]", "(", ")", "<", ">", "&", "!", "#", "@", "~", "~~", "-", "+", "=", "1.", "1)", ":", "://", "http", "https://", "www.", "evil.example", "x@y.example",
	"\n", "\r\n", "\t", "    ", "\n\n", "---", "===", "```", "~~~", "> ", "- [ ] ", "[^1]", "[x]: /u", "<br>", "<a href=x>", "<!--", "-->", "&lt;", "&#124;", "$", "$$", "^", "a", "B", "7", "é", "\u202e", "\u200b", "\x00", "\x1b", "\xff", `"`, "'", "{", "}", "%",
	`\|`, `\[`, `\\|`, "`|`", "![i](u)", "[l](u)", "<http://e>", "GH-1", "o/r#1", "javascript:",
}

// Whatever is put together of what Markdown knows stays text.
func TestNothingComesOfText(t *testing.T) {
	random := rand.New(rand.NewPCG(33, 6))
	for _, s := range nasty {
		check(t, s)
	}
	for range 20_000 {
		var s strings.Builder
		for range random.IntN(8) {
			s.WriteString(nasty[random.IntN(len(nasty))])
		}
		check(t, s.String())
	}
}

func FuzzText(f *testing.F) {
	for _, s := range nasty {
		f.Add(s + "x" + s)
	}
	f.Fuzz(check)
}
