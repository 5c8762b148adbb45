package kustomization

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
	sigsyaml "sigs.k8s.io/yaml"

	"sigs.k8s.io/kustomize/api/types"
)

// pluginPaths has kustomize's own generators and transformers, and the fields of each that hold paths. All others would run
// a program or a container, or are a chart.
var pluginPaths = map[string]func(*rewriter, entry, map[string]any) error{
	"AnnotationsTransformer":         nil,
	"ConfigMapGenerator":             generatorPaths,
	"SecretGenerator":                generatorPaths,
	"IAMPolicyGenerator":             nil,
	"HashTransformer":                nil,
	"ImageTagTransformer":            nil,
	"LabelTransformer":               nil,
	"NamespaceTransformer":           nil,
	"PrefixSuffixTransformer":        nil,
	"PrefixTransformer":              nil,
	"SuffixTransformer":              nil,
	"ReplicaCountTransformer":        nil,
	"PatchTransformer":               patchPaths,
	"PatchJson6902Transformer":       patchPaths,
	"PatchStrategicMergeTransformer": mergePatchPaths,
	"ReplacementTransformer":         replacementPaths,
}

// plugins returns the configurations of generators or transformers that an entry holds or names, as text, with their paths
// rewritten. They are relative to the kustomization that uses them, wherever their own file is.
func (r *rewriter) plugins(from entry, text string) (string, error) {
	data := []byte(text)
	if !strings.ContainsAny(text, "\n{") {
		to, isDir, err := r.find(from, text)
		switch {
		case err != nil:
			return "", err
		case isDir:
			data, err = r.built(from, to)
		default:
			data, err = r.take(from, to)
		}
		if err != nil {
			return "", err
		}
	}
	var all []byte
	for d := yaml.NewDecoder(bytes.NewReader(data)); ; {
		var plugin map[string]any
		err := d.Decode(&plugin)
		if errors.Is(err, io.EOF) {
			return string(all), nil
		}
		if err != nil {
			return "", from.fails("", "%s", err)
		}
		if plugin == nil {
			continue
		}
		if err := r.plugin(from, plugin); err != nil {
			return "", err
		}
		written, err := sigsyaml.Marshal(plugin)
		if err != nil {
			return "", from.fails("", "%s", err)
		}
		all = append(append(all, "---\n"...), written...)
	}
}

// built is what the kustomization of a folder makes, which is the configuration of plugins.
func (r *rewriter) built(from entry, to place) ([]byte, error) {
	if _, err := r.enter(from, to); err != nil {
		return nil, err
	}
	objects, err := r.run(to)
	if err != nil {
		return nil, err
	}
	result, err := r.result(to, objects)
	if err != nil {
		return nil, err
	}
	return result.YAML, nil
}

func (r *rewriter) plugin(from entry, plugin map[string]any) error {
	version, kind := fmt.Sprint(plugin["apiVersion"]), fmt.Sprint(plugin["kind"])
	rewrite, known := pluginPaths[kind]
	switch {
	case version == "builtin" && kind == "HelmChartInflationGenerator":
		return from.fails("render the chart as a target of its own", "%s would have the program helm inflate a chart, which is not done here", kind)
	case version != "builtin" || !known:
		return from.fails("use kustomize's own generators and transformers (apiVersion: builtin)", "%s of %s is a plugin that runs a program or a container, and none are run here", kind, version)
	case rewrite == nil:
		return nil
	}
	return rewrite(r, from, plugin)
}

// as reads the fields of a plugin as kustomize does, which does not tell upper from lower case, into a value of T, has it
// changed, and writes it back.
func as[T any](plugin map[string]any, from entry, change func(*T) error, fields ...string) error {
	picked := map[string]any{}
	for key, value := range plugin {
		if i := slices.IndexFunc(fields, func(f string) bool { return strings.EqualFold(f, key) }); i >= 0 {
			if _, twice := picked[fields[i]]; twice {
				return from.fails("", "the field %s is given twice", fields[i])
			}
			picked[fields[i]] = value
			delete(plugin, key)
		}
	}
	data, err := sigsyaml.Marshal(picked)
	if err != nil {
		return from.fails("", "%s", err)
	}
	var v T
	if err := sigsyaml.UnmarshalStrict(data, &v); err != nil {
		return from.fails("", "%s", err)
	}
	if err := change(&v); err != nil {
		return err
	}
	if data, err = sigsyaml.Marshal(v); err != nil {
		return from.fails("", "%s", err)
	}
	return sigsyaml.Unmarshal(data, &plugin)
}

func generatorPaths(r *rewriter, from entry, plugin map[string]any) error {
	return as(plugin, from, func(sources *types.KvPairSources) error { return r.generator(from, sources) }, "files", "envs")
}

func patchPaths(r *rewriter, from entry, plugin map[string]any) error {
	type fields struct {
		Path string `json:"path,omitempty"`
	}
	return as(plugin, from, func(p *fields) error { return r.patch(from, &p.Path) }, "path")
}

func mergePatchPaths(r *rewriter, from entry, plugin map[string]any) error {
	type fields struct {
		Paths []string `json:"paths,omitempty"`
	}
	return as(plugin, from, func(p *fields) error {
		for i, text := range p.Paths {
			var err error
			if p.Paths[i], err = r.mergePatch(from, text); err != nil {
				return err
			}
		}
		return nil
	}, "paths")
}

func replacementPaths(r *rewriter, from entry, plugin map[string]any) error {
	type fields struct {
		Replacements []types.ReplacementField `json:"replacements,omitempty"`
	}
	return as(plugin, from, func(p *fields) error { return r.replaces(from, p.Replacements) }, "replacements")
}
