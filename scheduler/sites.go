package scheduler

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/sitevalues"
	"github.com/wherry-dev/wherry/scheduler/finding"
	"github.com/wherry-dev/wherry/scheduler/kinds"
)

// SiteValuesAnnotation is the annotation of a ClusterType that names the declaration of its site values.
const SiteValuesAnnotation = kinds.SiteValues

// maxSiteKeys bounds the site values that one assignment uses.
const maxSiteKeys = sitevalues.MaxKeys

// Sites are the site values of one cluster type.
type Sites struct {
	// Document is the declaration; nil if Err is not.
	Document *sitevalues.Document
	// Err is the reason why the declaration cannot be used, with file and line. The values of the last release stay then.
	Err error
	// Rows are those of the clusters with valid values, sorted by name. Clusters without values and labels have none.
	Rows []sitevalues.Row
	// Failures are the clusters without valid values, sorted by name. Each keeps its row of the last release.
	Failures []SiteFailure
}

// SiteFailure is a cluster without valid site values.
type SiteFailure struct {
	Cluster string
	// UID is empty, or not valid, if that is the mistake.
	UID string
	// Err names the file and line of each mistake.
	Err error
}

// IsFinal reports whether nothing of the last release has to stay. It is true for nil.
func (s *Sites) IsFinal() bool { return s == nil || s.Err == nil && len(s.Failures) == 0 }

// siteSchemas are the declarations of a platform, each read once.
type siteSchemas struct {
	byName map[string]*kinds.SiteSchema
	errs   map[string]error
	names  []string
}

func newSiteSchemas(declared map[string]*kinds.ConfigMap) *siteSchemas {
	s := &siteSchemas{byName: map[string]*kinds.SiteSchema{}, errs: map[string]error{}, names: sortedKeys(declared)}
	for name, cm := range declared {
		s.byName[name], s.errs[name] = kinds.ParseSiteSchema(cm)
	}
	return s
}

// of returns the declaration of a cluster type. Both results are nil if the type names none.
func (s *siteSchemas) of(ct *kinds.ClusterType) (*kinds.SiteSchema, error) {
	name, ok := ct.Metadata.Annotations[SiteValuesAnnotation]
	if !ok {
		return nil, nil
	}
	if !slices.Contains(s.names, name.Value) {
		hint := finding.DidYouMean(name.Value, s.names)
		if hint == "" {
			hint = fmt.Sprintf("a ConfigMap with the label %s: \"true\" declares them", kinds.SiteValues)
		}
		return nil, finding.Errorf(finding.CodeSiteKey, ct.Position(name.Line), hint, "annotation %s: there is no declaration of site values %q", SiteValuesAnnotation, name.Value)
	}
	return s.byName[name.Value], s.errs[name.Value]
}

// siteFacts returns the facts about a cluster as far as the platform knows them, and its row, which is nil for a cluster
// without values and labels.
func (m *Model) siteFacts(c *kinds.Cluster, schema *kinds.SiteSchema) (sitevalues.Facts, *sitevalues.Row) {
	facts := sitevalues.Facts{
		Name: c.Metadata.Name, UID: c.Spec.UID, Type: c.Spec.ClusterType, Environment: m.environment, Ring: c.Spec.Ring, Labels: c.Spec.Labels,
	}
	if schema == nil || len(c.Spec.Values)+len(c.Spec.Labels) == 0 {
		return facts, nil
	}
	return facts, rowOf(c, schema)
}

// sites returns the site values of a cluster type; nil if it declares none.
func (r *renderer) sites(ct *kinds.ClusterType) *Sites {
	schema, err := r.siteSchemas.of(ct)
	if schema == nil && err == nil {
		return nil
	}
	if err != nil {
		return &Sites{Err: err}
	}
	s := &Sites{Document: schema.Document}
	own := r.model.clustersOf(ct.Metadata.Name)
	ofUID := map[string][]*kinds.Cluster{}
	for _, c := range own {
		ofUID[c.Spec.UID] = append(ofUID[c.Spec.UID], c)
	}
	for _, c := range own {
		row, err := r.model.checkRow(c, schema)
		if same := ofUID[c.Spec.UID]; len(same) > 1 && row != nil {
			other := same[0]
			if other == c {
				other = same[1]
			}
			err = finding.Errorf(finding.CodeSiteValue, c.At, "each cluster has its own", "Cluster %q has the uid of Cluster %q, at %s, so that nobody knows whose the site values are", c.Metadata.Name, other.Metadata.Name, other.At)
		}
		switch {
		case err != nil:
			s.Failures = append(s.Failures, SiteFailure{c.Metadata.Name, c.Spec.UID, err})
		case row != nil:
			s.Rows = append(s.Rows, *row)
		}
	}
	if _, err := sitevalues.MarshalRows(s.Rows); err != nil {
		return &Sites{Err: finding.Errorf(finding.CodeSiteValue, ct.At, "move some of them to the sites' own files, or divide the cluster type", "ClusterType %q: %v", ct.Metadata.Name, err)}
	}
	return s
}

// clustersOf returns the clusters of a type, sorted by name.
func (m *Model) clustersOf(clusterType string) []*kinds.Cluster {
	var own []*kinds.Cluster
	for _, c := range m.objects.Clusters {
		if c.Spec.ClusterType == clusterType {
			own = append(own, c)
		}
	}
	slices.SortFunc(own, func(a, b *kinds.Cluster) int { return strings.Compare(a.Metadata.Name, b.Metadata.Name) })
	return own
}

// checkRow returns the row of a cluster, nil if it needs none, and the mistakes in its values.
func (m *Model) checkRow(c *kinds.Cluster, schema *kinds.SiteSchema) (*sitevalues.Row, error) {
	facts, row := m.siteFacts(c, schema)
	var errs []error
	switch {
	case bundle.IsClusterUID(c.Spec.UID):
	case len(c.Spec.Values) == 0:
		return nil, nil // no agent asks for it
	default:
		errs = append(errs, finding.Errorf(finding.CodeSiteValue, c.At, `"wherry-agent status -o json" prints it`, "Cluster %q has site values and no valid spec.uid, by which its agent finds them", c.Metadata.Name))
	}
	_, problems := sitevalues.Resolve(schema.Document, row, nil, facts)
	for _, p := range problems {
		switch required := p.Kind == sitevalues.Missing && p.Required && !schema.Document.Properties[p.Key].SiteMaySet; {
		case required:
			errs = append(errs, finding.Errorf(finding.CodeSiteValue, c.At, "add it below spec.values", "Cluster %q has no value for %s, which the site values %q require", c.Metadata.Name, p.Key, schema.Document.Name))
		case !p.Unset:
			errs = append(errs, siteMistake(c, p.Key, p.Message))
		}
	}
	if len(errs) > 0 {
		return nil, finding.Join(errs)
	}
	return row, nil
}

// siteMistake returns the error about a value of a cluster, at its line.
func siteMistake(c *kinds.Cluster, key, message string) error {
	message, hint, _ := strings.Cut(message, ": did you mean")
	if hint != "" {
		hint = "did you mean" + hint
	}
	at := c.At
	if v, ok := c.Spec.Values[key]; ok {
		at = c.Position(v.Line)
	}
	return finding.Errorf(finding.CodeSiteValue, at, hint, "Cluster %q: site value %s: %s", c.Metadata.Name, key, message)
}

// rowOf returns the row of a cluster with values or labels. Its values are in the form in which they travel, but for those
// that are not valid, about which Resolve tells.
func rowOf(c *kinds.Cluster, schema *kinds.SiteSchema) *sitevalues.Row {
	row := &sitevalues.Row{UID: c.Spec.UID, Name: c.Metadata.Name, Ring: c.Spec.Ring, Labels: c.Spec.Labels}
	for _, key := range sortedKeys(c.Spec.Values) {
		value := c.Spec.Values[key].Value
		if p, declared := schema.Document.Properties[key]; declared {
			if read, err := p.Read(value); err == nil {
				value = read
			}
		}
		if row.Values == nil {
			row.Values = map[string]any{}
		}
		row.Values[key] = value
	}
	return row
}

// siteKeys returns the keys that the annotation uses-site-values of a target lists, sorted, as far as schema or the facts
// about a cluster have them. A schema that cannot be used is an error for those that use one of its keys.
func siteKeys(ct *kinds.ClusterType, t *target, schema *kinds.SiteSchema, schemaErr error) ([]string, error) {
	a, ok := kinds.AnnotationFor(ct, &t.Target, "uses-site-values")
	if !ok {
		return nil, nil
	}
	const form = "write keys with commas between them, such as: dns, gateway.address"
	var keys []string
	variables := map[string]string{}
	for word := range strings.SplitSeq(a.Value, ",") {
		key := strings.TrimSpace(word)
		if key == "" {
			return nil, a.Mistake(form, "it has an empty key")
		}
		if err := checkSiteKey(a, ct, key, schema, schemaErr); err != nil {
			return nil, err
		}
		other, taken := variables[sitevalues.Variable(key)]
		if taken && other != key { // labels can differ in a dot alone
			return nil, a.Mistake("use one of them", "%s and %s are one variable, %s", other, key, sitevalues.Variable(key))
		}
		variables[sitevalues.Variable(key)] = key
		if !taken {
			keys = append(keys, key)
		}
	}
	if len(keys) > maxSiteKeys {
		return nil, a.Mistake(form, "it names %d keys, at most %d are permitted", len(keys), maxSiteKeys)
	}
	slices.Sort(keys)
	return keys, nil
}

func checkSiteKey(a kinds.Annotation, ct *kinds.ClusterType, key string, schema *kinds.SiteSchema, schemaErr error) error {
	switch {
	case sitevalues.IsFact(key):
		return nil
	case schemaErr != nil:
		return finding.WithCode(finding.CodeSiteKey, a.Mistake("", "%s is a site value, and the declaration of those of cluster type %q cannot be used: %v", key, ct.Metadata.Name, schemaErr))
	case schema == nil:
		return finding.WithCode(finding.CodeSiteKey, a.Mistake("give the cluster type the annotation "+SiteValuesAnnotation, "cluster type %q has no site values, and %s is one", ct.Metadata.Name, key))
	}
	if _, ok := schema.Document.Properties[key]; ok {
		return nil
	}
	known := append(schema.Document.Keys(), sitevalues.FactKeys[:]...)
	return finding.WithCode(finding.CodeSiteKey, a.Mistake(finding.DidYouMean(key, known), "the site values %q of cluster type %q have no key %s", schema.Document.Name, ct.Metadata.Name, key))
}

// Cluster is a cluster of the environment.
type Cluster struct {
	Name string
	finding.Position
	ClusterType string
	// UID is the cluster's uid in its agent's reports.
	UID    string
	Ring   string
	Labels map[string]string
	// PublicKey is the Ed25519 key of the agent's reports, in PEM; empty if it does not report.
	PublicKey string
	// Reporting is true if reports are expected of it.
	Reporting bool
	// RegisteredAt is when it joined, in UTC. Zero, also for a time that cannot be read, is a cluster that has always been there.
	RegisteredAt time.Time
}

// Clusters returns the Cluster objects that were loaded, sorted by name. Package lint checks them.
func (m *Model) Clusters() []Cluster {
	var all []Cluster
	for _, c := range sortedValues(m.objects.Clusters) {
		registered, _ := time.Parse(time.RFC3339, c.Spec.RegisteredAt.Value)
		all = append(all, Cluster{
			Name: c.Metadata.Name, Position: c.At, ClusterType: c.Spec.ClusterType, UID: c.Spec.UID, Ring: c.Spec.Ring,
			Labels: c.Spec.Labels, PublicKey: c.Spec.PublicKey, Reporting: c.Spec.Reporting != kinds.ReportingNone,
			RegisteredAt: registered.UTC(),
		})
	}
	return all
}
