// Package demo runs the whole flow once, on one machine and without a network beyond loopback: it
// publishes a platform repository, signed, to a registry of its own; three agents apply it to folders,
// one of them from tarballs alone; a platform value changes; a bundle is tampered with in the registry's
// storage, and refused; the hub shows the fleet.
//
// Begin with Run. It uses the same code as the commands, without mocks.
package demo

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"sync"

	"github.com/wherry-dev/wherry/agent"
	"github.com/wherry-dev/wherry/airgap/registry"
	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/oci"
	"github.com/wherry-dev/wherry/hub"
	"github.com/wherry-dev/wherry/hub/fleet"
	"github.com/wherry-dev/wherry/hub/store"
	"github.com/wherry-dev/wherry/publisher/keys"
	"github.com/wherry-dev/wherry/publisher/platform"
)

// ErrNothingAssigned means that no cluster type of a platform has an assignment.
var ErrNothingAssigned = errors.New("no deployment target is assigned to a cluster type")

// Options selects the platform to show. The zero value shows the built-in example.
type Options struct {
	// Sources is the reader's own platform; an empty Sources.Platform means the built-in example.
	Sources platform.Source
	// Talk gets a line for each step. Nil is silent.
	Talk io.Writer
	// Version is the version that the agents report.
	Version string
}

// Result is the state of the fleet at the end. Its JSON form is an interface.
type Result struct {
	Agents []AgentResult `json:"agents"`
}

// AgentResult is the state of one agent, by its own report and by the hub's.
type AgentResult struct {
	Name        string `json:"name"`
	Environment string `json:"environment"`
	ClusterType string `json:"clusterType"`
	// Link is "network" or "media".
	Link   string       `json:"link"`
	State  bundle.State `json:"state"`
	Reason string       `json:"reason,omitempty"`
	// Release holds the running release and the refused one.
	Release agent.ReleaseStates `json:"release"`
	// Assignments counts the running assignments, Queued the reports without an acknowledgement.
	Assignments int `json:"assignments"`
	Queued      int `json:"queued"`
	// Hub is the state that the hub shows.
	Hub bundle.State `json:"hub"`
	// Unexpected describes a difference from the demo's intended result; empty if there is none.
	Unexpected string `json:"unexpected,omitempty"`
	// Applied is the folder to which the agent applies its assignments.
	Applied string `json:"-"`
}

// AsExpected reports whether every agent has the demo's intended result.
func (r Result) AsExpected() bool {
	for _, a := range r.Agents {
		if a.Unexpected != "" {
			return false
		}
	}
	return len(r.Agents) > 0
}

// demonstration is one run.
type demonstration struct {
	Options
	dir      string
	platform sample
	key      *keys.Key
	trust    bundle.Trust
	prefix   oci.Location // of the bundles: the registry below dir
	hub      *hub.Hub
	hubURL   string
	sites    []*site
	servers  sync.WaitGroup
}

// Run runs the demo in dir, an empty folder, and returns the final state of the fleet. It stops when ctx does and
// leaves nothing running.
func Run(ctx context.Context, dir string, o Options) (_ *Result, err error) {
	ctx, stop := context.WithCancel(ctx)
	s := &demonstration{Options: o, dir: dir}
	defer func() {
		stop()
		err = errors.Join(err, s.close())
	}()
	for _, step := range []func(context.Context) error{
		s.readPlatform, s.serve, s.makeKeys, s.publishFirst, s.startSites, s.update, s.carryByMedia, s.attack,
	} {
		if err := step(ctx); err != nil {
			return nil, fmt.Errorf("demo: %w", err)
		}
	}
	return s.result(ctx)
}

func (s *demonstration) path(elem ...string) string {
	return filepath.Join(append([]string{s.dir}, elem...)...)
}

// say prints a line about one step: the name of the acting part, and its action.
func (s *demonstration) say(part, format string, args ...any) {
	if s.Talk != nil {
		fmt.Fprintf(s.Talk, "%-9s  %s\n", part, fmt.Sprintf(format, args...))
	}
}

// serve starts the registry and the hub on loopback.
func (s *demonstration) serve(ctx context.Context) error {
	reg, err := registry.Open(s.path("registry"), registry.Options{})
	if err != nil {
		return err
	}
	host, err := s.listen(ctx, reg.Serve)
	if err != nil {
		return err
	}
	s.prefix = oci.Location{Host: host, Prefix: "demo"}
	if s.hub, err = hub.Open(s.path("hub"), hub.Options{}); err != nil {
		return err
	}
	if host, err = s.listen(ctx, s.hub.Serve); err != nil {
		return err
	}
	s.hubURL = "http://" + host
	s.say("registry", "serves %s", s.prefix)
	s.say("hub", "serves %s", s.hubURL)
	return nil
}

// listen runs serve on a free port until ctx ends, and returns the address.
func (s *demonstration) listen(ctx context.Context, serve func(context.Context, net.Listener) error) (host string, err error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	s.servers.Go(func() { _ = serve(ctx, l) }) // agents will report a failed server as unreachable
	return l.Addr().String(), nil
}

// close closes the sites and the hub, and waits for the servers, whose context has ended before.
func (s *demonstration) close() (err error) {
	for _, site := range s.sites {
		err = errors.Join(err, site.state.Close())
	}
	s.servers.Wait()
	if s.hub != nil {
		err = errors.Join(err, s.hub.Close())
	}
	return err
}

// result asks the agents and the hub for their final state.
func (s *demonstration) result(ctx context.Context) (*Result, error) {
	answers, err := s.hub.Answers(ctx, store.AccessScope{})
	if err != nil {
		return nil, err
	}
	shown, err := answers.Clusters(ctx, fleet.Query{})
	if err != nil {
		return nil, err
	}
	seen := map[string]bundle.State{}
	for _, c := range shown.Clusters {
		seen[c.UID] = c.State
	}
	result := &Result{}
	for _, site := range s.sites {
		status, err := site.agent.Status()
		if err != nil {
			return nil, err
		}
		a := AgentResult{
			Name: site.name, Environment: site.stream.Environment, ClusterType: site.stream.ClusterType, Link: site.link,
			State: status.State, Reason: status.Reason, Release: status.Release,
			Assignments: len(status.Items), Queued: status.Queue.Length, Hub: seen[status.Cluster.UID], Applied: site.applied,
		}
		a.Unexpected = site.unexpected(a)
		result.Agents = append(result.Agents, a)
	}
	return result, nil
}

// unexpected compares the agent's result with the site's intended one.
func (s *site) unexpected(a AgentResult) string {
	want := cmp.Or(s.wantState, bundle.Compliant)
	running := a.Release.Running
	switch {
	case a.State != want || a.Reason != string(s.wantReason):
		return fmt.Sprintf("is %s %s, should be %s %s", a.State, a.Reason, want, s.wantReason)
	case running == nil || running.Digest != s.wantRunning:
		return fmt.Sprintf("does not run release %s", s.wantRunning)
	case a.Assignments == 0:
		return "runs nothing"
	case a.Queued > 0:
		return fmt.Sprintf("has %d reports that nobody acknowledged", a.Queued)
	case a.Hub != want:
		return fmt.Sprintf("is %q at the hub, should be %s", a.Hub, want)
	}
	return ""
}
