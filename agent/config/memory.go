package config

import (
	"fmt"
	"os"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/rest"

	"github.com/wherry-dev/wherry/agent"
	"github.com/wherry-dev/wherry/agent/clustermemory"
	"github.com/wherry-dev/wherry/bundle"
)

// NoMemory is the value of Config.Memory where nothing is kept in the cluster.
const NoMemory = "none"

// namespaceFile has the name of a pod's namespace.
const namespaceFile = "/var/run/secrets/kubernetes.io/serviceaccount/namespace"

func setMemory(c *Config, s string) error {
	namespace, name, ok := strings.Cut(s, "/")
	switch {
	case s == NoMemory:
	case !ok:
		return fmt.Errorf("%q is not a pair", s)
	case len(validation.IsDNS1123Label(namespace)) > 0:
		return fmt.Errorf("%q is not a namespace", namespace)
	case len(validation.IsDNS1123Subdomain(name)) > 0:
		return fmt.Errorf("%q is not a name of an object", name)
	}
	c.Memory = s
	return nil
}

// memoryName returns the name of the agent's Secret and Lease in the cluster, and whether the agent may make the
// namespace. The name is configured, or the usual one in a pod's namespace, or made of the configured stream. A stream
// that the agent was bound to later does not count: a machine that is set up anew does not know it.
func (c *Config) memoryName() (name clustermemory.Name, create, ok bool) {
	switch {
	case c.Memory == NoMemory:
		return name, false, false
	case c.Memory != "":
		name.Namespace, name.Name, _ = strings.Cut(c.Memory, "/")
		return name, c.Adapters.Kubeconfig != "", true
	case c.Adapters.Kubeconfig == "":
		namespace, err := os.ReadFile(namespaceFile)
		if err != nil {
			namespace = []byte(clustermemory.DefaultNamespace)
		}
		return clustermemory.Name{Namespace: strings.TrimSpace(string(namespace)), Name: clustermemory.DefaultName}, false, true
	}
	stream := bundle.Stream{Platform: c.Cluster.Platform, Environment: c.Cluster.Environment, ClusterType: c.Cluster.Type}
	return clustermemory.NameFor(stream), true, true
}

// remember gives the agent its memory and Lease, where there is a cluster for them.
func (c *Config) remember(cluster *rest.Config, o *agent.Options) error {
	if cluster == nil {
		return nil
	}
	name, create, ok := c.memoryName()
	if !ok {
		return nil
	}
	store, err := clustermemory.Open(cluster, name, create)
	if err != nil {
		return err
	}
	o.OnCluster = agent.OnCluster{Memory: store.Memory(), Lease: store.Lease(), Adapters: []string{"argo", "flux", "kubernetes", "zarf"}}
	return nil
}
