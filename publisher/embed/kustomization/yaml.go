package kustomization

import (
	"bytes"
	"errors"

	"go.yaml.in/yaml/v3"
)

const (
	// maxExpanded bounds the nodes of a YAML file after its aliases are written out, which kustomize does.
	maxExpanded = 2 << 20
	// maxCopies bounds the operations of type copy of JSON patches: each can double an object.
	maxCopies = 12
)

var errAliases = errors.New("the aliases of the YAML file stand for too much")

// checkAliases bounds the nodes that the aliases of a YAML text expand to. It accepts invalid YAML: kustomize reports it.
func checkAliases(data []byte) error {
	if !bytes.ContainsRune(data, '*') {
		return nil
	}
	total := 0
	for d := yaml.NewDecoder(bytes.NewReader(data)); ; {
		var n yaml.Node
		if d.Decode(&n) != nil {
			return nil //nolint:nilerr // the end, or no YAML
		}
		if total += expanded(&n, map[*yaml.Node]int{}); total > maxExpanded {
			return errAliases
		}
	}
}

// expanded counts the nodes below n. An alias counts as its node; one that contains itself is beyond all bounds.
func expanded(n *yaml.Node, known map[*yaml.Node]int) int {
	if count, ok := known[n]; ok {
		return count
	}
	known[n] = maxExpanded + 1
	count := 1
	if n.Kind == yaml.AliasNode {
		count += expanded(n.Alias, known)
	}
	for _, child := range n.Content {
		count = min(count+expanded(child, known), maxExpanded+1)
	}
	known[n] = count
	return count
}

// countCopies counts the operations of type copy in a text that may be a JSON patch. A list that YAML refuses, and that a
// parser of JSON may yet accept, counts as too many.
func countCopies(data []byte) int {
	var document yaml.Node
	if err := yaml.Unmarshal(data, &document); err != nil || len(document.Content) == 0 || document.Content[0].Kind != yaml.SequenceNode {
		if err != nil && bytes.HasPrefix(bytes.TrimSpace(data), []byte("[")) {
			return maxCopies + 1
		}
		return 0
	}
	var operations []struct {
		Op string `yaml:"op"`
	}
	if document.Decode(&operations) != nil {
		return maxCopies + 1
	}
	n := 0
	for _, o := range operations {
		if o.Op == "copy" {
			n++
		}
	}
	return n
}
