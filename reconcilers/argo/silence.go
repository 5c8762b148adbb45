package argo

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/wherry-dev/wherry/reconcilers/kubernetes"
)

// silent reports whether Argo CD has looked too long ago to be believed. A clock that is behind its own finds
// nothing of the kind.
func (e engine) silent(a *application, most time.Duration) bool {
	return most > 0 && e.Now().Sub(a.since()) > most
}

// overtaken reports whether a sync has ended after Argo CD's comparison, which it makes anew then: what differed
// may be as it should be, and one of an older revision that was under way brings back what the present one lacks.
// Argo CD's times are whole seconds: where that is in doubt, a comparison of the same second is taken for the
// older one, until it must be over.
func (a *application) overtaken(now time.Time) bool {
	const over = 5 * time.Second
	state := a.Status.OperationState
	if state == nil || state.FinishedAt == nil {
		return false
	}
	ended, compared := state.FinishedAt.Time, a.Status.ReconciledAt.Time
	doubtful := a.last() == nil || a.Status.Sync.Status == "OutOfSync"
	return compared.Before(ended) || compared.Equal(ended) && doubtful && now.Sub(ended) < over
}

// silence is how long Argo CD may go without looking at an Application. Its settings are only read where the
// usual time has passed.
func (e engine) silence(ctx context.Context, c kubernetes.Cluster, a *application) time.Duration {
	usual := Silence(nil, e.Poll)
	if !e.silent(a, usual) {
		return usual
	}
	settings, err := c.Get(ctx, schema.GroupKind{Kind: "ConfigMap"}, types.NamespacedName{Namespace: e.Namespace, Name: SettingsName})
	if settings == nil || err != nil {
		return usual
	}
	data, _, _ := unstructured.NestedStringMap(settings.Object, "data")
	return Silence(data, e.Poll)
}

// SettingsName is the ConfigMap with Argo CD's settings.
const SettingsName = "argocd-cm"

// polls is the number of Argo CD's polls that may pass without a refresh.
const polls = 3

// Silence is how long an Argo CD with these settings, which may be nil, may go without looking at an
// Application. The given poll is that of one whose settings do not say it. Zero is for ever: it looks only
// when it is asked to.
func Silence(settings map[string]string, poll time.Duration) time.Duration {
	every, err := time.ParseDuration(settings["timeout.reconciliation"])
	if err != nil {
		return polls * poll
	}
	if every == 0 {
		return 0
	}
	jitter, _ := time.ParseDuration(settings["timeout.reconciliation.jitter"])
	return polls * max(poll, every+jitter)
}
