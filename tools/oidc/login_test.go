package oidc

import (
	"bufio"
	"context"
	"fmt"
	"html"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/zitadel/oidc/v3/example/server/exampleop"
	"github.com/zitadel/oidc/v3/example/server/storage"
	"github.com/zitadel/oidc/v3/pkg/oidc"
	"github.com/zitadel/oidc/v3/pkg/op"
)

// terminals is a storage whose client "cli" is a public one with the device flow, which the example has with a secret alone.
type terminals struct{ *storage.Storage }

func (s terminals) GetClientByClientID(ctx context.Context, id string) (op.Client, error) {
	client, err := s.Storage.GetClientByClientID(ctx, id)
	if id == "cli" {
		client = terminal{client}
	}
	return client, err
}

// CompleteDeviceAuthorization takes the name of the example's one user for their id, by which the example looks them up later.
func (s terminals) CompleteDeviceAuthorization(ctx context.Context, userCode, _ string) error {
	return s.Storage.CompleteDeviceAuthorization(ctx, userCode, "id1")
}

type terminal struct{ op.Client }

func (terminal) GrantTypes() []oidc.GrantType { return []oidc.GrantType{oidc.GrantTypeDeviceCode} }

// A person signs in at a hub with the server of zitadel/oidc, which signs with RSA, insists on PKCE's verifier, and asks for a password. Its
// ID tokens have no groups, so that the group of the person is the subject.
func TestAPersonSignsInWithAnotherImplementation(t *testing.T) {
	programs := os.Getenv("WHERRY_E2E_PROGRAMS")
	require.NotEmpty(t, programs, "run make login-check, which builds the programs")
	free, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	address := free.Addr().String()
	require.NoError(t, free.Close())

	provider := httptest.NewUnstartedServer(nil)
	issuer := "http://" + provider.Listener.Addr().String() + "/"
	storage.RegisterClients(storage.WebClient("hub", "the secret", "http://"+address+"/login/callback"), storage.NativeClient("cli"))
	provider.Config.Handler = exampleop.SetupServer(issuer, terminals{storage.NewStorage(storage.NewUserStore(issuer))}, slog.New(slog.DiscardHandler), false)
	provider.Start()
	t.Cleanup(provider.Close)

	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "secret"), []byte("the secret\n"), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "login.yaml"), fmt.Appendf(nil, `
url: http://%s
issuer: %s
clientID: hub
clientSecretFile: secret
deviceClientID: cli
groupsClaim: sub
roles: [{group: id1, role: approver}]
members: [{name: anna, subject: id1}]
`, address, issuer), 0o600))
	hub := exec.CommandContext(t.Context(), filepath.Join(programs, "wherry"), "hub", "serve", "--addr", address, "--login", "login.yaml", "--data", "data")
	hub.Dir, hub.Stderr = dir, os.Stderr
	hub.Cancel = func() error { return hub.Process.Signal(os.Interrupt) }
	hub.WaitDelay = 10 * time.Second
	out, err := hub.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, hub.Start())
	t.Cleanup(func() { _ = hub.Wait() })
	ready, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err, ready)

	jar, err := cookiejar.New(nil)
	require.NoError(t, err)
	browser := &http.Client{Jar: jar}
	do := func(method, address string, form url.Values) (string, *url.URL) {
		r, err := http.NewRequestWithContext(t.Context(), method, address, strings.NewReader(form.Encode()))
		require.NoError(t, err)
		r.Header.Set("Accept", "text/html")
		if method == http.MethodPost {
			r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		}
		answer, err := browser.Do(r)
		require.NoError(t, err)
		defer answer.Body.Close()
		body, err := io.ReadAll(answer.Body)
		require.NoError(t, err)
		return string(body), answer.Request.URL
	}
	page, at := do(http.MethodGet, "http://"+address+"/login?back=/clusters", nil)
	require.Equal(t, "/login/username", at.Path, "the provider's own page")
	id := regexp.MustCompile(`name="id" value="([^"]+)"`).FindStringSubmatch(page)
	require.NotNil(t, id, page)
	page, at = do(http.MethodPost, at.Scheme+"://"+at.Host+at.Path, url.Values{"id": {id[1]}, "username": {"test-user@127.0.0.1"}, "password": {"verysecure"}})
	require.Equal(t, "http://"+address+"/clusters", at.String(), page)
	require.Contains(t, page, "anna (approver)")
	page, _ = do(http.MethodPost, "http://"+address+"/logout", nil)
	require.Contains(t, page, "You are signed out")
	there := regexp.MustCompile(`<a href="([^"]+)">sign out there too`).FindStringSubmatch(page)
	require.NotNil(t, there, page)
	page, at = do(http.MethodGet, html.UnescapeString(there[1]), nil)
	require.Equal(t, "/logged-out", at.Path, page)

	// The same person at a terminal.
	login := exec.CommandContext(t.Context(), filepath.Join(programs, "wherry"), "login", "hub", "http://"+address)
	login.Env = append(os.Environ(), "HOME="+dir, "XDG_CONFIG_HOME=", "WHERRY_HUB_TOKEN=")
	talk, err := login.StderrPipe()
	require.NoError(t, err)
	require.NoError(t, login.Start())
	said := bufio.NewReader(talk)
	asks, err := said.ReadString('\n')
	require.NoError(t, err)
	code := regexp.MustCompile(`open (http\S+) in a browser and enter the code (\S+)`).FindStringSubmatch(asks)
	require.NotNil(t, code, asks)
	page, at = do(http.MethodPost, code[1]+"/login", url.Values{"user_code": {code[2]}, "username": {"test-user@127.0.0.1"}, "password": {"verysecure"}})
	require.Contains(t, page, "cli", at)
	page, _ = do(http.MethodPost, code[1]+"/confirm", url.Values{"action": {"allowed"}})
	require.Contains(t, page, "Device authorization allowed")
	rest, err := io.ReadAll(said)
	require.NoError(t, err)
	require.NoError(t, login.Wait(), string(rest))
	require.Contains(t, string(rest), "as anna, role approver, until ")
	run := func(args ...string) (string, error) {
		cmd := exec.CommandContext(t.Context(), filepath.Join(programs, "wherry"), args...)
		cmd.Env = login.Env
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	kept, err := os.Stat(filepath.Join(dir, ".config", "wherry", "hub-tokens.json"))
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), kept.Mode().Perm())
	text, err := run("get", "clusters", "--hub", "http://"+address)
	require.NoError(t, err, text)
	text, err = run("logout", "hub", "http://"+address)
	require.NoError(t, err, text)
	text, err = run("get", "clusters", "--hub", "http://"+address)
	require.Error(t, err)
	require.Contains(t, text, "access token")
}
