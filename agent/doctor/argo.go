package doctor

import (
	"cmp"
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/wherry-dev/wherry/bundle/diagnosis"
	"github.com/wherry-dev/wherry/reconcilers/argo"
)

// applicationKind is Argo CD's.
var applicationKind = schema.GroupVersionKind{Group: "argoproj.io", Version: "v1alpha1", Kind: "Application"}

// mostApplications bounds how many are looked at for one that Argo CD has seen not long ago.
const mostApplications = 500

// checkArgo checks whether Argo CD is at work, if an assignment is for it and the cluster serves its kinds.
func checkArgo(ctx context.Context, e *examination) diagnosis.Finding {
	if e.served == nil || !e.uses("argo") {
		return diagnosis.Finding{}
	}
	if _, known := e.served.kinds[applicationKind.GroupKind()]; !known {
		return diagnosis.Finding{} // said by another check
	}
	namespace := cmp.Or(e.Adapters.ArgoNamespace, argo.DefaultNamespace)
	config := rest.CopyConfig(e.Kubernetes)
	config.Timeout = checkTime
	c, err := client.New(config, client.Options{})
	if err != nil {
		return diagnosis.Failf("mend the kubeconfig", "%v", err)
	}
	var settings corev1.ConfigMap
	err = c.Get(ctx, types.NamespacedName{Namespace: namespace, Name: argo.SettingsName}, &settings)
	if apierrors.IsNotFound(err) {
		return diagnosis.Failf("install Argo CD, or name its namespace with --argo-namespace", "no Argo CD has its settings, ConfigMap %s, in namespace %s", argo.SettingsName, namespace)
	}
	if err != nil {
		return diagnosis.Skipf("whether Argo CD is at work cannot be seen: %v", err)
	}
	return argoAtWork(ctx, e, c, namespace, argo.Silence(settings.Data, argo.DefaultPoll))
}

// argoAtWork looks for Applications by which to see whether their controller is at work.
func argoAtWork(ctx context.Context, e *examination, c client.Client, namespace string, silence time.Duration) diagnosis.Finding {
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(applicationKind)
	if err := c.List(ctx, list, client.InNamespace(namespace), client.Limit(mostApplications)); err != nil {
		return diagnosis.Skipf("whether Argo CD is at work cannot be seen: %v", err)
	}
	return judgeArgo(e, namespace, list.Items, silence)
}

func judgeArgo(e *examination, namespace string, applications []unstructured.Unstructured, silence time.Duration) diagnosis.Finding {
	var newest time.Time
	for _, o := range applications {
		text, _, _ := unstructured.NestedString(o.Object, "status", "reconciledAt")
		if at, err := time.Parse(time.RFC3339, text); err == nil && at.After(newest) {
			newest = at
		}
	}
	switch {
	case len(applications) == 0:
		return diagnosis.Okf("Argo CD is installed in namespace %s; it has no Application yet by which its controller could be judged", namespace)
	case silence > 0 && e.Now().Sub(newest) > silence:
		return diagnosis.Failf("see why its application-controller does not run, such as with \"kubectl -n "+namespace+" get pods -l app.kubernetes.io/name=argocd-application-controller\"",
			"Argo CD has looked at none of the %d Applications in namespace %s for %s", len(applications), namespace, silence)
	default:
		return diagnosis.Okf("Argo CD is at work in namespace %s", namespace)
	}
}
