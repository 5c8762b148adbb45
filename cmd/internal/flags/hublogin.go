package flags

import (
	"context"
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

	"github.com/wherry-dev/wherry/bundle/diskfile"
	"github.com/wherry-dev/wherry/cmd/internal/cli"
	"github.com/wherry-dev/wherry/hub/client"
)

// HubLogin is what "wherry login hub" has stored for a hub.
type HubLogin struct {
	// Token is an access token, or that of a session.
	Token   string `json:"token"`
	Session bool   `json:"session,omitempty"`
	// Expires is when a session has to be renewed, and Renewal how. Both are zero for an access token.
	Expires time.Time      `json:"expires,omitzero"`
	Renewal client.Renewal `json:"renewal,omitzero"`
}

// SessionLogin returns the HubLogin of a session.
func SessionLogin(s client.Session) HubLogin {
	return HubLogin{Token: s.Token, Session: true, Expires: s.Access.ExpiresAt, Renewal: s.Renewal}
}

// hubLogins are the logins that were stored, by hubKey.
type hubLogins struct {
	Hubs map[string]HubLogin `json:"hubs"`
	file string
}

// hubLoginsFile returns the file of hubLogins, in the folder of a person's configuration.
func hubLoginsFile() (string, error) {
	dir, err := os.UserConfigDir()
	if err != nil {
		return "", cli.Fail(cli.Failed, errors.New("there is no folder for a person's configuration"), "set HOME or XDG_CONFIG_HOME")
	}
	return filepath.Join(dir, "wherry", "hub-tokens.json"), nil
}

func readHubLogins() (hubLogins, error) {
	all := hubLogins{Hubs: map[string]HubLogin{}}
	var err error
	if all.file, err = hubLoginsFile(); err != nil {
		return all, nil // without a home, nothing is stored
	}
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

// StoreHubLogin keeps the login of the hub at a URL, in a file that its owner alone can read.
func StoreHubLogin(ctx context.Context, hub string, login HubLogin) error {
	all, unlock, err := lockHubLogins(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	all.Hubs[hubKey(hub)] = login
	return all.write()
}

// ForgetHubLogin removes what StoreHubLogin kept, and returns it; the zero HubLogin if there was none.
func ForgetHubLogin(ctx context.Context, hub string) (HubLogin, error) {
	key := hubKey(hub)
	if all, err := readHubLogins(); err != nil || all.Hubs[key].Token == "" {
		return HubLogin{}, err
	}
	all, unlock, err := lockHubLogins(ctx)
	if err != nil {
		return HubLogin{}, err
	}
	defer unlock()
	login := all.Hubs[key]
	delete(all.Hubs, key)
	return login, all.write()
}

// HubLogins returns the URLs for which a token is stored.
func HubLogins() []string {
	all, _ := readHubLogins() // none, for completion
	return slices.Sorted(maps.Keys(all.Hubs))
}

// write replaces the file as a whole or not at all.
func (l hubLogins) write() error {
	data, err := json.MarshalIndent(l, "", "  ")
	if err != nil {
		return err
	}
	if err := diskfile.Replace(l.file, 0o600, append(data, '\n')); err != nil {
		return unwritable(filepath.Dir(l.file), err)
	}
	return nil
}

func unwritable(dir string, err error) error {
	return cli.Fail(cli.Failed, err, fmt.Sprintf("make %s a folder that can be written", dir))
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
