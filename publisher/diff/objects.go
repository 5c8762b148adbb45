package diff

import (
	"strings"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/yamlvalues"
)

// EmbeddedObject is an object in an assignment's embedded files, and where it came from. Its JSON form is an interface.
type EmbeddedObject struct {
	APIVersion string `json:"apiVersion,omitempty"`
	Kind       string `json:"kind"`
	Namespace  string `json:"namespace,omitempty"`
	Name       string `json:"name"`
	File       string `json:"file"`
	// Source is the repository with the folder or chart, and Revision the version, commit or digest; empty if unknown.
	Source   string `json:"source,omitempty"`
	Revision string `json:"revision,omitempty"`
}

// maxObjects bounds the objects that are listed of an assignment.
const maxObjects = 10_000

// EmbeddedObjects lists the objects and charts among an assignment's embedded files, in the order of the files. Files that
// cannot be read have none.
func EmbeddedObjects(files []bundle.File, sources []bundle.ContentSource) []EmbeddedObject {
	var all []EmbeddedObject
	for _, f := range files {
		if !isEmbedded(f.Path) {
			continue
		}
		var from EmbeddedObject
		if s, ok := sourceOf(sources, f.Path); ok {
			from = EmbeddedObject{Source: SourceName(s), Revision: RevisionOf(s)}
		}
		from.File = f.Path
		if chart, ok := strings.CutPrefix(f.Path, bundle.ChartsDir+"/"); ok {
			from.Kind, from.Name = "chart", strings.TrimSuffix(chart, ".tgz")
			all = append(all, from)
			continue
		}
		documents := yamlvalues.NewDecoder(f.Data)
		for len(all) < maxObjects {
			var o embeddedObject
			if documents.Decode(&o) != nil {
				break
			}
			for _, one := range append([]embeddedObject{o}, o.Items...) {
				if one.Kind == "" || strings.HasSuffix(one.Kind, "List") && len(one.Items) > 0 {
					continue
				}
				from.APIVersion, from.Kind, from.Namespace, from.Name = one.APIVersion, one.Kind, one.Metadata.Namespace, one.Metadata.Name
				all = append(all, from)
			}
		}
	}
	return all
}

type embeddedObject struct {
	APIVersion string `yaml:"apiVersion"`
	Kind       string `yaml:"kind"`
	Metadata   struct {
		Namespace string `yaml:"namespace"`
		Name      string `yaml:"name"`
	} `yaml:"metadata"`
	Items []embeddedObject `yaml:"items"`
}
