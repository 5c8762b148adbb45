package web

import (
	"cmp"
	"errors"
	"net/http"
	"slices"

	"github.com/opencontainers/go-digest"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/hub/fleet"
	"github.com/wherry-dev/wherry/hub/store"
)

// releasePage is the data of assets/release.html.
type releasePage struct {
	*frame
	Release fleet.ReleaseDetail
	// Earlier are the releases of its stream before it, newest first, and Diff is what differs from the one of them that was chosen; nil if
	// there is none, or if the hub does not have both.
	Earlier   []fleet.Release
	Diff      *fleet.ReleaseDiff
	Decisions []decided
}

// shownEarlier bounds the releases to choose from, comparedEarlier those that are looked at for one with other content.
const (
	shownEarlier    = 50
	comparedEarlier = 10
)

func releasePath(d digest.Digest) string { return releasesPath + "/" + string(d) }

func showRelease(r *http.Request, f *frame, from Answers) (any, int, error) {
	f.template = "release.html"
	f.only(fleet.Query{AsOf: f.Query.AsOf})
	ctx, name, at := r.Context(), r.PathValue("release"), fleet.Query{AsOf: f.Query.AsOf}
	found, err := from.Release(ctx, name, at)
	if err != nil {
		return nil, 0, err
	}
	page := &releasePage{frame: f, Release: found}
	f.Title = bundle.ReleaseName(found.Number, found.Digest)
	if found.Environment != "" {
		f.Title = found.Environment + "/" + found.Type + " " + f.Title
		f.Crumbs = []link{{Name: "Environments", Link: f.At(environmentsPath)}, {Name: found.Environment, Link: f.At(environmentPath(found.Environment), "platform", found.Platform)}}
	}
	f.JSON = f.At("/v1" + releasePath(found.Digest))
	if at.AsOf.IsZero() {
		f.Command = "wherry describe release " + quoted(string(found.Digest))
	}
	stream := fleet.Query{AsOf: at.AsOf, Platform: found.Platform, Environments: []string{found.Environment}, Type: found.Type, Limit: fleet.MaxRows}
	if found.Known {
		all, err := from.Releases(ctx, stream)
		if err != nil {
			return nil, 0, err
		}
		i := slices.IndexFunc(all.Releases, func(r fleet.Release) bool { return r.Digest == found.Digest })
		page.Earlier = all.Releases[i+1 : min(len(all.Releases), i+1+shownEarlier)]
	}
	others := []string{r.URL.Query().Get("against")}
	if others[0] == "" { // the newest with other content: many are the same, signed anew
		others = nil
		for _, e := range page.Earlier[:min(len(page.Earlier), comparedEarlier)] {
			others = append(others, string(e.Digest))
		}
	}
	for _, other := range others {
		before, err := from.Release(ctx, other, at)
		if err != nil {
			return nil, 0, err
		}
		diff, err := fleet.DiffReleases(before, found)
		if err != nil && !errors.Is(err, store.ErrUnknownRelease) {
			return nil, 0, err
		}
		if err == nil && (page.Diff == nil || len(diff.Assignments)+len(diff.Artifacts) > 0) {
			page.Diff = &diff
		}
		if page.Diff != nil && len(page.Diff.Assignments)+len(page.Diff.Artifacts) > 0 {
			break
		}
	}
	if page.Diff != nil {
		before := page.Diff.Before.Digest
		f.JSON = "/v1" + releasePath(before) + "/compare/" + string(found.Digest)
		if f.Command != "" {
			f.Command += " --against " + quoted(string(before))
		}
	}
	decisions, err := from.Decided(ctx, found.Platform, found.Environment)
	if errors.Is(err, store.ErrUnavailable) {
		return page, http.StatusOK, nil
	} else if err != nil {
		return nil, 0, err
	}
	for _, d := range decisions {
		if d.BaseCommit != "" && d.BaseCommit == found.BaseCommit && !d.IssuedAt.After(cmp.Or(at.AsOf, f.Now)) {
			page.Decisions = append(page.Decisions, decided{Decided: d, In: found.Environment})
		}
	}
	page.Decisions = page.Decisions[:min(len(page.Decisions), shownDecisions)]
	return page, http.StatusOK, nil
}

// showReview shows what an environment would get, and what whoever asks may do about it.
func (s *site) showReview(r *http.Request, f *frame, from Answers) (any, int, error) {
	d, err := s.decisionOf(r, from, bundle.Approve, r.URL.Query())
	if err != nil {
		return nil, 0, err
	}
	page := &confirmPage{frame: f, Lead: "This comes next, if the gate passes it."}
	page.about(d)
	f.template, f.Title = "confirm.html", "Review "+place(d.Decision)
	chosen := []string{"platform", d.Platform, "from", d.From, "environment", d.Environment, "ring", d.Ring}
	if d.Ring != "" {
		chosen[2], chosen[3] = "ring", d.Ring
	}
	f.JSON, f.Command = f.At("/v1/candidate", chosen...), "wherry gate list -e "+quoted(d.Environment)
	for _, a := range f.mayDecide(d.Environment) {
		page.Actions = append(page.Actions, link{Name: decisionWords[a].button, Link: f.At(environmentPath(d.Environment)+"/"+string(a), chosen[:4]...)})
	}
	return page, http.StatusOK, nil
}
