package login

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const whole = `url: https://hub.example.com
issuer: https://login.example.com/realms/acme
clientID: wherry
roles:
- {group: admins, role: admin}
members:
- {name: anna, subject: "7"}
`

func TestTheFileIsChecked(t *testing.T) {
	file := filepath.Join(t.TempDir(), "login.yaml")
	read := func(text string) (*Config, error) {
		require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
		return Read(file)
	}
	c, err := read(whole)
	require.NoError(t, err)
	require.Equal(t, "groups", c.GroupsClaim)
	require.Equal(t, 8*time.Hour, c.length)
	require.Equal(t, time.Hour, c.idle)
	for name, tt := range map[string]struct{ old, text, want string }{
		"two identities of one member": {"members:\n", "members:\n- {name: anna, subject: \"8\"}\n", "anna has two identities"},
		"two members of one identity":  {"members:\n", "members:\n- {name: ben, subject: \"7\"}\n", "the identity 7 is another member's"},
		"an address without trust":     {"members:\n", "members:\n- {name: ben, email: ben@example.com}\n", "an e-mail address is no identity here"},
		"two ways to one member":       {"members:\n", "trustEmail: true\nmembers:\n- {name: ben, email: ben@example.com, subject: \"8\"}\n", "expected subject or email, and not both"},
		"a member without an identity": {"members:\n", "members:\n- {name: ben}\n", "expected subject or email"},
		"no roles":                     {"roles:\n- {group: admins, role: admin}", "roles: []", "roles are missing"},
		"an unknown role":              {"role: admin", "role: root", `role "root"`},
		"a scope that no admin has":    {"role: admin", "role: admin, environments: [prod]", "role admin has no scope"},
		"plain HTTP for the hub":       {"https://hub", "http://hub", "url: expected a URL such as"},
		"a hub below a path":           {"hub.example.com", "hub.example.com/hub", "has a path"},
		"plain HTTP for the provider":  {"https://login", "http://login", "issuer: expected a URL such as"},
		"an unknown field":             {"clientID", "preferredUsername: true\nclientID", `unknown field "preferredUsername"`},
		"a field with a slip":          {"clientID", "isuer: x\nclientID", `unknown field "isuer"; did you mean issuer?`},
		"a text for a list":            {"roles:\n- {group: admins, role: admin}", "roles: admin", "roles: expected a list, got a string"},
		"no YAML":                      {"clientID", "\t- clientID", "yaml: line "},
		"a field twice":                {"clientID", "clientID: x\nclientID", `"clientID" already set`},
		"no client":                    {"clientID: wherry", "", "clientID is missing"},
		"a secret that is not there":   {"clientID", "clientSecretFile: none\nclientID", "clientSecretFile: "},
		"a session without an end":     {"clientID", "session: 52w\nclientID", "session: 52w: expected 1m to 7d"},
		"an authority that is not one": {"clientID", "tlsCA: login.yaml\nclientID", "tlsCA: "},
	} {
		_, err := read(strings.Replace(whole, tt.old, tt.text, 1))
		require.ErrorContains(t, err, tt.want, name)
		require.ErrorContains(t, err, file, name)
	}
}
