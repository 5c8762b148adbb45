package main

import (
	"cmp"
	"encoding/json"
	"slices"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// statement is an in-toto statement, version 1, with SLSA's provenance, version 1.
type statement struct {
	Type          string     `json:"_type"`
	Subject       []resource `json:"subject"`
	PredicateType string     `json:"predicateType"`
	Predicate     predicate  `json:"predicate"`
}

type resource struct {
	Name   string            `json:"name,omitempty"`
	URI    string            `json:"uri,omitempty"`
	Digest map[string]string `json:"digest,omitempty"`
}

type predicate struct {
	Definition struct {
		Type         string         `json:"buildType"`
		Parameters   map[string]any `json:"externalParameters"`
		Dependencies []resource     `json:"resolvedDependencies"`
	} `json:"buildDefinition"`
	Details struct {
		Builder struct {
			ID string `json:"id"`
		} `json:"builder"`
	} `json:"runDetails"`
}

// provenance says from which commit and which packages the images of an index were made. No clock is in it.
func provenance(index v1.ImageIndex, images []*platformImage, meta metadata) ([]byte, error) {
	digest, err := index.Digest()
	if err != nil {
		return nil, err
	}
	s := statement{Type: "https://in-toto.io/Statement/v1", PredicateType: "https://slsa.dev/provenance/v1"}
	s.Subject = []resource{{Name: meta.name, Digest: map[string]string{"sha256": digest.Hex}}}
	s.Predicate.Definition.Type = source + "/blob/main/docs/development.md#images"
	s.Predicate.Details.Builder.ID = builder
	if meta.revision != "" {
		s.Predicate.Definition.Dependencies = []resource{{URI: "git+" + source, Digest: map[string]string{"gitCommit": meta.revision}}}
	}
	platforms, packages := []string{}, map[string]resource{}
	for _, i := range images {
		digest, err := i.image.Digest()
		if err != nil {
			return nil, err
		}
		s.Subject = append(s.Subject, resource{Name: meta.name + " " + i.platform.String(), Digest: map[string]string{"sha256": digest.Hex}})
		platforms = append(platforms, i.platform.String())
		for _, p := range i.packages {
			packages[p.purl()] = resource{URI: p.purl(), Digest: map[string]string{"sha256": p.sha256}}
		}
	}
	s.Predicate.Definition.Parameters = map[string]any{"image": meta.name, "version": meta.version, "platforms": platforms}
	first := len(s.Predicate.Definition.Dependencies)
	for _, r := range packages {
		s.Predicate.Definition.Dependencies = append(s.Predicate.Definition.Dependencies, r)
	}
	slices.SortFunc(s.Predicate.Definition.Dependencies[first:], func(a, b resource) int { return cmp.Compare(a.URI, b.URI) })
	return json.Marshal(s)
}
