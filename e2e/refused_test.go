//go:build e2e

package e2e

import (
	"testing"

	"github.com/opencontainers/go-digest"
	"github.com/stretchr/testify/require"
	"oras.land/oras-go/v2"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/oci"
)

// Whoever can write to the registry can put anything under the tag that an agent follows. None of it
// reaches the cluster.
func TestRefusedWhileTheLastGoodStateStays(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name   string
		reason bundle.Reason
		offer  func(*site) digest.Digest
	}{
		{"an unsigned bundle", bundle.Unsigned, (*site).offerUnsigned},
		{"a bundle signed with another key", bundle.UntrustedKey, (*site).offerWronglySigned},
		{"a bundle with the signature of another", bundle.DigestMismatch, (*site).offerTransplanted},
		{"a bundle for another cluster type", bundle.WrongClusterType, (*site).offerWrongClusterType},
		{"a bundle that was replaced by a newer one", bundle.OlderRelease, (*site).offerOlder},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			s := newSite(t)
			s.publish()
			s.once(0)
			offered := test.offer(s)
			before, objects := s.status(), s.objects()

			for range 2 { // a second look does not change the judgement
				require.Contains(t, s.once(4).stderr, string(test.reason))
				status := s.status()
				require.Equal(t, bundle.Rejected, status.State)
				require.Equal(t, string(test.reason), status.Reason)
				require.Equal(t, test.reason, status.Release.Refused.Reason)
				require.Equal(t, offered, status.Release.Refused.Digest)
				require.Equal(t, before.Release.Running, status.Release.Running)
				require.Equal(t, before.Items, status.Items)
				require.Equal(t, objects, s.objects())
			}

			s.edit("platform/config.yaml", "REGION: north", "REGION: south")
			s.publish()
			s.once(0)
			require.Nil(t, s.status().Release.Refused)
			require.Equal(t, "south", s.settings("shop-web")["REGION"])
		})
	}
}

func (s *site) offerUnsigned() digest.Digest { return s.copyBundle(s.stage("cosign.key"), "latest") }

func (s *site) offerWronglySigned() digest.Digest {
	s.generateKey("mallory")
	staged := s.stage("mallory.key")
	offered := s.copyBundle(staged, "latest")
	s.copyBundle(staged, bundle.SignatureTag(offered))
	return offered
}

func (s *site) offerTransplanted() digest.Digest {
	own := s.repository(s.prefix, clusterType)
	running, err := own.Resolve(s.t.Context(), "latest")
	require.NoError(s.t, err)
	signature, err := own.Resolve(s.t.Context(), bundle.SignatureTag(running.Digest))
	require.NoError(s.t, err)
	offered := s.copyBundle(s.stage("cosign.key"), "latest")
	require.NoError(s.t, own.Tag(s.t.Context(), signature, bundle.SignatureTag(offered)))
	return offered
}

func (s *site) offerWrongClusterType() digest.Digest {
	office := s.repository(s.prefix, "office")
	offered := s.copyBundle(office, "latest")
	s.copyBundle(office, bundle.SignatureTag(offered))
	return offered
}

func (s *site) offerOlder() digest.Digest {
	own := s.repository(s.prefix, clusterType)
	older, err := own.Resolve(s.t.Context(), "latest")
	require.NoError(s.t, err)
	s.edit("platform/config.yaml", "LOG_LEVEL: info", "LOG_LEVEL: debug")
	s.publish()
	s.once(0)
	require.NoError(s.t, own.Tag(s.t.Context(), older, "latest"))
	return older.Digest
}

// stage publishes other content where the site's agent does not look, and returns the repository of its
// cluster type there.
func (s *site) stage(key string) oci.Target {
	prefix := s.prefix + "-staging"
	s.edit("platform/config.yaml", "REGION: north", "REGION: of-mallory")
	s.publishTo(prefix, key)
	s.edit("platform/config.yaml", "REGION: of-mallory", "REGION: north")
	return s.repository(prefix, clusterType)
}

// copyBundle copies what a tag names, with all that it refers to, to where the site's agent looks.
func (s *site) copyBundle(from oci.Target, tag string) digest.Digest {
	copied, err := oras.Copy(s.t.Context(), from, tag, s.repository(s.prefix, clusterType), tag, oras.DefaultCopyOptions)
	require.NoError(s.t, err)
	return copied.Digest
}
