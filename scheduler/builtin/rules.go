package builtin

import (
	"encoding/base64"
	"fmt"
	"reflect"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
)

// maxAnnotationBytes bounds the keys and values of all annotations of an object; see ValidateAnnotationsSize of
// k8s.io/apimachinery.
const maxAnnotationBytes = 256 << 10

func checkAnnotations(object map[string]any) []Mistake {
	metadata, _ := object["metadata"].(map[string]any)
	annotations, _ := metadata["annotations"].(map[string]any)
	size := 0
	for key, value := range annotations {
		text, _ := value.(string)
		size += len(key) + len(text)
	}
	if size > maxAnnotationBytes {
		return []Mistake{{Field: "metadata.annotations", Text: fmt.Sprintf("have %d bytes, at most %d are permitted", size, maxAnnotationBytes)}}
	}
	return nil
}

// ruling applies the rules of the API server's validation to one object. They are about values that are there: what is
// missing may have a default, or come from an admission webhook.
type ruling struct{ mistakes []Mistake }

func (r *ruling) report(field, format string, args ...any) {
	r.mistakes = append(r.mistakes, Mistake{Field: field, Text: fmt.Sprintf(format, args...)})
}

// ruleOf returns the rules for objects of a type; nil if there are none.
func ruleOf(t reflect.Type) func(r *ruling, object any) {
	if _, known := ruled[t]; !known {
		return nil
	}
	return (*ruling).object
}

// ruled are the types with rules.
var ruled = map[reflect.Type]struct{}{
	reflect.TypeFor[corev1.Secret](): {}, reflect.TypeFor[corev1.Service](): {}, reflect.TypeFor[corev1.Pod](): {}, reflect.TypeFor[corev1.ReplicationController](): {},
	reflect.TypeFor[appsv1.Deployment](): {}, reflect.TypeFor[appsv1.ReplicaSet](): {}, reflect.TypeFor[appsv1.StatefulSet](): {}, reflect.TypeFor[appsv1.DaemonSet](): {},
	reflect.TypeFor[batchv1.Job](): {}, reflect.TypeFor[batchv1.CronJob](): {},
}

func (r *ruling) object(object any) {
	switch o := object.(type) {
	case *corev1.Secret:
		r.secret(o)
	case *corev1.Service:
		r.service(o)
	case *corev1.Pod:
		r.pod("spec", &o.Spec)
	case *corev1.ReplicationController:
		if o.Spec.Template != nil {
			r.pod("spec.template.spec", &o.Spec.Template.Spec)
		}
	case *appsv1.Deployment:
		r.workload(o.Spec.Replicas, o.Spec.Selector, &o.Spec.Template)
	case *appsv1.ReplicaSet:
		r.workload(o.Spec.Replicas, o.Spec.Selector, &o.Spec.Template)
	case *appsv1.StatefulSet:
		r.workload(o.Spec.Replicas, o.Spec.Selector, &o.Spec.Template)
	case *appsv1.DaemonSet:
		r.workload(nil, o.Spec.Selector, &o.Spec.Template)
	case *batchv1.Job:
		r.job("spec", &o.Spec)
	case *batchv1.CronJob:
		r.job("spec.jobTemplate.spec", &o.Spec.JobTemplate.Spec)
	}
}

func (r *ruling) configMap(known map[string]any) {
	data, _ := known["data"].(map[string]any)
	binary, _ := known["binaryData"].(map[string]any)
	size := 0
	for key, value := range data {
		text, _ := value.(string)
		size += len(text)
		r.key("data", key)
		if _, twice := binary[key]; twice {
			r.report("data."+key, "is in binaryData, too")
		}
	}
	for key, value := range binary {
		text, _ := value.(string)
		bytes, _ := base64.StdEncoding.DecodeString(text) // which the reader has checked
		size += len(bytes)
		r.key("binaryData", key)
	}
	slices.SortFunc(r.mistakes, func(a, b Mistake) int { return strings.Compare(a.String(), b.String()) })
	r.size(size)
}

func (r *ruling) secret(o *corev1.Secret) {
	size := 0
	for _, key := range sets.List(sets.KeySet(o.StringData)) { // which take the place of data
		size += len(o.StringData[key])
		r.key("stringData", key)
	}
	for _, key := range sets.List(sets.KeySet(o.Data)) {
		if _, replaced := o.StringData[key]; !replaced {
			size += len(o.Data[key])
		}
		r.key("data", key)
	}
	r.size(size)
}

func (r *ruling) key(field, key string) {
	if isPlainKey(key) { // the rule is a slow regular expression
		return
	}
	if problems := validation.IsConfigMapKey(key); len(problems) > 0 {
		r.report(field, "cannot have the key %q: %s", key, problems[0])
	}
}

func isPlainKey(key string) bool {
	return len(key) > 0 && len(key) < 64 && key[0] != '.' && strings.Trim(key, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._") == ""
}

func (r *ruling) size(size int) {
	if size > corev1.MaxSecretSize {
		r.report("data", "has %d bytes, at most %d are permitted", size, corev1.MaxSecretSize)
	}
}

func (r *ruling) service(o *corev1.Service) {
	names := map[string]bool{}
	for i, p := range o.Spec.Ports {
		field := fmt.Sprintf("spec.ports[%d]", i)
		switch {
		case p.Name == "" && len(o.Spec.Ports) > 1:
			r.report(field, "has no name, which a Service with several ports requires")
		case names[p.Name]:
			r.report(field+".name", "is also the name of another port")
		}
		names[p.Name] = true
		r.port(field+".port", p.Port)
		r.port(field+".nodePort", p.NodePort)
		r.oneOf(field+".protocol", string(p.Protocol), protocols)
	}
	r.oneOf("spec.type", string(o.Spec.Type), []string{"ClusterIP", "NodePort", "LoadBalancer", "ExternalName"})
	r.oneOf("spec.sessionAffinity", string(o.Spec.SessionAffinity), []string{"ClientIP", "None"})
}

var protocols = []string{"TCP", "UDP", "SCTP"}

func (r *ruling) port(field string, port int32) {
	if port < 0 || port > 65535 {
		r.report(field, "must be a port, from 1 to 65535, and is %d", port)
	}
}

// oneOf checks a text that is there.
func (r *ruling) oneOf(field, value string, known []string) {
	if value != "" && !slices.Contains(known, value) {
		r.report(field, "cannot be %q (known: %s)", value, strings.Join(known, ", "))
	}
}

func (r *ruling) workload(replicas *int32, selector *metav1.LabelSelector, template *corev1.PodTemplateSpec) {
	if replicas != nil && *replicas < 0 {
		r.report("spec.replicas", "is below zero")
	}
	if selector != nil && len(template.Labels) > 0 {
		if matches, err := metav1.LabelSelectorAsSelector(selector); err != nil {
			r.report("spec.selector", "is not valid: %v", err)
		} else if !matches.Matches(labels.Set(template.Labels)) {
			r.report("spec.selector", "does not match the labels of spec.template")
		}
	}
	r.oneOf("spec.template.spec.restartPolicy", string(template.Spec.RestartPolicy), []string{"Always"})
	r.pod("spec.template.spec", &template.Spec)
}

func (r *ruling) job(field string, spec *batchv1.JobSpec) {
	r.oneOf(field+".template.spec.restartPolicy", string(spec.Template.Spec.RestartPolicy), []string{"OnFailure", "Never"})
	r.pod(field+".template.spec", &spec.Template.Spec)
}

func (r *ruling) pod(field string, spec *corev1.PodSpec) {
	volumes := map[string]bool{}
	for i, v := range spec.Volumes {
		if volumes[v.Name] = true; v.Name != "" {
			r.label(fmt.Sprintf("%s.volumes[%d].name", field, i), v.Name)
		}
	}
	names := map[string]bool{}
	for _, list := range []struct {
		name       string
		containers []corev1.Container
	}{{"initContainers", spec.InitContainers}, {"containers", spec.Containers}} {
		for i := range list.containers {
			c, at := &list.containers[i], fmt.Sprintf("%s.%s[%d]", field, list.name, i)
			if c.Name != "" {
				r.label(at+".name", c.Name)
				if names[c.Name] {
					r.report(at+".name", "is also the name of another container")
				}
				names[c.Name] = true
			}
			r.container(at, c, volumes, spec)
		}
	}
	r.oneOf(field+".restartPolicy", string(spec.RestartPolicy), []string{"Always", "OnFailure", "Never"})
	r.oneOf(field+".dnsPolicy", string(spec.DNSPolicy), []string{"ClusterFirst", "ClusterFirstWithHostNet", "Default", "None"})
}

func (r *ruling) label(field, name string) {
	if problems := validation.IsDNS1123Label(name); len(problems) > 0 {
		r.report(field, "cannot be %q: %s", name, problems[0])
	}
}

func (r *ruling) container(field string, c *corev1.Container, volumes map[string]bool, spec *corev1.PodSpec) {
	ports := map[string]bool{}
	for i, p := range c.Ports {
		at := fmt.Sprintf("%s.ports[%d]", field, i)
		if p.Name != "" {
			if problems := validation.IsValidPortName(p.Name); len(problems) > 0 {
				r.report(at+".name", "cannot be %q: %s", p.Name, problems[0])
			}
			if ports[p.Name] {
				r.report(at+".name", "is also the name of another port")
			}
			ports[p.Name] = true
		}
		r.port(at+".containerPort", p.ContainerPort)
		r.port(at+".hostPort", p.HostPort)
		r.oneOf(at+".protocol", string(p.Protocol), protocols)
		if spec.HostNetwork && p.HostPort != 0 && p.HostPort != p.ContainerPort {
			r.report(at+".hostPort", "must be the containerPort where hostNetwork is true")
		}
	}
	for i, e := range c.Env {
		if e.Name == "" {
			r.report(fmt.Sprintf("%s.env[%d]", field, i), "has no name")
		}
		if e.Value != "" && e.ValueFrom != nil {
			r.report(fmt.Sprintf("%s.env[%d]", field, i), "has both value and valueFrom")
		}
	}
	mounts := map[string]bool{}
	for i, m := range c.VolumeMounts {
		at := fmt.Sprintf("%s.volumeMounts[%d]", field, i)
		if m.Name != "" && !volumes[m.Name] {
			r.report(at+".name", "names the volume %q, which the pod does not have", m.Name)
		}
		if m.MountPath != "" && mounts[m.MountPath] {
			r.report(at+".mountPath", "is also the path of another mount")
		}
		mounts[m.MountPath] = true
	}
	for name, request := range c.Resources.Requests {
		if limit, limited := c.Resources.Limits[name]; limited && request.Cmp(limit) > 0 {
			r.report(field+".resources.requests."+string(name), "is more than the limit")
		}
	}
	r.oneOf(field+".imagePullPolicy", string(c.ImagePullPolicy), []string{"Always", "IfNotPresent", "Never"})
}
