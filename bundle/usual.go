package bundle

import (
	"bytes"
	"crypto/ed25519"
	"encoding/base64"
	"strconv"
)

// UsualEnvelope is an envelope in the form that SealEnvelope writes, with one signature. Hubs read thousands of them a second,
// and this takes a fraction of the time of a JSON parser. Envelopes in other forms are as valid; OpenEnvelope opens all.
type UsualEnvelope struct {
	PayloadType, KeyID string
	Signature, Body    []byte
}

// The parts of the usual form around its values.
const (
	beforeType      = `{"payloadType":"`
	beforePayload   = `","payload":"`
	beforeKeyID     = `","signatures":[{"keyid":"`
	beforeSignature = `","sig":"`
	afterSignature  = `"}]}`
)

// ParseUsualEnvelope reads the envelope at the beginning of data, and returns what follows it. It reports whether the envelope
// is in the usual form. No signature is verified; see UsualEnvelope.SignedBy.
func ParseUsualEnvelope(payloadType string, data []byte) (e UsualEnvelope, rest []byte, ok bool) {
	rest, ok = cutPrefix(data, beforeType+payloadType+beforePayload)
	if !ok {
		return e, data, false
	}
	e.PayloadType = payloadType
	var body, keyID, signature []byte
	if body, rest, ok = cutText(rest, beforeKeyID); !ok {
		return e, data, false
	}
	if keyID, rest, ok = cutText(rest, beforeSignature); !ok {
		return e, data, false
	}
	if signature, rest, ok = cutText(rest, afterSignature); !ok {
		return e, data, false
	}
	for _, c := range keyID {
		if (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return e, data, false
		}
	}
	e.KeyID = string(keyID)
	if e.Body, ok = decodeStrict(body); !ok {
		return e, data, false
	}
	e.Signature, ok = decodeStrict(signature)
	return e, rest, ok
}

func cutPrefix(s []byte, prefix string) ([]byte, bool) {
	if len(s) < len(prefix) || string(s[:len(prefix)]) != prefix {
		return s, false
	}
	return s[len(prefix):], true
}

// cutText returns what is before the next quotation mark, with which after begins, and what is behind after.
func cutText(s []byte, after string) (text, rest []byte, ok bool) {
	i := bytes.IndexByte(s, '"')
	if i < 0 {
		return nil, s, false
	}
	rest, ok = cutPrefix(s[i:], after)
	return s[:i], rest, ok
}

// decodeStrict decodes base64 that is written in the one way that an encoder writes it.
func decodeStrict(text []byte) ([]byte, bool) {
	out := make([]byte, base64.StdEncoding.DecodedLen(len(text)))
	n, err := base64.StdEncoding.Strict().Decode(out, text)
	// A decoder passes over line ends.
	return out[:n], err == nil && base64.StdEncoding.EncodedLen(n) == len(text)
}

// AppendTo appends the envelope to data, byte for byte as ParseUsualEnvelope has read it.
func (e UsualEnvelope) AppendTo(data []byte) []byte {
	data = append(append(append(data, beforeType...), e.PayloadType...), beforePayload...)
	data = base64.StdEncoding.AppendEncode(data, e.Body)
	data = append(append(append(data, beforeKeyID...), e.KeyID...), beforeSignature...)
	data = base64.StdEncoding.AppendEncode(data, e.Signature)
	return append(data, afterSignature...)
}

// SignedBy reports whether a key has signed the envelope, as DSSE wants it.
func (e UsualEnvelope) SignedBy(key ed25519.PublicKey) bool {
	message := make([]byte, 0, len(e.Body)+len(e.PayloadType)+32)
	message = append(message, "DSSEv1 "...)
	message = strconv.AppendInt(message, int64(len(e.PayloadType)), 10)
	message = append(append(append(message, ' '), e.PayloadType...), ' ')
	message = strconv.AppendInt(message, int64(len(e.Body)), 10)
	message = append(append(message, ' '), e.Body...)
	return len(key) == ed25519.PublicKeySize && ed25519.Verify(key, message, e.Signature)
}
