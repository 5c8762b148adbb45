package lint

import (
	"bytes"
	"fmt"
	"maps"
	"slices"

	"go.yaml.in/yaml/v3"

	"github.com/wherry-dev/wherry/bundle/show"
	"github.com/wherry-dev/wherry/bundle/sitevalues"
	"github.com/wherry-dev/wherry/scheduler/finding"
	"github.com/wherry-dev/wherry/scheduler/kinds"
)

// siteValues adds mistakes in declarations of site values and in the values of clusters, declarations that nothing names,
// and values that look like secrets.
func (l *linter) siteValues() {
	used := map[string]bool{}
	for _, ct := range l.objects.ClusterTypes {
		used[ct.Metadata.Annotations[kinds.SiteValues].Value] = true
	}
	for _, cm := range sortedValues(l.objects.SiteValues) {
		if !used[cm.Metadata.Name] && len(l.objects.ClusterTypes) > 0 {
			l.addUnused(&cm.Common, finding.CodeUnusedSiteValues, "", "the site values %q are named by no ClusterType", cm.Metadata.Name)
		}
		schema, err := kinds.ParseSiteSchema(cm)
		if err != nil {
			l.found = append(l.found, finding.In(err)...)
			continue
		}
		for _, key := range schema.Document.Keys() {
			if value := schema.Document.Properties[key].Default; show.LooksSecret(key, fmt.Sprint(value)) && value != nil {
				l.add(finding.CodeSiteSecret, schema.Position(key, "default"), siteSecretHint, "the default of site value %s of %q looks like a secret", key, cm.Metadata.Name)
			}
		}
	}
	for _, ct := range l.result.ClusterTypes {
		if ct.Sites == nil {
			continue
		}
		mistakes := []error{ct.Sites.Err}
		for _, f := range ct.Sites.Failures {
			mistakes = append(mistakes, f.Err)
		}
		for _, err := range mistakes {
			l.found = append(l.found, finding.In(err)...)
		}
	}
	for _, c := range sortedValues(l.objects.Clusters) {
		l.valuesOfCluster(c)
	}
}

const siteSecretHint = "keep secrets where the site keeps its own: every site of the cluster type can read its site values"

func (l *linter) valuesOfCluster(c *kinds.Cluster) {
	ct := l.objects.ClusterTypes[c.Spec.ClusterType]
	for _, key := range slices.Sorted(maps.Keys(c.Spec.Values)) {
		v := c.Spec.Values[key]
		if show.LooksSecret(key, fmt.Sprint(v.Value)) {
			l.add(finding.CodeSiteSecret, c.Position(v.Line), siteSecretHint, "site value %s of Cluster %q looks like a secret", key, c.Metadata.Name)
		}
	}
	if len(c.Spec.Values) == 0 || ct == nil {
		return
	}
	if _, declares := ct.Metadata.Annotations[kinds.SiteValues]; !declares {
		l.add(finding.CodeSiteValue, c.At, "give the ClusterType the annotation "+kinds.SiteValues, "Cluster %q has site values, and ClusterType %q declares none", c.Metadata.Name, ct.Metadata.Name)
	}
}

// siteReferences notes the keys of ${site.KEY} in the texts of an object. Whether the assignment lists them is known later.
func (in *fileInspector) siteReferences(what string, texts func(take func(string))) {
	var keys []string
	texts(func(text string) { keys = append(keys, sitevalues.References(text)...) })
	slices.Sort(keys)
	for _, key := range slices.Compact(keys) {
		s := in.report(finding.CodeSiteReference, key+" "+what, "%s refers to ${site.%s}, and the workload does not list %s in %s", what, key, key, usesAnnotation)
		s.Hint = "add it there, or write $${site." + key + "} for the text itself"
		s.At, s.About = atWorkload, key
	}
}

const usesAnnotation = kinds.AnnotationPrefix + "uses-site-values"

// mayRefer reports whether a file can have references to site values.
func mayRefer(data []byte) bool { return bytes.Contains(data, []byte(sitevalues.Marker)) }

// eachText calls take with each text of an object that is a value.
func eachText(value any, take func(string)) {
	switch v := value.(type) {
	case string:
		take(v)
	case map[string]any:
		for _, inner := range v {
			eachText(inner, take)
		}
	case []any:
		for _, inner := range v {
			eachText(inner, take)
		}
	}
}

// walkTexts calls take with each scalar that is a value. Aliases were seen where they were anchored.
func walkTexts(n *yaml.Node, take func(string)) {
	switch n.Kind {
	case yaml.ScalarNode:
		take(n.Value)
	case yaml.MappingNode:
		for i := 1; i < len(n.Content); i += 2 {
			walkTexts(n.Content[i], take)
		}
	case yaml.SequenceNode, yaml.DocumentNode:
		for _, item := range n.Content {
			walkTexts(item, take)
		}
	}
}

// usesSiteValues reports whether references to site values are meant in the files of the assignment. Others may have
// placeholders of this form, such as those of Java frameworks.
func (r *renderedFiles) usesSiteValues() bool {
	_, declares := r.ct.Metadata.Annotations[kinds.SiteValues]
	return declares || len(r.assignment.SiteValues) > 0
}

// workloadAt returns the position of the assignment's annotation that lists site values, or of its Workload.
func (r *renderedFiles) workloadAt() finding.Position {
	for _, t := range r.targets {
		if t.Name == r.assignment.Name && t.Workload.Registration == r.assignment.Registration {
			if a, ok := kinds.AnnotationFor(r.ct, t, "uses-site-values"); ok {
				return a.At
			}
			return t.At
		}
	}
	return r.templateAt()
}
