package catalog

import (
	"maps"
	"slices"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/show"
	"github.com/wherry-dev/wherry/bundle/sitevalues"
)

// SiteAnswer holds the site values of one cluster in a bundle, without those that the site itself sets. Its JSON form is an
// interface.
type SiteAnswer struct {
	Release     Source `json:"release"`
	ClusterType string `json:"clusterType"`
	Target      string `json:"target"`
	Cluster     string `json:"cluster"`
	UID         string `json:"uid"`
	// HeldFrom identifies the release of the values, if newer ones had a mistake.
	HeldFrom *bundle.Held `json:"heldFrom,omitempty"`
	Values   []SiteValue  `json:"values"`
}

// SiteValue is one site value of a cluster.
type SiteValue struct {
	Key    string `json:"key"`
	Set    bool   `json:"set"`
	Value  string `json:"value"`
	Secret bool   `json:"secret,omitempty"`
	// Source is platform, default or cluster; empty for a missing value. From is the template of a composed one.
	Source     sitevalues.Source `json:"source,omitempty"`
	From       string            `json:"from,omitempty"`
	SiteMaySet bool              `json:"siteMaySet,omitempty"`
	Used       bool              `json:"used,omitempty"`
	Problem    string            `json:"problem,omitempty"`
}

// ExplainSite answers for a cluster with this name, and a key of it, or all keys if that is empty. It returns false if the
// bundle knows no such key. A cluster without a row has the defaults.
func (r *Released) ExplainSite(a *bundle.Assignment, cluster, key string) (SiteAnswer, bool) {
	answer := SiteAnswer{Release: r.source(), ClusterType: r.Release.ClusterType, Target: a.Name, Cluster: cluster, Values: []SiteValue{}}
	facts := sitevalues.Facts{Name: cluster, Type: r.Release.ClusterType, Environment: r.Release.Environment}
	var row *sitevalues.Row
	if i := slices.IndexFunc(r.Sites.Rows, func(row sitevalues.Row) bool { return row.Name == cluster }); i >= 0 {
		row = &r.Sites.Rows[i]
		answer.UID, answer.HeldFrom, facts.UID = row.UID, row.HeldFrom, row.UID
	}
	values, problems := sitevalues.Resolve(r.Sites.Document, row, nil, facts)
	keys := slices.Sorted(slices.Values(slices.Concat(r.Sites.Document.Keys(), slices.Collect(maps.Keys(values)), a.SiteValues)))
	for _, k := range slices.Compact(keys) {
		if key == "" || k == key {
			answer.Values = append(answer.Values, r.siteValue(k, values, problems, slices.Contains(a.SiteValues, k)))
		}
	}
	return answer, len(answer.Values) > 0
}

func (r *Released) siteValue(key string, values sitevalues.Values, problems []sitevalues.Problem, used bool) SiteValue {
	s := SiteValue{Key: key, Used: used}
	if r.Sites.Document != nil {
		s.SiteMaySet = r.Sites.Document.Properties[key].SiteMaySet
	}
	if v, ok := values[key]; ok {
		s.Set, s.Value, s.Source, s.From = true, show.Mask(key, v.Text), v.Source, show.Mask(key, v.From)
		s.Secret = show.LooksSecret(key, v.Text)
	} else if own := sitevalues.ProblemsOf([]string{key}, values, problems); len(own) > 0 {
		s.Problem, s.Source = own[0].Message, own[0].Source
	}
	return s
}
