package agentcmd

import (
	"fmt"
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
)

// Installed is what an agent that is to be installed was told.
type Installed struct {
	// Files are agent.yaml and the public keys that it names, by name.
	Files map[string][]byte
	// ClusterName is empty where it was not told.
	ClusterName string
	// Registry is where bundles come from. It is no folder.
	Registry oci.Location
	// Cluster says which bundle is the agent's, and Trust who signs it.
	Cluster bundle.ReportCluster
	Trust   bundle.Trust
	// PlainHTTP and Impersonate are the settings of these names, ArgoNamespace too where it was told.
	PlainHTTP, Impersonate bool
	ArgoNamespace          string
}

// here are the settings that are the manifests' to make, or make no sense in a cluster.
var here = [...]string{"stateDir", "directoryRoot", "ansiblePlaybook", "kubeconfig", "adapter", "zarf", "zarfKeys"}

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
func ReadInstalled(flags *pflag.FlagSet) (*Installed, error) {
	c, err := readConfigOf(installSettings(), flags, func(string) (string, bool) { return "", false })
	if err != nil {
		return nil, err
	}
	switch {
	case !flags.Changed("registry"):
		return nil, cli.Usagef("--registry is not set: allowed is oci://HOST/PREFIX")
	case c.registry.Dir != "":
		return nil, cli.Usagef("--registry: %s is a folder of this machine: an agent in a cluster needs oci://HOST/PREFIX", c.registry)
	case c.cluster.Environment == "":
		return nil, cli.Usagef("--environment is not set")
	case c.cluster.Type == "":
		return nil, cli.Usagef("--cluster-type is not set")
	case len(c.keys) == 0:
		return nil, cli.Usagef("--key is not set: give the public key that releases are signed with, such as cosign.pub")
	}
	in := &Installed{Files: map[string][]byte{}, Registry: c.registry, Cluster: c.cluster, PlainHTTP: c.plain, Impersonate: c.impersonate, ArgoNamespace: c.argoNamespace}
	if flags.Changed("cluster-name") {
		in.ClusterName = c.cluster.Name
	}
	return in, in.addFiles(c, flags)
}

func (in *Installed) addFiles(c *config, flags *pflag.FlagSet) error {
	keys, err := readKeys(c.keys)
	if err != nil {
		return err
	}
	hubKey, err := c.readHubKey()
	if err != nil {
		return err
	}
	in.Trust = bundle.Pinned(keys)
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
		case s.field == "keys":
			told[s.field] = names
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
