package config

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"oras.land/oras-go/v2/registry/remote/retry"

	"github.com/wherry-dev/wherry/agent/window"
	"github.com/wherry-dev/wherry/bundle/oci"
)

// configured reads a configuration from a file, and from flags as --name value.
func configured(t *testing.T, file string, args ...string) (*Config, error) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "agent.yaml")
	require.NoError(t, os.WriteFile(path, []byte(file), 0o600))
	return Read(Sources{File: path, Named: true, Flag: flags(args...)})
}

// flags returns a Sources.Flag of --name value. A toggle has no value.
func flags(args ...string) func(string) ([]string, bool) {
	given := map[string][]string{}
	for len(args) > 0 {
		name := strings.TrimPrefix(args[0], "--")
		if args = args[1:]; len(args) == 0 || strings.HasPrefix(args[0], "--") {
			given[name] = []string{"true"}
			continue
		}
		given[name], args = append(given[name], args[0]), args[1:]
	}
	return func(name string) ([]string, bool) { return given[name], given[name] != nil }
}

func TestHowRegistriesAreReached(t *testing.T) {
	c, err := configured(t, `
proxy: http://proxy.example:3128
tls: {ca: ca.pem, postQuantum: false}
maxBandwidth: 64KiB
transferWindow: 22:30-04:00
`)
	require.NoError(t, err)
	require.Equal(t, oci.Network{
		Proxy: "http://proxy.example:3128", CAFile: filepath.Join(filepath.Dir(c.File), "ca.pem"), NoPostQuantum: true, MaxBandwidth: 64 << 10,
	}, c.Registry.Network)
	require.Equal(t, window.Transfer{Opens: 22*time.Hour + 30*time.Minute, Closes: 4 * time.Hour}, c.Registry.Window)

	c, err = configured(t, "", "--max-bandwidth", "2MB/s", "--tls-post-quantum")
	require.NoError(t, err)
	require.Equal(t, oci.Network{MaxBandwidth: 2_000_000}, c.Registry.Network)
	require.Zero(t, c.Registry.Window)
}

func TestWhereTheAgentsCredentialsMayGo(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "config.json")
	require.NoError(t, os.WriteFile(file, []byte(`{"auths":{}}`), 0o600))
	c, err := configured(t, "authHosts: [auth.corp.internal, \"10.0.0.8:8443\"]", "--credentials", file)
	require.NoError(t, err)
	r, err := c.connect()
	require.NoError(t, err)
	require.Equal(t, []string{"auth.corp.internal", "10.0.0.8:8443"}, r.options.AuthHosts)
	require.Equal(t, filepath.Join(dir, "wherry-auth-hosts.json"), r.options.AuthRecord)

	c, err = configured(t, "authHosts: auth.corp.internal", "--auth-host", "a", "--auth-host", "b:1")
	require.NoError(t, err)
	require.Equal(t, []string{"a", "b:1"}, c.Registry.AuthHosts, "flags override the file")
	_, err = configured(t, "authHosts: https://auth.corp.internal/token")
	require.ErrorContains(t, err, `authHosts (also --auth-host, WHERRY_AUTH_HOST): "https://auth.corp.internal/token" is not HOST or HOST:PORT (expected: HOST or HOST:PORT, such as auth.example.com)`)
}

func TestSettingsOfTheNetworkThatAreNone(t *testing.T) {
	for args, want := range map[[2]string]string{
		{"--max-bandwidth", "fast"}:          `"fast" is not a size (expected: bytes a second of at least 1KiB, such as 64KiB or 1MiB)`,
		{"--max-bandwidth", "1000"}:          "too little",
		{"--max-bandwidth", "1GiB"}:          "not a size",
		{"--transfer-window", "1-5"}:         "(expected: HH:MM-HH:MM",
		{"--transfer-window", "01:00"}:       "does not have that form",
		{"--transfer-window", "24:30-1:00"}:  "does not have that form",
		{"--transfer-window", "01:00-01:00"}: "opens and closes at the same time",
	} {
		_, err := configured(t, "", args[0], args[1])
		require.ErrorContains(t, err, want)
	}
	for args, want := range map[[2]string]string{
		{"--proxy", "user:secret@proxy"}:     "the proxy is not a URL",
		{"--tls-ca", "/nowhere.pem"}:         "/nowhere.pem",
		{"--tls-cert", "cert.pem"}:           "takes two files",
		{"--credentials", "/nowhere.json"}:   "--credentials: open /nowhere.json",
		{"--credentials", "network_test.go"}: "holds no credentials",
	} {
		c, err := configured(t, "", args[0], args[1])
		require.NoError(t, err)
		_, err = c.connect()
		require.ErrorContains(t, err, want)
		require.NotContains(t, err.Error(), "secret")
	}
}

func TestAConnectionIsKeptForAPollThatIsNear(t *testing.T) {
	for interval, want := range map[string]time.Duration{
		"1s": keptTime, "1m": keptTime, "80s": keptTime,
		"85s": passTime, // it may be 93 s
		"5m":  passTime, "24h": passTime,
	} {
		c, err := configured(t, "", "--interval", interval)
		require.NoError(t, err)
		r, err := c.connect()
		require.NoError(t, err)
		require.Equal(t, want, idleOf(t, r.network), interval)
	}
	c, err := configured(t, "")
	require.NoError(t, err)
	r, err := c.connect()
	require.NoError(t, err)
	require.Equal(t, passTime, idleOf(t, r.network))
}

func idleOf(t *testing.T, network http.RoundTripper) time.Duration {
	t.Helper()
	retrying, ok := network.(*retry.Transport)
	require.True(t, ok)
	return retrying.Base.(*http.Transport).IdleConnTimeout
}

func TestSeveralRegistries(t *testing.T) {
	file := `
registry: [oci://first-box:5001/coffee, oci://registry.example.com/edge]
plainHTTPHosts: [old-box:5000]
tls: {hostCA: {"first-box:5001": box.pem, "other:1": /etc/other.pem}}
`
	c, err := configured(t, file)
	require.NoError(t, err)
	require.Equal(t, []oci.Location{{Host: "first-box:5001", Prefix: "coffee"}, {Host: "registry.example.com", Prefix: "edge"}}, c.Registry.Locations)
	require.Equal(t, map[string]string{"first-box:5001": filepath.Join(filepath.Dir(c.File), "box.pem"), "other:1": "/etc/other.pem"}, c.Registry.Network.HostCAFiles)
	for host, plain := range map[string]bool{"first-box:5001": false, "registry.example.com": false, "old-box:5000": true} {
		require.Equal(t, plain, c.Registry.plainAt(host), host)
	}

	c, err = configured(t, file, "--plain-http", "--registry", "oci://a/x", "--registry", "oci://b/y")
	require.NoError(t, err)
	require.Equal(t, []oci.Location{{Host: "a", Prefix: "x"}, {Host: "b", Prefix: "y"}}, c.Registry.Locations, "flags override the file")
	for host, plain := range map[string]bool{"a": true, "b": true, "old-box:5000": true, "c": false} {
		require.Equal(t, plain, c.Registry.plainAt(host), "--plain-http is about the agent's registries: %s", host)
	}

	for args, want := range map[[2]string]string{
		{"--registry", "oci://first-box:5001"}: "",
		{"--registry", "first-box"}:            "write oci://HOST/PREFIX",
		{"--plain-http-host", "http://a"}:      `"http://a" is not a registry host`,
		{"--tls-host-ca", "a/b=c"}:             `"a/b" is not a registry host`,
		{"--tls-host-ca", "a="}:                `"a=" is not a pair`,
	} {
		_, err := configured(t, "", args[0], args[1])
		if want == "" {
			require.NoError(t, err)
			continue
		}
		require.ErrorContains(t, err, want)
	}
	nine := strings.Repeat("oci://a/x,", 8)
	_, err = configured(t, "registry: ["+nine+" oci://b/y]")
	require.ErrorContains(t, err, "is given twice")
	_, err = configured(t, "registry: [oci://a, oci://b, oci://c, oci://d, oci://e, oci://f, oci://g, oci://h, oci://i]")
	require.ErrorContains(t, err, "there are more than 8")
}
