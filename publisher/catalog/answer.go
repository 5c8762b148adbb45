package catalog

import (
	"slices"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/publisher/diff"
)

// Source is the bundle that an answer is from. Its JSON form is an interface.
type Source struct {
	Reference string `json:"reference"`
	Digest    string `json:"digest"`
	Tag       string `json:"tag"`
	Number    int64  `json:"number,omitempty"`
	Platform  string `json:"platform"`
	// Keys names the keys that signed; empty if no signature was verified.
	Keys       []string `json:"keys"`
	BaseCommit string   `json:"baseCommit,omitempty"`
}

func (r *Released) source() Source {
	return Source{
		Reference: r.Reference, Digest: r.Digest.String(), Tag: r.Release.Tag(), Number: r.Release.Number, Platform: r.Release.Platform,
		Keys: append([]string{}, r.Keys...), BaseCommit: r.Release.BaseCommit,
	}
}

// AssignmentAnswer is the answer whether a deployment target is in a bundle. Its JSON form is an interface.
type AssignmentAnswer struct {
	Release     Source             `json:"release"`
	ClusterType string             `json:"clusterType"`
	Target      string             `json:"target"`
	Assigned    bool               `json:"assigned"`
	Assignment  *bundle.Assignment `json:"assignment,omitempty"`
	// Sources lists where its embedded files came from, and Objects the embedded objects with these sources.
	Sources []bundle.ContentSource `json:"sources,omitempty"`
	Objects []diff.EmbeddedObject  `json:"objects,omitempty"`
}

// ExplainAssignment answers for the deployment target with this full name.
func (r *Released) ExplainAssignment(target string) (AssignmentAnswer, error) {
	a := r.Assignment(target)
	answer := AssignmentAnswer{Release: r.source(), ClusterType: r.Release.ClusterType, Target: target, Assigned: a != nil, Assignment: a}
	if a == nil || a.Delivery != bundle.Embedded {
		return answer, nil
	}
	files, err := r.tree.Files(*a)
	if err != nil {
		return answer, err
	}
	answer.Sources = r.tree.SourcesOf(target)
	answer.Objects = diff.EmbeddedObjects(files, answer.Sources)
	return answer, nil
}

// ConfigAnswer is the value of a configuration key in a bundle. Its JSON form is an interface.
type ConfigAnswer struct {
	Release     Source `json:"release"`
	ClusterType string `json:"clusterType"`
	Target      string `json:"target"`
	Key         string `json:"key"`
	// Values holds the value, or the parts of a structured one; empty if there is none.
	Values []ReleasedValue `json:"values"`
	// Config names the ConfigMaps that the configuration was composed of, in order. Which of them gave this
	// value is not in a bundle.
	Config []string `json:"config"`
	// Keys are all keys that have a value, sorted.
	Keys []string `json:"-"`
}

// ExplainConfig answers for a configuration key of an assignment of the bundle.
func (r *Released) ExplainConfig(a *bundle.Assignment, key string) (ConfigAnswer, error) {
	all, err := r.Config(a.Name)
	if err != nil {
		return ConfigAnswer{}, err
	}
	answer := ConfigAnswer{
		Release: r.source(), ClusterType: r.Release.ClusterType, Target: a.Name, Key: key,
		Values: []ReleasedValue{}, Config: []string{},
	}
	for _, v := range all {
		if v.top == key {
			answer.Values = append(answer.Values, v)
		}
		answer.Keys = append(answer.Keys, v.top)
	}
	slices.Sort(answer.Keys)
	answer.Keys = slices.Compact(answer.Keys)
	for _, c := range a.Config {
		answer.Config = append(answer.Config, c.Name)
	}
	return answer, nil
}
