package fleet

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/opencontainers/go-digest"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/lineage"
	"github.com/wherry-dev/wherry/hub/store"
)

// Workloads answers how far clusters are with a version of a workload. It remembers the releases that it has read, which never change, so
// that it can be asked again at little cost. The zero value is ready to use.
type Workloads struct {
	releases map[digest.Digest][]bundle.Assignment
}

// WorkloadRollout is how far clusters are with a version of a workload.
type WorkloadRollout struct {
	Rollout
	// Versions are those of the workload in the releases that the clusters should run, sorted, and Workspaces the workspaces of all
	// workloads there, by the name of the workload.
	Versions   []string
	Workspaces map[string]map[string]bool

	versions map[digest.Digest]map[string]string // of the workload, by release and assignment
}

// severest are the verdicts on an assignment, the worst first.
var severest = []lineage.Verdict{lineage.Failed, lineage.Unknown, lineage.Waiting, lineage.Progressing, lineage.Compliant}

// Rollout counts the clusters that should run the workload of a query by how far they are with the version of the query. What they
// should run is in the releases that a knows. Without an environment, those count in which a release has the version.
func (w *Workloads) Rollout(ctx context.Context, a Answers, q Query) (WorkloadRollout, error) {
	r := WorkloadRollout{Rollout: Rollout{Environment: q.onlyEnvironment(), Followed: true, Published: true, Open: []OpenCluster{}, Types: []TypeRollout{}}}
	asked, limit := q, q.Limit
	q.Limit, q.Workspace, q.Workload, q.Version = 0, "", "", "" // whatever they run now
	clusters, err := a.Clusters(ctx, q)
	if err != nil {
		return r, err
	}
	r.AsOf, r.ReadAt = clusters.AsOf, clusters.ReadAt
	if err := w.read(ctx, a, clusters.Clusters, asked, &r); err != nil {
		return r, err
	}
	of := q
	of.Workspace, of.Workload = asked.Workspace, asked.Workload
	running, err := a.Deployments(ctx, of)
	if err != nil && !errors.As(err, new(*UnknownNameError)) { // what no cluster runs yet is unknown
		return r, err
	}
	c := workloadCount{asked: asked, out: &r, deployments: map[string][]Deployment{}, types: map[string]*TypeRollout{}}
	for _, d := range running.Deployments {
		c.deployments[d.ClusterUID] = append(c.deployments[d.ClusterUID], d)
	}
	counted := map[string]bool{} // environments
	for _, one := range clusters.Clusters {
		if r.Environment != "" || slices.Contains(slices.Collect(maps.Values(r.versionsFor(one))), asked.Version) {
			counted[one.Environment] = true
		}
	}
	for _, one := range clusters.Clusters {
		if counted[one.Environment] {
			c.add(one)
		}
	}
	r.count(c.all)
	for _, name := range slices.Sorted(maps.Keys(c.types)) {
		r.Types = append(r.Types, *c.types[name])
	}
	slices.SortStableFunc(r.Open, func(a, b OpenCluster) int {
		return cmp.Or(lineage.Verdict(a.Verdict).Compare(lineage.Verdict(b.Verdict)), cmp.Compare(a.Cluster, b.Cluster))
	})
	if limit > 0 && len(r.Open) > limit {
		r.Open = r.Open[:limit]
	}
	r.Done, r.Failed = r.Clusters > 0 && r.Compliant == r.Clusters, r.FailedCount > 0
	if r.Clusters == 0 {
		r.explainNone(len(clusters.Clusters), asked)
	}
	return r, nil
}

// read reads each release that one of the clusters should run.
func (w *Workloads) read(ctx context.Context, a Answers, clusters []Cluster, q Query, r *WorkloadRollout) error {
	if w.releases == nil {
		w.releases = map[digest.Digest][]bundle.Assignment{}
	}
	r.versions, r.Workspaces = map[digest.Digest]map[string]string{}, map[string]map[string]bool{}
	for _, c := range clusters {
		if c.Desired == nil || c.Desired.Release == nil || r.versions[c.Desired.Release.Digest] != nil {
			continue
		}
		d := c.Desired.Release.Digest
		assignments, known := w.releases[d]
		if !known {
			detail, err := a.Release(ctx, d.String(), Query{})
			if err != nil {
				return err
			}
			assignments, w.releases[d] = detail.Assignments, detail.Assignments
		}
		r.versions[d] = map[string]string{}
		for _, of := range assignments {
			if r.Workspaces[of.Workload] == nil {
				r.Workspaces[of.Workload] = map[string]bool{}
			}
			r.Workspaces[of.Workload][of.Workspace] = true
			if of.Workload == q.Workload && (q.Workspace == "" || of.Workspace == q.Workspace) {
				r.versions[d][of.Name] = of.Version
				r.Versions = append(r.Versions, of.Version)
			}
		}
	}
	slices.Sort(r.Versions)
	r.Versions = slices.Compact(r.Versions)
	return nil
}

// versionsFor returns the versions of the workload, by assignment, in the release that a cluster should run.
func (r *WorkloadRollout) versionsFor(c Cluster) map[string]string {
	if c.Desired == nil || c.Desired.Release == nil {
		return nil
	}
	return r.versions[c.Desired.Release.Digest]
}

// explainNone says why no cluster counts.
func (r *WorkloadRollout) explainNone(clusters int, q Query) {
	r.Published = r.NotReporting > 0
	switch {
	case r.NotReporting > 0:
		r.Why = "all clusters that should run it are registered as sending no reports"
	case clusters == 0:
		r.Why = "no cluster is registered"
	case len(r.versions) == 0:
		r.Followed, r.Why = false, "nothing is published for any of the clusters"
	case len(r.Versions) == 0:
		r.Why = "no release has workload " + q.Workload
		if q.Workspace != "" {
			r.Why += " of workspace " + q.Workspace
		}
		r.Why += " yet"
	default:
		r.Why = fmt.Sprintf("no release has version %s of workload %s yet", q.Version, q.Workload)
	}
}

// workloadCount counts the clusters of a rollout.
type workloadCount struct {
	asked       Query
	out         *WorkloadRollout
	all         RolloutCounts
	deployments map[string][]Deployment // by the uid of the cluster
	types       map[string]*TypeRollout
}

func (w *workloadCount) add(c Cluster) {
	versions := w.out.versionsFor(c)
	switch {
	case len(versions) == 0:
		return
	case c.Reporting == store.NotReporting:
		w.out.NotReporting++
		return
	}
	row := w.types[c.Type]
	if row == nil {
		row = &TypeRollout{Type: c.Type, Release: bundle.ReleaseName(c.Desired.Release.Number, c.Desired.Release.Digest)}
		w.types[c.Type] = row
	}
	verdict, reason, message := w.verdict(c, versions)
	row.add(verdict, 1)
	w.all.add(verdict, 1)
	if verdict == lineage.Compliant {
		w.out.OldestProofSeconds = max(w.out.OldestProofSeconds, c.ProofAgeSeconds)
		return
	}
	if reason == "" && message == "" { // what keeps all of the cluster back, or another workload
		reason, message = c.Reason, c.Message
	}
	open := OpenCluster{
		UID: c.UID, Cluster: c.Name, Type: c.Type, Ring: c.Ring, State: c.State, LastState: c.LastState, Verdict: string(verdict),
		Reason: reason, Message: message, LastSeen: c.LastSeen, Via: c.Proof.Via,
	}
	if c.Observed != nil {
		open.Release = bundle.ReleaseName(c.Observed.Number, c.Observed.Digest)
	}
	w.out.Open = append(w.out.Open, open)
}

// verdict returns how far a cluster is that should have versions of assignments: the worst of them, with the reason.
func (w *workloadCount) verdict(c Cluster, desired map[string]string) (verdict lineage.Verdict, reason, message string) {
	if c.State == store.Stale || c.State == store.Unreported {
		return lineage.Unknown, "", ""
	}
	verdict = lineage.Compliant
	worse := func(v lineage.Verdict, why, text string) {
		if slices.Index(severest, v) < slices.Index(severest, verdict) {
			verdict, reason, message = v, why, text
		}
	}
	has := w.deployments[c.UID]
	for _, name := range slices.Sorted(maps.Keys(desired)) {
		if desired[name] != w.asked.Version {
			worse(lineage.Waiting, "its release has version "+cmp.Or(desired[name], "none")+" of "+name, "")
			continue
		}
		i := slices.IndexFunc(has, func(d Deployment) bool { return d.Assignment == name })
		switch {
		case c.State == bundle.Rejected:
			worse(lineage.Failed, c.Reason, c.Message)
		case (i < 0 || has[i].Version != w.asked.Version) && c.Reason == reasonQuarantined && c.Offered != nil && c.Offered.Digest == c.Desired.Release.Digest:
			worse(lineage.Failed, c.Reason, c.Message)
		case i < 0 || has[i].Version != w.asked.Version:
			worse(lineage.Progressing, "", "")
		case has[i].State == bundle.Compliant:
		case has[i].State == bundle.Failed || has[i].State == bundle.Rejected || has[i].State == bundle.Drifted:
			worse(lineage.Failed, cmp.Or(has[i].Reason, string(has[i].State)), has[i].Message)
		case has[i].State == bundle.Suspended:
			worse(lineage.Waiting, has[i].Reason, has[i].Message)
		default:
			worse(lineage.Progressing, has[i].Reason, has[i].Message)
		}
	}
	return verdict, reason, message
}
