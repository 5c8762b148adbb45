package trust

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/secure-systems-lab/go-securesystemslib/dsse"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/show"
	"github.com/wherry-dev/wherry/publisher/keys"
	"github.com/wherry-dev/wherry/publisher/usage"
)

// Sign adds the signatures of keys to the document in envelope, each once. Each has to be a root key
// of it or, where that is given, of previous, the document before it: a root key that leaves signs as well.
func Sign(envelope, previous []byte, keys []*keys.Key) ([]byte, error) {
	s, err := StatusOf(envelope, previous)
	if err != nil {
		return nil, err
	}
	for _, key := range keys {
		id, err := bundle.KeyID(key.Public())
		if err != nil {
			return nil, err
		}
		if !s.asks(id) {
			return nil, &usage.Error{Err: s.refuseKey(id, previous != nil)}
		}
		if envelope, err = bundle.SignTrust(envelope, key); err != nil {
			return nil, err
		}
	}
	return envelope, nil
}

// Join returns envelope with the signatures of others, which have to be of the same document. It is
// how those who have signed copies of a file make one of them.
func Join(envelope []byte, others ...[]byte) ([]byte, error) {
	d, _, err := bundle.OpenTrust(envelope)
	if err != nil {
		return nil, err
	}
	var joined dsse.Envelope
	if err := json.Unmarshal(envelope, &joined); err != nil {
		return nil, err
	}
	for _, other := range others {
		if _, _, err := bundle.OpenTrust(other); err != nil {
			return nil, err
		}
		var env dsse.Envelope
		if err := json.Unmarshal(other, &env); err != nil {
			return nil, err
		}
		if env.Payload != joined.Payload {
			return nil, usage.Errorf("it is another document, of which signatures say nothing about this one")
		}
		for _, s := range env.Signatures {
			if err := joinSignature(&joined, s, d.Root); err != nil {
				return nil, err
			}
		}
	}
	slices.SortStableFunc(joined.Signatures, func(a, b dsse.Signature) int { return cmp.Compare(a.KeyID, b.KeyID) })
	data, err := json.Marshal(joined)
	if err != nil {
		return nil, err
	}
	_, _, err = bundle.OpenTrust(data) // its bounds
	return data, err
}

// joinSignature adds s, unless it or another one by the same key is there. Whose a signature is, only the
// key says: the envelope's word for it is anybody's.
func joinSignature(env *dsse.Envelope, s dsse.Signature, root bundle.Role) error {
	if slices.Contains(env.Signatures, s) {
		return nil
	}
	alone := *env
	alone.Signatures = []dsse.Signature{s}
	by, err := signersOf(alone, root)
	if err != nil {
		return err
	}
	have, err := signersOf(*env, root)
	if err == nil && (len(by) == 0 || !slices.Contains(have, by[0])) {
		env.Signatures = append(slices.Clone(env.Signatures), s)
	}
	return err
}

func signersOf(env dsse.Envelope, role bundle.Role) ([]string, error) {
	data, err := json.Marshal(env)
	if err != nil {
		return nil, err
	}
	return bundle.TrustSigners(data, role)
}

// Status is a trust document with the state of its signatures. Its JSON form is an interface.
type Status struct {
	Platform  string      `json:"platform"`
	Version   int64       `json:"version"`
	Epoch     int64       `json:"epoch"`
	IssuedAt  time.Time   `json:"issuedAt"`
	ExpiresAt time.Time   `json:"expiresAt"`
	Root      bundle.Role `json:"root"`
	Release   bundle.Role `json:"release"`
	// Own counts the signatures by the document's own root keys.
	Own Quorum `json:"own"`
	// Previous counts the signatures by the root keys of the version before; nil for version 1, and if that
	// version was not given.
	Previous *Quorum `json:"previous,omitempty"`
	// Complete is true where all that are needed are known to be there.
	Complete bool `json:"complete"`
}

// Quorum is how many of a role's keys have signed.
type Quorum struct {
	Have int `json:"have"`
	Need int `json:"need"`
	// Signed and Missing list the role's keys.
	Signed  []KeyName `json:"signed"`
	Missing []KeyName `json:"missing"`
}

// Statuses returns the status of each document of a chain, none of an empty one.
func Statuses(chain bundle.TrustChain) ([]*Status, error) {
	all, before := []*Status{}, []byte(nil)
	for _, link := range chain {
		s, err := StatusOf(link.Envelope, before)
		if err != nil {
			return nil, err
		}
		all, before = append(all, s), link.Envelope
	}
	return all, nil
}

// KeyName is a key of a trust document without the key itself.
type KeyName struct {
	ID   string `json:"id"`
	Name string `json:"name,omitempty"`
}

// String names the key for people.
func (k KeyName) String() string {
	if k.Name == "" {
		return ShortKeyID(k.ID)
	}
	return fmt.Sprintf("%s (%s)", k.Cell(), ShortKeyID(k.ID))
}

// Cell names the key in a table: by its name alone if it has one.
func (k KeyName) Cell() string {
	if k.Name == "" {
		return ShortKeyID(k.ID)
	}
	return show.Cell(k.Name)
}

// ShortKeyID is enough of a key's id to tell it from others.
func ShortKeyID(id string) string { return id[:min(len(id), 12)] }

// namesOf returns keys without the keys themselves.
func namesOf(keys []bundle.TrustKey) []KeyName {
	names := []KeyName{}
	for _, k := range keys {
		names = append(names, KeyName{k.ID, k.Name})
	}
	return names
}

func listKeys(keys []KeyName) string {
	var texts []string
	for _, k := range keys {
		texts = append(texts, k.String())
	}
	return strings.Join(texts, ", ")
}

func (q Quorum) met() bool { return q.Have >= q.Need }

// lacks returns a text with the number of missing signatures and the keys that can give them.
func (q Quorum) lacks(whose string) string {
	verb := "are"
	if q.Need-q.Have == 1 {
		verb = "is"
	}
	return fmt.Sprintf("%d more of %s root keys %s needed, of %s", q.Need-q.Have, whose, verb, listKeys(q.Missing))
}

// StatusOf returns the state of the signatures on the document in envelope. Previous is the envelope of the version
// before it, or nil if unknown. The error is a *usage.Error if previous is another version.
func StatusOf(envelope, previous []byte) (*Status, error) {
	d, _, err := bundle.OpenTrust(envelope)
	if err != nil {
		return nil, err
	}
	s := &Status{
		Platform: d.Platform, Version: d.Version, Epoch: d.Epoch, IssuedAt: d.IssuedAt, ExpiresAt: d.ExpiresAt, Root: d.Root, Release: d.Release,
	}
	if s.Own, err = quorumOf(envelope, d.Root); err != nil {
		return nil, err
	}
	s.Complete = s.Own.met() && d.Version == 1
	if previous == nil {
		return s, nil
	}
	before, _, err := bundle.OpenTrust(previous)
	if err != nil {
		return nil, fmt.Errorf("the version before: %w", err)
	}
	if before.Version != d.Version-1 || before.Platform != d.Platform {
		return nil, usage.Errorf("version %d of platform %q is not the one before version %d of %q", before.Version, before.Platform, d.Version, d.Platform)
	}
	q, err := quorumOf(envelope, before.Root)
	s.Previous, s.Complete = &q, s.Own.met() && q.met()
	return s, err
}

func quorumOf(envelope []byte, role bundle.Role) (Quorum, error) {
	q := Quorum{Need: role.Threshold, Signed: []KeyName{}, Missing: []KeyName{}}
	ids, err := bundle.TrustSigners(envelope, role)
	q.Have = len(ids)
	for _, k := range namesOf(role.Keys) {
		if slices.Contains(ids, k.ID) {
			q.Signed = append(q.Signed, k)
		} else {
			q.Missing = append(q.Missing, k)
		}
	}
	return q, err
}

// asks reports whether the signature of a key counts.
func (s *Status) asks(id string) bool {
	has := func(q *Quorum) bool {
		return q != nil && slices.ContainsFunc(slices.Concat(q.Signed, q.Missing), func(k KeyName) bool { return k.ID == id })
	}
	return has(&s.Own) || has(s.Previous)
}

func (s *Status) refuseKey(id string, previousKnown bool) error {
	what := fmt.Sprintf("key %s is not a root key of version %d", ShortKeyID(id), s.Version)
	switch {
	case s.Version == 1:
		return fmt.Errorf("%s; those are %s", what, listKeys(namesOf(s.Root.Keys)))
	case previousKnown:
		return fmt.Errorf("%s, nor of version %d", what, s.Version-1)
	}
	return fmt.Errorf("%s: if it is one of version %d, give that as well, with --previous", what, s.Version-1)
}

// missing is the error of a document that is not signed by enough.
func (s *Status) missing() error {
	var parts []string
	if !s.Own.met() {
		parts = append(parts, s.Own.lacks("its own"))
	}
	if s.Previous != nil && !s.Previous.met() {
		parts = append(parts, s.Previous.lacks(fmt.Sprintf("version %d's", s.Version-1)))
	}
	return fmt.Errorf("%w: trust document version %d: %s", ErrNotYet, s.Version, strings.Join(parts, "; "))
}

// samePayload reports whether two envelopes hold the same document byte for byte, whatever their signatures.
func samePayload(a, b []byte) bool {
	var x, y dsse.Envelope
	if json.Unmarshal(a, &x) != nil || json.Unmarshal(b, &y) != nil {
		return false
	}
	m, errM := x.DecodeB64Payload()
	n, errN := y.DecodeB64Payload()
	return errM == nil && errN == nil && bytes.Equal(m, n)
}
