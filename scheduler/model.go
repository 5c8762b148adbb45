// Package scheduler turns a platform, as people write it in YAML, into rendered assignments: which
// deployment target runs on which cluster type, with which configuration, as which files.
//
// Begin with [NewModel], give it every source with [Model.Load] and ask for the result with
// [Model.Render]. The input language is Kalypso's, and so is the output, byte for byte; docs/kalypso.md
// lists where the two differ on purpose.
//
// Failures stay where they are. A file that cannot be parsed in an environment or a base stops the environment, since absence
// is deletion; in the source of a WorkloadRegistration it holds what that registration had. A SchedulingPolicy with an
// unknown field fails alone, and what it had selected is held: a selector that lost a term would select more. If two
// registrations give one name to targets on a cluster type, the one that had it in the last release keeps it, and the other
// fails alone; if none had it, all of them fail. Text of app teams is shielded, so that its braces never reach the evaluator of templates.
//
// The package is pure: it reads nothing but the [fs.FS] that it is given, and uses no network, environment variable or
// random number. Only gates with a schedule look up the machine's time zones, which nothing that is rendered depends on. The
// same input gives the same bytes, whatever the files are called and however many cores do the work.
// Its only clock ends a template or schema that runs for half a minute. It resolves no references: the caller fetches the
// sources that [Model.BaseRepos] and [Model.Registrations] name, and loads them as well.
//
// The packages below it do one thing each: finding (mistakes and codes), kinds (objects as they are written), yamlvalue
// (configuration values), template (the evaluator), schema (JSON schemas), promotion (gates), lint (rules
// over a model).
package scheduler

import (
	"cmp"
	"fmt"
	"io/fs"
	"maps"
	"slices"

	"github.com/wherry-dev/wherry/scheduler/finding"
	"github.com/wherry-dev/wherry/scheduler/kinds"
)

// Source is a folder of platform objects.
type Source struct {
	FS fs.FS
	// Name is the prefix of file names in messages: a folder or a URL. It may be empty.
	Name string
	// Registration, if not empty, marks this as the app team's source of that WorkloadRegistration: only
	// its Workload objects are loaded, and they get that registration's workspace.
	Registration string
	// OnlyEnvironments loads Environment objects only, and skips files that cannot be parsed.
	OnlyEnvironments bool
	// Base, if not empty, is the name of the BaseRepo that points to this source.
	Base string
}

// Model is one environment of a platform, as read. A Model is not safe for concurrent use while it is
// being loaded; afterwards it may be rendered any number of times, also at once.
type Model struct {
	environment string
	objects     Objects

	environments  map[string]Environment
	baseRepos     map[string]BaseRepo
	gitOpsRepos   map[string]GitOpsRepo
	registrations map[string]WorkloadRegistration
	platform      string
	workspaces    map[string]workspace // that the Platform lists, by name
	platformRings []string             // of all environments, narrowest first
	maxRemoved    MaxRemoved

	seen     map[objectKey]finding.Position
	findings []finding.Finding
}

// Objects are the objects of a platform as they were read, by name. Callers must not
// change them.
type Objects struct {
	ClusterTypes map[string]*kinds.ClusterType
	Policies     map[string]*kinds.SchedulingPolicy
	Templates    map[string]*kinds.Template
	Schemas      map[string]*kinds.ConfigSchema
	ConfigMaps   map[string]*kinds.ConfigMap
	Workloads    []*kinds.Workload
	SiteValues   map[string]*kinds.ConfigMap // the declarations of site values
	Clusters     map[string]*kinds.Cluster
	Checks       map[string]*kinds.PlatformCheck
	Promotions   map[string]*kinds.PromotionPolicy
	Platform     *kinds.Platform // nil where there is none
}

// Objects returns the objects that were loaded.
func (m *Model) Objects() Objects { return m.objects }

// Findings returns the warnings and notes about the loaded objects, in the order in which they were read.
func (m *Model) Findings() []finding.Finding { return slices.Clone(m.findings) }

// NewModel returns an empty model of the environment of that name.
func NewModel(environment string) *Model {
	return &Model{
		environment: environment,
		objects: Objects{
			ClusterTypes: map[string]*kinds.ClusterType{},
			Policies:     map[string]*kinds.SchedulingPolicy{},
			Templates:    map[string]*kinds.Template{},
			Schemas:      map[string]*kinds.ConfigSchema{},
			ConfigMaps:   map[string]*kinds.ConfigMap{},
			SiteValues:   map[string]*kinds.ConfigMap{},
			Clusters:     map[string]*kinds.Cluster{},
			Checks:       map[string]*kinds.PlatformCheck{},
			Promotions:   map[string]*kinds.PromotionPolicy{},
		},
		environments:  map[string]Environment{},
		baseRepos:     map[string]BaseRepo{},
		gitOpsRepos:   map[string]GitOpsRepo{},
		registrations: map[string]WorkloadRegistration{},
		workspaces:    map[string]workspace{},
		seen:          map[objectKey]finding.Position{},
	}
}

// Environment names the repository of an environment's objects. It lies on the platform's default branch.
type Environment struct {
	Name string
	finding.Position
	ControlPlane kinds.Repository
}

// BaseRepo points to objects that several environments share.
type BaseRepo struct {
	Name string
	finding.Position
	kinds.Repository
	Commit string // empty if it is not pinned
	// Pinned is true if the object names a commit, also if the base is read from elsewhere.
	Pinned bool
}

// GitOpsRepo names the branch that the rendered files of the environment are committed to.
type GitOpsRepo struct {
	Name string
	finding.Position
	kinds.Repository
}

// WorkloadRegistration points to the folder in which an app team keeps its Workload objects.
type WorkloadRegistration struct {
	Name string
	finding.Position
	Workload  kinds.Repository
	Workspace string
}

// Environments returns the Environment objects that were loaded, sorted by name. They are the
// default branch's table of contents and do not affect rendering.
func (m *Model) Environments() []Environment { return sortedValues(m.environments) }

// MainBase is the name of the BaseRepo whose commit is the base commit of an environment. A promotion pins it.
const MainBase = "main"

// BaseRepos returns the BaseRepo objects that were loaded, sorted by name.
func (m *Model) BaseRepos() []BaseRepo { return sortedValues(m.baseRepos) }

// GitOpsRepos returns the GitOpsRepo objects that were loaded, sorted by name.
func (m *Model) GitOpsRepos() []GitOpsRepo { return sortedValues(m.gitOpsRepos) }

// ForgetBaseCommit drops the commit to which the BaseRepo named main is pinned, for a base read from elsewhere.
func (m *Model) ForgetBaseCommit() {
	if b, ok := m.baseRepos["main"]; ok {
		b.Commit = ""
		m.baseRepos["main"] = b
	}
}

// Registrations returns the WorkloadRegistration objects that were loaded, sorted by name.
func (m *Model) Registrations() []WorkloadRegistration { return sortedValues(m.registrations) }

// SetEnvironment sets the name of the environment, if the caller learns it from the loaded objects.
func (m *Model) SetEnvironment(name string) { m.environment = name }

// EnvironmentName returns the name of the environment.
func (m *Model) EnvironmentName() string { return m.environment }

// FailedPolicies returns the scheduling policies with mistakes in their selectors, sorted by name.
func (m *Model) FailedPolicies() []FailedPolicy {
	var failed []FailedPolicy
	for _, p := range sortedValues(m.objects.Policies) {
		if len(p.Mistakes) > 0 {
			failed = append(failed, FailedPolicy{p.Metadata.Name, finding.Join(slices.Clone(p.Mistakes))})
		}
	}
	return failed
}

// PlatformName returns the name of the Platform object, or "" if there is none.
func (m *Model) PlatformName() string { return m.platform }

func sortedKeys[K cmp.Ordered, V any](m map[K]V) []K {
	return slices.Sorted(maps.Keys(m))
}

func sortedValues[V any](m map[string]V) []V {
	values := make([]V, 0, len(m))
	for _, name := range sortedKeys(m) {
		values = append(values, m[name])
	}
	return values
}

// add adds a valid object.
func (m *Model) add(o kinds.Object) {
	switch o := o.(type) {
	case *kinds.Environment:
		m.environments[o.Metadata.Name] = Environment{Name: o.Metadata.Name, Position: o.At, ControlPlane: o.Spec.ControlPlane}
	case *kinds.BaseRepo:
		m.baseRepos[o.Metadata.Name] = BaseRepo{Name: o.Metadata.Name, Position: o.At, Repository: o.Spec.Repository, Commit: o.Spec.Commit, Pinned: o.Spec.Commit != ""}
	case *kinds.WorkloadRegistration:
		m.registrations[o.Metadata.Name] = WorkloadRegistration{
			Name: o.Metadata.Name, Position: o.At, Workload: o.Spec.Workload, Workspace: o.Spec.Workspace,
		}
	case *kinds.GitOpsRepo: // does not affect rendering
		m.gitOpsRepos[o.Metadata.Name] = GitOpsRepo{Name: o.Metadata.Name, Position: o.At, Repository: o.Spec}
	case *kinds.ClusterType:
		m.objects.ClusterTypes[o.Metadata.Name] = o
	case *kinds.SchedulingPolicy:
		m.objects.Policies[o.Metadata.Name] = o
	case *kinds.Template:
		m.objects.Templates[o.Metadata.Name] = o
	case *kinds.Workload:
		m.objects.Workloads = append(m.objects.Workloads, o)
	case *kinds.ConfigSchema:
		m.objects.Schemas[o.Metadata.Name] = o
	case *kinds.ConfigMap:
		if o.IsSiteValues() {
			m.objects.SiteValues[o.Metadata.Name] = o
		} else {
			m.objects.ConfigMaps[o.Metadata.Name] = o
		}
	case *kinds.Cluster:
		m.objects.Clusters[o.Metadata.Name] = o
	case *kinds.PlatformCheck:
		m.objects.Checks[o.Metadata.Name] = o
	case *kinds.Platform:
		m.objects.Platform = o
		m.platform, m.platformRings = o.Metadata.Name, o.Spec.Rings
		m.maxRemoved, _ = newMaxRemoved(o) // it was read before
		for i := range o.Spec.Workspaces {
			w := &o.Spec.Workspaces[i]
			m.workspaces[w.Name] = newWorkspace(w)
		}
	case *kinds.PromotionPolicy:
		m.objects.Promotions[o.Metadata.Name] = o
	default:
		panic(fmt.Sprintf("a platform cannot hold a %T", o))
	}
}
