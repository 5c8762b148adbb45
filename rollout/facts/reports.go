package facts

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sync/errgroup"
	"oras.land/oras-go/v2/errdef"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/oci"
	"github.com/wherry-dev/wherry/published"
	"github.com/wherry-dev/wherry/publisher/roster"
	"github.com/wherry-dev/wherry/scheduler"
)

// reports are the reports of the clusters of a roster that their keys have signed.
type reports struct {
	clusters []scheduler.Cluster
	// byUID has the reports of each cluster that has some, in the order of bundle.ReportAgent.
	byUID map[string][]bundle.Report
}

// newest returns the newest report of a cluster; the zero Report if there is none.
func (r *reports) newest(uid string) bundle.Report {
	if all := r.byUID[uid]; len(all) > 0 {
		return all[len(all)-1]
	}
	return bundle.Report{}
}

// reports returns what the clusters of a roster have reported through the registry, and the envelopes of Facts.Reports. Of each cluster the newest artifact is read that has a report of its key, one tags listing and one artifact a cluster, and
// the listing alone if the artifact is in a [Memory]; a cluster whose newest artifacts are all somebody else's has no report. The error is a *roster.Error if the roster contradicts itself.
func (p *place) reports(ctx context.Context, clusters []scheduler.Cluster) (*reports, error) {
	if clusters == nil {
		clusters = []scheduler.Cluster{} // nil would believe everybody
	}
	// Each cluster is reviewed by itself, beside the others; this finds two with one uid, and keys that cannot be read.
	if _, err := roster.NewReview(clusters); err != nil {
		return nil, err
	}
	given := map[string][][]byte{}
	for _, e := range p.facts.Reports {
		claim, err := bundle.PeekReport(e)
		if err != nil {
			p.facts.warn("what is given has something that is not a report: %v", err)
			continue
		}
		given[claim.Cluster.UID] = append(given[claim.Cluster.UID], e)
	}
	found, refused := make([][]bundle.Report, len(clusters)), make([][]roster.Refused, len(clusters))
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(parallel)
	for i, c := range clusters {
		if c.UID == "" || c.PublicKey == "" || !c.Reporting {
			continue
		}
		g.Go(func() error {
			review, err := roster.NewReview(clusters[i : i+1])
			if err != nil {
				return err
			}
			for _, e := range given[c.UID] {
				review.Add(e)
			}
			if err := p.collect(ctx, c.UID, review); err != nil {
				return fmt.Errorf("reports of cluster %s: %w", c.Name, err)
			}
			found[i], refused[i] = review.ReportsOf(c.UID), review.Refused()
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	p.warnOfRefused(clusters, refused)
	all := &reports{clusters: clusters, byUID: map[string][]bundle.Report{}}
	for i, c := range clusters {
		if len(found[i]) > 0 {
			all.byUID[c.UID] = found[i]
		}
	}
	return all, nil
}

// maxWarnings bounds the clusters of which a warning tells.
const maxWarnings = 5

// warnOfRefused tells of reports that do not count, by cluster.
func (p *place) warnOfRefused(clusters []scheduler.Cluster, refused [][]roster.Refused) {
	n := 0
	for i, all := range refused {
		if len(all) == 0 {
			continue
		}
		if n++; n <= maxWarnings {
			p.facts.warn("%d reports of cluster %s do not count: %s", all[0].Reports, clusters[i].Name, all[0].Why)
		}
	}
	if n > maxWarnings {
		p.facts.warn("reports of %d more clusters do not count", n-maxWarnings)
	}
}

// collect adds the envelopes of the newest artifact of a cluster that has a report of its key.
func (p *place) collect(ctx context.Context, uid string, review *roster.Review) error {
	repo, err := p.Store.Repository(bundle.ReportRepository(uid))
	if err != nil {
		return err
	}
	tags, err := repo.Tags(ctx)
	if err != nil {
		return err
	}
	counts := func(envelopes [][]byte) bool {
		before := len(review.ReportsOf(uid))
		for _, e := range envelopes {
			review.Add(e)
		}
		return len(review.ReportsOf(uid)) > before
	}
	for _, tag := range newestReports(tags) {
		if counts(p.facts.Memory.reportsOf(uid, tag)) {
			return nil
		}
		envelopes, err := fetch(ctx, repo, tag)
		if err != nil {
			return err
		}
		if counts(envelopes) { // others are not kept: the cluster may yet put its own under this tag
			p.facts.Memory.keepReports(uid, artifact{tag, envelopes})
			return nil
		}
	}
	return nil
}

// newestReports returns the newest tags of reports, newest first.
func newestReports(tags []string) []string {
	type report struct {
		tag              string
		incarnation, seq int64
	}
	var all []report
	for _, tag := range tags {
		if incarnation, seq, _, ok := bundle.ParseReportTag(tag); ok {
			all = append(all, report{tag, incarnation, seq})
		}
	}
	slices.SortFunc(all, func(a, b report) int {
		return cmp.Or(cmp.Compare(b.incarnation, a.incarnation), cmp.Compare(b.seq, a.seq), cmp.Compare(a.tag, b.tag))
	})
	var newest []string
	for _, a := range all[:min(len(all), maxRejected)] {
		newest = append(newest, a.tag)
	}
	return newest
}

// fetch returns the envelopes behind a tag; none if the agent has deleted it meanwhile, or if it holds no reports.
func fetch(ctx context.Context, repo oci.Target, tag string) ([][]byte, error) {
	manifest, err := bundle.ResolveManifest(ctx, repo, tag)
	if errors.Is(err, errdef.ErrNotFound) {
		return nil, nil
	} else if err != nil {
		return nil, err
	}
	envelopes, err := bundle.FetchReports(ctx, repo, manifest)
	return envelopes, published.IgnoreRefused(err)
}
