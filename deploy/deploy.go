// Package deploy holds what runs wherry's programs: a Helm chart each for the agent, the hub and the promoter in charts/,
// and units of systemd in systemd/. The Kustomize bases in agent/, hub/ and promoter/ are the charts with their default values.
//
// Begin with Chart.Render, which prints what "helm template" prints: it has the same engine.
package deploy

import (
	"bytes"
	"embed"
	"fmt"
	"io/fs"
	"strings"

	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/common/util"
	"helm.sh/helm/v4/pkg/chart/loader/archive"
	helm "helm.sh/helm/v4/pkg/chart/v2"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/engine"
	releaseutil "helm.sh/helm/v4/pkg/release/v1/util"
	"sigs.k8s.io/yaml"
)

//go:embed all:charts
var charts embed.FS

// Chart is the name of a chart, and of its release.
type Chart string

// The charts.
const (
	Agent    Chart = "wherry-agent"
	Hub      Chart = "wherry-hub"
	Promoter Chart = "wherry-promoter"
)

// DefaultNamespace is the namespace of the Kustomize bases.
const DefaultNamespace = "wherry-system"

// AgentAccount is the name of the agent's ServiceAccount.
const AgentAccount = string(Agent)

// RoleName is the name of the roles of an agent in a namespace.
func RoleName(namespace string) string {
	if namespace == DefaultNamespace {
		return AgentAccount
	}
	return AgentAccount + "-" + namespace
}

// Render returns the manifests of a release of c in a namespace, in the order in which they can be applied. Values go over
// those of the chart, and are checked against its schema.
func (c Chart) Render(namespace string, values map[string]any) ([]byte, error) {
	loaded, err := c.load()
	if err != nil {
		return nil, err
	}
	data, err := yaml.Marshal(values)
	if err != nil {
		return nil, err
	}
	var read map[string]any // with the types that a file of values gives
	if err := yaml.Unmarshal(data, &read); err != nil {
		return nil, err
	}
	release := common.ReleaseOptions{Name: string(c), Namespace: namespace, Revision: 1, IsInstall: true}
	top, err := util.ToRenderValues(loaded, read, release, nil)
	if err != nil {
		return nil, err
	}
	rendered, err := engine.Render(loaded, top)
	if err != nil {
		return nil, err
	}
	_, manifests, err := releaseutil.SortManifests(rendered, nil, releaseutil.InstallOrder)
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	for _, m := range manifests {
		fmt.Fprintf(&out, "---\n# Source: %s\n%s\n", m.Name, m.Content)
	}
	return append(bytes.TrimSpace(out.Bytes()), '\n'), nil
}

func (c Chart) load() (*helm.Chart, error) {
	folder := "charts/" + string(c)
	var files []*archive.BufferedFile
	err := fs.WalkDir(charts, folder, func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := charts.ReadFile(name)
		files = append(files, &archive.BufferedFile{Name: strings.TrimPrefix(name, folder+"/"), Data: data})
		return err
	})
	if err != nil {
		return nil, err
	}
	return loader.LoadFiles(files)
}
