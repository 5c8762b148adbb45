package kinds

import (
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/wherry-dev/wherry/bundle/show"
)

// Type is the apiVersion and kind of an object.
type Type struct{ APIVersion, Kind string }

var coreVersion = regexp.MustCompile(`^(?i)v[0-9]+((alpha|beta)[0-9]+)?$`)

// Near returns the type of ours that an object was probably meant to have, if both its group and its kind are near one of
// ours: in other letter case, as a plural, a list, with a few letters wrong, or in another version. It returns false for what
// [New] knows, for kinds of other groups however they are called, and for those that Kalypso keeps in its cluster.
// The kind in the result is empty if the object has our group and no kind.
func Near(n *yaml.Node) (Type, bool) {
	has := Type{nearField(n, "apiVersion"), nearField(n, "kind")}
	if New(StringField(n, "apiVersion"), StringField(n, "kind")) != nil {
		return Type{}, false
	}
	group, version, slash := strings.Cut(has.APIVersion, "/")
	if !slash && (version == "" && coreVersion.MatchString(group) || group == "") {
		group, version = "", group
	}
	if group == "" || strings.EqualFold(group, "core") {
		return nearCore(n, has.Kind, version)
	}
	api := nearGroup(group)
	if api == "" || has.Kind == "" {
		return Type{APIVersion: api}, api != ""
	}
	if slices.Contains(kalypsoInternal, has.Kind) {
		return Type{}, false
	}
	kind := nearKind(has.Kind, Names())
	return Type{apiOf(kind), kind}, kind != ""
}

// kalypsoInternal are the kinds that Kalypso makes in its own cluster, and reads from nobody.
var kalypsoInternal = []string{"Assignment", "AssignmentPackage", "DeploymentTarget"}

// IsUnknown reports whether a group is Kalypso's or wherry's and has no such kind.
func IsUnknown(group, kind string) bool {
	for _, api := range []string{KalypsoAPI, WherryAPI} {
		if ours, _, _ := strings.Cut(api, "/"); group == ours {
			return !slices.Contains(kalypsoInternal, kind)
		}
	}
	return false
}

// nearCore is Near for an object of the group without a name, or of none.
func nearCore(n *yaml.Node, kind, version string) (Type, bool) {
	switch bare := strings.TrimSuffix(strings.ToLower(kind), "s"); {
	case version == "" && Field(n, "metadata").Kind != yaml.MappingNode && !slices.Contains(Names(), kind):
		return Type{}, false // no object, but a file of some other tool
	case bare == "list" && (kind != "List" || StringField(n, "apiVersion") != CoreAPI):
		return Type{CoreAPI, "List"}, true
	case nearKind(kind, []string{"ConfigMap"}) != "":
		return Type{CoreAPI, "ConfigMap"}, true
	case version != "" && !strings.HasSuffix(KalypsoAPI, "/"+strings.ToLower(version)):
		return Type{}, false
	}
	kind = nearKind(kind, Names()) // its group was forgotten
	return Type{apiOf(kind), kind}, kind != ""
}

// nearKind returns the one of the known kinds that a kind is near to; empty if there is none.
func nearKind(kind string, known []string) string {
	if near := show.Nearest(kind, known); near != "" || len(kind) < len("List") {
		return near
	}
	if item := kind[:len(kind)-len("List")]; strings.EqualFold(kind[len(item):], "List") {
		return show.Nearest(item, known) // as the API server lists them
	}
	return ""
}

// apiOf returns the apiVersion of a kind of Kalypso or wherry; empty if there is no such kind.
func apiOf(kind string) string {
	for _, api := range []string{KalypsoAPI, WherryAPI} {
		if _, ok := kindsOf(api)[kind]; ok {
			return api
		}
	}
	return ""
}

// nearGroup returns the apiVersion of ours to whose group a group is near; empty if there is none.
func nearGroup(group string) string {
	group = strings.Trim(strings.ToLower(group), ".")
	for _, api := range []string{KalypsoAPI, WherryAPI} {
		ours, _, _ := strings.Cut(api, "/")
		parts := strings.Split(ours, ".")
		last := strings.LastIndexByte(group, '.')
		switch {
		case show.Edits(group, ours) <= len(ours)/4,
			last > 0 && group[:last] == strings.Join(parts[:len(parts)-1], "."): // with another ending
			return api
		}
		for i := range parts { // without one of its parts
			if group == strings.Join(slices.Delete(slices.Clone(parts), i, i+1), ".") {
				return api
			}
		}
	}
	return ""
}

// nearField returns the text of a key, or else that of the key which differs from it in letter case alone. It follows aliases.
func nearField(n *yaml.Node, key string) string {
	value := Field(n, key)
	for i := 0; value.Kind == 0 && n.Kind == yaml.MappingNode && i+1 < len(n.Content); i += 2 {
		if strings.EqualFold(n.Content[i].Value, key) {
			value = n.Content[i+1]
		}
	}
	if value.Kind == yaml.AliasNode {
		value = value.Alias
	}
	if value.Kind != yaml.ScalarNode {
		return ""
	}
	return value.Value
}
