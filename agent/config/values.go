package config

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/rest"

	"github.com/wherry-dev/wherry/agent/clustermemory"
	"github.com/wherry-dev/wherry/agent/sitevalues"
)

// ConfigMapPrefix begins the setting siteValues if the values are in a ConfigMap of the cluster.
const ConfigMapPrefix = "configmap:"

func setSiteValues(c *Config, s string) error {
	if name, ok := strings.CutPrefix(s, ConfigMapPrefix); ok {
		namespace, object, ok := strings.Cut(name, "/")
		if !ok || len(validation.IsDNS1123Label(namespace)) > 0 || len(validation.IsDNS1123Subdomain(object)) > 0 {
			return fmt.Errorf("%q is not NAMESPACE/NAME", name)
		}
	} else if s == "" {
		return errors.New("must not be empty")
	}
	c.SiteValues = s
	return nil
}

// siteValues returns the place of the site's own values.
func (c *Config) siteValues(cluster *rest.Config) (sitevalues.Source, error) {
	name, inCluster := strings.CutPrefix(c.SiteValues, ConfigMapPrefix)
	switch {
	case c.SiteValues == "":
		return sitevalues.File{Path: sitevalues.DefaultFile}, nil
	case !inCluster:
		path, err := filepath.Abs(c.SiteValues)
		return sitevalues.File{Path: path, Named: true}, err
	case cluster == nil:
		return nil, invalid(fmt.Errorf("--site-values: %s: the agent has no cluster", c.SiteValues), "give --kubeconfig, WHERRY_KUBECONFIG or the field kubeconfig, or name a file")
	}
	namespace, object, _ := strings.Cut(name, "/")
	get, err := clustermemory.ConfigMapReader(cluster, clustermemory.Name{Namespace: namespace, Name: object})
	return sitevalues.ConfigMap{Name: name, Get: get}, err
}
