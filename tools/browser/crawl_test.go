package browser

import (
	"net/url"
	"regexp"
	"slices"
	"strings"

	"github.com/chromedp/cdproto/emulation"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// maxLinks bounds the links that a crawl asks for.
const maxLinks = 2500

// crawl shows pages in the browser, from the given ones on, and calls look for each: one of each kind, and all of the documentation if from has it.
// It requires that each link and each form of these leads to an answer. It returns one path of each kind.
func crawl(p tab, look func(path string), from ...string) (kinds []string) {
	p.Helper()
	queue, known, shown := slices.Clone(from), map[string]bool{}, map[string]bool{}
	allDocs := slices.Contains(from, "/docs/")
	for ; len(queue) > 0; queue = queue[1:] {
		path := queue[0]
		kind := kindOf(path)
		if shown[kind] && (kind != docsPage || !allDocs) || strings.HasPrefix(kind, "/v1/") {
			p.ask(path, nil)
			continue
		}
		if !shown[kind] {
			kinds = append(kinds, path)
		}
		shown[kind] = true
		p.open(path)
		look(path)
		for _, to := range p.links() {
			if !known[to] {
				known[to] = true
				queue = append(queue, to)
			}
		}
		require.LessOrEqual(p, len(known), maxLinks, path)
	}
	return kinds
}

// links returns where the links of a page, and its forms that change nothing, lead within the hub, each once, in order.
func (p tab) links() (all []string) {
	p.Helper()
	for _, link := range script[[]string](p, `[...document.links].map(link => link.href).concat([...document.forms].filter(form => form.method === "get").map(form =>
		new URL(form.getAttribute("action") ?? "", location).href.split("?")[0] + "?" + new URLSearchParams(new FormData(form))))`) {
		to, err := url.Parse(link)
		require.NoError(p, err)
		require.Contains(p, []string{"http", "https"}, to.Scheme, link)
		if strings.HasSuffix(to.Path, ".pdf") { // no page, and TestNoLinkIsDead of docs/site has it
			continue
		}
		if to.Fragment = ""; strings.HasPrefix(link, p.hub+"/") && !slices.Contains(all, to.RequestURI()) {
			all = append(all, to.RequestURI())
		}
	}
	return all
}

var (
	ids  = regexp.MustCompile(`^(/clusters|/environments|/access|/tokens)/[^/?]+`)
	docs = regexp.MustCompile(`^/docs/.*`)
)

const (
	docsPage   = "/docs/PAGE"
	docsSearch = "/docs/search.html" // with scripts alone
)

// kindOf returns the kind of page that a path leads to: its path without names, and whether it is about the past and has a condition.
func kindOf(path string) string {
	path, query, _ := strings.Cut(path, "?")
	kind := docs.ReplaceAllString(ids.ReplaceAllString(path, "$1/ID"), docsPage)
	values, _ := url.ParseQuery(query) // what cannot be parsed is no condition
	if path == docsSearch {
		kind = path
	}
	if values.Get("asOf") != "" {
		kind += " in the past"
	}
	for name, value := range values {
		if name != "asOf" && value[0] != "" {
			return kind + " with a condition"
		}
	}
	return kind
}

// wide returns the elements of the page that are wider than it; none if nobody has to scroll it sideways.
func (p tab) wide() []string {
	p.Helper()
	return script[[]string](p, `document.documentElement.scrollWidth <= document.documentElement.clientWidth ? [] :
		[...document.querySelectorAll("body *")].filter(e => e.getBoundingClientRect().right > document.documentElement.clientWidth + 1).map(e => e.outerHTML.slice(0, 120)).slice(-5)`)
}

// fits requires that the page needs no scrolling to the side, on a telephone and on a desk.
func (p tab) fits(path string) {
	p.Helper()
	for theme, width := range map[string]int64{"dark": 390, "light": 1440} {
		p.look(theme, width)
		assert.Empty(p, p.wide(), "%s, %d px", path, width)
	}
	p.quiet()
}

// each requires that each page that a link or a form leads to is there, looks right, has nothing to complain of, and is for all people; and
// that without scripts it leads to the same. It returns the number of kinds of pages.
func (p tab) each(look func(path string), from ...string) int {
	p.Helper()
	kinds := crawl(p, look, from...)
	scripts := func(off bool) {
		call(p, emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: off})
	}
	judged := map[string]bool{}
	for _, path := range kinds {
		scripts(false)
		p.open(path)
		with := p.links()
		template, past, _ := strings.Cut(kindOf(path), " ")
		if !judged[template] || past != "" && !judged["past"] {
			p.accessible(path)
			judged[template], judged["past"] = true, judged["past"] || past != ""
		}
		scripts(true)
		p.open(path)
		if template != docsSearch {
			require.Equal(p, with, p.links(), path)
		}
	}
	return len(kinds)
}
