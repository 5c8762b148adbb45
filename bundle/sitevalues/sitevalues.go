// Package sitevalues resolves the values in which the sites of one cluster type differ, such as a DNS name.
//
// A bundle has the declaration of the values as a [Document], and for clusters a [Row] with the values that the platform
// gives to each. Begin with [ParseDocument] and [ParseRows], find the row with [RowOf], and call [Resolve], which adds the
// values of the site itself and the facts about the cluster. The publisher and the agent call the same functions, so that
// "wherry explain" shows the value that an agent uses.
//
// Resolve depends on its arguments alone and reads nothing. A text of the site is never evaluated; defaults and values of the
// platform can be composed of others, see [Resolve]. Values are not secrets, but no error and no [Problem] contains one.
package sitevalues

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/opencontainers/go-digest"

	"github.com/wherry-dev/wherry/bundle"
)

// The files of a tree with site values. Trees of cluster types without them have neither.
const (
	DocumentPath = bundle.MetaDir + "/site-values.json"
	RowsPath     = bundle.MetaDir + "/sites.ndjson"
)

// Bounds. Those in bytes count the bytes of UTF-8.
const (
	// MaxKeys bounds the keys of a document.
	MaxKeys = 128
	// MaxKeyBytes bounds one key.
	MaxKeyBytes = 63
	// MaxValueBytes bounds one value, given or composed.
	MaxValueBytes = 8 << 10
	// MaxDocumentBytes bounds a document.
	MaxDocumentBytes = 256 << 10
	// MaxRowsBytes bounds all rows of a cluster type together, since every agent of the type transfers them.
	MaxRowsBytes = 1 << 20
	// MaxLevels bounds the values between a composed value and a plain one, which counts too.
	MaxLevels = 2
)

// Source tells who gave a value.
type Source string

// The sources of values, in order of precedence. FromCluster stands for a fact about the cluster, which nobody overrides.
const (
	FromSite     Source = "site"
	FromPlatform Source = "platform"
	FromDefault  Source = "default"
	FromCluster  Source = "cluster"
)

// Facts are the properties of a cluster that need no declaration.
type Facts struct {
	Name, UID, Type, Environment, Ring string
	Labels                             map[string]string
}

// ClusterPrefix begins the keys of facts: cluster.name, cluster.uid, cluster.type, cluster.environment, cluster.ring and
// cluster.labels.LABEL. No declared key begins so.
const ClusterPrefix = "cluster."

// LabelPrefix begins the keys of the cluster's labels.
const LabelPrefix = ClusterPrefix + "labels."

// FactKeys lists the keys of facts that every cluster has, sorted.
var FactKeys = [...]string{"cluster.environment", "cluster.name", "cluster.ring", "cluster.type", "cluster.uid"}

// IsFact reports whether key is that of a fact.
func IsFact(key string) bool {
	return slices.Contains(FactKeys[:], key) || strings.HasPrefix(key, LabelPrefix) && len(key) > len(LabelPrefix)
}

// values returns the facts by key. A row that has a name, a ring or labels overrides what the agent was told, because it is
// signed and the publisher knows it too; labels are merged.
func (f Facts) values(row *Row) map[string]string {
	labels := maps.Clone(f.Labels)
	if labels == nil {
		labels = map[string]string{}
	}
	if row != nil {
		f.Name, f.Ring = cmp.Or(row.Name, f.Name), cmp.Or(row.Ring, f.Ring)
		maps.Copy(labels, row.Labels)
	}
	all := map[string]string{
		"cluster.name": f.Name, "cluster.uid": f.UID, "cluster.type": f.Type, "cluster.environment": f.Environment, "cluster.ring": f.Ring,
	}
	for name, value := range labels {
		all[LabelPrefix+name] = value
	}
	return all
}

// Value is a valid value.
type Value struct {
	// Any is a string, an int64, a float64 or a bool.
	Any any
	// Text is the only form in which texts contain the value: a decimal number, true or false, or the string itself.
	Text string
	// Source is the origin of the value, also if it is composed of values of other sources.
	Source Source
	// From is the template of a composed value; empty for others.
	From string
}

// Values are the valid values of one cluster by key, facts among them.
type Values map[string]Value

// Texts returns the texts of the given keys, those of unknown keys left out.
func (vs Values) Texts(keys []string) map[string]string {
	texts := map[string]string{}
	for _, key := range keys {
		if v, ok := vs[key]; ok {
			texts[key] = v.Text
		}
	}
	return texts
}

// Digest identifies keys together with their texts. It is empty if there are none.
func Digest(texts map[string]string) digest.Digest {
	if len(texts) == 0 {
		return ""
	}
	d := digest.Canonical.Digester()
	for _, key := range slices.Sorted(maps.Keys(texts)) {
		_, _ = d.Hash().Write([]byte(key + "\x00" + digest.FromString(texts[key]).String() + "\n")) // a hash returns no error
	}
	return d.Digest()
}

// Kind is the code of a Problem.
type Kind string

// The kinds of problems.
const (
	// Missing means that nobody gave the key a value.
	Missing Kind = "Missing"
	// Invalid means a value that the declaration does not allow.
	Invalid Kind = "Invalid"
	// NotPermitted means that the site sets a key that only the platform may set.
	NotPermitted Kind = "NotPermitted"
	// Unknown means that a key is not declared. No assignment can use it.
	Unknown Kind = "Unknown"
	// Composition means that a value cannot be composed: it refers to a key without a valid value, or to itself.
	Composition Kind = "Composition"
)

// Problem is the reason why a key has no value. Whatever uses the key waits; other keys are not affected.
type Problem struct {
	Key  string
	Kind Kind
	// Source is the source with the mistake; empty for a missing value, since any source may give it.
	Source Source
	// Required is true for a key that the declaration requires of every cluster.
	Required bool
	// Unset is true if the only mistake is a missing value: this one, or one that it is composed of.
	Unset bool
	// Message is one sentence without the key. It contains no value.
	Message string
}

// String returns the key with the message.
func (p Problem) String() string { return p.Key + ": " + p.Message }

// ProblemsOf returns the problems with the given keys, those without a value among them, sorted by key.
func ProblemsOf(keys []string, values Values, problems []Problem) []Problem {
	var own []Problem
	for _, key := range slices.Compact(slices.Sorted(slices.Values(keys))) {
		i := slices.IndexFunc(problems, func(p Problem) bool { return p.Key == key })
		_, has := values[key]
		switch {
		case i >= 0:
			own = append(own, problems[i])
		case !has && strings.HasPrefix(key, LabelPrefix):
			own = append(own, Problem{Key: key, Kind: Missing, Message: "the cluster has no such label"})
		case !has:
			own = append(own, Problem{Key: key, Kind: Unknown, Message: "the cluster type declares no such key"})
		}
	}
	return own
}

// Variable returns the name of a key as a variable of Flux, Ansible, Zarf and shells: letters, digits and underscores, such
// as gateway_address for gateway.address. Declared keys have different variables, also in capitals.
func Variable(key string) string {
	name := []byte(key)
	for i, c := range name {
		if !isLetter(c) && !isDigit(c) {
			name[i] = '_'
		}
	}
	if len(name) > 0 && isDigit(name[0]) {
		return "_" + string(name)
	}
	return string(name)
}

func isLetter(c byte) bool { return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' }
func isDigit(c byte) bool  { return c >= '0' && c <= '9' }
