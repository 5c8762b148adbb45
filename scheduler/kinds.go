package scheduler

import (
	"strings"

	"github.com/wherry-dev/wherry/scheduler/finding"
)

// The API groups that objects are taken from.
const (
	kalypsoAPI = "scheduler.kalypso.io/v1alpha1"
	wherryAPI  = "wherry.dev/v1alpha1"
	coreAPI    = "v1"
)

// platformConfig is the label that makes a ConfigMap part of the platform, and the name of the file and
// the object that hold the composed configuration.
const platformConfig = "platform-config"

// azureAppConfig begins the names of ConfigMaps that Azure App Configuration has written.
const azureAppConfig = "azure-app-config"

// objectKey identifies an object. Two app teams may use one name for a workload: that is judged by
// the targets' names, so that one team cannot stop the other.
type objectKey struct {
	kind, name, registration string
}

// The structs below are what is read of each kind. Field names are the YAML keys; decode.go warns about
// keys that are not here.

type meta struct {
	Name        string            `yaml:"name"`
	Labels      map[string]string `yaml:"labels"`
	Annotations map[string]text   `yaml:"annotations"`

	// What tools add, or what has no meaning in a file.
	Namespace         ignored `yaml:"namespace"`
	GenerateName      ignored `yaml:"generateName"`
	CreationTimestamp ignored `yaml:"creationTimestamp"`
	DeletionTimestamp ignored `yaml:"deletionTimestamp"`
	Finalizers        ignored `yaml:"finalizers"`
	Generation        ignored `yaml:"generation"`
	ManagedFields     ignored `yaml:"managedFields"`
	OwnerReferences   ignored `yaml:"ownerReferences"`
	ResourceVersion   ignored `yaml:"resourceVersion"`
	SelfLink          ignored `yaml:"selfLink"`
	UID               ignored `yaml:"uid"`
}

// header is what all kinds have in common.
type header struct {
	APIVersion string  `yaml:"apiVersion"`
	Kind       string  `yaml:"kind"`
	Metadata   meta    `yaml:"metadata"`
	Status     ignored `yaml:"status"`
}

// object is a header at its place.
type object struct {
	header `yaml:",inline"`
	at     finding.Position
	inBase bool // other environments may have it too
}

type environmentObject struct {
	object `yaml:",inline"`
	Spec   struct {
		ControlPlane Repository `yaml:"controlPlane"`
	} `yaml:"spec"`
}

type baseRepoObject struct {
	object `yaml:",inline"`
	Spec   struct {
		Repository `yaml:",inline"`
		Commit     string `yaml:"commit"`
	} `yaml:"spec"`
}

type gitOpsRepo struct {
	object `yaml:",inline"`
	Spec   Repository `yaml:"spec"`
}

type clusterType struct {
	object `yaml:",inline"`
	Spec   struct {
		Reconciler       string `yaml:"reconciler"`
		NamespaceService string `yaml:"namespaceService"`
		ConfigType       string `yaml:"configType"`
	} `yaml:"spec"`
}

type labelSelector struct {
	MatchLabels      map[string]string `yaml:"matchLabels"`
	MatchExpressions []struct {
		Key      string   `yaml:"key"`
		Operator string   `yaml:"operator"`
		Values   []string `yaml:"values"`
	} `yaml:"matchExpressions"`
	Line line
}

type schedulingPolicy struct {
	object `yaml:",inline"`
	Spec   struct {
		DeploymentTargetSelector struct {
			Workspace     string        `yaml:"workspace"`
			LabelSelector labelSelector `yaml:"labelSelector"`
		} `yaml:"deploymentTargetSelector"`
		ClusterTypeSelector struct {
			LabelSelector labelSelector `yaml:"labelSelector"`
		} `yaml:"clusterTypeSelector"`
	} `yaml:"spec"`
	// mistakes are its unknown fields: what it was to select is not known.
	mistakes []error
}

type templateObject struct {
	object `yaml:",inline"`
	Spec   struct {
		Type        string         `yaml:"type"`
		ContentType string         `yaml:"contentType"`
		Manifests   []textOrObject `yaml:"manifests"` // objects in the older generation
	} `yaml:"spec"`
}

type registrationObject struct {
	object `yaml:",inline"`
	Spec   struct {
		Workload  Repository `yaml:"workload"`
		Workspace string     `yaml:"workspace"`
	} `yaml:"spec"`
}

type workload struct {
	object       `yaml:",inline"`
	registration string // whose source it was found in; empty for the platform's own
	Spec         struct {
		DeploymentTargets []deploymentTarget `yaml:"deploymentTargets"`
		ConfigSchemas     []text             `yaml:"configSchemas"`
	} `yaml:"spec"`
}

type deploymentTarget struct {
	Name          string            `yaml:"name"`
	Labels        map[string]string `yaml:"labels"`
	Environment   string            `yaml:"environment"`
	Manifests     map[string]string `yaml:"manifests"`
	ConfigSchemas []text            `yaml:"configSchemas"`
	Line          line
}

type configSchema struct {
	object `yaml:",inline"`
	Spec   struct {
		Schema text `yaml:"schema"`
	} `yaml:"spec"`
}

type configMap struct {
	object     `yaml:",inline"`
	Data       map[string]text `yaml:"data"`
	BinaryData ignored         `yaml:"binaryData"`
	Immutable  ignored         `yaml:"immutable"`
}

// position is where a line of the object stands.
func (o *object) position(l line) finding.Position {
	return finding.Position{File: o.at.File, Line: int(l)}
}

func (o *object) base() *object { return o }

// kindObject is a struct of this file that can be read.
type kindObject interface {
	base() *object
	addTo(*Model)
}

// newObject returns an empty struct for a kind, nil for kinds that are not part of a platform.
func newObject(apiVersion, kind string) kindObject {
	if newKind, ok := kindsOf(apiVersion)[kind]; ok {
		return newKind()
	}
	return nil
}

func kindsOf(apiVersion string) map[string]func() kindObject {
	switch apiVersion {
	case kalypsoAPI:
		return map[string]func() kindObject{
			"Environment":          func() kindObject { return new(environmentObject) },
			"BaseRepo":             func() kindObject { return new(baseRepoObject) },
			"GitOpsRepo":           func() kindObject { return new(gitOpsRepo) },
			"ClusterType":          func() kindObject { return new(clusterType) },
			"SchedulingPolicy":     func() kindObject { return new(schedulingPolicy) },
			"Template":             func() kindObject { return new(templateObject) },
			"WorkloadRegistration": func() kindObject { return new(registrationObject) },
			"Workload":             func() kindObject { return new(workload) },
			"ConfigSchema":         func() kindObject { return new(configSchema) },
		}
	case wherryAPI:
		return map[string]func() kindObject{
			"Cluster":         func() kindObject { return new(clusterObject) },
			"Platform":        func() kindObject { return new(platformObject) },
			"PromotionPolicy": func() kindObject { return new(promotionPolicy) },
		}
	case coreAPI:
		return map[string]func() kindObject{"ConfigMap": func() kindObject { return new(configMap) }}
	default:
		return nil
	}
}

func knownKinds() []string {
	return append(sortedKeys(kindsOf(kalypsoAPI)), sortedKeys(kindsOf(wherryAPI))...)
}

func (e *environmentObject) addTo(m *Model) {
	m.environments[e.Metadata.Name] = Environment{Name: e.Metadata.Name, Position: e.at, ControlPlane: e.Spec.ControlPlane}
}

func (b *baseRepoObject) addTo(m *Model) {
	m.baseRepos[b.Metadata.Name] = BaseRepo{Name: b.Metadata.Name, Position: b.at, Repository: b.Spec.Repository, Commit: b.Spec.Commit}
}

// addTo does nothing: where Kalypso writes to is no concern here.
func (g *gitOpsRepo) addTo(*Model) {}

func (c *clusterType) addTo(m *Model)      { m.clusterTypes[c.Metadata.Name] = c }
func (p *schedulingPolicy) addTo(m *Model) { m.policies[p.Metadata.Name] = p }
func (t *templateObject) addTo(m *Model)   { m.templates[t.Metadata.Name] = t }
func (w *workload) addTo(m *Model)         { m.workloads = append(m.workloads, w) }
func (s *configSchema) addTo(m *Model)     { m.schemas[s.Metadata.Name] = s }
func (c *configMap) addTo(m *Model)        { m.configMaps[c.Metadata.Name] = c }

func (r *registrationObject) addTo(m *Model) {
	m.registrations[r.Metadata.Name] = WorkloadRegistration{
		Name: r.Metadata.Name, Position: r.at, Workload: r.Spec.Workload, Workspace: r.Spec.Workspace,
	}
}

// isLabelled says whether the ConfigMap's own keys are part of the configuration.
func (c *configMap) isLabelled() bool { return c.Metadata.Labels[platformConfig] == "true" }

// isAzure says whether the ConfigMap's keys carry their own conditions.
func (c *configMap) isAzure() bool { return strings.HasPrefix(c.Metadata.Name, azureAppConfig) }

func (c *configMap) isPlatform() bool { return c.isLabelled() || c.isAzure() }
