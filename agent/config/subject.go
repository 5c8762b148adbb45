package config

import (
	"cmp"
	"context"
	"fmt"
	"net/http"

	"github.com/wherry-dev/wherry/agent"
	"github.com/wherry-dev/wherry/agent/doctor"
	"github.com/wherry-dev/wherry/bundle"
)

// Subject returns the agent that c describes, to be examined.
func (c *Config) Subject(ctx context.Context) (doctor.Subject, error) {
	c.rebind(ctx)
	keys, err := readKeys(c.Trust.Keys)
	if err != nil {
		return doctor.Subject{}, err
	}
	trust, err := c.chain(ctx)
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
		Veto: c.Passes.Veto, Hub: doctor.Hub{URL: c.Reports.Hub, HasKey: hubKey != nil}, Listen: c.Listen, Serve: c.serveOptions(nil),
	}
	if s.SiteValues, err = c.siteValues(cluster); err != nil {
		return doctor.Subject{}, err
	}
	c.enrolledHub(ctx, &s)
	remote, err := c.connect()
	if err != nil {
		return doctor.Subject{}, err
	}
	s.Transport = remote.options.HTTPClient.Transport
	if err := c.reportRegistry(ctx, remote, &s); err != nil {
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
func (c *Config) reportRegistry(ctx context.Context, remote *remote, s *doctor.Subject) error {
	var o agent.Options
	if err := remote.configure(&o); err != nil || o.ReportStore == nil {
		return err
	}
	uid := c.Cluster.UID
	if st, err := c.Status(ctx); err == nil {
		uid = st.Cluster.UID
	}
	repo, err := o.ReportStore.Repository(bundle.ReportRepository(uid))
	if err != nil {
		return err
	}
	s.Reports = doctor.Reports{Repository: repo, Place: o.ReportPlace, AckStored: o.AckStored}
	return nil
}

// enrolledHub fills in the hub that has enrolled the agent, where none is configured.
func (c *Config) enrolledHub(ctx context.Context, s *doctor.Subject) {
	st, err := c.Status(ctx)
	if err != nil {
		return // for another check to say
	}
	s.Hub.URL = cmp.Or(s.Hub.URL, st.Identity.Hub)
	s.Hub.HasKey = s.Hub.HasKey || st.Identity.HubKeyID != ""
}

// rebind makes c's cluster what a person has bound the agent to, as its next start would. A state that cannot be read
// is for another check to say.
func (c *Config) rebind(ctx context.Context) {
	if s, err := c.Status(ctx); err == nil && s.Binding != nil && s.Binding.Configured == agent.FeedOf(c.Cluster) {
		c.Cluster = s.Binding.Bound.Of(c.Cluster)
	}
}

// chain returns the trust documents that the agent has, or else the one that it will begin with. A state
// that cannot be read is for another check to say.
func (c *Config) chain(ctx context.Context) (bundle.TrustChain, error) {
	if t, err := c.TrustState(ctx); err == nil && len(t.Chain) > 0 || c.Trust.Document == "" {
		return t.Chain, nil
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
