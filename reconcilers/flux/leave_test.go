package flux

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

func TestWhatFluxIsAboutIsNotDeletedInItsMidst(t *testing.T) {
	const (
		head     = "apiVersion: kustomize.toolkit.fluxcd.io/v1\nkind: Kustomization\nmetadata: {name: shop, creationTimestamp: '2026-11-21T12:00:00Z'"
		taken    = head + ", finalizers: [finalizers.fluxcd.io]}\n"
		progress = "status: {conditions: [{type: Ready, status: Unknown}, {type: Reconciling, status: 'True', reason: Progressing, lastTransitionTime: '2026-11-21T12:00:30Z'}]}\n"
	)
	at := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		name, text string
		after      time.Duration
		want       bool
	}{
		{"Flux has not seen it", head + "}\n", 0, false},
		{"Flux has begun", taken, 5 * time.Second, true},
		{"Flux has begun long ago", taken, time.Minute, false},
		{"Flux applies it", taken + progress, 35 * time.Second, true},
		{"Flux waits for its objects", taken + progress, time.Minute, false},
		{"Flux tries again and again", taken + "status: {conditions: [{type: Ready, status: 'False'}, {type: Reconciling, status: 'True', reason: ProgressingWithRetry, lastTransitionTime: '2026-11-21T12:00:30Z'}]}\n", 31 * time.Second, false},
		{"Flux has done it", taken + "status: {conditions: [{type: Ready, status: 'True', lastTransitionTime: '2026-11-21T12:00:30Z'}]}\n", 31 * time.Second, false},
		{"Flux is to leave it alone", taken + "spec: {suspend: true}\n" + progress, 31 * time.Second, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := &unstructured.Unstructured{}
			require.NoError(t, yaml.Unmarshal([]byte(c.text), &o.Object))
			require.Equal(t, c.want, midway(o, at.Add(c.after)))
		})
	}
}
