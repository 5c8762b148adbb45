package flags

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/wherry-dev/wherry/bundle/diskfile"
	"github.com/wherry-dev/wherry/bundle/oci"
	"github.com/wherry-dev/wherry/cmd/internal/cli"
	"github.com/wherry-dev/wherry/hub/access"
	"github.com/wherry-dev/wherry/hub/client"
)

const (
	// hubTokenVariable holds an access token.
	hubTokenVariable = "WHERRY_HUB_TOKEN"
	// HubVariable has the hub's URL where --hub does not.
	HubVariable = "WHERRY_HUB"
	// HubDataVariable names the hub's folder where --data does not.
	HubDataVariable = "WHERRY_HUB_DATA"
	// HubTokenFlag is the text of --token-file.
	HubTokenFlag = "read the hub's access token from the first line of this `FILE`, or - for stdin (else $" + hubTokenVariable + ", else what \"wherry login hub\" stored)"
	// maxTokenFile bounds a file with a token, maxLoginsFile the one with all that were stored.
	maxTokenFile  = 4 << 10
	maxLoginsFile = 1 << 20
)

// hubToken returns the access token for the hub at a URL: that of the file, if one is given with --token-file; else that of
// WHERRY_HUB_TOKEN, of "wherry login hub", or, for a hub on this machine, the admin token in its folder, which is the one of
// WHERRY_HUB_DATA or ./hub. It is empty if there is none.
func hubToken(cmd *cobra.Command, file, hub string) (HubLogin, error) {
	if file != "" {
		data, err := cli.ReadInput(cmd, file, maxTokenFile)
		if err != nil {
			return HubLogin{}, cli.Fail(cli.Usage, fmt.Errorf("--token-file: %w", err), "")
		}
		return accessToken("--token-file "+file, data)
	}
	if set := os.Getenv(hubTokenVariable); set != "" {
		return accessToken("$"+hubTokenVariable, []byte(set))
	}
	logins, err := readHubLogins()
	if err != nil {
		return HubLogin{}, err
	}
	if stored := logins.Hubs[hubKey(hub)]; stored.Token != "" {
		_, err := accessToken(logins.file, []byte(stored.Token))
		return stored, err
	}
	u, err := url.Parse(hub)
	if err != nil || !oci.IsLoopback(u.Host) {
		return HubLogin{}, nil
	}
	file = filepath.Join(cmp.Or(os.Getenv(HubDataVariable), "hub"), access.AdminTokenFile)
	data, err := diskfile.Read(file, maxTokenFile)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) { // the hub of another folder, or of another user
		return HubLogin{}, nil
	}
	if err != nil {
		return HubLogin{}, cli.Fail(cli.Failed, err, "")
	}
	return accessToken(file, data)
}

// accessToken returns the token in the first line of a text that came from a place.
func accessToken(from string, data []byte) (HubLogin, error) {
	line, _, _ := bytes.Cut(data, []byte("\n"))
	token, err := access.ParseToken(string(line))
	if err != nil {
		return HubLogin{}, cli.Fail(cli.Usage, fmt.Errorf("%s: %w", from, err), `"wherry hub access create" makes one`)
	}
	return HubLogin{Token: token.Reveal()}, nil
}

// NewHubClient returns a client of the hub at a URL, with its access token, or with the session that "wherry login hub" has stored. The client
// renews the session while it is used.
func NewHubClient(cmd *cobra.Command, hub, authorities, tokenFile string) (client.Client, error) {
	login, err := hubToken(cmd, tokenFile, hub)
	if err != nil {
		return client.Client{}, err
	}
	c, err := NewHubHTTP(hub, authorities)
	if err != nil {
		return c, err
	}
	c.Token = login.Token
	if !login.Expires.IsZero() {
		renewed := *c.HTTP
		renewed.Transport = &renewing{next: c.HTTP.Transport, hub: c, login: login}
		c.HTTP = &renewed
	}
	return c, nil
}

// hubTimeout bounds one request to a hub.
const hubTimeout = 30 * time.Second

// NewHubHTTP returns a client of the hub at a URL without a token. It trusts these authorities beside the system's.
func NewHubHTTP(hub, authorities string) (client.Client, error) {
	h, err := oci.NewHTTPClient(oci.Network{CAFile: authorities})
	if err != nil {
		return client.Client{}, cli.Fail(cli.Usage, fmt.Errorf("--tls-ca: %w", err), "")
	}
	h.Timeout = hubTimeout
	return client.Client{URL: hub, HTTP: h}, nil
}
