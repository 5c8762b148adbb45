package harness

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Argo is an Argo CD without its API server and user interface: redis, repo-server and
// application-controller, for the Applications in one namespace.
type Argo struct {
	cluster                 *Cluster
	redis, repo, controller *process
	namespace               string
	certificates            string // the folder in which the repo-server looks for certificates
	startRepo               func(context.Context) (*process, error)
}

// StartArgo runs Argo CD for the Applications in one namespace, unless it does so already, and returns when
// it is ready. Argo CD's resource definitions are installed, and the namespace with its settings and the
// AppProject default are made where they are missing; all of that stays. Argo CD ends with Stop. Its
// programs are taken from WHERRY_E2E_TOOLS; redis-server may be this machine's own.
func (c *Cluster) StartArgo(ctx context.Context, namespace string) (*Argo, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if a := c.argos[namespace]; a != nil {
		return a, nil
	}
	tools := os.Getenv(ToolsEnv)
	if tools == "" {
		return nil, fmt.Errorf("%s is not set: run \"make e2e\"", ToolsEnv)
	}
	if err := prepareArgo(ctx, c, tools, namespace); err != nil {
		return nil, err
	}
	a, err := retry(func() (*Argo, error) { return c.launchArgo(ctx, tools, namespace) })
	if err != nil {
		return nil, err
	}
	if c.argos == nil {
		c.argos = map[string]*Argo{}
	}
	c.argos[namespace] = a
	c.processes = append(c.processes, a.redis, a.repo, a.controller)
	return a, nil
}

// PauseController keeps the application-controller from doing anything until resume is called, as one does
// that hangs or has no node.
func (a *Argo) PauseController() (resume func() error, err error) { return a.controller.pause() }

// StopRepoServer ends the repo-server, which reads repositories and renders manifests, until start is called.
func (a *Argo) StopRepoServer() (start func(context.Context) error, err error) {
	return func(ctx context.Context) (err error) {
		if a.repo, err = a.startRepo(ctx); err == nil {
			a.cluster.mu.Lock()
			defer a.cluster.mu.Unlock()
			a.cluster.processes = append(a.cluster.processes, a.repo)
		}
		return err
	}, a.repo.stop()
}

// MountCertificates brings the keys of the ConfigMap argocd-tls-certs-cm to the repo-server, as a kubelet does, until ctx
// ends.
func (a *Argo) MountCertificates(ctx context.Context) error {
	c, err := client.New(a.cluster.Config, client.Options{})
	if err != nil {
		return err
	}
	for {
		found := &corev1.ConfigMap{}
		err := c.Get(ctx, client.ObjectKey{Namespace: a.namespace, Name: "argocd-tls-certs-cm"}, found)
		if ctx.Err() != nil {
			return nil
		}
		if client.IgnoreNotFound(err) != nil {
			return err
		}
		if err := a.mount(found.Data); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(pollInterval):
		}
	}
}

func (a *Argo) mount(data map[string]string) error {
	entries, err := os.ReadDir(a.certificates)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if _, there := data[e.Name()]; !there {
			err = errors.Join(err, os.Remove(filepath.Join(a.certificates, e.Name())))
		}
	}
	for name, text := range data {
		path := filepath.Join(a.certificates, name)
		if have, _ := os.ReadFile(path); string(have) != text {
			err = errors.Join(err, os.WriteFile(path, []byte(text), 0o644))
		}
	}
	return err
}

func (p *process) pause() (resume func() error, err error) {
	group := -p.cmd.Process.Pid
	return func() error { return syscall.Kill(group, syscall.SIGCONT) }, syscall.Kill(group, syscall.SIGSTOP)
}

// prepareArgo makes what an installation of Argo CD comes with and these processes look for.
func prepareArgo(ctx context.Context, cluster *Cluster, tools, namespace string) error {
	c, err := client.New(cluster.Config, client.Options{})
	if err != nil {
		return err
	}
	for _, name := range []string{"application-crd.yaml", "appproject-crd.yaml"} {
		file, err := find(tools, filepath.Join("crds", name))
		if err != nil {
			return err
		}
		if err := define(ctx, c, file); err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
	}
	part := map[string]string{"app.kubernetes.io/part-of": "argocd"}
	project := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "argoproj.io/v1alpha1", "kind": "AppProject",
		"metadata": map[string]any{"namespace": namespace, "name": "default"},
		"spec": map[string]any{
			"sourceRepos":              []any{"*"},
			"destinations":             []any{map[string]any{"namespace": "*", "server": "*"}},
			"clusterResourceWhitelist": []any{map[string]any{"group": "*", "kind": "*"}},
		},
	}}
	for _, o := range []client.Object{
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}},
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "argocd-cm", Labels: part}},
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "argocd-secret", Labels: part}},
		project,
	} {
		if err := c.Create(ctx, o); err != nil && !apierrors.IsAlreadyExists(err) {
			return err
		}
	}
	return nil
}

// launchArgo starts the processes, or none of them.
func (c *Cluster) launchArgo(ctx context.Context, tools, namespace string) (_ *Argo, err error) {
	if c.dir == "" { // a cluster that was given
		if c.dir, err = os.MkdirTemp("", "wherry-e2e-"); err != nil {
			return nil, err
		}
	}
	dir, err := os.MkdirTemp(c.dir, "argo-")
	if err != nil {
		return nil, err
	}
	a := &Argo{cluster: c, namespace: namespace, certificates: filepath.Join(dir, "tls")}
	defer func() {
		if err == nil {
			return
		}
		for _, p := range []*process{a.controller, a.repo, a.redis} {
			if p != nil {
				err = errors.Join(err, p.stop())
			}
		}
	}()
	ports, err := freePorts(4)
	if err != nil {
		return nil, err
	}
	at := func(i int) string { return fmt.Sprintf("127.0.0.1:%d", ports[i]) }
	if a.redis, err = c.startRedis(dir, tools, ports[0]); err != nil {
		return nil, err
	}
	if err := c.place.awaitPort(ctx, at(0), a.redis); err != nil {
		return nil, err
	}
	env, err := c.argoEnv(dir, tools, namespace)
	if err != nil {
		return nil, err
	}
	a.startRepo = func(ctx context.Context) (*process, error) {
		p, err := c.startArgo(dir, tools, "argocd-repo-server", env,
			"--redis="+at(0), "--disable-tls", "--revision-cache-expiration=1s", "--address=127.0.0.1", fmt.Sprintf("--port=%d", ports[1]),
			"--metrics-address=127.0.0.1", fmt.Sprintf("--metrics-port=%d", ports[2]))
		if err != nil {
			return nil, err
		}
		return p, await(ctx, c.place.client(), loopback("http", ports[2])+"/healthz", p)
	}
	if a.repo, err = a.startRepo(ctx); err != nil {
		return nil, err
	}
	a.controller, err = c.startArgo(dir, tools, "argocd-application-controller", env,
		"--redis="+at(0), "--repo-server="+at(1), "--repo-server-plaintext", fmt.Sprintf("--metrics-port=%d", ports[3]),
		"--app-resync=3", "--app-resync-jitter=0", "--repo-error-grace-period-seconds=5", "--repo-server-timeout-seconds=60")
	if err != nil {
		return nil, err
	}
	return a, await(ctx, c.place.client(), loopback("http", ports[3])+"/healthz", a.controller)
}

// argoEnv returns the environment of both of Argo CD's processes. They take their namespace from the
// kubeconfig's context, and use folders below dir in place of the fixed folders of their image.
func (c *Cluster) argoEnv(dir, tools, namespace string) ([]string, error) {
	program, err := find(tools, "argocd")
	if err != nil {
		return nil, err
	}
	config, err := clientcmd.LoadFromFile(c.Kubeconfig)
	if err != nil {
		return nil, err
	}
	config.Contexts[config.CurrentContext].Namespace = namespace
	kubeconfig := filepath.Join(dir, "kubeconfig")
	if err := clientcmd.WriteToFile(*config, kubeconfig); err != nil {
		return nil, err
	}
	env := []string{
		"KUBECONFIG=" + kubeconfig,
		"ARGOCD_FAKE_IN_CLUSTER=true", // https://kubernetes.default.svc is the kubeconfig's cluster
		"ARGOCD_GPG_ENABLED=false",
		"PATH=" + filepath.Dir(program) + string(filepath.ListSeparator) + os.Getenv("PATH"), // git asks it for passwords
		"ARGOCD_ASK_PASS_SOCK=" + filepath.Join(dir, "ask-pass.sock"),
	}
	for variable, sub := range map[string]string{
		"HOME": "home", "TMPDIR": "tmp", "ARGOCD_TLS_DATA_PATH": "tls", "ARGOCD_SSH_DATA_PATH": "ssh",
		"ARGOCD_GPG_DATA_PATH": "gpg", "ARGOCD_GNUPGHOME": "gnupg", "ARGOCD_PLUGINSOCKFILEPATH": "plugins",
	} {
		path := filepath.Join(dir, sub)
		if err := os.Mkdir(path, 0o755); err != nil {
			return nil, err
		}
		env = append(env, variable+"="+path)
	}
	return env, nil
}

// startArgo runs Argo CD's one program in the part that is named.
func (c *Cluster) startArgo(dir, tools, name string, env []string, args ...string) (*process, error) {
	path, err := find(tools, "argocd")
	if err != nil {
		return nil, err
	}
	return c.place.start(dir, name, path, args, append(env, "ARGOCD_BINARY_NAME="+name)...)
}

// startRedis runs the redis that make has unpacked, with its libraries beside it, or this machine's own.
func (c *Cluster) startRedis(dir, tools string, port int) (*process, error) {
	path, err := find(tools, "redis-server")
	if err != nil {
		if path, err = exec.LookPath("redis-server"); err != nil {
			return nil, fmt.Errorf("redis-server, which Argo CD needs, is neither in %s nor in PATH: install redis, or run \"make e2e-tools\" on Debian", ToolsEnv)
		}
	}
	return c.place.start(dir, "redis-server", path, []string{"--port", fmt.Sprint(port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--dir", dir},
		"LD_LIBRARY_PATH="+filepath.Join(filepath.Dir(path), "lib"))
}

// awaitPort waits until p listens.
func (at Place) awaitPort(ctx context.Context, address string, p *process) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	for {
		conn, err := at.dial(ctx, "tcp", address)
		if err == nil {
			return conn.Close()
		}
		select {
		case <-p.ended():
			return p.failure()
		case <-ctx.Done():
			return fmt.Errorf("wait for %s: %w", p.name, err)
		case <-time.After(pollInterval):
		}
	}
}
