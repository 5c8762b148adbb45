package facts

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/opencontainers/go-digest"
	"github.com/sigstore/sigstore/pkg/signature"
	"github.com/stretchr/testify/require"
	"oras.land/oras-go/v2/registry/remote/auth"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/ledger"
	"github.com/wherry-dev/wherry/bundle/oci"
	"github.com/wherry-dev/wherry/bundle/sweeptest"
	"github.com/wherry-dev/wherry/published"
	"github.com/wherry-dev/wherry/publisher"
	"github.com/wherry-dev/wherry/publisher/keys"
	"github.com/wherry-dev/wherry/publisher/releases"
	"github.com/wherry-dev/wherry/rollout/content"
	"github.com/wherry-dev/wherry/rollout/decisions"
	"github.com/wherry-dev/wherry/scheduler"
	"github.com/wherry-dev/wherry/scheduler/promotion"
)

// chain is dev and prod, which has two rings, with workload shop/cart of an application team. prod has a folder of its own of it.
type chain struct {
	*world
	line *mortal
	// head is the newest version in the team's repository, and own that in the repository that only prod reads.
	head, own string
	anna      ed25519.PrivateKey // of a member of a group of prod's policy
	// base is the base commit of what is published, carried are reports on a medium, and policy changes prod's.
	base    string
	carried [][]byte
	policy  func(*promotion.Policy)
}

const shopRepo, ownRepo = "https://git.example/shop", "https://git.example/prod"

var cartKey = ledger.Key{Registration: "shop", Workload: "cart"}

// mortal is the way of a publisher to the registry, which is killed after so many writes.
type mortal struct {
	handler http.Handler
	left    int // less than 0: it is dead
}

var errDead = errors.New("killed")

func (m *mortal) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		m.left--
	}
	if m.left < 0 {
		return nil, errDead
	}
	answer := httptest.NewRecorder()
	r.RequestURI = r.URL.RequestURI()
	if r.Body == nil {
		r.Body = http.NoBody
	}
	m.handler.ServeHTTP(answer, r)
	result := answer.Result()
	result.Request = r
	return result, nil
}

const immortal = 1 << 30

func newChain(t *testing.T) *chain {
	c := &chain{world: newWorld(t), line: &mortal{registry.New(registry.Logger(log.New(io.Discard, "", 0))), immortal}, head: "v1", own: "own1", base: commit("a")}
	seed := sha("anna")
	c.anna = ed25519.NewKeyFromSeed(seed[:])
	c.loc = oci.Location{Host: "127.0.0.1:5000", Prefix: "edge"}
	c.opts = oci.Options{HTTPClient: &http.Client{Transport: c.line}, Credential: auth.StaticCredential("", auth.EmptyCredential)}
	c.cluster("site", "drone")
	return c
}

// rendered is what a publisher makes of these versions of both repositories.
func rendered(environment, version, own string) *scheduler.Result {
	shop := scheduler.Place{Repo: shopRepo, Ref: "main", Commit: version}
	r := &scheduler.Result{
		Environment: environment, Platform: "coffee", BaseCommit: commit("a"), Places: map[string]scheduler.Place{"shop": shop},
		Declared:  map[string]map[string]bool{"shop": {"cart-live": true, "cart-own": true}},
		Workloads: []scheduler.Workload{{Registration: "shop", Name: "cart", Object: digest.FromString("cart")}},
	}
	ct := scheduler.ClusterTypeResult{Name: "drone"}
	add := func(target, text string, at scheduler.Place, id string) {
		at.Path, at.ID = target, id
		name := "cart-" + target
		r.Workloads[0].Targets = append(r.Workloads[0].Targets, scheduler.WorkloadTarget{Name: target, FullName: name})
		ct.Assignments = append(ct.Assignments, scheduler.Assignment{
			Name: name, ClusterType: "drone", Registration: "shop", Workload: "cart", Target: target, Adapter: "directory", Version: version, Origin: at,
			Files: []scheduler.File{{Path: "reconciler.yaml", Data: []byte("text: " + text + "\n")}},
		})
	}
	add("live", version, shop, "folder "+version)
	if environment == "prod" {
		r.Rings = []string{"canary", "stable"}
		add("own", own, scheduler.Place{Repo: ownRepo, Ref: "main", Commit: own}, "folder "+own)
	}
	r.ClusterTypes = []scheduler.ClusterTypeResult{ct}
	return r
}

func (c *chain) publish(result *scheduler.Result, a *publisher.Admission) error {
	result.BaseCommit = c.base
	_, err := publisher.Publish(c.t.Context(), result, c.loc, []*keys.Key{c.key}, publisher.PublishOptions{Now: func() time.Time { return c.now }, OCI: c.opts, Admission: a})
	return err
}

// dev gives dev the head, and lets its cluster run it well if it is said so.
func (c *chain) dev(well bool) {
	c.t.Helper()
	c.now = c.now.Add(time.Hour)
	require.NoError(c.t, c.publish(rendered("dev", c.head, ""), nil))
	if well {
		c.now = c.now.Add(time.Minute)
		c.leave("site", c.runsWell())
	}
}

// runsWell is the report of dev's cluster that it runs well what dev has.
func (c *chain) runsWell() []byte {
	c.t.Helper()
	v, lines := c.read("dev", "latest")
	return c.report("site", bundle.Compliant, v.Descriptor.Digest, v.Descriptor.Digest, func(r *bundle.Report) {
		r.Cluster.Environment = "dev"
		for _, a := range lines {
			r.Items = append(r.Items, bundle.Item{Assignment: a.Name, Workload: a.Workload, Target: a.Target, State: bundle.Compliant, Since: c.now, Content: a.Content})
		}
	})
}

// entry decides what may enter prod.
func (c *chain) entry(unproved string) (*Entry, error) { return c.ask(c.facts(), unproved) }

// ask is entry by facts.
func (c *chain) ask(f *Facts, unproved string) (*Entry, error) {
	f.Clusters = func(context.Context, string) ([]scheduler.Cluster, error) { return c.clusters, nil }
	policy := promotion.Policy{Name: "chain", Environment: "prod", Chain: []string{"dev", "prod"}, Gate: promotion.Default(), Rings: []string{"canary", "stable"}}
	policy.Gate.Content.Held = true
	policy.Groups = []promotion.Group{{Name: "leads", Members: []promotion.Member{{Name: "anna", Key: c.anna.Public()}}}}
	if c.policy != nil {
		c.policy(&policy)
	}
	f.Reports = c.carried
	return f.Entry(c.t.Context(), ContentAsk{Policy: policy, BaseCommit: c.base, Workspaces: map[string]string{"shop": "team"}, Unproved: unproved})
}

// prod publishes prod as automation does; with a reason, as a person does who lets in what is not proved.
func (c *chain) prod(unproved string) error {
	for range releases.MaxRaces {
		e, err := c.entry(unproved)
		if err == nil {
			err = e.Refused()
		}
		if err != nil {
			return err
		}
		at := func(repo, head string) string {
			if read := e.Commit("shop", repo, "main"); read != "" {
				return read
			}
			return head
		}
		err = c.publish(rendered("prod", at(shopRepo, c.head), at(ownRepo, c.own)), e.Admission())
		if !errors.Is(err, publisher.ErrDecideAgain) {
			return err
		}
	}
	return publisher.ErrDecideAgain
}

// read returns a release of the cluster type in an environment, with its lines.
func (c *chain) read(environment, ref string) (*bundle.Verified, []bundle.Assignment) {
	c.t.Helper()
	at, err := published.Open(c.loc, c.opts, c.facts().Signers)
	require.NoError(c.t, err)
	typ, err := at.Type(bundle.Stream{Platform: "coffee", Environment: environment, ClusterType: "drone"})
	require.NoError(c.t, err)
	v, _, err := typ.Read(c.t.Context(), ref)
	require.NoError(c.t, err, ref)
	lines, err := typ.Assignments(c.t.Context(), v)
	require.NoError(c.t, err, ref)
	return v, lines
}

// versions returns the versions of the team that any release of prod has, sorted. Each record has to name releases that are there.
func (c *chain) versions() (all []string) {
	c.t.Helper()
	at, err := published.Open(c.loc, c.opts, c.facts().Signers)
	require.NoError(c.t, err)
	typ, err := at.Type(bundle.Stream{Platform: "coffee", Environment: "prod", ClusterType: "drone"})
	require.NoError(c.t, err)
	tags, err := typ.Tags(c.t.Context())
	require.NoError(c.t, err)
	refs := tags.Releases()
	for tag := range tags.Moving {
		refs = append(refs, tag)
	}
	for _, ref := range refs {
		_, lines := c.read("prod", ref)
		for _, a := range lines {
			if a.Target == "live" {
				all = append(all, a.Version)
			}
		}
	}
	e, err := at.Environment("prod")
	require.NoError(c.t, err)
	records, err := e.Tags(c.t.Context())
	require.NoError(c.t, err)
	for _, tag := range records.Releases() {
		v, _, err := e.Read(c.t.Context(), tag)
		require.NoError(c.t, err, tag)
		for _, d := range v.Record.ReleasesOf("drone") {
			c.read("prod", d.String())
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// has returns the version of the team and that of prod's own folder that the first ring has, and the reason for which it came without a proof:
// by the release of the ring, which has to be what the ledger says.
func (c *chain) has() (version, own, unproved string) {
	c.t.Helper()
	_, lines := c.read("prod", bundle.MovingTag("canary"))
	at, err := published.Open(c.loc, c.opts, c.facts().Signers)
	require.NoError(c.t, err)
	e, err := at.Environment("prod")
	require.NoError(c.t, err)
	v, _, err := e.Read(c.t.Context(), bundle.LatestTag)
	require.NoError(c.t, err)
	l, err := e.Ledger(c.t.Context(), v)
	require.NoError(c.t, err)
	r, stay := l.Find(cartKey).In("canary")
	for _, t := range r.Targets {
		id := strings.TrimPrefix(t.ID, "folder ")
		if t.Name == "own" {
			own = id
		} else {
			version = id
		}
	}
	for _, a := range lines {
		require.Equal(c.t, version, a.Version)
	}
	return version, own, stay.Unproved
}

// ready is a chain in which prod has v1, dev has proved v2 since, and prod's own folder has something new.
func ready(t *testing.T) *chain {
	c := newChain(t)
	c.dev(true)
	require.NoError(t, c.prod(""))
	c.head, c.own = "v2", "own2"
	c.dev(true)
	c.head = "v3" // in git alone
	return c
}

// A publisher of prod is killed at each write, and automation goes on, before or after dev takes what nobody has proved. No release of prod
// ever has that, and no record names a release that is not there.
func TestWhoeverIsKilledWhilePublishingLetsNothingUnprovedIn(t *testing.T) {
	t.Parallel()
	for _, meanwhile := range []bool{false, true} {
		for k, ended := 0, false; !ended; k += sweeptest.Every(2) {
			at := fmt.Sprintf("killed before write %d, dev goes on first: %v", k, meanwhile)
			c := ready(t)
			c.now, c.line.left = c.now.Add(time.Minute), k
			err := c.prod("")
			if ended = c.line.left >= 0; ended {
				require.NoError(t, err)
			} else {
				require.ErrorIs(t, err, errDead, at)
			}
			c.line.left = immortal
			require.Subset(t, []string{"v1", "v2"}, c.versions(), at)
			if meanwhile {
				c.dev(false) // v3
			}
			c.now = c.now.Add(time.Minute)
			require.NoError(t, c.prod(""), at)
			require.Subset(t, []string{"v1", "v2"}, c.versions(), at)
			version, own, unproved := c.has()
			require.Equal(t, []string{"own2", ""}, []string{own, unproved}, at)
			if !meanwhile { // else only who wrote a record has seen the proof of v2
				require.Equal(t, "v2", version, at)
			}
			require.Less(t, k, 200)
		}
	}
}

// A person who lets in what is not proved is killed. Whatever became of it, the record says so of what the first ring has then.
func TestWhoeverIsKilledWithAnOverrideLeavesARecordThatSaysSo(t *testing.T) {
	t.Parallel()
	for k, ended := 0, false; !ended; k += sweeptest.Every(2) {
		c := ready(t)
		c.dev(false)
		c.now, c.line.left = c.now.Add(time.Minute), k
		err := c.prod("ticket 71")
		if ended = c.line.left >= 0; ended {
			require.NoError(t, err)
		}
		c.line.left = immortal
		c.now = c.now.Add(time.Minute)
		require.NoError(t, c.prod(""))
		version, _, unproved := c.has()
		if version == "v3" {
			require.Equal(t, "ticket 71", unproved, "killed before write %d", k)
		} else {
			require.Equal(t, []string{"v1", ""}, []string{version, unproved}, "killed before write %d", k)
		}
		if ended {
			require.Equal(t, "v3", version)
		}
		c.versions()
		require.Less(t, k, 200)
	}
}

// What is proved is rejected while prod is rendered: nothing of it is pushed, and the next answer lets it wait.
func TestWhatIsRejectedWhileProdIsRenderedDoesNotCome(t *testing.T) {
	t.Parallel()
	c := ready(t)
	e, err := c.entry("")
	require.NoError(t, err)
	c.dev(false) // brings another one, and takes nothing back
	stands, err := e.Stands(t.Context())
	require.NoError(t, err)
	require.True(t, stands)
	before, err := c.facts().Said(t.Context(), "prod")
	require.NoError(t, err)
	again, err := c.facts().Said(t.Context(), "prod")
	require.NoError(t, err)
	require.Equal(t, before, again)

	signer, err := signature.LoadED25519Signer(c.anna)
	require.NoError(t, err)
	_, err = decisions.Write(t.Context(), c.loc, c.opts, bundle.Decision{
		Action: bundle.Reject, Platform: "coffee", Environment: "prod", From: "dev", By: "anna", Reason: "orders fail",
		Workload: content.Subject{Key: cartKey, Revision: e.Decision.Take(cartKey).Proof.Revision}.Decides(),
	}, signer, c.now)
	require.NoError(t, err)
	after, err := c.facts().Said(t.Context(), "prod")
	require.NoError(t, err)
	require.NotEqual(t, before, after, "somebody has decided about content")
	result := rendered("prod", "v2", "own2")
	require.ErrorIs(t, c.publish(result, e.Admission()), publisher.ErrDecideAgain)
	require.Equal(t, []string{"v1"}, c.versions())

	require.NoError(t, c.prod(""))
	version, own, _ := c.has()
	require.Equal(t, []string{"v1", "own2"}, []string{version, own})
	e, err = c.entry("")
	require.NoError(t, err)
	require.Len(t, e.Awaiting(), 1)
	require.Contains(t, e.Awaiting()[0].Reason, "cart v3 waits for dev: ")
}

// What people decided about workloads on a page of the hub is brought to the registry as far as it matters, where those see it who ask no hub.
func TestADecisionAboutAWorkloadThatAHubHasComesToTheRegistry(t *testing.T) {
	t.Parallel()
	c := ready(t)
	e, err := c.entry("")
	require.NoError(t, err)
	signer, err := signature.LoadED25519Signer(c.anna)
	require.NoError(t, err)
	var atHub []decisions.Found
	for _, revision := range []digest.Digest{e.Decision.Take(cartKey).Proof.Revision, digest.FromString("of last year")} {
		envelope, err := bundle.SealDecision(bundle.Decision{
			Schema: bundle.DecisionSchema, Action: bundle.Reject, Platform: "coffee", Environment: "prod", From: "dev", By: "anna", Reason: "orders fail", IssuedAt: c.now,
			Workload: content.Subject{Key: cartKey, Revision: revision}.Decides(),
		}, signer)
		require.NoError(t, err)
		atHub = append(atHub, decisions.Found{Envelope: envelope, Source: "the hub"})
	}
	for _, carry := range []bool{false, true} {
		f := c.facts()
		f.Carry = carry
		before, err := f.Said(t.Context(), "prod")
		require.NoError(t, err)
		f.Decisions = append(f.Decisions, func(context.Context, string) ([]decisions.Found, error) { return atHub, nil })
		after, err := f.Said(t.Context(), "prod")
		require.NoError(t, err)
		require.NotEqual(t, before, after, "those at the hub count")
		e, err = c.ask(f, "")
		require.NoError(t, err)
		require.Contains(t, e.Decision.Take(cartKey).Waits, "rejected by anna (orders fail)", "by who asks the hub")
		there, err := decisions.ReadAll(t.Context(), c.loc, c.opts, "prod", nil)
		require.NoError(t, err)
		e, err = c.entry("")
		require.NoError(t, err)
		if !carry {
			require.Empty(t, there)
			require.Empty(t, e.Decision.Take(cartKey).Waits)
			continue
		}
		require.Len(t, there, 1)
		require.Equal(t, atHub[0].Envelope, there[0].Envelope)
		require.Contains(t, e.Decision.Take(cartKey).Waits, "rejected by anna (orders fail)", "by who asks no hub")
	}
	require.Empty(t, c.warnings)
}

func TestAProofThatIsTooOldSaysItsAge(t *testing.T) {
	t.Parallel()
	c := ready(t)
	c.dev(false)
	c.now = c.now.Add(7 * 24 * time.Hour)
	e, err := c.entry("")
	require.NoError(t, err)
	require.Contains(t, e.Decision.Take(cartKey).Waits, "0 of 1 clusters, a cluster reported 7d1h ago, which counts for 24h")
}

func TestWhoHasToOverrideFirst(t *testing.T) {
	t.Parallel()
	takes := []content.Take{
		{Key: cartKey, Waits: "cart waits", Newer: []content.Newer{{}}},
		{Key: ledger.Key{Workload: "menu"}, Waits: "menu waits: nobody below has it"},
		{Key: ledger.Key{Workload: "till"}, Newer: []content.Newer{{}}},
	}
	group := promotion.Approvals{Required: 1, Group: "leads"}
	for name, c := range map[string]struct {
		unproved string
		group    promotion.Approvals
		only     []string
		want     []content.Take
	}{
		"nobody asks":                         {"", group, nil, nil},
		"the policy has no such group":        {"ticket 71", promotion.Approvals{}, nil, nil},
		"all of which something newer waits":  {"ticket 71", group, nil, takes[:1]},
		"one that is named, also by its name": {"ticket 71", group, []string{"cart"}, takes[:1]},
		"one of which there is nothing newer": {"ticket 71", group, []string{"menu"}, takes[1:2]},
		"one that does not wait":              {"ticket 71", group, []string{"till"}, nil},
		"one of another registration":         {"ticket 71", group, []string{"bakery/cart"}, nil},
	} {
		e := &Entry{Decision: &content.Decision{Takes: takes}, ask: ContentAsk{Unproved: c.unproved, Only: c.only, Policy: promotion.Policy{Gate: promotion.Gate{Override: c.group}}}}
		require.Equal(t, c.want, e.NotOverridden(), name)
	}
}
