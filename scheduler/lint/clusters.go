package lint

import (
	"crypto/ed25519"
	"crypto/x509"
	"encoding/pem"
	"maps"
	"slices"
	"time"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/scheduler/finding"
	"github.com/wherry-dev/wherry/scheduler/kinds"
)

// clusterProblem names a wrong value of a Cluster, with a hint. It returns nothing if all are right.
func clusterProblem(c *kinds.Cluster) (what, hint string) {
	s := c.Spec
	block, _ := pem.Decode([]byte(s.PublicKey))
	_, registered := time.Parse(time.RFC3339, s.RegisteredAt.Value)
	switch {
	case !bundle.IsClusterUID(s.UID):
		return "spec.uid is not a uid of a cluster", `"wherry-agent status -o json" prints it`
	case s.Reporting != "" && s.Reporting != kinds.ReportingExpected && s.Reporting != kinds.ReportingNone:
		return "spec.reporting is neither expected nor none", finding.DidYouMean(s.Reporting, []string{kinds.ReportingExpected, kinds.ReportingNone})
	case s.RegisteredAt.Value != "" && registered != nil:
		return "spec.registeredAt is not a time: it counts as one that has always been there", "write it as 2026-11-23T08:00:00Z"
	case s.PublicKey == "" && s.Reporting != kinds.ReportingNone:
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

// clusters adds the mistakes in Cluster objects: wrong values, cluster types that do not exist, and duplicate uids and
// keys.
func (l *linter) clusters() {
	types := slices.Sorted(maps.Keys(l.objects.ClusterTypes))
	uids, keys := map[string]*kinds.Cluster{}, map[string]*kinds.Cluster{}
	for _, c := range sortedValues(l.objects.Clusters) {
		if what, hint := clusterProblem(c); what != "" {
			l.add(finding.CodeClusterValue, c.At, hint, "Cluster %q: %s", c.Metadata.Name, what)
		}
		if t := c.Spec.ClusterType; !slices.Contains(types, t) {
			l.add(finding.CodeClusterOfNoType, c.At, finding.DidYouMean(t, types), "Cluster %q: there is no ClusterType %q", c.Metadata.Name, t)
		}
		for _, one := range []struct {
			what, value string
			of          map[string]*kinds.Cluster
		}{{"uid", c.Spec.UID, uids}, {"public key", c.Spec.PublicKey, keys}} {
			if first, twice := one.of[one.value]; twice && one.value != "" {
				l.add(finding.CodeClusterTwice, c.At, "each agent has its own", "Cluster %q has the %s of Cluster %q, at %s", c.Metadata.Name, one.what, first.Metadata.Name, first.At)
				continue
			}
			one.of[one.value] = c
		}
	}
}
