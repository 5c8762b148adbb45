package simulation

import (
	"context"
	"crypto/ed25519"
	"fmt"
	"math"
	"math/rand/v2"
	"net"
	"net/http"
	"runtime"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/wherry-dev/wherry/agent"
	"github.com/wherry-dev/wherry/agent/content"
	"github.com/wherry-dev/wherry/agent/engines"
	"github.com/wherry-dev/wherry/agent/outbox"
	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/delta"
	"github.com/wherry-dev/wherry/bundle/oci"
	"github.com/wherry-dev/wherry/bundle/queue"
	"github.com/wherry-dev/wherry/hub"
	"github.com/wherry-dev/wherry/hub/store"
	"github.com/wherry-dev/wherry/reconcilers"
)

// cluster is one simulated cluster with its real agent.
type cluster struct {
	name, typ, ring string
	labels          map[string]string
	offline         bool
	failing         bool
	comesAndGoes    bool
	phase           time.Duration // of its coming and going

	line line
	// connections are those to the registry and to the hub.
	connections []attempts
	state       *agent.State
	agent       *agent.Agent
	// installed is what had crossed its line by the end of the installation, and settled by the end of the last release.
	installed, settled int64
}

// makeClusters decides by the seed which clusters there are, and what is the matter with each.
func (s *simulation) makeClusters() {
	if s.Plan != nil {
		for _, c := range s.Plan.Clusters {
			s.clusters = append(s.clusters, &cluster{name: c.Name, typ: c.ClusterType, ring: c.Ring, labels: c.Labels})
		}
	} else {
		types := s.platform.types()
		for i := range s.Clusters {
			s.clusters = append(s.clusters, &cluster{name: fmt.Sprintf("sim-%06d", i), typ: types[i%len(types)]})
		}
	}
	r := rand.New(rand.NewPCG(s.Seed, 0x73696d))
	if s.Plan == nil && len(s.Rings) > 0 {
		var parts []float64
		for _, ring := range s.Rings {
			parts = append(parts, ring.Percent)
		}
		for i, part := range deal(r, len(s.clusters), parts) {
			s.clusters[i].ring = s.Rings[part].Name
		}
	}
	for i, part := range deal(r, len(s.clusters), []float64{s.Offline, s.ComeAndGo, 100 - s.Offline - s.ComeAndGo}) {
		s.clusters[i].offline, s.clusters[i].comesAndGoes = part == 0, part == 1
	}
	reached := slices.DeleteFunc(slices.Clone(s.clusters), func(c *cluster) bool { return c.offline })
	for i, part := range deal(r, len(reached), []float64{s.Failing, 100 - s.Failing}) {
		reached[i].failing = part == 0
	}
	if len(s.Links) > 0 {
		var parts []float64
		for _, l := range s.Links {
			parts = append(parts, l.Percent)
		}
		for i, part := range deal(r, len(s.clusters), parts) {
			s.clusters[i].line.Link = s.Links[part].Link
		}
	}
	connections := make(turns, s.connections())
	for i, c := range s.clusters {
		c.phase = time.Duration(r.Int64N(int64(2 * s.Away)))
		c.line.load, c.line.source, c.line.down, c.line.connections = &s.load, sourceOf(i), s.downOf(c), connections
		s.byName[c.name] = c
	}
}

// deal deals n clusters to parts, by their shares in percent, and returns the part of each. A part whose share is more than
// nothing gets one cluster at least, as long as there are some.
func deal(r *rand.Rand, n int, parts []float64) []int {
	var hand []int
	for part, percent := range parts {
		count := int(math.Round(percent / 100 * float64(n)))
		if percent > 0 {
			count = max(count, 1)
		}
		for range count {
			hand = append(hand, part)
		}
	}
	for len(hand) < n {
		hand = append(hand, len(parts)-1)
	}
	hand = hand[:n]
	r.Shuffle(n, func(i, j int) { hand[i], hand[j] = hand[j], hand[i] })
	return hand
}

// sourceOf returns an address of the loopback network for a cluster, since a hub bounds the work of one address; nil on systems
// that have only one such address.
func sourceOf(i int) net.IP {
	if runtime.GOOS != "linux" {
		return nil
	}
	i += 2
	return net.IPv4(127, byte(1+i>>16), byte(i>>8), byte(i))
}

// downOf returns the function that reports whether a cluster's link is down.
func (s *simulation) downOf(c *cluster) func() bool {
	switch {
	case c.offline:
		return func() bool { return true }
	case c.comesAndGoes:
		return func() bool { return (time.Since(s.began)+c.phase)%(2*s.Away) < s.Away }
	}
	return func() bool { return false }
}

// open opens the state of each cluster, makes its agent and registers it with the hub.
func (s *simulation) open(ctx context.Context) error {
	deltas := inProcess{make(turns, runtime.GOMAXPROCS(0))}
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(4 * runtime.GOMAXPROCS(0))
	for i, c := range s.clusters {
		if ctx.Err() != nil {
			break
		}
		if i%100 == 0 {
			s.say("makes agents", i, len(s.clusters))
		}
		g.Go(func() error {
			err := s.openCluster(ctx, i, c, deltas)
			if err != nil {
				err = fmt.Errorf("cluster %s: %w", c.name, err)
			}
			return err
		})
	}
	return g.Wait()
}

// turns bounds how many do a thing at one time; nil does not. Agents take turns in applying deltas, as there are few processors,
// and in having connections, as there are few file descriptors.
type turns chan struct{}

// take waits for a turn, or the end of ctx.
func (t turns) take(ctx context.Context) (end func()) {
	if t == nil {
		return func() {}
	}
	select {
	case t <- struct{}{}:
		return func() { <-t }
	case <-ctx.Done():
		return func() {}
	}
}

// inProcess applies the deltas of all agents in this process, a few at a time: there are few processors.
type inProcess struct{ turns }

// Apply implements content.Deltas.
func (d inProcess) Apply(ctx context.Context, j delta.Job) error {
	defer d.take(ctx)()
	if err := ctx.Err(); err != nil {
		return err
	}
	return j.Apply()
}

func (s *simulation) openCluster(ctx context.Context, i int, c *cluster, deltas inProcess) (err error) {
	if c.state, err = agent.OpenState(s.path("clusters", fmt.Sprint(i)), nil); err != nil {
		return err
	}
	c.state.WithoutSync()
	c.line.hub = s.hubURL[len("http://"):]
	network := oci.Network{Idle: idleTime, Dial: c.line.dial, Each: func(next http.RoundTripper) http.RoundTripper {
		a := attempts{&c.line, next}
		c.connections = append(c.connections, a)
		return a
	}}
	client, err := oci.NewHTTPClient(network)
	if err != nil {
		return err
	}
	toHub := c.line.hubClient(network)
	stream := bundle.Stream{Platform: s.platform.result.Platform, Environment: s.platform.result.Environment, ClusterType: c.typ}
	opts := oci.Options{HTTPClient: client, UserAgent: "wherry-simulate"}
	source, err := s.prefix.Repository(stream.Repository(), opts)
	if err != nil {
		return err
	}
	documents, err := s.prefix.Repository(bundle.TrustRepository, opts)
	if err != nil {
		return err
	}
	e := &engine{failing: c.failing}
	claims := bundle.ReportCluster{UID: "uid-" + c.name, Name: c.name, Platform: stream.Platform, Type: c.typ, Environment: stream.Environment, Ring: c.ring}
	c.agent = agent.New(c.state, source, s.trust(), claims, agent.Options{
		Engines:  engines.Options{Reconcilers: map[string]reconcilers.Reconciler{"simulated": e}, Adapter: "simulated"},
		Content:  content.Options{Files: s.shared[c.typ], Deltas: deltas},
		Interval: s.Poll, MaxBackoff: maxBackoffs * s.Poll, TrustSource: documents, Place: s.prefix.String(),
		Hub: queue.Hub{URL: s.hubURL, Key: s.hub.PublicKey()}, HTTPClient: toHub, Version: s.Version,
	})
	return s.register(ctx, c, stream)
}

const (
	// idleTime is how long agents keep connections: fleets that poll every few minutes close them after each pass.
	idleTime = 2 * time.Second
	// maxBackoffs is the longest time between two attempts of an agent out of reach, in polls, as by the agent's defaults.
	maxBackoffs = agent.DefaultMaxBackoff / agent.DefaultInterval
)

// hubClient is a client for the hub, as an agent's own.
func (l *line) hubClient(n oci.Network) *http.Client {
	t := &http.Transport{DialContext: n.Dial, ResponseHeaderTimeout: time.Minute, IdleConnTimeout: n.Idle}
	return &http.Client{Transport: n.Each(t), Timeout: outbox.HubTime}
}

// register makes the report key of a cluster known to the hub.
func (s *simulation) register(ctx context.Context, c *cluster, stream bundle.Stream) error {
	status, err := c.agent.Status()
	if err != nil {
		return err
	}
	var key ed25519.PublicKey
	if key, err = hub.ParseReportKey([]byte(status.ReportKey)); err != nil {
		return err
	}
	_, err = s.hub.AddCluster(ctx, store.Cluster{
		Identity: store.Identity{
			UID: status.Cluster.UID, Name: c.name, Platform: stream.Platform, Type: c.typ, Environment: stream.Environment, Ring: c.ring, Labels: c.labels,
		},
		Key: key,
	})
	return err
}

func (c *cluster) close() error {
	for _, a := range c.connections { // the servers would wait for them
		a.CloseIdleConnections()
	}
	if c.state == nil {
		return nil
	}
	return c.state.Close()
}

// crossed returns the bytes that have crossed the line, both ways.
func (l *line) crossed() int64 { return l.bytes[registryService].Load() + l.bytes[hubService].Load() }
