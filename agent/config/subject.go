package config

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/wherry-dev/wherry/agent"
	"github.com/wherry-dev/wherry/agent/doctor"
	"github.com/wherry-dev/wherry/bundle"
)

// Subject returns the agent that c describes, to be examined.
func (c *Config) Subject(ctx context.Context) (doctor.Subject, error) {
	status, unknown := c.Status(ctx) // a state that cannot be read is for a check to say
	c.rebind(status)
	keys, err := readKeys(c.Trust.Keys)
	if err != nil {
		return doctor.Subject{}, err
	}
	trust, err := c.chain(ctx, unknown)
	if err != nil {
		return doctor.Subject{}, err
	}
	hubKey, err := c.HubKey()
	if err != nil {
		return doctor.Subject{}, err
	}
	if err := c.checkZarfKeys(); err != nil {
		return doctor.Subject{}, err
	}
	cluster, err := c.clusterConfig()
	if err != nil {
		return doctor.Subject{}, err
	}
	s := doctor.Subject{
		StateDir: c.StateDir, Cluster: c.Cluster, Pinned: bundle.Pinned(keys), Trust: trust, Kubernetes: cluster,
		Adapters: doctor.Adapters{
			Only: c.Adapters.Only, DirectoryRoot: c.Adapters.DirectoryRoot, AnsiblePlaybook: c.Adapters.AnsiblePlaybook, Zarf: c.Adapters.Zarf,
			ArgoNamespace: c.Adapters.ArgoNamespace, Impersonate: c.Adapters.Impersonate,
			Configured: map[string]bool{
				"ansible": c.Adapters.AnsiblePlaybook != "", "argo": cluster != nil, "directory": c.Adapters.DirectoryRoot != "",
				"flux": cluster != nil, "kubernetes": cluster != nil, "zarf": c.Adapters.Zarf != "",
			},
		},
		Veto: c.Passes.Veto, Hub: doctor.Hub{URL: c.Reports.Hub, HasKey: hubKey != nil}, Listen: c.Listen, Serve: c.serveOptions(nil), Mute: unknown,
	}
	if s.SiteValues, err = c.siteValues(cluster); err != nil {
		return doctor.Subject{}, err
	}
	s.Hub.URL = cmp.Or(s.Hub.URL, status.Identity.Hub)
	s.Hub.HasKey = s.Hub.HasKey || status.Identity.HubKeyID != ""
	remote, err := c.connect()
	if err != nil {
		return doctor.Subject{}, err
	}
	remote.clock.follow(nil, func() (time.Time, error) { // as the agent does
		return time.Now().Add(time.Duration(status.ClockBehindSeconds) * time.Second), nil
	}, nil)
	s.Transport = remote.options.HTTPClient.Transport
	if err := c.reportRegistry(status, remote, &s); err != nil {
		return doctor.Subject{}, err
	}
	if name, _, ok := c.memoryName(); ok && cluster != nil {
		s.Memory = name
	}
	for i, l := range c.Registry.Locations {
		open := func(name string) func(*http.Client) (bundle.Source, error) {
			return func(client *http.Client) (bundle.Source, error) {
				r, err := remote.by(client)
				if err != nil {
					return nil, err
				}
				return r.stores[i].Repository(name)
			}
		}
		asked := doctor.Registry{Place: l.String(), Bundles: open(agent.FeedOf(c.Cluster).Repository()), Trust: open(bundle.TrustRepository)}
		if i == 0 {
			s.Registry = asked
		} else {
			s.Further = append(s.Further, asked)
		}
	}
	return s, nil
}

// reportRegistry fills in where the agent's reports lie in the registry that they are pushed to, if they are.
func (c *Config) reportRegistry(status agent.Status, remote *remote, s *doctor.Subject) error {
	var o agent.Options
	if err := remote.configure(&o); err != nil || o.Reports.Store == nil {
		return err
	}
	repo, err := o.Reports.Store.Repository(bundle.ReportRepository(cmp.Or(status.Cluster.UID, c.Cluster.UID)))
	if err != nil {
		return err
	}
	s.Reports = doctor.Reports{Repository: repo, Place: o.Reports.Place, AckStored: o.Reports.AckStored}
	return nil
}

// rebind makes c's cluster what a person has bound the agent to, as its next start would.
func (c *Config) rebind(s agent.Status) {
	if s.Binding != nil && s.Binding.Configured == agent.FeedOf(c.Cluster) {
		c.Cluster = s.Binding.Bound.Of(c.Cluster)
	}
}

// chain returns the trust documents that the agent has, or else the one that it will begin with. Unknown is why its state
// cannot be read, nil if it can.
func (c *Config) chain(ctx context.Context, unknown error) (bundle.TrustChain, error) {
	if unknown == nil {
		if t, err := c.TrustState(ctx); err == nil && len(t.Chain) > 0 {
			return t.Chain, nil
		}
	}
	if c.Trust.Document == "" {
		return nil, nil
	}
	envelope, err := c.firstTrust(ctx)
	if err != nil {
		return nil, err
	}
	chain, err := bundle.TrustChain(nil).Append(envelope)
	if err != nil {
		return nil, refused(fmt.Errorf("--trust: %s: %w", c.Trust.Document, err), "")
	}
	return chain, nil
}
