// Package kubernetestest runs the reconcilers' conformance suite on an API server.
package kubernetestest

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/reconcilers"
	"github.com/wherry-dev/wherry/reconcilers/kubernetes"
	"github.com/wherry-dev/wherry/reconcilers/reconcilertest"
)

// Adapter gives each case of reconcilertest.Run a namespace of its own on the cluster that a kubeconfig, given
// by its path, has an administrator's access to.
func Adapter(kubeconfig string) reconcilertest.Adapter {
	return reconcilertest.Adapter{
		Name: "kubernetes",
		On:   "a real API server with its controllers",
		Start: func(t *testing.T) reconcilertest.Engine {
			config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
			require.NoError(t, err)
			return &engine{ConfigMaps: ConfigMaps{Connect(t, config)}, Place: Place{Kubeconfig: kubeconfig, Ledger: t.TempDir()}}
		},
	}
}

// Place is what another process needs for a reconciler on the same cluster.
type Place struct {
	Kubeconfig string
	Ledger     string // a folder
}

// Handle writes p for Open.
func (p Place) Handle(t *testing.T) string {
	t.Helper()
	data, err := json.Marshal(p)
	require.NoError(t, err)
	return string(data)
}

// Obstruct damages the ledger, so that the list of applied objects is lost.
func (p Place) Obstruct(t *testing.T, assignment string) (reason string, mend func()) {
	t.Helper()
	ledger := reconcilertest.DiskLedger(p.Ledger)
	before, err := ledger.Load(assignment)
	require.NoError(t, err)
	require.NoError(t, ledger.Save(assignment, []byte("{")))
	return kubernetes.LedgerUnreadable, func() { require.NoError(t, ledger.Save(assignment, before)) }
}

// Open makes a reconciler, by a function such as kubernetes.New, of the handle of a Place.
func Open[R reconcilers.Reconciler](handle string, create func(*rest.Config, reconcilers.Ledger) (R, error)) (reconcilers.Reconciler, error) {
	var p Place
	if err := json.Unmarshal([]byte(handle), &p); err != nil {
		return nil, err
	}
	config, err := clientcmd.BuildConfigFromFlags("", p.Kubeconfig)
	if err != nil {
		return nil, err
	}
	return create(config, reconcilertest.DiskLedger(p.Ledger))
}

// New is kubernetes.New without options, for Open.
func New(config *rest.Config, ledger reconcilers.Ledger) (*kubernetes.Reconciler, error) {
	return kubernetes.New(config, ledger, kubernetes.Options{})
}

// Cluster is a namespace for one test, and a client for what the test does there in somebody else's
// name.
type Cluster struct {
	client.Client
	Config *rest.Config
	Name   string // of the namespace, which goes with the test
}

// Connect makes a namespace.
func Connect(t *testing.T, config *rest.Config) *Cluster {
	t.Helper()
	config = rest.CopyConfig(config)
	config.QPS = -1
	config.WarningHandlerWithContext = rest.NoWarnings{}
	c, err := client.New(config, client.Options{FieldOwner: "somebody"})
	require.NoError(t, err)
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "wherry-test-"}}
	require.NoError(t, c.Create(t.Context(), ns))
	t.Cleanup(func() { _ = c.Delete(context.Background(), ns) })
	return &Cluster{Client: c, Config: config, Name: ns.Name}
}

// ConfigMap returns one of the namespace, or nil.
func (c *Cluster) ConfigMap(t *testing.T, name string) *corev1.ConfigMap {
	t.Helper()
	cm := &corev1.ConfigMap{}
	err := c.Get(t.Context(), types.NamespacedName{Namespace: c.Name, Name: name}, cm)
	if apierrors.IsNotFound(err) {
		return nil
	}
	require.NoError(t, err)
	return cm
}

// Value is what the ConfigMap of a value's name holds.
func (c *Cluster) Value(t *testing.T, _, name string) (string, bool) {
	t.Helper()
	cm := c.ConfigMap(t, name)
	if cm == nil {
		return "", false
	}
	return cm.Data["value"], true
}

// ConfigMaps is as much of a reconcilertest.Engine as is the same for all that hold values in ConfigMaps of a
// namespace.
type ConfigMaps struct{ *Cluster }

// Namespace is theirs.
func (c ConfigMaps) Namespace() string { return c.Name }

// Tamper overwrites one.
func (c ConfigMaps) Tamper(t *testing.T, _, name, value string) {
	cm := c.ConfigMap(t, name)
	cm.Data["value"] = value
	require.NoError(t, c.Update(t.Context(), cm))
}

// Delete deletes one.
func (c ConfigMaps) Delete(t *testing.T, _, name string) {
	require.NoError(t, c.Client.Delete(t.Context(), c.ConfigMap(t, name)))
}

// AddForeign creates two objects and adds a label and a key to one of the assignment's.
func (c ConfigMaps) AddForeign(t *testing.T, _, name string) {
	meta := metav1.ObjectMeta{Namespace: c.Name, Name: "theirs"}
	require.NoError(t, c.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: meta, Data: map[string]string{"theirs": "yes"}}))
	require.NoError(t, c.Create(t.Context(), &corev1.Secret{ObjectMeta: meta, Data: map[string][]byte{"theirs": []byte("yes")}}))
	cm := c.ConfigMap(t, name)
	cm.Labels["theirs"] = "yes"
	cm.Data["theirs"] = "yes"
	require.NoError(t, c.Update(t.Context(), cm))
}

// CheckForeign looks for them.
func (c ConfigMaps) CheckForeign(t *testing.T, _, name string) {
	require.Equal(t, "yes", c.ConfigMap(t, "theirs").Data["theirs"])
	secret := &corev1.Secret{}
	require.NoError(t, c.Get(t.Context(), types.NamespacedName{Namespace: c.Name, Name: "theirs"}, secret))
	require.Equal(t, "yes", string(secret.Data["theirs"]))
	if cm := c.ConfigMap(t, name); cm != nil {
		require.Equal(t, "yes", cm.Data["theirs"])
		require.Equal(t, "yes", cm.Labels["theirs"])
	}
}

// engine is that of the adapter kubernetes.
type engine struct {
	ConfigMaps
	Place
}

func (e *engine) Reconciler(t *testing.T) reconcilers.Reconciler {
	r, err := Open(e.Handle(t), New)
	require.NoError(t, err)
	return r
}

func (e *engine) Files(_ *testing.T, _ string, content map[string]string) []bundle.File {
	const text = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: %s\ndata:\n  value: %q\n"
	var files []bundle.File
	for name, value := range content {
		files = append(files, bundle.File{Path: name + ".yaml", Data: fmt.Appendf(nil, text, name, value)})
	}
	return files
}

// Writes names the versions of the assignment's objects.
func (e *engine) Writes(t *testing.T, assignment string) string {
	list := &corev1.ConfigMapList{}
	require.NoError(t, e.List(t.Context(), list, client.InNamespace(e.Name), client.MatchingLabels{kubernetes.OwnerLabel: assignment}))
	var found []string
	for _, cm := range list.Items {
		found = append(found, fmt.Sprint(cm.Name, cm.UID, cm.ResourceVersion))
	}
	return strings.Join(found, ", ")
}

func (e *engine) Break(t *testing.T, a reconcilers.Assignment) string {
	return spoil(t, a)
}

// deployment has a pod that no node takes, and content of its own in it.
const deployment = `apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  progressDeadlineSeconds: %d
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}, annotations: {content: %q}}
    spec: {nodeSelector: {wherry.dev/nowhere: "yes"}, containers: [{name: web, image: registry.invalid/web:1}]}
`

// Fail adds a rollout that its controller soon gives up.
func (e *engine) Fail(t *testing.T, a reconcilers.Assignment) (reason, words string) {
	add(t, a, bundle.File{Path: "web.yaml", Data: fmt.Appendf(nil, deployment, 1, a.Content)})
	return kubernetes.Unhealthy, "Deployment/" + e.Name + "/web: Progress deadline exceeded"
}

// Stall adds a rollout of a pod that gets ready when a kubelet, which is the test, says so.
func (e *engine) Stall(t *testing.T, a reconcilers.Assignment) (words string, finish func()) {
	add(t, a, bundle.File{Path: "web.yaml", Data: fmt.Appendf(nil, deployment, 600, a.Content)})
	return "Deployment/" + e.Name + "/web", func() {
		ctx := context.Background() // that of a test has ended when its cleanup comes here
		list := &appsv1.DeploymentList{}
		require.NoError(t, e.List(ctx, list, client.InNamespace(e.Name)))
		if len(list.Items) > 0 {
			require.Eventually(t, func() bool { return e.ready(ctx, t) }, reconcilertest.Patience, 100*time.Millisecond)
		}
	}
}

// ready makes the pods of the namespace ready, and reports whether the rollout is complete.
func (e *engine) ready(ctx context.Context, t *testing.T) bool {
	pods := &corev1.PodList{}
	require.NoError(t, e.List(ctx, pods, client.InNamespace(e.Name)))
	for _, pod := range pods.Items {
		pod.Status.Phase = corev1.PodRunning
		pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
		_ = e.Status().Update(ctx, &pod) // or the next time
	}
	d := &appsv1.Deployment{}
	require.NoError(t, e.Get(ctx, types.NamespacedName{Namespace: e.Name, Name: "web"}, d))
	s := d.Status
	return s.ObservedGeneration == d.Generation && s.UpdatedReplicas == 1 && s.Replicas == 1 && s.AvailableReplicas == 1
}
