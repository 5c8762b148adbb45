package flags

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
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

// HubToken returns the access token for the hub at a URL: that of the file, if one is given with --token-file; else that of
// WHERRY_HUB_TOKEN, of "wherry login hub", or, for a hub on this machine, the admin token in its folder, which is the one of
// WHERRY_HUB_DATA or ./hub. It is empty if there is none.
func HubToken(cmd *cobra.Command, file, hub string) (string, error) {
	if file != "" {
		data, err := cli.ReadInput(cmd, file, maxTokenFile)
		if err != nil {
			return "", cli.Fail(cli.Usage, fmt.Errorf("--token-file: %w", err), "")
		}
		return accessToken("--token-file "+file, data)
	}
	if set := os.Getenv(hubTokenVariable); set != "" {
		return accessToken("$"+hubTokenVariable, []byte(set))
	}
	logins, err := readHubLogins()
	if err != nil {
		return "", err
	}
	if stored := logins.Hubs[hubKey(hub)]; stored != "" {
		return accessToken(logins.file, []byte(stored))
	}
	u, err := url.Parse(hub)
	if err != nil || !oci.IsLoopback(u.Host) {
		return "", nil
	}
	file = filepath.Join(cmp.Or(os.Getenv(HubDataVariable), "hub"), access.AdminTokenFile)
	data, err := diskfile.Read(file, maxTokenFile)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) { // the hub of another folder, or of another user
		return "", nil
	}
	if err != nil {
		return "", cli.Fail(cli.Failed, err, "")
	}
	return accessToken(file, data)
}

// accessToken returns the token in the first line of a text that came from a place.
func accessToken(from string, data []byte) (string, error) {
	line, _, _ := bytes.Cut(data, []byte("\n"))
	token, err := access.ParseToken(string(line))
	if err != nil {
		return "", cli.Fail(cli.Usage, fmt.Errorf("%s: %w", from, err), `"wherry hub access create" makes one`)
	}
	return token.Reveal(), nil
}

// NewHubClient returns a client of the hub at a URL, with its access token.
func NewHubClient(cmd *cobra.Command, hub, authorities, tokenFile string) (client.Client, error) {
	token, err := HubToken(cmd, tokenFile, hub)
	if err != nil {
		return client.Client{}, err
	}
	c, err := NewHubHTTP(hub, authorities)
	c.Token = token
	return c, err
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

// hubLogins are the tokens that were stored, by hubKey, and those of them that are sessions.
type hubLogins struct {
	Hubs     map[string]string `json:"hubs"`
	Sessions map[string]bool   `json:"sessions,omitempty"`
	file     string
}

func readHubLogins() (hubLogins, error) {
	all := hubLogins{Hubs: map[string]string{}, Sessions: map[string]bool{}}
	dir, err := os.UserConfigDir()
	if err != nil {
		return all, nil // without a home, nothing is stored
	}
	all.file = filepath.Join(dir, "wherry", "hub-tokens.json")
	data, err := diskfile.Read(all.file, maxLoginsFile)
	if errors.Is(err, fs.ErrNotExist) {
		return all, nil
	}
	if err == nil {
		err = json.Unmarshal(data, &all)
	}
	if err != nil {
		return all, cli.Fail(cli.Failed, fmt.Errorf("%s: %w", all.file, err), `remove the file, and run "wherry login hub" again`)
	}
	return all, nil
}

// StoreHubLogin keeps a token for the hub at a URL, which may be that of a session, in a file that its owner alone can read.
func StoreHubLogin(hub, token string, session bool) error {
	all, err := readHubLogins()
	if err != nil {
		return err
	}
	key := hubKey(hub)
	all.Hubs[key] = token
	delete(all.Sessions, key)
	if session {
		all.Sessions[key] = true
	}
	return all.write()
}

// ForgetHubLogin removes what StoreHubLogin kept, and returns it; an empty token if there was none.
func ForgetHubLogin(hub string) (token string, session bool, err error) {
	all, err := readHubLogins()
	key := hubKey(hub)
	if err != nil || all.Hubs[key] == "" {
		return "", false, err
	}
	token, session = all.Hubs[key], all.Sessions[key]
	delete(all.Hubs, key)
	delete(all.Sessions, key)
	return token, session, all.write()
}

// HubLogins returns the URLs for which a token is stored.
func HubLogins() []string {
	all, _ := readHubLogins() // none, for completion
	return slices.Sorted(maps.Keys(all.Hubs))
}

// write replaces the file as a whole or not at all.
func (l hubLogins) write() error {
	if l.file == "" {
		return cli.Fail(cli.Failed, errors.New("there is no folder for a person's configuration"), "set HOME or XDG_CONFIG_HOME")
	}
	data, err := json.MarshalIndent(l, "", "  ")
	if err != nil {
		return err
	}
	dir := filepath.Dir(l.file)
	err = os.MkdirAll(dir, 0o700)
	if err == nil {
		err = diskfile.Replace(l.file, 0o600, append(data, '\n'))
	}
	if err != nil {
		return cli.Fail(cli.Failed, err, fmt.Sprintf("make %s a folder that can be written", dir))
	}
	return nil
}

// hubKey returns the one form of a hub's URL by which its token is kept.
func hubKey(hub string) string {
	u, err := url.Parse(hub)
	if err != nil {
		return hub
	}
	host, port := strings.ToLower(u.Hostname()), u.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[u.Scheme]
	}
	return u.Scheme + "://" + net.JoinHostPort(host, port) + strings.TrimRight(u.EscapedPath(), "/")
}
