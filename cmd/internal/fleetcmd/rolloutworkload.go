package fleetcmd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/cmd/internal/failure"
	"github.com/wherry-dev/wherry/hub/fleet"
	"github.com/wherry-dev/wherry/hub/store"
)

// maxVersions bounds the versions in a hint.
const maxVersions = 8

// workloadRollout is how far the clusters are with a version of a workload. Its JSON form is an interface.
type workloadRollout struct {
	Workload string `json:"workload"`
	Version  string `json:"version"`
	// CountedBy is who counted the clusters, such as "the hub at https://hub.example.com".
	CountedBy string `json:"countedBy,omitempty"`
	fleet.Rollout
}

// The verdicts, the worst first; those of a rollout of a commit.
const (
	verdictFailed      = "failed"
	verdictUnknown     = "unknown"
	verdictWaiting     = "waiting"
	verdictProgressing = "progressing"
	verdictCompliant   = "compliant"
)

// reasonQuarantined is the reason of an agent that has given up the newest release that it was offered.
const reasonQuarantined = "Quarantined"

var verdicts = []string{verdictFailed, verdictUnknown, verdictWaiting, verdictProgressing, verdictCompliant}

// ofWorkload counts the clusters that are meant to run a workload by how far they are with a version of it. What they are meant
// to run is in the releases that the hub knows. Without an environment, those count in which a release has the version.
func (w *watching) ofWorkload(ctx context.Context, a fleet.Answers, q fleet.Query) (fleet.Rollout, error) {
	r := fleet.Rollout{Environment: w.environment, Followed: true, Published: true, Open: []fleet.OpenCluster{}, Types: []fleet.TypeRollout{}}
	limit := q.Limit
	q.Limit, q.Workspace, q.Workload, q.Version, q.Environments = 0, "", "", "", w.Environments // whatever they run now
	clusters, err := a.Clusters(ctx, q)
	if err != nil {
		return r, err
	}
	r.AsOf, r.ReadAt = clusters.AsOf, clusters.ReadAt
	meant, err := w.meantVersions(ctx, a, clusters.Clusters)
	if err != nil {
		return r, err
	}
	of := q
	of.Workspace, of.Workload = w.Workspace, w.Workload
	running, err := a.Deployments(ctx, of)
	if unknown := (*fleet.UnknownNameError)(nil); err != nil && !errors.As(err, &unknown) { // what no cluster runs yet is unknown
		return r, err
	}
	deployments := map[string][]fleet.Deployment{}
	for _, d := range running.Deployments {
		deployments[d.ClusterUID] = append(deployments[d.ClusterUID], d)
	}
	counted := map[string]bool{w.environment: true} // environments
	for _, c := range clusters.Clusters {
		if slices.Contains(slices.Collect(maps.Values(meant.of(c))), w.Version) {
			counted[c.Environment] = true
		}
	}
	types := map[string]*fleet.TypeRollout{}
	for _, c := range clusters.Clusters {
		versions := meant.of(c)
		switch {
		case len(versions) == 0 || !counted[c.Environment] && w.environment == "":
			continue
		case c.Reporting == store.NotReporting:
			r.NotReporting++
			continue
		}
		row := types[c.Type]
		if row == nil {
			row = &fleet.TypeRollout{Type: c.Type, Release: bundle.ReleaseName(c.Meant.Release.Number, c.Meant.Release.Digest)}
			types[c.Type] = row
		}
		verdict, reason, message := w.verdictOf(c, versions, deployments[c.UID])
		w.count(&r, row, verdict)
		if verdict == verdictCompliant {
			r.OldestProofSeconds = max(r.OldestProofSeconds, c.ProofAgeSeconds)
			continue
		}
		if reason == "" && message == "" { // what keeps all of the cluster back, or another workload
			reason, message = c.Reason, c.Message
		}
		open := fleet.OpenCluster{
			UID: c.UID, Cluster: c.Name, Type: c.Type, Ring: c.Ring, State: c.State, Was: c.Was, Verdict: verdict,
			Reason: reason, Message: message, LastSeen: c.LastSeen, Via: c.Proof.Via,
		}
		if c.Observed != nil {
			open.Release = bundle.ReleaseName(c.Observed.Number, c.Observed.Digest)
		}
		r.Open = append(r.Open, open)
	}
	for _, name := range slices.Sorted(maps.Keys(types)) {
		r.Types = append(r.Types, *types[name])
	}
	slices.SortStableFunc(r.Open, func(a, b fleet.OpenCluster) int {
		return cmp.Or(cmp.Compare(slices.Index(verdicts, a.Verdict), slices.Index(verdicts, b.Verdict)), cmp.Compare(a.Cluster, b.Cluster))
	})
	if limit > 0 && len(r.Open) > limit {
		r.Open = r.Open[:limit]
	}
	r.Done, r.Failed = r.Clusters > 0 && r.Compliant == r.Clusters, r.FailedCount > 0
	if w.hint = ""; r.Clusters == 0 {
		w.explainNone(&r, clusters.Clusters, meant)
	}
	return r, nil
}

// explainNone says why no cluster counts, with a hint of what to do.
func (w *watching) explainNone(r *fleet.Rollout, clusters []fleet.Cluster, meant meantVersions) {
	var versions []string
	for _, c := range clusters {
		versions = slices.AppendSeq(versions, maps.Values(meant.of(c)))
	}
	slices.Sort(versions)
	versions = slices.Compact(versions)
	follows := slices.ContainsFunc(clusters, func(c fleet.Cluster) bool { return c.Meant != nil && c.Meant.Release != nil })
	switch {
	case r.NotReporting > 0:
		r.Why = "all clusters that are meant to run it are registered as sending no reports"
	case len(clusters) == 0:
		r.Published, r.Why = false, "no cluster is registered"
	case !follows:
		r.Published, r.Followed, r.Why = false, false, "nothing is published for any of the clusters"
		w.hint = "check --to and --environment: no record of the environment is there that --release-key or --trust vouches for"
		if !w.instead {
			r.Why, w.hint = "the hub does not know what is published for any of its clusters", followHint
		}
	case len(versions) == 0:
		r.Published, r.Why = false, joined(" of workspace ", "no release has workload "+w.Workload, w.Workspace)+" yet"
		w.hint = failure.Near(w.Workload, slices.Sorted(maps.Keys(w.workloads)))
		if in := w.workloads[w.Workload]; in != nil {
			w.hint = failure.Near(w.Workspace, slices.Sorted(maps.Keys(in)))
		}
	default:
		r.Published, r.Why = false, fmt.Sprintf("no release has version %s of workload %s yet", w.Version, w.Workload)
		if versions = slices.DeleteFunc(versions, func(v string) bool { return v == "" }); len(versions) == 0 {
			w.hint = "its releases name no version: see wherry.dev/pin, or deliver it embedded"
		} else {
			w.hint = "releases have version " + strings.Join(versions[max(0, len(versions)-maxVersions):], ", ")
		}
	}
}

// meantVersions maps releases to the versions of a workload's assignments in them, by assignment.
type meantVersions map[string]map[string]string

func (m meantVersions) of(c fleet.Cluster) map[string]string {
	if c.Meant == nil || c.Meant.Release == nil {
		return nil
	}
	return m[c.Meant.Release.Digest.String()]
}

// meantVersions reads each release that one of the clusters is meant to run.
func (w *watching) meantVersions(ctx context.Context, a fleet.Answers, clusters []fleet.Cluster) (meantVersions, error) {
	all := meantVersions{}
	for _, c := range clusters {
		if c.Meant == nil || c.Meant.Release == nil || all[c.Meant.Release.Digest.String()] != nil {
			continue
		}
		name := c.Meant.Release.Digest.String()
		known := w.releases[name]
		if known == nil { // a release never changes
			detail, err := a.Release(ctx, name, fleet.Query{})
			if err != nil {
				return nil, err
			}
			known = map[string]string{}
			for _, of := range detail.Assignments {
				if w.workloads == nil {
					w.workloads = map[string]map[string]bool{}
				}
				if w.workloads[of.Workload] == nil {
					w.workloads[of.Workload] = map[string]bool{}
				}
				w.workloads[of.Workload][of.Workspace] = true
				if of.Workload == w.Workload && (w.Workspace == "" || of.Workspace == w.Workspace) {
					known[of.Name] = of.Version
				}
			}
			if w.releases == nil {
				w.releases = meantVersions{}
			}
			w.releases[name] = known
		}
		all[name] = known
	}
	return all, nil
}

// verdictOf returns how far a cluster is that is meant to have these assignments: the worst of them, with the reason.
func (w *watching) verdictOf(c fleet.Cluster, meant map[string]string, has []fleet.Deployment) (verdict, reason, message string) {
	if c.State == store.Stale || c.State == store.Unreported {
		return verdictUnknown, "", ""
	}
	verdict = verdictCompliant
	worse := func(v, why, said string) {
		if slices.Index(verdicts, v) < slices.Index(verdicts, verdict) {
			verdict, reason, message = v, why, said
		}
	}
	for _, name := range slices.Sorted(maps.Keys(meant)) {
		if meant[name] != w.Version {
			worse(verdictWaiting, "its release has version "+cmp.Or(meant[name], "none")+" of "+name, "")
			continue
		}
		i := slices.IndexFunc(has, func(d fleet.Deployment) bool { return d.Assignment == name })
		switch {
		case c.State == bundle.Rejected:
			worse(verdictFailed, c.Reason, c.Message)
		case (i < 0 || has[i].Version != w.Version) && c.Reason == reasonQuarantined && c.Desired != nil && c.Desired.Digest == c.Meant.Release.Digest:
			worse(verdictFailed, c.Reason, c.Message)
		case i < 0 || has[i].Version != w.Version:
			worse(verdictProgressing, "", "")
		case has[i].State == bundle.Compliant:
		case has[i].State == bundle.Failed || has[i].State == bundle.Rejected || has[i].State == bundle.Drifted:
			worse(verdictFailed, cmp.Or(has[i].Reason, string(has[i].State)), has[i].Message)
		case has[i].State == bundle.Suspended:
			worse(verdictWaiting, has[i].Reason, has[i].Message)
		default:
			worse(verdictProgressing, has[i].Reason, has[i].Message)
		}
	}
	return verdict, reason, message
}

func (w *watching) count(r *fleet.Rollout, row *fleet.TypeRollout, verdict string) {
	r.Clusters++
	row.Clusters++
	in := map[string][2]*int{
		verdictFailed: {&r.FailedCount, &row.Failed}, verdictUnknown: {&r.Unknown, &row.Unknown}, verdictWaiting: {&r.Waiting, &row.Waiting},
		verdictProgressing: {&r.Progressing, &row.Progressing}, verdictCompliant: {&r.Compliant, &row.Compliant},
	}[verdict]
	*in[0]++
	*in[1]++
}
