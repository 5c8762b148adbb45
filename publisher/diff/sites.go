package diff

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/wherry-dev/wherry/bundle/show"
	"github.com/wherry-dev/wherry/bundle/sitevalues"
)

// Sites are the site values of a cluster type. The zero value is that of a type without any.
type Sites struct {
	Document *sitevalues.Document
	Rows     []sitevalues.Row
}

// SitesDifference lists the site values of a cluster type that change. They reach every cluster of the type in a release,
// whichever cluster they are for.
type SitesDifference struct {
	// Declaration lists the keys that are declared otherwise, sorted.
	Declaration []DeclaredKey `json:"declaration,omitempty"`
	// Clusters lists those with other values, sorted by name.
	Clusters []SiteDifference `json:"clusters,omitempty"`
}

// DeclaredKey is a key of the declaration that is added, removed or changed.
type DeclaredKey struct {
	Key    string `json:"key"`
	Change Change `json:"change"`
}

// SiteDifference is a cluster whose row is added, removed or changed.
type SiteDifference struct {
	Cluster string `json:"cluster"`
	UID     string `json:"uid"`
	Change  Change `json:"change"`
	// Values lists the keys that differ, sorted; ring and labels.NAME among them.
	Values []SiteValueDifference `json:"values,omitempty"`
	// Held is true if the cluster keeps earlier values, because its new ones have a mistake.
	Held bool `json:"held,omitempty"`
}

// SiteValueDifference is a site value as the platform gives it, before it is composed. Old and New are nil where it gives
// none. Values that look like secrets are masked.
type SiteValueDifference struct {
	Key    string  `json:"key"`
	Old    *string `json:"old"`
	New    *string `json:"new"`
	Secret bool    `json:"secret,omitempty"`
}

// FailedSite is a cluster whose site values have a mistake, or with an empty name the declaration of all.
type FailedSite struct {
	Cluster string `json:"cluster,omitempty"`
	Error   string `json:"error"`
	// Stands is true if the cluster keeps earlier values.
	Stands bool `json:"stands"`
}

// SitesBetween returns the site values that differ; nil if none do.
func SitesBetween(old, now Sites) *SitesDifference {
	d := &SitesDifference{Declaration: declaredBetween(old.Document, now.Document)}
	before, after := rowsByUID(old.Rows), rowsByUID(now.Rows)
	for _, uid := range slices.Sorted(maps.Keys(union(before, after))) {
		was, had := before[uid]
		is, has := after[uid]
		s := SiteDifference{Cluster: is.Name, UID: uid, Change: ChangeChanged, Held: is.HeldFrom != nil, Values: siteValuesBetween(was, is)}
		switch {
		case !had:
			s.Change = ChangeAdded
		case !has:
			s.Change, s.Cluster = ChangeRemoved, was.Name
		case len(s.Values) == 0 && was.Name == is.Name && (was.HeldFrom == nil) == (is.HeldFrom == nil):
			continue
		}
		d.Clusters = append(d.Clusters, s)
	}
	slices.SortStableFunc(d.Clusters, func(a, b SiteDifference) int { return strings.Compare(a.Cluster, b.Cluster) })
	if len(d.Declaration)+len(d.Clusters) == 0 {
		return nil
	}
	return d
}

func union[V any](a, b map[string]V) map[string]V {
	all := maps.Clone(a)
	maps.Copy(all, b)
	return all
}

func rowsByUID(rows []sitevalues.Row) map[string]sitevalues.Row {
	all := make(map[string]sitevalues.Row, len(rows))
	for _, r := range rows {
		all[r.UID] = r
	}
	return all
}

// declaredBetween compares two declarations, of which each may be nil.
func declaredBetween(old, now *sitevalues.Document) []DeclaredKey {
	before, after := declaredTexts(old), declaredTexts(now)
	var keys []DeclaredKey
	for _, key := range slices.Sorted(maps.Keys(union(before, after))) {
		was, had := before[key]
		is, has := after[key]
		switch {
		case !had:
			keys = append(keys, DeclaredKey{key, ChangeAdded})
		case !has:
			keys = append(keys, DeclaredKey{key, ChangeRemoved})
		case was != is:
			keys = append(keys, DeclaredKey{key, ChangeChanged})
		}
	}
	return keys
}

// declaredTexts returns each key's declaration as a text.
func declaredTexts(d *sitevalues.Document) map[string]string {
	all := map[string]string{}
	for _, key := range d.Keys() {
		one := sitevalues.Document{Properties: map[string]sitevalues.Property{key: d.Properties[key]}}
		if slices.Contains(d.Required, key) {
			one.Required = []string{key}
		}
		data, _ := one.Marshal() // of one that was marshalled as a whole
		all[key] = string(data)
	}
	return all
}

func siteValuesBetween(was, is sitevalues.Row) []SiteValueDifference {
	before, after := rowTexts(was), rowTexts(is)
	var all []SiteValueDifference
	for _, key := range slices.Sorted(maps.Keys(union(before, after))) {
		d := SiteValueDifference{Key: key}
		old, had := before[key]
		now, has := after[key]
		if had == has && old == now {
			continue
		}
		d.Secret = show.LooksSecret(key, old) || show.LooksSecret(key, now)
		if d.Secret {
			old, now = show.Masked, show.Masked
		}
		if had {
			d.Old = &old
		}
		if has {
			d.New = &now
		}
		all = append(all, d)
	}
	return all
}

// rowTexts returns what a row says, by key.
func rowTexts(r sitevalues.Row) map[string]string {
	all := map[string]string{}
	for key, value := range r.Values {
		all[key] = fmt.Sprint(value)
	}
	for name, value := range r.Labels {
		all["labels."+name] = value
	}
	if r.Ring != "" {
		all["ring"] = r.Ring
	}
	return all
}
