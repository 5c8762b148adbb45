package relational

import (
	"encoding/binary"
	"fmt"
	"sync"

	"github.com/klauspost/compress/zstd"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/hub/store"
)

// The envelopes of a batch are kept together, compressed with zstd: for each its length, and its bytes in one of two forms. The
// usual form of an envelope is kept as its payload and signature, which base64 would make longer and hide from the compression.
const (
	plainForm = 0 // the envelope itself
	usualForm = 1 // key id and signature, each after its length, and the payload
)

// maxBody bounds the envelopes of a batch, in bytes, before compression.
const maxBody = 1 << 30

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
	size := 0
	some := false
	for i := range reports {
		some = some || len(reports[i].Envelope) > 0
		size += 4 + len(reports[i].Envelope)
	}
	if !some {
		return nil, nil
	}
	buffer, _ := plainBuffers.Get().(*[]byte)
	if buffer == nil || cap(*buffer) < size {
		buffer = new(make([]byte, 0, size))
	}
	plain := (*buffer)[:0]
	for i := range reports {
		r := &reports[i]
		at := len(plain)
		plain = binary.LittleEndian.AppendUint32(plain, 0)
		plain = appendEnvelope(plain, r)
		binary.LittleEndian.PutUint32(plain[at:], uint32(len(plain)-at-4))
	}
	w, err := zstdWriter()
	if err != nil {
		return nil, err
	}
	body := w.EncodeAll(plain, make([]byte, 0, len(plain)/2))
	if *buffer = plain; cap(plain) <= maxPlainBuffer {
		plainBuffers.Put(buffer)
	}
	return body, nil
}

// plainBuffers are *[]byte for the envelopes of a batch before compression. Larger ones than maxPlainBuffer are not kept.
var plainBuffers sync.Pool

const maxPlainBuffer = 1 << 20

func appendEnvelope(to []byte, r *store.Report) []byte {
	if len(r.Envelope) == 0 {
		return to
	}
	e := r.Usual
	if e == nil {
		if parsed, rest, ok := bundle.ParseUsualEnvelope(bundle.PayloadTypeReport, r.Envelope); ok && len(rest) == 0 {
			e = &parsed
		}
	}
	if e == nil || len(e.KeyID) > 255 || len(e.Signature) > 255 {
		return append(append(to, plainForm), r.Envelope...)
	}
	to = append(append(to, usualForm, byte(len(e.KeyID))), e.KeyID...)
	to = append(append(to, byte(len(e.Signature))), e.Signature...)
	return append(to, e.Body...)
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
	e := bundle.UsualEnvelope{PayloadType: bundle.PayloadTypeReport, KeyID: string(texts[0]), Signature: texts[1], Body: kept}
	return e.AppendTo(make([]byte, 0, len(kept)*4/3+400))
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
