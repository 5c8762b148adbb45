package chart

import (
	"fmt"

	"helm.sh/helm/v3/pkg/chartutil"

	"github.com/wherry-dev/wherry/scheduler/finding"
)

// kubeVersionAdvice tells how a platform declares the version and the kinds of its clusters.
const kubeVersionAdvice = "set the annotations wherry.dev/kube-version, and wherry.dev/api-versions where the chart asks for kinds, on the ClusterType"

// unknownCapabilities is .Capabilities if the platform does not declare the version of its clusters. Its methods stand for
// the fields of Helm's type, so that reading one is an error.
type unknownCapabilities struct{ HelmVersion any }

func (unknownCapabilities) KubeVersion() (any, error)    { return nil, errCapabilities() }
func (unknownCapabilities) APIVersions() (any, error)    { return nil, errCapabilities() }
func (unknownCapabilities) MarshalJSON() ([]byte, error) { return nil, errCapabilities() }
func (unknownCapabilities) MarshalYAML() (any, error)    { return nil, errCapabilities() }

func errCapabilities() error {
	return &finding.Error{Message: ErrCapabilities.Error(), Hint: kubeVersionAdvice, Err: ErrCapabilities}
}

// capabilities returns .Capabilities of the templates, and Helm's own value, nil if the version is not known.
func capabilities(opts Options) (shown any, known *chartutil.Capabilities, err error) {
	if opts.KubeVersion == "" {
		return unknownCapabilities{HelmVersion: chartutil.DefaultCapabilities.HelmVersion}, nil, nil
	}
	version, err := chartutil.ParseKubeVersion(opts.KubeVersion)
	if err != nil {
		return nil, nil, fmt.Errorf("the version of Kubernetes %q, such as of the annotation wherry.dev/kube-version: write it as 1.33 (%w)", opts.KubeVersion, err)
	}
	known = chartutil.DefaultCapabilities.Copy()
	known.KubeVersion = *version
	known.APIVersions = append(append(chartutil.VersionSet{}, known.APIVersions...), opts.APIVersions...)
	return known, known, nil
}
