package agentcmd

import (
	"context"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"sigs.k8s.io/yaml"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/oci"
	"github.com/wherry-dev/wherry/cmd/internal/cli"
)

// Names of an installed agent's files; agent.yaml names the others.
const (
	configName = "agent.yaml"
	hubKeyName = "hub.pub"
	trustName  = "trust.json"
)

// InstalledTokenPath is where the manifests put the token that an agent enrolls with.
const InstalledTokenPath = "/etc/wherry-enroll/token"

// Installed is what an agent that is to be installed was told.
type Installed struct {
	// Files are agent.yaml and the public keys and trust document that it names, by name.
	Files map[string][]byte
	// ClusterName is empty where it was not told.
	ClusterName string
	// Registry is where bundles come from. It is no folder.
	Registry oci.Location
	// Cluster says which bundle is the agent's. Who signs it is said by version 1 of the trust document, or by
	// Pinned where that is nil.
	Cluster bundle.ReportCluster
	Pinned  bundle.Trust
	Trust   bundle.TrustChain
	// PlainHTTP, AuthHosts and Impersonate are the settings of these names, ArgoNamespace too where it was told.
	PlainHTTP, Impersonate bool
	AuthHosts              []string
	ArgoNamespace          string
	// VetoFile is the setting of that name, an absolute path; empty where it was not told.
	VetoFile string
	// EnrollToken is the token that the agent is to enroll with, with its secret; empty where none was given.
	EnrollToken string
}

// here are the settings that are the manifests' to make, or make no sense in a cluster: it has Secrets for
// credentials and keys, a ConfigMap for authorities and probes that know the port, and the image has no other program.
// docs/install.md says so of each.
var here = [...]string{"stateDir", "directoryRoot", "ansiblePlaybook", "kubeconfig", "memory", "adapter", "zarf", "zarfKeys", "credentials", "tls.ca", "tls.cert", "tls.key", "listen", "veto.command", "veto.timeout"}

// AddInstallFlags gives cmd a flag for each setting that an agent in a cluster can be told.
func AddInstallFlags(cmd *cobra.Command) {
	for _, s := range installSettings() {
		s.addTo(cmd, cmd.Flags())
	}
	cmd.Flags().Lookup("cluster-name").Usage = "this cluster's `NAME` in reports (default: the name of the agent's node)"
	cmd.Flags().Lookup("registry").Usage = "where bundles come from, `LOCATION` as oci://HOST/PREFIX"
}

// ReadInstalled returns the configuration that the flags give, checked as the agent will check it. The
// variables WHERRY_* are not asked: they are about an agent on this machine.
func ReadInstalled(ctx context.Context, flags *pflag.FlagSet) (*Installed, error) {
	c, err := readConfigOf(installSettings(), flags, func(string) (string, bool) { return "", false })
	if err != nil {
		return nil, err
	}
	switch {
	case !flags.Changed("registry"):
		return nil, cli.Usagef("--registry is not set: allowed is oci://HOST/PREFIX")
	case c.registry.Dir != "":
		return nil, cli.Usagef("--registry: %s is a folder of this machine: an agent in a cluster needs oci://HOST/PREFIX", c.registry)
	case c.reports.Dir != "":
		return nil, cli.Usagef("--report-registry: %s is a folder of this machine: an agent in a cluster needs oci://HOST/PREFIX", c.reports)
	case c.veto.File != "" && !mountable(c.veto.File):
		return nil, cli.Usagef("--veto-file %q: allowed is the absolute path of a file in a folder of the node, such as /run/plc/busy", c.veto.File)
	case c.cluster.Environment == "":
		return nil, cli.Usagef("--environment is not set")
	case c.cluster.Type == "":
		return nil, cli.Usagef("--cluster-type is not set")
	case len(c.keys) == 0 && c.trust == "":
		return nil, cli.Usagef("--key is not set: give the public key that releases are signed with, such as cosign.pub, or --trust with version 1 of the platform's trust document")
	}
	if err := c.checkReports(); err != nil {
		return nil, err
	}
	in := &Installed{Files: map[string][]byte{}, Registry: c.registry, Cluster: c.cluster, PlainHTTP: c.plain, AuthHosts: c.authHosts, Impersonate: c.impersonate, ArgoNamespace: c.argoNamespace, VetoFile: c.veto.File}
	if flags.Changed("cluster-name") {
		in.ClusterName = c.cluster.Name
	}
	if in.EnrollToken, err = c.installedToken(); err != nil {
		return nil, err
	}
	return in, in.addFiles(ctx, c, flags)
}

// mountable says whether the pod can have the folder of a file of the node.
func mountable(file string) bool {
	return path.IsAbs(file) && path.Clean(file) == file && path.Dir(file) != "/"
}

func (in *Installed) addFiles(ctx context.Context, c *config, flags *pflag.FlagSet) error {
	keys, err := readKeys(c.keys)
	if err != nil {
		return err
	}
	hubKey, err := c.readHubKey()
	if err != nil {
		return err
	}
	in.Pinned = bundle.Pinned(keys)
	if err := in.addTrust(ctx, c); err != nil {
		return err
	}
	told := map[string]any{}
	var names []string
	for i, key := range keys {
		name := "cosign.pub"
		if i > 0 {
			name = fmt.Sprintf("cosign-%d.pub", i+1)
		}
		names = append(names, name)
		if in.Files[name], err = bundle.MarshalPublicKey(key); err != nil {
			return err
		}
	}
	if hubKey != nil {
		if in.Files[hubKeyName], err = bundle.MarshalPublicKey(hubKey); err != nil {
			return err
		}
	}
	for _, s := range installSettings() {
		values, _ := s.told(flags, func(string) (string, bool) { return "", false }, configFile{})
		switch {
		case s.field == "keys" && len(names) > 0:
			told[s.field] = names
		case s.field == "trust" && in.Trust != nil:
			told[s.field] = trustName
		case s.field == "enrollToken" && in.EnrollToken != "":
			told[s.field] = InstalledTokenPath
		case s.field == "hubKey" && hubKey != nil:
			told[s.field] = hubKeyName
		case s.field == "cluster.name" || len(values) == 0:
		case s.list:
			put(told, s.field, values)
		default:
			put(told, s.field, values[0])
		}
	}
	in.Files[configName], err = yaml.Marshal(told)
	return err
}

// addTrust checks the trust document as an agent does that it is given to.
func (in *Installed) addTrust(ctx context.Context, c *config) error {
	if c.trust == "" {
		return nil
	}
	envelope, err := c.firstTrust(ctx)
	if err != nil {
		return err
	}
	in.Trust, err = bundle.TrustChain(nil).Append(envelope)
	if err == nil {
		err = in.Trust.Current().Belongs(c.cluster.Platform)
	}
	if err != nil {
		return cli.Fail(cli.Denied, fmt.Errorf("--trust: %s: %w", c.trust, err), "")
	}
	in.Files[trustName] = envelope
	return nil
}

// put sets a field whose name may have a dot for a mapping.
func put(told map[string]any, field string, value any) {
	outer, inner, nested := strings.Cut(field, ".")
	if !nested {
		told[field] = value
		return
	}
	m, _ := told[outer].(map[string]any)
	if m == nil {
		m = map[string]any{}
		told[outer] = m
	}
	m[inner] = value
}

func installSettings() []setting {
	return slices.DeleteFunc(settings(), func(s setting) bool { return slices.Contains(here[:], s.field) })
}
