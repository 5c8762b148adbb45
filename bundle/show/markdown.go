package show

import (
	"fmt"
	"strings"
	"unicode"

	"github.com/wherry-dev/wherry/bundle/lazyregexp"
)

// apart is an invisible character that keeps what forges look for in rendered text from being found: names after @, numbers after
// # or !, URLs. They look there after Markdown's own escapes are gone.
const apart = "\u200b"

// Markdown returns s as Markdown, on one line: a line break becomes <br>.
func Markdown(s string) string {
	var b strings.Builder
	plain := clean(s)
	list := startsList.FindString(plain)
	for i, r := range plain {
		switch {
		case r == '\n':
			b.WriteString("<br>")
		case r == '_' || r == '*': // no backslash stands before it
			b.WriteString(`\` + string(r))
		// A character reference is no syntax, wherever it stands.
		case strings.ContainsRune("\\`{}[]<>|&$^", r), i == len(list)-1, strings.ContainsRune("-+=", r) && strings.TrimSpace(plain[:i]) == "":
			fmt.Fprintf(&b, "&#%d;", r)
		case strings.ContainsRune("@#!~%", r):
			fmt.Fprintf(&b, "&#%d;%s", r, apart)
		case r == ':' && strings.HasPrefix(plain[i:], "://"), r == '.' && wwwBefore.MatchString(plain[:i]):
			fmt.Fprintf(&b, "&#%d;%s", r, apart)
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}

// MarkdownCode returns s as a code span, without line breaks; empty for an empty s.
func MarkdownCode(s string) string {
	s = strings.TrimSpace(strings.ReplaceAll(clean(s), "\n", " "))
	if s == "" {
		return ""
	}
	if strings.ContainsAny(s, "`|\\") { // which renderers read in different ways in cells
		return "<code>" + Markdown(s) + "</code>"
	}
	return "`" + s + "`"
}

var (
	// startsList finds the beginning of a numbered list.
	startsList = lazyregexp.New(`^\s*\d{1,9}[.)]`)
	wwwBefore  = lazyregexp.New(`(?i)www$`)
)

// clean returns s without what is not printed, such as characters that turn the direction of what follows.
func clean(s string) string {
	s = strings.TrimSpace(strings.ReplaceAll(strings.ToValidUTF8(s, "\ufffd"), "\r", ""))
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\n' || unicode.IsPrint(r):
			return r
		case unicode.IsSpace(r):
			return ' '
		}
		return unicode.ReplacementChar
	}, spaces.ReplaceAllString(s, " "))
}

// spaces are those that Markdown could take for an indented block or a hard line break.
var spaces = lazyregexp.New(`[ \t]+`)
