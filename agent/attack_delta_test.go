package agent

import (
	"bytes"
	"math/rand/v2"
	"net/http"
	"testing"

	"github.com/klauspost/compress/zstd"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/delta"
)

// large compresses to some kilobytes, so that there is room for deltas that are smaller.
func large() string {
	random := rand.New(rand.NewPCG(5, 6))
	data := make([]byte, 32<<10)
	for i := range data {
		data[i] = "0123456789abcdef"[random.IntN(16)]
	}
	return "a: " + string(data)
}

// zstdOf is data as zstd has it that knows no dictionary.
func zstdOf(t testing.TB, data []byte, opts ...zstd.EOption) []byte {
	t.Helper()
	enc, err := zstd.NewWriter(nil, opts...)
	require.NoError(t, err)
	return enc.EncodeAll(data, nil)
}

// The owner of a key can name any delta; a registry can send another one than the named one. Either only costs the agent
// the full layer: the applied tree is the signed one.
func TestAttackByADelta(t *testing.T) {
	// offered is an attacker's material: tars of the running tree, of the signed one, of one that is similar to
	// that, and of another one.
	type offered struct{ runs, signed, like, evil []byte }
	made := func(t testing.TB, base, next []byte) []byte {
		data, err := delta.Make(base, next)
		require.NoError(t, err)
		return data
	}
	for _, tc := range []struct {
		name string
		// named is the delta that the release names, sent what the registry has for it where that is another.
		named func(t testing.TB, o offered) []byte
		sent  func(named []byte) http.HandlerFunc
	}{
		{name: "a delta to another tree", named: func(t testing.TB, o offered) []byte { return made(t, o.runs, o.evil) }},
		{name: "a delta bomb", named: func(t testing.TB, _ offered) []byte { return zstdOf(t, make([]byte, 64<<20)) }},
		{name: "a delta from another tree", named: func(t testing.TB, o offered) []byte { return made(t, o.like, o.signed) }},
		{name: "a delta with a too large window", named: func(testing.TB, offered) []byte {
			return []byte{0x28, 0xb5, 0x2f, 0xfd, 0x00, 0xa0, 0x01, 0x00, 0x00} // 1 GiB, and an empty block
		}},
		{name: "a delta with a dictionary's id", named: func(t testing.TB, o offered) []byte {
			return zstdOf(t, o.signed[:4<<10], zstd.WithEncoderDictRaw(7, o.runs))
		}},
		{name: "a delta with a tail", named: func(t testing.TB, o offered) []byte {
			return append(made(t, o.runs, o.signed[:4<<10]), made(t, o.runs, []byte("more"))...)
		}},
		{name: "a delta without zstd", named: func(testing.TB, offered) []byte { return []byte("#!/bin/sh\nreboot\n") }},
		{name: "a flipped bit in a delta", named: func(t testing.TB, o offered) []byte { return made(t, o.runs, o.signed[:4<<10]) }, sent: func(named []byte) http.HandlerFunc {
			flipped := bytes.Clone(named)
			flipped[len(flipped)/2] ^= 1
			return func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(flipped) }
		}},
		{name: "a delta without an end", named: func(t testing.TB, o offered) []byte { return made(t, o.runs, o.signed[:4<<10]) }, sent: func([]byte) http.HandlerFunc { return endless }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := besiege(t, func(s *siege) { s.opts.Content.Deltas = delta.Command(deltaCommand(t)) })
			files := map[string]string{"shop-main/config.yaml": large()}
			release := s.draft(6, files)
			o := offered{
				runs: s.tar(s.draft(5, map[string]string{"shop-main/config.yaml": "a: 1"})), signed: s.tar(release),
				like: s.tar(s.draft(6, map[string]string{"shop-main/config.yaml": large() + "\nb: 2"})),
				evil: s.tar(s.draft(6, evil)),
			}
			named := bundle.NewBlob(delta.MediaType, tc.named(t, o))
			named.Descriptor.Annotations = map[string]string{delta.AnnotationFrom: digest.FromBytes(o.runs).String()}
			s.push(named)
			release.ChangeManifest = func(m *ocispec.Manifest) { m.Layers = append(m.Layers, named.Descriptor) }
			want := s.publish(release)
			if tc.sent != nil {
				s.answer("/blobs/"+named.Descriptor.Digest.String(), tc.sent(named.Data))
			}
			s.registry.blobs.Store(0)

			r := s.sync()

			require.Equal(t, want.Digest, r.Status.Release.Running.Digest, r.Error)
			require.Equal(t, bundle.Compliant, r.Status.State)
			s.requireHost(files["shop-main/config.yaml"])
			require.EqualValues(t, 2, s.registry.blobs.Load(), "the delta, and the full layer")
			s.stop()
			require.Contains(t, s.log.String(), `msg="the full layer is fetched: a delta is of no use"`)
			s.start()
			s.end(9)
		})
	}
}
