package agent

import (
	"bytes"
	"context"
	"crypto"
	"crypto/ecdsa"
	"encoding/base64"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/secure-systems-lab/go-securesystemslib/dsse"
	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/agent/agenttest"
	"github.com/wherry-dev/wherry/bundle"
)

// withRoots gives the agent version 1 of a trust document: two of three roots, and the site's key alone for
// releases.
func withRoots(s *siege) {
	s.roots = []crypto.Signer{agenttest.NewKey(), agenttest.NewKey(), agenttest.NewKey()}
	s.first = agenttest.NewTrust(s.stream.Platform, epoch, s.roots[0], s.key)
	s.first.Document.Root, s.first.Signers = agenttest.Role(2, s.roots...), s.roots[:2]
	s.epoch = bundle.FirstEpoch
	require.NoError(s.t, s.install(s.first))
}

// next is version 2 as the roots would make it. It is not newer than release 5, so that the floor stays.
func (s *siege) next() agenttest.Trust { return s.first.Next(epoch) }

// offersDocument offers what change makes of version 2, and a release for which it has to be looked at.
func offersDocument(change func(s *siege, d *agenttest.Trust)) func(*siege) digest.Digest {
	return offersEnvelope(func(s *siege) []byte {
		d := s.next()
		change(s, &d)
		envelope, err := d.Envelope()
		require.NoError(s.t, err)
		return envelope
	})
}

// offersEnvelope offers any bytes as version 2.
func offersEnvelope(make func(s *siege) []byte) func(*siege) digest.Digest {
	return func(s *siege) digest.Digest {
		require.NoError(s.t, agenttest.PublishEnvelope(context.Background(), s.trust, 2, make(s)))
		s.mend = func() { s.offerTrust(s.next()) }
		return s.release(6, "a: 6").Digest
	}
}

// Whoever can write to the registry, and has some of the keys, would like to say who may sign.
func TestAttackOnTrustDocuments(t *testing.T) {
	thief := agenttest.NewKey()
	mountAll(t, []attack{
		{name: "an unsigned trust document", want: bundle.TrustDocumentRejected, mount: offersDocument(func(_ *siege, d *agenttest.Trust) {
			d.Signers = nil
		})},
		{name: "a trust document by one root of two", want: bundle.TrustDocumentRejected, mount: offersDocument(func(s *siege, d *agenttest.Trust) {
			d.Document.Release, d.Signers = agenttest.Role(1, thief), []crypto.Signer{s.roots[0], thief}
		})},
		{name: "one root key that signs twice", want: bundle.TrustDocumentRejected, mount: offersEnvelope(func(s *siege) []byte {
			d := s.next()
			d.Signers = s.roots[:1]
			envelope, err := d.Envelope()
			require.NoError(s.t, err)
			return changed(s.t, envelope, func(e *dsse.Envelope) {
				again := e.Signatures[0]
				again.KeyID = strings.Repeat("0", 64)
				e.Signatures = append(e.Signatures, again)
			})
		})},
		{name: "one root key listed twice", want: bundle.TrustDocumentRejected, mount: offersEnvelope(func(s *siege) []byte {
			d := s.next()
			envelope, err := d.Envelope()
			require.NoError(s.t, err)
			return changed(s.t, envelope, func(e *dsse.Envelope) {
				d.Document.Root.Keys = append(d.Document.Root.Keys, d.Document.Root.Keys[0])
				body, err := json.Marshal(d.Document)
				require.NoError(s.t, err)
				e.Payload = base64.StdEncoding.EncodeToString(body)
			})
		})},
		{name: "a thief's roots, who sign for themselves", want: bundle.TrustDocumentRejected, mount: offersDocument(func(_ *siege, d *agenttest.Trust) {
			d.Document.Root, d.Signers = agenttest.Role(1, thief), []crypto.Signer{thief}
		})},
		{name: "new roots who did not sign", want: bundle.TrustDocumentRejected, mount: offersDocument(func(_ *siege, d *agenttest.Trust) {
			d.Document.Root = agenttest.Role(1, thief)
		})},
		{name: "a trust document signed with the release key", want: bundle.TrustDocumentRejected, mount: offersDocument(func(s *siege, d *agenttest.Trust) {
			d.Signers = []crypto.Signer{s.key}
		})},
		{name: "rollback: an older trust document", want: bundle.TrustDocumentRejected, mount: offersDocument(func(s *siege, d *agenttest.Trust) {
			*d = s.first
		})},
		{name: "a trust document after a gap", want: bundle.TrustDocumentRejected, mount: offersDocument(func(s *siege, d *agenttest.Trust) {
			*d = s.next().Next(epoch)
		})},
		{name: "a trust document of another platform", want: bundle.TrustDocumentRejected, mount: offersDocument(func(_ *siege, d *agenttest.Trust) {
			d.Document.Platform = "test"
		})},
		{name: "a trust document of a later format", want: bundle.TrustDocumentRejected, mount: offersEnvelope(func(s *siege) []byte {
			envelope, err := s.next().Envelope()
			require.NoError(s.t, err)
			return changed(s.t, envelope, func(e *dsse.Envelope) {
				body, err := e.DecodeB64Payload()
				require.NoError(s.t, err)
				e.Payload = base64.StdEncoding.EncodeToString(bytes.Replace(body, []byte(`"schema":1`), []byte(`"schema":2`), 1))
			})
		})},
		{name: "another envelope by the roots", want: bundle.TrustDocumentRejected, mount: offersEnvelope(func(s *siege) []byte {
			envelope, err := bundle.SealEnvelope(bundle.PayloadTypeReport, []byte(`{}`), s.roots[0])
			require.NoError(s.t, err)
			return envelope
		})},
		{name: "not a trust document", want: bundle.TrustDocumentRejected, mount: offersEnvelope(func(*siege) []byte { return []byte("hello") })},
		{name: "a too large trust document", want: bundle.TrustDocumentRejected, mount: func(s *siege) digest.Digest {
			blobs, err := bundle.TrustManifest([]byte("{}"))
			require.NoError(s.t, err)
			var m ocispec.Manifest
			require.NoError(s.t, json.Unmarshal(blobs[len(blobs)-1].Data, &m))
			m.Config.Size, m.Config.Data = bundle.MaxTrustBytes+1, nil
			s.tagIn(s.trust, m, bundle.TrustTag(2))
			s.mend = func() { s.offerTrust(s.next()) }
			return s.release(6, "a: 6").Digest
		}},
		{name: "an endless trust document", want: bundle.TrustDocumentRejected, mount: func(s *siege) digest.Digest {
			s.offerTrust(s.next())
			s.answer("/trust/manifests/v2", endless)
			return s.release(6, "a: 6").Digest
		}},
		{name: "an error with control characters, for a trust document", want: unreachable, mount: func(s *siege) digest.Digest {
			s.answer("/trust/manifests/v2", func(w http.ResponseWriter, _ *http.Request) {
				w.WriteHeader(http.StatusTeapot)
				_, _ = io.WriteString(w, `{"errors":[{"code":"TEAPOT","message":"\u001b[2J`+strings.Repeat("x", 4000)+`"}]}`)
			})
			return s.release(6, "a: 6").Digest
		}},
		{name: "a release as a trust document", want: bundle.TrustDocumentRejected, mount: func(s *siege) digest.Digest {
			s.tagIn(s.trust, s.manifestOf(s.good.Digest), bundle.TrustTag(2))
			s.mend = func() { s.offerTrust(s.next()) }
			return s.release(6, "a: 6").Digest
		}},
		{name: "an expired trust document", want: bundle.Expired, mount: func(s *siege) digest.Digest {
			s.setClock(s.first.Document.ExpiresAt)
			return s.offer(6, func(d *draft) { d.Release.ExpiresAt = s.first.Document.ExpiresAt.AddDate(1, 0, 0) })
		}},
		{name: "a newer, expired trust document", want: bundle.Expired, mount: func(s *siege) digest.Digest {
			old := s.next()
			old.Document.ExpiresAt = epoch.Add(time.Minute)
			s.offerTrust(old)
			s.mend = func() { s.offerTrust(s.next().Next(epoch)) }
			return s.release(6, "a: 6").Digest
		}},
		{name: "a release signed with root keys", want: bundle.UntrustedKey, mount: func(s *siege) digest.Digest {
			return s.offerUnsigned(func(offered digest.Digest) { s.sign(offered, offered, s.roots...) })
		}},
		{name: "a release signed with a removed key", want: bundle.UntrustedKey, mount: func(s *siege) digest.Digest {
			second, stolen := s.next(), s.key
			s.key = agenttest.NewKey().(*ecdsa.PrivateKey)
			second.Document.Release = agenttest.Role(1, s.key)
			s.offerTrust(second)
			return s.offer(6, func(d *draft) { d.Signer = stolen })
		}},
		{name: "a release from before the trust document", want: bundle.OldEpoch, mount: func(s *siege) digest.Digest {
			return s.offer(6, func(d *draft) { d.Release.Epoch = 0 })
		}},
		{name: "a release of a later epoch", want: bundle.OldEpoch, mount: func(s *siege) digest.Digest {
			return s.offer(6, func(d *draft) { d.Release.Epoch = 2 })
		}},
	}, withRoots)
}

// changed returns an envelope after f.
func changed(t testing.TB, envelope []byte, f func(*dsse.Envelope)) []byte {
	t.Helper()
	var e dsse.Envelope
	require.NoError(t, json.Unmarshal(envelope, &e))
	f(&e)
	envelope, err := json.Marshal(e)
	require.NoError(t, err)
	return envelope
}

// An epoch that the roots have begun does not end by an older trust document, or by one that takes it back.
func TestAttackByALowerEpoch(t *testing.T) {
	s := besiege(t, withRoots)
	second := s.next()
	second.Document.Epoch = 2
	s.offerTrust(second)
	s.epoch = 2
	s.good = s.release(1, "a: 1")
	require.Equal(t, s.good.Digest, s.sync().Status.Release.Running.Digest)
	before := s.memory()

	third := second.Next(epoch)
	third.Document.Epoch = 1
	s.offerTrust(third)
	offered := s.release(2, "a: 2").Digest
	s.requireRefused(s.sync(), bundle.TrustDocumentRejected, offered)
	require.Equal(t, before, s.memory())
	s.mend = func() { s.offerTrust(second.Next(epoch)) }
	s.end(9)
}

// The same on a medium. Its content is not verified when it is written.
func TestAttackOnTrustByTheMedium(t *testing.T) {
	s := besiege(t, withRoots)
	before := s.memory()
	s.offerTrust(s.first)
	bad := s.next()
	bad.Signers = []crypto.Signer{s.key}
	s.offerTrust(bad)
	m, offered := s.carried(6)
	s.registry.away.Store(true)
	for range 2 {
		r, err := s.client.Import(t.Context(), ImportRequest{Paths: []string{m.file(s)}})
		require.NoError(t, err)
		s.requireRefused(r.Result, bundle.TrustDocumentRejected, offered)
	}
	require.Equal(t, before, s.memory())
	s.registry.away.Store(false)
	s.mend = func() { s.offerTrust(s.next()) }
	s.end(9)
}
