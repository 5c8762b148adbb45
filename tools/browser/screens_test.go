package browser

import (
	"flag"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"
)

var (
	screens    = flag.String("screens", "", "write pictures of each page, of fleets of several sizes, into this folder, to look at")
	screensHub = flag.String("screens-hub", "", "also of the hub at this URL, which answers without a token")
)

// sights are the ways to look at a page.
var sights = []struct {
	name, theme   string
	width, height int64
}{
	{"light", "light", 1300, 900},
	{"dark", "dark", 1300, 900},
	{"phone", "light", 320, 700},
	{"4k", "dark", 3840, 2160},
}

// Pictures of pages are to be looked at by people, and not compared: browsers and fonts move. What they are checked for is that nobody has to
// scroll to the side.
func TestScreens(t *testing.T) {
	browser, hubs := chromium(t), map[string]string{}
	sizes := []int{3}
	if *screens != "" {
		sizes = []int{3, 300}
	}
	for _, n := range sizes {
		hubs[fmt.Sprint(n)] = serve(t, t.TempDir(), "--demo", "--demo-clusters", fmt.Sprint(n))
	}
	hubs["0"] = serve(t, t.TempDir(), "--data", "data", "--anonymous")
	if *screensHub != "" {
		hubs["given"] = *screensHub
	}
	for size, hub := range hubs {
		t.Run(size+" clusters", func(t *testing.T) {
			p := newTab(t, browser, hub, "")
			then := url.QueryEscape(time.Now().Add(-36 * time.Hour).UTC().Format(time.RFC3339))
			paths := []string{
				"/", "/?asOf=" + then, "/workloads", "/clusters", "/clusters?environment=prod&state=failed", "/clusters?environment=nope", "/deployments", "/environments", "/environments/prod",
				"/changes", "/search?q=web", "/search?q=zzzz", "/search", "/tokens", "/access", "/audit", "/nothing", "/?asOf=banana",
			}
			for _, more := range []struct{ path, xpath string }{{"/clusters", `//main//tbody//th//a`}, {"/environments/prod", `//main//a[@class="button"]`}, {"/clusters?state=stale", `//main//tbody//th//a`}} {
				run(p, chromedp.Navigate(p.hub+more.path))
				if to := script[string](p, fmt.Sprintf(`document.evaluate(%q, document, null, XPathResult.FIRST_ORDERED_NODE_TYPE).singleNodeValue?.getAttribute("href") ?? ""`, more.xpath)); to != "" {
					paths = append(paths, to)
					if strings.HasPrefix(to, "/clusters/") {
						paths = append(paths, to+"/retire")
					}
				}
			}
			ways := sights
			if *screens == "" {
				ways = ways[2:]
			}
			for _, path := range paths {
				run(p, chromedp.Navigate(p.hub+path)) // of errors too
				for _, s := range ways {
					p.window(s.theme, s.width, s.height)
					require.Empty(p, p.wide(), "%s, %d px", path, s.width)
					if *screens == "" {
						continue
					}
					height := min(script[int64](p, "document.documentElement.scrollHeight"), 3*s.height)
					p.window(s.theme, s.width, max(height, s.height))
					picture := call(p, page.CaptureScreenshot, page.CaptureScreenshotParams{}).Data
					name := fmt.Sprintf("%s-%s-%s.png", size, strings.Trim(strings.NewReplacer("/", "_", "?", "_", "&", "_", "=", "_", ":", "").Replace(path), "_"), s.name)
					require.NoError(p, os.WriteFile(filepath.Join(*screens, name), picture, 0o644))
				}
			}
		})
	}
}

// The longest name that a token may have is cut, and the header of a wide screen stays in one line.
func TestALongNameFitsTheHeader(t *testing.T) {
	folder := t.TempDir()
	hub := serve(t, folder, "--data", "data")
	made := exec.Command(filepath.Join(os.Getenv("WHERRY_E2E_PROGRAMS"), "wherry"), "hub", "access", "create", strings.Repeat("n", 120), "--role", "admin", "--expires", "1d", "--data", "data")
	made.Dir = folder
	token, err := made.Output()
	require.NoError(t, err)
	p := newTab(t, chromium(t), hub, strings.TrimSpace(string(token)))
	p.open("/")
	for _, width := range []int64{320, 700, 1280, 1600} {
		p.window("light", width, 700)
		require.Empty(p, p.wide(), "%d px", width)
	}
	p.window("light", 1280, 700)
	require.Less(p, script[float64](p, `document.querySelector("header").getBoundingClientRect().height`), 60.0)
	require.Less(p, script[float64](p, `document.querySelector(".who span").getBoundingClientRect().height`), 30.0)
}
