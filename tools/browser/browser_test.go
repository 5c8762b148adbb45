// Package browser tests the pages of a hub in Chromium, by what a person sees and presses.
//
// The programs are those that WHERRY_E2E_PROGRAMS names; "make browser-check" builds them. Nothing here waits for a time: a test goes on
// when the browser says that a page is loaded.
package browser

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/stretchr/testify/require"
)

// serve starts "wherry hub serve" on a free port of loopback, in a folder, and returns its address. It ends with the test.
func serve(t *testing.T, folder string, flags ...string) (url string) {
	t.Helper()
	programs := os.Getenv("WHERRY_E2E_PROGRAMS")
	require.NotEmpty(t, programs, "run make browser-check, which builds the programs")
	cmd := exec.CommandContext(t.Context(), filepath.Join(programs, "wherry"), append([]string{"hub", "serve", "--addr", "127.0.0.1:0"}, flags...)...)
	var log strings.Builder
	cmd.Dir, cmd.Stderr = folder, &log
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 10 * time.Second
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Wait() // interrupted
		if t.Failed() {
			t.Logf("the hub's log:\n%s", &log)
		}
	})
	said := bufio.NewReader(out)
	for url == "" {
		line, err := said.ReadString('\n')
		require.NoError(t, err, line)
		url = regexp.MustCompile(`http://127\.0\.0\.1:\d+`).FindString(line)
	}
	return url
}

// chromium starts a browser, which ends with the test.
func chromium(t *testing.T) context.Context {
	t.Helper()
	var program string
	for _, name := range []string{"google-chrome", "chromium-browser", "chromium"} {
		if path, err := exec.LookPath(name); err == nil {
			program = path
		}
	}
	if program == "" {
		require.NotContains(t, strings.Split(os.Getenv("WHERRY_REQUIRE"), ","), "browser", "chromium is missing")
		t.Skip("chromium is missing")
	}
	options := append(slices.Clone(chromedp.DefaultExecAllocatorOptions[:]), chromedp.ExecPath(program), chromedp.NoSandbox)
	ctx, end := chromedp.NewExecAllocator(t.Context(), options...)
	t.Cleanup(end)
	ctx, end = chromedp.NewContext(ctx)
	t.Cleanup(end)
	require.NoError(t, chromedp.Do(ctx))
	return ctx
}

// tab is a tab of a browser that shows pages of a hub.
type tab struct {
	*testing.T
	ctx context.Context
	// parent is the browser.
	parent context.Context
	hub    string
	// token is sent to the hub, unless it is empty.
	token string
	// said are errors and messages on the console, which has violations of the policy for content and files that are missing, and dialogs.
	said *messages
}

type messages struct {
	sync.Mutex
	all []string
}

// newTab returns a tab that ends with the test.
func newTab(t *testing.T, browser context.Context, hub, token string) tab {
	t.Helper()
	ctx, end := chromedp.NewContext(browser)
	t.Cleanup(end)
	p := tab{t, ctx, browser, hub, token, &messages{}}
	say := func(format string, args ...any) {
		p.said.Lock()
		defer p.said.Unlock()
		p.said.all = append(p.said.all, fmt.Sprintf(format, args...))
	}
	require.NoError(t, chromedp.Listen(ctx, func(event any) {
		switch e := event.(type) {
		case *runtime.EventConsoleAPICalled:
			say("console: %s", e.Type)
		case *runtime.EventExceptionThrown:
			say("script: %s", e.ExceptionDetails.Text)
		case *log.EventEntryAdded:
			say("%s: %s %s", e.Entry.Level, e.Entry.Text, e.Entry.URL)
		case *page.EventJavascriptDialogOpening:
			say("dialog: %s", e.Message)
			go func() { // a listener may send nothing itself
				_, _ = chromedp.Call(ctx, page.HandleJavaScriptDialog, page.HandleJavaScriptDialogParams{}) // the tab may have gone
			}()
		}
	}))
	if token != "" {
		call(p, network.SetExtraHTTPHeaders, network.SetExtraHTTPHeadersParams{Headers: network.Headers{"Authorization": "Bearer " + token}})
	}
	return p
}

// timeout bounds one step. It is far above what a step takes on a busy machine.
const timeout = time.Minute

// run returns the result of an action.
func run[T any](p tab, a chromedp.Action[T]) T {
	p.Helper()
	ctx, end := context.WithTimeout(p.ctx, timeout)
	defer end()
	result, err := chromedp.Run(ctx, a)
	require.NoError(p, err)
	return result
}

// call sends a command of the browser's protocol.
func call[P, R any](p tab, command cdp.Command[P, R], params P) R {
	p.Helper()
	ctx, end := context.WithTimeout(p.ctx, timeout)
	defer end()
	result, err := chromedp.Call(ctx, command, params)
	require.NoError(p, err)
	return result
}

// script returns the value of an expression on the page.
func script[T any](p tab, expression string) T {
	p.Helper()
	return run(p, chromedp.Evaluate[T](expression, chromedp.EvalAwaitPromise))
}

// open loads a page.
func (p tab) open(path string) {
	p.Helper()
	run(p, chromedp.Navigate(p.hub+path))
	p.quiet()
}

// leads does what leads to another page, and waits until that is loaded.
func (p tab) leads(action chromedp.Action[chromedp.Void]) {
	p.Helper()
	ctx, end := context.WithTimeout(p.ctx, timeout)
	defer end()
	answer, err := chromedp.RunResponse(ctx, action)
	require.NoError(p, err)
	require.EqualValues(p, http.StatusOK, answer.Status, answer.URL)
	p.quiet()
}

// follow clicks on the first link that an XPath finds.
func (p tab) follow(xpath string) {
	p.Helper()
	p.leads(chromedp.Click(chromedp.Search(xpath), chromedp.NodeVisible))
}

// write writes into the field of a name, and presses Enter.
func (p tab) write(field, text string) {
	p.Helper()
	p.leads(chromedp.SendKeys(chromedp.CSS("input[name="+field+"]"), text+kb.Enter, chromedp.NodeVisible))
}

// quiet requires that the page has nothing to say on the console.
func (p tab) quiet() {
	p.Helper()
	p.said.Lock()
	defer p.said.Unlock()
	require.Empty(p, p.said.all, "of %s", p.path())
}

// path is the path of the page, with its query.
func (p tab) path() string {
	p.Helper()
	return script[string](p, "location.pathname + location.search")
}

// text is what a person can read of the first element that a CSS selector finds.
func (p tab) text(selector string) string {
	p.Helper()
	return script[string](p, fmt.Sprintf("document.querySelector(%q)?.innerText ?? ''", selector))
}

// rows returns the rows of all tables: cells by the heading of their column, that of the row itself by an empty name, and the times of
// the row by "times".
func (p tab) rows() []map[string]string {
	p.Helper()
	return script[[]map[string]string](p, `[...document.querySelectorAll("main tbody tr")].map(row => Object.fromEntries([
		...[...row.cells].map(cell => [cell.dataset.label ?? "", cell.innerText.trim()]),
		["times", [...row.querySelectorAll("time")].map(time => time.dateTime).join(" ")]]))`)
}

// look sets the theme, and the width of the window.
func (p tab) look(theme string, width int64) { p.Helper(); p.window(theme, width, 900) }

// window sets the theme, and the size of the window.
func (p tab) window(theme string, width, height int64) {
	p.Helper()
	call(p, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: theme}}})
	call(p, emulation.SetDeviceMetricsOverride, emulation.SetDeviceMetricsOverrideParams{Width: width, Height: height, DeviceScaleFactor: 1, Mobile: width < 500})
}

// answer returns the status of a path, and the answer to who accepts a media type.
func (p tab) answer(path, accept string) (status int, body string) {
	p.Helper()
	r, err := http.NewRequestWithContext(p.Context(), http.MethodGet, p.hub+path, nil)
	require.NoError(p, err)
	r.Header.Set("Accept", accept)
	r.Header.Set("Authorization", "Bearer "+p.token)
	answer, err := http.DefaultClient.Do(r)
	require.NoError(p, err)
	defer answer.Body.Close()
	data, err := io.ReadAll(answer.Body)
	require.NoError(p, err)
	return answer.StatusCode, string(data)
}

// ask returns the answer to a program. It posts a body that is not nil, as JSON.
func (p tab) ask(path string, body any) string {
	p.Helper()
	method, sent := http.MethodGet, []byte(nil)
	if body != nil {
		var err error
		sent, err = json.Marshal(body)
		require.NoError(p, err)
		method = http.MethodPost
	}
	r, err := http.NewRequestWithContext(p.Context(), method, p.hub+path, bytes.NewReader(sent))
	require.NoError(p, err)
	if p.token != "" {
		r.Header.Set("Authorization", "Bearer "+p.token)
	}
	answer, err := http.DefaultClient.Do(r)
	require.NoError(p, err)
	defer answer.Body.Close()
	data, err := io.ReadAll(answer.Body)
	require.NoError(p, err)
	require.Less(p, answer.StatusCode, 300, "%s: %s", path, data)
	return string(data)
}
