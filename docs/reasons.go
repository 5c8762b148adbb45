package docs

import (
	"regexp"
	"strings"
	"sync"
)

// Reason is a row of a table of reasons.
type Reason struct {
	Section string      // title of the section, or of the page for a section named Reasons
	File    string      // path of the page, from docs
	Topic   string      // what "wherry help" calls the page
	Cells   [][2]string // the cells after the reason's own, each with the head of its column, in plain text
}

// IsReason reports whether a word has the form of the reasons that agents, adapters and hubs give.
func IsReason(word string) bool {
	return len(word) >= 3 && !strings.ContainsFunc(word, func(r rune) bool { return !('A' <= r && r <= 'Z' || 'a' <= r && r <= 'z') })
}

// reasonPages are the pages with reasons, in the order in which "explain" prints them, and what "wherry help" calls them.
var reasonPages = []struct{ page, topic string }{
	{"operations.md", "operating"},
	{"engines/README.md", "engines"},
	{"engines/ansible.md", "ansible"},
	{"engines/argo-cd.md", "argo-cd"},
	{"engines/directory.md", "directory"},
	{"engines/flux.md", "flux"},
	{"engines/kubernetes.md", "kubernetes"},
	{"engines/zarf.md", "zarf"},
	{"hub.md", "running-a-hub"},
	{"publish.md", "publishing"},
	{"sites/air-gap.md", "air-gap"},
}

// Reasons returns the rows about each reason.
func Reasons() map[string][]Reason {
	all := map[string][]Reason{}
	for _, from := range reasonPages {
		text, _ := withReasons.ReadFile(from.page) // a test reads each
		title, section, heads := "", "", []string(nil)
		for line := range strings.Lines(string(text)) {
			line = strings.TrimSpace(line)
			if name, ok := strings.CutPrefix(line, "# "); ok && title == "" {
				title = name
			}
			if name, ok := strings.CutPrefix(line, "## "); ok {
				section = name
			}
			if !strings.HasPrefix(line, "|") {
				heads = nil
				continue
			}
			cells := strings.Split(strings.Trim(strings.ReplaceAll(line, `\|`, "∣"), "|"), "|")
			for i, c := range cells {
				cells[i] = strings.TrimSpace(strings.ReplaceAll(c, "∣", "|"))
			}
			if heads == nil {
				heads = cells
				continue
			}
			if !strings.HasSuffix(heads[0], "reason") && heads[0] != "reason or message" {
				continue
			}
			row := Reason{Section: section, File: from.page, Topic: from.topic}
			if section == "Reasons" {
				row.Section = title
			}
			for i := 1; i < min(len(cells), len(heads)); i++ {
				row.Cells = append(row.Cells, [2]string{heads[i], plainMarkdown(cells[i])})
			}
			for _, name := range backticked().FindAllStringSubmatch(cells[0], -1) {
				if IsReason(name[1]) {
					all[name[1]] = append(all[name[1]], row)
				}
			}
		}
	}
	return all
}

var (
	backticked   = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile("`([^`]*)`") })
	markdownLink = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)`) })
)

// plainMarkdown is a cell without links and backticks.
func plainMarkdown(s string) string { return strings.ReplaceAll(WithoutLinks(s), "`", "") }

// WithoutLinks returns Markdown with the text of each link in its place.
func WithoutLinks(s string) string { return markdownLink().ReplaceAllString(s, "$1") }
