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
	"delivery": {
		Text:   "reference: the engine fetches the manifests itself. embedded is not supported yet.",
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
	"restart-on-config": {
		Text:   `Whether workloads restart when their configuration changes. Write "true" in quotes.`,
		Values: []string{"false", "true"},
	},
	"under": {
		Text: "A path, such as europe/plant-7: the policy selects only cluster types whose label group is this path or one below it. LABEL=PATH names another label.",
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
