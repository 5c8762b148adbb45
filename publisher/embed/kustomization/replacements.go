package kustomization

import (
	"bytes"
	"errors"
	"io"
	"slices"
	"strings"

	yamlv3 "go.yaml.in/yaml/v3"
	"sigs.k8s.io/kustomize/api/types"
	"sigs.k8s.io/yaml"

	"github.com/wherry-dev/wherry/scheduler/finding"
)

const (
	// maxReplaced bounds the fields that replacements name.
	maxReplaced = 5000
	// maxFed bounds the fields that get a value which another replacement may have written: each can double an object, and
	// kustomize bounds nothing.
	maxFed = 16
	// maxSubstituted bounds the bytes that variables can insert.
	maxSubstituted = 32 << 20
)

// replacement is what one replacement reads and writes.
type replacement struct {
	kind   string   // of the source; empty for any, or for a text
	source []string // the path of the source; nil for a text
	writes []written
}

type written struct {
	kind string
	path []string
}

// addReplacements remembers replacements, from a kustomization or a file.
func (c *copier) addReplacements(all []types.Replacement) {
	for _, r := range all {
		var own replacement
		if r.Source != nil {
			own.kind, own.source = r.Source.Kind, pathOf(r.Source.FieldPath)
		}
		for _, target := range r.Targets {
			if target == nil {
				continue
			}
			kind := ""
			if target.Select != nil && !strings.ContainsAny(target.Select.Kind, `.*+?()|[]{}^$\`) {
				kind = target.Select.Kind
			}
			paths := target.FieldPaths
			if len(paths) == 0 {
				paths = []string{""}
			}
			for _, path := range paths {
				own.writes = append(own.writes, written{kind, pathOf(path)})
			}
		}
		c.replacements = append(c.replacements, own)
	}
}

func pathOf(field string) []string {
	if field == "" {
		field = types.DefaultReplacementFieldPath
	}
	return strings.Split(field, ".")
}

// replacementsIn reads a file of one replacement, or of a list of them. It returns nil for any other: kustomize reports it.
func replacementsIn(data []byte) []types.Replacement {
	var all []types.Replacement
	if yaml.Unmarshal(data, &all) == nil {
		return all
	}
	var one types.Replacement
	if yaml.Unmarshal(data, &one) == nil {
		return []types.Replacement{one}
	}
	return nil
}

// checkGrowth bounds the size of the output that replacements and variables can make of the input.
func (c *copier) checkGrowth(file string) error {
	if err := c.checkReplacements(file); err != nil {
		return err
	}
	if !c.vars {
		return nil
	}
	references, longest := 0, 0
	for _, text := range c.texts {
		references += bytes.Count(text, []byte("$("))
		longest = max(longest, longestScalar(text))
	}
	if longest > 0 && references > maxSubstituted/longest {
		return tooLarge(file, "%d references to variables could take values of %d bytes", references, longest)
	}
	return nil
}

// longestScalar is the length of the longest value in a text that may be YAML.
func longestScalar(text []byte) int {
	longest := 0
	for d := yamlv3.NewDecoder(bytes.NewReader(text)); ; {
		var n yamlv3.Node
		if err := d.Decode(&n); errors.Is(err, io.EOF) {
			return longest
		} else if err != nil {
			return len(text)
		}
		var walk func(n *yamlv3.Node)
		walk = func(n *yamlv3.Node) {
			longest = max(longest, len(n.Value))
			for _, child := range n.Content {
				walk(child)
			}
		}
		walk(&n)
	}
}

// checkReplacements counts the fields whose new value may come from a field that a replacement writes.
func (c *copier) checkReplacements(file string) error {
	fields, fed := 0, 0
	for _, r := range c.replacements {
		if fields += len(r.writes); r.source != nil && slices.ContainsFunc(c.replacements, r.mayRead) {
			fed += len(r.writes)
		}
	}
	if fields <= maxReplaced && fed <= maxFed {
		return nil
	}
	return &finding.Error{
		Position: finding.Position{File: file}, Hint: "take values from fields that no replacement writes", Err: ErrTooLarge,
		Message: finding.Sentence("replacements write %d fields, of which %d may get what another one has written; at most %d and %d are allowed", fields, fed, maxReplaced, maxFed),
	}
}

// mayRead reports whether r may read what other writes.
func (r *replacement) mayRead(other replacement) bool {
	return slices.ContainsFunc(other.writes, func(w written) bool {
		if w.kind != "" && r.kind != "" && w.kind != r.kind {
			return false
		}
		for i := range min(len(w.path), len(r.source)) {
			if !sameStep(w.path[i], r.source[i]) {
				return false
			}
		}
		return true // one lies in the other
	})
}

// sameStep compares steps of paths. Items of lists are not told apart.
func sameStep(a, b string) bool {
	isItem := func(s string) bool { return strings.ContainsAny(s, "[]*") || strings.Trim(s, "0123456789-") == "" }
	return a == b || isItem(a) || isItem(b)
}
