package site_test

import (
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/docs"
	"github.com/wherry-dev/wherry/docs/site"
	"github.com/wherry-dev/wherry/scheduler/finding"
)

// A link of a page leads to a page of the site, and to a heading that it has; one to the repository, to a file of it.
func TestNoLinkIsDead(t *testing.T) {
	files, err := site.Files()
	require.NoError(t, err)
	links := regexp.MustCompile(`(?:href|src|action)="([^"]*)"`)
	internal, repository := 0, 0
	for name, content := range files {
		if path.Ext(name) != ".html" {
			continue
		}
		for _, m := range links.FindAllStringSubmatch(string(content), -1) {
			to, anchor, _ := strings.Cut(m[1], "#")
			if source, is := strings.CutPrefix(to, "https://github.com/wherry-dev/wherry/blob/main/"); is {
				_, err := os.Stat(filepath.Join("../..", source))
				require.NoErrorf(t, err, "%s: %s", name, m[1])
				repository++
				continue
			}
			if strings.Contains(to, ":") {
				continue
			}
			target := name
			if to != "" {
				target = path.Join(path.Dir(name), to)
			}
			require.Containsf(t, files, target, "%s: %s", name, m[1])
			internal++
			if anchor != "" {
				require.Containsf(t, string(files[target]), ` id="`+anchor+`"`, "%s: %s", name, m[1])
			}
		}
	}
	require.Greater(t, internal, 500)
	require.Greater(t, repository, 50)
}

// "wherry explain" names the topic of a code or reason, and the search its place.
func TestEachCodeAndReasonHasAnAnchor(t *testing.T) {
	files, err := site.Files()
	require.NoError(t, err)
	words := map[string][]string{} // of pages
	for _, e := range finding.Explanations() {
		words["reference/findings.html"] = append(words["reference/findings.html"], e.Code)
	}
	for name, rows := range docs.Reasons() {
		for _, r := range rows {
			page := strings.TrimSuffix(r.File, ".md") + ".html"
			page = strings.ReplaceAll(page, "README.html", "index.html")
			words[page] = append(words[page], name)
		}
	}
	require.Greater(t, len(words), 10)
	for page, all := range words {
		for _, word := range all {
			require.Contains(t, string(files[page]), ` id="`+word+`"`, page)
			require.Contains(t, string(files["index.js"]), `{"page":"`+page+`","title":`, page)
			require.Contains(t, string(files["index.js"]), `"name":"`+word+`","anchor":"`+word+`"`, page)
		}
	}
}

// The hub's policy for content refuses what stands in the page, and a program has no room for more.
func TestTheSiteNeedsNothingButItself(t *testing.T) {
	files, err := site.Files()
	require.NoError(t, err)
	inline, size := regexp.MustCompile(`<style|<script(?:>| [^>]*>[^<])| style=| on[a-z]+="|src="http`), 0
	for name, content := range files {
		size += len(content)
		if path.Ext(name) == ".html" {
			require.Emptyf(t, inline.FindString(string(content)), "%s", name)
		}
	}
	require.Less(t, size, 3<<20)
	require.Contains(t, string(files["index.js"]), "NoRelease", "the search finds a reason by its name")
}

func TestAHubAnswersWithTheSite(t *testing.T) {
	get := func(name string) *httptest.ResponseRecorder {
		w := httptest.NewRecorder()
		http.StripPrefix("/docs", site.Handler()).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/docs"+name, nil))
		return w
	}
	for name, has := range map[string]string{"/": "<h1 id=\"documentation\"", "/sites/air-gap.html": `href="../docs.css"`, "/engines/": "<title>", "/concepts.svg": "<svg"} {
		w := get(name)
		require.Equal(t, http.StatusOK, w.Code, name)
		require.Contains(t, w.Body.String(), has, name)
		require.Contains(t, w.Header().Get("Content-Security-Policy"), "script-src 'self'")
	}
	for _, name := range []string{"/nowhere.html", "/../site.go", "/README.md"} {
		require.Equal(t, http.StatusNotFound, get(name).Code, name)
	}
}

func TestTheSiteIsWritten(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new", "site")
	require.NoError(t, site.Write(dir))
	written, err := os.ReadFile(filepath.Join(dir, "sites", "air-gap.html"))
	require.NoError(t, err)
	files, err := site.Files()
	require.NoError(t, err)
	require.Equal(t, string(files["sites/air-gap.html"]), string(written))
}

// Words of our own once stood for what the field has a word for: ring, reject, desired, previous.
func TestPagesUseTheWordsOfTheField(t *testing.T) {
	ours := regexp.MustCompile(`(?i)\b(lanes?|bur(?:y|ied)|lent|meant|former|keepsake|crew|fate)\b`)
	code := regexp.MustCompile("(?s)```.*?```|`[^`]*`")
	pages := 0
	require.NoError(t, fs.WalkDir(docs.Pages, ".", func(name string, _ fs.DirEntry, err error) error {
		if err != nil || path.Ext(name) != ".md" {
			return err
		}
		text, err := fs.ReadFile(docs.Pages, name)
		pages++
		for _, found := range ours.FindAllString(code.ReplaceAllString(string(text), ""), -1) {
			t.Errorf("docs/%s says %q", name, found)
		}
		return err
	}))
	require.Greater(t, pages, 40)
}
