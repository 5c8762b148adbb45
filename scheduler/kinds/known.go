package kinds

// KnownAnnotation tells a user about an annotation below wherry.dev/.
type KnownAnnotation struct {
	// Text is what an editor shows.
	Text string
	// Values are all values that the annotation can have, the default first; empty if there are others.
	Values []string
	// Pattern is a regular expression that values match; empty if Values or code decides.
	Pattern string
}

// Adapters are the values of the annotation adapter, of which none is the default.
var Adapters = []string{"ansible", "argo", "directory", "flux", "kubernetes", "zarf"}

// KnownAnnotations describes the annotations of [AnnotationsOf], without their prefix.
var KnownAnnotations = map[string]KnownAnnotation{
	"adapter": {
		Text:   "The engine that brings assignments to the cluster. By default the kinds in reconciler.yaml decide.",
		Values: Adapters,
	},
	"api-versions": {
		Text: "API versions that charts find in .Capabilities.APIVersions, beside those of Kubernetes, such as: monitoring.coreos.com/v1, gateway.networking.k8s.io/v1/HTTPRoute",
	},
	"carry": {
		Text:   "What of the images, charts and packages of the assignments the agent brings to its own store before it applies them.",
		Values: []string{"none", "images", "all"},
	},
	"chart-values": {
		Text: "The key of the platform configuration whose value, a YAML mapping, is the values of an embedded chart.",
	},
	"delivery": {
		Text:   "reference: the engine fetches the manifests itself. embedded: the bundle contains them.",
		Values: []string{"reference", "embedded"},
	},
	"depends-on": {
		Text: "The workloads that must be compliant on the cluster before this one, such as: redis, db/functional-test",
	},
	"drift": {
		Text:   "Whether drift is corrected, or only reported until there is new content.",
		Values: []string{"correct", "report"},
	},
	"health": {
		Text: "Conditions for objects whose health wherry cannot know, one to a line, such as: GitRepo: .status.readyClusters == 1",
	},
	"kube-version": {
		Text:    "The version of Kubernetes for which charts are rendered, such as 1.33. Charts that read .Capabilities require it.",
		Pattern: `^v?[0-9]+\.[0-9]+(\.[0-9]+)?$`,
	},
	"missing-keys": {
		Text:   "kalypso: the template may print keys that do not exist, as <no value>. Without it, publish fails such an assignment.",
		Values: []string{"kalypso"},
	},
	"on-failure": {
		Text:   "What to do with a release in which the assignment fails repeatedly: return to the last good release, or keep the failing one.",
		Values: []string{"rollback", "hold"},
	},
	"on-remove": {
		Text:   "What to do with the applied objects when the assignment is removed: delete them, or leave them on the cluster.",
		Values: []string{"delete", "orphan"},
	},
	"pin": {
		Text:   "commit: branches and tags are resolved when the environment is published, and written as commits and digests.",
		Values: []string{"commit"},
	},
	"platforms": {
		Text:    "The platforms of the type's clusters, such as linux/amd64,linux/arm64: site packages and agents bring images for these.",
		Pattern: `^[a-z0-9]+/[a-z0-9_]+(/[a-z0-9.]+)?(,[a-z0-9]+/[a-z0-9_]+(/[a-z0-9.]+)?)*$`,
	},
	"restart-on-config": {
		Text:   `Whether workloads restart when their configuration changes. Write "true" in quotes.`,
		Values: []string{"false", "true"},
	},
	"site-values": {
		Text: "The name of the ConfigMap with the schema of the values that the sites of this cluster type have.",
	},
	"under": {
		Text: "A path, such as europe/plant-7: the policy selects only cluster types whose label group is this path or one below it. LABEL=PATH names another label.",
	},
	"uses-site-values": {
		Text: "The keys of the site values that the workload uses, such as: dns, gateway.address",
	},
	"valid-for": {
		Text: "How long clusters may take a release for the first time, such as 30d or 12h. The default is 90d.",
	},
	"wave": {
		Text:    `The order of assignments: a whole number in quotes. Lower ones come first. The default is "0".`,
		Pattern: "^[-+]?[0-9]+$",
	},
}

// AnnotationsOf returns the names of the annotations of a kind, without their prefix. It returns false for kinds whose
// annotations are not checked.
func AnnotationsOf(kind string) ([]string, bool) {
	switch kind {
	case "ClusterType":
		return ClusterTypeAnnotations, true
	case "SchedulingPolicy":
		return PolicyAnnotations, true
	case "Template":
		return TemplateAnnotations, true
	case "Workload":
		return WorkloadAnnotations, true
	default:
		return nil, false
	}
}
