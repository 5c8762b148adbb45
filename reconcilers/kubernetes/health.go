package kubernetes

import (
	"fmt"
	"strings"

	"github.com/fluxcd/cli-utils/pkg/kstatus/status"
	"github.com/fluxcd/pkg/ssa/utils"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/health"
	"github.com/wherry-dev/wherry/reconcilers"
)

// expect reads the assignment's health conditions, each of which has to be about one of its objects: a
// condition about nothing would be a success that nobody has seen.
func (p *pass) expect(conditions []string) error {
	for _, text := range conditions {
		c, err := health.Parse(text)
		if err != nil {
			return failure(InvalidHealth, "health condition: %w", err)
		}
		found := false
		for _, m := range p.objects {
			if p.concerns(c, m) {
				p.conditions[m.id()] = append(p.conditions[m.id()], c)
				found = true
			}
		}
		if !found {
			return failure(InvalidHealth, "health condition %s: %s", c, unconcerned(c))
		}
	}
	return nil
}

func unconcerned(c health.Condition) string {
	switch {
	case c.Name != "":
		return fmt.Sprintf("the assignment has no %s of the name %s", c.Kind, c.Name)
	case c.Kind != "":
		return fmt.Sprintf("the assignment has no %s", c.Kind)
	}
	return "the assignment has no custom resource, and it names no kind"
}

// concerns reports whether a condition is about an object.
func (p *pass) concerns(c health.Condition, m manifest) bool {
	if c.Kind == "" {
		return p.custom(m.GroupVersionKind().GroupKind())
	}
	return c.Kind == m.GetKind() && (c.Name == "" || c.Name == m.GetName())
}

// custom reports whether a kind is not one of Kubernetes' own.
func (p *pass) custom(kind schema.GroupKind) bool {
	return !p.r.client.Scheme().IsGroupRegistered(kind.Group) && kind.Group != "apiextensions.k8s.io" && kind.Group != "apiregistration.k8s.io"
}

// standing is how one live object is, with words for one that is not current. Of custom resources
// conditions decide in place of kstatus, which knows little of them; it can still tell that one has failed
// for good.
func (p *pass) standing(m manifest) (status.Status, string) {
	live := p.live[m.id()]
	computed, err := status.Compute(live)
	if err != nil {
		computed = &status.Result{Status: status.UnknownStatus, Message: err.Error()}
	}
	if len(p.conditions[m.id()]) == 0 {
		return computed.Status, computed.Message
	}
	unmet := p.unmet(m)
	switch {
	case computed.Status == status.FailedStatus && unmet != "":
		return computed.Status, strings.TrimPrefix(computed.Message+"; "+unmet, "; ")
	case unmet != "":
		return status.InProgressStatus, unmet
	case p.custom(m.GroupVersionKind().GroupKind()):
		return status.CurrentStatus, ""
	}
	return computed.Status, computed.Message
}

// unmet says which conditions are not true of an object; empty where all are. What a controller has said
// about an older generation is not taken for an answer.
func (p *pass) unmet(m manifest) string {
	live := p.live[m.id()]
	if live.GetDeletionTimestamp() != nil {
		return "it is being deleted"
	}
	seen, there, err := unstructured.NestedInt64(live.Object, "status", "observedGeneration")
	if err == nil && there && seen < live.GetGeneration() {
		return fmt.Sprintf("its controller has seen generation %d, not yet %d", seen, live.GetGeneration())
	}
	var unmet []string
	for _, c := range p.conditions[m.id()] {
		switch found, ok := c.Check(live.Object); {
		case ok:
		case utils.IsSecret(live):
			unmet = append(unmet, fmt.Sprintf("%s is not %s", c.Path, c.Value))
		default:
			unmet = append(unmet, fmt.Sprintf("%s is %s, not %s", c.Path, found, c.Value))
		}
	}
	return strings.Join(unmet, ", ")
}

// confirm holds what an engine's judge has called compliant against the conditions.
func (p *pass) confirm(res *reconcilers.Result) {
	var unmet []string
	for _, m := range p.objects {
		if text := p.unmet(m); text != "" && len(p.conditions[m.id()]) > 0 {
			unmet = append(unmet, m.subject()+": "+text)
		}
	}
	if len(unmet) > 0 {
		res.State, res.Reason, res.Message = bundle.Progressing, NotReady, List(unmet, "; ")
	}
}
