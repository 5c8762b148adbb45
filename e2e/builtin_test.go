//go:build e2e

package e2e

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/wherry-dev/wherry/bundle/manifests"
	"github.com/wherry-dev/wherry/scheduler/builtin"
)

// builtinObjects are taken by an API server as they are.
const builtinObjects = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, labels: {app: web}}
spec:
  replicas: 2
  minReadySeconds: 3
  selector: {matchLabels: {app: web}}
  strategy: {type: RollingUpdate, rollingUpdate: {maxSurge: 1, maxUnavailable: 25%}}
  template:
    metadata: {labels: {app: web}}
    spec:
      terminationGracePeriodSeconds: 5
      hostNetwork: false
      nodeSelector: {disk: ssd}
      containers:
      - name: web
        image: registry.example/web:1
        args: [--verbose]
        env: [{name: A, value: a}, {name: B, value: b}]
        ports: [{name: http, containerPort: 80}, {name: admin, containerPort: 81}]
        resources: {limits: {cpu: 1, memory: 64Mi}, requests: {cpu: 100m}}
        livenessProbe: {httpGet: {path: /, port: http}, periodSeconds: 10}
        volumeMounts: [{name: data, mountPath: /data, readOnly: true}]
      - {name: sidecar, image: registry.example/sidecar:1}
      volumes: [{name: data, emptyDir: {sizeLimit: 1Gi}}, {name: settings, configMap: {name: settings, optional: true}}]
---
apiVersion: v1
kind: Service
metadata: {name: web, annotations: {note: a}}
spec:
  type: ClusterIP
  selector: {app: web}
  ports: [{name: http, port: 80, targetPort: http}, {name: admin, port: 81, targetPort: 8081, protocol: TCP}]
---
apiVersion: v1
kind: ConfigMap
metadata: {name: settings}
immutable: false
data: {A: a, B: b}
binaryData: {C: Yw==}
---
apiVersion: v1
kind: Secret
metadata: {name: login}
type: Opaque
data: {password: c2VjcmV0}
stringData: {name: web}
---
apiVersion: batch/v1
kind: CronJob
metadata: {name: tidy}
spec:
  schedule: "5 4 * * *"
  suspend: true
  successfulJobsHistoryLimit: 1
  jobTemplate:
    spec:
      backoffLimit: 2
      template: {spec: {restartPolicy: Never, containers: [{name: tidy, image: registry.example/tidy:1}]}}
---
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {name: web}
spec:
  rules:
  - host: web.example
    http: {paths: [{path: /, pathType: Prefix, backend: {service: {name: web, port: {name: http}}}}]}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: data}
spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}, storageClassName: fast}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: reader}
rules: [{apiGroups: [""], resources: [pods], verbs: [get, list]}]
---
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {name: web}
spec:
  minReplicas: 1
  maxReplicas: 3
  scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: web}
  metrics: [{type: Resource, resource: {name: cpu, target: {type: Utilization, averageUtilization: 80}}}]
`

// spot is where a value lies in an object, and how to put another one there.
type spot struct {
	path string
	at   any
	put  func(any)
}

func spots(path string, value any, found []spot) []spot {
	switch value := value.(type) {
	case map[string]any:
		for _, key := range slices.Sorted(maps.Keys(value)) {
			name := path + "." + key
			found = append(found, spot{name, value[key], func(v any) { value[key] = v }})
			found = spots(name, value[key], found)
		}
	case []any:
		for i := range value {
			name := fmt.Sprintf("%s[%d]", path, i)
			found = append(found, spot{name, value[i], func(v any) { value[i] = v }})
			found = spots(name, value[i], found)
		}
	}
	return found
}

// TestAnAPIServerAgreesWithTheChecksOfItsKinds changes objects at random and asks both what they think of the result.
// What the publisher refuses, the API server refuses. What the publisher lets pass is never unreadable to the API server
// nor to server-side apply: it may only break a rule about
// values, lack a field, or have one that the API server's version does not know.
func TestAnAPIServerAgreesWithTheChecksOfItsKinds(t *testing.T) {
	t.Parallel()
	const rounds = 600
	config := rest.CopyConfig(cluster.Config)
	config.QPS = -1 // without a limit
	server, err := client.New(config, client.Options{})
	require.NoError(t, err)
	take := func(object map[string]any) error {
		u := (&unstructured.Unstructured{Object: object}).DeepCopy()
		u.SetNamespace("default")
		// Server-side apply cuts a number that is too large to its lower bits, without a word.
		if err := server.Create(t.Context(), u.DeepCopy(), client.DryRunAll); apierrors.IsBadRequest(err) {
			return err
		}
		return server.Apply(t.Context(), client.ApplyConfigurationFromUnstructured(u), client.DryRunAll, client.ForceOwnership, client.FieldOwner("wherry"))
	}
	objects, err := manifests.Parse("objects.yaml", []byte(builtinObjects))
	require.NoError(t, err)
	for _, o := range objects {
		require.Empty(t, builtin.Check(o.Object), o.GetKind())
		require.NoError(t, take(o.Object), o.GetKind())
	}

	others := []any{"text", "3", int64(3), int64(5_000_000_000), 1.5, true, nil, map[string]any{"a": "b"}, map[string]any{}, []any{"a"}, []any{}}
	seed := rand.Uint64()
	random := rand.New(rand.NewPCG(seed, 0))
	refused, missed := 0, 0
	for range rounds {
		o := objects[random.IntN(len(objects))].DeepCopy()
		var all []spot
		for _, at := range spots("", o.Object, nil) {
			if at.path != ".apiVersion" && at.path != ".kind" && at.path != ".metadata" && at.path != ".metadata.name" {
				all = append(all, at)
			}
		}
		at := all[random.IntN(len(all))]
		value := others[random.IntN(len(others))]
		if list, is := at.at.([]any); is && random.IntN(2) == 0 { // an element twice
			value = append(slices.Clone(list), list[random.IntN(len(list))])
		}
		at.put(value)

		mistakes, err := builtin.Check(o.Object), take(o.Object)
		what := fmt.Sprintf("seed %d: %s%s = %v: found %v, API server: %v", seed, o.GetKind(), at.path, value, mistakes, err)
		switch {
		case len(mistakes) > 0:
			require.Error(t, err, what)
			refused++
		case err != nil:
			require.True(t, apierrors.IsInvalid(err) || strings.Contains(err.Error(), "field not declared in schema"), what)
			missed++
		}
	}
	t.Logf("seed %d: of %d objects both refuse %d, and the API server alone %d", seed, rounds, refused, missed)
	require.NotZero(t, refused)
}
