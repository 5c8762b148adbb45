//go:build e2e

package e2e

import (
	"net"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/bundle"
)

// A second agent, cosign and wherry read from an agent what it has accepted.
func TestAnAgentIsTheRegistryOfItsSite(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.publish()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	address := l.Addr().String()
	require.NoError(t, l.Close())
	stream := []string{"--environment", s.environment}
	first := follow(t, place{
		registry: "oci://" + s.prefix, clusterType: clusterType, key: s.path("cosign.pub"), state: s.path("first"),
		more: append(stream, "--serve", address, "--serve-plain-http"),
	})
	first.syncUntilDone()
	st, err := first.Status(t.Context())
	require.NoError(t, err)
	require.Equal(t, "http://"+address, st.Endpoint.URL)
	require.Empty(t, st.Endpoint.Waiting)

	served := address + "/default"
	repository := bundle.Stream{Environment: s.environment, ClusterType: clusterType}.Repository()
	verified := s.cosignVerify("cosign.pub", served+"/"+repository+":latest")
	require.Zero(t, verified.code, verified.stderr)
	require.Equal(t, st.Release.Running.Digest, s.claim(verified))
	read := s.wherry("verify", "oci://"+served+"/"+repository, "--key", "cosign.pub")
	require.Zero(t, read.code, read.stderr)

	second := follow(t, place{
		registry: "oci://" + served, clusterType: clusterType, key: s.path("cosign.pub"), state: s.path("second"), more: stream,
	})
	second.syncUntilDone()
	follows, err := second.Status(t.Context())
	require.NoError(t, err)
	require.Equal(t, st.Release.Running.Digest, follows.Release.Running.Digest)

	s.edit("platform/config.yaml", "LOG_LEVEL: info", "LOG_LEVEL: debug")
	s.publish()
	first.syncUntilDone()
	second.syncUntilDone()
	st, err = first.Status(t.Context())
	require.NoError(t, err)
	follows, err = second.Status(t.Context())
	require.NoError(t, err)
	require.Equal(t, st.Release.Running.Digest, follows.Release.Running.Digest)
	require.NotEqual(t, verified.stdout, s.cosignVerify("cosign.pub", served+"/"+repository+":latest").stdout)
}
