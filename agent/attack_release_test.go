package agent

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/agent/agenttest"
	"github.com/wherry-dev/wherry/bundle"
)

// A release with a good signature, which was not meant for this agent, or not for now.
func TestAttackByReplay(t *testing.T) {
	mountAll(t, []attack{
		{name: "rollback: an older release under the tag", want: bundle.OlderRelease, mount: func(s *siege) digest.Digest {
			return s.offer(4, nil)
		}},
		{name: "rollback: the same sequence, issued earlier", want: bundle.OlderRelease, mount: func(s *siege) digest.Digest {
			return s.offer(5, func(d *draft) { d.Release.IssuedAt = d.Release.IssuedAt.Add(-time.Minute) })
		}},
		{name: "a release of another cluster type", want: bundle.WrongClusterType, mount: func(s *siege) digest.Digest {
			return s.offer(6, func(d *draft) { d.Release.ClusterType = "large" })
		}},
		{name: "a release of another environment", want: bundle.WrongEnvironment, mount: func(s *siege) digest.Digest {
			return s.offer(6, func(d *draft) { d.Release.Environment = "prod" })
		}},
		{name: "a test platform with the same keys", want: bundle.WrongPlatform, mount: func(s *siege) digest.Digest {
			return s.offer(6, func(d *draft) { d.Release.Platform = "test" })
		}},
		{name: "a canary under the stable tag", want: bundle.WrongRing, mount: func(s *siege) digest.Digest {
			return s.offer(6, func(d *draft) { d.Release.Rings = []string{"canary"} })
		}},
		{name: "a release of another epoch", want: bundle.OldEpoch, mount: func(s *siege) digest.Digest {
			return s.offer(6, func(d *draft) { d.Release.Epoch = 1 })
		}},
		{name: "an expired release", want: bundle.Expired, mount: func(s *siege) digest.Digest {
			return s.offer(6, func(d *draft) { d.Release.ExpiresAt = s.now })
		}},
		{name: "other signed content", want: bundle.BadContent, mount: func(s *siege) digest.Digest {
			return s.offer(6, func(d *draft) {
				d.ChangeManifest = func(m *ocispec.Manifest) { m.ArtifactType = bundle.MediaTypeEnvironment }
			})
		}},
		{name: "a release of a later format", want: bundle.UnsupportedSchema, mount: func(s *siege) digest.Digest {
			return s.offer(6, func(d *draft) { d.ChangeRelease = func(r *bundle.Release) { r.Schema = 2 } })
		}},
	})
}

// The owner of a trusted key can sign anything; its effect on the machine is bounded.
func TestAttackOnTheBounds(t *testing.T) {
	changed := func(change func(*ocispec.Manifest)) func(*siege) digest.Digest {
		return func(s *siege) digest.Digest {
			return s.offer(6, func(d *draft) { d.ChangeManifest = change })
		}
	}
	mountAll(t, []attack{
		{name: "a too large manifest", want: bundle.TooLarge, mount: changed(func(m *ocispec.Manifest) {
			m.Annotations = map[string]string{"pad": strings.Repeat("x", bundle.MaxManifestBytes)}
		})},
		{name: "a too large release document", want: bundle.TooLarge, mount: changed(func(m *ocispec.Manifest) {
			m.Config.Size = bundle.MaxReleaseBytes + 1
		})},
		{name: "a too large layer", want: bundle.TooLarge, mount: changed(func(m *ocispec.Manifest) {
			m.Layers[0].Size = bundle.MaxTreeBytes + 1
		})},
		{name: "a layer of negative size", want: bundle.TooLarge, mount: changed(func(m *ocispec.Manifest) {
			m.Layers[0].Size = -1
		})},
		{name: "a too large tree", want: bundle.TooLarge, mount: func(s *siege) digest.Digest {
			return s.offer(6, func(d *draft) {
				d.ChangeRelease = func(r *bundle.Release) { r.Content.Size = bundle.MaxTreeBytes + 1 }
			})
		}},
		{name: "too many files", want: bundle.TooLarge, mount: func(s *siege) digest.Digest {
			return s.offer(6, func(d *draft) {
				d.ChangeRelease = func(r *bundle.Release) { r.Content.Files = bundle.MaxFiles + 1 }
			})
		}},
		{name: "a path as a digest", want: bundle.BadContent, mount: changed(func(m *ocispec.Manifest) {
			m.Layers[0].Digest = "sha256:../../../agent.db"
		})},
		{name: "a layer without a digest", want: bundle.BadContent, mount: changed(func(m *ocispec.Manifest) { m.Layers[0].Digest = "" })},
		{name: "a second layer without a digest", want: bundle.BadContent, mount: changed(func(m *ocispec.Manifest) {
			m.Layers = append(m.Layers, ocispec.Descriptor{MediaType: "application/vnd.wherry.delta.v1+zstd"})
		})},
		{name: "no layer", want: bundle.BadContent, mount: changed(func(m *ocispec.Manifest) { m.Layers = nil })},
		{name: "a layer of zstd", want: bundle.BadContent, mount: changed(func(m *ocispec.Manifest) {
			m.Layers[0].MediaType = ocispec.MediaTypeImageLayerZstd
		})},
		{name: "embedded data with another digest", want: bundle.DigestMismatch, mount: changed(func(m *ocispec.Manifest) {
			m.Config.Data = append([]byte(" "), m.Config.Data[1:]...)
		})},
	})
}

// The registry goes on offering a release that was good once. The agent keeps it running, and reports its age.
func TestAttackFreeze(t *testing.T) {
	s := besiege(t)
	before := s.memory()
	s.setClock(s.now.Add(100 * 24 * time.Hour))

	for range 2 {
		r := s.sync()
		require.Equal(t, Idle, r.Verdict, r.Error)
		require.Equal(t, bundle.Compliant, r.Status.State)
		require.True(t, r.Status.Release.Running.Expired)
		require.Equal(t, 10*24*time.Hour, s.clock.Load().Sub(*r.Status.Release.Running.ExpiresAt).Truncate(24*time.Hour), "its age is shown")
		require.True(t, s.lastReport().Observed.Expired)
		s.requireHost("a: 1")
	}

	// What else was withheld until it expired comes too late.
	late := s.offer(6, nil)
	s.requireRefused(s.sync(), bundle.Expired, late)
	require.Equal(t, before, s.memory())

	// Drift is corrected all the same, and a restart changes nothing.
	s.stop()
	require.NoError(t, os.WriteFile(filepath.Join(s.host, "shop-main/config.yaml"), []byte("drift"), 0o600))
	s.start()
	s.requireRefused(s.sync(), bundle.Expired, late)

	s.now = *s.clock.Load()
	s.end(9)
}

// A thief of the only release key uses up all sequences and all time.
func TestAttackFastForward(t *testing.T) {
	steal := func(s *siege) (stolen digest.Digest) {
		stolen = s.offer(bundle.MaxSequence, func(d *draft) {
			d.Release.IssuedAt, d.Release.ExpiresAt = s.now.AddDate(50, 0, 0), s.now.AddDate(100, 0, 0)
		})
		require.Equal(s.t, stolen, s.sync().Status.Release.Running.Digest, "the thief's word is the key's")
		after := s.memory()
		require.EqualValues(s.t, bundle.MaxSequence, after.Highest.Sequence)

		offered := s.release(6, "a: 6").Digest
		r := s.sync()
		require.Equal(s.t, string(bundle.OlderRelease), r.Status.Reason)
		require.Equal(s.t, offered, r.Status.Release.Refused.Digest)
		require.Equal(s.t, after, s.memory())
		require.Equal(s.t, bundle.Rejected, s.lastReport().State, "the hub gets to know")
		return stolen
	}
	t.Run("fast-forward: a thief of the pinned key uses up all sequences", func(t *testing.T) {
		s := besiege(t)
		steal(s)
		// The way back is a trust document, which somebody brings to the agent.
		s.key, s.epoch = newTestKey(t), bundle.FirstEpoch
		first, err := agenttest.NewTrust(s.stream.Platform, epoch, agenttest.NewKey(), s.key).Envelope()
		require.NoError(t, err)
		_, err = s.client.InstallTrust(t.Context(), first)
		require.NoError(t, err)
		s.end(1)
	})
	t.Run("fast-forward, and a new epoch without that key", func(t *testing.T) {
		s := besiege(t, withRoots)
		stolen := steal(s)
		thief := s.key
		second := s.next()
		s.key, s.epoch = newTestKey(t), 2
		second.Document.Epoch, second.Document.Release = s.epoch, agenttest.Role(1, s.key)
		s.offerTrust(second)
		s.good = s.release(1, "a: 1")
		r := s.sync()
		require.Equal(t, s.good.Digest, r.Status.Release.Running.Digest, r.Error)
		require.False(t, r.Status.Release.Running.Expired, "the thief's dates have ended with the epoch")
		require.Equal(t, bundle.Compliant, s.lastReport().State)
		s.requireHost("a: 1")

		// What the thief has signed, and goes on signing, is of the past.
		before := s.memory()
		for _, want := range []bundle.Reason{bundle.UntrustedKey, bundle.UntrustedKey} {
			require.NoError(t, s.repo.Tag(t.Context(), s.resolve(stolen.String()), bundle.LatestTag))
			s.requireRefused(s.sync(), want, stolen)
			stolen = s.offer(3, func(d *draft) { d.Signer = thief })
		}
		require.Equal(t, before, s.memory())
		s.end(9)
	})
	t.Run("fast-forward, and a new epoch with that key", func(t *testing.T) {
		s := besiege(t, withRoots)
		stolen := steal(s)
		second := s.next()
		second.Document.Epoch, s.epoch = 2, 2
		s.offerTrust(second)
		s.good = s.release(1, "a: 1")
		require.Equal(t, s.good.Digest, s.sync().Status.Release.Running.Digest)
		require.NoError(t, s.repo.Tag(t.Context(), s.resolve(stolen.String()), bundle.LatestTag))
		s.requireRefused(s.sync(), bundle.OldEpoch, stolen)
		s.end(9)
	})
}

// The agent's clock is not to be relied on: batteries end, and radio clocks can be deceived.
func TestAttackOnTheClock(t *testing.T) {
	t.Run("a clock in 1970 and an expired release", func(t *testing.T) {
		s := besiege(t)
		before := s.memory()
		s.setClock(time.Unix(0, 0))
		offered := s.offer(6, func(d *draft) {
			d.Release.IssuedAt, d.Release.ExpiresAt = epoch.Add(-time.Hour), epoch.Add(-time.Minute)
		})
		s.requireRefused(s.sync(), bundle.Expired, offered)
		require.Equal(t, before, s.memory())
		s.end(9)
	})
	t.Run("a clock in 1970 and a good release", func(t *testing.T) {
		s := besiege(t)
		s.setClock(time.Unix(0, 0))
		good := s.release(6, "a: 6")
		r := s.sync()
		require.Equal(t, good.Digest, r.Status.Release.Running.Digest, r.Error)
		require.False(t, r.Status.Release.Running.Expired)
		require.Equal(t, "ClockBehind", s.lastReport().Reason)
		s.end(9)
	})
	t.Run("a clock ten years ahead", func(t *testing.T) {
		s := besiege(t)
		before := s.memory()
		s.setClock(s.now.AddDate(10, 0, 0))
		r := s.sync()
		require.Equal(t, bundle.Compliant, r.Status.State)
		require.True(t, r.Status.Release.Running.Expired)
		offered := s.release(6, "a: 6").Digest
		s.requireRefused(s.sync(), bundle.Expired, offered)
		require.Equal(t, before, s.memory(), "the floor follows what was signed, never the clock")

		// The clock comes back: the refused release itself is taken, without anybody asking for it.
		s.setClock(s.now)
		out := s.running.makePass(context.Background(), scope{from: s.running.source})
		require.Equal(t, Done, out.Verdict, out.Err)
		require.Equal(t, offered, s.status().Release.Running.Digest)
		s.end(9)
	})
	t.Run("a clock that steps back and forth", func(t *testing.T) {
		s := besiege(t)
		for i, years := range []int{-60, 5, -1, 0} {
			s.setClock(s.now.AddDate(years, 0, 0))
			n := int64(6 + i)
			offered := s.release(n, "a: new")
			r := s.sync()
			if years == 5 {
				require.Equal(t, string(bundle.Expired), r.Status.Reason)
				continue
			}
			require.Equal(t, offered.Digest, r.Status.Release.Running.Digest, r.Error)
			require.Equal(t, n, s.memory().Highest.Sequence)
		}
		s.end(10)
	})
}
