package zarftest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const recordNamespace = "zarf"

// connect waits for the cluster as NewWithWait does: 30 s for a node and a pod that runs.
func (z *standIn) connect(ctx context.Context) (client.Client, error) {
	c, err := z.open()
	for end := time.Now().Add(30 * time.Second); err == nil && time.Now().Before(end); time.Sleep(time.Second) {
		nodes, pods := &corev1.NodeList{}, &corev1.PodList{}
		if c.List(ctx, nodes) != nil || c.List(ctx, pods) != nil {
			continue
		}
		if len(nodes.Items) > 0 && slices.ContainsFunc(pods.Items, func(p corev1.Pod) bool {
			return p.Status.Phase == corev1.PodRunning || p.Status.Phase == corev1.PodSucceeded
		}) {
			return c, nil
		}
	}
	if err == nil {
		err = context.DeadlineExceeded
	}
	return nil, fmt.Errorf("unable to connect to the Kubernetes cluster: %w", err)
}

func (z *standIn) open() (client.Client, error) {
	config, err := clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG"))
	if err != nil {
		return nil, err
	}
	config.QPS = -1
	return client.New(config, client.Options{FieldOwner: fieldManager})
}

func (z *standIn) deploy(source string) error {
	ctx, cancel := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer cancel()
	if z.ordered(Idle) {
		return nil
	}
	f, c, digest, err := z.load(source, false)
	if err != nil {
		return err
	}
	z.log.Info("starting deploy", "package", c.name())
	d := &deployment{standIn: z, files: f, record: record{Name: c.name(), Digest: digest.String(), Data: *c, CLIVersion: "v0.84.0"}}
	for _, comp := range c.Components {
		if !comp.Required {
			continue
		}
		if err := d.component(ctx, comp); err != nil {
			return fmt.Errorf("failed to deploy package: %w", err)
		}
	}
	if len(d.record.Components) == 0 {
		z.log.Warn("no components were selected for deployment")
	}
	return nil
}

// deployment is one run of deploy.
type deployment struct {
	*standIn
	client client.Client // nil until a component needs it
	files  files
	record record
}

func (d *deployment) component(ctx context.Context, comp component) (err error) {
	if d.client == nil && len(comp.Manifests)+len(comp.Images) > 0 {
		d.log.Info("waiting for cluster connection")
		if d.client, err = d.connect(ctx); err != nil {
			return err
		}
	}
	old := d.old(ctx, comp.Name)
	d.record.Components = append(d.record.Components, deployedComponent{Name: comp.Name, Charts: old, Status: "Deploying", Generation: d.record.Generation})
	here := &d.record.Components[len(d.record.Components)-1]
	d.save(ctx)
	d.log.Info("deploying component", "name", comp.Name)
	charts, err := d.install(ctx, comp)
	for _, chart := range charts {
		here.Charts = slices.DeleteFunc(here.Charts, func(c installedChart) bool { return c.Name == chart.Name && c.Namespace == chart.Namespace })
		here.Charts = append(here.Charts, chart)
	}
	if here.Status = "Succeeded"; err != nil {
		here.Status = "Failed"
		d.save(context.WithoutCancel(ctx))
		return fmt.Errorf("unable to deploy component %q: %w", comp.Name, err)
	}
	d.save(ctx)
	return nil
}

// old returns the charts that were installed for a component before, and counts the generation.
func (d *deployment) old(ctx context.Context, component string) []installedChart {
	d.record.Generation = 1
	if d.client == nil {
		return nil
	}
	before, err := readRecord(ctx, d.client, d.record.Name)
	if err != nil {
		return nil
	}
	d.record.Generation = before.Generation + 1
	for _, c := range before.Components {
		if c.Name == component {
			return c.Charts
		}
	}
	return nil
}

func (d *deployment) install(ctx context.Context, comp component) (charts []installedChart, err error) {
	if d.client != nil {
		if err := d.state(ctx); err != nil {
			return nil, err
		}
		d.save(ctx) // before it there may have been no namespace
	}
	for _, a := range comp.Actions.OnDeploy.Before {
		if err := act(ctx, a); err != nil {
			return nil, fmt.Errorf("unable to run component before action: %w", err)
		}
	}
	for _, m := range comp.Manifests {
		rel := helmRelease{namespace: m.Namespace, name: releaseName(d.record.Name, comp.Name, m.Name)}
		if rel.namespace == "" {
			rel.namespace = "default"
		}
		var text strings.Builder
		for i := range m.Files {
			fmt.Fprintf(&text, "---\n%s\n", d.files[fmt.Sprintf("components/%s/manifests/%s-%d.yaml", comp.Name, m.Name, i)])
		}
		d.log.Info("processing Helm chart", "name", "raw-"+d.record.Name+"-"+comp.Name+"-"+m.Name, "source", "Zarf-generated")
		h := &helm{standIn: d.standIn, client: d.client, release: rel, pkg: d.record.Name}
		chart := installedChart{Namespace: rel.namespace, Name: rel.name, Status: "Succeeded"}
		if err := h.upgrade(ctx, text.String()); err != nil {
			chart.Status = "Failed"
			return append(charts, chart), err
		}
		charts = append(charts, chart)
	}
	return charts, nil
}

// act runs an action as Zarf does, by a shell.
func act(ctx context.Context, a action) error {
	cmd := exec.CommandContext(ctx, "sh", "-c", a.Command)
	cmd.Stderr = os.Stderr
	return cmd.Run()
}

// state is setupState: images need what "zarf init" has left.
func (d *deployment) state(ctx context.Context) error {
	err := d.client.Get(ctx, types.NamespacedName{Namespace: recordNamespace, Name: "zarf-state"}, &corev1.Secret{})
	if err == nil {
		return nil
	}
	if !apierrors.IsNotFound(err) || !d.connected {
		return fmt.Errorf("failed to load the Zarf State from the cluster, has Zarf been initiated: %w", err)
	}
	return ensureNamespace(ctx, d.client, recordNamespace)
}

func ensureNamespace(ctx context.Context, c client.Client, name string) error {
	err := c.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"app.kubernetes.io/managed-by": "zarf"}}})
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}

// save writes the record, and does not say when it cannot, as Zarf does not.
func (d *deployment) save(ctx context.Context) {
	if d.client != nil {
		_ = saveRecord(ctx, d.client, d.record)
	}
}

func saveRecord(ctx context.Context, c client.Client, r record) error {
	secret := &corev1.Secret{}
	secret.Namespace, secret.Name = recordNamespace, "zarf-package-"+r.Name
	err := c.Get(ctx, client.ObjectKeyFromObject(secret), secret)
	secret.Labels = map[string]string{"app.kubernetes.io/managed-by": "zarf", "package-deploy-info": r.Name}
	secret.Data = map[string][]byte{"data": mustJSON(r)}
	if apierrors.IsNotFound(err) {
		return c.Create(ctx, secret)
	}
	if err != nil {
		return err
	}
	return c.Update(ctx, secret)
}

func readRecord(ctx context.Context, c client.Client, name string) (*record, error) {
	secret := &corev1.Secret{}
	if err := c.Get(ctx, types.NamespacedName{Namespace: recordNamespace, Name: "zarf-package-" + name}, secret); err != nil {
		return nil, err
	}
	r := &record{}
	return r, json.Unmarshal(secret.Data["data"], r)
}

// remove removes a package by its name on the cluster, or by its file.
func (z *standIn) remove(source string) error {
	ctx := context.Background()
	if !z.confirm {
		return errors.New("package remove cancelled")
	}
	if strings.HasSuffix(source, ".tar.zst") || filepath.IsAbs(source) || strings.HasPrefix(source, "oci://") {
		_, c, _, err := z.load(source, true)
		if err != nil {
			return fmt.Errorf("unable to load the package: %w", err)
		}
		for _, comp := range slices.Backward(c.Components) {
			if err := onRemove(ctx, comp); err != nil {
				return err
			}
		}
		return nil
	}
	c, err := z.open()
	if err != nil {
		return err
	}
	r, err := readRecord(ctx, c, source)
	if err != nil {
		return fmt.Errorf("unable to load the package: %w", err)
	}
	wanted := strings.Split(z.components, ",")
	for _, d := range slices.Backward(slices.Clone(r.Components)) {
		if z.components != "" && !slices.Contains(wanted, d.Name) {
			continue
		}
		if err := z.removeComponent(ctx, c, r, d); err != nil {
			return err
		}
	}
	if len(r.Components) > 0 {
		return saveRecord(ctx, c, *r)
	}
	z.log.Info("package successfully removed", "name", r.Name)
	return c.Delete(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: recordNamespace, Name: "zarf-package-" + r.Name}})
}

func (z *standIn) removeComponent(ctx context.Context, c client.Client, r *record, d deployedComponent) error {
	for _, comp := range r.Data.Components {
		if comp.Name == d.Name {
			if err := onRemove(ctx, comp); err != nil {
				return err
			}
		}
	}
	for _, chart := range slices.Backward(d.Charts) {
		h := &helm{standIn: z, client: c, release: helmRelease{chart.Namespace, chart.Name}, pkg: r.Name}
		if err := h.uninstall(ctx); err != nil {
			return fmt.Errorf("unable to uninstall the helm chart %s in the namespace %s: %w", chart.Name, chart.Namespace, err)
		}
	}
	r.Components = slices.DeleteFunc(r.Components, func(o deployedComponent) bool { return o.Name == d.Name })
	return nil
}

func onRemove(ctx context.Context, comp component) error {
	for _, a := range comp.Actions.OnRemove.Before {
		if err := act(ctx, a); err != nil {
			return fmt.Errorf("unable to run the before action: %w", err)
		}
	}
	return nil
}

// uninstall is "zarf tools helm uninstall".
func (z *standIn) uninstall(name string) error {
	c, err := z.open()
	if err != nil {
		return err
	}
	return (&helm{standIn: z, client: c, release: helmRelease{z.namespace, name}}).uninstall(context.Background())
}
