package bundle

import (
	"cmp"
	"crypto"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"
)

// TrustSchema is the version of the trust document that this code writes.
const TrustSchema = 1

// FirstEpoch is the epoch of a trust document's first version. Releases of a platform without one have
// epoch 0.
const FirstEpoch = 1

// maxRoleKeys bounds the keys of one role. All of them may be tried on each signature.
const maxRoleKeys = 32

// Trust holds the keys and the threshold for signatures on releases and environment records. The zero value trusts
// nobody.
type Trust struct {
	// Keys are the keys that may sign. Each counts once, however often it has signed.
	Keys Keys
	// Threshold is the number of keys that must have signed. Values below 1 mean 1.
	Threshold int
	// Epoch is the epoch of acceptable releases; 0 without a trust document.
	Epoch int64
}

// Pinned returns the trust in pinned public keys, without a trust document: any one of keys may sign, in epoch 0.
func Pinned(keys Keys) Trust { return Trust{Keys: keys, Threshold: 1} }

// TrustDocument lists the keys that may sign a platform's releases, and the keys that may sign the next document. It
// travels in a DSSE envelope; TrustChain verifies it.
type TrustDocument struct {
	Schema   int    `json:"schema"`
	Platform string `json:"platform"`
	// Version counts from 1, without gaps.
	Version int64 `json:"version"`
	// Epoch is the epoch of releases signed under this document. It begins at FirstEpoch and never falls. A higher
	// epoch invalidates every release of lower ones, and sequences begin again.
	Epoch int64 `json:"epoch"`
	// IssuedAt and ExpiresAt are in UTC, in whole seconds. Under an expired document, no new release is accepted
	// until another version follows.
	IssuedAt  time.Time `json:"issuedAt"`
	ExpiresAt time.Time `json:"expiresAt"`
	// Root may sign the next version.
	Root Role `json:"root"`
	// Release may sign releases and environment records.
	Release Role `json:"release"`
}

// Role is a set of keys, of which a number has to sign.
type Role struct {
	// Threshold is from 1 to the number of keys.
	Threshold int `json:"threshold"`
	// Keys is sorted by ID.
	Keys []TrustKey `json:"keys"`
}

// TrustKey is a public key in a trust document.
type TrustKey struct {
	// ID is the key's id; see KeyID.
	ID string `json:"id"`
	// Name is for people, such as "anna" or "build server". It may be empty.
	Name string `json:"name,omitempty"`
	// PublicKey is in PEM.
	PublicKey string `json:"publicKey"`
}

// NewTrustKey returns pub as a key for a trust document, under a name for people.
func NewTrustKey(name string, pub crypto.PublicKey) (TrustKey, error) {
	id, err := KeyID(pub)
	if err != nil {
		return TrustKey{}, err
	}
	pem, err := MarshalPublicKey(pub)
	return TrustKey{ID: id, Name: name, PublicKey: string(pem)}, err
}

// ErrTrustExpired is wrapped, besides a *Refusal, by the error that Admits returns if the document has expired.
var ErrTrustExpired = errors.New("the trust document has expired")

type trustExpired struct{ *Refusal }

func (e trustExpired) Unwrap() error        { return e.Refusal }
func (e trustExpired) Is(target error) bool { return target == ErrTrustExpired }

// Belongs returns a *Refusal with the reason WrongPlatform unless the document is for that platform.
func (d TrustDocument) Belongs(platform string) error {
	if d.Platform != platform {
		return Refuse(WrongPlatform, "the trust document is for platform %q, and not for %q", d.Platform, platform)
	}
	return nil
}

// Admits returns nil if new content of a platform may be accepted under the document at the time now: the document has to
// be for that platform, and must not have expired. Otherwise the error wraps a *Refusal, and ErrTrustExpired too if the
// document has expired.
func (d TrustDocument) Admits(platform string, now time.Time) error {
	if err := d.Belongs(platform); err != nil {
		return err
	}
	if now.Before(d.ExpiresAt) {
		return nil
	}
	return trustExpired{&Refusal{
		Reason:  Expired,
		Message: fmt.Sprintf("version %d of the trust document expired at %s, and here it is %s: nothing new is taken under it", d.Version, d.ExpiresAt.Format(time.RFC3339), now.UTC().Format(time.DateOnly)),
	}}
}

// Trust returns the keys and the threshold for releases while d is in force.
func (d TrustDocument) Trust() Trust {
	keys, _ := d.Release.keys() // an invalid document trusts nobody
	return Trust{Keys: keys, Threshold: d.Release.Threshold, Epoch: d.Epoch}
}

// Marshal returns the document's bytes, the same for the same document. It returns an error if ParseTrustDocument
// would.
func (d TrustDocument) Marshal() ([]byte, error) {
	byID := func(a, b TrustKey) int { return cmp.Compare(a.ID, b.ID) }
	d.Root.Keys = slices.SortedFunc(slices.Values(d.Root.Keys), byID)
	d.Release.Keys = slices.SortedFunc(slices.Values(d.Release.Keys), byID)
	if err := d.check(); err != nil {
		return nil, err
	}
	return json.Marshal(d)
}

// ParseTrustDocument reads and checks a document, but not its signatures, which TrustChain checks.
// Its errors are of type *Refusal, with the reason TrustDocumentRejected.
func ParseTrustDocument(data []byte) (TrustDocument, error) {
	var d TrustDocument
	if len(data) > MaxTrustBytes {
		return d, Refuse(TrustDocumentRejected, "trust document has %d bytes, at most %d are allowed", len(data), MaxTrustBytes)
	}
	if err := json.Unmarshal(data, &d); err != nil {
		return TrustDocument{}, Refuse(TrustDocumentRejected, "trust document: %v", err)
	}
	if err := d.check(); err != nil {
		return TrustDocument{}, Refuse(TrustDocumentRejected, "%v", err)
	}
	return d, nil
}

func (d TrustDocument) check() error {
	switch {
	case d.Schema > TrustSchema:
		return fmt.Errorf("trust document has schema %d, this version reads %d: %s", d.Schema, TrustSchema, tooNew)
	case d.Schema != TrustSchema:
		return fmt.Errorf("trust document has schema %d, this version reads %d", d.Schema, TrustSchema)
	case d.Platform == "":
		return errors.New("trust document names no platform")
	case d.Version < 1:
		return fmt.Errorf("trust document has version %d", d.Version)
	case d.Epoch < FirstEpoch, d.Version == 1 && d.Epoch != FirstEpoch:
		return fmt.Errorf("trust document version %d has epoch %d: it begins at %d in version 1", d.Version, d.Epoch, FirstEpoch)
	case d.IssuedAt.IsZero() || !d.ExpiresAt.After(d.IssuedAt):
		return fmt.Errorf("trust document is issued at %s and expires at %s", d.IssuedAt, d.ExpiresAt)
	}
	if _, err := d.Root.keys(); err != nil {
		return fmt.Errorf("trust document, root: %w", err)
	}
	if _, err := d.Release.keys(); err != nil {
		return fmt.Errorf("trust document, release: %w", err)
	}
	return nil
}

// keys returns the role's distinct public keys.
func (r Role) keys() (Keys, error) {
	if len(r.Keys) > maxRoleKeys {
		return nil, fmt.Errorf("%d keys, at most %d are allowed", len(r.Keys), maxRoleKeys)
	}
	if r.Threshold < 1 || r.Threshold > len(r.Keys) {
		return nil, fmt.Errorf("threshold %d of %d keys", r.Threshold, len(r.Keys))
	}
	var keys Keys
	seen := map[string]bool{}
	for _, k := range r.Keys {
		parsed, err := ParsePublicKeys([]byte(k.PublicKey))
		if err != nil {
			return nil, fmt.Errorf("key %q: %w", k.ID, err)
		}
		if len(parsed) != 1 {
			return nil, fmt.Errorf("key %q holds %d keys", k.ID, len(parsed))
		}
		id, err := KeyID(parsed[0])
		switch {
		case err != nil:
			return nil, fmt.Errorf("key %q: %w", k.ID, err)
		case id != k.ID:
			return nil, fmt.Errorf("key %q has the id %s", k.ID, id)
		case seen[id]:
			return nil, fmt.Errorf("key %s is listed twice", id)
		}
		seen[id] = true
		keys = append(keys, parsed[0])
	}
	return keys, nil
}
