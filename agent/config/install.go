package config

import (
	"context"
	"crypto"
	"errors"
	"fmt"
	"net"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/oci"
)

// Names of an installed agent's files.
const (
	hubKeyName = "hub.pub"
	trustName  = "trust.json"
)

// InstalledTokenPath is the path of the token that an agent enrolls with, as the manifests mount it.
const InstalledTokenPath = "/etc/wherry-enroll/token"

// Installed is the configuration of an agent that is to be installed.
type Installed struct {
	// Settings are the content of agent.yaml.
	Settings map[string]any
	// Files are the public keys and the trust document that Settings name, by name.
	Files map[string]string
	// Registries have the bundles, and are asked in this order. None is a folder.
	Registries []oci.Location
	// Cluster selects the agent's bundle. Version 1 of the trust document in Trust, or Pinned if Trust is nil, lists
	// the keys that sign it.
	Cluster bundle.ReportCluster
	Pinned  bundle.Trust
	Trust   bundle.TrustChain
	// PlainHTTP, PlainHosts, AuthHosts, Impersonate and ArgoNamespace are the settings of these names. An empty ArgoNamespace
	// means that it was not given.
	PlainHTTP, Impersonate bool
	PlainHosts, AuthHosts  []string
	ArgoNamespace          string
	// EnrollToken is the agent's token for enrollment, with its secret; empty if not given.
	EnrollToken string
}

// here are the settings that are the manifests' to make, or make no sense in a cluster: it has Secrets for
// credentials and keys, a ConfigMap for authorities and probes that know the port, and the image has no other program.
// docs/install.md says so of each.
var here = [...]string{"stateDir", "directoryRoot", "ansiblePlaybook", "kubeconfig", "memory", "adapter", "zarf", "zarfKeys", "credentials", "tls.ca", "tls.hostCA", "tls.cert", "tls.key", "listen", "serve.cert", "serve.key", "serve.plainHTTP", "veto.command", "veto.timeout"}

// InstallSettings lists the settings of an agent that runs in a cluster.
func InstallSettings() []Setting {
	return slices.DeleteFunc(Settings(), func(s Setting) bool { return slices.Contains(here[:], s.Field) })
}

// ReadInstalled returns the configuration that flags give, checked as the agent will check it. Other sources are not
// read: they are about an agent on this machine.
func ReadInstalled(ctx context.Context, flag func(name string) (values []string, given bool)) (*Installed, error) {
	sources := Sources{Flag: flag}
	c, err := read(InstallSettings(), sources)
	if err != nil {
		return nil, err
	}
	given := func(name string) bool { _, given := flag(name); return given }
	switch {
	case !given("registry"):
		return nil, invalidf("--registry is not set (expected: oci://HOST/PREFIX)")
	case slices.ContainsFunc(c.Registry.Locations, isFolder):
		folder := c.Registry.Locations[slices.IndexFunc(c.Registry.Locations, isFolder)]
		return nil, invalidf("--registry: %s is a folder of this machine: an agent in a cluster needs oci://HOST/PREFIX", folder)
	case c.Reports.Registry.Dir != "":
		return nil, invalidf("--report-registry: %s is a folder of this machine: an agent in a cluster needs oci://HOST/PREFIX", c.Reports.Registry)
	case c.Passes.Veto.File != "" && !mountable(c.Passes.Veto.File):
		return nil, invalidf("--veto-file %q is not the absolute path of a file in a folder of the node, such as /run/plc/busy", c.Passes.Veto.File)
	case c.SiteValues != "" && !strings.HasPrefix(c.SiteValues, ConfigMapPrefix):
		return nil, invalidf("--site-values: %s is a file of this machine: an agent in a cluster needs configmap:NAMESPACE/NAME", c.SiteValues)
	case c.Cluster.Environment == "":
		return nil, invalidf("--environment is not set")
	case c.Cluster.Type == "":
		return nil, invalidf("--cluster-type is not set")
	case len(c.Trust.Keys) == 0 && c.Trust.Document == "":
		return nil, invalidf("--key is not set: give the public key that releases are signed with, such as cosign.pub, or --trust with version 1 of the platform's trust document")
	}
	if err := errors.Join(c.checkReports(), c.checkServe()); err != nil {
		return nil, err
	}
	in := &Installed{
		Settings: map[string]any{}, Files: map[string]string{}, Registries: c.Registry.Locations, Cluster: c.Cluster, PlainHTTP: c.Registry.Plain, PlainHosts: c.Registry.PlainHosts, AuthHosts: c.Registry.AuthHosts,
		Impersonate: c.Adapters.Impersonate, ArgoNamespace: c.Adapters.ArgoNamespace,
	}
	if _, port, err := net.SplitHostPort(c.Serve.Address); err == nil {
		if _, err = strconv.Atoi(port); err != nil {
			return nil, invalid(fmt.Errorf("--serve: %w", err), "")
		}
	}
	if in.EnrollToken, err = c.installedToken(); err != nil {
		return nil, err
	}
	return in, in.addFiles(ctx, c, sources)
}

func isFolder(l oci.Location) bool { return l.Dir != "" }

// mountable reports whether the pod can have the folder of a file of the node.
func mountable(file string) bool {
	return path.IsAbs(file) && path.Clean(file) == file && path.Dir(file) != "/"
}

func (in *Installed) addFiles(ctx context.Context, c *Config, sources Sources) error {
	keys, err := readKeys(c.Trust.Keys)
	if err != nil {
		return err
	}
	hubKey, err := c.HubKey()
	if err != nil {
		return err
	}
	in.Pinned = bundle.Pinned(keys)
	if err := in.addTrust(ctx, c); err != nil {
		return err
	}
	var names []string
	for i, key := range keys {
		name := "cosign.pub"
		if i > 0 {
			name = fmt.Sprintf("cosign-%d.pub", i+1)
		}
		names = append(names, name)
		if err := in.addKey(name, key); err != nil {
			return err
		}
	}
	if hubKey != nil {
		if err := in.addKey(hubKeyName, hubKey); err != nil {
			return err
		}
	}
	content := in.Settings
	for _, s := range InstallSettings() {
		values, _ := s.given(sources, configFile{})
		switch {
		case s.Field == "keys" && len(names) > 0:
			content[s.Field] = names
		case s.Field == "trust" && in.Trust != nil:
			content[s.Field] = trustName
		case s.Field == "enrollToken" && in.EnrollToken != "":
			content[s.Field] = InstalledTokenPath
		case s.Field == "hubKey" && hubKey != nil:
			content[s.Field] = hubKeyName
		case len(values) == 0:
		case s.List && !(s.Field == "registry" && len(values) == 1):
			put(content, s.Field, values)
		default:
			put(content, s.Field, values[0])
		}
	}
	return nil
}

func (in *Installed) addKey(name string, key crypto.PublicKey) error {
	pem, err := bundle.MarshalPublicKey(key)
	in.Files[name] = string(pem)
	return err
}

// addTrust checks the trust document as an agent does that it is given to.
func (in *Installed) addTrust(ctx context.Context, c *Config) error {
	if c.Trust.Document == "" {
		return nil
	}
	envelope, err := c.firstTrust(ctx)
	if err != nil {
		return err
	}
	in.Trust, err = bundle.TrustChain(nil).Append(envelope)
	if err == nil {
		err = in.Trust.Current().Belongs(c.Cluster.Platform)
	}
	if err != nil {
		return refused(fmt.Errorf("--trust: %s: %w", c.Trust.Document, err), "")
	}
	in.Files[trustName] = string(envelope)
	return nil
}

// put sets a field whose name may have a dot for a mapping.
func put(content map[string]any, field string, value any) {
	outer, inner, nested := strings.Cut(field, ".")
	if !nested {
		content[field] = value
		return
	}
	m, _ := content[outer].(map[string]any)
	if m == nil {
		m = map[string]any{}
		content[outer] = m
	}
	m[inner] = value
}
