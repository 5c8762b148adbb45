package simulation

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"net"
	"path"
	"strings"
	"time"

	"golang.org/x/net/netutil"

	"github.com/wherry-dev/wherry/airgap/registry"
	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/oci"
	"github.com/wherry-dev/wherry/hub"
	"github.com/wherry-dev/wherry/hub/desired"
	"github.com/wherry-dev/wherry/publisher/keys"
)

// newKey returns the key of the simulation's publisher.
func newKey() (*keys.Key, error) {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	return keys.New(private)
}

// serve starts the registry, unless another one is given, and the hub.
func (s *simulation) serve(ctx context.Context) error {
	if s.Registry != "" {
		at, err := oci.Parse(s.Registry)
		if err != nil {
			return err
		}
		s.prefix = at
		s.prefix.Prefix = strings.TrimPrefix(path.Join(at.Prefix, s.began.UTC().Format("simulation-20060102t150405")), "/") // never where releases of others are
		s.note("what was published stays in %s", s.prefix)
	} else {
		reg, err := registry.Open(s.path("registry"), registry.Options{})
		if err != nil {
			return err
		}
		host, err := s.listen(ctx, reg.Serve)
		if err != nil {
			return err
		}
		s.prefix = oci.Location{Host: host, Prefix: "simulation"}
	}
	var err error
	s.hub, err = hub.Open(s.path("hub"), hub.Options{
		Trust: desired.Trust{Keys: bundle.Keys{s.key.Public()}},
		Watch: desired.Options{Locations: []oci.Location{s.prefix}, Interval: hubInterval},
	})
	if err != nil {
		return err
	}
	host, err := s.listen(ctx, s.hub.Serve)
	s.hubURL = "http://" + host
	return err
}

// hubInterval is how often the hub looks at the registry; it is woken after each publication.
const hubInterval = 15 * time.Second

// listen runs serve on a free port until ctx ends, and returns the address.
func (s *simulation) listen(ctx context.Context, serve func(context.Context, net.Listener) error) (host string, err error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	// A connection that the agent has closed stays open here until its turn comes; others wait then instead of taking what descriptors are left.
	l = netutil.LimitListener(l, s.connections())
	s.servers.Go(func() { _ = serve(ctx, l) }) // requests will fail, which is counted
	return l.Addr().String(), nil
}
