package argo

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// silent reports whether Argo CD has looked too long ago to be believed. A clock that is behind its own finds
// nothing of the kind.
func (e engine) silent(a *application, most time.Duration) bool {
	return most > 0 && e.Now().Sub(a.since()) > most
}

// silence is how long Argo CD may go without looking at an Application. Its settings are only read where the
// usual time has passed.
func (e engine) silence(ctx context.Context, c cluster, a *application) time.Duration {
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

// polls is how many of Argo CD's polls may pass in silence.
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
