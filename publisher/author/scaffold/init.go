package scaffold

import (
	"bytes"
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
)

// Flavours are the kinds of platform that Init makes, the default first.
var Flavours = []string{"kalypso", "flux", "empty"}

// clusterTypes are the cluster types of each flavour, with the Templates that they name.
var clusterTypes = map[string][]object{
	"kalypso": {
		{Name: "edge", Reconciler: "flux", NamespaceService: "namespace", ConfigType: "configmap"},
		{Name: "cloud", Reconciler: "argocd", NamespaceService: "namespace", ConfigType: "configmap"},
	},
	"flux":  {{Name: "edge", Reconciler: "flux", NamespaceService: "namespace", ConfigType: "configmap"}},
	"empty": {{Name: "edge", Reconciler: "plain", NamespaceService: "namespace", ConfigType: "configmap"}},
}

// Start is what Init makes.
type Start struct {
	Name         string   // of the platform; empty for the folder's
	Flavour      string   // one of Flavours
	Environments []string // each gets a folder; the first one is the default of commands
	Registry     string   // where releases go; may be empty
	// KeyPrefix begins the paths of the key files, which end in .key and .pub; empty if there are none.
	KeyPrefix string
	Repo      string // URL of the git repository, without credentials
	Branch    string
}

// Init returns the plan of a new platform in a folder, which need not exist. What lies there stays; a platform there is an
// error that names its files.
func Init(ctx context.Context, dir string, s Start) (*author.Plan, error) {
	if !slices.Contains(Flavours, s.Flavour) {
		return nil, wrong("known: "+strings.Join(Flavours, ", "), "unknown flavour %q", s.Flavour)
	}
	if s.Name == "" {
		s.Name = nameOf(dir)
	}
	if err := author.CheckName("Platform", s.Name); err != nil {
		return nil, err
	}
	for i, e := range s.Environments {
		if err := author.CheckName("Environment", e); err != nil {
			return nil, err
		}
		if slices.Contains(s.Environments[:i], e) || slices.Contains([]string{"templates", "configs"}, e) {
			return nil, wrong("each environment has a folder of its own", "environment %q would share its folder", e)
		}
	}
	if len(s.Environments) == 0 {
		return nil, wrong("", "a platform needs an environment")
	}
	p := &author.Platform{Root: dir}
	if there, err := author.Open(ctx, dir); err == nil {
		if p = there; len(p.Objects) > 0 || p.Settings != nil {
			return nil, alreadyThere(p)
		}
	} else if errors.Is(err, author.ErrBelow) {
		return nil, &author.Error{Err: err, Hint: "begin in a folder beside it", Refused: true}
	} else if !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	created, err := s.files()
	if err != nil {
		return nil, err
	}
	var notes []string
	if there, err := os.ReadFile(filepath.Join(dir, ".gitignore")); err == nil {
		delete(created, ".gitignore")
		if !bytes.Contains(there, []byte("*.key")) {
			notes = append(notes, filepath.Join(dir, ".gitignore")+" is there already: add *.key to it, so that no private key gets into git")
		}
	}
	plan, err := p.Create(ctx, created)
	if err == nil {
		plan.Notes = notes
	}
	return plan, err
}

// alreadyThere names the first files of a platform.
func alreadyThere(p *author.Platform) error {
	var names []string
	if p.Settings != nil {
		names = append(names, p.Settings.Name)
	}
	for _, o := range p.Objects {
		if !slices.Contains(names, o.File.Name) {
			names = append(names, o.File.Name)
		}
	}
	const shown = 5
	more := ""
	if len(names) > shown {
		more = fmt.Sprintf(" and %d more", len(names)-shown)
	}
	return &author.Error{
		Err:     fmt.Errorf("%s is a platform already: it has %s%s", p.Root, strings.Join(names[:min(len(names), shown)], ", "), more),
		Hint:    `"wherry new" adds objects to it`,
		Refused: true,
	}
}

var noName = lazyregexp.New(`[^a-z0-9]+`)

// nameOf makes a name from that of a folder.
func nameOf(dir string) string {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return "platform"
	}
	if name := strings.Trim(noName.ReplaceAllString(strings.ToLower(filepath.Base(abs)), "-"), "-"); name != "" {
		return name
	}
	return "platform"
}

func (s Start) files() (map[string][]byte, error) {
	all := map[string][]byte{author.SettingsFile: s.settings(), ".gitignore": []byte("# Private keys. Whoever has one and its password can sign releases.\n*.key\n")}
	var err error
	add := func(name, text string, o object) {
		if err == nil {
			all[name], err = write(text, o)
		}
	}
	add("platform.yaml", "kinds/Platform.yaml", object{Name: s.Name})
	add("configs/common.yaml", "kinds/ConfigMap.yaml", object{Name: "common", Data: []Pair{{"PLATFORM", s.Name}}})
	types := clusterTypes[s.Flavour]
	for _, t := range types {
		for _, name := range []string{t.Reconciler, t.NamespaceService, t.ConfigType} {
			add("templates/"+name+".yaml", "templates/"+name+".yaml", object{Name: name})
		}
	}
	for _, e := range s.Environments {
		add(".environments/"+e+".yaml", "kinds/Environment.yaml", object{Name: e, Repo: s.Repo, Branch: s.Branch, Folder: "./" + e})
		add(e+"/configs/"+e+".yaml", "kinds/ConfigMap.yaml", object{Name: e, Data: []Pair{{"ENVIRONMENT", e}}})
		for _, t := range types {
			label := []Pair{{"type", t.Name}}
			t.Labels = label
			add(path.Join(e, "cluster-types", t.Name+".yaml"), "kinds/ClusterType.yaml", t)
			add(path.Join(e, "scheduling", t.Name+".yaml"), "kinds/SchedulingPolicy.yaml", object{Name: t.Name, TypeLabels: label})
		}
	}
	return all, err
}

func (s Start) settings() []byte {
	var b strings.Builder
	line := func(given bool, format string, args ...any) {
		if !given {
			b.WriteString("# ")
		}
		fmt.Fprintf(&b, format+"\n", args...)
	}
	quoted := func(text string) string { return yamltext.Scalar(text, 0, true) }
	b.WriteString("# What commands in this folder take where no flag and no variable WHERRY_… says otherwise; paths are from here.\n" +
		"# \"wherry config view\" shows each setting and where it comes from.\n\n")
	line(true, "environment: %s # of commands without -e", quoted(s.Environments[0]))
	if registry := s.Registry; registry != "" {
		line(true, "registry: %s # where releases are published", quoted(registry))
	} else {
		line(false, "registry: oci://registry.example/edge # where releases are published")
	}
	prefix := s.KeyPrefix
	if prefix == "" {
		prefix = "cosign"
	}
	line(s.KeyPrefix != "", "keys: [%s] # whose signatures are accepted", quoted(prefix+".pub"))
	line(s.KeyPrefix != "", "signWith: [%s] # a private key: it does not belong in git", quoted(prefix+".key"))
	line(false, "workloads: {REGISTRATION: ../checkout} # app teams' repositories that lie on this machine")
	return []byte(b.String())
}
