package migrate

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/wherry-dev/wherry/bundle/yamltext"
	"github.com/wherry-dev/wherry/scheduler/kinds"
)

// Bounds of an input.
const (
	maxFileBytes  = 8 << 20
	maxInputBytes = 256 << 20
	maxFiles      = 50_000
	maxDocuments  = 200_000
	maxNodes      = 1 << 20 // of one document, with its aliases expanded
	maxDepth      = 100
)

// InputError is returned for input that cannot be read.
type InputError struct {
	File string
	Err  error
}

func (e *InputError) Error() string { return fmt.Sprintf("%s: %v", e.File, e.Err) }
func (e *InputError) Unwrap() error { return e.Err }

// place is the position of an object in the input.
type place struct {
	file string
	line int
}

// document is one YAML or JSON document.
type document struct {
	at   place
	node *yaml.Node
}

// kind returns apiVersion and kind.
func (d document) kind() (apiVersion, kind string) {
	return kinds.StringField(d.node, "apiVersion"), kinds.StringField(d.node, "kind")
}

// name returns metadata.namespace and metadata.name.
func (d document) name() (namespace, name string) {
	m := kinds.Field(d.node, "metadata")
	return kinds.StringField(m, "namespace"), kinds.StringField(m, "name")
}

// reader reads an input.
type reader struct {
	ctx       context.Context
	root      fs.FS
	checkouts map[string]fs.FS
	documents []document
	bytes     int
	// repositories are those that the input names, by URL.
	repositories map[string]bool
}

// names adds the repositories that values of this key name, at any depth.
func (r *reader) names(key string, n *yaml.Node) {
	if r.repositories == nil {
		r.repositories = map[string]bool{}
	}
	for i, inner := range n.Content {
		if n.Kind == yaml.MappingNode && i%2 == 1 && n.Content[i-1].Value == key && inner.Kind == yaml.ScalarNode {
			r.repositories[inner.Value] = true
		}
		r.names(key, inner)
	}
}

// readAll reads all documents of the input, in the order of their files' names. Folders that begin with a dot are left out.
// Files of templates and charts are often no YAML: they are skipped unless they hold an object of ours, which is then an
// error.
func (r *reader) readAll() error {
	files := 0
	return fs.WalkDir(r.root, ".", func(name string, entry fs.DirEntry, err error) error {
		ext := path.Ext(name)
		switch {
		case err != nil:
			return &InputError{name, err}
		case r.ctx.Err() != nil:
			return r.ctx.Err()
		case entry.IsDir() && name != "." && strings.HasPrefix(entry.Name(), "."):
			return fs.SkipDir
		case entry.IsDir(), !entry.Type().IsRegular(), ext != ".yaml" && ext != ".yml" && ext != ".json":
			return nil
		}
		if files++; files > maxFiles {
			return &InputError{name, fmt.Errorf("more than %d files: is this the right folder?", maxFiles)}
		}
		return r.read(name)
	})
}

func (r *reader) read(name string) error {
	data, err := readFile(r.root, name)
	if err != nil {
		return &InputError{name, err}
	}
	if r.bytes += len(data); r.bytes > maxInputBytes {
		return &InputError{name, fmt.Errorf("the input has more than %d bytes", maxInputBytes)}
	}
	found, err := documentsOf(name, data)
	if err != nil {
		if !mayMatter(data) {
			return nil
		}
		return &InputError{name, err}
	}
	if r.documents = append(r.documents, found...); len(r.documents) > maxDocuments {
		return &InputError{name, fmt.Errorf("the input has more than %d documents", maxDocuments)}
	}
	return nil
}

// mayMatter reports whether a file that cannot be parsed may hold objects that are imported.
func mayMatter(data []byte) bool {
	for _, word := range []string{"fleet.cattle.io/", "kind: ApplicationSet", "argocd.argoproj.io/secret-type", "app_selector", "repo_url"} {
		if bytes.Contains(data, []byte(word)) {
			return true
		}
	}
	return false
}

// readFile returns the content of a file of bounded size.
func readFile(from fs.FS, name string) ([]byte, error) {
	f, err := from.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxFileBytes+1))
	if err == nil && len(data) > maxFileBytes {
		err = fmt.Errorf("the file is larger than %d bytes", maxFileBytes)
	}
	return data, err
}

// documentsOf returns the documents of a file, and the items of lists in their place.
func documentsOf(name string, data []byte) ([]document, error) {
	var all []document
	for d := yaml.NewDecoder(bytes.NewReader(data)); ; {
		var n yaml.Node
		err := d.Decode(&n)
		if errors.Is(err, io.EOF) {
			return all, nil
		}
		if err != nil {
			line, text := yamltext.Mistake(data, err)
			return nil, fmt.Errorf("line %d: %s", max(line, 1), text)
		}
		if len(n.Content) != 1 {
			continue
		}
		root := n.Content[0]
		if count := 0; !bounded(root, 0, &count) {
			return nil, fmt.Errorf("line %d: the document is nested too deeply, or has more than %d values once its aliases are expanded", root.Line, maxNodes)
		}
		root = resolved(root)
		items := []*yaml.Node{root}
		if strings.HasSuffix(kinds.StringField(root, "kind"), "List") {
			items = kinds.SequenceField(root, "items")
		}
		for _, item := range items {
			all = append(all, document{place{name, item.Line}, item})
		}
	}
}

// bounded reports whether a node stays within the bounds once its aliases are expanded.
func bounded(n *yaml.Node, depth int, count *int) bool {
	if *count++; *count > maxNodes || depth > maxDepth {
		return false
	}
	if n.Kind == yaml.AliasNode {
		return bounded(n.Alias, depth+1, count)
	}
	for _, inner := range n.Content {
		if !bounded(inner, depth+1, count) {
			return false
		}
	}
	return true
}

// resolved returns a node without aliases and merge keys: each stands where it is used. The node must be bounded.
func resolved(n *yaml.Node) *yaml.Node {
	if n.Kind == yaml.AliasNode {
		return resolved(n.Alias)
	}
	made := *n
	made.Anchor, made.Content = "", make([]*yaml.Node, 0, len(n.Content))
	var merged []*yaml.Node
	own := map[string]bool{}
	for i, inner := range n.Content {
		inner = resolved(inner)
		switch isKey := n.Kind == yaml.MappingNode && i%2 == 0; {
		case isKey && inner.ShortTag() == "!!merge":
			continue
		case n.Kind == yaml.MappingNode && !isKey && n.Content[i-1].ShortTag() == "!!merge":
			merged = append(merged, inner)
			continue
		case isKey:
			own[inner.Value] = true
		}
		made.Content = append(made.Content, inner)
	}
	for _, m := range merged {
		from := []*yaml.Node{m}
		if m.Kind == yaml.SequenceNode {
			from = m.Content
		}
		for _, one := range from {
			for i := 0; one.Kind == yaml.MappingNode && i+1 < len(one.Content); i += 2 {
				if key := one.Content[i]; !own[key.Value] {
					own[key.Value] = true
					made.Content = append(made.Content, key, one.Content[i+1])
				}
			}
		}
	}
	return &made
}

// checkout returns the local copy of a git repository, and reports whether there is one. The input itself is one if it names
// no other repository: with several, a folder of one could be taken for that of another.
func (r *reader) checkout(repo string) (fs.FS, bool) {
	for known, at := range r.checkouts {
		if sameRepository(known, repo) {
			return at, true
		}
	}
	for other := range r.repositories {
		if !sameRepository(other, repo) {
			return noFiles{}, false
		}
	}
	return r.root, true
}

// noFiles is a repository of which there is no copy.
type noFiles struct{}

// Open finds nothing.
func (noFiles) Open(name string) (fs.File, error) {
	return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
}

func sameRepository(a, b string) bool {
	clean := func(s string) string {
		s, _ = withoutPassword(s)
		return strings.TrimSuffix(strings.TrimSuffix(s, "/"), ".git")
	}
	return clean(a) == clean(b)
}

// withoutPassword returns a URL without user and password, and reports whether it had any. The user of ssh is no secret.
func withoutPassword(repo string) (string, bool) {
	scheme, rest, found := strings.Cut(repo, "://")
	host, path, _ := strings.Cut(rest, "/")
	at := strings.LastIndex(host, "@")
	if !found || at < 0 || scheme == "ssh" && !strings.Contains(host[:at], ":") {
		return repo, false
	}
	return strings.TrimSuffix(scheme+"://"+host[at+1:]+"/"+path, "/"), true
}
