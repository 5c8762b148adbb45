package zarf

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/wherry-dev/wherry/reconcilers"
)

const (
	// namespace has Zarf's records.
	namespace = "zarf"
	// stateSecret is left by "zarf init".
	stateSecret = "zarf-state"
	// recordLabel is on the Secrets of deployed packages; its value is the package's name.
	recordLabel = "package-deploy-info"
)

// deployed is Zarf's record of a package, with the fields of its type DeployedPackage that this package needs.
type deployed struct {
	Name string `json:"name"`
	Data struct {
		Metadata struct {
			Checksum    string            `json:"aggregateChecksum"`
			Annotations map[string]string `json:"annotations"`
		} `json:"metadata"`
		Components []component `json:"components"`
	} `json:"data"`
	Components []deployedComponent `json:"deployedComponents"`
}

type deployedComponent struct {
	Name   string           `json:"name"`
	Status string           `json:"status"` // Deploying, Succeeded, Failed or Removing
	Charts []installedChart `json:"installedCharts"`
}

type installedChart struct {
	Namespace string `json:"namespace"`
	Name      string `json:"chartName"`
}

// readDeployed returns Zarf's record of a package, or nil if there is none.
func readDeployed(ctx context.Context, c client.Client, name string) (*deployed, error) {
	secret := &corev1.Secret{}
	err := c.Get(ctx, types.NamespacedName{Namespace: namespace, Name: "zarf-package-" + name}, secret)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return parseDeployed(secret)
}

func parseDeployed(secret *corev1.Secret) (*deployed, error) {
	d := &deployed{}
	if err := json.Unmarshal(secret.Data["data"], d); err != nil {
		return nil, fmt.Errorf("secret %s/%s is not a record of Zarf's: %w", secret.Namespace, secret.Name, err)
	}
	return d, nil
}

// findDeployed returns the names of the deployed packages that were made for an assignment.
func findDeployed(ctx context.Context, c client.Client, assignment string) ([]string, error) {
	list := &corev1.SecretList{}
	if err := c.List(ctx, list, client.InNamespace(namespace), client.HasLabels{recordLabel}); err != nil {
		return nil, err
	}
	var names []string
	for _, secret := range list.Items {
		d, err := parseDeployed(&secret)
		if err == nil && d.Data.Metadata.Annotations[AssignmentAnnotation] == assignment {
			names = append(names, d.Name)
		}
	}
	slices.Sort(names)
	return names, nil
}

// holds reports whether the record is of exactly this package of this assignment.
func (d *deployed) holds(def *definition, a reconcilers.Assignment) bool {
	if def.Package != "" {
		return def.Checksum != "" && d.Data.Metadata.Checksum == def.Checksum
	}
	return d.owner() == a.Name && d.Data.Metadata.Annotations[ContentAnnotation] == a.Files().String()
}

// owner returns the assignment that the package was made for; empty if no agent made it.
func (d *deployed) owner() string { return d.Data.Metadata.Annotations[AssignmentAnnotation] }

// incomplete returns the name of a selected component that has not succeeded, or "" if all have.
func (d *deployed) incomplete(def *definition) string {
	status := map[string]string{}
	for _, c := range d.Components {
		status[c.Name] = c.Status
	}
	for _, c := range def.selected() {
		if s := status[c.Name]; s != "Succeeded" {
			if s == "" {
				s = "not deployed"
			}
			return fmt.Sprintf("component %s of package %s is %s", c.Name, d.Name, s)
		}
	}
	return ""
}

// ready returns an error if the cluster lacks a requirement without which Zarf would fail, or wait in vain.
func ready(ctx context.Context, c client.Client, def *definition) error {
	if err := checkNodeAndPod(ctx, c); err != nil {
		return err
	}
	if def.needsInit() {
		if err := checkInitialized(ctx, c); err != nil {
			return err
		}
	}
	spaces := []string{namespace}
	for _, comp := range def.selected() {
		for _, rel := range releases(def.Name, comp) {
			spaces = append(spaces, rel.namespace)
		}
	}
	slices.Sort(spaces)
	for _, name := range slices.Compact(spaces) {
		ns := &corev1.Namespace{}
		err := c.Get(ctx, types.NamespacedName{Name: name}, ns)
		switch {
		case apierrors.IsNotFound(err): // Zarf makes it
		case err != nil:
			return err
		case ns.DeletionTimestamp != nil:
			return waiting(NamespaceTerminating, "namespace %s is being deleted: it has to be gone before anything can be deployed into it", name)
		}
	}
	return nil
}

// CheckCluster returns an error if a cluster lacks a requirement of Zarf, and a remedy. Set images if the packages have
// images or repositories, which need "zarf init".
func CheckCluster(ctx context.Context, config *rest.Config, images bool) (remedy string, err error) {
	_, c, err := connect(config)
	if err == nil {
		err = checkNodeAndPod(ctx, c)
	}
	if err == nil && images {
		err = checkInitialized(ctx, c)
	}
	if err == nil {
		return "", nil
	}
	switch reason := classify(err).Reason; {
	case reason == NoNodeOrPod:
		return "let a node join, and mend what keeps the pods from running: any one will do", err
	case reason == NotInitialized:
		return `run "zarf init" on the cluster`, err
	case reason == Forbidden:
		return "let the agent list nodes and pods, and read Secrets of the namespace zarf", err
	}
	return "is this the API server's address, and is it running?", err
}

// checkNodeAndPod makes Zarf's own check beforehand, since that takes 30 s to fail and names no cause.
func checkNodeAndPod(ctx context.Context, c client.Client) error {
	nodes := &corev1.NodeList{}
	if err := c.List(ctx, nodes, client.Limit(1)); err != nil {
		return err
	}
	if len(nodes.Items) == 0 {
		return waiting(NoNodeOrPod, "the cluster has no node, and zarf deploys nothing before there is one: let a node join")
	}
	for _, phase := range []corev1.PodPhase{corev1.PodRunning, corev1.PodSucceeded} {
		pods := &corev1.PodList{}
		if err := c.List(ctx, pods, client.Limit(1), client.MatchingFields{"status.phase": string(phase)}); err != nil {
			return err
		}
		if len(pods.Items) > 0 {
			return nil
		}
	}
	return waiting(NoNodeOrPod, "no pod of the cluster is Running or Succeeded, and zarf deploys nothing before there is one: mend what keeps the pods from running, or start any pod")
}

func checkInitialized(ctx context.Context, c client.Client) error {
	err := c.Get(ctx, types.NamespacedName{Namespace: namespace, Name: stateSecret}, &corev1.Secret{})
	if apierrors.IsNotFound(err) {
		return failure(NotInitialized, `the package brings images or repositories, and the cluster has no registry of Zarf's to take them: run "zarf init" on it`)
	}
	return err
}
