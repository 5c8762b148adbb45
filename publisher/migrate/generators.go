package migrate

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
	kyaml "sigs.k8s.io/yaml"

	"github.com/wherry-dev/wherry/scheduler/kinds"
)

// maxParameters bounds the Applications of one set: a matrix of matrices grows fast.
const maxParameters = 20_000

// generators evaluates the generators of one ApplicationSet.
type generators struct {
	*argo
	file       string
	object     string
	goTemplate bool
	// selectors are those of the clusters generators of the last generate.
	selectors []*selector
	depth     int
}

// parameters are what one Application is made of.
type parameters struct {
	params   map[string]any
	template *yaml.Node // the generator's own, over the set's; nil for none
}

func (g *generators) missing(n *yaml.Node, what, why string) {
	g.report.add(Missing, place{g.file, n.Line}, g.object, what, why)
}

// generate returns the parameters of a generator. In a matrix, given are those of the generator before.
func (g *generators) generate(n *yaml.Node, given map[string]any) []parameters {
	if g.depth == 0 {
		g.selectors = nil
	}
	g.depth++
	defer func() { g.depth-- }()
	var all []parameters
	for i := 0; i+1 < len(n.Content) && n.Kind == yaml.MappingNode; i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		var found []map[string]any
		switch key.Value {
		case "selector":
			continue
		case "list":
			found = g.list(value)
		case "clusters":
			found = g.fromClusters(value, given)
		case "git":
			found = g.git(value, given)
		case "matrix":
			found = g.matrix(value)
		case "merge":
			found = g.merge(value)
		default:
			g.missing(key, "generator "+key.Value, "it asks another service, or is not known: list its clusters and applications")
			continue
		}
		if len(found) > maxParameters {
			g.missing(key, "generator "+key.Value, fmt.Sprintf("it makes more than %d Applications", maxParameters))
			continue
		}
		template := kinds.Field(value, "template")
		if template.Kind == 0 {
			template = nil
		}
		for _, params := range found {
			all = append(all, parameters{params, template})
		}
	}
	return g.selected(n, all)
}

// selected keeps the parameters that the generator's selector matches.
func (g *generators) selected(n *yaml.Node, all []parameters) []parameters {
	at := kinds.Field(n, "selector")
	if at.Kind == 0 {
		return all
	}
	var s selector
	err := at.Decode(&s)
	if err == nil {
		err = s.check()
	}
	if err != nil {
		g.missing(at, "a generator's selector", "it is not valid: "+oneLine(err))
		return nil
	}
	return slices.DeleteFunc(all, func(p parameters) bool {
		flat := map[string]string{}
		flatten("", p.params, flat)
		return !s.matches(flat)
	})
}

// flatten writes nested parameters as texts with dotted keys.
func flatten(prefix string, params map[string]any, into map[string]string) {
	for key, value := range params {
		if inner, ok := value.(map[string]any); ok {
			flatten(prefix+key+".", inner, into)
			if key == "path" && prefix == "" { // a folder's own path
				into["path"], _ = inner["path"].(string)
			}
			continue
		}
		into[prefix+key] = fmt.Sprint(value)
	}
}

func (g *generators) list(n *yaml.Node) []map[string]any {
	if y := kinds.Field(n, "elementsYaml"); y.Kind != 0 {
		g.missing(y, "generator list", "elementsYaml is not evaluated: write the elements")
	}
	var all []map[string]any
	for _, item := range kinds.SequenceField(n, "elements") {
		one, err := asArgo(item)
		if err == nil && !g.goTemplate {
			err = onlyTexts(one)
		}
		if err != nil {
			g.missing(item, "an element of a list", "Argo CD makes nothing of this list: "+oneLine(err))
			return nil
		}
		all = append(all, one)
	}
	return all
}

// onlyTexts returns an error unless all values of a list's element are texts, as they have to be where templates are not Go's.
func onlyTexts(element map[string]any) error {
	for _, key := range slices.Sorted(maps.Keys(element)) {
		values, nested := element[key].(map[string]any)
		if _, isText := element[key].(string); !isText && (key != "values" || !nested) {
			return fmt.Errorf("%s is no text; quote it, or set goTemplate", key)
		}
		if key == "values" {
			if err := onlyTexts(values); err != nil {
				return err
			}
		}
	}
	return nil
}

// asArgo returns a mapping as Argo CD reads it: by way of JSON, so that every number is one with a fraction.
func asArgo(n *yaml.Node) (one map[string]any, err error) {
	text, err := yaml.Marshal(n)
	if err != nil {
		return nil, err
	}
	err = kyaml.Unmarshal(text, &one)
	if one == nil {
		one = map[string]any{}
	}
	return one, err
}

// fromClusters returns the parameters of declared clusters. Without a selector, the local cluster is one of them.
func (g *generators) fromClusters(n *yaml.Node, given map[string]any) []map[string]any {
	if n.Kind == yaml.ScalarNode && n.Value == "" || n.Kind == 0 {
		n = &yaml.Node{Kind: yaml.MappingNode, Line: n.Line}
	}
	rendered, err := g.lenient(n, given)
	var read struct {
		Selector selector          `yaml:"selector"`
		Values   map[string]string `yaml:"values"`
		Flat     bool              `yaml:"flatList"`
	}
	if err == nil {
		err = rendered.Decode(&read)
	}
	if err == nil {
		err = read.Selector.check()
	}
	if err != nil {
		g.missing(n, "generator clusters", "it cannot be evaluated: "+oneLine(err))
		return nil
	}
	if read.Flat {
		g.missing(n, "generator clusters", "flatList makes one Application of all clusters, and there is no such thing here")
		return nil
	}
	if !read.Selector.empty() {
		g.selectors = append(g.selectors, typeSelector(&read.Selector))
	} else {
		g.selectors = append(g.selectors, &selector{})
		if !slices.ContainsFunc(g.known, func(k *argoCluster) bool { return k.server == localServer && k.declared }) {
			g.destination(place{g.file, n.Line}, g.object, "", localServer)
		}
	}
	var all []map[string]any
	for _, k := range g.known {
		if local := k.server == localServer && !k.declared; local && !read.Selector.empty() || !local && (!k.declared || !read.Selector.matches(k.labels)) {
			continue
		}
		one := map[string]any{
			"name": k.name, "nameNormalized": slug(k.name), "server": k.server, "project": "",
			"metadata": map[string]any{"labels": anyMap(k.labels), "annotations": anyMap(k.annotations)},
		}
		if len(read.Values) > 0 {
			one["values"] = g.values(n, read.Values, one)
		}
		all = append(all, one)
	}
	return all
}

// typeSelector returns a selector of cluster types: the label that all Secrets have says nothing.
func typeSelector(s *selector) *selector {
	own := &selector{MatchLabels: maps.Clone(s.MatchLabels)}
	delete(own.MatchLabels, argoSecretLabel)
	for _, r := range s.MatchExpressions {
		if r.Key != argoSecretLabel {
			own.MatchExpressions = append(own.MatchExpressions, r)
		}
	}
	return renameKeys(own)
}

// values renders a generator's values with its own parameters.
func (g *generators) values(n *yaml.Node, values map[string]string, params map[string]any) map[string]any {
	all := map[string]any{}
	for _, key := range slices.Sorted(maps.Keys(values)) {
		text, err := evaluate(values[key], params, g.goTemplate)
		if err != nil {
			g.missing(n, "values."+key, "it cannot be evaluated: "+oneLine(err))
			continue
		}
		all[key] = text
	}
	return all
}

func anyMap(texts map[string]string) map[string]any {
	all := map[string]any{}
	for key, value := range texts {
		all[key] = value
	}
	return all
}

// git returns the parameters of folders or files of a repository, of which the input has a copy.
func (g *generators) git(n *yaml.Node, given map[string]any) []map[string]any {
	rendered, err := g.lenient(n, given)
	type pattern struct {
		Path    string `yaml:"path"`
		Exclude bool   `yaml:"exclude"`
	}
	var read struct {
		RepoURL     string            `yaml:"repoURL"`
		Directories []pattern         `yaml:"directories"`
		Files       []pattern         `yaml:"files"`
		Values      map[string]string `yaml:"values"`
		Prefix      string            `yaml:"pathParamPrefix"`
	}
	if err == nil {
		err = rendered.Decode(&read)
	}
	if err != nil {
		g.missing(n, "generator git", "it cannot be evaluated: "+oneLine(err))
		return nil
	}
	if read.Prefix != "" {
		g.missing(n, "generator git", "pathParamPrefix is not supported")
		return nil
	}
	files, given2 := g.reader.checkout(read.RepoURL)
	patterns, folders := read.Files, false
	if len(read.Directories) > 0 {
		patterns, folders = read.Directories, true
	}
	matchBy := func(match func(pattern, name string) bool, name string) bool {
		included := false
		for _, p := range patterns {
			if match(p.Path, name) {
				if p.Exclude {
					return false
				}
				included = true
			}
		}
		return included
	}
	differs := "" // the first file for which Argo CD's two ways to read patterns differ
	match := func(name string) bool {
		if folders {
			return matchBy(folderMatches, name)
		}
		matched := matchBy(fileMatches, name)
		if matched != matchBy(newFileMatches, name) && differs == "" {
			differs = name
		}
		return matched
	}
	var all []map[string]any
	_ = fs.WalkDir(files, ".", func(name string, e fs.DirEntry, err error) error {
		switch {
		case err != nil || len(all) > maxParameters:
			return fs.SkipAll
		case e.IsDir() && name != "." && (folders && strings.HasPrefix(e.Name(), ".") || e.Name() == ".git"):
			return fs.SkipDir
		case name == "." || e.IsDir() != folders || !match(name):
			return nil
		case folders:
			all = append(all, map[string]any{"path": pathParameters(name)})
			return nil
		}
		all = append(all, g.fileParameters(n, files, name)...)
		return nil
	})
	if differs != "" {
		g.report.add(Changed, place{g.file, n.Line}, g.object, "generator git",
			"its patterns are read by Argo CD's default, where * matches slashes too; with the new file globbing, which argocd-cmd-params-cm can switch on, they differ for "+differs)
	}
	if len(all) == 0 {
		why := "no folder or file of the input matches"
		if !given2 {
			clean, _ := withoutPassword(read.RepoURL)
			why += ": give the repository with --checkout " + clean + "=DIR"
		}
		g.missing(n, "generator git", why)
	}
	for _, one := range all {
		if len(read.Values) > 0 {
			one["values"] = g.values(n, read.Values, one)
		}
	}
	return all
}

// pathParameters returns what templates can say of a path.
func pathParameters(name string) map[string]any {
	var segments []any
	for s := range strings.SplitSeq(name, "/") {
		segments = append(segments, s)
	}
	base := path.Base(name)
	return map[string]any{"path": name, "basename": base, "basenameNormalized": slug(base), "segments": segments}
}

// fileParameters returns the parameters in a file: one mapping, or a list of them. As in Argo CD, only the first document counts,
// and an empty file is an empty mapping.
func (g *generators) fileParameters(n *yaml.Node, files fs.FS, name string) []map[string]any {
	data, err := readFile(files, name)
	var documents []document
	if err == nil {
		documents, err = documentsOf(name, data) // which bounds it
	}
	if len(documents) > 1 && documents[0].node.Kind != yaml.SequenceNode {
		g.report.add(Changed, place{name, documents[1].at.line}, g.object, "file "+name, "Argo CD reads its first document alone")
	}
	var all []map[string]any
	if err == nil {
		if err = kyaml.Unmarshal(data, &all); err != nil {
			one := map[string]any{}
			if kyaml.Unmarshal(data, &one) == nil {
				all, err = []map[string]any{one}, nil
			}
		} else if len(all) == 0 {
			all = []map[string]any{{}}
		}
	}
	if err != nil {
		g.missing(n, "file "+name, "it cannot be read: "+oneLine(err))
		return nil
	}
	for i, one := range all {
		if one == nil {
			one = map[string]any{}
		}
		if !g.goTemplate {
			one, _ = texts(one).(map[string]any)
		}
		at := pathParameters(path.Dir(name))
		at["filename"], at["filenameNormalized"] = path.Base(name), slug(path.Base(name))
		one["path"] = at
		all[i] = one
	}
	return all
}

// texts returns a value with all in it as texts, and lists by their indices, as templates that are not Go's see them.
func texts(value any) any {
	switch v := value.(type) {
	case map[string]any:
		all := map[string]any{}
		for key, inner := range v {
			all[key] = texts(inner)
		}
		return all
	case []any:
		all := map[string]any{}
		for i, inner := range v {
			all[fmt.Sprint(i)] = texts(inner)
		}
		return all
	}
	return fmt.Sprint(value)
}

// folderMatches reports whether a pattern for folders matches a path.
func folderMatches(pattern, name string) bool {
	ok, err := path.Match(pattern, name)
	return ok && err == nil
}

// fileMatches reports whether a pattern for files matches a path by Argo CD's default, which is that of git: all signs match slashes
// too, and a pattern without any is a file or all of a folder.
func fileMatches(pattern, name string) bool {
	if !strings.ContainsAny(pattern, "*?[\\") {
		pattern = strings.TrimSuffix(pattern, "/")
		return name == pattern || strings.HasPrefix(name, pattern+"/")
	}
	return globMatches(pattern, name, ".")
}

// newFileMatches is fileMatches by the rule that has to be switched on, where only ** matches slashes.
func newFileMatches(pattern, name string) bool {
	return globMatches(strings.ReplaceAll(pattern, "**/", "\x00"), name, "[^/]")
}

// globMatches reports whether a pattern matches a path. One is what a single sign matches.
func globMatches(pattern, name, one string) bool {
	var b strings.Builder
	b.WriteString("(?s)^")
	for rest := pattern; rest != ""; {
		switch end := strings.IndexByte(rest, ']'); {
		case rest[0] == 0:
			b.WriteString("(.*/)?")
		case strings.HasPrefix(rest, "**"):
			b.WriteString(".*")
			rest = rest[1:]
		case rest[0] == '*':
			b.WriteString(one + "*")
		case rest[0] == '?':
			b.WriteString(one)
		case rest[0] == '[' && end > 1:
			class := strings.ReplaceAll(rest[1:end], "\\", "\\\\")
			if strings.HasPrefix(class, "!") {
				class = "^" + class[1:]
			}
			b.WriteString("[" + class + "]")
			rest = rest[end:]
		case rest[0] == '\\' && len(rest) > 1:
			b.WriteString(regexp.QuoteMeta(rest[1:2]))
			rest = rest[1:]
		default:
			b.WriteString(regexp.QuoteMeta(rest[:1]))
		}
		rest = rest[1:]
	}
	re, err := regexp.Compile(b.String() + "$")
	return err == nil && re.MatchString(name)
}

// matrix returns every pair of the parameters of two generators.
func (g *generators) matrix(n *yaml.Node) []map[string]any {
	children := kinds.SequenceField(n, "generators")
	if len(children) != 2 {
		g.missing(n, "generator matrix", "it must have two generators")
		return nil
	}
	var all []map[string]any
	for _, first := range g.generate(children[0], nil) {
		for _, second := range g.generate(children[1], first.params) {
			both, clash := united(first.params, second.params)
			if clash != "" {
				g.missing(n, "generator matrix", "both generators have a value for "+clash+", and they differ")
				return nil
			}
			if all = append(all, both); len(all) > maxParameters {
				return all
			}
		}
	}
	return all
}

// united returns the parameters of both, or the first key for which they differ. Nested ones, such as values, are united too.
func united(a, b map[string]any) (both map[string]any, clash string) {
	both = maps.Clone(a)
	for _, key := range slices.Sorted(maps.Keys(b)) {
		before, had := both[key]
		innerA, okA := before.(map[string]any)
		innerB, okB := b[key].(map[string]any)
		switch {
		case okA && okB:
			inner, clash := united(innerA, innerB)
			if clash != "" {
				return nil, key + "." + clash
			}
			both[key] = inner
		case had && asJSON(before) != asJSON(b[key]):
			return nil, key
		default:
			both[key] = b[key]
		}
	}
	return both, ""
}

func asJSON(v any) string {
	text, err := json.Marshal(v)
	if err != nil {
		return fmt.Sprint(v)
	}
	return string(text)
}

// merge returns the parameters of the first generator, with those of the others over them where the keys are the same.
func (g *generators) merge(n *yaml.Node) []map[string]any {
	var keys []string
	children := kinds.SequenceField(n, "generators")
	if err := kinds.Field(n, "mergeKeys").Decode(&keys); err != nil || len(keys) == 0 || len(children) < 2 {
		g.missing(n, "generator merge", "it must have mergeKeys, and two generators or more")
		return nil
	}
	keyOf := func(params map[string]any) string { // a value that is not there is null
		var parts []string
		for _, k := range keys {
			v := params[k]
			if !g.goTemplate {
				v, _ = lookup(params, k)
			}
			parts = append(parts, asJSON(v))
		}
		return strings.Join(parts, ", ")
	}
	var all []map[string]any
	at := map[string]int{}
	for i, child := range children {
		seen := map[string]bool{}
		for _, p := range g.generate(child, nil) {
			key := keyOf(p.params)
			if seen[key] {
				g.missing(n, "generator merge", fmt.Sprintf("Argo CD makes nothing of it: generator %d has several parameter sets with the merge keys %s", i+1, key))
				return nil
			}
			seen[key] = true
			if j, known := at[key]; known {
				all[j] = merged(all[j], unflattened(p.params, g.goTemplate))
			} else if i == 0 {
				at[key] = len(all)
				all = append(all, p.params)
			}
		}
	}
	return all
}

// unflattened returns parameters whose keys values.NAME are nested, as they are where templates are not Go's.
func unflattened(params map[string]any, goTemplate bool) map[string]any {
	if goTemplate {
		return params
	}
	all := map[string]any{}
	values := map[string]any{}
	for key, value := range params {
		if name, ok := strings.CutPrefix(key, "values."); ok {
			values[name] = value
			continue
		}
		all[key] = value
	}
	if len(values) > 0 {
		return merged(all, map[string]any{"values": values})
	}
	return all
}
