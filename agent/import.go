package agent

import (
	"context"
	"errors"
	"fmt"
	"time"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2/errdef"

	"github.com/wherry-dev/wherry/airgap"
	"github.com/wherry-dev/wherry/bundle"
)

// Import takes the bundle for this agent from the file at path, which airgap.Export has written, and
// judges and applies it as if a registry had offered it. It waits as Once does.
func (a *Agent) Import(ctx context.Context, path string, wait time.Duration) Result {
	return a.importFile(ctx, path, scope{wait: wait, last: true})
}

// importFile is Import in an agent that may go on, or not, as s says.
func (a *Agent) importFile(ctx context.Context, path string, s scope) Result {
	site, err := airgap.Open(path)
	if err != nil {
		return a.result(outcome{Verdict: Broken, Err: err})
	}
	defer site.Close()
	offer := a.offerOf(site)
	if offer == nil {
		return a.result(outcome{Verdict: Broken, Err: fmt.Errorf("%s: %w: it holds no bundle", path, airgap.ErrFormat)})
	}
	s.from, s.documents, s.ask, s.media, s.all, s.force = offer, site.Trust(), true, true, true, true
	return a.result(a.makePass(ctx, s))
}

// offerOf is the part of a site's file that is meant for this agent. Where there is none, it is the
// first other one: that is judged like any other offer, and refused for the true reason.
func (a *Agent) offerOf(site *airgap.Site) bundle.Source {
	var offer bundle.Source
	for _, s := range site.Bundles() {
		if own := s.Repository() == a.stream().Repository(); own || offer == nil {
			offer = siteOffer{site.Repository(s), bundle.MovingTag(a.cluster.Ring)}
			if own {
				break
			}
		}
	}
	return offer
}

// siteOffer answers with the latest where the ring has no tag of its own. Whether a release is for the
// ring is said in the release.
type siteOffer struct {
	bundle.Source
	ringTag string
}

func (o siteOffer) Resolve(ctx context.Context, reference string) (ocispec.Descriptor, error) {
	desc, err := o.Source.Resolve(ctx, reference)
	if reference == o.ringTag && errors.Is(err, errdef.ErrNotFound) {
		return o.Source.Resolve(ctx, bundle.LatestTag)
	}
	return desc, err
}
