package login

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/wherry-dev/wherry/bundle/diskfile"
	"github.com/wherry-dev/wherry/bundle/duration"
	"github.com/wherry-dev/wherry/bundle/oci"
	"github.com/wherry-dev/wherry/bundle/show"
	"github.com/wherry-dev/wherry/hub/access"
	"github.com/wherry-dev/wherry/hub/store"
)

// Config says who may sign in, and as what. Read returns it.
type Config struct {
	// URL is the hub's as browsers know it. Issuer is the provider's.
	URL    string `json:"url"`
	Issuer string `json:"issuer"`
	// ClientID is the hub's name at the provider. ClientSecretFile is a file with its secret, which is read for each sign-in; empty for
	// a client without one. TLSCA is a file with authorities that are trusted beside the system's. Both are relative to the
	// configuration's folder.
	ClientID         string `json:"clientID"`
	ClientSecretFile string `json:"clientSecretFile,omitempty"`
	TLSCA            string `json:"tlsCA,omitempty"`
	// DeviceClientID is the name of commands at the provider: a public client with the device flow. Empty if commands do not sign in.
	DeviceClientID string `json:"deviceClientID,omitempty"`
	// Scopes are asked for beside openid. GroupsClaim is the claim of an ID token with a person's groups.
	Scopes      []string `json:"scopes,omitempty"`
	GroupsClaim string   `json:"groupsClaim,omitempty"`
	// TrustEmail means that the issuer gives no address to two people. Only addresses that it has verified count.
	TrustEmail bool `json:"trustEmail,omitempty"`
	// Session and Idle bound a session; see access.Sessions.
	Session string `json:"session,omitempty"`
	Idle    string `json:"idle,omitempty"`
	// Roles are those of groups. The first one counts whose group a person is in.
	Roles []GroupRole `json:"roles"`
	// Members are the people who decide about promotion.
	Members []Member `json:"members,omitempty"`

	length, idle time.Duration
	client       *http.Client
}

// GroupRole is what the people of a group may do.
type GroupRole struct {
	Group string      `json:"group"`
	Role  access.Role `json:"role"`
	store.AccessScope
}

// Member is a person, by one identity at the provider, with the name that promotion policies have.
type Member struct {
	Name    string `json:"name"`
	Subject string `json:"subject,omitempty"`
	Email   string `json:"email,omitempty"`
}

// Defaults of a Config, and its bounds.
const (
	defaultSession = 8 * time.Hour
	defaultIdle    = time.Hour
	maxSession     = 7 * 24 * time.Hour
	maxConfig      = 1 << 20
	maxSecret      = 4 << 10
)

// Read reads the configuration in a YAML file. An error names the file, and the field that is wrong.
func Read(file string) (*Config, error) {
	data, err := diskfile.Read(file, maxConfig)
	if err != nil {
		return nil, err
	}
	c := &Config{GroupsClaim: "groups"}
	if err := yaml.UnmarshalStrict(data, c); err != nil {
		return nil, fmt.Errorf("%s: %w", file, readable(err))
	}
	for _, path := range []*string{&c.ClientSecretFile, &c.TLSCA} {
		if *path != "" && !filepath.IsAbs(*path) {
			*path = filepath.Join(filepath.Dir(file), *path)
		}
	}
	if err := c.check(); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return c, nil
}

// readable says in words what is wrong with a file that cannot be read into a Config.
func readable(err error) error {
	if wrong := (*json.UnmarshalTypeError)(nil); errors.As(err, &wrong) {
		expected := map[reflect.Kind]string{reflect.Slice: "a list", reflect.Struct: "fields", reflect.Bool: "true or false"}[wrong.Type.Kind()]
		if wrong.Field == "" {
			return fmt.Errorf("expected fields such as url: and issuer:, got a %s", wrong.Value)
		}
		return fmt.Errorf("%s: expected %s, got a %s", wrong.Field, cmp.Or(expected, "a text"), wrong.Value)
	}
	text := err.Error()
	if _, name, unknown := strings.Cut(text, "json: unknown field "); unknown {
		name = strings.Trim(name, `"`)
		var known []string
		for f := range reflect.TypeFor[Config]().Fields() {
			if field, _, _ := strings.Cut(f.Tag.Get("json"), ","); field != "" {
				known = append(known, field)
			}
		}
		if near := show.Nearest(name, known); near != "" {
			return fmt.Errorf("unknown field %q; did you mean %s?", name, near)
		}
		return fmt.Errorf("unknown field %q", name)
	}
	return errors.New(strings.TrimPrefix(text, "error converting YAML to JSON: "))
}

// check checks all fields, and sets those that follow from them.
func (c *Config) check() (err error) {
	for name, u := range map[string]string{"url": c.URL, "issuer": c.Issuer} {
		if err := checkURL(u); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	if u, _ := url.Parse(c.URL); u.Path != "" && u.Path != "/" {
		return fmt.Errorf("url: %q has a path; the hub's pages are at the root of a host", c.URL)
	}
	if c.ClientID == "" {
		return errors.New("clientID is missing: the name that the provider gave this hub")
	}
	if _, err := c.secret(); err != nil {
		return fmt.Errorf("clientSecretFile: %w", err)
	}
	for _, d := range []struct {
		name, text string
		into       *time.Duration
		otherwise  time.Duration
	}{{"session", c.Session, &c.length, defaultSession}, {"idle", c.Idle, &c.idle, defaultIdle}} {
		if *d.into = d.otherwise; d.text == "" {
			continue
		}
		if *d.into, err = duration.Parse(d.text); err != nil {
			return fmt.Errorf("%s: %w", d.name, err)
		}
		if *d.into < time.Minute || *d.into > maxSession {
			return fmt.Errorf("%s: %s: expected 1m to 7d", d.name, d.text)
		}
	}
	if c.client, err = oci.NewHTTPClient(oci.Network{CAFile: c.TLSCA}); err != nil {
		return fmt.Errorf("tlsCA: %w", err)
	}
	c.client.Timeout = providerTime
	c.client.Transport = bounded{c.client.Transport}
	// A provider's own addresses are asked alone.
	c.client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return errors.Join(c.checkRoles(), c.checkMembers())
}

// checkURL returns an error for a URL that others on the network could answer for.
func checkURL(s string) error {
	u, err := url.Parse(s)
	if err != nil || !oci.LoopbackOrHTTPS(s) || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return fmt.Errorf("expected a URL such as https://hub.example.com, or http:// on loopback, got %q", s)
	}
	return nil
}

func (c *Config) checkRoles() error {
	if len(c.Roles) == 0 {
		return errors.New("roles are missing: nobody could sign in")
	}
	for i, r := range c.Roles {
		if r.Group == "" {
			return fmt.Errorf("roles[%d]: group is missing", i)
		}
		if err := r.request("somebody").Check(time.Time{}); err != nil {
			return fmt.Errorf("roles[%d], group %q: %w", i, r.Group, err)
		}
	}
	return nil
}

func (r GroupRole) request(name string) access.Request {
	return access.Request{Name: name, Role: r.Role, AccessScope: r.AccessScope}
}

// checkMembers returns an error unless each member has one identity, and each identity one member.
func (c *Config) checkMembers() error {
	seen := map[Member]bool{}
	for i, m := range c.Members {
		name, identity := Member{Name: m.Name}, Member{Subject: m.Subject, Email: m.Email}
		switch {
		case m.Name == "":
			return fmt.Errorf("members[%d]: name is missing", i)
		case (m.Subject == "") == (m.Email == ""):
			return fmt.Errorf("members[%d], %s: expected subject or email, and not both", i, m.Name)
		case m.Email != "" && !c.TrustEmail:
			return fmt.Errorf("members[%d], %s: an e-mail address is no identity here; give the subject, or set trustEmail if the issuer verifies addresses and gives none to two people", i, m.Name)
		case seen[name]:
			return fmt.Errorf("members[%d]: %s has two identities; one person counts once", i, m.Name)
		case seen[identity]:
			return fmt.Errorf("members[%d], %s: the identity %s is another member's already", i, m.Name, m.Subject+m.Email)
		}
		seen[name], seen[identity] = true, true
	}
	return nil
}

// secret returns the client's secret; empty for a client without one.
func (c *Config) secret() (string, error) {
	if c.ClientSecretFile == "" {
		return "", nil
	}
	data, err := diskfile.Read(c.ClientSecretFile, maxSecret)
	if err != nil {
		return "", err
	}
	line, _, _ := strings.Cut(string(data), "\n")
	if line = strings.TrimSpace(line); line == "" {
		return "", fmt.Errorf("%s is empty", c.ClientSecretFile)
	}
	return line, nil
}

// Labels returns the keys of the labels that roles ask for.
func (c *Config) Labels() (keys []string) {
	for _, r := range c.Roles {
		if scope, err := access.ParseScope(r.AccessScope); err == nil {
			keys = append(keys, scope.Labels()...)
		}
	}
	return keys
}

// identity is a person as an ID token has them.
type identity struct {
	subject string
	email   string // empty unless the provider has verified it
	groups  []string
}

// person returns who an identity is at the hub. The error says why they may not sign in.
func (c *Config) person(i identity) (access.Person, error) {
	p := access.Person{Subject: i.subject + " at " + c.Issuer}
	at := slices.IndexFunc(c.Roles, func(r GroupRole) bool { return slices.Contains(i.groups, r.Group) })
	if at < 0 {
		return p, fmt.Errorf("%s is in none of the groups that may use this hub", i.subject)
	}
	p.Request = c.Roles[at].request(i.subject)
	if c.TrustEmail && i.email != "" {
		p.Name = i.email
	}
	var of []Member
	for _, m := range c.Members {
		if m.Subject != "" && m.Subject == i.subject || m.Email != "" && m.Email == i.email {
			of = append(of, m)
		}
	}
	switch {
	case len(of) > 1:
		return p, fmt.Errorf("%s is both %s and %s in the hub's login file", i.subject, of[0].Name, of[1].Name)
	case len(of) == 1:
		p.Name = of[0].Name
	case (access.Identity{Role: p.Role}).May(access.Approve):
		// Whose name decisions carry is for the hub's administrators to say.
		return p, fmt.Errorf("group %s gives role %s, whose decisions need a name, and the hub's login file has no member with the subject %q", c.Roles[at].Group, p.Role, i.subject)
	}
	return p, nil
}
