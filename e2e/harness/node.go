package harness

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// NodeKey is the key of the label and of the taint that a Node has, both with its name as their value.
const NodeKey = "wherry.dev/e2e"

// Node is a node of a cluster. It gets those pods alone that select its label and tolerate its taint.
type Node struct {
	Name string

	client    kubernetes.Interface
	place     Place
	dir       string
	processes []*process   // in the order of their start
	release   func() error // cleans up after they have ended; may be nil
}

// StartNode adds a node to c and returns when it is ready. Its pods run nowhere: kwok says of them what
// the stages in the named file tell it to. The caller calls Stop.
func (c *Cluster) StartNode(ctx context.Context, name, stages string) (_ *Node, err error) {
	kwok, err := Tool("kwok")
	if err != nil {
		return nil, err
	}
	n, err := c.newNode(name)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, n.Stop(""))
		}
	}()
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{NodeKey: name}},
		Spec:       corev1.NodeSpec{Taints: []corev1.Taint{{Key: NodeKey, Value: name, Effect: corev1.TaintEffectNoSchedule}}},
	}
	if _, err := n.client.CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{}); err != nil {
		return nil, err
	}
	if err := n.run(kwok, "--kubeconfig="+c.Kubeconfig, "--config="+stages, "--manage-single-node="+name); err != nil {
		return nil, err
	}
	return n, n.until(ctx, "is ready", n.ready)
}

func (c *Cluster) newNode(name string) (*Node, error) {
	client, err := kubernetes.NewForConfig(c.Config)
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "wherry-e2e-")
	return &Node{Name: name, client: client, place: c.place, dir: dir}, err
}

func (n *Node) run(path string, args ...string) error {
	p, err := n.place.start(n.dir, filepath.Base(path), path, args)
	if err == nil {
		n.processes = append(n.processes, p)
	}
	return err
}

// Stop waits until the node has no pods left, whose deletion is the caller's to ask for, and removes it.
// Where artifacts is not empty, its logs are kept in that folder.
func (n *Node) Stop(artifacts string) error {
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	errs := []error{n.until(ctx, "has no pods", n.empty)}
	for _, p := range slices.Backward(n.processes) {
		errs = append(errs, p.stop())
		if artifacts != "" {
			errs = append(errs, keep(p.log, artifacts))
		}
	}
	if err := n.client.CoreV1().Nodes().Delete(ctx, n.Name, metav1.DeleteOptions{}); !apierrors.IsNotFound(err) {
		errs = append(errs, err)
	}
	if n.release != nil {
		errs = append(errs, n.release())
	}
	return errors.Join(append(errs, os.RemoveAll(n.dir))...)
}

func (n *Node) ready(ctx context.Context) (bool, error) {
	node, err := n.client.CoreV1().Nodes().Get(ctx, n.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	return err == nil && slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	}), err
}

func (n *Node) empty(ctx context.Context) (bool, error) {
	pods, err := n.client.CoreV1().Pods("").List(ctx, metav1.ListOptions{FieldSelector: "spec.nodeName=" + n.Name})
	return err == nil && len(pods.Items) == 0, err
}

// until polls the API server until it says yes. It gives up with ctx, or when a process has ended.
func (n *Node) until(ctx context.Context, what string, yes func(context.Context) (bool, error)) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	for {
		if ok, err := yes(ctx); ok || err != nil {
			return err
		}
		for _, p := range n.processes {
			select {
			case <-p.ended():
				return p.failure()
			default:
			}
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait until node %s %s: %w", n.Name, what, ctx.Err())
		case <-time.After(pollInterval):
		}
	}
}
