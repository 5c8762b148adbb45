package zarftest

import (
	"context"
	"crypto/elliptic"
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/fstest"
	"time"

	"github.com/opencontainers/go-digest"
	"github.com/sigstore/sigstore/pkg/cryptoutils"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/reconcilers"
	"github.com/wherry-dev/wherry/reconcilers/kubernetes/kubernetestest"
	"github.com/wherry-dev/wherry/reconcilers/reconcilertest"
	"github.com/wherry-dev/wherry/reconcilers/zarf"
)

// Place is all that the suite's other process needs to open the same adapter.
type Place struct {
	Program, Kubeconfig, Dir string
}

// Open returns a reconciler for the place that a handle names.
func Open(handle string) (reconcilers.Reconciler, error) {
	var p Place
	if err := json.Unmarshal([]byte(handle), &p); err != nil {
		return nil, err
	}
	return p.open(0)
}

func (p Place) open(deadline time.Duration) (*zarf.Reconciler, error) {
	config, err := clientcmd.BuildConfigFromFlags("", p.Kubeconfig)
	if err != nil {
		return nil, err
	}
	return zarf.New(config, zarf.Options{Program: p.Program, Dir: p.Dir, Deadline: deadline})
}

// Engine has packages of ConfigMaps in a namespace of its own.
type Engine struct {
	kubernetestest.ConfigMaps
	Place
	signal string // a file that Stall's actions wait for
}

// NewEngine makes a namespace on the cluster of kubeconfig, which the tests share with nobody who uses Zarf.
// The adapter's folder is that of an agent which has deployed before: it has a signing key.
func NewEngine(t *testing.T, program, kubeconfig string) *Engine {
	t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	require.NoError(t, err)
	c := kubernetestest.Connect(t, config)
	e := &Engine{ConfigMaps: kubernetestest.ConfigMaps{Cluster: c}, Place: Place{program, kubeconfig, t.TempDir()}, signal: filepath.Join(t.TempDir(), "go")}
	keys, err := signingKeys()
	require.NoError(t, err)
	require.NoError(t, os.CopyFS(filepath.Join(e.Dir, "signing"), keys))
	t.Cleanup(func() {
		_ = c.DeleteAllOf(context.Background(), &corev1.Secret{}, client.InNamespace("zarf"), client.HasLabels{"package-deploy-info"})
	})
	return e
}

// signingKeys is a key pair as the adapter makes it, once for all engines, and its private key unlocked:
// cosign's scrypt takes longer than the rest of a case.
var signingKeys = sync.OnceValues(func() (fs.FS, error) {
	const password = "known to the tests"
	private, public, err := cryptoutils.GeneratePEMEncodedECDSAKeyPair(elliptic.P256(), cryptoutils.StaticPasswordFunc([]byte(password)))
	if err != nil {
		return nil, err
	}
	key, err := cryptoutils.UnmarshalPEMToPrivateKey(private, cryptoutils.StaticPasswordFunc([]byte(password)))
	if err != nil {
		return nil, err
	}
	open, err := cryptoutils.MarshalPrivateKeyToPEM(key)
	return fstest.MapFS{
		"cosign.key": {Data: private}, "cosign.pub": {Data: public}, "password": {Data: []byte(password)},
		unlockedName(private, password): {Data: open},
	}, err
})

// Reconciler is a new one for the same place.
func (e *Engine) Reconciler(t *testing.T) reconcilers.Reconciler {
	t.Helper()
	r, err := Open(e.Handle(t))
	require.NoError(t, err)
	return r
}

// Hasty is one with a deadline.
func (e *Engine) Hasty(t *testing.T, deadline time.Duration) reconcilers.Reconciler {
	t.Helper()
	r, err := e.open(deadline)
	require.NoError(t, err)
	return r
}

// Handle is the Place in JSON.
func (e *Engine) Handle(t *testing.T) string {
	t.Helper()
	data, err := json.Marshal(e.Place)
	require.NoError(t, err)
	return string(data)
}

// Obstruct takes the program away.
func (e *Engine) Obstruct(*testing.T, string) (reason string, mend func()) {
	program := e.Program
	e.Program = filepath.Join(e.Dir, "no-zarf")
	return zarf.ZarfNotFound, func() { e.Program = program }
}

// Running counts the processes that have the place's folder in their arguments.
func (e *Engine) Running(t *testing.T) (n int) {
	t.Helper()
	paths, err := filepath.Glob("/proc/[0-9]*/cmdline")
	require.NoError(t, err)
	for _, path := range paths {
		if data, err := os.ReadFile(path); err == nil && strings.Contains(string(data), e.Dir) {
			n++
		}
	}
	return n
}

// Files are a package with a manifest for each value.
func (e *Engine) Files(_ *testing.T, assignment string, content map[string]string) []bundle.File {
	const config = `apiVersion: zarf.dev/v1alpha1
kind: ZarfPackageConfig
metadata:
  name: %s
  version: 0.1.0
components:
- name: values
  required: true
  manifests:
  - name: values
    namespace: %s
    files: [%s]
`
	const manifest = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: %s\ndata:\n  value: %q\n"
	var files []bundle.File
	var names []string
	for _, name := range slices.Sorted(maps.Keys(content)) {
		names = append(names, name+".yaml")
		files = append(files, bundle.File{Path: name + ".yaml", Data: fmt.Appendf(nil, manifest, name, content[name])})
	}
	return append(files, bundle.File{Path: "reconciler.yaml", Data: fmt.Appendf(nil, config, assignment, e.Name, strings.Join(names, ", "))})
}

// Writes names the version of Zarf's record, which each deploy writes.
func (e *Engine) Writes(t *testing.T, assignment string) string {
	t.Helper()
	secret := &corev1.Secret{}
	require.NoError(t, client.IgnoreNotFound(e.Get(t.Context(), types.NamespacedName{Namespace: "zarf", Name: "zarf-package-" + assignment}, secret)))
	return string(secret.UID) + secret.ResourceVersion
}

// Break makes the package's configuration no YAML.
func (e *Engine) Break(t *testing.T, a reconcilers.Assignment) string {
	t.Helper()
	require.NoError(t, os.WriteFile(filepath.Join(a.Dir, "reconciler.yaml"), []byte("kind: ZarfPackageConfig\n  name: [\n"), 0o600))
	return zarf.InvalidPackage
}

// Fail adds an object of a kind that there is not.
func (e *Engine) Fail(t *testing.T, a reconcilers.Assignment) (reason, words string) {
	t.Helper()
	require.NoError(t, os.WriteFile(filepath.Join(a.Dir, "gadget.yaml"), []byte("apiVersion: nowhere.example/v1\nkind: Gadget\nmetadata: {name: one}\n"), 0o600))
	e.edit(t, a, "files: [", "files: [gadget.yaml, ")
	return zarf.DeployFailed, `no matches for kind "Gadget"`
}

// Stall has the package wait for a file before it deploys anything.
func (e *Engine) Stall(t *testing.T, a reconcilers.Assignment) (words string, finish func()) {
	t.Helper()
	require.NoError(t, os.RemoveAll(e.signal))
	e.edit(t, a, "  manifests:", fmt.Sprintf("  actions: {onDeploy: {before: [{cmd: 'until [ -e %s ]; do sleep 0.05; done', mute: true}]}}\n  manifests:", e.signal))
	return "zarf", func() { require.NoError(t, os.WriteFile(e.signal, nil, 0o600)) }
}

func (e *Engine) edit(t *testing.T, a reconcilers.Assignment, old, next string) {
	t.Helper()
	path := filepath.Join(a.Dir, "reconciler.yaml")
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(path, []byte(strings.Replace(string(data), old, next, 1)), 0o600))
}

// Adapter returns the adapter for the suite: a program on a cluster.
func Adapter(on, record string, patience time.Duration, start func(t *testing.T) reconcilertest.Engine) reconcilertest.Adapter {
	return reconcilertest.Adapter{Name: "zarf", On: on, Start: start, Patience: patience, Whole: "ZarfPackage/drone-east", Record: record}
}

// Assign writes an assignment's files to a folder of its own.
func (e *Engine) Assign(t *testing.T, name string, files map[string]string) reconcilers.Assignment {
	t.Helper()
	a := reconcilers.Assignment{Dir: filepath.Join(t.TempDir(), name)}
	a.Name, a.Namespace, a.Adapter = name, e.Name, "zarf"
	require.NoError(t, os.Mkdir(a.Dir, 0o755))
	for path, text := range files {
		text = strings.ReplaceAll(text, "$NS", e.Name)
		require.NoError(t, os.WriteFile(filepath.Join(a.Dir, path), []byte(text), 0o644))
	}
	var err error
	a.Content, err = bundle.ContentDigestOf(os.DirFS(filepath.Dir(a.Dir)), name)
	require.NoError(t, err)
	return a
}

// Settle applies a, and does what the agent does with results until one is neither progressing nor, unless
// once, pending.
func Settle(t *testing.T, r reconcilers.Reconciler, a reconcilers.Assignment, once bool) reconcilers.Result {
	t.Helper()
	res := r.Apply(t.Context(), a)
	for end := time.Now().Add(reconcilertest.Patience); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		switch {
		case res.State == bundle.Progressing:
			res = r.Observe(t.Context(), a)
		case res.State == bundle.Pending && !once:
			res = r.Apply(t.Context(), a)
		default:
			return res
		}
	}
	return res
}

// Gone removes an assignment.
func Gone(t *testing.T, r reconcilers.Reconciler, name string) reconcilers.Result {
	t.Helper()
	a := reconcilers.Assignment{}
	a.Name = name
	res := r.Remove(t.Context(), a)
	for end := time.Now().Add(reconcilertest.Patience); res.State == bundle.Progressing && time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		res = r.Remove(t.Context(), a)
	}
	return res
}

// Publish puts a package into the stand-in's registry, as it is when it is made of files and signed with the
// key, if any, and returns the name by which it can be had.
func (p Program) Publish(t *testing.T, files map[string]string, key, password string) (ref string) {
	t.Helper()
	data := p.make(t, files, key, password)
	registry := filepath.Join(p.dir, "registry")
	require.NoError(t, os.MkdirAll(registry, 0o755))
	d := digest.FromBytes(data)
	require.NoError(t, os.WriteFile(filepath.Join(registry, d.Encoded()), data, 0o644))
	return "oci://registry.example/packages/shop:1@" + d.String()
}

// make returns the package of some files.
func (p Program) make(t *testing.T, files map[string]string, key, password string) []byte {
	t.Helper()
	dir, out := t.TempDir(), t.TempDir()
	for path, text := range files {
		path = strings.Replace(path, "reconciler.yaml", configFile, 1)
		require.NoError(t, os.WriteFile(filepath.Join(dir, path), []byte(text), 0o644))
	}
	args := []string{"package", "create", dir, "--confirm", "-o", out}
	if key != "" {
		args = append(args, "--signing-key", key)
	}
	cmd := exec.Command(p.Path, args...)
	cmd.Env = append(os.Environ(), "ZARF_PACKAGE_CREATE_SIGNING_KEY_PASSWORD="+password)
	said, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", said)
	made, err := filepath.Glob(filepath.Join(out, "*"))
	require.NoError(t, err)
	data, err := os.ReadFile(made[0])
	require.NoError(t, err)
	return data
}
