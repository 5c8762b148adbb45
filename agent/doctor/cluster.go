package doctor

import (
	"context"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"

	"github.com/wherry-dev/wherry/bundle/diagnosis"
)

// maxNamespaces bounds for how many namespaces permissions are asked one by one.
const maxNamespaces = 50

// served are the kinds that a cluster serves.
type served struct {
	kinds map[schema.GroupKind]resource
}

// resource is how one kind is served.
type resource struct {
	name       string // plural, as permissions name it
	namespaced bool
	versions   []string
}

func checkCluster(ctx context.Context, e *examination) diagnosis.Finding {
	if e.Kubernetes == nil {
		return diagnosis.Skipf("no cluster is configured")
	}
	config := rest.CopyConfig(e.Kubernetes)
	config.Timeout = checkTime
	d, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return diagnosis.Failf("mend the kubeconfig", "%v", err)
	}
	version, err := d.ServerVersionWithContext(ctx)
	if err == nil {
		e.served, err = discover(ctx, d)
	}
	switch {
	case apierrors.IsUnauthorized(err):
		return diagnosis.Failf("give the agent a token or a certificate that is valid", "%s: %v", config.Host, err)
	case err != nil:
		return diagnosis.Failf("is this the API server's address, and is it running?", "%s: %v", config.Host, err)
	default:
		return diagnosis.Okf("%s answers, version %s", config.Host, version.GitVersion)
	}
}

// discover lists what the cluster serves. Groups whose own server is down are left out.
func discover(ctx context.Context, d *discovery.DiscoveryClient) (*served, error) {
	_, lists, err := d.ServerGroupsAndResourcesWithContext(ctx)
	if err != nil && !discovery.IsGroupDiscoveryFailedError(err) {
		return nil, err
	}
	s := &served{kinds: map[schema.GroupKind]resource{}}
	for _, list := range lists {
		gv, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			return nil, err
		}
		for _, r := range list.APIResources {
			if strings.Contains(r.Name, "/") {
				continue // a part of another
			}
			kind := schema.GroupKind{Group: gv.Group, Kind: r.Kind}
			known := s.kinds[kind]
			s.kinds[kind] = resource{r.Name, r.Namespaced, append(known.versions, gv.Version)}
		}
	}
	return s, nil
}

func checkKinds(_ context.Context, e *examination) diagnosis.Finding {
	if e.served == nil || e.content == nil {
		return diagnosis.Skipf("%s", e.whyNot())
	}
	var engines, missing, remedies []string
	objects, assignments := e.onCluster()
	for _, o := range objects {
		r, known := e.served.kinds[o.Kind.GroupKind()]
		name := fmt.Sprintf("%s of %s", o.Kind.Kind, o.Kind.GroupVersion())
		switch {
		case e.content.Brought[o.Kind]:
		case !known:
			missing, remedies = append(missing, name), append(remedies, installRemedy(o.Kind.Group))
		case !slices.Contains(r.versions, o.Kind.Version) && !isFlux(o.Kind.Group):
			missing = append(missing, fmt.Sprintf("%s (served: %s)", name, strings.Join(r.versions, ", ")))
			remedies = append(remedies, "write the templates for a version that is served")
		case isFlux(o.Kind.Group):
			engines = append(engines, fmt.Sprintf("%s as %s", o.Kind.Kind, strings.Join(r.versions, ", ")))
		}
	}
	if len(missing) > 0 {
		return diagnosis.Failf(strings.Join(unique(remedies), "; "), "the cluster does not serve %s", strings.Join(unique(missing), "; "))
	}
	message := fmt.Sprintf("the cluster serves all that %d assignments have", assignments)
	if len(engines) > 0 {
		message += "; Flux serves " + strings.Join(unique(engines), ", ")
	}
	return diagnosis.Okf("%s", message)
}

func (e *examination) whyNot() string {
	switch {
	case e.Kubernetes == nil:
		return "no cluster is configured"
	case e.served == nil:
		return "no cluster answers"
	}
	return "no release could be read"
}

// isFlux is true for the groups of Flux, whose adapter applies an object as the version that is served.
func isFlux(group string) bool { return strings.HasSuffix(group, ".toolkit.fluxcd.io") }

func installRemedy(group string) string {
	switch {
	case isFlux(group):
		return `install Flux and its CustomResourceDefinitions, such as with "flux install"`
	case group == "argoproj.io":
		return "install Argo CD and its CustomResourceDefinitions"
	}
	return fmt.Sprintf("install what defines the kinds of %s", group)
}

func unique(s []string) []string {
	slices.Sort(s)
	return slices.Compact(s)
}
