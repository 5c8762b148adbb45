package zarftest

import (
	"cmp"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/yaml"
)

// kinds are served by the small API server: enough for packages of ConfigMaps.
var kinds = map[string]struct {
	kind       string
	namespaced bool
}{
	"nodes": {"Node", false}, "namespaces": {"Namespace", false},
	"pods": {"Pod", true}, "secrets": {"Secret", true}, "configmaps": {"ConfigMap", true},
}

// StartAPIServer serves the core kinds that packages of ConfigMaps need, over controller-runtime's fake
// client, which knows server-side apply and who owns which field. There is one node with one pod. It returns
// a kubeconfig. Tests on a real API server are those of "make e2e".
func StartAPIServer(t testing.TB) (kubeconfig string) {
	t.Helper()
	core := runtime.NewScheme() // each client is built with a mapper of all kinds that its scheme knows
	require.NoError(t, corev1.AddToScheme(core))
	c := fake.NewClientBuilder().WithScheme(core).WithReturnManagedFields().WithObjects(
		&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "one"}},
		&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "one"}, Status: corev1.PodStatus{Phase: corev1.PodRunning}},
	).Build()
	server := httptest.NewServer(&apiServer{c, serializer.NewCodecFactory(core).UniversalDeserializer()})
	t.Cleanup(server.Close)
	access := clientcmdapi.NewConfig()
	access.Clusters["small"] = &clientcmdapi.Cluster{Server: server.URL}
	access.Contexts["small"] = &clientcmdapi.Context{Cluster: "small"}
	access.CurrentContext = "small"
	kubeconfig = filepath.Join(t.TempDir(), "kubeconfig")
	require.NoError(t, clientcmd.WriteToFile(*access, kubeconfig))
	return kubeconfig
}

type apiServer struct {
	client  client.WithWatch
	decoder runtime.Decoder
}

func (s *apiServer) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	answer, err := s.answer(req)
	code := http.StatusOK
	var status apierrors.APIStatus
	if err != nil {
		if answer, code = apierrors.NewInternalError(err).Status(), http.StatusInternalServerError; errors.As(err, &status) {
			said := status.Status()
			answer, code = said, int(said.Code)
		}
		said := answer.(metav1.Status)
		said.TypeMeta = metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}
		answer = said
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(answer) // a client that has gone is no concern here
}

func (s *apiServer) answer(req *http.Request) (any, error) {
	switch req.URL.Path {
	case "/api":
		return metav1.APIVersions{TypeMeta: metav1.TypeMeta{Kind: "APIVersions"}, Versions: []string{"v1"}}, nil
	case "/apis":
		return metav1.APIGroupList{TypeMeta: metav1.TypeMeta{Kind: "APIGroupList", APIVersion: "v1"}, Groups: []metav1.APIGroup{}}, nil
	case "/api/v1":
		list := metav1.APIResourceList{TypeMeta: metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"}, GroupVersion: "v1"}
		for name, k := range kinds {
			list.APIResources = append(list.APIResources, metav1.APIResource{Name: name, Kind: k.kind, Namespaced: k.namespaced, Verbs: metav1.Verbs{"get", "list", "create", "update", "patch", "delete"}})
		}
		return list, nil
	}
	parts := strings.Split(strings.TrimPrefix(req.URL.Path, "/api/v1/"), "/")
	namespace := ""
	if parts[0] == "namespaces" && len(parts) > 2 {
		namespace, parts = parts[1], parts[2:]
	}
	k, ok := kinds[parts[0]]
	if !ok {
		return nil, apierrors.NewNotFound(corev1.Resource(parts[0]), "")
	}
	u := &unstructured.Unstructured{}
	u.SetAPIVersion("v1")
	u.SetKind(k.kind)
	u.SetNamespace(namespace)
	if len(parts) > 1 {
		u.SetName(parts[1])
		return s.one(req, u)
	}
	return s.all(req, u)
}

func (s *apiServer) all(req *http.Request, u *unstructured.Unstructured) (any, error) {
	if req.Method == http.MethodPost {
		if err := s.read(req, u); err != nil {
			return nil, err
		}
		if u.GetName() == "" {
			u.SetName(u.GetGenerateName() + strings.ToLower(cmp.Or(req.Header.Get("X-Name"), "x")))
		}
		return u, s.client.Create(req.Context(), u, client.FieldOwner(req.URL.Query().Get("fieldManager")))
	}
	list := &unstructured.UnstructuredList{}
	list.SetAPIVersion("v1")
	list.SetKind(u.GetKind() + "List")
	selector, err := labels.Parse(req.URL.Query().Get("labelSelector"))
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	if err := s.client.List(req.Context(), list, client.InNamespace(u.GetNamespace()), client.MatchingLabelsSelector{Selector: selector}); err != nil {
		return nil, err
	}
	if phase, ok := strings.CutPrefix(req.URL.Query().Get("fieldSelector"), "status.phase="); ok {
		found := list.Items[:0]
		for _, item := range list.Items {
			if got, _, _ := unstructured.NestedString(item.Object, "status", "phase"); got == phase {
				found = append(found, item)
			}
		}
		list.Items = found
	}
	return list, nil
}

func (s *apiServer) one(req *http.Request, u *unstructured.Unstructured) (any, error) {
	query := req.URL.Query()
	switch req.Method {
	case http.MethodGet:
		return u, s.client.Get(req.Context(), client.ObjectKeyFromObject(u), u)
	case http.MethodPut:
		if err := s.read(req, u); err != nil {
			return nil, err
		}
		return u, s.client.Update(req.Context(), u, client.FieldOwner(query.Get("fieldManager")))
	case http.MethodDelete:
		return metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusSuccess}, s.client.Delete(req.Context(), u)
	}
	if req.Header.Get("Content-Type") != "application/apply-patch+yaml" {
		return nil, apierrors.NewBadRequest("patches of this type are not served")
	}
	if err := s.read(req, u); err != nil {
		return nil, err
	}
	options := []client.ApplyOption{client.FieldOwner(query.Get("fieldManager"))}
	if query.Get("force") == "true" {
		options = append(options, client.ForceOwnership)
	}
	if query.Get("dryRun") == "All" {
		return s.dryRun(req, u, options)
	}
	return u, s.client.Apply(req.Context(), client.ApplyConfigurationFromUnstructured(u), options...)
}

// dryRun applies to a copy of the one object.
func (s *apiServer) dryRun(req *http.Request, u *unstructured.Unstructured, options []client.ApplyOption) (any, error) {
	live := &unstructured.Unstructured{}
	live.SetGroupVersionKind(u.GroupVersionKind())
	copied := fake.NewClientBuilder().WithScheme(s.client.Scheme()).WithReturnManagedFields()
	if err := s.client.Get(req.Context(), client.ObjectKeyFromObject(u), live); err == nil {
		copied = copied.WithObjects(live)
	} else if !apierrors.IsNotFound(err) {
		return nil, err
	}
	return u, copied.Build().Apply(req.Context(), client.ApplyConfigurationFromUnstructured(u), options...)
}

// read takes the object of a request, in whichever of an API server's encodings.
func (s *apiServer) read(req *http.Request, u *unstructured.Unstructured) error {
	body, err := io.ReadAll(req.Body)
	if err != nil {
		return err
	}
	kind, namespace, name := u.GroupVersionKind(), u.GetNamespace(), u.GetName()
	if strings.Contains(req.Header.Get("Content-Type"), "protobuf") {
		object, _, err := s.decoder.Decode(body, nil, nil)
		if err != nil {
			return apierrors.NewBadRequest(err.Error())
		}
		if u.Object, err = runtime.DefaultUnstructuredConverter.ToUnstructured(object); err != nil {
			return err
		}
	} else if err := yaml.Unmarshal(body, &u.Object); err != nil {
		return apierrors.NewBadRequest(err.Error())
	}
	u.SetGroupVersionKind(kind)
	u.SetNamespace(namespace)
	if name != "" {
		u.SetName(name)
	}
	if at := u.GetCreationTimestamp(); at.IsZero() {
		unstructured.RemoveNestedField(u.Object, "metadata", "creationTimestamp")
	}
	return nil
}
