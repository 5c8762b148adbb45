// Package hubload loads a hub as a fleet does: clusters whose reports are signed beforehand, a generator that sends them from a
// process of its own, and the hub's process.
//
// Begin with a Fleet. The same Fleet has the same clusters, keys and reports in each process, so that a generator is told
// numbers only, and whoever knows what was acknowledged knows which reports have to be stored. Main is the generator's
// process, Start begins one, and Serve begins a hub.
package hubload

import (
	"cmp"
	"context"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/opencontainers/go-digest"
	"golang.org/x/sync/errgroup"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/hub/store"
)

// Fleet is clusters that exist for tests. Two fleets with equal fields are the same.
type Fleet struct {
	// Seed makes keys and names differ between fleets.
	Seed string `json:"seed"`
	// Items is the number of assignments in each report.
	Items int `json:"items"`
	// Begin is the time of the reports; see Cluster.Time.
	Begin time.Time `json:"begin"`
	// Environment is that of all clusters; empty puts them into several.
	Environment string `json:"environment,omitempty"`
	// Observed are the releases that clusters report, by cluster type. Without one, they report a release that nobody has
	// published.
	Observed map[string]bundle.ReportRelease `json:"observed,omitempty"`
	// Healthy means that only one cluster in fifty has assignments that are not compliant; otherwise all have.
	Healthy bool `json:"healthy,omitempty"`
}

// The places in which the clusters of a fleet are, in turn.
var (
	environments = [...]string{"prod", "prod", "prod", "prod", "stage", "dev"}
	regions      = [...]string{"north", "east", "south", "west", "centre"}
	states       = [...]bundle.State{bundle.Compliant, bundle.Compliant, bundle.Compliant, bundle.Compliant, bundle.Compliant, bundle.Progressing, bundle.Failed}
)

// types is the number of cluster types.
const types = 20

// Cluster is one cluster of a fleet, with its key.
type Cluster struct {
	store.Cluster
	fleet   Fleet
	number  int
	private ed25519.PrivateKey
	keyID   string
}

// Cluster returns the cluster of this number.
func (f Fleet) Cluster(number int) *Cluster {
	seed := sha256.Sum256(fmt.Appendf(nil, "%s %d", f.Seed, number))
	private := ed25519.NewKeyFromSeed(seed[:])
	public, _ := private.Public().(ed25519.PublicKey)
	id, err := bundle.KeyID(public)
	if err != nil {
		panic(err) // the key is what KeyID takes
	}
	name := fmt.Sprintf("%s-%06d", f.Seed, number)
	labels := map[string]string{"region": regions[number%len(regions)], "site": fmt.Sprint(number / 10)}
	if number%10 == 3 {
		labels["gpu"] = "true"
	}
	environment := cmp.Or(f.Environment, environments[number%len(environments)])
	return &Cluster{
		Cluster: store.Cluster{
			Identity: store.Identity{
				UID: "uid-" + name, Name: name, Platform: "shop", Type: fmt.Sprintf("type-%02d", number%types),
				Environment: environment, Labels: labels,
			},
			Key: public,
		},
		fleet: f, number: number, private: private, keyID: id,
	}
}

// Time returns the time at which the cluster made a report: an hour after another.
func (f Fleet) Time(seq int64) time.Time { return f.Begin.Add(time.Duration(seq) * time.Hour).UTC() }

// Body returns a report as its agent writes it. Between one report and the next, one assignment changes its version and
// content.
func (c *Cluster) Body(seq int64) []byte {
	at := c.fleet.Time(seq).Format(time.RFC3339)
	begin := c.fleet.Begin.UTC().Format(time.RFC3339)
	release := sha256.Sum256(fmt.Appendf(nil, "%s release %s", c.fleet.Seed, c.Type))
	releaseJSON := c.observed()
	if releaseJSON == "" {
		releaseJSON = fmt.Sprintf(`{"digest":"sha256:%s","epoch":1,"sequence":7,"number":12,"baseCommit":"%s","issuedAt":"%s"}`,
			hex.EncodeToString(release[:]), hex.EncodeToString(release[:20]), begin)
	}
	state := bundle.Compliant
	for i := range c.fleet.Items {
		if s := c.state(i); s == bundle.Failed || s == bundle.Progressing && state != bundle.Failed {
			state = s
		}
	}
	b := make([]byte, 0, 600+c.fleet.Items*400)
	b = fmt.Appendf(b, `{"schema":1,"cluster":{"uid":%q,"name":%q,"platform":%q,"type":%q,"environment":%q},"agent":{"version":"v0.9.0","incarnation":1,"seq":%d,"instance":"one"},`+
		`"kind":"event","occurredAt":"%s","state":%q,"desired":%s,"observed":%s,"items":[`,
		c.UID, c.Name, c.Platform, c.Type, c.Environment, seq, at, state, releaseJSON, releaseJSON)
	for i := range c.fleet.Items {
		if i > 0 {
			b = append(b, ',')
		}
		b = c.appendItem(b, i, seq)
	}
	return append(b, "]}"...)
}

func (c *Cluster) appendItem(b []byte, item int, seq int64) []byte {
	version := c.version(item, seq)
	content := sha256.Sum256(fmt.Appendf(nil, "content %d %d", item, version))
	config := sha256.Sum256(fmt.Appendf(nil, "config %d %d", item, c.number%types))
	since := c.fleet.Begin.UTC()
	if version > 0 {
		since = c.fleet.Time(int64(item) + (version-1)*int64(c.fleet.Items))
	}
	b = fmt.Appendf(b, `{"assignment":"workload-%d-main","workspace":"team-%d","workload":"workload-%d","target":"main","adapter":"kubernetes","state":%q,`,
		item, item%5, item, c.state(item))
	if c.state(item) == bundle.Failed {
		b = append(b, `"reason":"HealthCheckFailed","message":"deployment web: 1 of 3 pods is ready",`...)
	}
	b = fmt.Appendf(b, `"since":"%s","version":"1.%d.0","configDigest":"sha256:`, since.Format(time.RFC3339), version)
	b = hex.AppendEncode(b, config[:])
	b = append(b, `","content":"sha256:`...)
	b = hex.AppendEncode(b, content[:])
	return append(b, `"}`...)
}

// version returns how often the assignment has changed before or at a report.
func (c *Cluster) version(item int, seq int64) int64 {
	n := int64(c.fleet.Items)
	return (seq + n - int64(item)) / n
}

func (c *Cluster) state(item int) bundle.State {
	if c.fleet.Healthy && c.number%50 != 0 {
		return bundle.Compliant
	}
	return states[(c.number*7+item*3)%len(states)]
}

// observed returns the release that the cluster was given to report, as JSON; empty for none.
func (c *Cluster) observed() string {
	r, given := c.fleet.Observed[c.Type]
	if !given {
		return ""
	}
	data, err := json.Marshal(r)
	if err != nil {
		panic(err) // it has texts and numbers alone
	}
	return string(data)
}

// Signed is a report of a cluster with its signature, in few bytes.
type Signed struct {
	Seq       int64
	Signature [ed25519.SignatureSize]byte
}

// Sign signs a report.
func (c *Cluster) Sign(seq int64) Signed {
	body := c.Body(seq)
	s := Signed{Seq: seq}
	// DSSE's pre-authentication encoding; see the specification's protocol.md.
	copy(s.Signature[:], ed25519.Sign(c.private, fmt.Appendf(nil, "DSSEv1 %d %s %d %s", len(bundle.PayloadTypeReport), bundle.PayloadTypeReport, len(body), body)))
	return s
}

// AppendEnvelope appends the envelope of a signed report to b.
func (c *Cluster) AppendEnvelope(b []byte, s Signed) []byte {
	b = append(b, `{"payloadType":"`+bundle.PayloadTypeReport+`","payload":"`...)
	b = base64.StdEncoding.AppendEncode(b, c.Body(s.Seq))
	b = append(b, `","signatures":[{"keyid":"`+c.keyID+`","sig":"`...)
	b = base64.StdEncoding.AppendEncode(b, s.Signature[:])
	return append(b, `"}]}`...)
}

// Request returns the body of a request with these reports.
func (c *Cluster) Request(all []Signed) []byte {
	b := append(make([]byte, 0, len(all)*(1000+c.fleet.Items*550)), `{"reports":[`...)
	for i, s := range all {
		if i > 0 {
			b = append(b, ',')
		}
		b = c.AppendEnvelope(b, s)
	}
	return append(b, "]}"...)
}

// ID returns the id of a report.
func (c *Cluster) ID(seq int64) digest.Digest { return bundle.ReportID(c.Body(seq)) }

// Register registers the clusters of these numbers, from included and to excluded.
func (f Fleet) Register(ctx context.Context, to store.Registry, from, until int) error {
	return atOnce(ctx, from, until, func(ctx context.Context, i int) error {
		_, err := to.AddCluster(ctx, f.Cluster(i).Cluster)
		return err
	})
}

// Fill stores the report of this number of each of these clusters, without a signature, as the quick way to a full database.
func (f Fleet) Fill(ctx context.Context, to store.Reports, from, until int, seq int64) error {
	return atOnce(ctx, from, until, func(ctx context.Context, i int) error {
		c := f.Cluster(i)
		body := c.Body(seq)
		report, err := bundle.ParseReport(body)
		if err != nil {
			return err
		}
		_, err = to.Ingest(ctx, store.Batch{UID: c.UID, Via: store.ViaHTTP, Reports: []store.Report{{ID: bundle.ReportID(body), KeyID: c.keyID, Body: report}}})
		return err
	})
}

// atOnce calls do for each number, with so many at once that a store groups them.
func atOnce(ctx context.Context, from, until int, do func(context.Context, int) error) error {
	var next atomic.Int64
	next.Store(int64(from))
	g, ctx := errgroup.WithContext(ctx)
	for range 64 {
		g.Go(func() error {
			for {
				i := int(next.Add(1)) - 1
				if i >= until {
					return nil
				}
				if err := do(ctx, i); err != nil {
					return fmt.Errorf("cluster %d: %w", i, err)
				}
			}
		})
	}
	return g.Wait()
}

// Missing returns which of the reports up to a number, of these clusters, a store lacks.
func (f Fleet) Missing(ctx context.Context, in store.Reports, from, until int, first, last int64) (missing []string, err error) {
	for i := from; i < until; i++ {
		c := f.Cluster(i)
		ids, err := in.From(ctx, c.UID, store.Order{Incarnation: 1, Seq: first}, int(last-first)+2)
		if err != nil {
			return nil, err
		}
		stored := map[digest.Digest]int{}
		for _, id := range ids {
			stored[id]++
		}
		for seq := first; seq <= last; seq++ {
			if stored[c.ID(seq)] != 1 {
				missing = append(missing, fmt.Sprintf("%s report %d", c.Name, seq))
			}
		}
	}
	return missing, nil
}
