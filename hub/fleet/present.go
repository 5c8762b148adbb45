package fleet

import (
	"cmp"
	"encoding/hex"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/opencontainers/go-digest"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/hub/store"
)

// cluster is a registered cluster as of its newest report. It is never changed: a report makes a new one. Texts are handles
// of the tables, times are store.Millis.
type cluster struct {
	// What most questions look at is in one line of the processor's cache.
	deployments         []deployment // by assignment
	lastSeen, expected  int64        // expected is the time between two reports, in milliseconds
	environment, typ    uint32
	state, observed     uint32 // observed is a release
	reported            bool
	quiet               bool // it is registered as sending no reports
	unread              bool // it has a message or keys that only the database has; see fillClusters
	platform, ring      uint32
	labels              []label // by key
	uid, name           string
	reason, message     uint32
	keys                []byte // the ids of those in force, 32 bytes each
	offered             uint32
	since, added        int64
	change              store.Position
	newest              store.Order
	occurred, received  int64
	report              [32]byte // the digest of the newest report
	agentVersion, via   uint32
	mismatch, sharedHow uint32
	conflicts           int
	shared              int64
}

type label struct{ key, value uint32 }

// deployment is an assignment on a cluster, in 48 bytes without a pointer: a fleet has a million.
type deployment struct {
	since                    int64
	kind                     uint32
	state, reason, message   uint32
	version, config, content uint32
	revision                 uint32
	failures                 uint32 // or more
	floating                 bool
	unread                   bool // it has a message that only the database has; see fillDeployments
}

// pack returns s in the form of the tables.
func (t *tables) pack(s store.ClusterState) *cluster {
	named := store.ClusterStatus{Identity: s.Identity}
	reported := s.Newest != store.Order{} || !s.LastSeen.IsZero()
	if reported && s.Claims.UID != "" {
		named.Compare(s.Claims)
	}
	text := t.texts.put
	c := &cluster{
		uid: s.UID, name: s.Name, platform: text(named.Platform), environment: text(s.Environment), typ: text(s.Type), ring: text(named.Ring),
		expected: cmp.Or(s.ExpectedInterval, time.Duration(s.ExpectedSeconds)*time.Second, store.DefaultExpectedInterval).Milliseconds(),
		added:    store.Millis(s.AddedAt), change: s.Change,
		newest: s.Newest, reported: reported, state: text(string(s.State)), reason: text(s.Reason), since: store.Millis(s.Since),
		offered: t.release(s.Offered), observed: t.release(s.Observed), agentVersion: text(s.AgentVersion), mismatch: text(named.Mismatch),
		conflicts: s.Conflicts, sharedHow: text(s.SharedHow), lastSeen: store.Millis(s.LastSeen),
		occurred: store.Millis(s.Proof.OccurredAt), received: store.Millis(s.Proof.ReceivedAt), via: text(string(s.Proof.Via)),
	}
	c.quiet = s.Reporting == store.NotReporting
	c.message, c.unread = t.message(s.Message)
	for _, id := range s.KeyIDs {
		key, err := hex.DecodeString(id)
		c.keys, c.unread = append(c.keys, key...), c.unread || err != nil || len(key) != keyIDSize
	}
	if s.SharedSince != nil {
		c.shared = store.Millis(*s.SharedSince)
	}
	if s.Proof.Report.Validate() == nil && s.Proof.Report.Algorithm() == digest.SHA256 {
		_, _ = hex.Decode(c.report[:], []byte(s.Proof.Report.Encoded()))
	}
	if len(s.Labels) > 0 {
		c.labels = make([]label, 0, len(s.Labels))
		for _, k := range slices.Sorted(maps.Keys(s.Labels)) {
			c.labels = append(c.labels, label{text(k), text(s.Labels[k])})
		}
	}
	if len(s.Deployments) == 0 {
		return c
	}
	c.deployments = make([]deployment, len(s.Deployments))
	for i := range s.Deployments {
		d := &s.Deployments[i]
		c.deployments[i] = deployment{
			kind:  t.kinds.put(kind{text(d.Assignment), text(d.Workspace), text(d.Application), text(d.Workload), text(d.Target), text(d.Adapter)}),
			state: text(string(d.State)), reason: text(d.Reason), since: store.Millis(d.Since), failures: uint32(min(max(d.Failures, 0), math.MaxUint32)), //nolint:gosec // it fits
			version: text(d.Version), config: text(string(d.ConfigDigest)), content: text(string(d.Content)), revision: text(d.Revision),
			floating: d.Floating,
		}
		c.deployments[i].message, c.deployments[i].unread = t.message(d.Message)
	}
	byAssignment := func(a, b deployment) int {
		return strings.Compare(t.texts.values[t.kinds.values[a.kind].assignment], t.texts.values[t.kinds.values[b.kind].assignment])
	}
	if !slices.IsSortedFunc(c.deployments, byAssignment) {
		slices.SortFunc(c.deployments, byAssignment)
	}
	return c
}

// keyIDSize is that of bundle.KeyID, in bytes.
const keyIDSize = 32

// keyIDs returns the ids of the keys in force.
func (c *cluster) keyIDs() (ids []string) {
	for id := range slices.Chunk(c.keys, keyIDSize) {
		ids = append(ids, hex.EncodeToString(id))
	}
	return ids
}

// release returns the handle of a release; zero for none.
func (t *tables) release(r *bundle.ReportRelease) uint32 {
	if r == nil {
		return 0
	}
	v := *r
	v.IssuedAt = v.IssuedAt.UTC() // equal times are equal values then
	return t.releases.put(v)
}

// proof returns the digest of the newest report.
func (c *cluster) proof() digest.Digest {
	if c.report == [32]byte{} {
		return ""
	}
	return digest.NewDigestFromBytes(digest.SHA256, c.report[:])
}

// byName orders clusters.
func byName(a, b *cluster) int {
	return cmp.Or(strings.Compare(a.name, b.name), strings.Compare(a.uid, b.uid))
}
