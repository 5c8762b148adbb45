package kubernetes

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"

	"github.com/fluxcd/cli-utils/pkg/object"
	"github.com/fluxcd/pkg/ssa/utils"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/yaml"
)

// maxManifestBytes bounds one file of manifests. An API server takes 3 MiB for one object.
const maxManifestBytes = 32 << 20

// manifest is one object of the assignment and where it was read.
type manifest struct {
	*unstructured.Unstructured
	origin string // such as reconciler.yaml, document 2
}

func (m manifest) id() object.ObjMetadata { return object.UnstructuredToObjMetadata(m.Unstructured) }

// subject names m as changes and messages do: Kind/namespace/name.
func (m manifest) subject() string { return utils.FmtUnstructured(m.Unstructured) }

// readManifests reads every .yaml, .yml and .json file below the folder under of dir, but those below the folder without,
// which may be empty. Its errors have the reason InvalidManifest, and never quote a value.
func readManifests(dir, under, without string) ([]manifest, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	var out []manifest
	err = fs.WalkDir(root.FS(), under, func(name string, d fs.DirEntry, err error) error {
		ext := strings.ToLower(path.Ext(name))
		if err == nil && d.IsDir() && name == without {
			return fs.SkipDir
		}
		if err != nil || d.IsDir() || ext != ".yaml" && ext != ".yml" && ext != ".json" {
			return err
		}
		data, err := readBounded(root, name)
		if err != nil {
			return err
		}
		found, err := parseManifests(name, data)
		out = append(out, found...)
		return err
	})
	return out, err
}

func readBounded(root *os.Root, name string) ([]byte, error) {
	f, err := root.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxManifestBytes+1))
	if len(data) > maxManifestBytes {
		return nil, invalid("%s: more than %d bytes", name, maxManifestBytes)
	}
	return data, err
}

// parseManifests reads the objects of one file. Documents without content are passed over, and lists
// are taken apart.
func parseManifests(name string, data []byte) ([]manifest, error) {
	docs, parse := splitDocuments(data), parseYAML
	if strings.EqualFold(path.Ext(name), ".json") {
		docs, parse = []document{{line: 1, data: data}}, parseJSON
	}
	var out []manifest
	for i, doc := range docs {
		origin := name
		if len(docs) > 1 {
			origin = fmt.Sprintf("%s, document %d", name, i+1)
		}
		value, err := parse(doc)
		if err != nil {
			return nil, invalid("%s: %w", origin, err)
		}
		if value == nil {
			continue
		}
		found, err := objectsOf(origin, value)
		if err != nil {
			return nil, err
		}
		out = append(out, found...)
	}
	return out, nil
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
	add := func() {
		if len(bytes.TrimSpace(doc.data)) > 0 {
			docs = append(docs, doc)
		}
	}
	number := 0
	for line := range bytes.Lines(data) {
		number++
		if rest, ok := bytes.CutPrefix(line, []byte("---")); ok && (len(rest) == 0 || strings.IndexByte(" \t\r\n", rest[0]) >= 0) {
			add()
			doc, line = document{line: number}, rest
		}
		doc.data = append(doc.data, line...)
	}
	add()
	return docs
}

// yamlWrapping removes the prefixes that the parser's layers add to a message.
var yamlWrapping = strings.NewReplacer("error converting YAML to JSON: ", "", "yaml: ", "", "unmarshal errors:\n  ", "")

func parseYAML(doc document) (any, error) {
	data, err := yaml.YAMLToJSONStrict(doc.data)
	if err != nil {
		// Parse again behind empty lines, so that the error has the line numbers of the file.
		padded := append(bytes.Repeat([]byte("\n"), doc.line-1), doc.data...)
		if _, again := yaml.YAMLToJSONStrict(padded); again != nil {
			err = again
		}
		return nil, errors.New(yamlWrapping.Replace(err.Error()))
	}
	var value any
	return value, utiljson.Unmarshal(data, &value)
}

func parseJSON(doc document) (any, error) {
	if len(bytes.TrimSpace(doc.data)) == 0 {
		return nil, nil
	}
	var value any
	return value, utiljson.Unmarshal(doc.data, &value)
}

// objectsOf returns the object in value, or the objects if value is a list.
func objectsOf(origin string, value any) ([]manifest, error) {
	content, ok := value.(map[string]any)
	if !ok {
		return nil, invalid("%s: is not an object", origin)
	}
	m := manifest{&unstructured.Unstructured{Object: content}, origin}
	if !m.IsList() {
		return []manifest{m}, check(m)
	}
	var out []manifest
	items, _ := content["items"].([]any)
	for i, item := range items {
		found, err := objectsOf(fmt.Sprintf("%s, item %d", origin, i+1), item)
		if err != nil {
			return nil, err
		}
		out = append(out, found...)
	}
	return out, nil
}

// check refuses content that would be lost or misread on the way to an API server.
func check(m manifest) error {
	for _, field := range []string{"apiVersion", "kind"} {
		if s, _, _ := unstructured.NestedString(m.Object, field); s == "" {
			return invalid("%s: has no %s", m.origin, field)
		}
	}
	if _, err := schema.ParseGroupVersion(m.GetAPIVersion()); err != nil {
		return invalid("%s: apiVersion: %w", m.origin, err)
	}
	if s, _, _ := unstructured.NestedString(m.Object, "metadata", "name"); s == "" {
		return invalid("%s: %s has no metadata.name", m.origin, m.GetKind())
	}
	if _, _, err := unstructured.NestedString(m.Object, "metadata", "namespace"); err != nil {
		return invalid("%s: metadata.namespace of %s is not a string", m.origin, m.subject())
	}
	for _, field := range []string{"labels", "annotations"} {
		if _, _, err := unstructured.NestedStringMap(m.Object, "metadata", field); err != nil {
			return invalid("%s: metadata.%s of %s: every value has to be a string", m.origin, field, m.subject())
		}
	}
	if _, taken := m.GetLabels()[OwnerLabel]; taken {
		return invalid("%s: %s has the label %s, which only the agent sets", m.origin, m.subject(), OwnerLabel)
	}
	return nil
}
