package kubernetes

import (
	"fmt"
	"slices"
	"strings"

	"github.com/fluxcd/cli-utils/pkg/kstatus/status"
	"github.com/fluxcd/pkg/ssa/utils"
	"github.com/opencontainers/go-digest"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/manifests"
	"github.com/wherry-dev/wherry/reconcilers"
)

// expect parses the assignment's health conditions, each of which has to select one of its objects: a condition that
// selects nothing would always count as met.
func (p *plan) expect(conditions []string) error {
	for _, text := range conditions {
		c, err := manifests.ParseHealth(text)
		if err != nil {
			return reconcilers.ReleaseError(InvalidHealth, "health condition: %w", err)
		}
		found := false
		for _, m := range p.objects {
			if p.concerns(c, m) {
				p.conditions[m.id()] = append(p.conditions[m.id()], c)
				found = true
			}
		}
		if !found {
			return reconcilers.ReleaseError(InvalidHealth, "health condition %s: %s", c, unconcerned(c))
		}
	}
	return nil
}

func unconcerned(c manifests.HealthCondition) string {
	switch {
	case c.Name != "":
		return fmt.Sprintf("the assignment has no %s of the name %s", c.Kind, c.Name)
	case c.Kind != "":
		return fmt.Sprintf("the assignment has no %s", c.Kind)
	}
	return "the assignment has no custom resource, and it names no kind"
}

// concerns reports whether a condition selects an object.
func (p *plan) concerns(c manifests.HealthCondition, m manifest) bool {
	if c.Kind == "" {
		return p.custom(m.GroupVersionKind().GroupKind())
	}
	return c.Kind == m.GetKind() && (c.Name == "" || c.Name == m.GetName())
}

// custom reports whether a kind is not one of Kubernetes' own.
func (p *plan) custom(kind schema.GroupKind) bool {
	return !p.scheme().IsGroupRegistered(kind.Group) && kind.Group != "apiextensions.k8s.io" && kind.Group != "apiregistration.k8s.io"
}

// standing returns the status of one live object, with a text if it is not current. For custom resources the conditions
// decide instead of kstatus, which knows little about them; only a permanent failure by kstatus still counts.
func (p *plan) standing(m manifest, live *unstructured.Unstructured) (status.Status, string) {
	computed, err := status.Compute(live)
	if err != nil {
		computed = &status.Result{Status: status.UnknownStatus, Message: err.Error()}
	}
	if len(p.conditions[m.id()]) == 0 {
		return computed.Status, computed.Message
	}
	unmet := p.unmet(m, live)
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

// unmet returns the conditions that an object does not meet, or "". A status for an older generation does not count.
func (p *plan) unmet(m manifest, live *unstructured.Unstructured) string {
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

// confirm returns a compliant result, or one that names the unmet conditions.
func (p *plan) confirm(res reconcilers.Result, live liveObjects) reconcilers.Result {
	var unmet []string
	for _, m := range p.objects {
		if text := p.unmet(m, live[m.id()]); text != "" && len(p.conditions[m.id()]) > 0 {
			unmet = append(unmet, m.subject()+": "+text)
		}
	}
	if len(unmet) > 0 {
		res.State, res.Reason, res.Message = bundle.Progressing, NotReady, List(unmet, "; ")
	}
	return res
}

// assess returns the state of the live objects, all of which match their manifests.
func (p *plan) assess(content digest.Digest, live liveObjects) reconcilers.Result {
	res := reconcilers.Result{State: bundle.Compliant, Revision: content.String()}
	var unhealthy, unready []string
	for _, m := range p.objects {
		switch s, text := p.standing(m, live[m.id()]); s {
		case status.CurrentStatus:
		case status.FailedStatus:
			unhealthy = append(unhealthy, m.subject()+": "+text)
		default:
			unready = append(unready, m.subject()+": "+text)
		}
	}
	switch {
	case len(unhealthy) > 0:
		res.State, res.Reason, res.Fault = bundle.Failed, Unhealthy, reconcilers.FaultRelease
		res.Message = List(slices.Concat(unhealthy, unready), "; ")
	case len(unready) > 0:
		res.State, res.Reason, res.Message = bundle.Progressing, NotReady, List(unready, "; ")
	}
	return res
}
