package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path"
	"path/filepath"
	"slices"
	"strings"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/wherry-dev/wherry/agent/intake"
	"github.com/wherry-dev/wherry/agent/state"
	"github.com/wherry-dev/wherry/airgap"
	sitemedium "github.com/wherry-dev/wherry/airgap/medium"
	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/oci/archive"
)

// siteTaken is what came of the packages of one medium.
type siteTaken struct {
	streams []intake.Stream
	// offers are what passes are to judge, one after the other: releases that are not trusted, so that history and reports have
	// them, and at the end the one that is to run.
	offers  []intake.Result
	changed bool
}

// takenPackage is what came of one package.
type takenPackage struct {
	intake.Result
	sitemedium.Package
	err error
}

// takePackages takes in all packages of a medium. The newest is tried first, and an older one only for what is not good yet:
// the base of a newer one, a stream that no newer one has, or a release in place of a damaged one. So each byte is copied once,
// and a pass applies one release. The order is a guess by unsigned names; which release is newer is judged by its signature.
func (a *Agent) takePackages(ctx context.Context, packages []sitemedium.Package, request ImportRequest) (siteTaken, error) {
	own := a.stream().Repository()
	slices.SortStableFunc(packages, func(x, y sitemedium.Package) int { return placeOf(x, own).compare(placeOf(y, own)) })
	all := make([]takenPackage, len(packages))
	for i := range all {
		all[i].Package = packages[i]
	}
	from := len(all)
	for from > 0 && !a.complete(all[:from], all[from:]) {
		from--
		if all[from].take(ctx, a, request); all[from].ends(ctx) {
			break
		}
	}
	for i := from + 1; i < len(all) && !all[from].ends(ctx); i++ {
		if slices.ContainsFunc(all[i].Streams, func(s intake.Stream) bool { return s.Outcome == intake.LacksBase }) {
			all[i].again(ctx, a, request)
		}
	}
	several := len(all) > 1
	all = all[from:]
	var errs []error
	for _, p := range all {
		errs = append(errs, p.err)
	}
	return joinTaken(all, several), errors.Join(errs...)
}

// take takes in the package.
func (p *takenPackage) take(ctx context.Context, a *Agent, request ImportRequest) {
	p.Result, p.err = a.intake.Take(ctx, p.Head, intake.Asked{AllowExpired: request.AllowExpired, Progress: request.Progress})
	if p.err == nil && len(p.Streams) == 0 && p.Releases == nil {
		p.err = fmt.Errorf("%s: %w: it holds no bundle", p.Name(), airgap.ErrFormat)
	}
	if errors.Is(p.err, archive.ErrDamaged) {
		p.err = fmt.Errorf("%s: %w", p.Name(), p.err)
	}
	if p.err != nil && !errors.As(p.err, new(*state.LocalError)) || slices.ContainsFunc(p.Streams, maybeDamaged) {
		if parts := p.Damaged(ctx); parts != nil { // which says more than the digest of a blob
			p.err = errors.Join(p.err, parts)
		}
	}
}

// again takes in a package whose base has come since.
func (p *takenPackage) again(ctx context.Context, a *Agent, request ImportRequest) {
	changed := p.Changed
	if p.Head, p.err = p.Reader(); p.err == nil {
		p.take(ctx, a, request)
	}
	p.Changed = p.Changed || changed
}

// ends reports whether nothing else of the medium is taken: this machine has failed, or nobody wants it any more.
func (p *takenPackage) ends(ctx context.Context) bool {
	return ctx.Err() != nil || errors.As(p.err, new(*state.LocalError))
}

// complete reports whether older packages have nothing that newer ones have not given.
func (a *Agent) complete(older, newer []takenPackage) bool {
	if len(newer) == 0 {
		return false
	}
	good := map[string]place{}
	for _, p := range newer {
		named := namedReleases(p.Package)
		for _, s := range p.Streams {
			if s.Outcome.Good() {
				good[s.Name()] = named[bundlesPrefix+s.Name()]
			}
		}
	}
	for _, p := range older {
		for repository, o := range namedReleases(p.Package) {
			wanted := a.opts.Intake.Others || repository == a.stream().Repository()
			by, ok := good[strings.TrimPrefix(repository, bundlesPrefix)]
			if wanted && (!ok || o.unknown() || by.unknown()) {
				return false
			}
		}
	}
	return true
}

// bundlesPrefix begins the names of repositories with bundles; ENVIRONMENT/CLUSTER-TYPE follows.
const bundlesPrefix = "bundles/"

// place is where a package stands among others, by unsigned names.
type place struct {
	own             bool
	epoch, sequence int64
}

func (p place) unknown() bool { return p.sequence == 0 }

func (p place) compare(q place) int {
	if p.own != q.own {
		return cmp.Compare(b2i(p.own), b2i(q.own))
	}
	return cmp.Or(cmp.Compare(p.epoch, q.epoch), cmp.Compare(p.sequence, q.sequence))
}

// placeOf is the place of the package's release for the repository own, or else of its newest one.
func placeOf(p sitemedium.Package, own string) (newest place) {
	all := namedReleases(p)
	if o, ok := all[own]; ok {
		o.own = true
		return o
	}
	for _, o := range all {
		if o.compare(newest) > 0 {
			newest = o
		}
	}
	return newest
}

// namedReleases are the newest releases that a package names, by the repositories of their streams.
func namedReleases(p sitemedium.Package) map[string]place {
	all := map[string]place{}
	for _, d := range p.Head.Index().Manifests {
		repository, tag := path.Split(d.Annotations[ocispec.AnnotationRefName])
		if !strings.HasPrefix(repository, bundlesPrefix) {
			continue
		}
		var o place
		if n, _ := fmt.Sscanf(tag, "s%d-%d", &o.epoch, &o.sequence); n != 2 {
			o = place{}
		}
		repository = strings.TrimSuffix(repository, "/")
		if had, ok := all[repository]; !ok || o.compare(had) > 0 {
			all[repository] = o
		}
	}
	return all
}

// joinTaken returns what came of packages, the oldest first. Several means that the medium has more than one.
func joinTaken(all []takenPackage, several bool) (m siteTaken) {
	given := map[string]int{} // by the newest package
	for i, p := range all {
		for _, s := range p.Streams {
			if s.Outcome.Good() {
				given[s.Name()] = i
			}
		}
	}
	var judged, foreign *intake.Result
	var refused []intake.Result
	for i := len(all) - 1; i >= 0; i-- {
		p := all[i]
		m.changed = m.changed || p.Changed
		for _, s := range p.Streams {
			// What an older package has failed at is of no interest once a newer one has given it.
			if by, ok := given[s.Name()]; ok && by > i && s.Outcome != intake.Taken && s.Outcome != intake.Refused {
				continue
			}
			if several {
				s.Package = filepath.Base(p.Name())
			}
			m.streams = append(m.streams, s)
		}
		own := slices.IndexFunc(p.Streams, func(s intake.Stream) bool { return s.Own })
		switch {
		case p.Releases == nil:
		case own < 0:
			foreign = cmp.Or(foreign, &all[i].Result)
		case p.Streams[own].Outcome.Good():
			if judged == nil || p.Order.Compare(judged.Order) > 0 { // by their signatures
				judged = &all[i].Result
			}
		default:
			refused = append(refused, p.Result)
		}
	}
	switch {
	case judged != nil:
		// One that was verified would be accepted before its content is found to be damaged, and the older one would be refused.
		refused = slices.DeleteFunc(refused, func(r intake.Result) bool { return r.Order != (bundle.Order{}) })
		m.offers = append(refused, *judged)
	case len(refused) > 0:
		m.offers = refused[:1]
	case foreign != nil:
		m.offers = []intake.Result{*foreign}
	}
	slices.SortStableFunc(m.streams, func(x, y intake.Stream) int {
		if x.Own && y.Own && judged != nil { // first the one that is judged
			return cmp.Compare(b2i(y.Digest == judged.Order.Digest), b2i(x.Digest == judged.Order.Digest))
		}
		return strings.Compare(x.Name(), y.Name())
	})
	return m
}

func b2i(b bool) int {
	if b {
		return 1
	}
	return 0
}
