package agent

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2/errdef"

	"github.com/wherry-dev/wherry/agent/intake"
	"github.com/wherry-dev/wherry/airgap"
	"github.com/wherry-dev/wherry/bundle"
)

// ImportRequest names a site package, and what a person allows with it.
type ImportRequest struct {
	// Paths are those of one package: its file, its parts in any order, or a folder.
	Paths []string `json:"paths"`
	// AllowExpired is why releases of the package may be taken although they have expired; empty takes none of them.
	AllowExpired string `json:"allowExpired,omitempty"`
	// Wait is how long to go on observing while something is progressing.
	Wait time.Duration `json:"wait,omitempty"`
}

// ImportResult is the outcome of the pass after an import, with that of each stream of the package.
type ImportResult struct {
	Result
	// Streams are sorted by environment and cluster type. There is none if the package could not be read.
	Streams []intake.Stream `json:"streams"`
}

// Import takes in a site package: it verifies its releases, stores those that this agent is to have, and then judges and
// applies the release for this agent as if a registry had offered it. It waits as Once does.
func (a *Agent) Import(ctx context.Context, request ImportRequest) ImportResult {
	return a.importSite(ctx, request, true)
}

// importSite is Import. Last means that the process ends after it.
func (a *Agent) importSite(ctx context.Context, request ImportRequest, last bool) ImportResult {
	s := scope{wait: request.Wait, allowExpired: bundle.Clip(strings.Join(strings.Fields(request.AllowExpired), " ")), last: last}
	if len(request.Paths) != 1 {
		return ImportResult{Result: a.result(outcome{Verdict: Broken, Err: errors.New("name one file")})}
	}
	return ImportResult{Result: a.importFile(ctx, request.Paths[0], s)}
}

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
