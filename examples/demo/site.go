package demo

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/opencontainers/go-digest"

	"github.com/wherry-dev/wherry/agent"
	"github.com/wherry-dev/wherry/agent/engines"
	"github.com/wherry-dev/wherry/airgap"
	"github.com/wherry-dev/wherry/airgap/export"
	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/oci"
	"github.com/wherry-dev/wherry/bundle/queue"
	"github.com/wherry-dev/wherry/bundle/show"
	"github.com/wherry-dev/wherry/hub"
	"github.com/wherry-dev/wherry/hub/store"
	"github.com/wherry-dev/wherry/reconcilers"
	"github.com/wherry-dev/wherry/reconcilers/directory"
)

// The two ways for bundles to a site and for its reports.
const (
	linkNetwork = "network"
	linkMedia   = "media"
)

// settleTime bounds the time that an agent takes to apply a release.
const settleTime = 10 * time.Second

// site is one cluster with its agent, and its intended state at the end.
type site struct {
	name    string
	stream  bundle.Stream
	link    string
	applied string
	state   *agent.State
	agent   *agent.Agent

	wantState   bundle.State // empty means compliant
	wantReason  bundle.Reason
	wantRunning digest.Digest
}

// startSites installs three agents: one that follows the updates, one that gets a tampered bundle,
// and one without a link.
func (s *demonstration) startSites(ctx context.Context) error {
	for i, role := range []struct{ name, link string }{{"follower", linkNetwork}, {"target", linkNetwork}, {"island", linkMedia}} {
		stream := s.platform.streams[i%len(s.platform.streams)]
		site, err := s.newSite(stream.ClusterType+"-"+role.name, role.link, stream)
		if err != nil {
			return err
		}
		s.sites = append(s.sites, site)
		if err := s.register(ctx, site); err != nil {
			return err
		}
		if role.link == linkMedia {
			continue // its first tarball comes with the update
		}
		if err := site.sync(ctx, s); err != nil {
			return err
		}
	}
	return nil
}

func (s *demonstration) newSite(name, link string, stream bundle.Stream) (*site, error) {
	dir := s.path("sites", name)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	site := &site{name: name, stream: stream, link: link, applied: filepath.Join(dir, "applied")}
	var err error
	if site.state, err = agent.OpenState(filepath.Join(dir, "state"), nil); err != nil {
		return nil, err
	}
	var source bundle.Source
	opts := agent.Options{
		Engines: engines.Options{
			Reconcilers: map[string]reconcilers.Reconciler{"directory": directory.New(site.applied, directory.Options{})}, Adapter: "directory",
		},
		Hub:     queue.Hub{Key: s.hub.PublicKey()},
		Version: s.Version,
	}
	if link == linkNetwork {
		opts.Hub.URL = s.hubURL
		if source, err = s.prefix.Repository(stream.Repository(), oci.Options{}); err != nil {
			return nil, err
		}
	}
	cluster := bundle.ReportCluster{Name: name, Platform: stream.Platform, Type: stream.ClusterType, Environment: stream.Environment}
	site.agent = agent.New(site.state, source, s.trust, cluster, opts)
	return site, nil
}

// register makes the site's report key known to the hub, as "wherry hub clusters add" does.
func (s *demonstration) register(ctx context.Context, site *site) error {
	status, err := site.agent.Status()
	if err != nil {
		return err
	}
	key, err := hub.ParseReportKey([]byte(status.ReportKey))
	if err != nil {
		return err
	}
	_, err = s.hub.AddCluster(ctx, store.Cluster{
		Identity: store.Identity{
			UID: status.Cluster.UID, Name: site.name, Platform: site.stream.Platform,
			Type: site.stream.ClusterType, Environment: site.stream.Environment,
		},
		Key: key,
	})
	return err
}

// sync makes the agent run a pass and send its reports, and prints its state.
func (site *site) sync(ctx context.Context, s *demonstration) error {
	r := site.agent.Once(ctx, settleTime)
	if r.Verdict != agent.Done && r.Verdict != agent.Idle && r.Verdict != agent.Refused {
		return fmt.Errorf("agent %s: %s", site.name, r.Error)
	}
	site.tell(s, r.Status)
	return nil
}

func (site *site) tell(s *demonstration, st agent.Status) {
	switch {
	case st.Release.Refused != nil && st.Release.Running != nil:
		s.say("agent", "%s: refused %s (%s), keeps %s", site.name, short(st.Release.Refused.Digest), st.Reason, short(st.Release.Running.Digest))
	case st.Release.Running != nil:
		s.say("agent", "%s: %s, %s of release %s", site.name, st.State, show.Count(len(st.Items), "assignment"), short(st.Release.Running.Digest))
	default:
		s.say("agent", "%s: %s %s", site.name, st.State, st.Message)
	}
}

// carryByMedia carries the newest release to the site without a link, its reports to the hub, and the hub's
// acknowledgement back to the site, each as a file.
func (s *demonstration) carryByMedia(ctx context.Context) error {
	for _, site := range s.sites {
		if site.link != linkMedia {
			continue
		}
		in, out, back := s.path("media", "site.tar"), s.path("media", "reports.tar"), s.path("media", "ack.tar")
		if err := os.MkdirAll(s.path("media"), 0o755); err != nil {
			return err
		}
		if err := s.carryIn(ctx, site, in); err != nil {
			return err
		}
		if err := s.carryOut(ctx, site, out); err != nil {
			return err
		}
		if err := s.carryBack(ctx, site, back); err != nil {
			return err
		}
	}
	return nil
}

func (s *demonstration) carryIn(ctx context.Context, site *site, file string) error {
	err := create(file, func(f *os.File) error {
		return export.Bundle(ctx, s.prefix, site.stream.Environment, site.stream.ClusterType, f)
	})
	if err != nil {
		return err
	}
	s.say("air gap", "carries %s to %s", filepath.Base(file), site.name)
	r := site.agent.Import(ctx, agent.ImportRequest{Paths: []string{file}, Wait: settleTime})
	if r.Error != "" {
		return fmt.Errorf("agent %s: import: %s", site.name, r.Error)
	}
	site.tell(s, r.Status)
	return nil
}

func (s *demonstration) carryOut(ctx context.Context, site *site, file string) error {
	envelopes, err := site.state.Outbox().Reports()
	if err != nil {
		return err
	}
	if err := create(file, func(f *os.File) error { return airgap.WriteReports(f, envelopes) }); err != nil {
		return err
	}
	if envelopes, err = airgap.ReadReports(file); err != nil {
		return err
	}
	imported, err := s.hub.Import(ctx, envelopes, store.ViaMedia)
	if err != nil {
		return err
	}
	if len(imported.Rejected) > 0 {
		return fmt.Errorf("hub rejects a report of %s: %s", site.name, imported.Rejected[0].Reason)
	}
	s.say("air gap", "carries %s with %s from %s to the hub", filepath.Base(file), show.Count(imported.Accepted, "report"), site.name)
	return nil
}

func (s *demonstration) carryBack(ctx context.Context, site *site, file string) error {
	acks, err := s.hub.Acks(ctx)
	if err != nil {
		return err
	}
	if err := create(file, func(f *os.File) error { return airgap.WriteAck(f, acks.Envelopes) }); err != nil {
		return err
	}
	envelopes, err := airgap.ReadAck(file)
	if err != nil {
		return err
	}
	acknowledged, err := site.agent.Acknowledge(envelopes)
	if err != nil {
		return err
	}
	s.say("air gap", "carries %s back: %s acknowledged, gone from %s's queue", filepath.Base(file), show.Count(acknowledged.Deleted, "report"), site.name)
	return s.hub.MarkExported(ctx, acks)
}

// create writes a file that a person would carry.
func create(name string, write func(*os.File) error) error {
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	if err := write(f); err != nil {
		f.Close()
		return err
	}
	return f.Close()
}

func short(d digest.Digest) string {
	return d.Encoded()[:12]
}
