package zarf

import (
	"bytes"
	"crypto/sha1"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/opencontainers/go-digest"
	"k8s.io/apimachinery/pkg/util/yaml"
	sigsyaml "sigs.k8s.io/yaml"

	"github.com/wherry-dev/wherry/bundle/lazyregexp"
	"github.com/wherry-dev/wherry/bundle/yamlvalues"
	"github.com/wherry-dev/wherry/reconcilers"
)

// Annotations in the metadata of the packages that are made here, which Zarf keeps in its record of what
// it has deployed.
const (
	AssignmentAnnotation = "wherry.dev/assignment"
	ContentAnnotation    = "wherry.dev/content"
)

// The two kinds that name a package.
const (
	configKind   = "ZarfPackageConfig" // Zarf's own: a package to be made of the files
	prebuiltKind = "ZarfPackage"       // of wherry.dev/v1alpha1: a package in a registry
)

// maxDefinition bounds a file that may define a package: those of Zarf's own packages have some 20 KB.
const maxDefinition = 4 << 20

// definition is the package of an assignment.
type definition struct {
	Name       string
	Components []component
	// Package is the reference of a prebuilt package, as oci://REPOSITORY[:TAG]@DIGEST; empty for a package that is
	// made here. The other fields of a prebuilt package are known only after zarf has inspected it.
	Package string
	// Checksum is Zarf's checksum over all parts of a prebuilt package.
	Checksum string
	// config is the ZarfPackageConfig to make it from.
	config map[string]any
}

// component has the fields of a Zarf component that this package needs; see Zarf's v1alpha1 schema.
type component struct {
	Name     string `json:"name"`
	Required bool   `json:"required"`
	Default  bool   `json:"default"`
	Group    string `json:"group"`
	Only     struct {
		LocalOS string `json:"localOS"`
	} `json:"only"`
	Manifests []struct {
		Name      string `json:"name"`
		Namespace string `json:"namespace"`
		NoWait    bool   `json:"noWait"`
	} `json:"manifests"`
	Charts []struct {
		Name        string `json:"name"`
		ReleaseName string `json:"releaseName"`
		Namespace   string `json:"namespace"`
		NoWait      bool   `json:"noWait"`
	} `json:"charts"`
	Images         []any `json:"images"`
	ImageArchives  []any `json:"imageArchives"`
	Repos          []any `json:"repos"`
	DataInjections []any `json:"dataInjections"`
	HealthChecks   []any `json:"healthChecks"`
}

// mirrors reports whether the component needs the registry or git server of "zarf init".
func (c component) mirrors() bool {
	return len(c.Images) > 0 || len(c.ImageArchives) > 0 || len(c.Repos) > 0
}

func (c component) needsCluster() bool {
	return c.mirrors() || len(c.Manifests) > 0 || len(c.Charts) > 0 || len(c.DataInjections) > 0 || len(c.HealthChecks) > 0
}

// selected returns the components that "deploy --confirm" takes on this system: those that are required
// or default, and of a group the default one.
func (d *definition) selected() []component {
	members := map[string]int{}
	for _, c := range d.Components {
		if c.Group != "" {
			members[c.Group]++
		}
	}
	var out []component
	for _, c := range d.Components {
		switch {
		case c.Only.LocalOS != "" && c.Only.LocalOS != runtime.GOOS:
		case c.Default, c.Required && members[c.Group] < 2:
			out = append(out, c)
		}
	}
	return out
}

func (d *definition) needsCluster() bool {
	return slices.ContainsFunc(d.selected(), component.needsCluster)
}

// Mirrors reports whether a document is a package that needs the registry or git server of "zarf init".
func Mirrors(doc map[string]any) bool {
	if doc["kind"] != configKind {
		return false
	}
	d, err := defineConfig(doc)
	return err == nil && d.needsInit()
}

func (d *definition) needsInit() bool {
	return slices.ContainsFunc(d.selected(), component.mirrors)
}

// release is a Helm release.
type release struct {
	namespace, name string
	noWait          bool
}

// releases returns the Helm releases of a component: one for each chart, and one for each set of manifests, which Zarf
// installs as a chart of its own; see ChartFromZarfManifest in Zarf's source.
func releases(pkg string, c component) []release {
	var out []release
	for _, chart := range c.Charts {
		name := chart.ReleaseName
		if name == "" {
			name = chart.Name
		}
		out = append(out, release{chart.Namespace, name, chart.NoWait})
	}
	for _, m := range c.Manifests {
		namespace := m.Namespace
		if namespace == "" {
			namespace = "default"
		}
		sum := sha1.Sum([]byte("raw-" + pkg + "-" + c.Name + "-" + m.Name))
		out = append(out, release{namespace, "zarf-" + hex.EncodeToString(sum[:]), m.NoWait})
	}
	return out
}

// packageName is Zarf's rule for names of packages.
var packageName = lazyregexp.New(`^[a-z0-9][a-z0-9-]*$`)

// readDefinition returns the one package that the files of a define.
func readDefinition(a reconcilers.Assignment) (*definition, error) {
	entries, err := os.ReadDir(a.Dir)
	if err != nil {
		return nil, local(err)
	}
	var found *definition
	for _, e := range entries {
		if ext := filepath.Ext(e.Name()); !e.Type().IsRegular() || ext != ".yaml" && ext != ".yml" {
			continue
		}
		here, err := readFile(filepath.Join(a.Dir, e.Name()))
		if err != nil {
			return nil, failure(InvalidPackage, "%s/%s: %w", a.Name, e.Name(), err)
		}
		if here != nil && found != nil {
			return nil, failure(InvalidPackage, "%s/%s: there is another package in the assignment, which can have one", a.Name, e.Name())
		}
		if here != nil {
			found = here
		}
	}
	if found == nil {
		return nil, failure(InvalidPackage, "%s: no file at the top of the assignment holds a %s or a wherry.dev/v1alpha1 %s", a.Name, configKind, prebuiltKind)
	}
	return found, nil
}

// readFile returns nil if the file defines no package. Only a file that defines one has to be well formed:
// Zarf judges the others.
func readFile(path string) (*definition, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxDefinition+1))
	if err != nil {
		return nil, err
	}
	if !bytes.Contains(data, []byte(prebuiltKind)) { // the other kind begins with the same text
		return nil, nil
	}
	if len(data) > maxDefinition {
		return nil, fmt.Errorf("it is larger than %d bytes", maxDefinition)
	}
	if err := yamlvalues.Check(data); err != nil {
		return nil, err
	}
	var found *definition
	docs := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(data), 4096)
	for {
		var doc map[string]any
		if err := docs.Decode(&doc); errors.Is(err, io.EOF) {
			return found, nil
		} else if err != nil {
			return nil, err
		}
		d, err := define(doc)
		switch {
		case err != nil:
			return nil, err
		case d != nil && found != nil:
			return nil, errors.New("it holds two packages, and an assignment can have one")
		case d != nil:
			found = d
		}
	}
}

func define(doc map[string]any) (*definition, error) {
	switch doc["kind"] {
	case configKind:
		return defineConfig(doc)
	case prebuiltKind:
		if doc["apiVersion"] == "wherry.dev/v1alpha1" {
			return definePrebuilt(doc)
		}
	}
	return nil, nil
}

func defineConfig(doc map[string]any) (*definition, error) {
	var typed struct {
		Metadata struct {
			Name     string `json:"name"`
			Checksum string `json:"aggregateChecksum"`
		} `json:"metadata"`
		Components []component `json:"components"`
	}
	if err := convert(doc, &typed); err != nil {
		return nil, err
	}
	d := &definition{Name: typed.Metadata.Name, Components: typed.Components, Checksum: typed.Metadata.Checksum, config: doc}
	if !packageName.MatchString(d.Name) {
		return nil, fmt.Errorf("metadata.name %q: a package's name has lower-case letters, digits and '-'", d.Name)
	}
	return d, d.check()
}

// check refuses a package of which Zarf would deploy nothing, and still exit with code 0.
func (d *definition) check() error {
	if len(d.selected()) == 0 {
		return fmt.Errorf("package %s has no component that is required or default on %s: nothing would be deployed", d.Name, runtime.GOOS)
	}
	return nil
}

func definePrebuilt(doc map[string]any) (*definition, error) {
	var typed struct {
		Spec struct {
			Package string `json:"package"`
			Digest  string `json:"digest"`
		} `json:"spec"`
	}
	if err := convert(doc, &typed); err != nil {
		return nil, err
	}
	ref, pinned, _ := strings.Cut(typed.Spec.Package, "@")
	if pinned == "" {
		pinned = typed.Spec.Digest
	}
	if !strings.HasPrefix(ref, "oci://") {
		return nil, fmt.Errorf("spec.package %q is not oci://HOST/REPOSITORY[:TAG]@sha256:…", typed.Spec.Package)
	}
	if err := digest.Digest(pinned).Validate(); err != nil {
		return nil, fmt.Errorf("spec.package %q: expected a digest, as oci://HOST/REPOSITORY[:TAG]@sha256:… or in spec.digest: a tag can change", typed.Spec.Package)
	}
	if typed.Spec.Digest != "" && typed.Spec.Digest != pinned {
		return nil, fmt.Errorf("spec.package %q and spec.digest %q name two packages", typed.Spec.Package, typed.Spec.Digest)
	}
	return &definition{Package: ref + "@" + pinned}, nil
}

// convert reads a parsed document into v.
func convert(doc map[string]any, v any) error {
	data, err := json.Marshal(doc)
	if err != nil {
		return err
	}
	return json.Unmarshal(data, v)
}

// zarfYAML returns the configuration that the package is made from: the assignment's, with annotations that name the
// assignment and its content.
func (d *definition) zarfYAML(a reconcilers.Assignment) ([]byte, error) {
	config := maps.Clone(d.config)
	metadata, _ := config["metadata"].(map[string]any)
	metadata = maps.Clone(metadata)
	annotations, _ := metadata["annotations"].(map[string]any)
	if annotations = maps.Clone(annotations); annotations == nil {
		annotations = map[string]any{}
	}
	annotations[AssignmentAnnotation], annotations[ContentAnnotation] = a.Name, a.Files().String()
	metadata["annotations"] = annotations
	config["metadata"] = metadata
	return sigsyaml.Marshal(config)
}

// definitionBegins is the first line of a definition. Zarf's libraries print before it what is in no log's format, such as
// "Verified OK".
var definitionBegins = lazyregexp.New(`(?m)^(apiVersion|build|components|constants|documentation|kind|metadata|values|variables):`)

// parseDefinition reads a ZarfPackageConfig as zarf prints one.
func parseDefinition(text string) (*definition, error) {
	if at := definitionBegins.FindStringIndex(text); at != nil {
		text = text[at[0]:]
	}
	var doc map[string]any
	if err := sigsyaml.Unmarshal([]byte(text), &doc); err != nil {
		return nil, err
	}
	if doc["kind"] != configKind {
		return nil, fmt.Errorf("expected kind %s, got %.60v", configKind, doc["kind"])
	}
	return defineConfig(doc)
}
