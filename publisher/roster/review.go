package roster

import (
	"cmp"
	"crypto"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/opencontainers/go-digest"
	"github.com/sigstore/sigstore/pkg/signature"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/scheduler"
)

// Reported is a cluster, as of the newest of its reports that a Review was given.
type Reported struct {
	UID         string `json:"uid"`
	Name        string `json:"name"`
	Environment string `json:"environment,omitempty"`
	ClusterType string `json:"type"`
	// State is empty for a cluster of the roster without a report.
	State   bundle.State `json:"state,omitempty"`
	Reason  string       `json:"reason,omitempty"`
	Message string       `json:"message,omitempty"`
	// Since is the time of the first of the newest reports that all have this state, and LastSeen that of the newest one, by
	// the agent's clock.
	Since    time.Time `json:"since,omitzero"`
	LastSeen time.Time `json:"lastSeen,omitzero"`
	// Observed is the release that runs, and Desired the newest that was offered.
	Observed *bundle.ReportRelease `json:"observed,omitempty"`
	Desired  *bundle.ReportRelease `json:"desired,omitempty"`
	// Items counts the assignments by their state.
	Items map[bundle.State]int `json:"items,omitempty"`
	// Reports counts those that were given, each once.
	Reports int `json:"reports"`

	ids []digest.Digest // of the verified reports, by their order
}

// Refused are reports of one cluster that no key of the roster vouches for.
type Refused struct {
	Cluster string `json:"cluster,omitempty"` // the uid that they claim
	Reports int    `json:"reports"`
	Why     string `json:"why"`
}

// Review reads reports of many clusters, in any order and however often, for platforms without a hub. The result depends on
// the set of reports alone. Begin with NewReview and Add.
type Review struct {
	roster   map[string]scheduler.Cluster // by uid
	keys     map[string][]crypto.PublicKey
	verifies bool

	reports map[string]map[digest.Digest]bundle.Report // by uid
	refused map[Refused]map[digest.Digest]bool         // without a count
}

// NewReview returns a review that believes the keys of clusters. Nil clusters believe every report, and none may be
// acknowledged then.
func NewReview(clusters []scheduler.Cluster) (*Review, error) {
	r := &Review{
		roster: map[string]scheduler.Cluster{}, keys: map[string][]crypto.PublicKey{}, verifies: clusters != nil,
		reports: map[string]map[digest.Digest]bundle.Report{}, refused: map[Refused]map[digest.Digest]bool{},
	}
	for _, c := range clusters {
		if c.UID == "" {
			continue
		}
		if _, twice := r.roster[c.UID]; twice {
			return nil, conflict("two Clusters cannot have one uid", "%s: the uid %q is that of another Cluster, too", c.Position, c.UID)
		}
		r.roster[c.UID] = c
		if c.PublicKey == "" {
			continue
		}
		keys, err := bundle.ParsePublicKeys([]byte(c.PublicKey))
		if err != nil {
			return nil, wrong(`"wherry lint" says what is wrong with it`, fmt.Errorf("%s: public key of cluster %s: %w", c.Position, c.Name, err))
		}
		r.keys[c.UID] = keys
	}
	return r, nil
}

// Add takes the envelope of a report.
func (r *Review) Add(envelope []byte) {
	claim, err := bundle.PeekReport(envelope)
	if err != nil {
		r.refuse("", digest.FromBytes(envelope), "not a report")
		return
	}
	report, why := r.open(claim, envelope)
	if why != "" {
		r.refuse(claim.Cluster.UID, digest.FromBytes(envelope), why)
		return
	}
	uid := report.Cluster.UID
	if r.reports[uid] == nil {
		r.reports[uid] = map[digest.Digest]bundle.Report{}
	}
	r.reports[uid][claim.ID] = report
}

// open verifies a report if there is a roster. It returns the reason why the report is not believed.
func (r *Review) open(claim bundle.ReportClaim, envelope []byte) (report bundle.Report, why string) {
	uid := claim.Cluster.UID
	body := claim.Body
	var err error
	if r.verifies {
		_, known := r.roster[uid]
		keys := r.keys[uid]
		switch {
		case !known:
			return report, "no Cluster of the roster has this uid"
		case len(keys) == 0:
			return report, "its Cluster has no public key"
		}
		if body, _, err = bundle.OpenEnvelope(bundle.PayloadTypeReport, envelope, keys...); errors.Is(err, bundle.ErrUntrusted) {
			return report, "the key of its Cluster has not signed it"
		}
	}
	if err == nil {
		report, err = bundle.ParseReport(body)
	}
	if err != nil || !bundle.IsClusterUID(uid) {
		return report, "not a report"
	}
	return report, ""
}

func (r *Review) refuse(uid string, id digest.Digest, why string) {
	if !bundle.IsClusterUID(uid) {
		uid = ""
	}
	k := Refused{Cluster: uid, Why: why}
	if r.refused[k] == nil {
		r.refused[k] = map[digest.Digest]bool{}
	}
	r.refused[k][id] = true
}

// ReportsOf returns the reports of a cluster that are believed, oldest first.
func (r *Review) ReportsOf(uid string) []bundle.Report {
	all := slices.Collect(maps.Values(r.reports[uid]))
	slices.SortFunc(all, func(a, b bundle.Report) int {
		return cmp.Or(cmp.Compare(a.Agent.Incarnation, b.Agent.Incarnation), cmp.Compare(a.Agent.Seq, b.Agent.Seq), a.OccurredAt.Compare(b.OccurredAt))
	})
	return all
}

// Refused returns the reports that were not believed, by cluster and reason.
func (r *Review) Refused() []Refused {
	all := []Refused{}
	for k, ids := range r.refused {
		k.Reports = len(ids)
		all = append(all, k)
	}
	slices.SortFunc(all, func(a, b Refused) int { return cmp.Or(cmp.Compare(a.Cluster, b.Cluster), cmp.Compare(a.Why, b.Why)) })
	return all
}

// Clusters returns all clusters with reports, and those of the roster that should have some, the worst first.
func (r *Review) Clusters() []Reported {
	all := []Reported{}
	for uid, reports := range r.reports {
		all = append(all, r.sum(uid, reports))
	}
	for uid, c := range r.roster {
		if _, reported := r.reports[uid]; !reported && c.Reporting {
			all = append(all, Reported{UID: uid, Name: c.Name, ClusterType: c.ClusterType})
		}
	}
	slices.SortFunc(all, func(a, b Reported) int {
		return cmp.Or(cmp.Compare(rank(a.State), rank(b.State)), a.Since.Compare(b.Since), cmp.Compare(a.Name, b.Name), cmp.Compare(a.UID, b.UID))
	})
	return all
}

// worst lists the states that need a person, before all others; compliant clusters are the last.
var worst = [...]bundle.State{bundle.Failed, bundle.Rejected, bundle.Drifted, ""}

func rank(s bundle.State) int {
	if i := slices.Index(worst[:], s); i >= 0 {
		return i
	}
	if s == bundle.Compliant {
		return len(worst) + 1
	}
	return len(worst)
}

// sum returns a cluster as of its newest report.
func (r *Review) sum(uid string, reports map[digest.Digest]bundle.Report) Reported {
	c := Reported{UID: uid, Reports: len(reports), Items: map[bundle.State]int{}}
	for id := range reports {
		c.ids = append(c.ids, id)
	}
	slices.SortFunc(c.ids, func(a, b digest.Digest) int {
		x, y := reports[a].Agent, reports[b].Agent
		return cmp.Or(cmp.Compare(x.Incarnation, y.Incarnation), cmp.Compare(x.Seq, y.Seq), cmp.Compare(a, b))
	})
	newest := reports[c.ids[len(c.ids)-1]]
	c.Name, c.ClusterType, c.Environment = newest.Cluster.Name, newest.Cluster.Type, newest.Cluster.Environment
	if known, ok := r.roster[uid]; ok {
		c.Name, c.ClusterType = known.Name, known.ClusterType
	}
	c.State, c.Reason, c.Message = newest.State, newest.Reason, bundle.Clip(newest.Message)
	c.Observed, c.Desired, c.LastSeen = newest.Observed, newest.Desired, newest.OccurredAt
	for _, item := range newest.Items {
		c.Items[item.State]++
	}
	for _, id := range slices.Backward(c.ids) {
		if reports[id].State != c.State {
			break
		}
		c.Since = reports[id].OccurredAt
	}
	return c
}

// maxAckReports bounds the reports that one acknowledgement names, so that its envelope stays below
// bundle.MaxReportBytes.
const maxAckReports = 5000

// Acknowledge returns acknowledgements of all reports that the roster's keys have signed, signed by each of keys, and how many
// reports these are. Agents that pin the public half of one of them delete what is named. Reports that nobody has verified are an error.
func (r *Review) Acknowledge(now time.Time, keys ...signature.Signer) (envelopes [][]byte, reports int, err error) {
	if !r.verifies {
		return nil, 0, errors.New("reports that nobody has verified cannot be acknowledged")
	}
	all := r.Clusters()
	slices.SortFunc(all, func(a, b Reported) int { return cmp.Compare(a.UID, b.UID) })
	for _, c := range all {
		for ids := range slices.Chunk(c.ids, maxAckReports) {
			body, err := json.Marshal(bundle.Ack{Schema: bundle.ReportSchema, Cluster: c.UID, IssuedAt: now.UTC(), Reports: ids})
			if err != nil {
				return nil, 0, err
			}
			envelope, err := bundle.SealEnvelopeBy(bundle.PayloadTypeAck, body, keys...)
			if err != nil {
				return nil, 0, err
			}
			envelopes, reports = append(envelopes, envelope), reports+len(ids)
		}
	}
	return envelopes, reports, nil
}
