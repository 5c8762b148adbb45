// Package config is an agent's configuration: a file, WHERRY_* variables and flags in, an agent out.
//
// Begin with Read, which returns a Config and, as one error, everything that is wrong. Flags override variables, which
// override the file. Settings lists what can be set; programs make their flags of it. Run builds the agent that a
// Config describes, with its engines and its connections, and hands it over. Look and Change reach an agent that may
// be running or not.
//
// The package links every engine. Package agent must not import it.
package config

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/wherry-dev/wherry/agent/freeze"
	"github.com/wherry-dev/wherry/agent/window"
	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/oci"
)

// Config is the configuration of one agent. Read makes one.
type Config struct {
	// File is the file that was read, if any, and ByDefault is true where nobody has named it.
	File      string
	ByDefault bool
	// Program is the program that runs the agent, as Sources has it.
	Program Program

	Cluster  bundle.ReportCluster
	StateDir string
	Trust    Trust
	Registry Registry
	Reports  Reports
	Adapters Adapters
	Passes   Passes
	Carry    Carry
	// MaxManifests bounds the manifests of one assignment; zero is the agent's default.
	MaxManifests int64
	Import       Import
	// SiteValues is the place of the values that the site itself sets: a file, ConfigMapPrefix and NAMESPACE/NAME, or empty
	// for the usual file.
	SiteValues string
	// Memory is NAMESPACE/NAME of the Secret and the Lease in the cluster, NoMemory, or empty for the usual name.
	Memory string
	// Listen is the address of health and metrics; empty is none.
	Listen string
	Serve  Serve
	// LogFormat is text or json.
	LogFormat string
}

// Program names a program to users, hubs and registries.
type Program struct {
	Version   string
	UserAgent string
}

// Trust names the keys or the trust document that releases are judged by.
type Trust struct {
	Keys     []string // files of public keys
	Document string   // a file with version 1 of the trust document
}

// Registry is the source of bundles, and how registries and the hub are reached.
type Registry struct {
	Locations   []oci.Location // in the order in which they are asked; none where bundles come by import only
	Plain       bool           // of all Locations
	PlainHosts  []string
	Network     oci.Network
	Window      window.Transfer
	Credentials string // a file; empty is docker's own
	AuthHosts   []string
}

// plainAt reports whether the registry at host is spoken to without TLS.
func (r Registry) plainAt(host string) bool {
	ours := slices.ContainsFunc(r.Locations, func(l oci.Location) bool { return l.Host == host })
	return r.Plain && ours || slices.Contains(r.PlainHosts, host)
}

// Reports is the destination of reports, and who may delete them.
type Reports struct {
	Hub, HubKey string       // a URL, and a file with the hub's public key
	EnrollToken string       // a file
	Registry    oci.Location // zero where reports go to no registry
	AckStored   bool
}

// Adapters are the engines that the agent has.
type Adapters struct {
	Only            string // takes every assignment, whatever the release says
	DirectoryRoot   string
	Kubeconfig      string
	ArgoNamespace   string
	AnsiblePlaybook string
	Impersonate     bool
	Zarf            string   // the program; empty is without
	ZarfKeys        []string // files
}

// Passes is when the agent works, and how long engines may take.
type Passes struct {
	Interval    time.Duration
	Settle      *time.Duration // nil: what each adapter asks for
	Deadline    time.Duration
	Maintenance []window.Maintenance
	Veto        freeze.Veto
}

// Serve is the agent's read-only endpoint over its content store.
type Serve struct {
	Address   string // empty is none
	URL       string // empty is made of the address
	Cert, Key string // files; empty is a CA of the agent's own
	Plain     bool
	// AcceptReports takes the reports of other agents.
	AcceptReports bool
}

// Sources are the places where settings are given.
type Sources struct {
	// File is the path of the configuration file; empty is none. Named is true where a person has given it: a file
	// that nobody has named need not exist, and WHERRY_CONFIG overrides it.
	File  string
	Named bool
	// Flag returns the values of a flag, and whether it was given at all.
	Flag func(name string) (values []string, given bool)
	// Environ is os.LookupEnv; nil is an empty environment.
	Environ func(string) (string, bool)
	Program Program
}

func (s Sources) environ(name string) (string, bool) {
	if s.Environ == nil {
		return "", false
	}
	return s.Environ(name)
}

// Read returns the configuration of sources. An *Error lists everything that is wrong.
func Read(sources Sources) (*Config, error) { return read(Settings(), sources) }

func read(known []Setting, sources Sources) (*Config, error) {
	path, named := sources.File, sources.Named
	if v, ok := sources.environ("WHERRY_CONFIG"); ok && !named {
		path, named = v, true
	}
	file := configFile{}
	if path != "" {
		var err error
		file, err = readConfigFile(path, known)
		switch {
		case !named && errors.Is(err, fs.ErrNotExist):
			path = ""
		case !named && errors.Is(err, fs.ErrPermission):
			return nil, invalid(err, "run the command as a user who may read it, or give --config '' for none")
		case err != nil:
			return nil, invalid(err, `"wherry help agent-settings" lists the fields`)
		}
	}
	if _, ok := sources.environ("WHERRY_ALLOW_EXPIRED"); ok {
		return nil, invalid(fmt.Errorf("WHERRY_ALLOW_EXPIRED: %w", errNotSettable), allowExpiredHint)
	}
	c := &Config{File: path, ByDefault: !named && path != "", Program: sources.Program, StateDir: defaultStateDir, LogFormat: "text"}
	c.Cluster.Platform = "default"
	c.Cluster.Name, _ = os.Hostname()
	var problems []error
	for _, s := range known {
		values, origin := s.given(sources, file)
		for _, v := range values {
			if err := s.set(c, v); err != nil {
				problems = append(problems, fmt.Errorf("%s: %w", s.names(origin), s.refusal(v, err)))
			}
		}
	}
	if len(problems) > 0 {
		return nil, invalid(errors.Join(problems...), "")
	}
	return c, nil
}

// errNotSettable is why no setting allows expired releases: it would allow those that nobody has looked at.
var errNotSettable = errors.New("no setting allows expired releases")

const allowExpiredHint = "a person allows those of one package: import site.tar --allow-expired REASON"

// given returns the values of s from the place that overrides the others, and that place.
func (s Setting) given(sources Sources, file configFile) (values []string, origin string) {
	if values, ok := sources.Flag(s.Flag); ok {
		return values, "--" + s.Flag
	}
	if v, ok := sources.environ(s.Variable()); ok {
		if s.List {
			return strings.Split(v, cmp.Or(s.separator, ",")), s.Variable()
		}
		return []string{v}, s.Variable()
	}
	found := file.values[s.Field]
	for _, v := range found.texts {
		values = append(values, s.besideFile(v, file.path))
	}
	return values, fmt.Sprintf("%s:%d: %s", file.path, found.line, s.Field)
}

// besideFile makes a relative path one of the folder of the file in which it stands. A location in a registry and a ConfigMap are no paths.
func (s Setting) besideFile(value, file string) string {
	if l, err := oci.Parse(value); err == nil && l.Dir != "" && !filepath.IsAbs(l.Dir) {
		return oci.Location{Dir: filepath.Join(filepath.Dir(file), l.Dir)}.String()
	}
	if strings.HasPrefix(value, ConfigMapPrefix) {
		return value
	}
	key, path := "", value
	if s.pair {
		if k, v, ok := strings.Cut(value, "="); ok {
			key, path = k+"=", v
		}
	}
	if !s.path || filepath.IsAbs(path) {
		return value
	}
	return key + filepath.Join(filepath.Dir(file), path)
}

// names returns the place where a setting was given, and the other ways to give it.
func (s Setting) names(origin string) string {
	all := []string{"--" + s.Flag, s.Variable(), "field " + s.Field}
	all = slices.DeleteFunc(all, func(n string) bool {
		return n == origin || strings.HasSuffix(origin, ": "+s.Field) && n == "field "+s.Field
	})
	return origin + " (also " + strings.Join(all, ", ") + ")"
}

// Missing is the error of a required setting that was not given.
func (c *Config) Missing(field string) error {
	file := cmp.Or(c.File, "the file that --config names")
	for _, s := range Settings() {
		if s.Field == field {
			err := invalidf("%s is not set: give --%s, %s or the field %s of %s (expected: %s)", field, s.Flag, s.Variable(), s.Field, file, s.Allowed)
			if field == "keys" {
				return invalid(err, "a platform with a trust document takes --trust in place of --key")
			}
			return err
		}
	}
	panic("no setting " + field)
}

// checkReports returns an error where no report could ever be deleted.
func (c *Config) checkReports() error {
	if c.Reports.AckStored && (c.Reports.Registry == (oci.Location{}) || c.Reports.Hub != "") {
		return invalidf("--ack-mode stored is for reports in a registry without a hub that acknowledges them: give --report-registry, and no --hub")
	}
	return nil
}

// Complete returns an error where a setting is missing without which no agent can work.
func (c *Config) Complete() error {
	switch {
	case c.Cluster.Environment == "":
		return c.Missing("environment")
	case c.Cluster.Type == "":
		return c.Missing("clusterType")
	case len(c.Trust.Keys) == 0 && c.Trust.Document == "" && !c.hasTrust():
		return c.Missing("keys")
	case c.Adapters.Only == "directory" && c.Adapters.DirectoryRoot == "":
		return c.Missing("directoryRoot")
	case c.Adapters.Only == "ansible" && c.Adapters.AnsiblePlaybook == "":
		return c.Missing("ansiblePlaybook")
	case c.Adapters.Only == "zarf" && c.Adapters.Zarf == "":
		return c.Missing("zarf")
	}
	if err := c.checkServe(); err != nil {
		return err
	}
	return c.checkReports()
}
