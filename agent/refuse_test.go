package agent

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/bundle"
)

// Every case begins with release 5 applied. The attack then offers something else as latest.
func TestHostileOffersAreRefusedAndTheLastGoodStateStays(t *testing.T) {
	stranger, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	evil := map[string]string{"shop-main/config.yaml": "a: evil"}
	for _, tc := range []struct {
		name   string
		attack func(s *site) digest.Digest
		want   bundle.Reason
		// early refusals are made before any layer is requested
		early bool
	}{
		{"unsigned", func(s *site) digest.Digest {
			d := s.draft(6, evil)
			d.Signer = nil
			return s.publish(d).Digest
		}, bundle.Unsigned, true},
		{"signed with another key", func(s *site) digest.Digest {
			d := s.draft(6, evil)
			d.Signer = stranger
			return s.publish(d).Digest
		}, bundle.UntrustedKey, true},
		{"signature of a good release under the name of another", func(s *site) digest.Digest {
			d := s.draft(6, evil)
			d.Signer = nil
			bad := s.publish(d)
			good := s.resolve(bundle.SignatureTag(s.resolve("good").Digest))
			require.NoError(s.t, s.repo.Tag(context.Background(), good, bundle.SignatureTag(bad.Digest)))
			return bad.Digest
		}, bundle.DigestMismatch, true},
		{"release of another cluster type", func(s *site) digest.Digest {
			d := s.draft(6, evil)
			d.Release.ClusterType = "large"
			return s.publish(d).Digest
		}, bundle.WrongClusterType, true},
		{"release of another environment", func(s *site) digest.Digest {
			d := s.draft(6, evil)
			d.Release.Environment = "prod"
			return s.publish(d).Digest
		}, bundle.WrongEnvironment, true},
		{"release of another platform", func(s *site) digest.Digest {
			d := s.draft(6, evil)
			d.Release.Platform = "test"
			return s.publish(d).Digest
		}, bundle.WrongPlatform, true},
		{"release for a ring", func(s *site) digest.Digest {
			d := s.draft(6, evil)
			d.Release.Rings = []string{"canary"}
			return s.publish(d).Digest
		}, bundle.WrongRing, true},
		{"older release", func(s *site) digest.Digest { return s.publish(s.draft(4, evil)).Digest }, bundle.OlderRelease, true},
		{"release of another epoch", func(s *site) digest.Digest {
			d := s.draft(6, evil)
			d.Release.Epoch = 1
			return s.publish(d).Digest
		}, bundle.OldEpoch, true},
		{"expired release", func(s *site) digest.Digest {
			d := s.draft(6, evil)
			d.Release.ExpiresAt = s.now
			return s.publish(d).Digest
		}, bundle.Expired, true},
		{"layer above the bound", func(s *site) digest.Digest {
			d := s.draft(6, evil)
			d.ChangeManifest = func(m *ocispec.Manifest) { m.Layers[0].Size = bundle.MaxTreeBytes + 1 }
			return s.publish(d).Digest
		}, bundle.TooLarge, true},
		{"something that is no bundle", func(s *site) digest.Digest {
			d := s.draft(6, evil)
			d.ChangeManifest = func(m *ocispec.Manifest) { m.ArtifactType = "application/x" }
			return s.publish(d).Digest
		}, bundle.BadContent, true},
		{"bytes of the layer changed in the registry", func(s *site) digest.Digest {
			d := s.publish(s.draft(6, evil))
			s.spoilLayer(d, func(b []byte) []byte { b[len(b)/2] ^= 1; return b })
			return d.Digest
		}, bundle.DigestMismatch, false},
		{"layer made longer in the registry", func(s *site) digest.Digest {
			d := s.publish(s.draft(6, evil))
			s.spoilLayer(d, func(b []byte) []byte { return append(b, "more"...) })
			return d.Digest
		}, bundle.DigestMismatch, false},
		{"signed tree of another digest", func(s *site) digest.Digest {
			d := s.draft(6, evil)
			d.ChangeRelease = func(r *bundle.Release) { r.Content.DiffID = digest.FromString("other") }
			return s.publish(d).Digest
		}, bundle.DigestMismatch, false},
		{"files that differ from the list of assignments", func(s *site) digest.Digest {
			d := s.draft(6, evil)
			d.ChangeList = func(as []bundle.Assignment) { as[0].Content = digest.FromString("other") }
			return s.publish(d).Digest
		}, bundle.BadContent, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t)
			good := s.publish(s.draft(5, map[string]string{"shop-main/config.yaml": "a: 1"}))
			require.NoError(t, s.repo.Tag(context.Background(), good, "good"))
			require.Equal(t, Done, s.once().Verdict)
			s.registry.blobs.Store(0)

			offered := tc.attack(s)
			for range 2 { // the second time from memory, or judged again
				r := s.once()

				require.Equal(t, Refused, r.Verdict, r.Error)
				require.Equal(t, bundle.Rejected, r.Status.State)
				require.Equal(t, string(tc.want), r.Status.Reason, r.Status.Message)
				require.NotEmpty(t, r.Status.Message)
				require.Equal(t, offered, r.Status.Release.Refused.Digest)
				require.Equal(t, good.Digest, r.Status.Release.Running.Digest)
				require.Equal(t, bundle.Compliant, r.Status.Items[0].State)
				requireFile(t, s.host, "shop-main/config.yaml", "a: 1")
			}
			if tc.early {
				require.Zero(t, s.registry.blobs.Load(), "no layer is requested before verify has said yes")
			}

			s.registry.spoil.Store(nil)
			healed := s.publish(s.draft(7, map[string]string{"shop-main/config.yaml": "a: 7"}))
			r := s.once()
			require.Equal(t, Done, r.Verdict, r.Error)
			require.Nil(t, r.Status.Release.Refused)
			require.Equal(t, healed.Digest, r.Status.Release.Running.Digest)
			requireFile(t, s.host, "shop-main/config.yaml", "a: 7")
		})
	}
}

func TestARefusedReleaseIsNotJudgedAgainBeforeSomethingChanges(t *testing.T) {
	s := newSite(t)
	s.publish(s.draft(5, map[string]string{"shop-main/config.yaml": "a: 1"}))
	s.once()
	s.publish(s.draft(4, map[string]string{"shop-main/config.yaml": "a: 0"}))
	require.Equal(t, Refused, s.once().Verdict)

	s.agent(func(a *Agent) {
		s.registry.requests.Store(0)
		out := a.makePass(context.Background(), scope{offer: s.repo})
		require.Equal(t, Refused, out.Verdict)
		require.EqualValues(t, 1, s.registry.requests.Load(), "one look at the tag")

		a.pinned.Keys = append(a.pinned.Keys, a.pinned.Keys[0]) // the same trust, told twice
		_ = a.makePass(context.Background(), scope{offer: s.repo})
		require.Greater(t, s.registry.requests.Load(), int64(2), "other trust judges again")
	})
}

func TestARefusalEndsWhenTheTagNamesTheRunningReleaseAgain(t *testing.T) {
	s := newSite(t)
	good := s.publish(s.draft(5, map[string]string{"shop-main/config.yaml": "a: 1"}))
	s.once()
	s.publish(s.draft(4, map[string]string{"shop-main/config.yaml": "a: 0"}))
	require.Equal(t, bundle.Rejected, s.once().Status.State)
	require.NoError(t, s.repo.Tag(context.Background(), good, bundle.LatestTag))

	r := s.once()

	require.Equal(t, Idle, r.Verdict)
	require.Equal(t, bundle.Compliant, r.Status.State)
	require.Nil(t, r.Status.Release.Refused)
	require.Empty(t, r.Status.Reason)
}

func TestAnAgentThatBecameAnotherDoesNotKeepWhatItWas(t *testing.T) {
	s := newSite(t)
	d := s.publish(s.draft(5, map[string]string{"shop-main/config.yaml": "a: 1"}))
	s.once()
	s.stream.Environment = "prod" // and the registry offers the same bundle there

	r := s.once()

	require.Equal(t, Refused, r.Verdict)
	require.Equal(t, string(bundle.WrongEnvironment), r.Status.Reason)
	require.Equal(t, d.Digest, r.Status.Release.Refused.Digest)
	require.Equal(t, d.Digest, r.Status.Release.Running.Digest)
	requireFile(t, s.host, "shop-main/config.yaml", "a: 1")
	require.Equal(t, Refused, s.once().Verdict)

	s.stream.Environment = "dev"
	require.Equal(t, bundle.Compliant, s.once().Status.State)
}

func TestADamagedLayerThatIsRepairedIsTaken(t *testing.T) {
	s := newSite(t)
	d := s.publish(s.draft(5, map[string]string{"shop-main/config.yaml": "a: 1"}))
	s.spoilLayer(d, func(b []byte) []byte { b[20] ^= 1; return b })
	require.Equal(t, Refused, s.once().Verdict)
	s.registry.spoil.Store(nil)

	r := s.once()

	require.Equal(t, Done, r.Verdict, r.Error)
	require.Equal(t, bundle.Compliant, r.Status.State)
	require.Nil(t, r.Status.Release.Refused)
}

func TestWhatWasAcceptedMayRunAfterItExpired(t *testing.T) {
	s := newSite(t)
	s.publish(s.draft(5, map[string]string{"shop-main/config.yaml": "a: 1"}))
	s.once()
	s.now = s.now.Add(100 * 24 * time.Hour)

	r := s.once()

	require.Equal(t, Idle, r.Verdict, r.Error)
	require.Equal(t, bundle.Compliant, r.Status.State)
	require.True(t, r.Status.Release.Running.Expired)
}

func TestAClockThatRunsBackDoesNotReviveAnExpiredRelease(t *testing.T) {
	s := newSite(t)
	s.publish(s.draft(5, map[string]string{"shop-main/config.yaml": "a: 1"}))
	s.once()
	d := s.draft(6, map[string]string{"shop-main/config.yaml": "a: 2"})
	d.Release.IssuedAt, d.Release.ExpiresAt = epoch, epoch.Add(time.Minute) // before release 5 was issued
	s.publish(d)
	s.now = epoch.Add(-365 * 24 * time.Hour)

	r := s.once()

	require.Equal(t, string(bundle.Expired), r.Status.Reason)
	require.Contains(t, s.log.String(), "release refused")
}

func (s *site) resolve(tag string) ocispec.Descriptor {
	s.t.Helper()
	d, err := s.repo.Resolve(context.Background(), tag)
	require.NoError(s.t, err)
	return d
}

// spoilLayer has the registry answer requests for the layer of manifest with other bytes.
func (s *site) spoilLayer(manifest ocispec.Descriptor, change func([]byte) []byte) {
	s.t.Helper()
	data, err := bundle.ReadBlob(context.Background(), s.repo, manifest, bundle.MaxManifestBytes)
	require.NoError(s.t, err)
	var m ocispec.Manifest
	require.NoError(s.t, json.Unmarshal(data, &m))
	spoil := func(path string, body []byte) []byte {
		if strings.HasSuffix(path, m.Layers[0].Digest.String()) {
			return change(bytes.Clone(body))
		}
		return body
	}
	s.registry.spoil.Store(&spoil)
}
