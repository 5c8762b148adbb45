// Package kubernetestest runs the reconcilers' conformance suite on an API server.
package kubernetestest

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/reconcilers"
	"github.com/wherry-dev/wherry/reconcilers/kubernetes"
	"github.com/wherry-dev/wherry/reconcilers/reconcilertest"
)

// Harness gives each case of reconcilertest.Run a namespace of its own on the cluster of config, whose
// access has to be an administrator's.
func Harness(config *rest.Config) reconcilertest.Harness {
	return func(t *testing.T) reconcilertest.Engine {
		return &engine{Cluster: Connect(t, config), ledger: &reconcilertest.Ledger{}}
	}
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

// engine holds values in ConfigMaps.
type engine struct {
	*Cluster
	ledger *reconcilertest.Ledger
}

func (e *engine) Reconciler(t *testing.T) reconcilers.Reconciler {
	r, err := kubernetes.New(e.Config, e.ledger, kubernetes.Options{})
	require.NoError(t, err)
	return r
}

func (e *engine) Namespace() string { return e.Name }

func (e *engine) File(name, value string) bundle.File {
	const text = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: %s\ndata:\n  value: %q\n"
	return bundle.File{Path: name + ".yaml", Data: fmt.Appendf(nil, text, name, value)}
}

func (e *engine) get(t *testing.T, name string) *corev1.ConfigMap {
	cm := &corev1.ConfigMap{}
	err := e.Get(t.Context(), types.NamespacedName{Namespace: e.Name, Name: name}, cm)
	if apierrors.IsNotFound(err) {
		return nil
	}
	require.NoError(t, err)
	return cm
}

func (e *engine) Value(t *testing.T, _, name string) (string, bool) {
	cm := e.get(t, name)
	if cm == nil {
		return "", false
	}
	return cm.Data["value"], true
}

func (e *engine) Tamper(t *testing.T, _, name, value string) {
	cm := e.get(t, name)
	cm.Data["value"] = value
	require.NoError(t, e.Update(t.Context(), cm))
}

func (e *engine) Delete(t *testing.T, _, name string) {
	require.NoError(t, e.Client.Delete(t.Context(), e.get(t, name)))
}

// AddForeign creates two objects and adds a label and a key to one of the assignment's.
func (e *engine) AddForeign(t *testing.T, _, name string) {
	meta := metav1.ObjectMeta{Namespace: e.Name, Name: "theirs"}
	require.NoError(t, e.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: meta, Data: map[string]string{"theirs": "yes"}}))
	require.NoError(t, e.Create(t.Context(), &corev1.Secret{ObjectMeta: meta, StringData: map[string]string{"theirs": "yes"}}))
	cm := e.get(t, name)
	cm.Labels["theirs"] = "yes"
	cm.Data["theirs"] = "yes"
	require.NoError(t, e.Update(t.Context(), cm))
}

func (e *engine) CheckForeign(t *testing.T, _, name string) {
	require.Equal(t, "yes", e.get(t, "theirs").Data["theirs"])
	secret := &corev1.Secret{}
	require.NoError(t, e.Get(t.Context(), types.NamespacedName{Namespace: e.Name, Name: "theirs"}, secret))
	require.Equal(t, "yes", string(secret.Data["theirs"]))
	if cm := e.get(t, name); cm != nil {
		require.Equal(t, "yes", cm.Data["theirs"])
		require.Equal(t, "yes", cm.Labels["theirs"])
	}
}

func (e *engine) Break(t *testing.T, dir string) string {
	require.NoError(t, os.WriteFile(filepath.Join(dir, "broken.yaml"), []byte("kind: ConfigMap\n  name: [\n"), 0o600))
	return kubernetes.InvalidManifest
}
