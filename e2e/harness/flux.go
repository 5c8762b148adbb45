package harness

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"
)

// StartFlux runs source-controller and kustomize-controller for the objects in one namespace, unless they
// do so already, and returns when they are ready. Flux's resource definitions are installed, and the
// namespace is made where it is missing; both stay. The controllers see no other namespace, so that several
// of them can share a cluster. They end with Stop. Their programs are taken from WHERRY_E2E_TOOLS.
func (c *Cluster) StartFlux(ctx context.Context, namespace string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.fluxes[namespace] != nil {
		return nil
	}
	tools := os.Getenv(ToolsEnv)
	if tools == "" {
		return fmt.Errorf("%s is not set: run \"make e2e\"", ToolsEnv)
	}
	if err := prepareFlux(ctx, c, tools, namespace); err != nil {
		return err
	}
	started, err := retry(func() ([]*process, error) { return c.launchFlux(ctx, tools, namespace) })
	if err != nil {
		return err
	}
	if c.fluxes == nil {
		c.fluxes = map[string][]*process{}
	}
	c.processes, c.fluxes[namespace] = append(c.processes, started...), started
	return nil
}

// HelmController is the program that StartFlux starts too if a folder of ToolsEnv has it, with its resource definitions in the folder crds beside it.
const HelmController = "helm-controller"

// Controller is one of Flux's processes.
type Controller struct {
	PID     int
	Metrics string // the URL of its metrics
}

// Flux returns the controllers that StartFlux started for a namespace.
func (c *Cluster) Flux(namespace string) (cs []Controller) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, p := range c.fluxes[namespace] {
		cs = append(cs, Controller{p.cmd.Process.Pid, p.metrics})
	}
	return cs
}

// RestartFlux ends the controllers that StartFlux started for a namespace, and starts new ones, whose storage is empty.
func (c *Cluster) RestartFlux(ctx context.Context, namespace string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, p := range c.fluxes[namespace] {
		if err := p.stop(); err != nil {
			return err
		}
	}
	tools := os.Getenv(ToolsEnv)
	started, err := retry(func() ([]*process, error) { return c.launchFlux(ctx, tools, namespace) })
	if err != nil {
		return err
	}
	c.processes, c.fluxes[namespace] = append(c.processes, started...), started
	return nil
}

// PauseFlux keeps the controllers that StartFlux started for a namespace from doing anything until resume is
// called, which may be called again.
func (c *Cluster) PauseFlux(namespace string) (resume func() error, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	processes := c.fluxes[namespace]
	if processes == nil {
		return nil, fmt.Errorf("no Flux was started for namespace %s", namespace)
	}
	signal := func(s syscall.Signal) (err error) {
		for _, p := range processes {
			err = errors.Join(err, p.cmd.Process.Signal(s))
		}
		return err
	}
	return func() error { return signal(syscall.SIGCONT) }, signal(syscall.SIGSTOP)
}

// prepareFlux installs all definitions: kustomize-controller watches the kinds of source-controller too.
func prepareFlux(ctx context.Context, cluster *Cluster, tools, namespace string) error {
	c, err := client.New(cluster.Config, client.Options{})
	if err != nil {
		return err
	}
	err = c.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return err
	}
	for _, folder := range filepath.SplitList(tools) {
		files, err := filepath.Glob(filepath.Join(folder, "crds", "*.toolkit.fluxcd.io_*.yaml"))
		if err != nil {
			return err
		}
		for _, file := range files {
			if err := define(ctx, c, file); err != nil {
				return fmt.Errorf("%s: %w", file, err)
			}
		}
	}
	return nil
}

// define applies a resource definition and waits until it is served.
func define(ctx context.Context, c client.Client, file string) error {
	data, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	crd := &unstructured.Unstructured{}
	if err := yaml.Unmarshal(data, &crd.Object); err != nil {
		return err
	}
	err = c.Apply(ctx, client.ApplyConfigurationFromUnstructured(crd), client.FieldOwner("wherry-e2e"), client.ForceOwnership)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	for {
		if err := c.Get(ctx, client.ObjectKeyFromObject(crd), crd); err != nil {
			return err
		}
		conditions, _, _ := unstructured.NestedSlice(crd.Object, "status", "conditions")
		for _, item := range conditions {
			if condition, _ := item.(map[string]any); condition["type"] == "Established" && condition["status"] == "True" {
				return nil
			}
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(pollInterval):
		}
	}
}

// launchFlux starts the controllers, or none of them.
func (c *Cluster) launchFlux(ctx context.Context, tools, namespace string) (started []*process, err error) {
	if c.dir == "" { // a cluster that was given
		if c.dir, err = os.MkdirTemp("", "wherry-e2e-"); err != nil {
			return nil, err
		}
	}
	dir, err := os.MkdirTemp(c.dir, "flux-")
	if err != nil {
		return nil, err
	}
	defer func() {
		if err == nil {
			return
		}
		for _, p := range started {
			err = errors.Join(err, p.stop())
		}
	}()
	ports, err := freePorts(7)
	if err != nil {
		return nil, err
	}
	for _, sub := range []string{"storage", "tmp"} {
		if err := os.Mkdir(filepath.Join(dir, sub), 0o755); err != nil {
			return nil, err
		}
	}
	env := []string{
		"KUBECONFIG=" + c.Kubeconfig, "RUNTIME_NAMESPACE=" + namespace, "TUF_ROOT=" + filepath.Join(dir, "tuf"),
		"TMPDIR=" + filepath.Join(dir, "tmp"), // kustomize-controller begins by deleting what others like it have there
	}
	storage := fmt.Sprintf("127.0.0.1:%d", ports[6])
	controllers := [][]string{
		{"source-controller", "--storage-path=" + filepath.Join(dir, "storage"), "--storage-addr=" + storage, "--storage-adv-addr=" + storage},
		{"kustomize-controller", "--requeue-dependency=1s", "--no-remote-bases=true"},
	}
	if _, err := find(tools, HelmController); err == nil { // it is not built here; see "make e2e-helm-controller"
		controllers = append(controllers, []string{HelmController, "--requeue-dependency=1s", "--no-cross-namespace-refs=true"})
	}
	for i, args := range controllers {
		path, err := find(tools, args[0])
		if err != nil {
			return started, err
		}
		metrics, health := ports[2*i], ports[2*i+1]
		p, err := c.place.start(dir, args[0], path, append(args[1:],
			"--watch-all-namespaces=false", "--events-addr=", "--log-level=info",
			fmt.Sprintf("--metrics-addr=127.0.0.1:%d", metrics), fmt.Sprintf("--health-addr=127.0.0.1:%d", health),
		), env...)
		if err != nil {
			return started, err
		}
		p.metrics = loopback("http", metrics) + "/metrics"
		started = append(started, p)
		if err := await(ctx, c.place.client(), loopback("http", health)+"/readyz", p); err != nil {
			return started, err
		}
	}
	return started, nil
}
