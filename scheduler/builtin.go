package scheduler

import (
	"context"
	"errors"
	"fmt"
	"strings"

	yamlv2 "gopkg.in/yaml.v2"

	"github.com/wherry-dev/wherry/scheduler/kinds"
)

// configMapFile renders the composed configuration as a ConfigMap.
func (a *assigner) configMapFile(ctx context.Context, in *input) ([]byte, error) {
	values, err := a.values(ctx, in)
	if err != nil {
		return nil, err
	}
	return yamlv2.Marshal(map[string]any{
		"apiVersion": "v1",
		"kind":       "ConfigMap",
		"metadata":   map[string]string{"name": kinds.PlatformConfig, "namespace": in.Namespace},
		"data":       values,
	})
}

// envFile renders the composed configuration as assignments for a shell. It does not quote values: quoting
// them for the shell would change the output of existing platforms.
func (a *assigner) envFile(ctx context.Context, in *input) ([]byte, error) {
	values, err := a.values(ctx, in)
	if err != nil {
		return nil, err
	}
	var b strings.Builder
	for _, key := range sortedKeys(values) {
		b.WriteString("export " + key + `="` + values[key] + "\"\n")
	}
	return []byte(b.String()), nil
}

// values renders all values as texts: a structured value in its original form if it comes from one
// ConfigMap, else as YAML.
func (a *assigner) values(ctx context.Context, in *input) (map[string]string, error) {
	texts := make(map[string]string, len(in.config.values))
	failed := map[string]error{}
	for _, v := range in.config.values {
		var err error
		if texts[v.key], err = a.evaluator.Value(ctx, v.asText(), v.at, &in.Input); err != nil {
			failed[v.key] = fmt.Errorf("configuration value %s: %w", v.key, err)
		}
	}
	return texts, errors.Join(sortedValues(failed)...)
}
