//go:build e2e && pods

package e2e

import (
	"log"
	"net"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	ggcr "github.com/google/go-containerregistry/pkg/registry"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/bundle"
)

// A pod starts from an image that the agent alone has: its registry is gone before anything is applied.
func TestAPodStartsFromTheAgentsImage(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	_, node := s.runRealPods() // whose own image is that of the sandbox

	images := httptest.NewServer(ggcr.New(ggcr.Logger(log.New(t.Output(), "", 0))))
	t.Cleanup(images.Close)
	host := strings.TrimPrefix(images.URL, "http://")
	there := *s
	there.prefix = host
	tagged := there.pushImage("carried")
	reference, err := name.ParseReference(tagged, name.Insecure)
	require.NoError(t, err)
	pushed, err := remote.Head(reference)
	require.NoError(t, err)
	byDigest := host + "/pod@" + pushed.Digest.String()
	s.edit("workloads/shop/workload.yaml", s.prefix+"/pod:1", byDigest)
	s.edit("platform/cluster-types.yaml", "  name: edge\n", "  name: edge\n  annotations: {wherry.dev/carry: images}\n")
	s.publish()

	// Nothing may be changed yet, but artifacts come.
	r := s.pass("--veto-file", "cosign.pub", "--wait", "0s", "--carry-budget", "1GiB")
	require.Equal(t, 5, r.code, r.stderr)
	require.Zero(t, s.status().Carry.Missing)
	require.Empty(t, s.pods("shop-web"))
	images.Close()

	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	address := listener.Addr().String()
	require.NoError(t, listener.Close())
	require.NoError(t, node.Mirror(host, "http://"+address))
	f := s.start("agent", "--serve", address, "--serve-plain-http", "--carry-budget", "1GiB")
	require.Eventually(t, func() bool {
		st, err := f.Status(t.Context())
		return err == nil && st.State == bundle.Compliant
	}, patience, time.Second)
	s.requireAvailable("shop-web", 2)
	for _, pod := range s.pods("shop-web") {
		require.Contains(t, get(t, "http://"+pod.Status.PodIP+":8080/"), "\nTAG=carried\n")
	}
}
