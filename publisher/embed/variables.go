package embed

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/wherry-dev/wherry/bundle/lazyregexp"
	"github.com/wherry-dev/wherry/scheduler"
	"github.com/wherry-dev/wherry/scheduler/finding"
)

// postBuild is the field of a Kustomization by which Flux replaces variables in what it applies.
type postBuild struct {
	Substitute     map[string]yaml.Node `yaml:"substitute"`
	SubstituteFrom []struct {
		Kind string `yaml:"kind"`
		Name string `yaml:"name"`
	} `yaml:"substituteFrom"`

	kustomization string // its name
}

var (
	fluxVariable = lazyregexp.New(`\$?\$\{([_a-zA-Z][_a-zA-Z0-9]*)\}`)
	documentEnd  = lazyregexp.New(`(?m)^---`)
)

// substituteOff is the annotation, or label, of an object in which Flux replaces nothing.
const substituteOff = "kustomize.toolkit.fluxcd.io/substitute"

// unset returns findings about variables without a default in files, which p sets not.
func (p *postBuild) unset(files []scheduler.File) (all []finding.Finding) {
	for _, f := range files {
		line := 1
		for _, document := range documentEnd.Split(string(f.Data), -1) {
			if !isSubstituteOff(document) {
				all = append(all, p.unsetIn(f.Path, line, document)...)
			}
			line += strings.Count(document, "\n")
		}
	}
	return all
}

func isSubstituteOff(document string) bool {
	if !strings.Contains(document, substituteOff) {
		return false
	}
	var object struct {
		Metadata struct {
			Annotations map[string]string `yaml:"annotations"`
			Labels      map[string]string `yaml:"labels"`
		} `yaml:"metadata"`
	}
	err := yaml.NewDecoder(bytes.NewReader([]byte(document))).Decode(&object)
	return err == nil && (object.Metadata.Annotations[substituteOff] == "disabled" || object.Metadata.Labels[substituteOff] == "disabled")
}

func (p *postBuild) unsetIn(file string, line int, document string) (all []finding.Finding) {
	first := map[string]int{} // lines, by variable
	for i, text := range strings.Split(document, "\n") {
		for _, found := range fluxVariable.FindAllStringSubmatch(text, -1) {
			name := found[1]
			_, set := p.Substitute[name]
			if _, known := first[name]; !known && !set && !strings.HasPrefix(found[0], "$$") {
				first[name] = line + i
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(first)) {
		at := finding.Position{File: file, Line: first[name]}
		if len(p.SubstituteFrom) > 0 {
			from := p.SubstituteFrom[0]
			all = append(all, finding.Finding{
				Position: at, Code: finding.CodeFluxElsewhere, Note: true,
				Message: finding.Sentence("${%s} has to be set by what spec.postBuild.substituteFrom of the Kustomization %q names, such as the %s %s: Flux 2.9 fails otherwise", name, p.kustomization, from.Kind, from.Name),
			})
			continue
		}
		all = append(all, finding.Finding{
			Position: at, Code: finding.CodeFluxUnset, Hint: fmt.Sprintf("set spec.postBuild.substitute.%s, write $${%s} for the text itself, ${%s:=} for a default, or annotate the object with %s: disabled", name, name, name, substituteOff),
			Message: finding.Sentence("${%s} is not among the variables of the Kustomization %q: Flux 2.9 fails, and earlier versions leave the text empty", name, p.kustomization),
		})
	}
	return all
}
