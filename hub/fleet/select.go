package fleet

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/opencontainers/go-digest"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/hub/store"
)

// choice is the rows of a moment that a query chooses.
type choice struct {
	m *moment
	q Query

	// Conditions on clusters; nil ones hold.
	platform, environment, typ, ring *oneOf
	selector                         *labelMatch
	only                             *cluster // the one of Query.Cluster
	releases                         []verdict
	releaseHolds                     func(uint32) bool
	states                           *oneOf

	// Conditions on deployments; nil ones hold.
	kinds                    []verdict
	kindTests                []kindTest
	version, config, content *test
	images                   map[uint32]usedBy // by release; nil for any image
}

type kindTest struct {
	of   func(kind) uint32
	want *oneOf
}

// usedBy names assignments; nil is all.
type usedBy map[string]bool

// choose returns what q chooses. The error wraps store.ErrInvalid or store.ErrUnknownCluster.
func (m *moment) choose(ctx context.Context, q Query) (*choice, error) {
	c := &choice{m: m, q: q}
	if err := c.checkWords(); err != nil {
		return nil, err
	}
	wanted := func(s string) *oneOf {
		if s == "" {
			return nil
		}
		return m.oneOf(s)
	}
	c.platform, c.typ, c.ring = wanted(q.Platform), wanted(q.Type), wanted(q.Ring)
	if len(q.Environments) > 0 {
		c.environment = m.oneOf(q.Environments...)
	}
	parsed, err := parseSelector(q.Selector)
	if err != nil {
		return nil, err
	}
	c.selector = parsed.on(m.snapshot)
	for _, t := range []struct {
		want string
		of   func(kind) uint32
	}{
		{q.Workspace, func(k kind) uint32 { return k.workspace }},
		{q.Application, func(k kind) uint32 { return k.application }},
		{q.Workload, func(k kind) uint32 { return k.workload }},
		{q.Target, func(k kind) uint32 { return k.target }},
		{q.Adapter, func(k kind) uint32 { return k.adapter }},
	} {
		if t.want != "" {
			c.kindTests, c.kinds = append(c.kindTests, kindTest{t.of, m.oneOf(t.want)}), make([]verdict, len(m.snapshot.kinds))
		}
	}
	if q.Version != "" {
		c.version = m.test(func(s string) bool { return s == q.Version })
	}
	if c.config, err = c.digestTest("config", q.ConfigDigest); err != nil {
		return nil, err
	}
	if c.content, err = c.digestTest("content", q.Content); err != nil {
		return nil, err
	}
	if err := c.chooseReleases(); err != nil {
		return nil, err
	}
	if q.Cluster != "" {
		if c.only = m.find(q.Cluster); c.only == nil {
			return nil, fmt.Errorf("cluster %q: %w", store.Plain(store.Clip(q.Cluster)), store.ErrUnknownCluster)
		}
	}
	if q.Image != "" {
		if err := c.findImage(ctx); err != nil {
			return nil, err
		}
	}
	return c, nil
}

// checkWords checks the values that are words of a known set.
func (c *choice) checkWords() error {
	q := c.q
	var states []string
	for _, s := range q.State {
		if err := store.CheckState(s); err != nil {
			return err
		}
		states = append(states, string(s))
	}
	if len(states) > 0 {
		c.states = c.m.oneOf(states...)
	}
	known := Relations()
	for _, r := range q.Relation {
		if !slices.Contains(known, r) {
			return fmt.Errorf("relation %q: %w: expected one of %v", store.Plain(store.Clip(string(r))), store.ErrInvalid, known)
		}
	}
	if q.Limit < 0 || q.SilentFor < 0 {
		return fmt.Errorf("limit %d, silent for %s: %w: neither is negative", q.Limit, q.SilentFor, store.ErrInvalid)
	}
	return nil
}

func (c *choice) digestTest(what string, wanted digest.Digest) (*test, error) {
	if wanted == "" {
		return nil, nil
	}
	holds, err := digestTest(what, string(wanted))
	if err != nil {
		return nil, err
	}
	return c.m.test(holds), nil
}

// chooseReleases sets the condition on the release that runs.
func (c *choice) chooseReleases() error {
	var tests []func(h uint32) bool
	if c.q.Release != "" {
		holds, err := digestTest("release", string(c.q.Release))
		if err != nil {
			return err
		}
		tests = append(tests, func(h uint32) bool { return holds(string(c.m.snapshot.releases[h].Digest)) })
	}
	if c.q.Commit != "" {
		holds, err := commitTest(c.q.Commit)
		if err != nil {
			return err
		}
		tests = append(tests, func(h uint32) bool {
			base, environment := c.m.commits(h)
			return holds(base) || holds(environment)
		})
	}
	if len(tests) > 0 {
		c.releases = make([]verdict, len(c.m.snapshot.releases))
		c.releaseHolds = func(h uint32) bool {
			return !slices.ContainsFunc(tests, func(t func(uint32) bool) bool { return !t(h) })
		}
	}
	return nil
}

// find returns the cluster of a name or uid that the view sees, a name before a uid; nil if there is none.
func (m *moment) find(nameOrUID string) *cluster {
	var found *cluster
	for _, c := range m.clusters {
		if c.name != nameOrUID && c.uid != nameOrUID {
			continue
		}
		if _, seen := m.see(c); seen && (found == nil || c.name == nameOrUID) {
			found = c
		}
	}
	return found
}

// findImage finds the releases that have the image, among those that run.
func (c *choice) findImage(ctx context.Context) error {
	is := imageTest(c.q.Image)
	c.images = map[uint32]usedBy{}
	looked := make([]bool, len(c.m.snapshot.releases))
	for _, cl := range c.m.clusters {
		if looked[cl.observed] {
			continue
		}
		looked[cl.observed] = true
		r, err := c.m.view.fleet.contentsOf(ctx, c.m.published, c.m.snapshot.releases[cl.observed].Digest)
		if err != nil {
			return err
		}
		if r == nil {
			continue
		}
		for i := range r.Artifacts {
			if !is(&r.Artifacts[i]) {
				continue
			}
			if c.images[cl.observed] == nil {
				c.images[cl.observed] = usedBy{}
			}
			for _, a := range r.Artifacts[i].UsedBy {
				c.images[cl.observed][a] = true
			}
		}
	}
	return nil
}

// imageTest returns the condition that an artifact is the image of this reference, repository or digest.
func imageTest(wanted string) func(*bundle.Artifact) bool {
	wanted = strings.TrimPrefix(wanted, "oci://")
	if holds, err := digestTest("image", wanted); err == nil {
		return func(a *bundle.Artifact) bool { return holds(a.Digest) }
	}
	name, pinned, _ := strings.Cut(wanted, "@")
	names := []string{name}
	switch first, _, deep := strings.Cut(name, "/"); {
	case !deep:
		names = append(names, "docker.io/library/"+name)
	case !strings.ContainsAny(first, ".:") && first != "localhost":
		names = append(names, "docker.io/"+name)
	}
	return func(a *bundle.Artifact) bool {
		if pinned != "" && a.Digest != pinned {
			return false
		}
		reference, _, _ := strings.Cut(strings.TrimPrefix(a.Reference, "oci://"), "@")
		return slices.Contains(names, a.Name) || slices.Contains(names, reference)
	}
}

// cluster reports whether the conditions on clusters hold, but for the state.
func (c *choice) cluster(r *row) bool {
	q := &c.q
	switch {
	case c.only != nil && r.cluster != c.only,
		c.platform != nil && !c.platform.has(r.platform),
		c.environment != nil && !c.environment.has(r.environment),
		c.typ != nil && !c.typ.has(r.typ),
		c.ring != nil && !c.ring.has(r.ring):
		return false
	}
	if c.releases != nil {
		v := c.releases[r.observed]
		if v == unknown {
			v = verdictOf(r.observed != 0 && c.releaseHolds(r.observed))
			c.releases[r.observed] = v
		}
		if v == no {
			return false
		}
	}
	if c.images != nil && c.images[r.observed] == nil {
		return false
	}
	if q.SilentFor > 0 && r.m.at.Sub(r.heard()) < q.SilentFor {
		return false
	}
	return c.selector.matches(r.cluster) && (len(q.Relation) == 0 || slices.Contains(q.Relation, r.relation()))
}

// heard returns the time of the last word of a cluster, or of its registration without one.
func (r *row) heard() time.Time {
	if !r.reported {
		return time.UnixMilli(r.added)
	}
	return time.UnixMilli(r.lastSeen)
}

// deployment reports whether the conditions on deployments hold, but for the state.
func (c *choice) deployment(r *row, d *deployment) bool {
	if c.kinds != nil {
		v := c.kinds[d.kind]
		if v == unknown {
			k := c.m.snapshot.kinds[d.kind]
			v = verdictOf(!slices.ContainsFunc(c.kindTests, func(t kindTest) bool { return !t.want.has(t.of(k)) }))
			c.kinds[d.kind] = v
		}
		if v == no {
			return false
		}
	}
	switch {
	case c.version != nil && !c.version.has(d.version), c.config != nil && !c.config.has(d.config), c.content != nil && !c.content.has(d.content):
		return false
	case c.images != nil:
		return c.images[r.observed][c.m.texts[c.m.snapshot.kinds[d.kind].assignment]]
	}
	return true
}

// ofDeployments reports whether there is a condition on deployments, other than the state.
func (c *choice) ofDeployments() bool {
	return c.kinds != nil || c.version != nil || c.config != nil || c.content != nil || c.images != nil
}

// clusters returns the clusters that the query chooses, by name: those with a deployment that meets all conditions on
// deployments. The state is that of the cluster. A row is valid until the next one.
func (c *choice) clusters() iter.Seq[*row] {
	return func(yield func(*row) bool) {
		for r := range c.m.rows() {
			if c.states != nil && !c.states.has(r.state) || !c.cluster(r) || c.ofDeployments() && !c.has(r) {
				continue
			}
			if !yield(r) {
				return
			}
		}
	}
}

// has reports whether a cluster has a deployment that meets all conditions on deployments.
func (c *choice) has(r *row) bool {
	for d := range r.all() {
		if c.deployment(r, d) {
			return true
		}
	}
	return false
}

// deployments returns the deployments that the query chooses, by cluster and assignment. The state is that of the
// deployment. A row is valid until the next one.
func (c *choice) deployments() iter.Seq2[*row, *deployment] {
	return func(yield func(*row, *deployment) bool) {
		for r := range c.m.rows() {
			if !c.cluster(r) || c.states != nil && r.silent() && !c.states.has(r.state) {
				continue
			}
			for i := range r.deployments {
				d := &r.deployments[i]
				if !c.m.sight.deployment(d) || c.states != nil && !r.silent() && !c.states.has(d.state) || !c.deployment(r, d) {
					continue
				}
				if !yield(r, d) {
					return
				}
			}
		}
	}
}
