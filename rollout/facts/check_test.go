package facts

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"
	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/rollout/gate"
	"github.com/wherry-dev/wherry/scheduler/promotion"
)

func asked() CheckQuestion {
	return CheckQuestion{
		Verdict:  gate.Judge(gate.Question{Commit: "3f2a9c1", Now: start}),
		Platform: "coffee", Contents: map[string]digest.Digest{"drone": digest.FromString("x")},
	}
}

func TestCommands(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, command string
		want          gate.Result
		message       string
	}{
		{"0 passes", "echo fine", gate.Pass, "fine"},
		{"5 waits", "echo; echo '  warming up'; exit 5", gate.Wait, "warming up"},
		{"any other fails", "echo broken >&2; exit 2", gate.Fail, "exit code 2: broken"},
		{"it says nothing", "exit 1", gate.Fail, "exit code 1"},
		{"it does not exist", "/does/not/exist", gate.Fail, "exit code 127: "},
		{"much output", "yes | head -c 1000000; exit 5", gate.Wait, "y"},
		{"what terminals obey", `printf '\033[2Jx'`, gate.Pass, ``},
		{"it does not read", "exec <&-; exit 0", gate.Pass, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			got, err := runCheck(t.Context(), promotion.Check{Command: c.command}, asked(), CheckOptions{AllowCommands: true, Dir: t.TempDir()}, start)
			require.NoError(t, err)
			require.Equal(t, c.want, got.Result, got.Message)
			require.Contains(t, got.Message, c.message)
			require.NotContains(t, got.Message, "\033")
		})
	}
}

func TestACommandReadsTheQuestionInItsFolder(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	q := asked()
	_, err := runCheck(t.Context(), promotion.Check{Command: "cat >asked.json"}, q, CheckOptions{AllowCommands: true, Dir: dir}, start)
	require.NoError(t, err)
	data, err := os.ReadFile(filepath.Join(dir, "asked.json"))
	require.NoError(t, err)
	want, err := json.Marshal(q)
	require.NoError(t, err)
	require.JSONEq(t, string(want), string(data))
	require.Contains(t, string(data), `"commit":"3f2a9c1"`)
	require.Contains(t, string(data), `"platform":"coffee"`)
}

// It is text of a repository, and runs where the promoter has its logins.
func TestACommandOfAGateGetsNoneOfOurTokens(t *testing.T) {
	for _, name := range []string{"WHERRY_HUB_TOKEN", "WHERRY_FORGE_TOKEN", "GITHUB_TOKEN", "CI_JOB_TOKEN", "DOCKER_AUTH_CONFIG", "COSIGN_PASSWORD"} {
		t.Setenv(name, "secret")
	}
	t.Setenv("SCANNER_TOKEN", "secret of the check")
	dir := t.TempDir()
	got, err := runCheck(t.Context(), promotion.Check{Command: "env >env.txt"}, asked(), CheckOptions{AllowCommands: true, Dir: dir, Env: []string{"GITHUB_TOKEN"}}, start)
	require.NoError(t, err)
	require.Equal(t, gate.Pass, got.Result, got.Message)
	env, err := os.ReadFile(filepath.Join(dir, "env.txt"))
	require.NoError(t, err)
	var with []string
	for line := range strings.Lines(string(env)) {
		if name, _, found := strings.Cut(line, "=secret"); found {
			with = append(with, name)
		}
	}
	require.ElementsMatch(t, []string{"GITHUB_TOKEN", "SCANNER_TOKEN"}, with)
}

// A policy is text of a repository: it runs nothing on the machine of whoever asks unless they allow it.
func TestACommandThatNobodyAllowedDoesNotRun(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	got, err := runCheck(t.Context(), promotion.Check{Command: "touch ran"}, asked(), CheckOptions{Dir: dir}, start)
	require.NoError(t, err)
	require.Equal(t, gate.Wait, got.Result)
	require.Contains(t, got.Message, "--allow-commands")
	require.NoFileExists(t, filepath.Join(dir, "ran"))
}

func TestACheckThatTakesTooLongFails(t *testing.T) {
	t.Parallel()
	got, err := runCheck(t.Context(), promotion.Check{Command: "exec sleep 100", Timeout: 10 * time.Millisecond}, asked(), CheckOptions{AllowCommands: true}, start)
	require.NoError(t, err)
	require.Equal(t, gate.Checked{Result: gate.Fail, Message: "no answer within 10ms", At: start}, got)

	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		<-r.Context().Done()
	}))
	defer server.Close()
	got, err = runCheck(t.Context(), promotion.Check{URL: server.URL, Timeout: 50 * time.Millisecond}, asked(), CheckOptions{}, start)
	require.NoError(t, err)
	require.Equal(t, gate.Checked{Result: gate.Fail, Message: "no answer within 50ms", At: start}, got)
}

func TestWebhooks(t *testing.T) {
	t.Parallel()
	for status, want := range map[int]gate.Result{
		200: gate.Pass, 201: gate.Pass, 204: gate.Pass, 299: gate.Pass,
		202: gate.Wait, 425: gate.Wait, 429: gate.Wait, 503: gate.Wait,
		300: gate.Fail, 400: gate.Fail, 401: gate.Fail, 404: gate.Fail, 500: gate.Fail, 502: gate.Fail,
	} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			var q CheckQuestion
			if r.Method != http.MethodPost || r.Header.Get("Content-Type") != "application/json" || json.NewDecoder(r.Body).Decode(&q) != nil || q.Commit != "3f2a9c1" {
				t.Error("the question did not come")
			}
			w.WriteHeader(status)
			if status != 204 {
				_, _ = io.WriteString(w, "\nsaid so\nmore")
			}
		}))
		got, err := runCheck(t.Context(), promotion.Check{URL: server.URL}, asked(), CheckOptions{}, start)
		server.Close()
		require.NoError(t, err)
		require.Equal(t, want, got.Result, "%d: %s", status, got.Message)
		if status != 204 {
			require.Contains(t, got.Message, "said so")
		}
	}
}

// The address of a webhook may have a secret in it, and the question is for its host alone.
func TestAWebhookKeepsItsSecretsAndItsHost(t *testing.T) {
	t.Parallel()
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("the other host was asked") }))
	defer other.Close()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/here" {
			http.Redirect(w, r, "/there", http.StatusTemporaryRedirect)
		} else if r.URL.Path == "/there" {
			_, _ = io.WriteString(w, "ok")
		} else {
			http.Redirect(w, r, other.URL, http.StatusTemporaryRedirect)
		}
	}))
	ask := func(url string) gate.Checked {
		got, err := runCheck(t.Context(), promotion.Check{URL: url}, asked(), CheckOptions{}, start)
		require.NoError(t, err)
		require.NotContains(t, got.Message, "hunter2")
		return got
	}
	require.Equal(t, gate.Checked{Result: gate.Pass, Message: "ok", At: start}, ask(server.URL+"/here?token=hunter2"))
	require.Equal(t, gate.Checked{Result: gate.Fail, Message: "it redirects to another host", At: start}, ask(server.URL+"/?token=hunter2"))
	server.Close()
	gone := ask(strings.Replace(server.URL, "http://", "http://me:hunter2@", 1) + "/?token=hunter2")
	require.Equal(t, gate.Wait, gone.Result)
	require.Contains(t, gone.Message, "it cannot be reached")
	require.Equal(t, gate.Fail, ask("http://%zz:hunter2@").Result)
	require.Equal(t, gate.Fail, ask("hunter2").Result)
}
