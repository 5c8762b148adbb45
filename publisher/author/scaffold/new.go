package scaffold

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/wherry-dev/wherry/bundle/lazyregexp"
	"github.com/wherry-dev/wherry/bundle/yamltext"
	"github.com/wherry-dev/wherry/publisher/author"
	"github.com/wherry-dev/wherry/publisher/gitrepo"
	"github.com/wherry-dev/wherry/scheduler/finding"
)

// Request is an object that is to be. Which fields count depends on its kind.
type Request struct {
	Kind string // such as ClusterType
	Name string
	// Environments are those of a workload or of rings, else the one whose folder gets the object.
	Environments []string
	Shared       bool // the object is for all environments

	Labels, TargetLabels, TypeLabels, Manifests, Data map[string]string
	Values                                            map[string]string // of a Cluster: its site values
	// SiteKeys makes a ConfigMap the declaration of site values with these keys, of which the site may set SiteMaySet.
	SiteKeys, SiteMaySet []string
	Rings, Required      []string
	Chain                []string // of a PromotionPolicy that promotes from environment to environment

	// Of a PlatformCheck: the kinds of the objects that Expression is about, or Plan, and the message of a failure.
	ObjectKinds               []string
	Expression, Plan, Message string
	Warning                   bool
	// Of a workspace: ServiceAccount, the owners as the forge knows them, and the repositories that its registrations may name.
	ServiceAccount       string
	Owners, Repositories []string

	Repo, Branch, Folder, Commit             string
	Reconciler, NamespaceService, ConfigType string
	Workspace                                string
	ClusterType, UID, Ring                   string
	Text                                     string // of a Template: one of Templates
}

// WhichError means that the environment has to be named whose folder gets an object.
type WhichError struct {
	Kind  string
	Known []string
}

func (e *WhichError) Error() string {
	return fmt.Sprintf("a %s lies in the folder of an environment: %s", e.Kind, strings.Join(e.Known, ", "))
}

// usualFolders are where objects go while there is no other of their kind.
var usualFolders = map[string]string{
	"ClusterType": "cluster-types", "SchedulingPolicy": "scheduling", "Workload": "workloads", "WorkloadRegistration": "workloads",
	"Template": "templates", "ConfigMap": "configs", "ConfigSchema": "schemas", "PromotionPolicy": ".", "Cluster": "clusters", "BaseRepo": ".", "PlatformCheck": "checks",
}

// New returns the plan that adds an object to a platform, and the name of its file.
func New(ctx context.Context, p *author.Platform, r Request) (*author.Plan, string, error) {
	if err := author.CheckName(r.Kind, r.Name); err != nil {
		return nil, "", err
	}
	switch r.Kind {
	case "Environment":
		return newEnvironment(ctx, p, r)
	case author.Workspace:
		return newWorkspace(ctx, p, r)
	}
	home, err := homeOf(p, r)
	if err != nil {
		return nil, "", err
	}
	for _, o := range p.Named(r.Kind, r.Name) {
		if o.File.Environment == home || o.File.Environment == "" || home == "" {
			return nil, "", &author.Error{Err: fmt.Errorf("%s: there is a %s %q already", o.Position(), r.Kind, r.Name), Hint: fmt.Sprintf("change it with \"wherry edit %s %s\"", author.Word(r.Kind), r.Name), Refused: true}
		}
	}
	o, text, err := r.object(p, home)
	if err != nil {
		return nil, "", err
	}
	data, err := write(text, o)
	if err != nil {
		return nil, "", err
	}
	name := placeOf(p, r.Kind, r.Name, home)
	if r.Kind == "PromotionPolicy" && path.Dir(name) == "." {
		if name = "rings.yaml"; len(r.Chain) > 0 {
			name = "promotion.yaml"
		}
	}
	plan, err := p.Create(ctx, map[string][]byte{name: data})
	if err == nil && len(o.Unset) > 0 {
		plan.Notes = append(plan.Notes, fmt.Sprintf("templates read these of .Manifests as well: %s", strings.Join(o.Unset, ", ")))
	}
	return plan, name, err
}

// homeOf returns the environment whose folder gets the object, empty for what environments share.
func homeOf(p *author.Platform, r Request) (string, error) {
	several := slices.Contains([]string{"Workload", "PromotionPolicy", "PlatformCheck"}, r.Kind)
	for _, name := range r.Environments {
		e, err := p.Environment(name)
		if err != nil && (r.Kind != "Workload" || len(p.Environments) > 0) {
			return "", err
		}
		if !several && err == nil && p.OnOtherBranch(e) {
			return "", wrong(fmt.Sprintf("go to the work tree of that branch, or \"git switch %s\"", e.Branch), "environment %q is on branch %s", name, e.Branch)
		}
	}
	var folders []string // the environments that have one here
	for _, e := range p.Environments {
		if e.Folder != "" {
			folders = append(folders, e.Name)
		}
	}
	switch {
	case r.Shared || len(folders) == 0 || several:
		return "", nil
	case len(r.Environments) > 0:
		if !slices.Contains(folders, r.Environments[0]) {
			return "", wrong("make its folder, or go to the work tree of its branch", "environment %q has no folder here", r.Environments[0])
		}
		return r.Environments[0], nil
	case r.Kind == "Template" || r.Kind == "WorkloadRegistration" || r.Kind == "ConfigMap" || r.Kind == "ConfigSchema":
		return "", nil
	case p.FolderOf(r.Kind, "") != "": // others of its kind are shared
		return "", nil
	case len(folders) == 1:
		return folders[0], nil
	}
	return "", &WhichError{Kind: r.Kind, Known: folders}
}

// placeOf returns the file of a new object: in the folder in which most others of its kind lie.
func placeOf(p *author.Platform, kind, name, home string) string {
	dir := p.FolderOf(kind, home)
	if dir == "" {
		folder := ""
		if home != "" {
			e, _ := p.Environment(home)
			folder = e.Folder
		}
		dir = path.Join(folder, usualFolders[kind])
	}
	if kind == "BaseRepo" {
		name = "base-repo"
	}
	file := path.Join(dir, name+".yaml")
	for _, f := range p.Files {
		if f.Name == file { // such as a policy of the name beside the cluster type
			return path.Join(dir, name+"-"+author.Word(kind)+".yaml")
		}
	}
	return file
}

// object returns what the text of the kind says, and the name of that text.
func (r Request) object(p *author.Platform, home string) (object, string, error) {
	o := object{
		Name: r.Name, Environments: r.Environments, Labels: Pairs(r.Labels), TargetLabels: Pairs(r.TargetLabels), TypeLabels: Pairs(r.TypeLabels),
		Manifests: Pairs(r.Manifests), Data: Pairs(r.Data), Rings: r.Rings, Required: r.Required, Repo: r.Repo, Branch: r.Branch, Folder: r.Folder, Commit: r.Commit,
		Reconciler: r.Reconciler, NamespaceService: r.NamespaceService, ConfigType: r.ConfigType, Workspace: r.Workspace,
		ClusterType: r.ClusterType, UID: r.UID, Ring: r.Ring, Values: Pairs(r.Values),
		Chain: r.Chain, ObjectKinds: r.ObjectKinds, Expression: r.Expression, Plan: r.Plan, Message: r.Message, Warning: r.Warning,
	}
	text := "kinds/" + r.Kind + ".yaml"
	switch r.Kind {
	case "ClusterType":
		return o, text, o.complete(p, home)
	case "Template":
		if !slices.Contains(Templates(), r.Text) {
			if r.Text == "" {
				return o, "", wrong("name one with --from: "+strings.Join(Templates(), ", "), "no built-in template is called %q", r.Name)
			}
			return o, "", wrong("known: "+strings.Join(Templates(), ", "), "no built-in template is called %q", r.Text)
		}
		text = "templates/" + r.Text + ".yaml"
	case "Workload":
		if o.Unset = slices.DeleteFunc(Manifests(p), func(key string) bool { _, ok := r.Manifests[key]; return ok }); len(o.Environments) == 0 {
			return o, "", wrong("name one with -e", "a workload needs an environment to run in")
		}
	case "ConfigMap":
		if len(r.SiteKeys) > 0 {
			text = "kinds/SiteValues.yaml"
			return o, text, o.siteKeys(r)
		}
	case "PlatformCheck":
		if (o.Expression == "") == (o.Plan == "") {
			return o, "", wrong(`such as --expression "object.?spec.?type.orValue('') != 'LoadBalancer'" --kind Service`, "a check needs an --expression about objects, or a --plan about a publication")
		}
		if o.Message == "" {
			o.Message = "refused by " + r.Name
		}
	case "PromotionPolicy":
		if len(r.Chain) > 0 {
			return o, "kinds/Promotion.yaml", inPlatform(p, r.Chain)
		}
		if len(o.Environments) == 0 || len(o.Rings) == 0 {
			return o, "", wrong("such as --ring canary --ring stable -e prod", "rings need names and an environment")
		}
	case "Cluster":
		return o, text, known(p, "ClusterType", home, r.ClusterType, true)
	case "WorkloadRegistration":
		return o, text, checkRepo(r.Repo, "a registration needs the repository of the app team")
	case "BaseRepo":
		if err := checkRepo(r.Repo, "a base needs its repository"); err != nil {
			return o, "", err
		}
		if r.Commit == "" {
			return o, "", wrong("give all digits of the base's commit that the environment has now with --commit, or commit what is there first", "a base needs a commit, and this folder has none")
		}
		if !wholeCommit.MatchString(r.Commit) {
			return o, "", wrong("give all digits of the base's commit that the environment has now with --commit", "a base needs a commit, got %q", r.Commit)
		}
	}
	return o, text, nil
}

var wholeCommit = lazyregexp.New(`^([0-9a-f]{40}|[0-9a-f]{64})$`)

// checkRepo returns an error unless a repository's URL may be written into an object.
func checkRepo(url, missing string) error {
	if url == "" {
		return wrong("give its URL with --repo", "%s", missing)
	}
	if err := gitrepo.CheckURL(url); err != nil {
		return wrong("", "--repo: %w", err)
	}
	if url != gitrepo.Redact(url) {
		return wrong("keep credentials in ~/.netrc", "--repo: the URL has credentials")
	}
	return nil
}

// siteKeys fills in the keys of a declaration of site values.
func (o *object) siteKeys(r Request) error {
	for _, key := range r.SiteMaySet {
		if !slices.Contains(r.SiteKeys, key) {
			return wrong(finding.DidYouMean(key, r.SiteKeys), "the site cannot set %s, which is not one of the keys", key)
		}
	}
	for _, key := range r.SiteKeys {
		o.SiteKeys = append(o.SiteKeys, SiteKey{key, slices.Contains(r.SiteMaySet, key)})
	}
	return nil
}

// complete fills in the Templates that nobody gave: those that other cluster types use, or the only ones of their type.
func (o *object) complete(p *author.Platform, home string) error {
	for _, part := range []struct {
		field, kind string
		value       *string
	}{{"reconciler", "reconciler", &o.Reconciler}, {"namespaceService", "namespace", &o.NamespaceService}, {"configType", "config", &o.ConfigType}} {
		if *part.value == "" {
			*part.value = usual(p, part.field, part.kind)
		}
		if part.kind == "config" && slices.Contains([]string{"", "configMap", "envFile"}, *part.value) {
			continue // built in
		}
		if *part.value == "" {
			return wrong(`"wherry new template" makes one; one of another branch has to be named`, "there is no Template of type %s to take for %s", part.kind, part.field)
		}
		if err := known(p, "Template", home, *part.value, false); err != nil {
			return err
		}
	}
	if len(o.Labels) == 0 {
		o.Labels = []Pair{{"type", o.Name}}
	}
	return nil
}

// usual returns the Template that most cluster types name in a field, else the first one of its type.
func usual(p *author.Platform, field, kind string) string {
	number, best := map[string]int{}, ""
	for _, o := range p.All("ClusterType") {
		if name := o.Text("spec", field); name != "" {
			if number[name]++; number[name] > number[best] {
				best = name
			}
		}
	}
	for _, o := range p.All("Template") {
		if best == "" && o.Text("spec", "type") == kind {
			best = o.Name
		}
	}
	return best
}

// known returns an error unless the environment has an object of the kind and name.
func known(p *author.Platform, kind, environment, name string, required bool) error {
	all := p.Visible(kind, environment)
	if slices.Contains(all, name) || len(all) == 0 && name != "" { // without any, they are on another branch
		return nil
	}
	hint := finding.DidYouMean(name, all)
	if hint == "" && len(all) > 0 {
		hint = "known: " + strings.Join(all, ", ")
	}
	if name == "" && required {
		return wrong(hint, "the %s is missing", author.Word(kind))
	}
	return wrong(hint, "there is no %s %q", kind, name)
}

var manifestKey = lazyregexp.New(`\.Manifests\.([A-Za-z_][A-Za-z0-9_]*)`)

// Manifests returns the keys of a target's manifests that the platform's templates read, sorted.
func Manifests(p *author.Platform) []string {
	var keys []string
	for _, o := range p.All("Template") {
		for _, found := range manifestKey.FindAllSubmatch(o.Source(), -1) {
			keys = append(keys, string(found[1]))
		}
	}
	slices.Sort(keys)
	return slices.Compact(keys)
}

// newEnvironment adds an Environment object and, in its folder, its first values.
func newEnvironment(ctx context.Context, p *author.Platform, r Request) (*author.Plan, string, error) {
	for _, e := range p.Environments {
		if e.Name == r.Name {
			return nil, "", &author.Error{Err: fmt.Errorf("%s: there is an Environment %q already", e.Object.Position(), r.Name), Refused: true}
		}
	}
	folder := r.Folder
	if folder == "" && onOwnBranch(p, &r) {
		folder = "."
	}
	if folder == "" {
		folder = r.Name
		for _, e := range p.Environments { // as the others have it, such as environments/NAME
			if e.Folder != "" && path.Base(e.Folder) == e.Name {
				folder = path.Join(path.Dir(e.Folder), r.Name)
			}
		}
	}
	clean, err := gitrepo.CleanPath(folder)
	onBranch := clean == "." && r.Branch != ""
	if err != nil || clean == "." && !onBranch {
		return nil, "", wrong("--folder . is for an environment on a branch of its own, which --branch names", "--folder %q: it must be a folder of the platform", r.Folder)
	}
	if _, err := os.Lstat(filepath.Join(p.Root, filepath.FromSlash(folder))); !onBranch && !errors.Is(err, fs.ErrNotExist) {
		return nil, "", &author.Error{Err: fmt.Errorf("folder %s is there already", folder), Hint: "name another one with --folder", Refused: true}
	}
	o := object{Name: r.Name, Repo: r.Repo, Branch: r.Branch, Folder: "./" + clean}
	if onBranch {
		o.Folder = "."
	}
	for _, e := range p.Environments {
		if o.Repo == "" {
			o.Repo = gitrepo.Redact(e.Repo)
		}
		if o.Branch == "" && e.Folder != "" {
			o.Branch = e.Branch
		}
	}
	if o.Branch == "" {
		o.Branch = "main"
	}
	if o.Repo == "" {
		o.Repo = "."
	}
	dir := p.FolderOf("Environment", "")
	if dir == "" {
		dir = ".environments"
	}
	name := path.Join(dir, r.Name+".yaml")
	data, err := write("kinds/Environment.yaml", o)
	if err != nil {
		return nil, "", err
	}
	created := map[string][]byte{name: data}
	orphan := "--orphan "
	if p.BranchExists(o.Branch) {
		orphan = ""
	}
	note := fmt.Sprintf(`it has a branch of its own: commit this, run "git switch %s%s", and there "wherry new base-repo" and "wherry new cluster-type NAME"`, orphan, o.Branch)
	if !onBranch {
		if created[path.Join(clean, "configs", r.Name+".yaml")], err = write("kinds/ConfigMap.yaml", object{Name: r.Name, Data: []Pair{{"ENVIRONMENT", r.Name}}}); err != nil {
			return nil, "", err
		}
		note = "it has no cluster type yet: wherry new cluster-type NAME -e " + r.Name
	}
	plan, err := p.Create(ctx, created)
	if err == nil {
		plan.Notes = append(plan.Notes, note)
	}
	return plan, name, err
}

// onOwnBranch reports whether a new environment without a folder gets a branch of its own, as the request asks or as all others
// have it. It is named in the request then.
func onOwnBranch(p *author.Platform, r *Request) bool {
	if r.Branch != "" {
		return !p.HasBranch(r.Branch)
	}
	for _, e := range p.Environments {
		if !p.OnOtherBranch(e) {
			return false
		}
	}
	if len(p.Environments) == 0 {
		return false
	}
	r.Branch = r.Name
	return true
}

// inPlatform returns an error unless the platform has all of the environments.
func inPlatform(p *author.Platform, names []string) error {
	for _, name := range names {
		if _, err := p.Environment(name); err != nil {
			return err
		}
	}
	if len(names) < 2 {
		return wrong("such as --chain dev --chain prod", "a chain has two environments at least")
	}
	return nil
}

// newWorkspace adds a team to the Platform object.
func newWorkspace(ctx context.Context, p *author.Platform, r Request) (*author.Plan, string, error) {
	found := p.Named("Platform", "")
	if len(found) != 1 {
		return nil, "", wrong(`go to the folder or branch that has it; "wherry init" writes one`, "a workspace is part of the Platform object, and there are %d of them here", len(found))
	}
	value := "{name: " + yamltext.Scalar(r.Name, 0, true)
	add := func(key string, values []string) {
		var texts []string
		for _, v := range values {
			texts = append(texts, yamltext.Scalar(v, 0, true))
		}
		if len(texts) > 0 {
			value += ", " + key + ": [" + strings.Join(texts, ", ") + "]"
		}
	}
	if r.ServiceAccount != "" {
		value += ", serviceAccount: " + yamltext.Scalar(r.ServiceAccount, 0, true)
	}
	add("owners", r.Owners)
	add("repositories", r.Repositories)
	plan, err := p.Append(ctx, found[0], yamltext.Path{{Key: "spec"}, {Key: "workspaces"}}, value+"}")
	return plan, found[0].File.Name, err
}
