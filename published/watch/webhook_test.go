package watch

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const secret = "correct horse battery"

func sign(key, body string) string {
	mac := hmac.New(sha256.New, []byte(key))
	mac.Write([]byte(body))
	return hex.EncodeToString(mac.Sum(nil))
}

func TestWebhooks(t *testing.T) {
	const body = `{"ref":"refs/heads/main"}`
	basic := func(user, password string) func(*http.Request) {
		return func(r *http.Request) { r.SetBasicAuth(user, password) }
	}
	header := func(name, value string) func(*http.Request) {
		return func(r *http.Request) { r.Header.Set(name, value) }
	}
	tests := []struct {
		name    string
		method  string
		body    io.Reader
		request func(*http.Request)
		status  int
	}{
		{"GitHub's signature", "POST", strings.NewReader(body), header("X-Hub-Signature-256", "sha256="+sign(secret, body)), 202},
		{"Gitea's signature", "POST", strings.NewReader(body), header("X-Gitea-Signature", sign(secret, body)), 202},
		{"GitLab's token", "POST", strings.NewReader(body), header("X-Gitlab-Token", secret), 202},
		{"Azure DevOps' password", "POST", strings.NewReader(body), basic("wherry", secret), 202},
		{"no proof", "POST", strings.NewReader(body), func(*http.Request) {}, 401},
		{"a signature by another secret", "POST", strings.NewReader(body), header("X-Hub-Signature-256", "sha256="+sign("another", body)), 401},
		{"a signature of another body", "POST", strings.NewReader(body + " "), header("X-Hub-Signature-256", "sha256="+sign(secret, body)), 401},
		{"a signature without sha256=", "POST", strings.NewReader(body), header("X-Hub-Signature-256", sign(secret, body)), 401},
		{"an old signature by sha1", "POST", strings.NewReader(body), header("X-Hub-Signature", "sha1=00"), 401},
		{"a signature that is cut", "POST", strings.NewReader(body), header("X-Gitea-Signature", sign(secret, body)[:8]), 401},
		{"an empty signature", "POST", strings.NewReader(body), header("X-Hub-Signature-256", "sha256="), 401},
		{"another token", "POST", strings.NewReader(body), header("X-Gitlab-Token", secret+"x"), 401},
		{"another password", "POST", strings.NewReader(body), basic("wherry", "wrong"), 401},
		{"an empty password", "POST", strings.NewReader(body), basic("wherry", ""), 401},
		{"the secret as the user", "POST", strings.NewReader(body), basic(secret, ""), 401},
		{"a body above the bound, said", "POST", bytes.NewReader(make([]byte, MaxHookBytes+1)), header("X-Gitea-Signature", sign(secret, "")), 413},
		{"a body above the bound, not said", "POST", struct{ io.Reader }{bytes.NewReader(make([]byte, MaxHookBytes+1))}, header("X-Gitea-Signature", sign(secret, "")), 413},
		{"a look by a browser", "GET", nil, func(*http.Request) {}, 405},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			hook, err := NewWebhook(nil, []byte(secret))
			require.NoError(t, err)
			looks := 0
			request, answer := httptest.NewRequest(test.method, "/hook", test.body), httptest.NewRecorder()
			test.request(request)
			hook.handler(func() { looks++ }).ServeHTTP(answer, request)
			require.Equal(t, test.status, answer.Code, answer.Body)
			require.Equal(t, test.status == 202, looks == 1)
			require.NotContains(t, answer.Body.String(), secret)
		})
	}
}

// Strangers who hold as many bodies open as they like keep no webhook out, whatever way it is proved, and from their own address too.
func TestStrangersKeepNoWebhookOut(t *testing.T) {
	hook, err := NewWebhook(nil, []byte(secret))
	require.NoError(t, err)
	looks := make(chan struct{}, 10)
	server := httptest.NewServer(hook.handler(func() { looks <- struct{}{} }))
	defer server.Close()
	host := strings.TrimPrefix(server.URL, "http://")
	for range 2 * maxHooks {
		c, err := net.Dial("tcp", host)
		require.NoError(t, err)
		defer c.Close()
		_, err = io.WriteString(c, "POST /hook HTTP/1.1\r\nHost: x\r\nX-Gitea-Signature: "+sign("guessed", "")+"\r\nContent-Length: 1000\r\nExpect: 100-continue\r\n\r\n")
		require.NoError(t, err)
		_, err = io.ReadFull(c, make([]byte, len("HTTP/1.1 100"))) // its body is waited for
		require.NoError(t, err)
	}
	for _, header := range []string{"X-Gitea-Signature", "X-Gitlab-Token"} {
		request, err := http.NewRequest(http.MethodPost, server.URL+"/hook", strings.NewReader("{}"))
		require.NoError(t, err)
		request.Header.Set(header, map[string]string{"X-Gitea-Signature": sign(secret, "{}"), "X-Gitlab-Token": secret}[header])
		answer, err := http.DefaultClient.Do(request)
		require.NoError(t, err)
		require.NoError(t, answer.Body.Close())
		require.Equal(t, http.StatusAccepted, answer.StatusCode, header)
		<-looks
	}
}

func TestAShortSecretIsRefused(t *testing.T) {
	_, err := NewWebhook(nil, []byte("123456789012345"))
	require.ErrorIs(t, err, ErrShortSecret)
}

func TestHealth(t *testing.T) {
	hook, err := NewWebhook(nil, []byte(secret))
	require.NoError(t, err)
	get := func(path string) (int, string) {
		answer := httptest.NewRecorder()
		hook.handler(nil).ServeHTTP(answer, httptest.NewRequest("GET", path, nil))
		return answer.Code, answer.Body.String()
	}
	status := func(path string) int { code, _ := get(path); return code }
	require.Equal(t, 200, status("/healthz"))
	require.Equal(t, 503, status("/readyz"))
	hook.Tell(Event{Kind: TurnEnded, Time: time.Now(), Err: errors.New("no")})
	require.Equal(t, 503, status("/readyz"))
	hook.Tell(Event{Kind: TurnEnded, Time: time.Unix(1_800_000_000, 0)})
	require.Equal(t, 200, status("/readyz"))
	hook.Tell(Event{Kind: TurnEnded, Time: time.Now(), Err: errors.New("no")})
	require.Equal(t, 200, status("/readyz"), "it is no better at another replica")
	hook.Tell(Event{Kind: TurnBegan, Time: time.Now().Add(-2 * time.Hour)})
	require.Equal(t, 503, status("/healthz"))
	hook.Tell(Event{Kind: TurnEnded, Time: time.Now(), Err: errors.New("no")})
	require.Equal(t, 200, status("/healthz"))
	_, text := get("/metrics")
	require.Contains(t, text, "\nwherry_follow_steps_total 4\n")
	require.Contains(t, text, "\nwherry_follow_steps_failed_total 3\n")
	require.Contains(t, text, "\nwherry_follow_last_success_timestamp_seconds 1800000000\n")
	require.Equal(t, 404, status("/"))
}

// The whole over a connection: ten webhooks at once are one step, and all ends with the context.
func TestRunServesWebhooks(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	hook, err := NewWebhook(listener, []byte(secret))
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	steps, ended := make(chan time.Time, 100), make(chan error, 1)
	go func() {
		ended <- Run(ctx, Options{Wakers: []Waker{hook.Wake}, Settle: 200 * time.Millisecond}, func(context.Context, *Turn) error {
			steps <- time.Now()
			return nil
		})
	}()
	<-steps
	for range 10 {
		request, err := http.NewRequestWithContext(ctx, "POST", "http://"+listener.Addr().String()+"/hook", strings.NewReader("{}"))
		require.NoError(t, err)
		request.Header.Set("X-Hub-Signature-256", "sha256="+sign(secret, "{}"))
		answer, err := http.DefaultClient.Do(request)
		require.NoError(t, err)
		answer.Body.Close()
		require.Equal(t, 202, answer.StatusCode)
	}
	<-steps
	cancel()
	require.ErrorIs(t, <-ended, context.Canceled)
	require.Empty(t, steps)
	_, err = net.Dial("tcp", listener.Addr().String())
	require.Error(t, err)
}

func TestRunEndsIfTheWebhookCannotBeServed(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, listener.Close())
	hook, err := NewWebhook(listener, []byte(secret))
	require.NoError(t, err)
	err = Run(t.Context(), Options{Wakers: []Waker{hook.Wake}}, func(context.Context, *Turn) error { return nil })
	require.ErrorIs(t, err, net.ErrClosed)
	require.ErrorContains(t, err, "webhook: ")
}
