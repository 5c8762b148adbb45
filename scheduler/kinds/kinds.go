// Package kinds holds the objects of a platform as people write them in YAML, with the line of every part.
//
// There is a struct for each kind of Kalypso and of wherry that is read, whose tags are the YAML keys. [New] returns an
// empty one for a kind and [Decode] fills it: as strict with types as the Kubernetes API, with every mistake instead of the
// first, and a warning for each unknown field. [ParseSiteSchema] reads the site values that a ConfigMap
// declares. Package scheduler checks the objects against one another.
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

// SiteValues is the label that makes a ConfigMap the declaration of the site values of cluster types. The annotation with the
// same name names it.
const SiteValues = AnnotationPrefix + "site-values"

// SettingsFile is the name of the file with the settings of commands, see [Settings].
const SettingsFile = "wherry.yaml"

// azureAppConfig begins the names of ConfigMaps that Azure App Configuration has written.
const azureAppConfig = "azure-app-config"

// The structs below have a field for each YAML key that is read. decode.go warns about other keys.
//
// Their comments are also what an editor shows a user: package kindschema makes JSON Schemas from the structs, their
// comments and the tag `schema` (required, enum=A|B, pattern=REGEXP, examples=A|B,
// minimum=N, maximum=N). After a change here run
// go generate ./scheduler/kindschema.

// Meta is the metadata of an object.
type Meta struct {
	// Name is the object's name: small letters, digits, hyphens and dots. It is unique among the objects of its kind.
	Name string `yaml:"name" schema:"required,pattern=^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$"`
	// Labels are what selectors and configuration refer to. Values are texts: write "true" and "1" in quotes.
	Labels map[string]string `yaml:"labels"`
	// Annotations hold settings. Those below wherry.dev/ are wherry's.
	Annotations map[string]Text `yaml:"annotations"`

	// Fields that tools add, or that have no meaning in a file. They are ignored.
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
	// APIVersion is the group and version of the kind.
	APIVersion string `yaml:"apiVersion" schema:"required"`
	// Kind is the type of the object.
	Kind     string `yaml:"kind" schema:"required"`
	Metadata Meta   `yaml:"metadata" schema:"required"`
	// Status is what a controller reports. It is ignored.
	Status ignored `yaml:"status"`
}

// Common is a header with its position.
type Common struct {
	Header `yaml:",inline"`
	At     finding.Position
	InBase bool // other environments may have it too
}

// Repository is a location of objects in git.
type Repository struct {
	// Repo is the URL of the git repository, such as https://github.com/ORG/REPO.
	Repo string `yaml:"repo"`
	// Branch is the branch that is read.
	Branch string `yaml:"branch"`
	// Path is the folder below the repository's root. Empty and "." are the root.
	Path string `yaml:"path"`
}

// Environment is an environment such as dev or prod, with the location of its objects: cluster types, scheduling policies
// and configuration. It lies on the default branch of the platform. The kind is Kalypso's.
type Environment struct {
	Common `yaml:",inline"`
	Spec   struct {
		// ControlPlane is the location of the environment's objects.
		ControlPlane Repository `yaml:"controlPlane"`
	} `yaml:"spec"`
}

// BaseRepo is the location of objects that environments share, such as templates and workload registrations. It lies with
// the objects of an environment. The kind is Kalypso's.
type BaseRepo struct {
	Common `yaml:",inline"`
	Spec   struct {
		Repository `yaml:",inline"`
		// Commit pins the base to this commit. Without it the newest commit of the branch is read.
		Commit string `yaml:"commit"`
	} `yaml:"spec"`
}

// GitOpsRepo is the git repository for the rendered files of an environment. Bundles need none. The kind is Kalypso's.
type GitOpsRepo struct {
	Common `yaml:",inline"`
	Spec   Repository `yaml:"spec"`
}

// ClusterType is a group of clusters with the same capabilities, which all run the same assignments. Scheduling policies
// select it by its labels, and configuration applies to it by them. The kind is Kalypso's.
type ClusterType struct {
	Common `yaml:",inline"`
	Spec   struct {
		// Reconciler is the name of the Template for reconciler.yaml, which brings a workload's manifests to the cluster.
		Reconciler string `yaml:"reconciler"`
		// NamespaceService is the name of the Template for namespace.yaml, which makes the namespace of an assignment.
		NamespaceService string `yaml:"namespaceService"`
		// ConfigType is the name of the Template for platform-config.yaml, or configMap or envFile, which are built in.
		// The default is configMap.
		ConfigType string `yaml:"configType" schema:"examples=configMap|envFile"`
	} `yaml:"spec"`
}

// LabelSelector selects objects by their labels, as in Kubernetes.
type LabelSelector struct {
	// MatchLabels are labels that an object must have, all of them.
	MatchLabels map[string]string `yaml:"matchLabels"`
	// MatchExpressions are conditions on labels, all of which must hold.
	MatchExpressions []LabelRequirement `yaml:"matchExpressions"`
	Line             Line
}

// LabelRequirement is a condition on one label, as in Kubernetes.
type LabelRequirement struct {
	// Key is the name of the label.
	Key string `yaml:"key"`
	// Operator is the condition. In and NotIn need values; Exists and DoesNotExist have none. NotIn also holds for an
	// object without the label.
	Operator string `yaml:"operator" schema:"required,enum=In|NotIn|Exists|DoesNotExist"`
	// Values are the values for In and NotIn.
	Values []string `yaml:"values"`
}

// SchedulingPolicy assigns each deployment target that it selects to each cluster type that it selects. An empty selector
// selects everything; an unknown field in a selector is an error. The kind is Kalypso's.
type SchedulingPolicy struct {
	Common `yaml:",inline"`
	Spec   struct {
		// DeploymentTargetSelector selects deployment targets of the environment.
		DeploymentTargetSelector struct {
			// Workspace restricts the selection to the targets of this workspace.
			Workspace string `yaml:"workspace"`
			// LabelSelector selects targets by their labels, those of their workload, and the labels workload and
			// workspace, which every target has.
			LabelSelector LabelSelector `yaml:"labelSelector"`
		} `yaml:"deploymentTargetSelector"`
		// ClusterTypeSelector selects cluster types.
		ClusterTypeSelector struct {
			// LabelSelector selects cluster types by the labels in their metadata.
			LabelSelector LabelSelector `yaml:"labelSelector"`
		} `yaml:"clusterTypeSelector"`
	} `yaml:"spec"`
	// Under is the annotation wherry.dev/under, which a cluster type must meet beside the selector.
	Under Under
	// Mistakes are its unknown fields and annotations. If there is any, the selection is unknown.
	Mistakes []error
}

// Template holds texts that are rendered for each assignment, as Go templates with pure functions. A ClusterType names its
// templates. The kind is Kalypso's.
type Template struct {
	Common `yaml:",inline"`
	Spec   struct {
		// Type is the purpose of the template. It has no effect; the field of the ClusterType that names the template counts.
		Type string `yaml:"type" schema:"examples=reconciler|namespace|config"`
		// ContentType is sh for a config template that writes platform-config.sh and not platform-config.yaml.
		ContentType string `yaml:"contentType" schema:"examples=sh"`
		// Manifests are the texts, which are joined. Each can use .DeploymentTargetName, .Namespace, .Environment,
		// .Workspace, .Workload, .Labels, .Manifests, .ClusterType and .ConfigData. An object counts as the text of its
		// YAML, as in older platforms.
		Manifests []TextOrObject `yaml:"manifests"`
	} `yaml:"spec"`
}

// WorkloadRegistration makes the workloads of an app team known to the platform: it names the folder in git that holds
// the team's Workload objects. The kind is Kalypso's.
type WorkloadRegistration struct {
	Common `yaml:",inline"`
	Spec   struct {
		// Workload is the location of the team's Workload objects.
		Workload Repository `yaml:"workload"`
		// Workspace is the team. Policies can select its targets, and the Platform can confine it.
		Workspace string `yaml:"workspace"`
	} `yaml:"spec"`
}

// Workload is an application and its deployment targets. It lies in the repository of the app team, which a
// WorkloadRegistration names, or in the platform itself. The kind is Kalypso's.
type Workload struct {
	Common       `yaml:",inline"`
	Registration string // whose source has it; empty for the platform's own
	Spec         struct {
		// DeploymentTargets are the places and purposes for which the application is deployed.
		DeploymentTargets []DeploymentTarget `yaml:"deploymentTargets"`
		// ConfigSchemas are JSON Schemas, as texts, that the configuration of every assignment of the workload must meet.
		ConfigSchemas []Text `yaml:"configSchemas"`
	} `yaml:"spec"`
}

// DeploymentTarget is one place and purpose for which a workload is deployed.
type DeploymentTarget struct {
	// Name is the name of the target within its workload. The full name is WORKLOAD-TARGET.
	Name string `yaml:"name" schema:"required"`
	// Labels are what scheduling policies select. Values are texts: write "true" and "1" in quotes.
	Labels map[string]string `yaml:"labels"`
	// Environment is the name of the environment that the target is for.
	Environment string `yaml:"environment"`
	// Manifests are passed to the templates as they are. Usual keys are repo, branch and path: the location of the
	// manifests in git.
	Manifests map[string]string `yaml:"manifests"`
	// ConfigSchemas are JSON Schemas, as texts, that the configuration of the target must meet.
	ConfigSchemas []Text `yaml:"configSchemas"`
	Line          Line
}

// ConfigSchema is a JSON Schema for the composed configuration of every assignment to which its labels apply. The kind is
// Kalypso's.
type ConfigSchema struct {
	Common `yaml:",inline"`
	Spec   struct {
		// Schema is the JSON Schema, as a text.
		Schema Text `yaml:"schema"`
	} `yaml:"spec"`
}

// ConfigMap is a part of the platform's configuration if it has the label platform-config: "true". Each further label is a
// condition: the data applies to assignments whose cluster type or deployment target has that label. With the label
// wherry.dev/site-values: "true" it declares site values, as a JSON Schema of a flat object in its key schema.
type ConfigMap struct {
	Common `yaml:",inline"`
	// Data holds the values. A value that reads as a YAML map or list is one, and is merged with those of other ConfigMaps.
	Data map[string]Text `yaml:"data"`
	// BinaryData is ignored.
	BinaryData ignored `yaml:"binaryData"`
	// Immutable is ignored.
	Immutable ignored `yaml:"immutable"`
}

// Cluster is one cluster, for platforms without a hub, or for people to read. Only its site values and labels are part of a
// bundle, if its ClusterType declares site values. "wherry roster add" writes it.
type Cluster struct {
	Common `yaml:",inline"`
	Spec   struct {
		// ClusterType is the name of the cluster's ClusterType.
		ClusterType string `yaml:"clusterType"`
		// UID is the cluster's uid in the reports of its agent. "wherry-agent status -o json" prints it.
		UID string `yaml:"uid"`
		// Ring is the ring of the cluster. A cluster without one gets a release last.
		Ring string `yaml:"ring"`
		// Labels are for people and queries, and for site values.
		Labels map[string]string `yaml:"labels"`
		// PublicKey is the Ed25519 key of the agent's reports, in PEM.
		PublicKey string `yaml:"publicKey"`
		// Values are the cluster's site values, by the keys that its ClusterType declares. They are no secrets: every site of
		// the type can read them. A text that contains {{ is composed of other values.
		Values map[string]Scalar `yaml:"values"`
		// Reporting is none for a cluster that sends no reports. The default is expected.
		Reporting string `yaml:"reporting" schema:"enum=expected|none"`
		// RegisteredAt is when the cluster joined, in RFC 3339. A gate counts clusters that were there when a release was
		// made. A cluster without it has always been there. "wherry roster add" writes it.
		RegisteredAt Text `yaml:"registeredAt"`
	} `yaml:"spec"`
}

// The values of a Cluster's reporting; empty means expected.
const (
	ReportingExpected = "expected"
	ReportingNone     = "none"
)

// accountPrefix begins the default name of a workspace's ServiceAccount.
const accountPrefix = "wherry-"

// Platform holds the settings of the whole platform. There is at most one.
type Platform struct {
	Common `yaml:",inline"`
	Spec   struct {
		SharedSettings `yaml:",inline"`
		// These are settings of one machine, which no repository may give to others.
		SignWith  localOnly `yaml:"signWith"`
		Mirrors   localOnly `yaml:"mirrors"`
		Workloads localOnly `yaml:"workloads"`
		Cache     localOnly `yaml:"cache"`

		// Owners is the platform team, as the forge knows it: "@org/team", "@user" or a mail address. It owns every file
		// that belongs to no workspace in the CODEOWNERS that wherry codeowners writes.
		Owners []string `yaml:"owners"`
		// Sources say what the sources of teams may reach.
		Sources struct {
			// AllowPrivate are the private hosts and networks that sources of teams may be at: HOST, HOST:PORT, or a network such as
			// 10.20.0.0/16. Hosts that the platform's own objects or the settings name need no entry.
			AllowPrivate []string `yaml:"allowPrivate"`
		} `yaml:"sources"`
		// Workspaces are the teams, with what each of them may use.
		Workspaces []Workspace `yaml:"workspaces"`
		// Rings are the rings of all environments without rings in a PromotionPolicy, narrowest first.
		Rings []string `yaml:"rings"`
		// MaxRemoved is how many assignments one publication may take from a cluster type, as a number such as 5 or a share such as
		// 20%. More need --allow-removals. A registration that drops more of its own targets is held. The default is a third of
		// them, or one.
		MaxRemoved Scalar `yaml:"maxRemoved"`
		// Sandbox bounds what renders the charts and kustomizations of embedded delivery.
		Sandbox Sandbox `yaml:"sandbox"`
		// Ignore lists the codes of findings that lint leaves out, and that keep no assignment from being published. What
		// agents cannot parse is never left out.
		Ignore []Ignored `yaml:"ignore"`
	} `yaml:"spec"`
}

// Sandbox bounds each chart and each kustomization that is rendered. Zero means the default.
type Sandbox struct {
	// Memory is the number of bytes that it may take. The default is 536870912.
	Memory int64 `yaml:"memory"`
	// CPUSeconds is the processor time that it may take. The default is 20. All of a registration may take 30 times as much.
	CPUSeconds int64 `yaml:"cpuSeconds"`
	Line       Line
}

// Ignored is a code of findings that is turned off.
type Ignored struct {
	// Code is such as E1604; "wherry explain CODE" says more about one.
	Code string `yaml:"code" schema:"required"`
	// Environments are those for which it is turned off; empty means all.
	Environments []string `yaml:"environments"`
	Line         Line
}

// SharedSettings are the settings of commands that a Platform and wherry.yaml may both give. Relative paths are relative
// to the file that holds them.
type SharedSettings struct {
	// Registry is the place of the platform's bundles: oci://HOST/PREFIX, or oci-layout:FOLDER. It is what --to is without
	// the flag, and LOCATION without the argument.
	Registry Text `yaml:"registry"`
	// Trust is the file with version 1 of the platform's trust document. Keys and trust exclude each other.
	Trust Text `yaml:"trust"`
	// Keys are files with public keys, of which one must have signed a bundle.
	Keys []Text `yaml:"keys"`
	// Environment is the environment that commands take where neither a flag nor the folder or branch says which.
	Environment Text `yaml:"environment"`
	// Hub is the URL of the hub that "wherry get" asks.
	Hub Text `yaml:"hub"`
}

// Settings are the keys of wherry.yaml, the file with the settings of the commands at the top of a platform repository.
type Settings struct {
	SharedSettings `yaml:",inline"`
	// SignWith are the private keys that sign: files, or cosign:URI for a key in a token or a key service.
	SignWith []Text `yaml:"signWith"`
	// Mirrors maps the beginnings of git URLs to the folders or URLs that are read in their place.
	Mirrors map[string]Text `yaml:"mirrors"`
	// Workloads maps WorkloadRegistrations to the folders or git places that are read in place of their sources.
	Workloads map[string]Text `yaml:"workloads"`
	// Cache is the folder for rendered output that is kept for the next time.
	Cache Text `yaml:"cache"`
}

// Workspace is a team: the ServiceAccount that applies its assignments, and what the team may use and change.
type Workspace struct {
	// Name is what WorkloadRegistrations give as spec.workspace.
	Name string `yaml:"name" schema:"required"`
	// ServiceAccount is a name, which means an account in each assignment's own namespace, or NAMESPACE/NAME.
	// The default is wherry- and the workspace's name.
	ServiceAccount string `yaml:"serviceAccount"`
	// CreateServiceAccount asks templates to make that account in each assignment's namespace. Templates read it as
	// .ServiceAccount.
	CreateServiceAccount bool `yaml:"createServiceAccount"`
	// Owners is the team as the forge knows it: "@org/team", "@user" or a mail address. It owns the files of the workspace in
	// the CODEOWNERS that wherry codeowners writes. Without owners these are the platform team's.
	Owners []string `yaml:"owners"`
	// Groups are the team's groups as the clusters' identity provider names them, each with its role. Templates read them
	// as .Groups.
	Groups []Group `yaml:"groups"`
	// Repositories are the git repositories, chart repositories and registries (oci://HOST/PATH) that the workspace's registrations
	// and targets may name: URLs of these, or of what lies above them, such as https://github.com/org. Without any, they may
	// name all.
	Repositories []string `yaml:"repositories"`
	// Namespaces are labels and annotations for the namespaces of the workspace's assignments. Templates read them as
	// .NamespaceLabels and .NamespaceAnnotations.
	Namespaces NamespaceMetadata `yaml:"namespaces"`
	// Limits bound each registration of the workspace.
	Limits Limits `yaml:"limits"`
	Line   Line
}

// Group is a group of the clusters' identity provider with its role in a workspace's namespaces.
type Group struct {
	// Name is the group as the API server gets it from the identity provider, with the prefix that it adds.
	Name string `yaml:"name" schema:"required"`
	// Role is a ClusterRole, such as view, edit or admin. Empty means edit.
	Role string `yaml:"role"`
}

// NamespaceMetadata are labels and annotations for namespaces.
type NamespaceMetadata struct {
	// Labels are put on the namespaces. A label of Pod Security replaces that of the Template.
	Labels map[string]string `yaml:"labels"`
	// Annotations are put on the namespaces. Those below namespace-service/ set the quota.
	Annotations map[string]string `yaml:"annotations"`
}

// Limits bound the targets, files and bytes of each registration of a workspace, so that one team cannot fill the bundle
// that it shares with others. Zero means the default.
type Limits struct {
	// Targets bounds the deployment targets for one environment. The default is 2000.
	Targets int64 `yaml:"targets"`
	// Files bounds the files in the source, and those in the bundle of one cluster type. The default is 10000.
	Files int64 `yaml:"files"`
	// Bytes bounds the bytes of the source, and those in the bundle of one cluster type. The default is 33554432.
	Bytes int64 `yaml:"bytes"`
}

// PlatformCheck is a rule of the platform, in CEL, about rendered objects or about a publication as a whole. An object check
// has Expression, and fails the assignments whose objects it refuses. A plan check has Plan, and stops a publication.
type PlatformCheck struct {
	Common `yaml:",inline"`
	Spec   struct {
		// Severity is error or warning; empty means error. A warning is printed and stops nothing.
		Severity string `yaml:"severity"`
		// Environments are the environments that the check is for; empty means all.
		Environments []string `yaml:"environments"`
		// ClusterTypeSelector selects the cluster types that the check is for; empty means all.
		ClusterTypeSelector struct {
			LabelSelector LabelSelector `yaml:"labelSelector"`
		} `yaml:"clusterTypeSelector"`
		// Objects selects the rendered objects that Expression is about; empty means all.
		Objects struct {
			// Kinds are kinds such as Service, or with their API group, such as Deployment.apps.
			Kinds []string `yaml:"kinds"`
		} `yaml:"objects"`
		// Expression is true for the objects that the check accepts. It reads object, clusterType, target, environment,
		// workload and workspace.
		Expression Text `yaml:"expression"`
		// Plan is true for a publication that the check accepts. It reads plan and environment.
		Plan Text `yaml:"plan"`
		// Message is shown to people if the check fails.
		Message string `yaml:"message"`
		// MessageExpression gives the message in CEL, with the same variables. Message is used if it fails.
		MessageExpression Text `yaml:"messageExpression"`
		Line              Line
	} `yaml:"spec"`
}

// The severities of a PlatformCheck; empty means error.
const (
	SeverityError   = "error"
	SeverityWarning = "warning"
)

// TemplateOf returns the name of the Template, or of the built-in way, by which a file of an assignment is rendered.
func (c *ClusterType) TemplateOf(file string) string {
	switch {
	case file == "namespace.yaml":
		return c.Spec.NamespaceService
	case file == "reconciler.yaml":
		return c.Spec.Reconciler
	case strings.HasPrefix(file, PlatformConfig+"."):
		return c.Spec.ConfigType
	}
	return ""
}

// Find returns the position of an apiVersion in the Template, in a manifest that also has the kind, or else the position of
// the Template.
func (t *Template) Find(apiVersion, kind string) finding.Position {
	for _, m := range t.Spec.Manifests {
		if m.Object != nil {
			if n := Field(m.Object, "apiVersion"); n.Value == apiVersion && StringField(m.Object, "kind") == kind {
				return t.Position(Line(n.Line))
			}
			continue
		}
		if before, _, ok := strings.Cut(m.Text.Value, apiVersion); ok && strings.Contains(m.Text.Value, kind) {
			return t.Position(m.Text.First + Line(strings.Count(before, "\n")))
		}
	}
	return t.At
}

// FindKind returns the position of the first object of a kind in the Template, or else the position of the Template.
func (t *Template) FindKind(kind string) finding.Position {
	for _, m := range t.Spec.Manifests {
		if m.Object != nil && StringField(m.Object, "kind") == kind {
			return t.Position(Line(Field(m.Object, "kind").Line))
		}
		for i, line := range strings.Split(m.Text.Value, "\n") {
			if value, ok := strings.CutPrefix(strings.TrimSpace(line), "kind:"); ok && strings.Trim(value, ` "'`) == kind {
				return t.Position(m.Text.First + Line(i))
			}
		}
	}
	return t.At
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

// defaultRole is the ClusterRole of a group without one.
const defaultRole = "edit"

// GivenRole returns the group's role, the given or the default one.
func (g Group) GivenRole() string {
	if g.Role == "" {
		return defaultRole
	}
	return g.Role
}

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
			"PlatformCheck":   func() Object { return new(PlatformCheck) },
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

// IsSiteValues reports whether the ConfigMap declares site values, which keeps it out of the configuration.
func (c *ConfigMap) IsSiteValues() bool { return c.Metadata.Labels[SiteValues] == "true" }

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
