package rewrite

import (
	"encoding/base64"
	"maps"
	"net/url"
	"path"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/wherry-dev/wherry/bundle/lazyregexp"
	"github.com/wherry-dev/wherry/reconcilers"
)

const argoGroup = "argoproj.io"

// Names of Argo CD's own objects, in its namespace.
const (
	certificatesName = "argocd-tls-certs-cm"
	repositoryName   = "wherry-serve"
)

// Argo replaces the sources of the assignment's Applications by one source at the endpoint. Namespace is Argo CD's. Without
// an Application the embedded manifests are among the objects of the result.
func Argo(in Input, namespace string) (Result, error) {
	r := begin(in)
	if sets := r.byKind(argoGroup, "ApplicationSet"); len(sets) > 0 {
		return Result{}, reconcilers.ReleaseError(SourceNotServed, "%s makes Applications on the cluster, and their sources cannot be replaced: have the template write the Application itself, or set delivery to reference", subject(sets[0]))
	}
	users := r.byKind(argoGroup, "Application")
	if len(users) == 0 {
		inner, err := in.Manifests()
		if err != nil {
			return Result{}, err
		}
		r.Objects = append(r.Objects, inner...)
		return r.Result, nil
	}
	err := r.serveApplications(users, namespace)
	return r.Result, err
}

func (r *rewriting) serveApplications(users []*unstructured.Unstructured, namespace string) error {
	if err := r.endpoint(); err != nil {
		return err
	}
	var paths []string
	repo := ""
	for i, o := range users {
		from := sourcesOf(o)
		paths = append(paths, stringIn(from[0], "path"))
		switch other := stringIn(from[0], "repoURL"); {
		case i == 0:
			repo = other
		case other != repo:
			return reconcilers.ReleaseError(SourceNotServed, "the assignment's Applications take their content from two repositories, %s and %s, and embedded content can replace only one", plainURL(repo), plainURL(other))
		}
	}
	folders, err := r.folders(paths)
	if err != nil {
		return err
	}
	for i, o := range users {
		r.serveApplication(o, folders[paths[i]])
	}
	r.shareArgo(namespace)
	return nil
}

// sourcesOf returns the sources of an Application, at least one.
func sourcesOf(o *unstructured.Unstructured) []map[string]any {
	var found []map[string]any
	if list, _, _ := unstructured.NestedSlice(o.Object, "spec", "sources"); len(list) > 0 {
		for _, item := range list {
			if source, ok := item.(map[string]any); ok {
				found = append(found, source)
			}
		}
	}
	for _, field := range [][]string{{"spec", "source"}, {"spec", "sourceHydrator", "drySource"}} {
		if source, ok, _ := unstructured.NestedMap(o.Object, field...); ok && len(found) == 0 {
			found = append(found, source)
		}
	}
	if len(found) == 0 {
		found = []map[string]any{{}}
	}
	return found
}

// serveApplication gives an Application one source at the endpoint, whatever it had: all of its content is embedded.
func (r *rewriting) serveApplication(o *unstructured.Unstructured, folder string) {
	name, spec, from := subject(o), specOf(o), sourcesOf(o)
	at := "spec.source."
	before := from[0]
	if len(from) > 1 {
		r.change(name, "spec.sources", "set", "")
		before = map[string]any{}
	} else if _, single := spec["source"]; !single {
		for _, field := range []string{"sources", "sourceHydrator"} {
			if _, had := spec[field]; had {
				r.change(name, "spec."+field, "set", "")
			}
		}
	}
	source := map[string]any{
		"repoURL": r.url(r.Served.Manifests), "targetRevision": r.Served.Manifests.Digest.String(), "path": path.Join(".", folder),
	}
	directory := map[string]any{}
	if had, ok := before["directory"].(map[string]any); ok {
		maps.Copy(directory, had)
		delete(directory, "jsonnet")
	}
	if recurse, _ := directory["recurse"].(bool); !recurse {
		r.change(name, at+"directory.recurse", "", "true")
	}
	directory["recurse"] = true
	for _, field := range []string{"repoURL", "targetRevision", "path"} {
		r.change(name, at+field, plainURL(stringIn(before, field)), source[field].(string))
	}
	for _, field := range slices.Sorted(maps.Keys(before)) {
		if _, stays := source[field]; !stays && field != "directory" {
			r.change(name, at+field, "set", "")
		}
	}
	source["directory"] = directory
	delete(spec, "sources")
	delete(spec, "sourceHydrator")
	spec["source"] = source
	mark(o)
}

// shareArgo adds what Argo CD needs to reach the endpoint.
func (r *rewriting) shareArgo(namespace string) {
	url := "oci://" + path.Join(r.Served.Host, path.Dir(r.Served.Manifests.Repository))
	data := map[string]any{"type": encode("oci"), "url": encode(url)}
	if r.Served.Plain {
		data["insecureOCIForceHttp"] = encode("true")
	}
	r.share(Shared{Unstructured: &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "Secret", "type": "Opaque",
		"metadata": map[string]any{
			"namespace": namespace, "name": repositoryName,
			"labels": map[string]any{"argocd.argoproj.io/secret-type": "repo-creds"},
		},
		"data": data,
	}}}, "the agent's own, with the address of its endpoint")
	if r.Served.CA != nil {
		r.share(Shared{Joins: true, Unstructured: &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "v1", "kind": "ConfigMap",
			"metadata": map[string]any{"namespace": namespace, "name": certificatesName},
			"data":     map[string]any{r.hostname(): string(r.Served.CA)},
		}}}, "the key "+r.hostname()+", with the CA of the agent's endpoint")
	}
}

func encode(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) }

func stringIn(m map[string]any, key string) string {
	s, _ := m[key].(string)
	return s
}

// plainURL returns a URL without a password in it.
func plainURL(text string) string {
	u, err := url.Parse(text)
	if err != nil || u.User == nil {
		return text
	}
	u.User = nil
	return u.String()
}

// Permits reports whether a pattern of an AppProject's sourceRepos matches a repository, by Argo CD's rules: * stands for
// any part of one path element, and ** for any part of a path. A pattern that begins with ! forbids.
func Permits(patterns []string, repository string) bool {
	allowed := false
	for _, p := range patterns {
		forbids, isNot := strings.CutPrefix(p, "!")
		if isNot && matches(forbids, repository) {
			return false
		}
		allowed = allowed || !isNot && matches(p, repository)
	}
	return allowed
}

var globParts = lazyregexp.New(`\*\*|\*|\?|[^*?]+`)

func matches(pattern, repository string) bool {
	if pattern == "*" {
		return true
	}
	expression := "(?i)^"
	for _, part := range globParts.FindAllString(strings.TrimSuffix(pattern, "/"), -1) {
		switch part {
		case "**":
			expression += ".*"
		case "*":
			expression += "[^/]*"
		case "?":
			expression += "[^/]"
		default:
			expression += regexp.QuoteMeta(part)
		}
	}
	ok, err := regexp.MatchString(expression+"$", repository)
	return err == nil && ok
}
