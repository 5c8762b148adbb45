// Package demo fills the database of a hub with a sample fleet, so that a newcomer sees a hub at work without a cluster, a registry or a
// key of their own.
//
// Begin with Fill. The fleet is that of a chain of coffee shops: three environments, rings in the last one, teams whose workloads run,
// fail and fall silent, and people who decided about it. It has a history of nine days. The same arguments give the same fleet. Reports
// are signed, by keys that anybody can compute; releases and decisions are not, and whoever reads them from the database has to know that. Live keeps
// the fleet alive.
package demo

import (
	"context"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/opencontainers/go-digest"
	"golang.org/x/sync/errgroup"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/hub/store"
	"github.com/wherry-dev/wherry/hub/store/sqlite"
)

// Fill fills the database of a hub, a file that exists, with so many clusters, as of a time.
func Fill(ctx context.Context, database string, clusters int, now time.Time) error {
	return fill(ctx, database, clusters, now, func(*fleet) error { return nil })
}

// Live is Fill, and keeps the fleet alive from then on: at each of ticks clusters report, and gates are judged anew with what people have decided
// meanwhile. It calls filled before the first, and returns nil when ctx or ticks end.
func Live(ctx context.Context, database string, clusters int, now time.Time, ticks <-chan time.Time, filled func()) error {
	return fill(ctx, database, clusters, now, func(f *fleet) error {
		filled()
		for {
			select {
			case at, open := <-ticks:
				if !open {
					return nil
				}
				if err := f.tick(ctx, at.UTC().Truncate(time.Second)); err != nil && ctx.Err() == nil {
					return fmt.Errorf("sample fleet: %w", err)
				}
			case <-ctx.Done():
				return nil
			}
		}
	})
}

func fill(ctx context.Context, database string, clusters int, now time.Time, use func(*fleet) error) error {
	f := &fleet{now: now.UTC().Truncate(time.Second)}
	f.clock.Store(f.now.Add(-10 * 24 * time.Hour).UnixNano())
	db, err := sqlite.Open(database, sqlite.Options{Now: func() time.Time { return time.Unix(0, f.clock.Load()).UTC() }})
	if err != nil {
		return err
	}
	defer db.Close()
	f.db = db
	for i := range clusters {
		f.clusters = append(f.clusters, newCluster(i))
	}
	for _, step := range []func(context.Context) error{f.register, f.publish, f.decide, f.report, f.judge} {
		if err := step(ctx); err != nil {
			return fmt.Errorf("sample fleet: %w", err)
		}
	}
	return use(f)
}

const platform = "coffee"

// rings are those of prod. Other environments have none.
var rings = []string{"canary", "early", "stable"}

// workload is what a team runs on clusters of a type, with its version at each commit.
type workload struct {
	team, name, typ string
	versions        [4]string
}

var workloads = []workload{
	{"shop", "menu", "store", [4]string{"1.0.0", "1.0.0", "1.4.0", "1.4.0"}},
	{"shop", "web", "store", [4]string{"1.0.0", "1.1.0", "1.2.0", "1.2.0"}},
	{"payments", "till", "store", [4]string{"2.0.0", "2.0.0", "2.0.0", "2.1.0"}},
	{"payments", "ledger", "depot", [4]string{"1.4.0", "1.4.0", "1.5.0", "1.5.0"}},
	{"ops", "monitor", "store", [4]string{"3.1.0", "3.1.0", "3.1.0", "3.1.0"}},
	{"ops", "monitor", "depot", [4]string{"3.1.0", "3.1.0", "3.1.0", "3.1.0"}},
}

var messages = [4]string{"first shops", "web 1.1.0", "menu 1.4.0, web 1.2.0 and ledger 1.5.0", "till 2.1.0"}

// publication brings a commit to an environment, or to one of its rings, some time ago.
type publication struct {
	environment, ring string
	commit            int
	ago               time.Duration
}

const day = 24 * time.Hour

// story is what was published, oldest first.
var story = []publication{
	{"dev", "", 0, 9 * day},
	{"stage", "", 0, 9*day - time.Hour},
	{"prod", "canary", 0, 9*day - 2*time.Hour},
	{"prod", "early", 0, 9*day - 3*time.Hour},
	{"prod", "stable", 0, 9*day - 4*time.Hour},
	{"dev", "", 1, 3 * day},
	{"stage", "", 1, 2 * day},
	{"prod", "canary", 1, 27 * time.Hour},
	{"prod", "early", 1, 26 * time.Hour},
	{"prod", "stable", 1, 25 * time.Hour},
	{"dev", "", 2, 5 * time.Hour},
	{"stage", "", 2, 4 * time.Hour},
	{"prod", "canary", 2, 110 * time.Minute},
	{"prod", "early", 2, 80 * time.Minute},
	{"dev", "", 3, 25 * time.Minute},
}

// cluster is a cluster of the fleet, with its key.
type cluster struct {
	store.Cluster
	number int
	key    ed25519.PrivateKey
}

func newCluster(number int) *cluster {
	seed := sha256.Sum256(fmt.Appendf(nil, "wherry sample fleet %d", number))
	c := &cluster{number: number, key: ed25519.NewKeyFromSeed(seed[:])}
	c.Platform, c.Environment, c.Type = platform, "prod", "store"
	switch number % 10 {
	case 0:
		c.Environment = "dev"
	case 1, 2:
		c.Environment = "stage"
	case 3:
		c.Ring = rings[0]
	case 4, 5:
		c.Ring = rings[1]
	default:
		c.Ring = rings[2]
	}
	if number%4 == 3 {
		c.Type = "depot"
	}
	c.Name = fmt.Sprintf("%s-%s-%03d", c.Environment, c.Type, number)
	c.UID = hex.EncodeToString(seed[:8])
	places := [...][2]string{{"north", "dk"}, {"north", "no"}, {"east", "pl"}, {"south", "it"}, {"west", "ie"}, {"isles", "is"}}
	place := places[number%len(places)]
	c.Labels = map[string]string{"region": place[0], "country": place[1]}
	c.Key, _ = c.key.Public().(ed25519.PublicKey)
	return c
}

// silentFor is how long the cluster has not been heard of; ok is false if it never was.
func (c *cluster) silentFor() (ago time.Duration, ok bool) {
	switch {
	case c.number%41 == 17:
		return 0, false
	case c.number%11 == 9:
		return time.Duration(c.number%7+1) * 26 * time.Hour, true
	}
	return time.Duration(c.number%50) * time.Minute / 2, true
}

// fleet is the sample fleet while it is made.
type fleet struct {
	db       store.Store
	clock    atomic.Int64
	now      time.Time
	clusters []*cluster
	// last are the newest reports, by cluster.
	last map[*cluster]sent
	// releases are those that were published, by publication and cluster type.
	releases map[string]store.PublishedRelease
}

func (f *fleet) register(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(64) // the database groups what comes at once
	for _, c := range f.clusters {
		g.Go(func() error {
			_, err := f.db.AddCluster(ctx, c.Cluster)
			return err
		})
	}
	return g.Wait()
}

func commitOf(n int) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "commit %d", n))
	return hex.EncodeToString(sum[:20])
}

func contentOf(w workload, commit int) digest.Digest {
	return digest.FromString("content of " + w.name + " " + w.versions[commit])
}

// since returns how long ago an environment got a commit before the fleet was filled.
func since(environment string, commit int) time.Duration {
	i := slices.IndexFunc(story, func(p publication) bool { return p.environment == environment && p.commit == commit })
	return story[i].ago
}

// releaseKey names a release of a publication.
func releaseKey(p publication, typ string) string {
	return fmt.Sprintf("%s/%s/%s/%d", p.environment, p.ring, typ, p.commit)
}

// publish stores releases and records as if a publisher had sent them.
func (f *fleet) publish(ctx context.Context) error {
	f.releases = map[string]store.PublishedRelease{}
	numbers := map[string]int64{}
	records := map[string]*bundle.EnvironmentRecord{} // the newest of each environment
	for i, p := range story {
		at := f.now.Add(-p.ago)
		f.clock.Store(at.UnixNano())
		before := records[p.environment]
		record := bundle.EnvironmentRecord{
			Schema: bundle.EnvironmentSchema, Platform: platform, Environment: p.environment, Sequence: int64(i + 1), IssuedAt: at,
			BaseCommit: commitOf(p.commit), ClusterTypes: map[string]digest.Digest{},
		}
		if p.ring != "" {
			record.Rings, record.RingOrder = map[string]map[string]digest.Digest{}, rings
		}
		var all []store.PublishedRelease
		for _, typ := range []string{"depot", "store"} {
			numbers[p.environment+typ]++
			r := releaseOf(p, typ, int64(i+1), numbers[p.environment+typ], at)
			f.releases[releaseKey(p, typ)] = r
			all = append(all, r)
			record.ClusterTypes[typ] = r.Digest
			if p.ring == "" {
				continue
			}
			of := map[string]digest.Digest{}
			for at, ring := range rings { // narrower rings have it too, wider ones keep what they have
				if of[ring] = r.Digest; at > slices.Index(rings, p.ring) && before != nil {
					of[ring] = before.Rings[typ][ring]
				}
			}
			record.Rings[typ] = of
			if p.ring != rings[len(rings)-1] && before != nil {
				record.ClusterTypes[typ] = before.ClusterTypes[typ]
			}
		}
		records[p.environment] = &record
		if _, err := f.db.AddReleases(ctx, all); err != nil {
			return err
		}
		name := digest.FromString(fmt.Sprint("record ", i))
		if _, err := f.db.AddRecord(ctx, store.PublishedRecord{Digest: name, EnvironmentRecord: record, KeyIDs: []string{"sample"}, SeenAt: at}); err != nil {
			return err
		}
	}
	return nil
}

// releaseOf returns the release of a publication for a cluster type.
func releaseOf(p publication, typ string, sequence, number int64, at time.Time) store.PublishedRelease {
	r := store.PublishedRelease{
		Digest: digest.FromString(releaseKey(p, typ)), Message: messages[p.commit], KeyIDs: []string{"sample"}, SeenAt: at,
		Release: bundle.Release{
			Schema: bundle.ReleaseSchema, Platform: platform, Environment: p.environment, ClusterType: typ, Sequence: sequence, Number: number,
			IssuedAt: at, ExpiresAt: at.Add(30 * day), BaseCommit: commitOf(p.commit),
		},
	}
	if i := slices.Index(rings, p.ring); i >= 0 && i < len(rings)-1 {
		r.Rings = slices.Sorted(slices.Values(rings[:i+1]))
	}
	tree := typ
	for _, w := range workloads {
		if w.typ != typ {
			continue
		}
		version := w.versions[p.commit]
		name := w.name + "-" + p.environment
		r.Assignments = append(r.Assignments, bundle.Assignment{Name: name, Workspace: w.team, Workload: w.name, Target: p.environment, Version: version, Adapter: "kubernetes", Content: contentOf(w, p.commit)})
		image := "registry.example/" + w.team + "/" + w.name
		r.Artifacts = append(r.Artifacts, bundle.Artifact{Type: "image", Name: image, Reference: image + ":" + version, Digest: string(digest.FromString(image + version)), UsedBy: []string{name}})
		tree += " " + w.name + " " + version
	}
	r.Content = bundle.Content{DiffID: digest.FromString(tree), Size: 4096, Files: len(r.Assignments)}
	return r
}

// decide stores decisions as if a hub had signed them.
func (f *fleet) decide(ctx context.Context) error {
	key := newCluster(1 << 20).key // one that no cluster has
	for _, d := range []struct {
		by  string
		ago time.Duration
		bundle.Decision
	}{
		{"anna", 28 * time.Hour, bundle.Decision{Action: bundle.Approve, Environment: "prod", From: "stage", BaseCommit: commitOf(1)}},
		{"dora", 28*time.Hour - 4*time.Minute, bundle.Decision{Action: bundle.Approve, Environment: "prod", From: "stage", BaseCommit: commitOf(1)}},
		{"ben", 115 * time.Minute, bundle.Decision{Action: bundle.Override, Environment: "prod", From: "stage", BaseCommit: commitOf(2), Rules: []string{"reported"}, Reason: "the stage boxes in the isles are without power"}},
		{"anna", 114 * time.Minute, bundle.Decision{Action: bundle.Approve, Environment: "prod", From: "stage", BaseCommit: commitOf(2)}},
		{"ben", 112 * time.Minute, bundle.Decision{Action: bundle.Approve, Environment: "prod", From: "stage", BaseCommit: commitOf(2)}},
		{"anna", 40 * time.Minute, bundle.Decision{Action: bundle.Pause, Environment: "prod", Reason: "web 1.2.0 does not become ready in ring early"}},
	} {
		d.Schema, d.Platform, d.By, d.IssuedAt = bundle.DecisionSchema, platform, d.by, f.now.Add(-d.ago)
		if d.From != "" {
			d.Contents = map[string]digest.Digest{"store": digest.FromString("store"), "depot": digest.FromString("depot")}
		}
		body, err := json.Marshal(d.Decision)
		if err != nil {
			return err
		}
		envelope, err := bundle.SealEnvelope(bundle.PayloadTypeDecision, body, key)
		if err != nil {
			return err
		}
		_, err = f.db.AddDecision(ctx, store.StoredDecision{Platform: platform, Environment: d.Environment, Digest: digest.FromBytes(envelope), IssuedAt: d.IssuedAt, SeenAt: d.IssuedAt, Own: true, Envelope: envelope})
		if err != nil {
			return err
		}
	}
	return nil
}

// sent is a report of a cluster, and when it was sent.
type sent struct {
	cluster *cluster
	at      time.Time
	report  bundle.Report
}

// report stores what the clusters said, in the order of time.
func (f *fleet) report(ctx context.Context) error {
	var all []sent
	f.last = map[*cluster]sent{}
	for _, c := range f.clusters {
		of := f.reportsOf(c)
		if all = append(all, of...); len(of) > 0 {
			f.last[c] = of[len(of)-1]
		}
	}
	slices.SortStableFunc(all, func(a, b sent) int { return a.at.Compare(b.at) })
	for len(all) > 0 {
		until := all[0].at.Add(20 * time.Minute) // of these, no cluster sends two
		n := slices.IndexFunc(all, func(s sent) bool { return s.at.After(until) })
		if n < 0 {
			n = len(all)
		}
		f.clock.Store(all[n-1].at.UnixNano())
		g, ctx := errgroup.WithContext(ctx)
		g.SetLimit(64)
		for _, s := range all[:n] {
			g.Go(func() error { return f.take(ctx, s) })
		}
		if err := g.Wait(); err != nil {
			return err
		}
		all = all[n:]
	}
	return nil
}

func (f *fleet) take(ctx context.Context, s sent) error {
	body, err := json.Marshal(s.report)
	if err != nil {
		return err
	}
	envelope, err := bundle.SealEnvelope(bundle.PayloadTypeReport, body, s.cluster.key)
	if err != nil {
		return err
	}
	id, err := bundle.KeyID(s.cluster.Key)
	if err != nil {
		return err
	}
	_, err = f.db.Ingest(ctx, store.Batch{UID: s.cluster.UID, Via: via(s.cluster), Reports: []store.Report{{ID: bundle.ReportID(body), KeyID: id, Body: s.report, Envelope: envelope}}})
	return err
}

// via is how the reports of a cluster come: those of the isles on a medium.
func via(c *cluster) store.Via {
	if c.Labels["region"] == "isles" {
		return store.ViaMedia
	}
	return store.ViaHTTP
}

// reportsOf returns the reports of a cluster: one after each release that it got, and its last word.
func (f *fleet) reportsOf(c *cluster) (all []sent) {
	silent, ever := c.silentFor()
	if !ever {
		return nil
	}
	end := f.now.Add(-silent)
	items := map[string]bundle.Item{}
	var runs *bundle.ReportRelease
	state := bundle.Compliant
	add := func(at time.Time) {
		r := bundle.Report{
			Schema: bundle.ReportSchema, Cluster: bundle.ReportCluster(c.Identity), Kind: bundle.Snapshot, OccurredAt: at, State: state, Desired: runs, Observed: runs,
			Agent: bundle.ReportAgent{Version: "v0.9." + fmt.Sprint(1-c.number%8/7), Incarnation: 1, Seq: int64(len(all) + 1), Instance: "one"},
		}
		for _, w := range workloads {
			if it, ok := items[w.name]; ok && w.typ == c.Type {
				r.Items = append(r.Items, it)
			}
		}
		slices.SortFunc(r.Items, func(a, b bundle.Item) int { return strings.Compare(a.Assignment, b.Assignment) })
		all = append(all, sent{c, at, r})
	}
	run := func(p publication, at time.Time) {
		r := f.releases[releaseKey(p, c.Type)]
		runs = &bundle.ReportRelease{Digest: r.Digest, Sequence: r.Sequence, Number: r.Number, BaseCommit: r.BaseCommit, IssuedAt: r.IssuedAt}
		var states []bundle.State
		for _, w := range workloads {
			if w.typ != c.Type {
				continue
			}
			it := c.item(w, p, at)
			if was, ok := items[w.name]; ok && was.Version == it.Version && was.State == it.State {
				it.Since = was.Since
			}
			items[w.name] = it
			states = append(states, it.State)
		}
		state = bundle.AgentState(false, states)
		add(at)
	}
	var ran []publication
	for _, p := range story {
		at := f.now.Add(-p.ago).Add(time.Duration(c.number%13+2) * time.Minute)
		if p.environment != c.Environment || p.ring != c.Ring || at.After(end) {
			continue
		}
		run(p, at)
		ran = append(ran, p)
	}
	if c.number%60 == 34 && len(ran) > 1 { // two shops of 120 went back
		run(ran[len(ran)-2], f.now.Add(-30*time.Minute))
	}
	if runs != nil && end.Sub(all[len(all)-1].at) > 20*time.Minute {
		add(end)
	}
	return all
}

// item is how a workload is on a cluster after a publication.
func (c *cluster) item(w workload, p publication, at time.Time) bundle.Item {
	it := bundle.Item{
		Assignment: w.name + "-" + p.environment, Workspace: w.team, Workload: w.name, Target: p.environment, Adapter: "kubernetes",
		State: bundle.Compliant, Since: at, Version: w.versions[p.commit], Content: contentOf(w, p.commit), ConfigDigest: digest.FromString(w.name + p.environment),
	}
	switch {
	case w.name == "web" && p.commit == 2 && p.ring == "early" && c.number%3 != 1:
		it.State, it.Reason, it.Message, it.Failures = bundle.Failed, "DeadlineExceeded", "deployment web: not ready after 5m: 0 of 2 replicas", 3
	case w.name == "monitor" && c.number%37 == 19:
		it.State, it.Reason, it.Message, it.Failures = bundle.Failed, "ImagePullBackOff", "pod monitor-0: registry.example/ops/monitor:3.1.0: not found", 1
	case w.name == "till" && p.commit == 3 && c.number%20 == 10:
		it.State, it.Reason, it.Message = bundle.Progressing, "RolloutInProgress", "deployment till: 1 of 2 replicas are ready"
	}
	return it
}
