// Package simulation runs many agents in one process against a registry and a hub, and measures what they cost.
//
// Begin with Run. The parts are real: releases are made and signed by package publisher and served by package registry; each agent
// is an agent.Agent in its own loop, with a state file, a key and connections of its own, which fetches, verifies and reports;
// a hub stores the reports, and package gate judges before each further ring. Simulated are the clusters under the agents, an
// engine in memory that accepts everything or fails, and the links.
//
// Options.Seed decides which clusters are offline, fail, or have which link and ring. Times are measured, so that they
// differ between runs.
package simulation

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/opencontainers/go-digest"

	"github.com/wherry-dev/wherry/agent/retry"
	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/oci"
	"github.com/wherry-dev/wherry/hub"
	"github.com/wherry-dev/wherry/publisher/keys"
)

// simulation is one run.
type simulation struct {
	Options
	dir      string
	began    time.Time
	key      *keys.Key
	prefix   oci.Location
	hub      *hub.Hub
	hubURL   string
	clusters []*cluster
	byName   map[string]*cluster
	platform platform
	shared   map[string]*shared // by cluster type
	load     load
	running  context.Context      // of agents, which outlive the calls that start them
	stop     []context.CancelFunc // of agents, then of the servers
	agents   sync.WaitGroup
	servers  sync.WaitGroup
	result   *Result
	stages   []*stage // that are followed
	// numbers are those of the simulation's releases, by the digest of each that was published for it.
	numbers map[digest.Digest]int
}

// Run runs the simulation that o describes in dir, an empty folder, and leaves nothing running. If ctx ends before the simulation
// does, the Result has what was measured until then, and the error is that of ctx. Other errors come without a Result.
func Run(ctx context.Context, dir string, o Options) (_ *Result, err error) {
	if err := o.Check(); err != nil {
		return nil, err
	}
	o = o.withDefaults()
	s := &simulation{Options: o, dir: dir, began: time.Now(), byName: map[string]*cluster{}, shared: map[string]*shared{}, numbers: map[digest.Digest]int{}}
	s.result = &Result{Gates: []Verdict{}, Releases: []Release{}, Notes: []string{}}
	running, stopAgents := context.WithCancel(context.WithoutCancel(ctx))
	serving, stopServers := context.WithCancel(context.WithoutCancel(ctx))
	s.running, s.stop = running, []context.CancelFunc{stopAgents, stopServers}
	defer func() { err = errors.Join(err, s.close()) }()
	err = s.prepare(ctx, serving)
	if err == nil {
		err = s.play(ctx)
	}
	if ctx.Err() != nil {
		s.result.Interrupted = true
		return s.conclude(), ctx.Err()
	}
	if err != nil {
		return nil, fmt.Errorf("simulation: %w", err)
	}
	return s.conclude(), nil
}

func (s *simulation) path(elem ...string) string {
	return filepath.Join(append([]string{s.dir}, elem...)...)
}

// prepare starts the servers, publishes the first release and makes the clusters.
func (s *simulation) prepare(ctx, serving context.Context) (err error) {
	s.say("starts the registry and the hub", 0, 0)
	if err = s.choosePlatform(); err != nil {
		return err
	}
	if s.key, err = newKey(); err != nil {
		return err
	}
	if err = s.serve(serving); err != nil {
		return err
	}
	s.servers.Go(func() { s.load.sample(serving) })
	s.makeClusters()
	for _, typ := range s.platform.types() {
		dir := s.path("contents", typ)
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return err
		}
		s.shared[typ] = newShared(dir)
	}
	return s.open(ctx)
}

// play installs the first release, makes the others and waits for the fleet after each.
func (s *simulation) play(ctx context.Context) error {
	if err := s.install(ctx); err != nil {
		return err
	}
	for n := 1; n <= s.Releases; n++ {
		if err := s.release(ctx, n); err != nil {
			return err
		}
	}
	return s.rest(ctx)
}

// install has all clusters get the first release.
func (s *simulation) install(ctx context.Context) error {
	st, err := s.publish(ctx, 0)
	if err != nil {
		return err
	}
	first := s.firsts()
	for _, c := range first {
		s.start(c, 0)
	}
	if err := s.follow(ctx, "installs", func() bool { return st.reachedAll(first) || time.Since(st.at) > firstTime }); err != nil {
		return err
	}
	for i, c := range s.clusters {
		if !slices.Contains(first, c) {
			s.start(c, s.Poll*time.Duration(i)/time.Duration(len(s.clusters)))
		}
	}
	err = s.follow(ctx, "installs", st.done)
	s.result.Install = st.result()
	for _, c := range s.clusters {
		c.installed = c.line.crossed()
	}
	return err
}

// start begins the loop of a cluster's agent after a while.
func (s *simulation) start(c *cluster, after time.Duration) {
	s.agents.Go(func() {
		if retry.Sleep(s.running, after) == nil {
			_ = c.agent.Run(s.running) // it has neither a socket nor a listener, of which an error would be
		}
	})
}

// firstTime bounds the wait for the first cluster of each type.
const firstTime = 30 * time.Second

// firsts returns a cluster of each type, one with a good link, whose agent unpacks the files that the others share.
func (s *simulation) firsts() []*cluster {
	best := map[string]*cluster{}
	for _, c := range s.clusters {
		if b := best[c.typ]; !c.offline && !c.comesAndGoes && (b == nil || c.line.better(b.line.Link)) {
			best[c.typ] = c
		}
	}
	return slices.Collect(maps.Values(best))
}

// rest measures a fleet in which nothing changes.
func (s *simulation) rest(ctx context.Context) error {
	for _, c := range s.clusters {
		c.settled = c.line.crossed()
	}
	if s.Rest <= 0 {
		return nil
	}
	before, began := s.load.total(), time.Now()
	err := s.follow(ctx, "rests", func() bool { return time.Since(began) >= s.Rest })
	s.result.Rest = s.load.total().since(before, time.Since(began), len(s.clusters))
	return err
}

// say tells how far the simulation is.
func (s *simulation) say(what string, done, of int) {
	if s.Progress != nil {
		s.Progress(Progress{What: what, Done: done, Of: of, Elapsed: time.Since(s.began)})
	}
}

// close ends agents and servers, and closes what they used.
func (s *simulation) close() (err error) {
	s.stop[0]()
	s.agents.Wait()
	for _, c := range s.clusters {
		err = errors.Join(err, c.close())
	}
	s.stop[1]()
	s.servers.Wait()
	if s.hub != nil {
		err = errors.Join(err, s.hub.Close())
	}
	return err
}

func (s *simulation) trust() bundle.Trust { return bundle.Pinned(bundle.Keys{s.key.Public()}) }
