package scheduler

import (
	"crypto/ed25519"
	"crypto/x509"
	"encoding/pem"
	"regexp"
	"slices"

	"github.com/wherry-dev/wherry/scheduler/finding"
)

// clusterObject is one cluster, where there is no hub that knows it, or for people to see which there are. Nothing that
// is rendered depends on it.
type clusterObject struct {
	object `yaml:",inline"`
	Spec   struct {
		ClusterType string            `yaml:"clusterType"`
		UID         string            `yaml:"uid"`
		Ring        string            `yaml:"ring"`
		Labels      map[string]string `yaml:"labels"`
		PublicKey   string            `yaml:"publicKey"`
		Reporting   string            `yaml:"reporting"`
	} `yaml:"spec"`
}

// What a Cluster's reporting may be; empty is expected.
const (
	reportingExpected = "expected"
	reportingNone     = "none"
)

// Cluster is a cluster of the environment.
type Cluster struct {
	Name string
	finding.Position
	ClusterType string
	// UID is what the cluster's agent calls it.
	UID    string
	Ring   string
	Labels map[string]string
	// PublicKey is the Ed25519 key that the agent signs reports with, in PEM; empty where it does not report.
	PublicKey string
	// Reporting is whether reports are expected of it.
	Reporting bool
}

// Clusters returns the Cluster objects that were loaded, sorted by name. [Model.Lint] says what is wrong with them.
func (m *Model) Clusters() []Cluster {
	var all []Cluster
	for _, c := range sortedValues(m.clusters) {
		all = append(all, Cluster{
			Name: c.Metadata.Name, Position: c.at, ClusterType: c.Spec.ClusterType, UID: c.Spec.UID, Ring: c.Spec.Ring,
			Labels: c.Spec.Labels, PublicKey: c.Spec.PublicKey, Reporting: c.Spec.Reporting != reportingNone,
		})
	}
	return all
}

func (c *clusterObject) addTo(m *Model) { m.clusters[c.Metadata.Name] = c }

// uidPattern is what agents and hubs take for one.
var uidPattern = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._:-]{0,127}$`)

// problem is what a Cluster's own values lack, and what to do.
func (c *clusterObject) problem() (what, hint string) {
	s := c.Spec
	block, _ := pem.Decode([]byte(s.PublicKey))
	switch {
	case !uidPattern.MatchString(s.UID):
		return "spec.uid is not a uid of a cluster", `"wherry-agent status -o json" prints it`
	case s.Reporting != "" && s.Reporting != reportingExpected && s.Reporting != reportingNone:
		return "spec.reporting is neither expected nor none", finding.DidYouMean(s.Reporting, []string{reportingExpected, reportingNone})
	case s.PublicKey == "" && s.Reporting != reportingNone:
		return "it has no spec.publicKey, and reports are expected of it", `"wherry roster add" writes it from the agent's request; without reports, give reporting: none`
	case s.PublicKey == "":
		return "", ""
	case block == nil:
		return "spec.publicKey is not a key in PEM", ""
	}
	key, err := x509.ParsePKIXPublicKey(block.Bytes)
	if _, ok := key.(ed25519.PublicKey); err != nil || !ok {
		return "spec.publicKey is not a public Ed25519 key, which agents sign reports with", ""
	}
	return "", ""
}

// clusters adds what is wrong with Cluster objects: their values, cluster types that do not exist, and uids and keys
// of two.
func (l *linter) clusters() {
	types := sortedKeys(l.model.clusterTypes)
	uids, keys := map[string]*clusterObject{}, map[string]*clusterObject{}
	for _, c := range sortedValues(l.model.clusters) {
		if what, hint := c.problem(); what != "" {
			l.add(finding.CodeClusterValue, c.at, hint, "Cluster %q: %s", c.Metadata.Name, what)
		}
		if t := c.Spec.ClusterType; !slices.Contains(types, t) {
			l.add(finding.CodeClusterOfNoType, c.at, finding.DidYouMean(t, types), "Cluster %q: there is no ClusterType %q", c.Metadata.Name, t)
		}
		for _, one := range []struct {
			what, value string
			of          map[string]*clusterObject
		}{{"uid", c.Spec.UID, uids}, {"public key", c.Spec.PublicKey, keys}} {
			if first, twice := one.of[one.value]; twice && one.value != "" {
				l.add(finding.CodeClusterTwice, c.at, "each agent has its own", "Cluster %q has the %s of Cluster %q, at %s", c.Metadata.Name, one.what, first.Metadata.Name, first.at)
				continue
			}
			one.of[one.value] = c
		}
	}
}
