// Package manifests reads files of Kubernetes objects.
//
// Agents read the files of an assignment with it, and so does the publisher before it signs them: nothing is signed that an
// agent refuses to parse. Begin with [Parse]; [Read] goes on after a mistake. YAML is read as kubectl reads it, but for a key
// that a mapping has twice, which is a mistake. [ParseHealth] reads the conditions of the annotation wherry.dev/health. No mistake quotes a value, which may be a secret.
package manifests

import (
	"bytes"
	"errors"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	yamlv3 "go.yaml.in/yaml/v3"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/yaml"

	"github.com/wherry-dev/wherry/bundle/lazyregexp"
	"github.com/wherry-dev/wherry/bundle/yamlvalues"
)

// Bounds on what is parsed. An API server takes 3 MiB for one object.
const (
	// MaxFileBytes bounds one file.
	MaxFileBytes = 32 << 20
	// MaxDocumentBytes bounds one document of a file by yamlvalues.Size, which counts aliases as what they stand for.
	MaxDocumentBytes = 16 << 20
	// DefaultBudget bounds the Size of the files of one assignment; see bundle.CopiesFiles.
	DefaultBudget = yamlvalues.MaxBytes
)

// OwnerLabel is on every object that an assignment created; its value is the assignment's name, or a
// digest of one that is no valid label. No manifest may have it.
const OwnerLabel = "wherry.dev/assignment"

// Object is an object, and where it was read.
type Object struct {
	*unstructured.Unstructured
	// Document counts the documents of the file from 1.
	Document int
	// Origin is such as: reconciler.yaml, document 2.
	Origin string
}

// Problem is the kind of a Mistake.
type Problem string

// The kinds of mistakes.
const (
	Syntax   Problem = "syntax"    // the document is not YAML or JSON
	TooLarge Problem = "too large" // the document holds too much, with its aliases expanded
	NoObject Problem = "no object" // it is something else than an object, or lacks Mistake.Field
	BadField Problem = "field"     // Mistake.Field would be lost, or misread
)

// Mistake is the reason why a part of a file cannot be applied.
type Mistake struct {
	Problem  Problem
	Document int
	Origin   string
	// Field is such as metadata.name. It is empty for a document that is not an object.
	Field string
	// Object is the one with the mistake, as far as it is known.
	Object *unstructured.Unstructured
	// Value is what is there in place of an object.
	Value any
	Text  string
}

func (m *Mistake) Error() string { return m.Origin + ": " + m.Text }

// IsFile reports whether a file's name is one of manifests.
func IsFile(name string) bool {
	return slices.Contains([]string{".yaml", ".yml", ".json"}, strings.ToLower(path.Ext(name)))
}

// Parse returns the objects of one file, those of lists in place of the lists. It passes over documents without content.
// Its error is the first [*Mistake].
func Parse(name string, data []byte) ([]Object, error) {
	r := &reader{most: 1}
	r.file(name, data)
	if len(r.mistakes) > 0 {
		return nil, r.mistakes[0]
	}
	return r.found, nil
}

// Decode is Parse without the rules about fields: the objects may lack a name, or a kind.
func Decode(name string, data []byte) ([]*unstructured.Unstructured, error) {
	r := &reader{loose: true, most: 1}
	r.file(name, data)
	if len(r.mistakes) > 0 {
		return nil, r.mistakes[0]
	}
	var objects []*unstructured.Unstructured
	for _, o := range r.found {
		objects = append(objects, o.Unstructured)
	}
	return objects, nil
}

// Read returns the objects of one file, and its first mistakes. Documents after one with a mistake are read.
func Read(name string, data []byte) ([]Object, []*Mistake) {
	r := &reader{most: maxMistakes}
	r.file(name, data)
	return r.found, r.mistakes
}

func (r *reader) file(name string, data []byte) {
	docs, parse := documentsOf(name, data)
	for i, doc := range docs {
		if len(r.mistakes) >= r.most {
			return
		}
		r.document, r.origin = i+1, name
		if len(docs) > 1 {
			r.origin = fmt.Sprintf("%s, document %d", name, i+1)
		}
		value, err := parse(doc)
		switch {
		case errors.Is(err, yamlvalues.ErrTooLarge):
			r.mistakes = append(r.mistakes, &Mistake{Problem: TooLarge, Document: r.document, Origin: r.origin, Text: err.Error()})
		case err != nil:
			r.mistakes = append(r.mistakes, &Mistake{Problem: Syntax, Document: r.document, Origin: r.origin, Text: err.Error()})
		case value != nil:
			r.value(r.origin, value)
		}
	}
}

// Size returns the size of a file by yamlvalues.Size; the result is larger than limit, or exact. A file that cannot be
// parsed has its length without aliases: Read refuses it before it expands any.
func Size(name string, data []byte, limit int64) int64 {
	var size int64
	docs, _ := documentsOf(name, data)
	for _, doc := range docs {
		n, _ := yamlvalues.Size(doc.data, limit-size) // the error is Read's
		if size += n; size > limit {
			return size
		}
	}
	return size
}

// checkSize returns an error for a document that holds too much, or that has aliases and cannot be parsed.
func checkSize(doc document) error {
	size, err := yamlvalues.Size(doc.data, MaxDocumentBytes)
	if err == nil && size > MaxDocumentBytes {
		return fmt.Errorf("%w: more than %d bytes in one document, with each alias counted as what it stands for", yamlvalues.ErrTooLarge, MaxDocumentBytes)
	}
	return err
}

// documentsOf splits a file, and returns the parser for its documents.
func documentsOf(name string, data []byte) ([]document, func(document) (any, error)) {
	if strings.EqualFold(path.Ext(name), ".json") {
		return []document{{line: 1, data: data}}, parseJSON
	}
	return splitDocuments(data), parseYAML
}

// maxMistakes bounds the mistakes of one file: as many tell enough.
const maxMistakes = 100

// reader collects what a file holds.
type reader struct {
	document int
	origin   string // of the document
	loose    bool   // fields are not checked
	most     int    // mistakes after which nothing more is read
	found    []Object
	mistakes []*Mistake
}

// document is a part of a file that begins at a line of it.
type document struct {
	line int
	data []byte
}

// splitDocuments splits at lines that begin with "---", with which no other line of YAML may begin.
func splitDocuments(data []byte) []document {
	var docs []document
	doc := document{line: 1}
	begin, at, number := 0, 0, 0
	add := func() {
		if doc.data = data[begin:at]; len(bytes.TrimSpace(doc.data)) > 0 && !onlyDirectives(doc.data) {
			docs = append(docs, doc)
		}
	}
	for line := range bytes.Lines(data) {
		number++
		if rest, ok := bytes.CutPrefix(line, []byte("---")); ok && (len(rest) == 0 || strings.IndexByte(" \t\r\n", rest[0]) >= 0) {
			add()
			doc, begin = document{line: number}, at+3
		}
		at += len(line)
	}
	add()
	return docs
}

// onlyDirectives reports whether a document is the lines above its first "---", such as %YAML 1.2.
func onlyDirectives(doc []byte) bool {
	if !bytes.HasPrefix(doc, []byte("%")) {
		return false
	}
	for line := range bytes.Lines(doc) {
		if line = bytes.TrimSpace(line); len(line) > 0 && line[0] != '%' && line[0] != '#' {
			return false
		}
	}
	return true
}

// yamlWrapping removes the prefixes that the parser's layers add to a message.
var yamlWrapping = strings.NewReplacer("error converting YAML to JSON: ", "", "yaml: ", "", "unmarshal errors:\n  ", "")

func parseYAML(doc document) (any, error) {
	err := checkSize(doc)
	if errors.Is(err, yamlvalues.ErrTooLarge) {
		return nil, err
	}
	if value, ok := plain(doc.data); ok {
		return value, nil
	}
	var data []byte
	if err == nil {
		data, err = yaml.YAMLToJSONStrict(doc.data)
		if err != nil && overrides(doc.data) {
			data, err = yaml.YAMLToJSON(doc.data)
		}
	}
	if err != nil {
		return nil, errors.New(messageOf(err, doc.line))
	}
	var value any
	err = utiljson.Unmarshal(data, &value)
	return value, err
}

// lineNumber matches the line in a parser's message.
var lineNumber = lazyregexp.New(`(?m)^\s*line (\d+):`)

// messageOf returns the message of a parser for a document that begins at a line of its file.
func messageOf(err error, line int) string {
	text := yamlWrapping.Replace(err.Error())
	if before, _, quotes := strings.Cut(text, "invalid map key: "); quotes {
		text = before + "a key is a mapping or a list"
	}
	if lines := strings.SplitN(text, "\n", maxMessageLines+1); len(lines) > maxMessageLines {
		lines[maxMessageLines] = "  and more"
		text = strings.Join(lines, "\n")
	}
	return lineNumber.ReplaceAllStringFunc(text, func(found string) string {
		indent, rest, _ := strings.Cut(strings.TrimSuffix(found, ":"), "line ")
		number, _ := strconv.Atoi(rest)
		return fmt.Sprintf("%sline %d:", indent, number+line-1)
	})
}

// maxMessageLines bounds a message: the parser has a line for each key that is there twice.
const maxMessageLines = 10

// overrides reports whether a document has merge keys, and no mapping that has a key twice: then the strict parser takes
// the keys that override merged ones for keys that are there twice.
func overrides(doc []byte) bool {
	if !bytes.Contains(doc, []byte("<<")) {
		return false
	}
	var n yamlv3.Node
	return yamlv3.Unmarshal(doc, &n) == nil && !hasTwice(&n)
}

func hasTwice(n *yamlv3.Node) bool {
	if n.Kind == yamlv3.MappingNode {
		seen := map[string]bool{}
		for i := 0; i < len(n.Content); i += 2 {
			key := n.Content[i].Value
			if n.Content[i].Kind != yamlv3.ScalarNode || seen[key] {
				return true
			}
			seen[key] = true
		}
	}
	return n.Kind != yamlv3.AliasNode && slices.ContainsFunc(n.Content, hasTwice)
}

func parseJSON(doc document) (any, error) {
	if len(bytes.TrimSpace(doc.data)) == 0 {
		return nil, nil
	}
	if err := checkSize(document{data: doc.data}); errors.Is(err, yamlvalues.ErrTooLarge) {
		return nil, err
	}
	var value any
	err := utiljson.Unmarshal(doc.data, &value)
	return value, err
}

// value takes an object, or those of a list.
func (r *reader) value(origin string, value any) {
	content, ok := value.(map[string]any)
	if !ok {
		r.mistake(&Mistake{Problem: NoObject, Origin: origin, Value: value, Text: "is not an object"})
		return
	}
	o := Object{&unstructured.Unstructured{Object: content}, r.document, origin}
	if !o.IsList() && !isEmptyList(content) {
		if m := check(o); m != nil && !r.loose {
			r.mistake(m)
		} else {
			r.found = append(r.found, o)
		}
		return
	}
	items, _ := content["items"].([]any)
	for i, item := range items {
		if len(r.mistakes) >= r.most {
			return
		}
		r.value(fmt.Sprintf("%s, item %d", origin, i+1), item)
	}
}

// isEmptyList reports whether content is a list of Kubernetes without items.
func isEmptyList(content map[string]any) bool {
	return content["apiVersion"] == "v1" && content["kind"] == "List" && content["items"] == nil
}

func (r *reader) mistake(m *Mistake) {
	m.Document = r.document
	r.mistakes = append(r.mistakes, m)
}

// check refuses content that would be lost or misread on the way to an API server. It drops fields of the metadata that are
// null, which an API server passes over.
func check(o Object) *Mistake {
	mistake := func(problem Problem, field, format string, args ...any) *Mistake {
		return &Mistake{Problem: problem, Origin: o.Origin, Field: field, Object: o.Unstructured, Text: fmt.Sprintf(format, args...)}
	}
	for _, field := range []string{"apiVersion", "kind"} {
		if s, _ := o.Object[field].(string); s == "" {
			return mistake(NoObject, field, "has no %s", field)
		}
	}
	if _, err := schema.ParseGroupVersion(o.GetAPIVersion()); err != nil {
		return mistake(BadField, "apiVersion", "apiVersion: %v", err)
	}
	metadata, _ := o.Object["metadata"].(map[string]any)
	if s, _ := metadata["name"].(string); s == "" {
		return mistake(NoObject, "metadata.name", "%s has no metadata.name", o.GetKind())
	}
	for _, field := range []string{"namespace", "labels", "annotations"} {
		if value, there := metadata[field]; there && value == nil {
			delete(metadata, field)
		}
	}
	if _, isText := metadata["namespace"].(string); !isText && metadata["namespace"] != nil {
		return mistake(BadField, "metadata.namespace", "metadata.namespace of %s is not a string", Subject(o.Unstructured))
	}
	for _, field := range []string{"labels", "annotations"} {
		if metadata[field] != nil && !texts(metadata[field]) {
			return mistake(BadField, "metadata."+field, "metadata.%s of %s: every value has to be a string", field, Subject(o.Unstructured))
		}
	}
	if labels, _ := metadata["labels"].(map[string]any); labels[OwnerLabel] != nil {
		return mistake(BadField, "metadata.labels", "%s has the label %s, which only the agent sets", Subject(o.Unstructured), OwnerLabel)
	}
	return nil
}

// texts reports whether a value is a mapping of texts. A null in it becomes the empty text, as an API server reads it.
func texts(value any) bool {
	entries, ok := value.(map[string]any)
	for key, v := range entries {
		if _, isText := v.(string); v == nil {
			entries[key] = ""
		} else if !isText {
			return false
		}
	}
	return ok
}

// Subject names an object as messages do: Kind/namespace/name.
func Subject(o *unstructured.Unstructured) string {
	if namespace := o.GetNamespace(); namespace != "" {
		return o.GetKind() + "/" + namespace + "/" + o.GetName()
	}
	return o.GetKind() + "/" + o.GetName()
}
