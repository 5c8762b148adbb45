package relational

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"sync"

	"github.com/klauspost/compress/zstd"

	"github.com/wherry-dev/wherry/hub/store"
)

// The envelopes of a batch are kept together, compressed with zstd: for each its length, and its bytes in one of two forms. The
// usual form of an envelope is kept as its payload and signature, which base64 would make longer and hide from the compression.
const (
	plainForm = 0 // the envelope itself
	usualForm = 1 // key id and signature, each after its length, and the payload
)

// The parts of the usual form around payload, key id and signature.
const (
	beforePayload   = `{"payloadType":"application/vnd.wherry.report.v1+json","payload":"`
	beforeKeyID     = `","signatures":[{"keyid":"`
	beforeSignature = `","sig":"`
	afterSignature  = `"}]}`
)

// maxBody bounds the envelopes of a batch, in bytes, before compression.
const maxBody = 1 << 30

var strict = base64.StdEncoding.Strict()

// zstdWriter and zstdReader may be used by several goroutines at once.
var (
	zstdWriter = sync.OnceValues(func() (*zstd.Encoder, error) {
		return zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(4), zstd.WithEncoderCRC(false))
	})
	zstdReader = sync.OnceValues(func() (*zstd.Decoder, error) {
		return zstd.NewReader(nil, zstd.WithDecoderConcurrency(4), zstd.WithDecoderMaxMemory(maxBody))
	})
)

// packEnvelopes returns the envelopes of reports as they are kept. A report without one is empty there; nil means that none has one.
func packEnvelopes(reports []store.Report) ([]byte, error) {
	var plain []byte
	some := false
	for _, r := range reports {
		some = some || len(r.Envelope) > 0
		at := len(plain)
		plain = binary.LittleEndian.AppendUint32(plain, 0)
		plain = appendEnvelope(plain, r.Envelope)
		binary.LittleEndian.PutUint32(plain[at:], uint32(len(plain)-at-4))
	}
	if !some {
		return nil, nil
	}
	w, err := zstdWriter()
	if err != nil {
		return nil, err
	}
	return w.EncodeAll(plain, nil), nil
}

func appendEnvelope(to, envelope []byte) []byte {
	if len(envelope) == 0 {
		return to
	}
	payload, rest, ok := cut(envelope, beforePayload, beforeKeyID)
	keyID, rest, ok2 := cut(rest, "", beforeSignature)
	signature, rest, ok3 := cut(rest, "", afterSignature)
	from := len(to)
	if ok && ok2 && ok3 && len(rest) == 0 && len(keyID) < 256 {
		if sig, err := strict.AppendDecode(nil, signature); err == nil && len(sig) < 256 {
			to = append(to, usualForm, byte(len(keyID)))
			to = append(to, keyID...)
			to = append(append(to, byte(len(sig))), sig...)
			if to, err = strict.AppendDecode(to, payload); err == nil && bytes.Equal(rebuilt(to[from+1:]), envelope) {
				return to
			}
		}
	}
	return append(append(to[:from], plainForm), envelope...)
}

// cut returns what is between two texts, and what is after the second.
func cut(s []byte, before, after string) (between, rest []byte, ok bool) {
	if !bytes.HasPrefix(s, []byte(before)) {
		return nil, nil, false
	}
	return bytes.Cut(s[len(before):], []byte(after))
}

// rebuilt returns the envelope that is kept in the usual form; nil if that is damaged.
func rebuilt(kept []byte) []byte {
	var texts [2][]byte
	for i := range texts {
		if len(kept) < 1 || len(kept) < 1+int(kept[0]) {
			return nil
		}
		texts[i], kept = kept[1:1+int(kept[0])], kept[1+int(kept[0]):]
	}
	all := make([]byte, 0, len(kept)*4/3+400)
	all = strict.AppendEncode(append(all, beforePayload...), kept)
	all = append(append(all, beforeKeyID...), texts[0]...)
	all = strict.AppendEncode(append(all, beforeSignature...), texts[1])
	return append(all, afterSignature...)
}

// unpackEnvelopes returns the envelopes of a batch. Those of reports without one are nil.
func unpackEnvelopes(body []byte) ([][]byte, error) {
	r, err := zstdReader()
	if err != nil {
		return nil, err
	}
	plain, err := r.DecodeAll(body, nil)
	if err != nil {
		return nil, fmt.Errorf("%w: envelopes of a batch: %v", store.ErrCorrupt, err)
	}
	var all [][]byte
	for len(plain) > 0 {
		if len(plain) < 4 || int(binary.LittleEndian.Uint32(plain)) > len(plain)-4 {
			return nil, fmt.Errorf("%w: envelopes of a batch are cut short", store.ErrCorrupt)
		}
		n := int(binary.LittleEndian.Uint32(plain))
		one := plain[4 : 4+n]
		plain = plain[4+n:]
		switch {
		case n == 0:
			all = append(all, nil)
		case one[0] == plainForm:
			all = append(all, one[1:])
		case one[0] == usualForm && rebuilt(one[1:]) != nil:
			all = append(all, rebuilt(one[1:]))
		default:
			return nil, fmt.Errorf("%w: envelope of form %d", store.ErrCorrupt, one[0])
		}
	}
	return all, nil
}
