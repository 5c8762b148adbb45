package hub

import (
	"crypto"
	"crypto/ed25519"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/wherry-dev/wherry/bundle"
)

// DefaultExpectedInterval is how often a cluster is expected to report where its registration does not
// say. A cluster that has been silent for three intervals is stale.
const DefaultExpectedInterval = time.Hour

// Cluster is what a person registers: the hub's word on which cluster a key speaks for and where that
// cluster belongs. What an agent claims of itself does not change it.
type Cluster struct {
	UID         string            `json:"uid"`
	Name        string            `json:"name"`
	Platform    string            `json:"platform,omitempty"`
	Type        string            `json:"type"`
	Environment string            `json:"environment"`
	Ring        string            `json:"ring,omitempty"`
	Labels      map[string]string `json:"labels,omitempty"`
	// Key verifies the agent's reports.
	Key ed25519.PublicKey `json:"-"`
	// ExpectedInterval is the longest usual time between two reports; zero means what is registered, or
	// else DefaultExpectedInterval. For sites that report by media it is the time between two trips.
	ExpectedInterval time.Duration `json:"-"`
}

// Registration is a registered cluster as the hub keeps it.
type Registration struct {
	Cluster
	// KeyIDs names the keys in force.
	KeyIDs  []string  `json:"keyIDs"`
	AddedAt time.Time `json:"addedAt"`
	// ExpectedSeconds is Cluster.ExpectedInterval.
	ExpectedSeconds int64 `json:"expectedSeconds"`
	// Conflicts counts reports that were refused because another one with their number is stored, which
	// means that two agents share this cluster's identity.
	Conflicts int `json:"conflicts,omitempty"`
	// SharedSince is when reports first showed that two agents share this identity, and SharedHow what showed
	// it; nil while none does.
	SharedSince *time.Time `json:"sharedSince,omitempty"`
	SharedHow   string     `json:"sharedHow,omitempty"`
	// RetiredAt is nil while the cluster is expected to report.
	RetiredAt     *time.Time `json:"retiredAt,omitempty"`
	RetiredReason string     `json:"retiredReason,omitempty"`
}

// Bounds of a registration.
const (
	maxLabels = 64
	maxText   = 512 // bytes of a single value
)

var (
	uidPattern  = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._:-]{0,127}$`)
	namePattern = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9._-]{0,251}[A-Za-z0-9])?$`)
)

// check returns an error wrapping ErrInvalid that names the first value that is not acceptable.
func (c Cluster) check() error {
	switch {
	case !uidPattern.MatchString(c.UID):
		return fmt.Errorf("cluster uid %q: %w: it is 1 to 128 letters, digits and . _ : - and begins with a letter or digit", c.UID, ErrInvalid)
	case !namePattern.MatchString(c.Name):
		return fmt.Errorf("cluster name %q: %w: it is 1 to 253 letters, digits and . _ - and begins and ends with a letter or digit", c.Name, ErrInvalid)
	case c.Type == "" || c.Environment == "":
		return fmt.Errorf("cluster %s: %w: it needs a cluster type and an environment", c.Name, ErrInvalid)
	case len(c.Key) != ed25519.PublicKeySize:
		return fmt.Errorf("cluster %s: %w: it needs the Ed25519 key that its agent signs reports with", c.Name, ErrInvalid)
	case c.ExpectedInterval < 0:
		return fmt.Errorf("cluster %s: %w: the expected interval %s is negative", c.Name, ErrInvalid, c.ExpectedInterval)
	}
	return checkTexts("cluster "+c.Name, c.Labels, c.Platform, c.Type, c.Environment, c.Ring)
}

// checkTexts returns an error wrapping ErrInvalid that names the first text that is too long, or not plain.
func checkTexts(of string, labels map[string]string, texts ...string) error {
	for _, s := range texts {
		if len(s) > maxText || s != plain(s) {
			return fmt.Errorf("%s: %w: %q", of, ErrInvalid, clip(s))
		}
	}
	if len(labels) > maxLabels {
		return fmt.Errorf("%s: %w: it has %d labels, at most %d", of, ErrInvalid, len(labels), maxLabels)
	}
	for k, v := range labels {
		if len(k)+len(v) > maxText || k != plain(k) || v != plain(v) {
			return fmt.Errorf("%s: %w: label %q=%q", of, ErrInvalid, clip(k), clip(v))
		}
	}
	return nil
}

// EncodePublicKey returns a public key in PEM.
func EncodePublicKey(key crypto.PublicKey) ([]byte, error) {
	der, err := x509.MarshalPKIXPublicKey(key)
	if err != nil {
		return nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}), nil
}

// ParseReportKey reads the public half of an agent's report key in PEM. The error wraps ErrInvalid.
func ParseReportKey(data []byte) (ed25519.PublicKey, error) {
	block, rest := pem.Decode(data)
	switch {
	case block == nil:
		return nil, fmt.Errorf("report key: %w: it holds no PEM block", ErrInvalid)
	case strings.Contains(block.Type, "PRIVATE KEY"):
		return nil, fmt.Errorf("report key: %w: it is a private key, which should not leave its machine; give the public half", ErrInvalid)
	case len(strings.TrimSpace(string(rest))) > 0:
		return nil, fmt.Errorf("report key: %w: something follows the first PEM block", ErrInvalid)
	}
	parsed, err := bundle.ParsePublicKey(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("report key: %w: %v", ErrInvalid, err)
	}
	key, ok := parsed.(ed25519.PublicKey)
	if !ok {
		return nil, fmt.Errorf("report key: %w: it is a %T, and agents sign reports with Ed25519", ErrInvalid, parsed)
	}
	return key, nil
}
