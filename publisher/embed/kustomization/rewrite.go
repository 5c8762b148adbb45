package kustomization

//lint:file-ignore SA1019 kustomizations have the deprecated fields

import (
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"path"
	"strings"

	"sigs.k8s.io/kustomize/api/types"

	"github.com/wherry-dev/wherry/bundle/lazyregexp"
	"github.com/wherry-dev/wherry/scheduler/finding"
)

// rewriter replaces the paths of one kustomization, and copies the files that they name.
type rewriter struct {
	*copier
	at    place
	file  string
	depth int
	cost  cost
}

// entry is a field of a kustomization, for messages.
type entry struct {
	file, field string
}

func (e entry) fails(hint, format string, args ...any) error {
	return finding.Errorf("", finding.Position{File: e.file}, hint, "%s: %s", e.field, finding.Sentence(format, args...))
}

func (r *rewriter) entry(field string) entry { return entry{r.at.shown(r.file), field} }

// all rewrites every field of a kustomization that has a path. A field of kustomize that is not here and takes one does not
// find its file in the copy.
func (r *rewriter) all(k *types.Kustomization) error {
	if len(k.HelmCharts) > 0 || k.HelmGlobals != nil {
		return r.entry("helmCharts").fails("render the chart as a target of its own, or commit the output of helm template and name it under resources",
			"kustomize would have the program helm inflate charts, which is not done here")
	}
	if err := r.openAPI(k); err != nil {
		return err
	}
	for _, list := range []struct {
		field   string
		entries []string
		rewrite func(entry, string) (string, error)
	}{
		{"resources", k.Resources, r.resource},
		{"components", k.Components, r.base},
		{"crds", k.Crds, r.namedFile},
		{"configurations", k.Configurations, r.namedFile},
		{"generators", k.Generators, r.plugins},
		{"transformers", k.Transformers, r.plugins},
		{"validators", k.Validators, r.plugins},
	} {
		for i, text := range list.entries {
			var err error
			if list.entries[i], err = list.rewrite(r.entry(list.field), text); err != nil {
				return err
			}
		}
	}
	for i := range k.ConfigMapGenerator {
		if err := r.generator(r.entry("configMapGenerator"), &k.ConfigMapGenerator[i].KvPairSources); err != nil {
			return err
		}
	}
	for i := range k.SecretGenerator {
		if err := r.generator(r.entry("secretGenerator"), &k.SecretGenerator[i].KvPairSources); err != nil {
			return err
		}
	}
	return r.changes(k)
}

func (r *rewriter) openAPI(k *types.Kustomization) error {
	if len(k.OpenAPI) == 0 {
		return nil
	}
	r.schema = true
	file, ok := k.OpenAPI["path"]
	if !ok {
		return nil
	}
	var err error
	k.OpenAPI["path"], err = r.namedFile(r.entry("openapi"), file)
	return err
}

// changes rewrites patches and replacements.
func (r *rewriter) changes(k *types.Kustomization) error {
	for _, list := range []struct {
		field   string
		patches []types.Patch
	}{{"patches", k.Patches}, {"patchesJson6902", k.PatchesJson6902}} {
		for i := range list.patches {
			if err := r.patch(r.entry(list.field), &list.patches[i].Path); err != nil {
				return err
			}
		}
	}
	for i, text := range k.PatchesStrategicMerge {
		rewritten, err := r.mergePatch(r.entry("patchesStrategicMerge"), string(text))
		if err != nil {
			return err
		}
		k.PatchesStrategicMerge[i] = types.PatchStrategicMerge(rewritten)
	}
	if err := r.replaces(r.entry("replacements"), k.Replacements); err != nil {
		return err
	}
	if k.CommonLabels != nil { // the same under its newer name: kustomize writes a warning about the older to stderr
		k.Labels = append(k.Labels, types.Label{Pairs: k.CommonLabels, IncludeSelectors: true})
		k.CommonLabels = nil
	}
	return nil
}

// replaces copies the files of replacements.
func (r *rewriter) replaces(from entry, all []types.ReplacementField) error {
	for i := range all {
		if all[i].Path == "" {
			continue
		}
		to, err := r.findFile(from, all[i].Path)
		if err != nil {
			return err
		}
		if all[i].Path, err = r.copyFile(from, to); err != nil {
			return err
		}
	}
	return nil
}

// resource copies a file of objects, or a folder with a kustomization.
func (r *rewriter) resource(from entry, text string) (string, error) {
	to, isDir, err := r.find(from, text)
	if err != nil {
		return "", err
	}
	if isDir {
		return r.enter(from, to)
	}
	return r.copyFile(from, to)
}

// base copies a folder with a kustomization or a component.
func (r *rewriter) base(from entry, text string) (string, error) {
	to, isDir, err := r.find(from, text)
	if err != nil {
		return "", err
	}
	if !isDir {
		return "", from.fails("", "%s is a file, and not a folder with a kustomization.yaml", text)
	}
	return r.enter(from, to)
}

func (r *rewriter) enter(from entry, to place) (string, error) {
	below, err := r.folder(to, from, r.depth+1)
	if err != nil {
		return "", err
	}
	if r.cost.add(below); r.cost.files > r.opts.MaxFiles {
		return "", tooLarge(from.file, "kustomize would read more than %d files and folders", r.opts.MaxFiles)
	}
	return relative(r.at, to)
}

func (r *rewriter) namedFile(from entry, text string) (string, error) {
	to, err := r.findFile(from, text)
	if err != nil {
		return "", err
	}
	return r.copyFile(from, to)
}

func (r *rewriter) findFile(from entry, text string) (place, error) {
	to, isDir, err := r.find(from, text)
	if err == nil && isDir {
		err = from.fails("", "%s is a folder, and not a file", text)
	}
	return to, err
}

// copyFile copies a file.
func (r *rewriter) copyFile(from entry, to place) (string, error) {
	data, err := r.take(from, to)
	if err != nil {
		return "", err
	}
	if err := r.write(to, data); err != nil {
		return "", err
	}
	return relative(r.at, to)
}

// take reads a file, and counts it.
func (r *rewriter) take(from entry, to place) ([]byte, error) {
	data, read, err := r.readFile(to)
	if err != nil {
		return nil, err
	}
	if r.cost.add(read); r.cost.files > r.opts.MaxFiles || r.cost.bytes > r.opts.MaxReadBytes {
		return nil, tooLarge(from.file, "kustomize would read more than %d files or %d bytes", r.opts.MaxFiles, r.opts.MaxReadBytes)
	}
	return data, nil
}

// generator copies the files whose content goes into a ConfigMap or a Secret.
func (r *rewriter) generator(from entry, sources *types.KvPairSources) error {
	for i, file := range sources.EnvSources {
		var err error
		if sources.EnvSources[i], err = r.namedFile(from, file); err != nil {
			return err
		}
	}
	for i, text := range sources.FileSources {
		key, file, named := strings.Cut(text, "=")
		if !named {
			key, file = path.Base(text), text // the copy may have another name
		}
		rel, err := r.namedFile(from, file)
		if err != nil {
			return err
		}
		sources.FileSources[i] = key + "=" + rel
	}
	return nil
}

// patch copies the file of a patch, if it has one.
func (r *rewriter) patch(from entry, file *string) error {
	if *file == "" {
		return nil
	}
	to, err := r.findFile(from, *file)
	if err != nil {
		return err
	}
	*file, err = r.copyFile(from, to)
	return err
}

// mergePatch is a patch, or the path of one.
func (r *rewriter) mergePatch(from entry, text string) (string, error) {
	if strings.ContainsAny(text, "\n{") {
		return text, nil
	}
	return r.namedFile(from, text)
}

// find looks for the file or folder that an entry names, relative to the kustomization.
func (r *rewriter) find(from entry, text string) (to place, isDir bool, err error) {
	if text == "" {
		return place{}, false, from.fails("", "an entry is empty")
	}
	if base, remote, err := parseRemote(text); remote {
		if errors.Is(err, errCredentials) {
			return place{}, false, from.fails("", "%s", err)
		}
		if err != nil {
			return place{}, false, from.fails("name the repository with ?ref= and a full commit, or copy what is needed into this repository", "%s: %s", text, err)
		}
		return r.remote(from, text, base)
	}
	if path.IsAbs(text) || strings.Contains(text, `\`) {
		return place{}, false, from.fails("use a path relative to the kustomization", "%s is an absolute path", text)
	}
	to = place{r.at.tree, path.Join(r.at.name, text)}
	if !fs.ValidPath(to.name) {
		return place{}, false, from.fails("copy what is needed into this repository", "%s lies outside of the repository", text)
	}
	return r.look(from, text, to)
}

func (r *rewriter) look(from entry, text string, to place) (place, bool, error) {
	mode, err := to.tree.mode(to.name)
	if errors.Is(err, fs.ErrNotExist) {
		return place{}, false, from.fails("", "%s is not in the repository", text)
	}
	return to, mode.IsDir(), err
}

// remoteBase is a folder of another repository.
type remoteBase struct{ url, commit, dir string }

var (
	scpStyle   = lazyregexp.New(`^([a-zA-Z][a-zA-Z0-9-]*@|(?i:github\.com[:/]))`)
	fullCommit = lazyregexp.New(`^([0-9a-f]{40}|[0-9a-f]{64})$`)
)

// parseRemote reports whether kustomize would take text for a URL, and the repository that it names. The error says why it
// cannot be fetched.
func parseRemote(text string) (base remoteBase, remote bool, err error) {
	const forced = "git::" // an old prefix, which kustomize drops
	if len(text) >= len(forced) && strings.EqualFold(text[:len(forced)], forced) {
		text, remote = text[len(forced):], true
	}
	if parsed, err := url.Parse(text); err == nil && (parsed.Scheme == "http" || parsed.Scheme == "https") {
		remote = true
	}
	if !remote && !strings.Contains(text, "://") && !scpStyle.MatchString(text) {
		return remoteBase{}, false, nil
	}
	location, query, _ := strings.Cut(text, "?")
	values, err := url.ParseQuery(query)
	if err != nil {
		return remoteBase{}, true, errors.New("the query cannot be read")
	}
	commit := values.Get("ref")
	if commit == "" {
		commit = values.Get("version")
	}
	switch {
	case commit == "":
		return remoteBase{}, true, errors.New("a URL is taken only where it names a commit of a git repository")
	case !fullCommit.MatchString(commit):
		return remoteBase{}, true, fmt.Errorf("%q is not a full commit: what it stands for may change", commit)
	}
	base.commit = commit
	if base.url, base.dir, err = splitRepository(location); err != nil {
		return remoteBase{}, true, err
	}
	return base, true, nil
}

var errCredentials = errors.New("the URL has credentials; configure them for git instead")

// splitRepository tells a repository from the folder in it, by kustomize's rules: two slashes, the ending .git, or two
// segments after the host.
func splitRepository(location string) (repository, dir string, err error) {
	scheme, rest, ok := strings.Cut(location, "://")
	switch {
	case !ok && strings.Contains(location, "@"): // user@host:organization/repository
		if user, after, found := strings.Cut(location, ":"); found && !strings.Contains(user, "/") {
			scheme, rest = "ssh", user+"/"+after
			break
		}
		fallthrough
	case !ok:
		scheme, rest = "https", strings.Replace(location, ":", "/", 1)
	case !strings.EqualFold(scheme, "https") && !strings.EqualFold(scheme, "ssh") && !strings.EqualFold(scheme, "http"):
		return "", "", fmt.Errorf("the scheme %q is not known (known: https, http, ssh)", scheme)
	}
	host, inside, _ := strings.Cut(rest, "/")
	var repo string
	switch {
	case strings.Contains(inside, "_git/"):
		before, after, _ := strings.Cut(inside, "_git/")
		repo, dir, _ = strings.Cut(after, "/")
		repo = before + "_git/" + repo
	case strings.Contains(inside, "//"):
		repo, dir, _ = strings.Cut(inside, "//")
	case strings.Contains(inside, ".git"):
		before, after, _ := strings.Cut(inside, ".git")
		repo, dir = before+".git", after
	default:
		segments := strings.SplitN(inside, "/", 3)
		if len(segments) < 2 {
			return "", "", errors.New("the URL has no organization and repository")
		}
		repo = segments[0] + "/" + segments[1]
		if len(segments) == 3 {
			dir = segments[2]
		}
	}
	if user, _, ok := strings.Cut(host, "@"); ok && (!strings.EqualFold(scheme, "ssh") || strings.Contains(user, ":")) {
		return "", "", errCredentials
	}
	if host == "" || strings.Trim(repo, "/") == "" {
		return "", "", errors.New("the URL has no host or no repository")
	}
	if dir = path.Join(".", strings.Trim(dir, "/")); !fs.ValidPath(dir) {
		return "", "", errors.New("the folder lies outside of its repository")
	}
	return strings.ToLower(scheme) + "://" + host + "/" + repo, dir, nil
}

// remote has the caller fetch a repository, once for each commit.
func (r *rewriter) remote(from entry, text string, base remoteBase) (place, bool, error) {
	if r.opts.Remote == nil {
		return place{}, false, from.fails("copy the base into this repository", "%s is in another repository, and none are fetched here", text)
	}
	key := base.url + "?ref=" + base.commit
	at, known := r.others[key]
	if !known {
		files, err := r.opts.Remote(base.url, base.commit)
		if err != nil {
			return place{}, false, fmt.Errorf("%s: %s: %s: %w", from.file, from.field, key, err)
		}
		at = &tree{files: files, mount: fmt.Sprintf("%s%d", remoteMount, len(r.others)), name: key + ": ", entries: map[string]map[string]fs.FileMode{}}
		r.others[key] = at
	}
	return r.look(from, text, place{at, base.dir})
}
