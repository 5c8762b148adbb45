package zarf

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/fluxcd/cli-utils/pkg/kstatus/status"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// fieldManager is Zarf's name as an owner of fields.
const fieldManager = "zarf"

// survey is the state of a package's objects.
type survey struct {
	// drift names the objects and fields that differ from the deployed ones. forced is true if a deploy has to take
	// back fields that were overwritten by hand.
	drift  []string
	forced bool
	// taken names fields that somebody else applies.
	taken    []string
	failed   []string // by their own status
	notReady []string
}

// inspect compares the manifests that Helm has deployed with the cluster: Zarf itself never does. A dry run at the API
// server gives the result of applying each object once more.
func inspect(ctx context.Context, c client.Client, d *deployed) (survey, error) {
	var s survey
	noWait := map[release]bool{}
	for _, comp := range d.Data.Components {
		for _, rel := range releases(d.Name, comp) {
			noWait[release{rel.namespace, rel.name, false}] = rel.noWait
		}
	}
	for _, comp := range d.Components {
		for _, chart := range comp.Charts {
			rel := release{chart.Namespace, chart.Name, false}
			revs, err := readRevisions(ctx, c, rel)
			if err != nil {
				return s, err
			}
			current := revs.deployed()
			if current == nil {
				s.drift = append(s.drift, fmt.Sprintf("release %s/%s of component %s is missing", rel.namespace, rel.name, comp.Name))
				continue
			}
			manifest, err := manifestOf(current)
			if err != nil {
				return s, err
			}
			if err := s.objects(ctx, c, rel.namespace, manifest, noWait[rel]); err != nil {
				return s, err
			}
		}
	}
	return s, nil
}

// objects inspects each object of a release.
func (s *survey) objects(ctx context.Context, c client.Client, namespace, manifest string, noWait bool) error {
	for want, err := range documents(manifest) {
		if err != nil {
			return err
		}
		if err := s.object(ctx, c, namespace, want, noWait); err != nil {
			return err
		}
	}
	return nil
}

func (s *survey) object(ctx context.Context, c client.Client, namespace string, want *unstructured.Unstructured, noWait bool) error {
	err := settle(c, want, namespace)
	if meta.IsNoMatchError(err) {
		s.drift = append(s.drift, describe(want)+" is missing: the cluster does not know its kind any more")
		return nil
	}
	if err != nil {
		return err
	}
	live := want.DeepCopy()
	if err := c.Get(ctx, client.ObjectKeyFromObject(want), live); apierrors.IsNotFound(err) {
		s.drift = append(s.drift, describe(want)+" is missing")
		return nil
	} else if err != nil {
		return err
	}
	next := want.DeepCopy()
	asHelmMarks(next, live)
	err = c.Apply(ctx, client.ApplyConfigurationFromUnstructured(next), client.FieldOwner(fieldManager), client.DryRunAll)
	switch taken, byHand := claims(err); {
	case len(taken) > 0:
		s.taken = append(s.taken, describe(want)+": "+strings.Join(taken, ", "))
	case len(byHand) > 0:
		s.forced = true
		s.drift = append(s.drift, describe(want)+" differs in "+strings.Join(byHand, ", "))
	case err != nil:
		return err
	case !same(live, next):
		s.drift = append(s.drift, describe(want)+" differs")
	case !noWait:
		s.health(live)
	}
	return nil
}

// asHelmMarks adds the label and annotations that Helm puts on all objects of a release beside their manifests: without
// them the dry run would remove these marks.
func asHelmMarks(next, live *unstructured.Unstructured) {
	labels, annotations := next.GetLabels(), next.GetAnnotations()
	mark(&labels, live.GetLabels(), "app.kubernetes.io/managed-by")
	mark(&annotations, live.GetAnnotations(), "meta.helm.sh/release-name", "meta.helm.sh/release-namespace")
	next.SetLabels(labels)
	next.SetAnnotations(annotations)
}

func mark(to *map[string]string, from map[string]string, keys ...string) {
	for _, key := range keys {
		if value, ok := from[key]; ok {
			if *to == nil {
				*to = map[string]string{}
			}
			(*to)[key] = value
		}
	}
}

func (s *survey) health(live *unstructured.Unstructured) {
	switch res, err := status.Compute(live); {
	case err != nil: // an object without a status counts as current
	case res.Status == status.FailedStatus:
		s.failed = append(s.failed, describe(live)+": "+res.Message)
	case res.Status == status.InProgressStatus:
		s.notReady = append(s.notReady, describe(live)+": "+res.Message)
	}
}

// same compares two objects except for the fields that every write changes.
func same(a, b *unstructured.Unstructured) bool {
	return equality.Semantic.DeepEqual(settled(a), settled(b))
}

func settled(u *unstructured.Unstructured) map[string]any {
	u = u.DeepCopy()
	u.SetManagedFields(nil)
	u.SetResourceVersion("")
	u.SetGeneration(0)
	return u.Object
}

// claims splits the fields of a conflict into those that another manager applies and those that were written by
// hand. An API server writes `conflict with "kubectl-edit" using v1` about the latter, and just
// `conflict with "argocd-controller"` about the former.
func claims(err error) (taken, byHand []string) {
	var answer apierrors.APIStatus
	if !errors.As(err, &answer) || answer.Status().Details == nil {
		return nil, nil
	}
	for _, cause := range answer.Status().Details.Causes {
		if cause.Type != metav1.CauseTypeFieldManagerConflict {
			continue
		}
		text := strings.TrimPrefix(cause.Message, "conflict with ")
		manager, rest := cause.Message, ""
		if quoted, err := strconv.QuotedPrefix(text); err == nil {
			manager, rest = quoted, text[len(quoted):]
		}
		if strings.Contains(rest, " using ") {
			byHand = append(byHand, cause.Field)
		} else {
			taken = append(taken, fmt.Sprintf("%s is managed by %s", cause.Field, manager))
		}
	}
	slices.Sort(taken)
	slices.Sort(byHand)
	return slices.Compact(taken), slices.Compact(byHand)
}

func describe(u *unstructured.Unstructured) string {
	if u.GetNamespace() == "" {
		return u.GetKind() + "/" + u.GetName()
	}
	return u.GetKind() + "/" + u.GetNamespace() + "/" + u.GetName()
}

// list joins the first few of items.
func list(items []string) string {
	const most = 5
	if len(items) > most {
		items = append(slices.Clone(items[:most]), fmt.Sprintf("and %d more", len(items)-most))
	}
	return strings.Join(items, "; ")
}
