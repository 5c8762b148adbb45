package trust

import (
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/secure-systems-lab/go-securesystemslib/dsse"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/publisher/keys"
	"github.com/wherry-dev/wherry/publisher/usage"
)

// DefaultValidity is how long a trust document lets new releases in.
const DefaultValidity = 365 * 24 * time.Hour

// minKeyPrefix is how much of a key's id names it: enough that nobody finds it in two keys by chance.
const minKeyPrefix = 8

// ErrNotYet is wrapped by errors about signatures that are missing still.
var ErrNotYet = errors.New("not yet")

// NewKey reads the one public key in data, PEM, under a name for people. It has to be one that
// wherry can sign with.
func NewKey(name string, data []byte) (bundle.TrustKey, error) {
	parsed, err := bundle.ParsePublicKeys(data)
	switch {
	case err != nil:
		return bundle.TrustKey{}, err
	case len(parsed) != 1:
		return bundle.TrustKey{}, fmt.Errorf("it holds %d keys: give one by one", len(parsed))
	}
	if _, ok := parsed[0].(ed25519.PublicKey); ok {
		return bundle.TrustKey{}, keys.ErrEd25519
	}
	return bundle.NewTrustKey(name, parsed[0])
}

// New returns version 1 of a platform's trust document, issued now, which nobody has signed.
func New(platform string, root, release bundle.Role, validFor time.Duration, now time.Time) ([]byte, error) {
	d := bundle.TrustDocument{
		Schema: bundle.TrustSchema, Platform: platform, Version: 1, Epoch: bundle.FirstEpoch, Root: root, Release: release,
	}
	setValidity(&d, validFor, now)
	return seal(d)
}

// Change changes a trust document; see Edit.
type Change func(*bundle.TrustDocument) error

// Edit applies changes to the document in envelope and issues it now, for as long as it was valid
// before, and returns it without signatures. One that nobody has signed keeps its version: it is being
// written still. Of one that has the signatures of its own roots the next version is made. Of one between
// the two nothing is made, with an error that wraps ErrNotYet: somebody has agreed to it as it is.
func Edit(envelope []byte, now time.Time, changes ...Change) ([]byte, error) {
	d, signedBy, err := bundle.OpenTrust(envelope)
	if err != nil {
		return nil, err
	}
	draft, err := IsDraft(envelope)
	switch {
	case err != nil:
		return nil, err
	case !draft && len(signedBy) < d.Root.Threshold:
		return nil, fmt.Errorf("%w: version %d is signed by %d of the %d root keys that it needs: have the others sign it, or give this file up and write it anew",
			ErrNotYet, d.Version, len(signedBy), d.Root.Threshold)
	}
	epoch, before := d.Epoch, d.Epoch
	if draft {
		before, err = epochBefore(envelope)
	} else {
		d.Version++
	}
	if err != nil {
		return nil, err
	}
	setValidity(&d, d.ExpiresAt.Sub(d.IssuedAt), now)
	for _, change := range changes {
		if err := change(&d); err != nil {
			return nil, &usage.Error{Err: err}
		}
	}
	if before != 0 {
		d.Epoch = max(epoch, min(d.Epoch, before+1))
	}
	if envelope, err = seal(d); err != nil {
		return nil, err
	}
	return writeDraft(envelope, before)
}

// draft is the envelope of a document that nobody has signed. It also has the epoch of the version before,
// which the document does not say, so that an epoch that is raised twice while the document is written is raised
// once. The first signature takes it out again. Zero is not known, or version 1.
type draft struct {
	dsse.Envelope
	EpochBefore int64 `json:"epochBefore,omitempty"`
}

func epochBefore(envelope []byte) (int64, error) {
	var t draft
	if err := json.Unmarshal(envelope, &t); err != nil {
		return 0, fmt.Errorf("trust document's envelope: %w", err)
	}
	return t.EpochBefore, nil
}

func writeDraft(envelope []byte, epochBefore int64) ([]byte, error) {
	t := draft{EpochBefore: epochBefore}
	if err := json.Unmarshal(envelope, &t.Envelope); err != nil {
		return nil, err
	}
	return json.Marshal(t)
}

// IsDraft reports whether nobody has signed the document in envelope.
func IsDraft(envelope []byte) (bool, error) {
	var env dsse.Envelope
	if err := json.Unmarshal(envelope, &env); err != nil {
		return false, fmt.Errorf("trust document's envelope: %w", err)
	}
	return len(env.Signatures) == 0, nil
}

// ValidFor has the document be valid for d from when it is issued. Zero changes nothing.
func ValidFor(validFor time.Duration) Change {
	return func(d *bundle.TrustDocument) error {
		if validFor != 0 {
			setValidity(d, validFor, d.IssuedAt)
		}
		return nil
	}
}

// RaiseEpoch begins a new epoch, in which no release so far counts. It is one above that of the version
// before, however often a document that nobody has signed is changed by it.
func RaiseEpoch(d *bundle.TrustDocument) error {
	d.Epoch++
	return nil
}

// Thresholds sets how many root and how many release keys have to sign. Zero changes nothing.
func Thresholds(root, release int) Change {
	return func(d *bundle.TrustDocument) error {
		if root != 0 {
			d.Root.Threshold = root
		}
		if release != 0 {
			d.Release.Threshold = release
		}
		return nil
	}
}

// The roles of a trust document.
const (
	RoleRoot    = "root"
	RoleRelease = "release"
)

func roleOf(d *bundle.TrustDocument, name string) (*bundle.Role, error) {
	switch name {
	case RoleRoot:
		return &d.Root, nil
	case RoleRelease:
		return &d.Release, nil
	}
	return nil, fmt.Errorf("unknown role %q (known: %s, %s)", name, RoleRoot, RoleRelease)
}

// AddKey adds key to a role.
func AddKey(role string, key bundle.TrustKey) Change {
	return func(d *bundle.TrustDocument) error {
		r, err := roleOf(d, role)
		if err != nil {
			return err
		}
		if i := indexOfKey(*r, key.ID); i >= 0 {
			return fmt.Errorf("%s is a %s key already", KeyName{key.ID, r.Keys[i].Name}, role)
		}
		r.Keys = append(slices.Clone(r.Keys), key)
		return nil
	}
}

// RemoveKey takes a key out of a role. The id may be shortened to what no other key there begins with.
func RemoveKey(role, id string) Change {
	return func(d *bundle.TrustDocument) error {
		r, err := roleOf(d, role)
		if err != nil {
			return err
		}
		if len(id) < minKeyPrefix {
			return fmt.Errorf("%q is not a key: give at least the first %d digits of its id", id, minKeyPrefix)
		}
		left := slices.DeleteFunc(slices.Clone(r.Keys), func(k bundle.TrustKey) bool { return strings.HasPrefix(k.ID, id) })
		switch gone := len(r.Keys) - len(left); {
		case gone == 0:
			return fmt.Errorf("no %s key has the id %s; there are %s", role, id, listKeys(namesOf(r.Keys)))
		case gone > 1:
			return fmt.Errorf("%d %s keys have ids that begin with %s: give more of it", gone, role, id)
		case len(left) < r.Threshold:
			return fmt.Errorf("without it there are %d %s keys, and %d have to sign: lower the threshold first, or add another key first",
				len(left), role, r.Threshold)
		}
		r.Keys = left
		return nil
	}
}

func setValidity(d *bundle.TrustDocument, validFor time.Duration, now time.Time) {
	d.IssuedAt = now.UTC().Truncate(time.Second)
	d.ExpiresAt = d.IssuedAt.Add(validFor.Truncate(time.Second))
}

// seal returns d in an envelope. An error about d is a *usage.Error, since d follows from the user's request.
func seal(d bundle.TrustDocument) ([]byte, error) {
	envelope, err := bundle.SealTrust(d)
	if err != nil {
		return nil, &usage.Error{Err: err}
	}
	return envelope, nil
}

func indexOfKey(r bundle.Role, id string) int {
	return slices.IndexFunc(r.Keys, func(k bundle.TrustKey) bool { return k.ID == id })
}
