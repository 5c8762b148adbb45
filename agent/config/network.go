package config

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/wherry-dev/wherry/agent"
	"github.com/wherry-dev/wherry/agent/metrics"
	"github.com/wherry-dev/wherry/agent/outbox"
	"github.com/wherry-dev/wherry/agent/registries"
	"github.com/wherry-dev/wherry/agent/window"
	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/oci"
)

// remote reaches registries and the hub: one client for the agent's whole life, which keeps connections, TLS sessions
// and tokens.
type remote struct {
	c       *Config
	traffic *metrics.Traffic
	network http.RoundTripper // what options' client counts and sends by
	options oci.Options
	clock   *clock
	stores  []oci.Store // of the configuration's locations; none where bundles come by import only
}

const (
	// keptTime is how far away the next poll may be for the connection to wait for it: registries and what lies
	// between close those that nobody uses after one to two minutes.
	keptTime = 90 * time.Second
	// passTime is the silence within a pass, after which the connection is not needed before the next poll. It is
	// less than the 15 s after which both ends begin to probe each other.
	passTime = 10 * time.Second
)

// idleTime is how long a connection is kept by an agent that polls so often.
func idleTime(interval time.Duration) time.Duration {
	if latest := interval + interval/10; latest < keptTime { // intervals are spread by a tenth
		return keptTime
	}
	return passTime
}

// connect prepares the connections. It sends nothing.
func (c *Config) connect() (*remote, error) {
	network := c.Registry.Network
	network.Idle = idleTime(cmp.Or(c.Passes.Interval, agent.DefaultInterval))
	by := &clock{now: time.Now}
	network.Now = by.Now
	client, err := oci.NewHTTPClient(network)
	if err != nil {
		return nil, invalid(err, "--proxy, --tls-ca, --tls-host-ca, --tls-cert and --tls-key say how registries are reached")
	}
	r := &remote{c: c, traffic: new(metrics.Traffic), network: client.Transport, clock: by}
	client.Transport = r.traffic.Registry.Wrap(r.network)
	r.options = oci.Options{HTTPClient: client, UserAgent: c.Program.UserAgent, AuthHosts: c.Registry.AuthHosts}
	if c.Registry.Credentials != "" {
		r.options.AuthRecord = oci.AuthRecord(c.Registry.Credentials)
		if r.options.Credential, err = oci.Credentials(c.Registry.Credentials); err != nil {
			return nil, invalid(fmt.Errorf("--credentials: %w", err), `"wherry login" writes such a file, and pull secrets hold one`)
		}
	}
	return r.by(client)
}

// by is the same by way of another client; nil is the same one.
func (r *remote) by(client *http.Client) (*remote, error) {
	other := *r
	if client != nil {
		other.options.HTTPClient = client
	}
	other.stores = nil
	for _, l := range r.c.Registry.Locations {
		opts := other.options
		opts.PlainHTTP = r.c.Registry.plainAt(l.Host)
		store, err := l.Open(opts)
		if err != nil {
			return nil, invalid(err, "")
		}
		other.stores = append(other.stores, store)
	}
	return &other, nil
}

// registries are those that the agent of cluster asks, in order.
func (r *remote) registries(cluster bundle.ReportCluster) ([]registries.Registry, error) {
	var all []registries.Registry
	for i, store := range r.stores {
		releases, err := store.Repository(agent.FeedOf(cluster).Repository())
		if err != nil {
			return nil, invalid(err, "")
		}
		documents, err := store.Repository(bundle.TrustRepository)
		if err != nil {
			return nil, invalid(err, "")
		}
		all = append(all, registries.Registry{Place: r.c.Registry.Locations[i].String(), Releases: releases, Trust: documents})
	}
	return all, nil
}

// configure sets the options that are about the network and no stream.
func (r *remote) configure(o *agent.Options) error {
	if r.c.Reports.Registry != (oci.Location{}) {
		opts := r.options
		opts.PlainHTTP = r.c.Registry.plainAt(r.c.Reports.Registry.Host) || r.c.Registry.Plain && len(r.c.Registry.Locations) == 0
		store, err := r.c.Reports.Registry.Open(opts)
		if err != nil {
			return invalid(err, "")
		}
		o.Reports.Store, o.Reports.Place, o.Reports.AckStored = store, r.c.Reports.Registry.String(), r.c.Reports.AckStored
	}
	o.HTTPClient = &http.Client{Transport: r.traffic.Hub.Wrap(r.network), Timeout: outbox.HubTime}
	o.Traffic = r.traffic
	o.Carry = r.carryOptions()
	return nil
}

// artifacts opens a repository HOST/NAME that an assignment's artifact lies in, with its copies in the registries that
// bundles come from, which go first: at a site, HOST may be out of reach. A registry that bundles come from is spoken to as
// for bundles.
func (r *remote) artifacts(repository string) (bundle.Source, error) {
	host, name, _ := strings.Cut(repository, "/")
	var all firstThatHas
	for _, l := range r.c.Registry.Locations {
		if l.Host == "" || l.Host == host {
			continue
		}
		if repo, err := r.copyOf(repository, l); err == nil {
			all = append(all, repo)
		}
	}
	opts := r.options
	opts.PlainHTTP = r.c.Registry.plainAt(host)
	repo, err := oci.Location{Host: host}.Repository(name, opts)
	if err != nil {
		return nil, err
	}
	return &windowed{append(all, repo), r.c.Registry.Window}, nil
}

// windowed is a source that begins nothing outside of the transfer window.
type windowed struct {
	bundle.Source
	window window.Transfer
}

func (w *windowed) Resolve(ctx context.Context, reference string) (ocispec.Descriptor, error) {
	if err := w.window.Closed(time.Now()); err != nil {
		return ocispec.Descriptor{}, fmt.Errorf("%w: %w", oci.ErrUnreachable, err)
	}
	return w.Source.Resolve(ctx, reference)
}

func (w *windowed) Fetch(ctx context.Context, d ocispec.Descriptor) (io.ReadCloser, error) {
	if err := w.window.Closed(time.Now()); err != nil {
		return nil, fmt.Errorf("%w: %w", oci.ErrUnreachable, err)
	}
	return w.Source.Fetch(ctx, d)
}
