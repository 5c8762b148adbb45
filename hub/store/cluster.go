package store

import (
	"cmp"
	"crypto/ed25519"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/wherry-dev/wherry/bundle"
)

// DefaultExpectedInterval is the expected time between two reports of a cluster whose registration sets none. A cluster
// that has been silent for three intervals is stale.
const DefaultExpectedInterval = time.Hour

// Identity is the identity of a cluster, and its platform, environment, cluster type and ring. It has the fields of
// bundle.ReportCluster, and converts to it; there they are the agent's claim.
type Identity struct {
	UID         string            `json:"uid"`
	Name        string            `json:"name"`
	Platform    string            `json:"platform,omitempty"`
	Type        string            `json:"type"`
	Environment string            `json:"environment"`
	Ring        string            `json:"ring,omitempty"`
	Labels      map[string]string `json:"labels,omitempty"`
}

// Cluster is what a person registers: which cluster a key speaks for, and where that cluster belongs. What an agent
// claims about itself does not change it.
type Cluster struct {
	Identity
	// Key verifies the agent's reports.
	Key ed25519.PublicKey `json:"-"`
	// Reporting is NotReporting for a cluster that sends no reports: it has no Key. Empty is any other.
	Reporting string `json:"reporting,omitempty"`
	// ExpectedInterval is the longest usual time between two reports. Zero means the registered one, or
	// DefaultExpectedInterval. For sites that report by media it is the time between two trips.
	ExpectedInterval time.Duration `json:"-"`
}

// NotReporting is the value of Cluster.Reporting of a cluster of which no reports are expected, as in Cluster objects.
const NotReporting = "none"

// Registration is a registered cluster as a store keeps it.
type Registration struct {
	Cluster
	// KeyIDs names the keys in force.
	KeyIDs []string `json:"keyIDs"`
	// AddedAt is the time since which the cluster is registered, without a break. Changes of the registration do not change it.
	AddedAt time.Time `json:"addedAt"`
	// ExpectedSeconds is Cluster.ExpectedInterval.
	ExpectedSeconds int64 `json:"expectedSeconds"`
	// Conflicts counts reports that were refused because another one with their number is stored, which
	// means that two agents share this cluster's identity.
	Conflicts int `json:"conflicts,omitempty"`
	// SharedSince is the time at which reports first showed that two agents share this identity, nil while none do;
	// SharedHow is the evidence.
	SharedSince *time.Time `json:"sharedSince,omitempty"`
	SharedHow   string     `json:"sharedHow,omitempty"`
	// RetiredAt is nil while the cluster is expected to report.
	RetiredAt     *time.Time `json:"retiredAt,omitempty"`
	RetiredReason string     `json:"retiredReason,omitempty"`
	// Newest is the place of the newest report, zero before the first.
	Newest Order `json:"-"`
}

// Bounds of a cluster's values in a store, as registered and as reported.
const (
	MaxLabels = 64
	MaxText   = 512 // bytes of a single value
)

// Check returns an error wrapping ErrInvalid that names the first value that is not acceptable.
func (c Cluster) Check() error {
	switch {
	case !bundle.IsClusterUID(c.UID):
		return fmt.Errorf("cluster uid %q: %w: expected 1 to 128 letters, digits and . _ : - and begins with a letter or digit", c.UID, ErrInvalid)
	case !bundle.IsClusterName(c.Name):
		return fmt.Errorf("cluster name %q: %w: expected 1 to 253 letters, digits and . _ - and begins and ends with a letter or digit", c.Name, ErrInvalid)
	case c.Type == "" || c.Environment == "":
		return fmt.Errorf("cluster %s: %w: it needs a cluster type and an environment", c.Name, ErrInvalid)
	case c.Reporting != "" && c.Reporting != NotReporting:
		return fmt.Errorf("cluster %s: %w: reporting %q is neither empty nor %q", c.Name, ErrInvalid, Clip(Plain(c.Reporting)), NotReporting)
	case c.Reporting == NotReporting && len(c.Key) > 0:
		return fmt.Errorf("cluster %s: %w: it has a key, and reporting %q is for one that sends no reports", c.Name, ErrInvalid, NotReporting)
	case c.Reporting == NotReporting:
	case len(c.Key) != ed25519.PublicKeySize:
		return fmt.Errorf("cluster %s: %w: it needs the Ed25519 key that its agent signs reports with", c.Name, ErrInvalid)
	}
	if c.ExpectedInterval < 0 {
		return fmt.Errorf("cluster %s: %w: the expected interval %s is negative", c.Name, ErrInvalid, c.ExpectedInterval)
	}
	return checkTexts("cluster "+c.Name, c.Labels, c.Platform, c.Type, c.Environment, c.Ring)
}

// checkTexts returns an error wrapping ErrInvalid that names the first text that is too long, or not plain.
func checkTexts(of string, labels map[string]string, texts ...string) error {
	for _, s := range texts {
		if len(s) > MaxText || s != Plain(s) {
			return fmt.Errorf("%s: %w: %q", of, ErrInvalid, Clip(s))
		}
	}
	if len(labels) > MaxLabels {
		return fmt.Errorf("%s: %w: it has %d labels, at most %d", of, ErrInvalid, len(labels), MaxLabels)
	}
	for k, v := range labels {
		if len(k)+len(v) > MaxText || k != Plain(k) || v != Plain(v) {
			return fmt.Errorf("%s: %w: label %q=%q", of, ErrInvalid, Clip(k), Clip(v))
		}
	}
	return nil
}

// Merge returns the registration after registering c, by the key with the id kid, which is empty for none, and whether that changes
// anything. Values that c leaves open stay. The error wraps ErrExists if c differs and replace is false. It is the part of
// AddCluster and ReplaceCluster that implementations have in common.
func (r Registration) Merge(c Cluster, kid string, replace bool) (merged Cluster, changed bool, err error) {
	// A Cluster object of a roster names no platform, and the request of the same agent does.
	c.Platform, c.ExpectedInterval = cmp.Or(c.Platform, r.Platform), cmp.Or(c.ExpectedInterval, r.ExpectedInterval)
	other := r.differs(c, kid)
	switch {
	case len(other) == 0 && r.Platform == c.Platform:
		return c, false, nil
	case len(other) > 0 && !replace:
		return c, false, fmt.Errorf("cluster uid %s: %w as %s, with another %s", c.UID, ErrExists, r.Name, strings.Join(other, ", "))
	}
	return c, true, nil
}

// HasKey reports whether the key with the id kid is in force for the cluster.
func (r Registration) HasKey(kid string) bool { return slices.Contains(r.KeyIDs, kid) }

// differs names the values that registering c would change, other than a platform that was open.
func (r Registration) differs(c Cluster, kid string) (names []string) {
	for _, v := range []struct {
		name string
		same bool
	}{
		{"name", r.Name == c.Name},
		{"platform", r.Platform == c.Platform || r.Platform == ""},
		{"cluster type", r.Type == c.Type},
		{"environment", r.Environment == c.Environment},
		{"ring", r.Ring == c.Ring},
		{"expected interval", r.ExpectedInterval == c.ExpectedInterval},
		{"set of labels", maps.Equal(r.Labels, c.Labels)},
		{"key", slices.Equal(r.KeyIDs, []string{kid}) || kid == "" && len(r.KeyIDs) == 0},
	} {
		if !v.same {
			names = append(names, v.name)
		}
	}
	return names
}
