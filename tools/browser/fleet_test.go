package browser

import (
	"crypto/sha256"
	"fmt"
	"html"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/stretchr/testify/require"
)

// What people want to know, and how they find it on the pages of the sample fleet.
func TestTheSampleFleet(t *testing.T) {
	browser, hub := chromium(t), serve(t, t.TempDir(), "--demo")
	for _, test := range []struct {
		name string
		run  func(tab)
	}{
		{"which sites run this image, and which of them are silent", testImage},
		{"the failing assignment of a cluster, by keyboard", testKeyboard},
		{"the same, with the keys of lists", testKeys},
		{"what ran at this site on that day", testPast},
		{"what ran at this site at that time, and who approved it, on paper", testPrinted},
		{"a viewer of one team sees no other team's anything", testOneTeam},
		{"what changed in the last hour, and did anything go back", testChanges},
		{"an error is a page", testError},
		{"each page", func(p tab) {
			then := url.QueryEscape(time.Now().Add(-36 * time.Hour).UTC().Format(time.RFC3339))
			kinds := p.each(p.fits, "/", "/docs/", "/?asOf="+then, "/clusters?state=failed&asOf="+then, "/search?q=web", "/docs/search.html?q=failed")
			require.Greater(p, kinds, 20)
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			p := newTab(t, browser, hub, "")
			p.look("light", 1300)
			test.run(p)
		})
	}
}

func testError(p tab) {
	run(p, chromedp.Navigate(p.hub+"/clusters/nobody"))
	require.Equal(p, "There is nothing of this name", p.text("h1"))
	require.Len(p, p.said.all, 1, "the status alone")
	p.said.all = nil
	p.fits("/clusters/nobody")
	p.accessible("/clusters/nobody")
	p.follow(`//nav//a[.="Clusters"]`)
}

func testImage(p tab) {
	const name, tag = "registry.example/shop/web", "1.1.0"
	p.open("/")
	p.write("q", fmt.Sprintf("sha256:%x", sha256.Sum256([]byte(name+tag)))) // as the sample fleet computes it
	require.Len(p, p.rows(), 1)
	p.follow(`//main//a[.="` + name + ":" + tag + `"]`)
	require.Contains(p, p.text("main .filters"), "image=")
	all := p.rows()
	require.Equal(p, strconv.Itoa(len(all))+" clusters", p.text("main .count"))
	var silent, carried []string
	for _, row := range all {
		if strings.Contains(row["Last seen"], "by medium") {
			carried = append(carried, row[""])
		}
		if strings.Contains(row["State"], "silent") {
			silent = append(silent, row[""])
		}
	}
	require.NotEmpty(p, silent)
	require.Less(p, len(silent), len(all))

	// Those in the isles have no link: somebody brings them a medium.
	p.follow(`//aside//a[contains(., "isles")]`)
	var isles []string
	for _, row := range p.rows() {
		isles = append(isles, row[""])
	}
	require.NotEmpty(p, carried)
	require.ElementsMatch(p, carried, isles)
	p.follow(`//main//a[@class="chip" and contains(., "selector=")]`)
	require.Len(p, p.rows(), len(all))

	p.follow(`//aside//a[contains(., "silent")]`)
	require.Contains(p, p.text("aside [aria-current]"), "silent")
	var shown []string
	for _, row := range p.rows() {
		require.Regexp(p, `\d+[dh] ago`, row["Last seen"])
		shown = append(shown, row[""])
	}
	require.ElementsMatch(p, silent, shown)
}

// stop is where Tab stops.
type stop struct {
	Tag, Text string
	// Ring is true if the focus has an outline, and Inside if it is in the window.
	Ring, Inside bool
}

// tab presses Tab, and returns where the focus is then; no tag is the page itself, after the last stop.
func (p tab) tab() (at stop) {
	p.Helper()
	run(p, chromedp.KeyEvent(kb.Tab))
	return script[stop](p, `(at => {
		if (at === document.body) return {};
		const box = at.getBoundingClientRect(), style = getComputedStyle(at);
		return {Tag: at.tagName, Text: at.innerText || at.name, Ring: style.outlineStyle !== "none" && parseFloat(style.outlineWidth) > 0,
			Inside: box.top >= 0 && box.bottom <= innerHeight && box.left >= 0 && box.right <= innerWidth};
	})(document.activeElement)`)
}

// enter presses Tab until the focus is on a link with a text, and then Enter.
func (p tab) enter(within, text string) {
	p.Helper()
	for at := p.tab(); !strings.Contains(at.Text, text) || !script[bool](p, fmt.Sprintf("document.activeElement.closest(%q) !== null", within)); at = p.tab() {
		require.NotEmpty(p, at.Tag, "no link %q on %s", text, p.path())
	}
	p.leads(chromedp.KeyEvent(kb.Enter))
}

func testKeyboard(p tab) {
	p.open("/")
	p.enter(".needs", "failed at its commit")
	p.enter("tbody th", "prod-store-")
	failing := 0
	for _, row := range p.rows() {
		if strings.Contains(row["State"], "failed") {
			require.Equal(p, "shop/web", row[""])
			require.Contains(p, row["Why"], "DeadlineExceeded")
			require.Contains(p, row["Why"], "0 of 2 replicas")
			failing++
		}
	}
	require.Equal(p, 1, failing)
	// Tab stops at all that a mouse can click on, in view, and shows where.
	for _, path := range []string{p.path(), "/", "/workloads", "/clusters?state=failed"} {
		p.open(path)
		stops := script[int](p, `[...document.querySelectorAll("a[href], input:not([type=hidden]), button, summary")].filter(e => e.checkVisibility()).length`)
		for n := range stops {
			at := p.tab()
			require.True(p, at.Tag != "" && at.Ring && at.Inside, "%s: stop %d of %d: %+v", path, n, stops, at)
		}
		require.Empty(p, p.tab().Tag, path)
	}
}

// press presses a key that stays on the page.
func (p tab) press(key string) {
	p.Helper()
	for _, kind := range []input.DispatchKeyEventType{input.DispatchKeyEventTypeKeyDown, input.DispatchKeyEventTypeKeyUp} { // what a page takes is not written into a field, as with a keyboard
		event := input.DispatchKeyEventParams{Type: kind, Key: key}
		if kind == input.DispatchKeyEventTypeKeyDown && len(key) == 1 {
			event.Text = key
		}
		call(p, input.DispatchKeyEvent, event)
	}
}

// row is the text of the row that has the focus.
func (p tab) row() string {
	p.Helper()
	return script[string](p, `document.activeElement.closest("tr, li")?.innerText ?? ""`)
}

func testKeys(p tab) {
	p.open("/clusters?environment=prod&state=failed")
	name := p.rows()[1][""]
	p.open("/")
	p.press("/")
	require.Equal(p, "q", script[string](p, "document.activeElement.name"))
	for _, letter := range name { // of which some are keys of lists
		p.press(string(letter))
	}
	p.leads(chromedp.KeyEvent(kb.Enter))
	p.press("j")
	require.Contains(p, p.row(), name)
	p.leads(chromedp.KeyEvent("o"))
	require.Equal(p, name, p.text("h1"))
	p.press("j")
	require.Contains(p, p.row(), "failed", "the worst is the first row")
	require.Contains(p, p.row(), "0 of 2 replicas")
	first := p.row()
	p.press("j")
	require.NotEqual(p, first, p.row())
	require.NotContains(p, p.row(), "failed")
	p.press("k")
	p.press("k") // there is none before
	require.Equal(p, first, p.row())

	p.press("?")
	require.Contains(p, p.text("dialog[open]"), "next and previous row")
	p.press("j")
	require.True(p, script[bool](p, `document.activeElement.closest("dialog") !== null`), "the help is open")
	p.accessible(p.path())
	run(p, chromedp.KeyEvent(kb.Escape))
	require.Empty(p, p.text("dialog[open]"))
	p.quiet()
}

func testPast(p tab) {
	p.open("/clusters?environment=prod&type=store&state=failed")
	p.follow(`//main//tbody//th//a`)
	name := p.text("h1")
	require.Contains(p, p.text("main"), "1.2.0")
	run(p, chromedp.Click(chromedp.Search(`//summary[.="Another time"]`), chromedp.NodeVisible))
	day := time.Now().UTC().Add(-48 * time.Hour).Format(time.DateOnly)
	p.write("asOf", day)
	require.Equal(p, name, p.text("h1"))
	web := ""
	for _, row := range p.rows() {
		if row[""] == "shop/web" {
			web = row["Version"]
		}
	}
	require.Equal(p, "1.0.0", web)
	// On paper it says of when it is, and has the times.
	pdf := run(p, chromedp.PrintToPDF())
	require.Equal(p, "%PDF-", string(pdf[:5]))
	call(p, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Media: "print"})
	require.Contains(p, p.text(".then"), "As it was at "+day)
	require.Equal(p, []string{"none", "none"}, script[[]string](p, `[...document.querySelectorAll("nav, .filters")].map(e => getComputedStyle(e).display)`))
	require.Empty(p, script[[]string](p, `[...document.querySelectorAll("main time[title]")].filter(time => !getComputedStyle(time, "::after").content.includes(time.title)).map(time => time.outerHTML)`))
	for _, link := range p.links() {
		require.True(p, strings.Contains(link, "asOf="+day) || link == "/docs/" || strings.HasPrefix(link, "/search") || !strings.Contains(link, "?"), link)
	}
}

func testPrinted(p tab) {
	p.open("/clusters?environment=prod&type=store&state=failed&ring=early")
	p.follow(`//main//tbody//th//a`)
	name, then := p.text("h1"), time.Now().UTC().Add(-20*time.Hour).Format(time.RFC3339)
	run(p, chromedp.Click(chromedp.Search(`//summary[.="Another time"]`), chromedp.NodeVisible))
	p.write("asOf", then)
	printed := run(p, chromedp.PrintToPDF())
	paper := textOf(p, printed)
	for _, fact := range []string{name, "As it was at " + then, "Who let its commit in", "dora approve e600c0cb from stage", "anna approve e600c0cb from stage"} {
		require.Contains(p, paper, strings.ReplaceAll(fact, " ", ""))
	}
	require.Regexp(p, `shop/?w?ebprod[a-z]*1\.1\.0`, paper, "letters that are set closer may be missing")
	require.NotContains(p, paper, "1.2.0", "that came later")
	require.NotContains(p, paper, "Anothertime", "nothing to press on paper")
	// The decisions came before the moment, and have their times.
	require.Regexp(p, `hago\(20\d\d-\d\d-\d\dT[\d:]{8}Z\)dora`, paper)
}

func testChanges(p tab) {
	p.open("/")
	p.follow(`//nav//a[.="Changes"]`)
	var back []string
	last := time.Now()
	for _, row := range p.rows() {
		times := strings.Fields(row["times"])
		at, err := time.Parse(time.RFC3339, times[0])
		require.NoError(p, err)
		require.False(p, at.After(last), "newest first")
		if last = at; time.Since(at) < time.Hour && strings.Contains(row["Change"], "↺") {
			back = append(back, row["Of"]+" "+row["Change"]+", "+row["Clusters"]+" clusters")
		}
	}
	require.Equal(p, []string{
		"shop/web ↺ version 1.2.0 → 1.1.0, back to what ran before, 2 clusters",
		"shop/menu ↺ version 1.4.0 → 1.0.0, back to what ran before, 2 clusters",
		"cluster ↺ release 8 (488cd386) → 5 (5be5237b), back to what ran before, 2 clusters",
	}, back)
	require.Contains(p, p.text("main"), "web 1.2.0 does not become ready in ring early")
}

// testOneTeam goes through all that a viewer of the workspace shop can ask, as a page and as a program.
func testOneTeam(p tab) {
	made := p.ask("/v1/access", map[string]any{"name": "shop", "role": "viewer", "workspaces": []string{"shop"}})
	p = newTab(p.T, p.parent, p.hub, regexp.MustCompile(`wha_[^"]+`).FindString(made))
	others := regexp.MustCompile(`payments|ledger|\btill\b|\bops\b|monitor|-depot-`)
	hears := func(path string) {
		for _, accept := range []string{"text/html", "application/json"} {
			if strings.HasPrefix(path, "/docs/") {
				continue
			}
			status, body := p.answer(path, accept)
			body = strings.NewReplacer(path, "", html.EscapeString(path), "").Replace(body) // what the viewer has asked for
			require.Empty(p, others.FindAllString(body, -1), "%s as %s: %d %s", path, accept, status, body)
		}
	}
	pages := crawl(p, func(path string) {
		p.look("light", 1300)
		hears(path)
	}, "/", "/workloads", "/clusters", "/changes?environment=prod", "/search?q=sto")
	require.Greater(p, len(pages), 12)
	for _, name := range []string{"till", "ledger", "monitor", "payments", "ops", "depot"} { // an error names what it knows, and none of these
		for _, path := range []string{
			"/deployments?workload=" + name, "/deployments?workspace=" + name, "/v1/counts?of=deployments&by=workload&workload=" + name, "/v1/search?q=" + name, "/search?q=" + name,
			"/clusters?type=" + name, "/clusters/prod-" + name + "-003", "/v1/facets?of=clusters&by=type&workload=" + name,
		} {
			_, body := p.answer(path, "text/html")
			require.Empty(p, others.FindAllString(strings.ReplaceAll(body, name, ""), -1), path)
		}
	}
	for _, path := range []string{
		"/v1/counts?of=deployments&by=workspace,workload", "/v1/counts?of=clusters&by=type", "/v1/facets?of=clusters&by=type,state", "/v1/deployments", "/v1/clusters", "/v1/history", "/v1/releases",
		"/v1/environments", "/v1/drift", "/v1/events?follow=false&after=0", "/v1/search?q=on", "/v1/compare?left=environment%3Dstage&right=environment%3Dprod", "/v1/decisions?platform=coffee&environment=prod",
	} {
		hears(path)
	}
	require.Contains(p, p.ask("/v1/counts?of=deployments&by=workload", nil), `"web"`, "it is not all refused")
	require.Contains(p, p.ask("/v1/events?follow=false&after=0", nil), `"workload":"menu"`)
	status, _ := p.answer("/v1/access", "application/json")
	require.Equal(p, http.StatusForbidden, status)
}
