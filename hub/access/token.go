package access

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"

	"github.com/wherry-dev/wherry/bundle/lazyregexp"
)

// ErrToken is wrapped by errors about texts that are no access token. The errors do not quote the text.
var ErrToken = errors.New("not an access token")

// secretBytes is the length of a token's secret, which cannot be guessed.
const secretBytes = 32

var tokenPattern = lazyregexp.New(`^wha_([0-9a-f]{12})_([A-Za-z0-9_-]{43})$`)

// Token is an access token with its secret.
type Token struct {
	id     string
	secret [secretBytes]byte
}

// NewToken returns a token that nobody has.
func NewToken() Token {
	var t Token
	var id [6]byte
	_, _ = rand.Read(id[:]) // which never fails
	_, _ = rand.Read(t.secret[:])
	t.id = hex.EncodeToString(id[:])
	return t
}

// ParseToken parses the output of Reveal, and ignores space around it. The error wraps ErrToken.
func ParseToken(s string) (Token, error) {
	m := tokenPattern.FindStringSubmatch(strings.TrimSpace(s))
	if m == nil {
		return Token{}, fmt.Errorf("%w: one looks like wha_ID_SECRET", ErrToken)
	}
	t := Token{id: m[1]}
	secret, err := base64.RawURLEncoding.Strict().DecodeString(m[2])
	if err != nil || len(secret) != secretBytes {
		return Token{}, fmt.Errorf("%w: its secret is damaged", ErrToken)
	}
	copy(t.secret[:], secret)
	return t, nil
}

// ID names the token. It is no secret.
func (t Token) ID() string { return t.id }

// Hash is what a hub keeps of the secret.
func (t Token) Hash() []byte {
	sum := sha256.Sum256(t.secret[:])
	return sum[:]
}

// Reveal returns the token with its secret.
func (t Token) Reveal() string {
	return "wha_" + t.id + "_" + base64.RawURLEncoding.EncodeToString(t.secret[:])
}

// String keeps the secret out of logs.
func (t Token) String() string { return "wha_" + t.id + "_…" }

// GoString keeps it out of %#v as well.
func (t Token) GoString() string { return t.String() }

// Format keeps it out of all other verbs.
func (t Token) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte(t.String())) }
