// Package harness starts the servers for end-to-end tests: a real API server with its store and
// controllers, and a registry, as processes of this machine on loopback. No container engine is needed.
//
// A package of tests begins with Main, which starts one cluster for all its tests:
//
//	func TestMain(m *testing.M) { os.Exit(harness.Main(m, &cluster)) }
//
// Start does the same for other callers. Where WHERRY_E2E_KUBECONFIG names a kubeconfig, that cluster is
// used and left running; where WHERRY_E2E_REGISTRY names a registry, so is that one. Otherwise the
// programs are taken from the folders in WHERRY_E2E_TOOLS, which "make e2e" builds and sets.
//
// The cluster begins without nodes: pods stay pending until StartNode has added one that fits. Namespaces
// are finalised, owners are garbage collected, Deployments are observed, claims are bound to volumes that
// are there, and pods have their service account's token. Its admin token and its data are for tests alone.
package harness

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// The environment that the harness reads.
const (
	KubeconfigEnv = "WHERRY_E2E_KUBECONFIG" // the absolute path of a kubeconfig to use instead of starting a cluster
	RegistryEnv   = "WHERRY_E2E_REGISTRY"   // HOST:PORT[/PREFIX] of a registry to use instead of starting one
	ToolsEnv      = "WHERRY_E2E_TOOLS"      // the folders with etcd, kube-apiserver and the others, as PATH lists them
	ProgramsEnv   = "WHERRY_E2E_PROGRAMS"   // the folder with wherry and wherry-agent
	ArtifactsEnv  = "WHERRY_E2E_ARTIFACTS"  // the folder that keeps logs of a failed run
)

// startTimeout bounds the start of one process until it answers, and probeTimeout one look at it. A cold disk on a
// busy machine takes far longer than the usual 3 seconds.
const (
	startTimeout = 5 * time.Minute
	probeTimeout = 20 * time.Second
)

// Cluster is an API server that answers.
type Cluster struct {
	// Kubeconfig is the path of a file with an administrator's access. It goes with Stop.
	Kubeconfig string
	// Config is the same access for client-go.
	Config *rest.Config

	place     Place
	dir       string     // holds everything; empty for a cluster that was given
	processes []*process // in the order of their start

	mu     sync.Mutex            // guards what follows
	fluxes map[string][]*process // Flux, by the namespace that it is at work in
	argos  map[string]*Argo      // Argo CD, by the same
}

// Start brings a cluster up, or connects to the one that WHERRY_E2E_KUBECONFIG names, and returns when
// it is ready. The caller calls Stop. The processes outlive ctx, which bounds the start alone.
func Start(ctx context.Context) (*Cluster, error) {
	if path := os.Getenv(KubeconfigEnv); path != "" {
		return connect(ctx, path)
	}
	if os.Getenv(ToolsEnv) == "" {
		return nil, fmt.Errorf("neither %s nor %s is set: run \"make e2e\"", KubeconfigEnv, ToolsEnv)
	}
	return StartIn(ctx, Place{})
}

// StartIn is Start for a cluster of a test's own, all of whose processes run in a place. Config reaches it from the tests;
// Kubeconfig is for programs that run there.
func StartIn(ctx context.Context, place Place) (*Cluster, error) {
	tools := os.Getenv(ToolsEnv)
	return retry(func() (*Cluster, error) { return launch(ctx, tools, place) })
}

// retry begins again where a port that was free a moment ago was taken when its server started.
func retry[T any](launch func() (T, error)) (started T, err error) {
	const attempts = 3
	for range attempts {
		if started, err = launch(); !errors.Is(err, errPortTaken) {
			break
		}
	}
	return started, err
}

func connect(ctx context.Context, path string) (*Cluster, error) {
	if !filepath.IsAbs(path) {
		return nil, fmt.Errorf("%s: %s is not absolute, and tests run in their own folders", KubeconfigEnv, path)
	}
	config, err := clientcmd.BuildConfigFromFlags("", path)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", KubeconfigEnv, err)
	}
	if err := awaitReady(ctx, config, nil); err != nil {
		return nil, fmt.Errorf("%s %s: %w", KubeconfigEnv, path, err)
	}
	return &Cluster{Kubeconfig: path, Config: config}, nil
}

func launch(ctx context.Context, tools string, place Place) (_ *Cluster, err error) {
	dir, err := os.MkdirTemp("", "wherry-e2e-")
	if err != nil {
		return nil, err
	}
	c := &Cluster{dir: dir, place: place, Kubeconfig: filepath.Join(dir, "kubeconfig")}
	defer func() {
		if err != nil {
			err = errors.Join(err, c.Stop(""))
		}
	}()
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	store, err := c.startStore(ctx, tools)
	if err != nil {
		return nil, err
	}
	if err := c.startAPIServer(ctx, tools, store); err != nil {
		return nil, err
	}
	if err := c.startControllers(ctx, tools); err != nil {
		return nil, err
	}
	return c, c.startScheduler(ctx, tools)
}

// Stop ends what Start began, last started first. Where artifacts is not empty, the processes' logs are
// kept in that folder. A cluster that was given is left alone.
func (c *Cluster) Stop(artifacts string) error {
	var errs []error
	for i := len(c.processes) - 1; i >= 0; i-- {
		errs = append(errs, c.processes[i].stop())
		if artifacts != "" {
			errs = append(errs, keep(c.processes[i].log, artifacts))
		}
	}
	c.processes = nil
	if c.dir != "" {
		errs = append(errs, os.RemoveAll(c.dir))
	}
	return errors.Join(errs...)
}

func keep(log, artifacts string) error {
	if err := os.MkdirAll(artifacts, 0o755); err != nil {
		return err
	}
	data, err := os.ReadFile(log)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(artifacts, filepath.Base(log)), data, 0o644)
}

// awaitReady waits until the API server of config says that it is ready, or until p has ended.
func awaitReady(ctx context.Context, config *rest.Config, p *process) error {
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return err
	}
	client.Timeout = probeTimeout
	return await(ctx, client, config.Host+"/readyz", p)
}

// await polls url until it answers 200. It gives up with ctx or when p, which may be nil, has ended.
func await(ctx context.Context, client *http.Client, url string, p *process) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	for {
		err := probe(ctx, client, url)
		if err == nil {
			return nil
		}
		select {
		case <-p.ended():
			return p.failure()
		case <-ctx.Done():
			return fmt.Errorf("wait for %s: %w", url, err)
		case <-time.After(pollInterval):
		}
	}
}

func probe(ctx context.Context, client *http.Client, url string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, 4<<10))
	if err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", resp.Status, body)
	}
	return nil
}
