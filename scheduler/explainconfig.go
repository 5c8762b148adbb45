package scheduler

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/wherry-dev/wherry/bundle/show"
	"github.com/wherry-dev/wherry/scheduler/kinds"
	"github.com/wherry-dev/wherry/scheduler/yamlvalue"
)

// ConfigExplanation is the origin of the value of a configuration key.
type ConfigExplanation struct {
	ClusterType string `json:"clusterType"`
	Target      string `json:"target"`
	Key         string `json:"key"`
	// Set is true if a ConfigMap gives this assignment a value.
	Set bool `json:"set"`
	// Value is the composed value, as YAML if it is structured.
	Value      string `json:"value,omitempty"`
	Structured bool   `json:"structured,omitempty"`
	// Secret is true if the value looks like a secret and [show.Masked] replaces it, here and below.
	Secret bool `json:"secret,omitempty"`
	// Rendered is the value with the templates in it evaluated; empty if it holds none.
	Rendered string `json:"rendered,omitempty"`
	// Error is the reason why the templates in it cannot be evaluated.
	Error string `json:"error,omitempty"`
	// Given lists the ConfigMaps that give this assignment a value, in the order in which they are merged: the last
	// one wins.
	Given []GivenValue `json:"given"`
	// Parts names the origin of each part of a structured value, in the order of the value.
	Parts []ValuePart `json:"parts,omitempty"`
	// Others lists the ConfigMaps that have the key and do not apply to this assignment.
	Others []GivenValue `json:"others"`
	// Hint suggests a key with a similar name if no ConfigMap has this one.
	Hint string `json:"hint,omitempty"`
}

// GivenValue is a value that a ConfigMap has for a key.
type GivenValue struct {
	// Named is the ConfigMap, at the line of the value.
	Named
	Value string `json:"value"`
	// Effect is the effect of merging it: "sets", "replaces", "merges" or "appends". Empty if the ConfigMap does not
	// apply.
	Effect string `json:"effect,omitempty"`
	// Where lists the labels that must hold, those of the ConfigMap or those in the key of an Azure one.
	Where []LabelCheck `json:"where,omitempty"`
}

// LabelCheck is the comparison of a ConfigMap's label with a pair: the cluster type or the target must have it.
type LabelCheck struct {
	Label string `json:"label"`
	Value string `json:"value"`
	// ClusterType and Target are the values of both sides; nil if the label is missing. For the labels
	// cluster-type, deployment-target and workload they are the names.
	ClusterType *string `json:"clusterType"`
	Target      *string `json:"target"`
	Met         bool    `json:"met"`
}

// ValuePart is one leaf of a structured value.
type ValuePart struct {
	// Path begins below the key, such as [power].after. Items of lists are named by their name, if they have one.
	Path  string `json:"path"`
	Value string `json:"value"`
	// Named is the ConfigMap that gave it, at the line of its value.
	Named
}

// Config explains a key of the configuration of a pair, whether a policy selects the pair or not. The
// error names what does not exist.
func (e *Explainer) Config(ctx context.Context, clusterType, target, key string) (*ConfigExplanation, error) {
	ct, i, err := e.find(clusterType, target)
	if err != nil {
		return nil, err
	}
	x := &ConfigExplanation{ClusterType: clusterType, Target: target, Key: key, Given: []GivenValue{}, Others: []GivenValue{}}
	trace := &trace{key: key}
	var known []string
	for _, l := range e.layers {
		checks := checksOf(l.conditions, ct, e.r.targets[i])
		for _, entry := range l.entries {
			known = append(known, entry.key)
			if entry.key != key {
				continue
			}
			given := GivenValue{Named: Named{l.source.Name, entry.at}, Value: show.Mask(key, strings.TrimSpace(entry.text)), Where: checks}
			if slices.ContainsFunc(checks, func(c LabelCheck) bool { return !c.Met }) {
				x.Others = append(x.Others, given)
				continue
			}
			given.Effect = trace.put(entry, given.Named)
			x.Given = append(x.Given, given)
		}
	}
	if x.Set = len(x.Given) > 0; !x.Set {
		if len(x.Others) == 0 {
			slices.Sort(known)
			x.Hint = suggest(key, slices.Compact(known), "configuration key")
		}
		return x, nil
	}
	x.Structured, x.Parts = yamlvalue.IsStructured(trace.value), trace.parts()
	x.Secret = show.LooksSecret(key, textOf(trace.value))
	e.render(ctx, x, ct, i, textOf(trace.value))
	return x, ctx.Err()
}

// render fills in the value, and the value with its templates evaluated.
func (e *Explainer) render(ctx context.Context, x *ConfigExplanation, ct *kinds.ClusterType, i int, value string) {
	x.Value = show.Mask(x.Key, value)
	if !strings.Contains(value, "{{") {
		return
	}
	a := newAssigner(e.r, ct)
	in, err := a.input(i)
	if err == nil {
		x.Rendered, err = a.evaluator.Value(ctx, value, x.Given[len(x.Given)-1].Position, &in.Input)
		x.Rendered = show.Mask(x.Key, x.Rendered)
	}
	if err != nil {
		x.Rendered, x.Error = "", err.Error()
	}
}

// checksOf compares the labels of a ConfigMap with a pair.
func checksOf(conditions []kinds.Condition, ct *kinds.ClusterType, t *target) []LabelCheck {
	var checks []LabelCheck
	for _, c := range conditions {
		check := LabelCheck{Label: c.Key, Value: c.Value, ClusterType: labelValue(ct.Metadata.Labels, c.Key), Target: labelValue(t.Labels, c.Key)}
		switch c.Key {
		case "cluster-type":
			check.ClusterType, check.Target = &ct.Metadata.Name, nil
		case "deployment-target":
			check.ClusterType, check.Target = nil, &t.Name
		case "workload":
			check.ClusterType = nil
		}
		check.Met = c.HoldsFor(ct) || c.HoldsForTarget(&t.Target)
		checks = append(checks, check)
	}
	return checks
}

// trace composes one key as [compose] does and records the origin of each part.
type trace struct {
	key     string
	set     bool
	value   any
	leaves  []leaf
	origins map[string]Named // of leaves, by id
}

func (t *trace) put(e entry, from Named) (effect string) {
	merged := yamlvalue.Clone(e.value)
	if t.set {
		merged = yamlvalue.Merge(yamlvalue.Clone(t.value), merged)
	}
	leaves := leavesOf(merged)
	switch {
	case !t.set:
		effect = "sets"
	case !yamlvalue.IsStructured(t.value) || reflect.TypeOf(t.value) != reflect.TypeOf(e.value):
		effect = "replaces"
	case len(leaves) == len(t.leaves)+len(leavesOf(e.value)):
		effect = "appends"
	default:
		effect = "merges"
	}
	before := make(map[string]string, len(t.leaves))
	for _, l := range t.leaves {
		before[l.id] = l.text
	}
	origins := make(map[string]Named, len(leaves))
	for _, l := range leaves {
		origins[l.id] = from
		if text, ok := before[l.id]; ok && text == l.text && effect != "replaces" {
			origins[l.id] = t.origins[l.id]
		}
	}
	t.set, t.value, t.leaves, t.origins = true, merged, leaves, origins
	return effect
}

// parts lists the leaves of a structured value with their origins.
func (t *trace) parts() []ValuePart {
	if !yamlvalue.IsStructured(t.value) {
		return nil
	}
	var parts []ValuePart
	for _, l := range t.leaves {
		parts = append(parts, ValuePart{Path: l.path, Value: show.Mask(t.key+"."+l.path, l.text), Named: t.origins[l.id]})
	}
	return parts
}

// leaf is a value in a structure that is no structure itself, or an empty one.
type leaf struct {
	id   string // its place, which stays the same when others are merged in
	path string // the same for people, with the names of items of lists
	text string
}

// leavesOf lists the leaves of v, lists in their order and maps by key.
func leavesOf(v any) []leaf {
	var all []leaf
	var walk func(id, path string, v any)
	walk = func(id, path string, v any) {
		switch v := v.(type) {
		case map[any]any:
			if len(v) == 0 {
				all = append(all, leaf{id, path, "{}"})
			}
			values := map[string]any{}
			for key, value := range v {
				values[fmt.Sprint(key)] = value
			}
			for _, key := range sortedKeys(values) {
				walk(id+"."+key, strings.TrimPrefix(path+"."+key, "."), values[key])
			}
		case []any:
			if len(v) == 0 {
				all = append(all, leaf{id, path, "[]"})
			}
			for i, name := range itemNames(v) {
				walk(fmt.Sprintf("%s[%d]", id, i), path+"["+name+"]", v[i])
			}
		default:
			all = append(all, leaf{id, path, textOf(v)})
		}
	}
	walk("", "", v)
	return all
}

// itemNames returns the names of a list's items, or their indexes if not all have a name
// of their own.
func itemNames(list []any) []string {
	var names []string
	seen := map[string]bool{}
	for _, item := range list {
		m, _ := item.(map[any]any)
		name, ok := m["name"].(string)
		if !ok || seen[name] {
			names = nil
			for i := range list {
				names = append(names, fmt.Sprint(i))
			}
			return names
		}
		seen[name] = true
		names = append(names, name)
	}
	return names
}

// textOf returns a composed value as text.
func textOf(v any) string {
	switch v := v.(type) {
	case string:
		return v
	case map[any]any, []any:
		return yamlvalue.Marshal(v)
	case nil:
		return "null"
	default:
		return fmt.Sprint(v)
	}
}
