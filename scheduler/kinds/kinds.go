// Package kinds holds the objects of a platform as people write them in YAML, with the line of every part.
//
// There is a struct for each kind of Kalypso and of wherry that is read, whose tags are the YAML keys. [New] returns an
// empty one for a kind and [Decode] fills it: as strict with types as the Kubernetes API, with every mistake instead of the
// first, and a warning for each unknown field. Package scheduler checks the objects against one another.
package kinds

import (
	"maps"
	"slices"
	"strings"

	"github.com/wherry-dev/wherry/scheduler/finding"
)

// The API groups that objects are taken from.
const (
	KalypsoAPI = "scheduler.kalypso.io/v1alpha1"
	WherryAPI  = "wherry.dev/v1alpha1"
	CoreAPI    = "v1"
)

// PlatformConfig is the label that makes a ConfigMap part of the platform, and the name of the file and
// the object that hold the composed configuration.
const PlatformConfig = "platform-config"

// azureAppConfig begins the names of ConfigMaps that Azure App Configuration has written.
const azureAppConfig = "azure-app-config"

// The structs below have a field for each YAML key that is read. decode.go warns about other keys.

// Meta is the metadata of an object.
type Meta struct {
	Name        string            `yaml:"name"`
	Labels      map[string]string `yaml:"labels"`
	Annotations map[string]Text   `yaml:"annotations"`

	// Fields that tools add, or that have no meaning in a file.
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

// Header holds the fields that all kinds have in common.
type Header struct {
	APIVersion string  `yaml:"apiVersion"`
	Kind       string  `yaml:"kind"`
	Metadata   Meta    `yaml:"metadata"`
	Status     ignored `yaml:"status"`
}

// Common is a header with its position.
type Common struct {
	Header `yaml:",inline"`
	At     finding.Position
	InBase bool // other environments may have it too
}

// Repository is a location of objects in git.
type Repository struct {
	Repo   string `yaml:"repo"`
	Branch string `yaml:"branch"`
	Path   string `yaml:"path"` // below the repository's root; empty and "." are the root
}

// Environment is Kalypso's Environment: the location of an environment's objects.
type Environment struct {
	Common `yaml:",inline"`
	Spec   struct {
		ControlPlane Repository `yaml:"controlPlane"`
	} `yaml:"spec"`
}

// BaseRepo is Kalypso's BaseRepo: objects that environments share.
type BaseRepo struct {
	Common `yaml:",inline"`
	Spec   struct {
		Repository `yaml:",inline"`
		Commit     string `yaml:"commit"`
	} `yaml:"spec"`
}

// GitOpsRepo is Kalypso's GitOpsRepo: the repository for Kalypso's output.
type GitOpsRepo struct {
	Common `yaml:",inline"`
	Spec   Repository `yaml:"spec"`
}

// ClusterType is Kalypso's ClusterType: clusters with the same capabilities.
type ClusterType struct {
	Common `yaml:",inline"`
	Spec   struct {
		Reconciler       string `yaml:"reconciler"`
		NamespaceService string `yaml:"namespaceService"`
		ConfigType       string `yaml:"configType"`
	} `yaml:"spec"`
}

// LabelSelector selects objects by their labels, as in Kubernetes.
type LabelSelector struct {
	MatchLabels      map[string]string `yaml:"matchLabels"`
	MatchExpressions []struct {
		Key      string   `yaml:"key"`
		Operator string   `yaml:"operator"`
		Values   []string `yaml:"values"`
	} `yaml:"matchExpressions"`
	Line Line
}

// SchedulingPolicy is Kalypso's SchedulingPolicy: it assigns deployment targets to cluster types.
type SchedulingPolicy struct {
	Common `yaml:",inline"`
	Spec   struct {
		DeploymentTargetSelector struct {
			Workspace     string        `yaml:"workspace"`
			LabelSelector LabelSelector `yaml:"labelSelector"`
		} `yaml:"deploymentTargetSelector"`
		ClusterTypeSelector struct {
			LabelSelector LabelSelector `yaml:"labelSelector"`
		} `yaml:"clusterTypeSelector"`
	} `yaml:"spec"`
	// Mistakes are its unknown fields. If there is any, the selection is unknown.
	Mistakes []error
}

// Template is Kalypso's Template: texts that are rendered for each assignment.
type Template struct {
	Common `yaml:",inline"`
	Spec   struct {
		Type        string         `yaml:"type"`
		ContentType string         `yaml:"contentType"`
		Manifests   []TextOrObject `yaml:"manifests"` // objects in the older generation
	} `yaml:"spec"`
}

// WorkloadRegistration is Kalypso's WorkloadRegistration: the source of an app team's Workload objects.
type WorkloadRegistration struct {
	Common `yaml:",inline"`
	Spec   struct {
		Workload  Repository `yaml:"workload"`
		Workspace string     `yaml:"workspace"`
	} `yaml:"spec"`
}

// Workload is Kalypso's Workload: an application and its deployment targets.
type Workload struct {
	Common       `yaml:",inline"`
	Registration string // whose source has it; empty for the platform's own
	Spec         struct {
		DeploymentTargets []DeploymentTarget `yaml:"deploymentTargets"`
		ConfigSchemas     []Text             `yaml:"configSchemas"`
	} `yaml:"spec"`
}

// DeploymentTarget is one place and purpose for which a workload is deployed.
type DeploymentTarget struct {
	Name          string            `yaml:"name"`
	Labels        map[string]string `yaml:"labels"`
	Environment   string            `yaml:"environment"`
	Manifests     map[string]string `yaml:"manifests"`
	ConfigSchemas []Text            `yaml:"configSchemas"`
	Line          Line
}

// ConfigSchema is Kalypso's ConfigSchema: a JSON schema for composed configurations.
type ConfigSchema struct {
	Common `yaml:",inline"`
	Spec   struct {
		Schema Text `yaml:"schema"`
	} `yaml:"spec"`
}

// ConfigMap is a ConfigMap of Kubernetes whose data is part of the configuration.
type ConfigMap struct {
	Common     `yaml:",inline"`
	Data       map[string]Text `yaml:"data"`
	BinaryData ignored         `yaml:"binaryData"`
	Immutable  ignored         `yaml:"immutable"`
}

// Cluster is one cluster, for platforms without a hub, or for people to read. Rendering does not depend on it.
type Cluster struct {
	Common `yaml:",inline"`
	Spec   struct {
		ClusterType string            `yaml:"clusterType"`
		UID         string            `yaml:"uid"`
		Ring        string            `yaml:"ring"`
		Labels      map[string]string `yaml:"labels"`
		PublicKey   string            `yaml:"publicKey"`
		Reporting   string            `yaml:"reporting"`
	} `yaml:"spec"`
}

// The values of a Cluster's reporting; empty means expected.
const (
	ReportingExpected = "expected"
	ReportingNone     = "none"
)

// accountPrefix begins the default name of a workspace's ServiceAccount.
const accountPrefix = "wherry-"

// Platform holds the settings of the whole platform.
type Platform struct {
	Common `yaml:",inline"`
	Spec   struct {
		Workspaces []Workspace `yaml:"workspaces"`
		// Rings are the rings of all environments without rings in a PromotionPolicy, narrowest first.
		Rings []string `yaml:"rings"`
	} `yaml:"spec"`
}

// Workspace names the ServiceAccount that applies the assignments of a workspace.
type Workspace struct {
	Name string `yaml:"name"`
	// ServiceAccount is a name, which means an account in each assignment's own namespace, or NAMESPACE/NAME.
	// Empty means accountPrefix and the workspace's name.
	ServiceAccount string `yaml:"serviceAccount"`
	// Limits bound each registration of the workspace.
	Limits Limits `yaml:"limits"`
	Line   Line
}

// Limits bound the targets, files and bytes of each registration of a workspace, so that one team cannot fill the bundle
// that it shares with others. Zero means the default.
type Limits struct {
	Targets int64 `yaml:"targets"`
	Files   int64 `yaml:"files"`
	Bytes   int64 `yaml:"bytes"`
}

// PromotionPolicy names the rings of environments' releases. Its gates and the chain of environments are not supported
// yet.
type PromotionPolicy struct {
	Common `yaml:",inline"`
	Spec   struct {
		Environments []PromotedEnvironment `yaml:"environments"`
		Chain        later                 `yaml:"chain"`
		Gate         later                 `yaml:"gate"`
	} `yaml:"spec"`
}

// PromotedEnvironment is one environment of a PromotionPolicy.
type PromotedEnvironment struct {
	Name  string   `yaml:"name"`
	Rings []string `yaml:"rings"`
	Gate  later    `yaml:"gate"`
	Line  Line
}

// Account returns the ServiceAccount of the workspace, the given or the default one.
func (w Workspace) Account() string {
	if w.ServiceAccount == "" {
		return accountPrefix + w.Name
	}
	return w.ServiceAccount
}

// Position returns the position of a line of the object.
func (o *Common) Position(l Line) finding.Position {
	return finding.Position{File: o.At.File, Line: int(l)}
}

// Base returns o, the part that all kinds have in common.
func (o *Common) Base() *Common { return o }

// Object is a struct of this file that can be read.
type Object interface {
	Base() *Common
}

// New returns an empty struct for a kind, nil for kinds that are not part of a platform.
func New(apiVersion, kind string) Object {
	if newKind, ok := kindsOf(apiVersion)[kind]; ok {
		return newKind()
	}
	return nil
}

func kindsOf(apiVersion string) map[string]func() Object {
	switch apiVersion {
	case KalypsoAPI:
		return map[string]func() Object{
			"Environment":          func() Object { return new(Environment) },
			"BaseRepo":             func() Object { return new(BaseRepo) },
			"GitOpsRepo":           func() Object { return new(GitOpsRepo) },
			"ClusterType":          func() Object { return new(ClusterType) },
			"SchedulingPolicy":     func() Object { return new(SchedulingPolicy) },
			"Template":             func() Object { return new(Template) },
			"WorkloadRegistration": func() Object { return new(WorkloadRegistration) },
			"Workload":             func() Object { return new(Workload) },
			"ConfigSchema":         func() Object { return new(ConfigSchema) },
		}
	case WherryAPI:
		return map[string]func() Object{
			"Cluster":         func() Object { return new(Cluster) },
			"Platform":        func() Object { return new(Platform) },
			"PromotionPolicy": func() Object { return new(PromotionPolicy) },
		}
	case CoreAPI:
		return map[string]func() Object{"ConfigMap": func() Object { return new(ConfigMap) }}
	default:
		return nil
	}
}

// Names lists the kinds that a platform may have, for suggestions.
func Names() []string {
	return append(slices.Sorted(maps.Keys(kindsOf(KalypsoAPI))), slices.Sorted(maps.Keys(kindsOf(WherryAPI)))...)
}

// IsLabelled reports whether the ConfigMap's own keys are part of the configuration.
func (c *ConfigMap) IsLabelled() bool { return c.Metadata.Labels[PlatformConfig] == "true" }

// IsAzure reports whether the ConfigMap's keys carry their own conditions.
func (c *ConfigMap) IsAzure() bool { return strings.HasPrefix(c.Metadata.Name, azureAppConfig) }

// IsPlatform reports whether the ConfigMap is part of the configuration in either way.
func (c *ConfigMap) IsPlatform() bool { return c.IsLabelled() || c.IsAzure() }

// SplitAzureKey splits label1.value1.label2.value2.KEY into labels and KEY.
func SplitAzureKey(key string) (map[string]string, string) {
	parts := strings.Split(key, ".")
	last := len(parts) - 1
	labels := map[string]string{}
	for i := 1; i < last; i += 2 {
		labels[parts[i-1]] = parts[i]
	}
	return labels, parts[last]
}

// The configuration types that need no Template: those of the older generation of platforms.
const (
	ConfigMapType = "configMap"
	EnvFileType   = "envFile"
)
