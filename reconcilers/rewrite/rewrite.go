// Package rewrite changes the objects of an assignment with embedded delivery so that the engine of the site takes the
// content from the agent's endpoint.
//
// Flux and Argo take the rendered objects and return the objects to apply in their place, with a list of the changes. They
// are functions of their input: the adapters apply the result, and "wherry explain assignment" shows the list. Only the
// fields that name the source change. Names, intervals and everything else stay as the template wrote them.
package rewrite

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"path"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/manifests"
	"github.com/wherry-dev/wherry/reconcilers"
)

// Reasons why an assignment cannot be rewritten. Its state is Failed then, but for ArtifactNotMade.
const (
	ArtifactNotMade  = "ArtifactNotMade"  // pending: the agent could not write the artifact
	NoEndpoint       = "NoEndpoint"       // the agent serves nothing; the site's fault
	SourceNotServed  = "SourceNotServed"  // an object names a source that is not embedded
	ChartNotEmbedded = "ChartNotEmbedded" // a HelmRelease's chart is not in the folder of charts
)

// Input is one assignment with embedded delivery.
type Input struct {
	Assignment bundle.Assignment
	// Files is the assignment's folder.
	Files fs.FS
	// Objects are the rendered objects, without those in bundle.ManifestsDir. They are not changed.
	Objects []*unstructured.Unstructured
	// Manifests returns the objects in bundle.ManifestsDir. It is called only if no rendered object has the engine fetch
	// them, so that the adapter applies them itself.
	Manifests func() ([]*unstructured.Unstructured, error)
	// Served is nil if the agent serves nothing.
	Served *reconcilers.Served
}

// Result has the objects to apply for an assignment.
type Result struct {
	Objects []*unstructured.Unstructured
	// Shared are objects that the agent applies for all assignments that need them.
	Shared []Shared
	// Changes are the differences to Input.Objects, in the order of the objects.
	Changes []Change
}

// Shared is an object that belongs to the agent itself.
type Shared struct {
	*unstructured.Unstructured
	// Joins is true for an object of somebody else to which the agent adds keys.
	Joins bool
	// Union is true for an object of the agent whose data are those of all its users: each assignment owns its own keys.
	Union bool
}

// Change is one rewritten field, or an object that comes or goes.
type Change struct {
	Object string `json:"object"`          // Kind/namespace/name
	Field  string `json:"field,omitempty"` // such as spec.path; empty for the object itself
	From   string `json:"from,omitempty"`  // empty for a field or an object that was not there
	To     string `json:"to,omitempty"`    // empty for one that is dropped
}

// String returns the change as a line for people.
func (c Change) String() string {
	name := strings.TrimSuffix(c.Object+": "+c.Field, ": ")
	switch {
	case c.To == "":
		return name + " is dropped"
	case c.From == "":
		return name + " becomes " + c.To
	}
	return fmt.Sprintf("%s becomes %s (was %s)", name, c.To, c.From)
}

// ServedAnnotation is on the objects that have an engine fetch from the agent's endpoint.
const ServedAnnotation = "wherry.dev/served"

// IsServed reports whether an object has the engine fetch from the agent's endpoint. If that fails, the site is at fault.
func IsServed(o *unstructured.Unstructured) bool { return o.GetAnnotations()[ServedAnnotation] != "" }

// Example returns the endpoint's answer for an assignment in words, for lists of changes that are made before there is one.
func Example(platform, assignment string, charts []string) *reconcilers.Served {
	artifact := reconcilers.ServedArtifact{Repository: path.Join(platform, reconcilers.ServedRepository(assignment)), Digest: "sha256:…"}
	served := &reconcilers.Served{Host: "HOST:PORT", CA: []byte("…"), Manifests: artifact, Charts: map[string]reconcilers.ServedArtifact{}}
	for _, name := range charts {
		served.Charts[name] = artifact
	}
	return served
}

// Rendered returns the rendered objects of an assignment's folder: those of its YAML files, without bundle.ManifestsDir.
func Rendered(files fs.FS) ([]*unstructured.Unstructured, error) {
	var out []*unstructured.Unstructured
	err := fs.WalkDir(files, ".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (name == bundle.ManifestsDir || name == bundle.ChartsDir):
			return fs.SkipDir
		case d.IsDir() || !manifests.IsFile(name):
			return nil
		}
		data, err := fs.ReadFile(files, name)
		if err != nil {
			return err
		}
		found, err := manifests.Decode(name, data)
		out = append(out, found...)
		return err
	})
	return out, err
}

// rewriting is one call of Flux or Argo.
type rewriting struct {
	Assignment bundle.Assignment
	Files      fs.FS
	Served     *reconcilers.Served
	Result
}

// begin returns a rewriting with copies of the rendered objects.
func begin(in Input) *rewriting {
	r := &rewriting{Assignment: in.Assignment, Files: in.Files, Served: in.Served}
	for _, o := range in.Objects {
		r.Objects = append(r.Objects, o.DeepCopy())
	}
	return r
}

func (r *rewriting) change(object, field, from, to string) {
	c := Change{object, field, from, to}
	if from != to && !slices.Contains(r.Changes, c) {
		r.Changes = append(r.Changes, c)
	}
}

// endpoint returns an error if the agent does not serve the assignment.
func (r *rewriting) endpoint() error {
	switch {
	case r.Served == nil:
	case r.Served.Err == nil:
		return nil
	case reconcilers.Known(r.Served.Err) != nil:
		return r.Served.Err
	default:
		return &reconcilers.Error{Reason: ArtifactNotMade, Err: r.Served.Err}
	}
	err := errors.New("the delivery is embedded, and the engine fetches the content from the agent's endpoint, which is off (start the agent with --serve ADDRESS)")
	return &reconcilers.Error{Reason: NoEndpoint, Fault: reconcilers.FaultSite, Err: err}
}

// url is the OCI URL of an artifact at the endpoint.
func (r *rewriting) url(a reconcilers.ServedArtifact) string {
	return "oci://" + r.Served.Host + "/" + a.Repository
}

// hostname is the endpoint's host without its port.
func (r *rewriting) hostname() string {
	if host, _, err := net.SplitHostPort(r.Served.Host); err == nil {
		return host
	}
	return r.Served.Host
}

// share adds a shared object unless it is there.
func (r *rewriting) share(s Shared, what string) {
	same := func(o Shared) bool {
		return o.GetKind() == s.GetKind() && o.GetNamespace() == s.GetNamespace() && o.GetName() == s.GetName()
	}
	if !slices.ContainsFunc(r.Shared, same) {
		r.Shared = append(r.Shared, s)
		r.change(subject(s.Unstructured), "", "", what)
	}
}

// namespace returns the namespace in which an object will be.
func (r *rewriting) namespace(o *unstructured.Unstructured) string {
	if ns := o.GetNamespace(); ns != "" {
		return ns
	}
	return r.Assignment.Namespace
}

// folders returns, for objects that each name a folder of one source, the folder of the embedded manifests that takes its
// place. The folder that the target points at has become the root of the manifests. If all objects name the same one, that
// is it. Otherwise each has to be found among the manifests, by its whole path or by its path below the common one.
func (r *rewriting) folders(paths []string) (map[string]string, error) {
	out := map[string]string{}
	var cleaned []string
	for _, p := range paths {
		cleaned = append(cleaned, strings.TrimPrefix(path.Clean("/"+p), "/"))
	}
	if len(slices.Compact(slices.Sorted(slices.Values(cleaned)))) <= 1 {
		for _, p := range paths {
			out[p] = "."
		}
		return out, nil
	}
	common := commonFolder(cleaned)
	for i, p := range cleaned {
		below := strings.TrimPrefix(strings.TrimPrefix(p, common), "/")
		found := slices.IndexFunc([]string{p, below}, r.hasFolder)
		if found < 0 {
			return nil, reconcilers.ReleaseError(SourceNotServed, "several objects take different folders of one source, and folder %q is not among the embedded manifests: point the target's manifests at a folder that has all of them", paths[i])
		}
		out[paths[i]] = path.Join(".", []string{p, below}[found])
	}
	return out, nil
}

func (r *rewriting) hasFolder(name string) bool {
	info, err := fs.Stat(r.Files, path.Join(bundle.ManifestsDir, name))
	return err == nil && info.IsDir()
}

func commonFolder(paths []string) string {
	common := strings.Split(paths[0], "/")
	for _, p := range paths[1:] {
		parts, n := strings.Split(p, "/"), 0
		for n < len(parts) && n < len(common) && parts[n] == common[n] {
			n++
		}
		common = common[:n]
	}
	return strings.Join(common, "/")
}

func subject(o *unstructured.Unstructured) string {
	return strings.ReplaceAll(o.GetKind()+"/"+o.GetNamespace()+"/"+o.GetName(), "//", "/")
}

func text(o *unstructured.Unstructured, fields ...string) string {
	s, _, _ := unstructured.NestedString(o.Object, fields...)
	return s
}

// mark notes on an object that the engine fetches from the endpoint.
func mark(o *unstructured.Unstructured) {
	annotations := o.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[ServedAnnotation] = "true"
	o.SetAnnotations(annotations)
}

// relative writes a folder of the manifests as Flux and people do.
func relative(folder string) string { return "./" + strings.TrimPrefix(folder, ".") }
