package migrate

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"path"

	"go.yaml.in/yaml/v3"
)

// kustomizationNames are the names of a kustomization, in kustomize's order.
var kustomizationNames = []string{"kustomization.yaml", "kustomization.yml", "Kustomization"}

// kustomizePatch is a patch of a kustomization and of Flux's postRenderers.
type kustomizePatch struct {
	Target map[string]string `yaml:"target,omitempty"`
	Patch  string            `yaml:"patch,omitempty"`
	Path   string            `yaml:"path,omitempty"`
}

// postRenderer is what Flux can do to the objects of a chart.
type postRenderer struct {
	Patches []kustomizePatch `yaml:"patches,omitempty"`
	Images  []kustomizeImage `yaml:"images,omitempty"`
}

type kustomizeImage struct {
	Name    string `yaml:"name"`
	NewName string `yaml:"newName,omitempty"`
	NewTag  string `yaml:"newTag,omitempty"`
	Digest  string `yaml:"digest,omitempty"`
}

// postRender adds the kustomization that Fleet has change what a chart renders to the manifests: as postRenderers of Flux, if these can do
// all of it.
func (f *fleet) postRender(w *workload, at place, files fs.FS, dir string, m map[string]string) {
	what := "kustomize.dir " + dir
	made, err := readPostRenderer(files, dir)
	var data []byte
	if err == nil {
		data, err = yaml.Marshal([]map[string]postRenderer{{"kustomize": made}})
	}
	if err != nil {
		f.report.add(Missing, at, w.object, what, "Fleet changes with it what the chart renders, and Flux's postRenderers take patches and images alone: "+oneLine(err)+
			"; write these into the Workload's manifests (postRenderers), or change the chart's values")
		return
	}
	m["postRenderers"] = string(data)
	f.report.add(Changed, at, w.object, what, "its patches and images become postRenderers of Flux's HelmRelease")
}

func readPostRenderer(files fs.FS, dir string) (made postRenderer, err error) {
	var data []byte
	err = fs.ErrNotExist
	for _, name := range kustomizationNames {
		if data, err = fs.ReadFile(files, path.Join(dir, name)); err == nil {
			break
		}
	}
	if err != nil {
		return made, errors.New("there is no kustomization in a checkout")
	}
	var fields map[string]yaml.Node
	if err := yaml.Unmarshal(data, &fields); err != nil {
		return made, err
	}
	for _, field := range sortedKeys(fields) {
		n := fields[field]
		switch field {
		case "apiVersion", "kind", "metadata":
		case "patches":
			err = strictly(&n, &made.Patches)
		case "images":
			err = strictly(&n, &made.Images)
		case "patchesStrategicMerge":
			var list []string
			err = n.Decode(&list)
			for _, text := range list {
				p := kustomizePatch{Path: text}
				if _, missing := fs.Stat(files, path.Join(dir, text)); missing != nil { // it is the patch itself
					p = kustomizePatch{Patch: text}
				}
				made.Patches = append(made.Patches, p)
			}
		default:
			if !isZero(&n) {
				err = fmt.Errorf("it has %s", field)
			}
		}
		if err != nil {
			return made, err
		}
	}
	for i := range made.Patches {
		p := &made.Patches[i]
		if p.Path == "" {
			continue
		}
		text, err := fs.ReadFile(files, path.Join(dir, p.Path))
		if err != nil {
			return made, fmt.Errorf("patch %s is not in the checkout", p.Path)
		}
		p.Patch, p.Path = string(text), ""
	}
	if len(made.Patches)+len(made.Images) == 0 {
		return made, errors.New("it has neither")
	}
	return made, nil
}

// strictly decodes a node, and refuses fields that are not known.
func strictly(n *yaml.Node, into any) error {
	text, err := yaml.Marshal(n)
	if err != nil {
		return err
	}
	d := yaml.NewDecoder(bytes.NewReader(text))
	d.KnownFields(true)
	return d.Decode(into)
}
