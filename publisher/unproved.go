package publisher

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"strings"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/published"
	"github.com/wherry-dev/wherry/publisher/diff"
	"github.com/wherry-dev/wherry/publisher/state"
)

// workload names a workload in all environments.
type workload struct{ workspace, name string }

// contents has, by workload, what its assignments run: versions, artifacts, and the places that embedded content came from.
type contents map[workload]map[string]bool

// add adds a tree.
func (c contents) add(t *published.Tree) {
	for _, a := range t.Assignments {
		w := workload{a.Workspace, a.Workload}
		if c[w] == nil {
			c[w] = map[string]bool{}
		}
		for _, one := range contentOf(t, a) {
			c[w][one] = true
		}
	}
}

// contentOf returns what an assignment runs, for people too. An artifact without a digest stands for what it follows.
func contentOf(t *published.Tree, a bundle.Assignment) (all []string) {
	for _, x := range t.ArtifactsOf(a.Name) {
		what := cmp.Or(x.Digest, x.Reference)
		all = append(all, strings.Join([]string{string(x.Type), x.Name, what}, " "))
	}
	for _, s := range t.SourcesOf(a.Name) {
		if what := cmp.Or(s.Revision, s.Version); what != "" {
			all = append(all, strings.Join([]string{s.Type, s.Name, s.Chart, what}, " "))
		}
	}
	if a.Version != "" {
		all = append(all, versionPrefix+a.Version)
	}
	return all
}

const versionPrefix = "version "

// unproved returns the workloads that plans bring to the environment and that PublishOptions.Below does not run with that content. What
// the environment runs already is not among them.
func (p *publication) unproved(ctx context.Context, plans []*plan) ([]diff.Unproved, error) {
	if p.opts.Below == "" || p.opts.Admission != nil {
		return nil, nil
	}
	news, has := contents{}, contents{}
	for _, pl := range plans {
		if !pl.wouldChange() || pl.tree == nil {
			continue
		}
		tree, err := published.ReadLayer(bytes.NewReader(pl.tree.Gzip), pl.tree.Content)
		if err != nil {
			return nil, err
		}
		news.add(tree)
		if err := tree.Close(); err != nil {
			return nil, err
		}
		for _, v := range pl.replaced() {
			tree, err := pl.openTree(ctx, v, p.opts.Cache)
			if err != nil && isLost(err) {
				continue
			}
			if err != nil {
				return nil, err
			}
			has.add(tree)
			if err := tree.Close(); err != nil {
				return nil, err
			}
		}
	}
	for w, all := range news {
		if known, is := has[w]; is && len(lacking(all, known)) == 0 {
			delete(news, w)
		}
	}
	if len(news) == 0 {
		return nil, nil
	}
	below, err := p.contentsOf(ctx, p.opts.Below)
	if err != nil && isLost(err) {
		p.Warn("what %s runs is not known: %v", p.opts.Below, err)
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var found []diff.Unproved
	for w, all := range news {
		missing := lacking(all, has[w], below[w])
		if below[w] != nil && len(missing) == 0 {
			continue
		}
		found = append(found, unprovedOf(w, all, missing, p.opts.Below))
	}
	slices.SortFunc(found, func(a, b diff.Unproved) int {
		return cmp.Or(cmp.Compare(a.Workload, b.Workload), cmp.Compare(a.Workspace, b.Workspace))
	})
	return found, nil
}

// isLost reports whether err is about content that is lost, or that is not trusted.
func isLost(err error) bool {
	return errors.As(err, new(*state.LostError)) || published.IgnoreRefused(err) == nil
}

// unprovedOf describes a workload that runs all of its contents, of which some are missing below.
func unprovedOf(w workload, all map[string]bool, missing []string, below string) diff.Unproved {
	one := diff.Unproved{Workspace: w.workspace, Workload: w.name, Below: below}
	isVersion := func(what string) bool { return strings.HasPrefix(what, versionPrefix) }
	told := slices.IndexFunc(missing, isVersion)
	switch {
	case told >= 0:
		one.Version = strings.TrimPrefix(missing[told], versionPrefix)
		return one
	case len(missing) > 0:
		one.Content = missing[0]
	}
	for _, what := range slices.Sorted(maps.Keys(all)) {
		if isVersion(what) {
			one.Version = strings.TrimPrefix(what, versionPrefix)
		}
	}
	return one
}

// lacking returns those of all that none of known has, sorted.
func lacking(all map[string]bool, known ...map[string]bool) (missing []string) {
	for what := range all {
		if !slices.ContainsFunc(known, func(k map[string]bool) bool { return k[what] }) {
			missing = append(missing, what)
		}
	}
	slices.Sort(missing)
	return missing
}

// contentsOf returns what the newest record of an environment of this platform names, in all of its rings.
func (p *publication) contentsOf(ctx context.Context, environment string) (contents, error) {
	at := state.New(p.Location, p.Store, p.Trust, p.IssuedAt, p.Platform, environment, p.warnings.add)
	record, err := at.Record(ctx)
	all := contents{}
	if err != nil || record.Verified == nil {
		return all, err
	}
	for _, name := range record.Verified.Record.Types() {
		for _, d := range record.Verified.Record.ReleasesOf(name) {
			v, err := at.ReleaseOf(ctx, name, d)
			if err != nil {
				return nil, err
			}
			t, err := at.Place.Type(v.Release.Stream())
			if err != nil {
				return nil, err
			}
			tree, err := t.Tree(ctx, v)
			if err != nil {
				return nil, err
			}
			all.add(tree)
			if err := tree.Close(); err != nil {
				return nil, err
			}
		}
	}
	return all, nil
}
