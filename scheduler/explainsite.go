package scheduler

import (
	"slices"

	"github.com/wherry-dev/wherry/bundle/show"
	"github.com/wherry-dev/wherry/bundle/sitevalues"
	"github.com/wherry-dev/wherry/scheduler/finding"
	"github.com/wherry-dev/wherry/scheduler/kinds"
)

// SiteExplanation holds the site values of one cluster, as far as the platform knows them: the site itself may set some.
type SiteExplanation struct {
	ClusterType string `json:"clusterType"`
	Target      string `json:"target"`
	// Cluster is the Cluster object.
	Cluster Named  `json:"cluster"`
	UID     string `json:"uid"`
	// Declaration is the ConfigMap with the schema; nil if the cluster type has no site values of its own.
	Declaration *Named `json:"declaration,omitempty"`
	// Values are the declared values and the facts about the cluster, sorted by key, or the one that was asked for.
	Values []SiteValue `json:"values"`
	// Errors are the mistakes in the cluster's values, because of which it keeps those of the last release.
	Errors []string `json:"errors,omitempty"`
}

// SiteValue is one value of a cluster with its origin.
type SiteValue struct {
	Key string `json:"key"`
	// Set is true if the platform gives the key a valid value.
	Set bool `json:"set"`
	// Value is the value as text. Secret is true if it looks like a secret and [show.Masked] replaces it.
	Value  string `json:"value"`
	Secret bool   `json:"secret,omitempty"`
	// Source is platform, default or cluster; empty for a missing value.
	Source sitevalues.Source `json:"source,omitempty"`
	// From is the template of a composed value.
	From string `json:"from,omitempty"`
	// Position is that of the value in the Cluster object or of the default in the declaration.
	finding.Position
	// SiteMaySet is true if the site's own file overrides it.
	SiteMaySet bool `json:"siteMaySet,omitempty"`
	// Used is true if the target lists the key.
	Used bool `json:"used,omitempty"`
	// Problem is why there is no valid value.
	Problem string `json:"problem,omitempty"`
}

// Site explains the site values of a cluster for a target: that of key, or if key is empty all of them. It returns false if
// key is neither declared nor a fact about clusters. The error names what does not exist.
func (e *Explainer) Site(clusterType, target, cluster, key string) (*SiteExplanation, bool, error) {
	ct, i, err := e.find(clusterType, target)
	if err != nil {
		return nil, false, err
	}
	c, err := e.cluster(clusterType, cluster)
	if err != nil {
		return nil, false, err
	}
	schema, schemaErr := e.r.siteSchemas.of(ct)
	if schemaErr != nil {
		return nil, false, schemaErr
	}
	x := &SiteExplanation{ClusterType: clusterType, Target: target, Cluster: Named{cluster, c.At}, UID: c.Spec.UID, Values: []SiteValue{}}
	var document *sitevalues.Document
	if schema != nil {
		document, x.Declaration = schema.Document, &Named{schema.Document.Name, schema.At}
		_, err := e.r.model.checkRow(c, schema)
		for _, f := range finding.In(err) {
			x.Errors = append(x.Errors, f.String())
		}
	}
	facts, row := e.r.model.siteFacts(c, schema)
	uses, _ := siteKeys(ct, e.r.targets[i], schema, nil)
	values, problems := sitevalues.Resolve(document, row, nil, facts)
	keys := slices.Concat(document.Keys(), sortedKeys(values), uses) // uses may have a label that the cluster lacks
	slices.Sort(keys)
	for _, k := range slices.Compact(keys) {
		if key == "" || k == key {
			x.Values = append(x.Values, siteValue(k, c, schema, values, problems, slices.Contains(uses, k)))
		}
	}
	if key != "" && len(x.Values) == 0 && sitevalues.IsFact(key) {
		x.Values = append(x.Values, siteValue(key, c, schema, values, problems, false))
	}
	return x, len(x.Values) > 0, nil
}

// cluster returns the Cluster of a type.
func (e *Explainer) cluster(clusterType, name string) (*kinds.Cluster, error) {
	c, ok := e.r.model.objects.Clusters[name]
	if !ok {
		var known []string
		for _, c := range e.r.model.clustersOf(clusterType) {
			known = append(known, c.Metadata.Name)
		}
		return nil, finding.Errorf("", finding.Position{}, suggest(name, known, "cluster"), "environment %q has no Cluster %q of type %q", e.r.model.environment, name, clusterType)
	}
	if c.Spec.ClusterType != clusterType {
		return nil, finding.Errorf("", c.At, "", "Cluster %q has the type %q, not %q", name, c.Spec.ClusterType, clusterType)
	}
	return c, nil
}

func siteValue(key string, c *kinds.Cluster, schema *kinds.SiteSchema, values sitevalues.Values, problems []sitevalues.Problem, used bool) SiteValue {
	s := SiteValue{Key: key, Used: used, Position: c.At}
	if schema != nil {
		s.SiteMaySet = schema.Document.Properties[key].SiteMaySet
	}
	v, ok := values[key]
	if ok {
		s.Set, s.Source, s.From = true, v.Source, v.From
		s.Secret = show.LooksSecret(key, v.Text)
		s.Value = show.Mask(key, v.Text)
		if s.Secret && s.From != "" {
			s.From = show.Masked
		}
	} else if own := sitevalues.ProblemsOf([]string{key}, values, problems); len(own) > 0 {
		s.Problem, s.Source = own[0].Message, own[0].Source
		if own[0].Kind == sitevalues.Missing && s.SiteMaySet {
			s.Problem = "the platform gives it no value"
		}
	}
	switch given, has := c.Spec.Values[key]; {
	case has:
		s.Position = c.Position(given.Line)
	case schema != nil && (s.Source == sitevalues.FromDefault || !ok && !sitevalues.IsFact(key)):
		s.Position = schema.Position(key, "default")
	}
	return s
}
