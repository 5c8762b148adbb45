package kustomization

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"sigs.k8s.io/kustomize/api/types"
)

// Overlay has fields that an Application sets beside a kustomization. They change the kustomization of the folder itself, as Argo CD
// does; they are no further layer on top of it.
type Overlay struct {
	// Namespace replaces the kustomization's namespace.
	Namespace string
	// NamePrefix and NameSuffix replace those of the kustomization.
	NamePrefix, NameSuffix string
	// Labels are added to those of the kustomization.
	Labels []types.Label
	// Annotations are added to commonAnnotations, and win over them.
	Annotations map[string]string
	// Images and Replicas replace the entries of the same name, and are added after the others.
	Images   []types.Image
	Replicas []types.Replica
	// Patches are added after those of the kustomization. Their paths are relative to the folder.
	Patches []types.Patch
	// Components are folders, relative to the kustomization's, that are added after its own.
	Components []string
}

func union(under, over map[string]string) map[string]string {
	all := make(map[string]string, len(under)+len(over))
	maps.Copy(all, under)
	maps.Copy(all, over)
	return all
}

func (o *Overlay) apply(k *types.Kustomization) {
	for _, set := range []struct {
		to   *string
		from string
	}{{&k.Namespace, o.Namespace}, {&k.NamePrefix, o.NamePrefix}, {&k.NameSuffix, o.NameSuffix}} {
		if set.from != "" {
			*set.to = set.from
		}
	}
	k.Labels = append(k.Labels, o.Labels...)
	if len(o.Annotations) > 0 {
		k.CommonAnnotations = union(k.CommonAnnotations, o.Annotations)
	}
	for _, image := range o.Images {
		k.Images = replaced(k.Images, image, func(i types.Image) bool { return i.Name == image.Name })
	}
	for _, replica := range o.Replicas {
		k.Replicas = replaced(k.Replicas, replica, func(r types.Replica) bool { return r.Name == replica.Name })
	}
	k.Patches = append(k.Patches, o.Patches...)
	for _, component := range o.Components {
		if !slices.Contains(k.Components, component) {
			k.Components = append(k.Components, component)
		}
	}
}

// replaced returns list with item in place of the one that is the same, or at the end.
func replaced[T any](list []T, item T, same func(T) bool) []T {
	list = slices.Clone(list)
	if i := slices.IndexFunc(list, same); i >= 0 {
		list[i] = item
		return list
	}
	return append(list, item)
}

// ArgoOverlay returns the overlay that the field kustomize of an Application's source, in JSON, asks for. A field that it does not
// know is an error, and so are those that ask Argo CD for what only it has: version, kubeVersion, apiVersions and
// commonAnnotationsEnvsubst.
func ArgoOverlay(source []byte) (Overlay, error) {
	var s struct {
		NamePrefix, NameSuffix, Namespace         string
		Images                                    []string
		CommonLabels, CommonAnnotations           map[string]string
		ForceCommonLabels, ForceCommonAnnotations bool
		LabelWithoutSelector                      bool
		LabelIncludeTemplates                     bool
		Replicas                                  []struct {
			Name  string
			Count json.Number
		}
		Patches    []types.Patch
		Components []string
	}
	d := json.NewDecoder(bytes.NewReader(source))
	d.DisallowUnknownFields()
	if err := d.Decode(&s); err != nil {
		return Overlay{}, fmt.Errorf("kustomize: %s", strings.TrimPrefix(err.Error(), "json: "))
	}
	o := Overlay{
		Namespace: s.Namespace, NamePrefix: s.NamePrefix, NameSuffix: s.NameSuffix,
		Annotations: s.CommonAnnotations, Patches: s.Patches, Components: s.Components,
	}
	if len(s.CommonLabels) > 0 {
		o.Labels = []types.Label{{Pairs: s.CommonLabels, IncludeSelectors: !s.LabelWithoutSelector, IncludeTemplates: s.LabelWithoutSelector && s.LabelIncludeTemplates}}
	}
	for _, text := range s.Images {
		image, err := parseImage(text)
		if err != nil {
			return Overlay{}, err
		}
		o.Images = append(o.Images, image)
	}
	for _, r := range s.Replicas {
		count, err := r.Count.Int64()
		if err != nil || count < 0 {
			return Overlay{}, fmt.Errorf("kustomize: replicas of %q: the count must be a whole number", r.Name)
		}
		o.Replicas = append(o.Replicas, types.Replica{Name: r.Name, Count: count})
	}
	return o, nil
}

// parseImage reads an image as "kustomize edit set image" does: name=newname:tag, name:tag, name@digest.
func parseImage(text string) (types.Image, error) {
	name, reference, renamed := strings.Cut(text, "=")
	if !renamed {
		name, reference = "", text
	}
	image := types.Image{}
	rest, digest, _ := strings.Cut(reference, "@")
	image.Digest = digest
	if i := strings.LastIndex(rest, ":"); i > strings.LastIndex(rest, "/") {
		rest, image.NewTag = rest[:i], rest[i+1:]
	}
	image.Name = rest
	if renamed {
		image.Name, image.NewName = name, strings.TrimPrefix(rest, "*") // an asterisk keeps the name
	}
	if image.Digest != "" {
		image.NewTag = "" // as with kustomize, where the digest is the one that counts
	}
	if image.Name == "" || image.NewName == "" && image.NewTag == "" && image.Digest == "" {
		return types.Image{}, fmt.Errorf("kustomize: images: %q is not an image such as name=new-name:tag or name:tag", text)
	}
	return image, nil
}
