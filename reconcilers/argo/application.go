package argo

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/wherry-dev/wherry/bundle/lazyregexp"
)

// application has the fields of an Application that judging and driving need. See argoproj.io/v1alpha1.
type application struct {
	Metadata  metav1.ObjectMeta `json:"metadata"`
	Spec      spec              `json:"spec"`
	Operation *operation        `json:"operation"` // asked for, and not finished
	Status    struct {
		Sync struct {
			Status     string     `json:"status"`
			Revision   string     `json:"revision"`
			Revisions  []string   `json:"revisions"`
			ComparedTo comparison `json:"comparedTo"`
		} `json:"sync"`
		Health struct {
			Status             string      `json:"status"`
			LastTransitionTime metav1.Time `json:"lastTransitionTime"`
		} `json:"health"`
		Conditions     []condition     `json:"conditions"`
		OperationState *operationState `json:"operationState"`
		Resources      []resource      `json:"resources"`
		ReconciledAt   metav1.Time     `json:"reconciledAt"`
	} `json:"status"`
}

type spec struct {
	Project        string           `json:"project"`
	Source         map[string]any   `json:"source"`
	Sources        []map[string]any `json:"sources"`
	SourceHydrator *sourceHydrator  `json:"sourceHydrator"`
	Destination    map[string]any   `json:"destination"`
	SyncPolicy     struct {
		Automated *struct {
			Enabled  *bool `json:"enabled"`
			Prune    bool  `json:"prune"`
			SelfHeal bool  `json:"selfHeal"`
		} `json:"automated"`
		SyncOptions []string       `json:"syncOptions"`
		Retry       map[string]any `json:"retry"`
	} `json:"syncPolicy"`
}

// comparison is the input of Argo CD's comparison: the sources of the manifests, and their destination.
type comparison struct {
	Source      map[string]any   `json:"source"`
	Sources     []map[string]any `json:"sources"`
	Destination map[string]any   `json:"destination"`
}

type sourceHydrator struct {
	DrySource  map[string]any `json:"drySource"`
	SyncSource map[string]any `json:"syncSource"`
}

type operation struct {
	Info []info `json:"info"`
}

type info struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

type operationState struct {
	Operation  operation    `json:"operation"`
	Phase      string       `json:"phase"`
	Message    string       `json:"message"`
	StartedAt  metav1.Time  `json:"startedAt"`
	FinishedAt *metav1.Time `json:"finishedAt"`
	SyncResult *struct {
		Revision  string           `json:"revision"`
		Revisions []string         `json:"revisions"`
		Source    map[string]any   `json:"source"`
		Sources   []map[string]any `json:"sources"`
		Resources []result         `json:"resources"`
	} `json:"syncResult"`
}

type condition struct {
	Type    string `json:"type"`
	Message string `json:"message"`
}

// resource is one object as Argo CD compares it.
type resource struct {
	Group           string `json:"group"`
	Kind            string `json:"kind"`
	Namespace       string `json:"namespace"`
	Name            string `json:"name"`
	Status          string `json:"status"`
	RequiresPruning bool   `json:"requiresPruning"`
}

// result is the outcome of a sync for one object.
type result struct {
	Kind      string `json:"kind"`
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	Status    string `json:"status"`
	Message   string `json:"message"`
	HookType  string `json:"hookType"`
	HookPhase string `json:"hookPhase"`
}

func parse(o *unstructured.Unstructured) (*application, error) {
	a := &application{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, a); err != nil {
		return nil, fmt.Errorf("%s: %w", subject(o), err)
	}
	return a, nil
}

func (a *application) subject() string {
	return "Application/" + a.Metadata.Namespace + "/" + a.Metadata.Name
}

// sources returns the sources of the manifests, by Argo CD's rules.
func (s spec) sources() []map[string]any {
	switch {
	case s.SourceHydrator != nil: // Argo CD syncs a branch that it writes itself
		dry, sync := s.SourceHydrator.DrySource, s.SourceHydrator.SyncSource
		return []map[string]any{{"repoURL": dry["repoURL"], "targetRevision": sync["targetBranch"], "path": sync["path"]}}
	case len(s.Sources) > 0:
		return s.Sources
	}
	return []map[string]any{s.Source}
}

func (a *application) multiple() bool { return a.Spec.SourceHydrator == nil && len(a.Spec.Sources) > 0 }

// automated reports whether Argo CD syncs without being asked to.
func (a *application) automated() bool {
	policy := a.Spec.SyncPolicy.Automated
	return policy != nil && (policy.Enabled == nil || *policy.Enabled)
}

// fresh reports whether Argo CD has compared the cluster with the present specification.
func (a *application) fresh() bool {
	to := a.Status.Sync.ComparedTo
	compared := []map[string]any{to.Source}
	if a.multiple() {
		compared = to.Sources
	}
	return a.Status.Sync.Status != "" && alike(a.Spec.sources(), compared) && alike(a.Spec.Destination, to.Destination)
}

// refreshKey is the annotation that asks Argo CD to refresh an Application now. Argo CD removes it afterwards.
const refreshKey = "argocd.argoproj.io/refresh"

func (a *application) asked() bool { return a.Metadata.Annotations[refreshKey] != "" }

// newest returns the revisions that Argo CD has compared the cluster with, one for each source.
func (a *application) newest() []string {
	if a.multiple() {
		return a.Status.Sync.Revisions
	}
	return []string{a.Status.Sync.Revision}
}

// last returns the finished sync of the newest revision and the present sources; nil if there is none.
func (a *application) last() *operationState {
	state := a.Status.OperationState
	if state == nil || a.Operation != nil || state.Phase == "Running" || state.Phase == "Terminating" {
		return nil
	}
	if result := state.SyncResult; result != nil {
		revisions, sources := []string{result.Revision}, []map[string]any{result.Source}
		if a.multiple() {
			revisions, sources = result.Revisions, result.Sources
		}
		known := strings.Join(revisions, "") != "" && strings.Join(a.newest(), "") != ""
		if !alike(a.Spec.sources(), sources) || known && !slices.Equal(revisions, a.newest()) {
			return nil
		}
	}
	return state
}

func (s *operationState) failed() bool {
	return s != nil && (s.Phase == "Failed" || s.Phase == "Error")
}

// exact matches revisions that never change: a commit or a digest.
var exact = lazyregexp.New(`^([0-9a-f]{40}|[0-9a-f]{64}|sha256:[0-9a-f]{64})$`)

// version matches one version of a chart, and no range of versions.
var version = lazyregexp.New(`^v?[0-9]+\.[0-9]+\.[0-9]+([-+][0-9A-Za-z.+-]+)?$`)

// floating reports whether a source follows a branch, a tag or a range of versions.
func (a *application) floating() bool {
	return slices.ContainsFunc(a.Spec.sources(), func(source map[string]any) bool {
		revision := text(source, "targetRevision")
		return !exact.MatchString(revision) && (text(source, "chart") == "" || !version.MatchString(revision))
	})
}

// since returns the time of Argo CD's last full refresh.
func (a *application) since() time.Time {
	if a.Status.ReconciledAt.IsZero() {
		return a.Metadata.CreationTimestamp.Time
	}
	return a.Status.ReconciledAt.Time
}

// differing lists the objects that differ from their sources.
func (a *application) differing() (list []string, onlyToPrune bool) {
	onlyToPrune = true
	for _, r := range a.Status.Resources {
		if r.Status != "OutOfSync" {
			continue
		}
		name := r.name()
		if r.RequiresPruning {
			name += " (to be pruned)"
		} else {
			onlyToPrune = false
		}
		list = append(list, name)
	}
	return list, onlyToPrune && len(list) > 0
}

func (r resource) name() string {
	return strings.ReplaceAll(r.Kind+"/"+r.Namespace+"/"+r.Name, "//", "/")
}

func (r result) name() string {
	name := strings.ReplaceAll(r.Kind+"/"+r.Namespace+"/"+r.Name, "//", "/")
	if r.HookType != "" {
		name += " (" + r.HookType + ")"
	}
	return name
}

// cascades reports whether Argo CD deletes the Application's objects when the Application is deleted.
func (a *application) cascades() bool {
	return slices.ContainsFunc(a.Metadata.Finalizers, func(f string) bool {
		return f == finalizer || strings.HasPrefix(f, finalizer+"/")
	})
}

// alike reports whether a and b are equal but for fields without a value, which Argo CD writes or leaves out
// as it likes.
func alike(a, b any) bool { return equality.Semantic.DeepEqual(bare(a), bare(b)) }

func bare(v any) any {
	switch v := v.(type) {
	case []map[string]any:
		var list []any
		for _, item := range v {
			list = append(list, bare(item))
		}
		return list
	case []any:
		var list []any
		for _, item := range v {
			list = append(list, bare(item))
		}
		return list
	case map[string]any:
		out := map[string]any{}
		for key, value := range v {
			if value = bare(value); !empty(value) {
				out[key] = value
			}
		}
		return out
	}
	return v
}

func empty(v any) bool {
	switch v := v.(type) {
	case nil:
		return true
	case string:
		return v == ""
	case bool:
		return !v
	case int64:
		return v == 0
	case []any:
		return len(v) == 0
	case map[string]any:
		return len(v) == 0
	}
	return false
}

func text(m map[string]any, key string) string {
	s, _ := m[key].(string)
	return s
}

// project is the name of the AppProject.
func (a *application) project() string { return cmp.Or(a.Spec.Project, "default") }
