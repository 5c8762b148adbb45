package config

import (
	"context"
	"fmt"
	"io"
	"math"
	"net/http"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/wherry-dev/wherry/agent/carry"
	"github.com/wherry-dev/wherry/agent/serve"
	"github.com/wherry-dev/wherry/agent/state"
	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/graph"
	"github.com/wherry-dev/wherry/bundle/lazyregexp"
	"github.com/wherry-dev/wherry/bundle/oci"
)

// Carry configures the artifacts that come to the agent's store.
type Carry struct {
	// Budget bounds them, in bytes; zero is the default of carry.Options.
	Budget int64
	// Platforms are those of the cluster; empty is this machine's.
	Platforms graph.Platforms
	// WithoutReferrers leaves out their signatures, attestations and SBOMs.
	WithoutReferrers bool
}

// storePattern is a number of bytes with a unit that says whether it counts by 1000 or 1024.
var storePattern = lazyregexp.New(`^([0-9]{1,9})(MB|GB|TB|MiB|GiB|TiB)$`)

var storeUnits = map[string]int64{"MB": 1e6, "GB": 1e9, "TB": 1e12, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}

func setCarryBudget(c *Config, s string) (err error) {
	c.Carry.Budget, err = storeSize(s)
	return err
}

func setMaxManifests(c *Config, s string) (err error) {
	c.MaxManifests, err = storeSize(s)
	return err
}

// storeSize reads a number of bytes.
func storeSize(s string) (int64, error) {
	m := storePattern.FindStringSubmatch(s)
	if m == nil {
		return 0, fmt.Errorf("%q is not a size", s)
	}
	n, err := strconv.ParseInt(m[1], 10, 64)
	if err != nil {
		return 0, err
	}
	if n == 0 || n > math.MaxInt64/storeUnits[m[2]] {
		return 0, fmt.Errorf("%q is too little, or too much", s)
	}
	return n * storeUnits[m[2]], nil
}

func setCarryPlatform(c *Config, s string) error {
	for name := range strings.SplitSeq(s, ",") {
		if err := bundle.CheckPlatform(name); err != nil {
			return err
		}
		c.Carry.Platforms = append(c.Carry.Platforms, name)
	}
	return nil
}

// carryOptions are those of the agent's carrier.
func (r *remote) carryOptions() carry.Options {
	e := &endpoints{client: r.options.HTTPClient, known: map[string]verdict{}}
	return carry.Options{Budget: r.c.Carry.Budget, Platforms: r.c.Carry.Platforms, WithoutReferrers: r.c.Carry.WithoutReferrers, Sources: func(ctx context.Context, repository string) ([]carry.Source, error) {
		return r.carriers(ctx, e, repository)
	}}
}

// carriers returns the places to ask for a repository HOST/NAME: the agent's registries, which are endpoints of other agents
// or may have a copy that "wherry bundle copy" has made of a site package, and then HOST.
func (r *remote) carriers(ctx context.Context, e *endpoints, repository string) (all []carry.Source, err error) {
	host, name, _ := strings.Cut(repository, "/")
	for _, l := range r.c.Registry.Locations {
		opts := r.options
		opts.PlainHTTP = r.c.Registry.plainAt(l.Host)
		if l.Host == "" || l.Host == host {
			continue
		}
		if !e.has(ctx, l.Host, opts.PlainHTTP) {
			if repo, err := r.copyOf(repository, l); err == nil {
				all = append(all, carry.Source{Host: l.Host, Target: repo})
			}
			continue
		}
		client := *r.options.HTTPClient
		client.Transport = mirrored{client.Transport, host}
		opts.HTTPClient = &client
		repo, err := oci.Location{Host: l.Host}.Repository(name, opts)
		if err != nil {
			return nil, err
		}
		all = append(all, carry.Source{Host: l.Host, Target: repo})
	}
	opts := r.options
	opts.PlainHTTP = r.c.Registry.plainAt(host)
	location, err := oci.Parse("oci://" + host)
	if err != nil {
		return nil, err
	}
	repo, err := location.Repository(name, opts)
	if err != nil {
		return nil, err
	}
	return append(all, carry.Source{Host: host, Target: repo}), nil
}

// copyOf opens the repository below a registry's prefix that holds copies of what lies in repository, HOST/NAME, elsewhere.
func (r *remote) copyOf(repository string, l oci.Location) (oci.Target, error) {
	name, err := oci.MirrorName(repository)
	if err != nil {
		return nil, err
	}
	opts := r.options
	opts.PlainHTTP = r.c.Registry.plainAt(l.Host)
	return l.Repository(name, opts)
}

// mirrored asks an endpoint for repositories of another registry, as containerd asks a mirror.
type mirrored struct {
	http.RoundTripper
	host string
}

func (m mirrored) RoundTrip(req *http.Request) (*http.Response, error) {
	if strings.HasPrefix(req.URL.Path, "/v2/") {
		req = req.Clone(req.Context())
		q := req.URL.Query()
		q.Set("ns", m.host)
		req.URL.RawQuery = q.Encode()
	}
	return m.RoundTripper.RoundTrip(req)
}

const (
	// probeTime bounds the question whether a registry is an endpoint.
	probeTime = 30 * time.Second
	// verdictTime is how long the answer is believed.
	verdictTime = time.Hour
)

// endpoints knows which registries are endpoints of other agents. Others are asked for repositories of foreign hosts below
// their prefix alone: elsewhere they would have something else under these names.
type endpoints struct {
	client *http.Client

	mu    sync.Mutex
	known map[string]verdict
}

type verdict struct {
	is bool
	at time.Time
}

// has reports whether the registry at host says that it is an endpoint. No credentials are sent. One that does not
// answer counts as none this time.
func (e *endpoints) has(ctx context.Context, host string, plain bool) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if v, ok := e.known[host]; ok && time.Since(v.at) < verdictTime {
		return v.is
	}
	scheme := "https"
	if plain || oci.IsLoopback(host) {
		scheme = "http"
	}
	ctx, cancel := context.WithTimeout(ctx, probeTime)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodHead, scheme+"://"+host+"/v2/", nil)
	if err != nil {
		return false
	}
	resp, err := e.client.Do(req)
	if err != nil {
		return false
	}
	_ = resp.Body.Close()
	is := resp.Header.Get("Server") == serve.Name
	e.known[host] = verdict{is, time.Now()}
	return is
}

// carriedFirst is a repository of artifacts that reads carried artifacts from the agent's store, and all others from a
// registry.
type carriedFirst struct {
	store bundle.Source
	bundle.Source
}

// firstThatHas asks sources in turn. Its errors are those of the last one.
type firstThatHas []bundle.Source

func (f firstThatHas) Resolve(ctx context.Context, reference string) (d ocispec.Descriptor, err error) {
	for _, s := range f {
		if d, err = s.Resolve(ctx, reference); err == nil || ctx.Err() != nil {
			break
		}
	}
	return d, err
}

func (f firstThatHas) Fetch(ctx context.Context, d ocispec.Descriptor) (r io.ReadCloser, err error) {
	for _, s := range f {
		if r, err = s.Fetch(ctx, d); err == nil || ctx.Err() != nil {
			break
		}
	}
	return r, err
}

// artifactsOf opens a repository HOST/NAME for the adapter directory.
func (r *remote) artifactsOf(stateDir string) func(repository string) (bundle.Source, error) {
	layout := oci.NewLayout(filepath.Join(stateDir, state.StoreDir))
	return func(repository string) (bundle.Source, error) {
		next, err := r.artifacts(repository)
		if err != nil {
			return nil, err
		}
		store, err := layout.Repository("carried")
		if err != nil {
			return nil, err
		}
		return &carriedFirst{store, next}, nil
	}
}

func (c *carriedFirst) Resolve(ctx context.Context, reference string) (ocispec.Descriptor, error) {
	if d, err := c.store.Resolve(ctx, reference); err == nil && d.Digest.String() == reference {
		return d, nil
	}
	return c.Source.Resolve(ctx, reference)
}

func (c *carriedFirst) Fetch(ctx context.Context, d ocispec.Descriptor) (io.ReadCloser, error) {
	if r, err := c.store.Fetch(ctx, d); err == nil {
		return r, nil
	}
	return c.Source.Fetch(ctx, d)
}
