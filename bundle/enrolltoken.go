package bundle

import (
	"crypto"
	"crypto/ed25519"
	"encoding/base32"
	"errors"
	"fmt"
	"strings"

	"github.com/wherry-dev/wherry/bundle/lazyregexp"
)

// EnrollToken lets an agent register itself at a hub. Its secret is the seed of an Ed25519 key that signs the
// agent's request: the hub keeps the public half alone, and the secret never travels. The token also names the hub's
// key, so that the agent can verify the answer, whatever way it came.
type EnrollToken struct {
	key ed25519.PrivateKey
	// Hub is the beginning of the id of the hub's key; see IsHub.
	Hub string
}

// ErrToken is wrapped by errors about texts that are no token. The errors do not quote the text.
var ErrToken = errors.New("not an enrollment token")

// tokenIDLength is the length of a token's id, in hex digits: the beginning of its key's id.
const tokenIDLength = 12

var (
	tokenPattern  = lazyregexp.New(`^wht_([0-9a-f]{12})_([a-z2-7]{52})_([0-9a-f]{32})$`)
	tokenEncoding = base32.StdEncoding.WithPadding(base32.NoPadding)
)

// NewEnrollToken makes a token for the hub with the given key.
func NewEnrollToken(hub crypto.PublicKey) (EnrollToken, error) {
	id, err := KeyID(hub)
	if err != nil {
		return EnrollToken{}, err
	}
	_, key, err := ed25519.GenerateKey(nil)
	return EnrollToken{key, id[:HubIDLength]}, err
}

// ParseEnrollToken parses the output of Reveal, and ignores space around it. The error wraps ErrToken.
func ParseEnrollToken(s string) (EnrollToken, error) {
	m := tokenPattern.FindStringSubmatch(strings.TrimSpace(s))
	if m == nil {
		return EnrollToken{}, fmt.Errorf("%w: one looks like wht_ID_SECRET_HUB", ErrToken)
	}
	seed, err := tokenEncoding.DecodeString(strings.ToUpper(m[2]))
	if err != nil || len(seed) != ed25519.SeedSize {
		return EnrollToken{}, fmt.Errorf("%w: its secret is damaged", ErrToken)
	}
	t := EnrollToken{ed25519.NewKeyFromSeed(seed), m[3]}
	if t.ID() != m[1] {
		return EnrollToken{}, fmt.Errorf("%w: a part of it is damaged", ErrToken)
	}
	return t, nil
}

// Key returns the private key that signs requests.
func (t EnrollToken) Key() crypto.Signer { return t.key }

// ID names the token. It is no secret.
func (t EnrollToken) ID() string {
	id, err := KeyID(t.key.Public())
	if err != nil {
		return "" // never for an Ed25519 key
	}
	return id[:tokenIDLength]
}

// Reveal returns the token with its secret.
func (t EnrollToken) Reveal() string {
	return "wht_" + t.ID() + "_" + strings.ToLower(tokenEncoding.EncodeToString(t.key.Seed())) + "_" + t.Hub
}

// String keeps the secret out of logs.
func (t EnrollToken) String() string { return "wht_" + t.ID() + "_…" }

// GoString keeps it out of %#v as well.
func (t EnrollToken) GoString() string { return t.String() }
