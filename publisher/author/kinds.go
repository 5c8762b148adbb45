package author

import (
	"slices"
	"strings"

	"github.com/wherry-dev/wherry/scheduler/finding"
	"github.com/wherry-dev/wherry/scheduler/kinds"
)

// Workspace, Ring and Group are no objects: objects name them. A Group is one of a PromotionPolicy. They can be renamed like objects.
const (
	Workspace = "workspace"
	Ring      = "ring"
	Group     = "group"
)

// words are the names of kinds on the command line.
var words = map[string]string{
	"cluster-type": "ClusterType", "policy": "SchedulingPolicy", "registration": "WorkloadRegistration",
	"config": "ConfigMap", "schema": "ConfigSchema", "rings": "PromotionPolicy", "check": "PlatformCheck",
}

// others are further words for kinds, by which "wherry new" makes objects.
var others = map[string]string{"promotion": "PromotionPolicy", "base": "BaseRepo", "site-values": "ConfigMap"}

// Word returns the word for a kind on the command line, such as cluster-type.
func Word(kind string) string {
	for word, k := range words {
		if k == kind {
			return word
		}
	}
	var b strings.Builder
	for i, r := range kind {
		if i > 0 && r >= 'A' && r <= 'Z' {
			b.WriteByte('-')
		}
		b.WriteString(strings.ToLower(string(r)))
	}
	return b.String()
}

// Words returns the sorted words for all kinds of objects.
func Words() []string {
	var all []string
	for _, kind := range append(kinds.Names(), "ConfigMap") {
		all = append(all, Word(kind))
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// Kind returns the kind that a person means: ClusterType for cluster-type, clustertype or ClusterType.
func Kind(word string) (string, error) {
	if kind := others[strings.ToLower(word)]; kind != "" {
		return kind, nil
	}
	plain := func(s string) string { return strings.ToLower(strings.ReplaceAll(s, "-", "")) }
	for _, kind := range append(kinds.Names(), "ConfigMap", Workspace, Ring, Group) {
		if one := plain(word); one == plain(kind) || one == plain(kind)+"s" || one == plain(Word(kind)) || one == plain(Word(kind))+"s" {
			return kind, nil
		}
	}
	hint := finding.DidYouMean(word, append(Words(), Workspace, Ring, Group))
	if hint == "" {
		hint = "known: " + strings.Join(append(Words(), Group, Ring, Workspace), ", ")
	}
	return "", wrong(hint, "unknown kind %q", word)
}
