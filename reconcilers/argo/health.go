package argo

import (
	"cmp"
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/reconcilers/kubernetes"
)

// judgeHealth judges an Application that is Synced by the health that Argo CD gives.
func (e engine) judgeHealth(ctx context.Context, c kubernetes.Cluster, a *application) kubernetes.Verdict {
	health := a.Status.Health
	switch health.Status {
	case "Healthy":
		return kubernetes.Verdict{State: bundle.Compliant}
	case "Suspended":
		return kubernetes.Verdict{State: bundle.Suspended, Reason: Suspended, Message: a.subject() + ": Argo CD calls it Suspended"}
	}
	message := fmt.Sprintf("%s: health is %s", a.subject(), cmp.Or(health.Status, "not known"))
	if unwell := a.unwell(ctx, c); unwell != "" {
		message += ": " + unwell
	}
	switch {
	case health.Status == Degraded && e.Now().Sub(health.LastTransitionTime.Time) > e.Deadline:
		return kubernetes.Failed(Degraded, "%s", message)
	case health.Status == Degraded || health.Status == Missing:
		return kubernetes.Progressing(health.Status, "%s", message)
	}
	return kubernetes.Progressing(kubernetes.NotReady, "%s", message)
}

// mostLooked bounds how many objects are looked at for the one that is unwell: each is a request.
const mostLooked = 50

// unwell names objects of an Application that are not current. Argo CD keeps their health to itself, so they
// are judged by kstatus; what cannot be read is passed over.
func (a *application) unwell(ctx context.Context, c kubernetes.Cluster) string {
	if server := text(a.Spec.Destination, "server"); server != "" && server != "https://kubernetes.default.svc" {
		return "" // another cluster
	}
	var found []string
	for _, r := range a.Status.Resources[:min(len(a.Status.Resources), mostLooked)] {
		live, err := c.Get(ctx, schema.GroupKind{Group: r.Group, Kind: r.Kind}, types.NamespacedName{Namespace: r.Namespace, Name: r.Name})
		if live == nil || err != nil {
			continue
		}
		if v := kubernetes.JudgePlain(live); v.State != bundle.Compliant {
			found = append(found, v.Message)
		}
	}
	return kubernetes.List(found, ", ")
}
