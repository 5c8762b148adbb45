package render

import (
	"fmt"

	"helm.sh/helm/v4/pkg/chart/common"

	"github.com/wherry-dev/wherry/publisher/embed/chart"
	"github.com/wherry-dev/wherry/scheduler/finding"
)

// kubeVersionAdvice tells how a platform declares the version and the kinds of its clusters.
const kubeVersionAdvice = "set the annotations wherry.dev/kube-version, and wherry.dev/api-versions where the chart asks for kinds, on the ClusterType"

// unknownCapabilities is .Capabilities if the platform does not declare the version of its clusters. Its methods stand for
// the fields of Helm's type, so that reading one is an error, which the run keeps: some functions drop errors.
type unknownCapabilities struct {
	HelmVersion any
	run         *run
}

// KubeVersion stands for the field of that name.
func (c unknownCapabilities) KubeVersion() (any, error) { return nil, c.run.fails(errCapabilities()) }

// APIVersions stands for the field of that name.
func (c unknownCapabilities) APIVersions() (any, error) { return nil, c.run.fails(errCapabilities()) }

// MarshalJSON returns an error.
func (c unknownCapabilities) MarshalJSON() ([]byte, error) {
	return nil, c.run.fails(errCapabilities())
}

// Format writes nothing, and is an error too.
func (c unknownCapabilities) Format(fmt.State, rune) { _ = c.run.fails(errCapabilities()) }

// knownCapabilities are printed in one way, wherever they are in a value. A pointer would be printed as its address.
type knownCapabilities struct{ *common.Capabilities }

// Format writes what package fmt writes for a pointer that is the whole value.
func (c knownCapabilities) Format(s fmt.State, verb rune) {
	fmt.Fprintf(s, fmt.FormatString(s, verb), c.Capabilities)
}

func errCapabilities() error {
	return &finding.Error{Message: chart.ErrCapabilities.Error(), Hint: kubeVersionAdvice, Err: chart.ErrCapabilities}
}

// capabilities returns Helm's value of .Capabilities, nil if the version is not known.
func capabilities(opts chart.Options) (*common.Capabilities, error) {
	if opts.KubeVersion == "" {
		return nil, nil
	}
	version, err := common.ParseKubeVersion(opts.KubeVersion)
	if err != nil {
		return nil, fmt.Errorf("the version of Kubernetes %q, such as of the annotation wherry.dev/kube-version: write it as 1.33 (%w)", opts.KubeVersion, err)
	}
	known := common.DefaultCapabilities.Copy()
	known.KubeVersion = *version
	known.APIVersions = append(append(common.VersionSet{}, known.APIVersions...), opts.APIVersions...)
	return known, nil
}
