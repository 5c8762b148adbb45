package agent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
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
	// Paths are those of one package: its file, its parts in any order, or a folder; or "-" alone for Stdin.
	Paths []string `json:"paths"`
	// Stdin is the package itself, read once from front to back.
	Stdin io.Reader `json:"-"`
	// AllowExpired is why releases of the package may be taken although they have expired; empty takes none of them.
	AllowExpired string `json:"allowExpired,omitempty"`
	// Wait is how long to go on observing while something is progressing.
	Wait time.Duration `json:"wait,omitempty"`
	// Progress is called now and then with the bytes of the package that were read, and their number in all; zero while it
	// is not known. Nil is nobody.
	Progress func(done, total int64) `json:"-"`
}

// ImportProgress says how far the import is that runs. The zero value is that of none.
type ImportProgress struct {
	Done  int64 `json:"done"` // bytes of the package
	Total int64 `json:"total"`
}

// ErrUnreadable means that the running agent cannot open a medium that is named to it, such as one that its user may not
// read, or in a folder that its service has for itself.
var ErrUnreadable = errors.New("the running agent cannot open the medium")

// ImportResult is the outcome of the pass after an import, with that of each stream of the package.
type ImportResult struct {
	Result
	// Streams are sorted by environment and cluster type. There is none if the package could not be read.
	Streams []intake.Stream `json:"streams"`
}

// Import takes in a site package: it verifies its releases, stores those that this agent is to have, and then judges and
// applies the release for this agent as if a registry had offered it. It waits as Once does.
func (a *Agent) Import(ctx context.Context, request ImportRequest) ImportResult {
	return a.importSite(ctx, ctx, request, true)
}

// importProgress is that of the import that runs.
func (a *Agent) importProgress() ImportProgress {
	if p := a.importing.Load(); p != nil {
		return *p
	}
	return ImportProgress{}
}

// importFor is Import in a running agent, for somebody who has gone when asked ends. What is being copied ends with asked,
// and the next import goes on; a pass that has begun goes on by itself.
func (a *Agent) importFor(ctx, asked context.Context, request ImportRequest) (ImportResult, error) {
	if request.Stdin == nil {
		if err := canOpen(request.Paths); err != nil {
			return ImportResult{}, err
		}
	}
	asked, cancel := context.WithCancel(asked)
	defer cancel()
	defer context.AfterFunc(ctx, cancel)()
	request.Progress = func(done, total int64) { a.importing.Store(&ImportProgress{done, total}) }
	defer a.importing.Store(nil)
	return a.importSite(ctx, asked, request, false), nil
}

// canOpen returns an error that wraps ErrUnreadable if a path is not there, or not for this process.
func canOpen(paths []string) error {
	for _, path := range paths {
		info, err := os.Stat(path)
		if err == nil && (info.IsDir() || info.Mode().IsRegular()) {
			var f *os.File
			if f, err = os.Open(path); err == nil {
				err = f.Close()
			}
		}
		if errors.Is(err, fs.ErrPermission) || errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("%w: %w", ErrUnreadable, err)
		}
	}
	return nil
}

// importSite is Import. What is copied ends with asked, the pass with ctx. Last means that the process ends after it.
func (a *Agent) importSite(ctx, asked context.Context, request ImportRequest, last bool) ImportResult {
	s := scope{wait: request.Wait, allowExpired: bundle.Clip(strings.Join(strings.Fields(request.AllowExpired), " ")), last: last}
	if len(request.Paths) != 1 {
		return ImportResult{Result: a.result(outcome{Verdict: Broken, Err: errors.New("name one file")})}
	}
	if asked.Err() != nil {
		return ImportResult{Result: a.result(outcome{Verdict: Interrupted, Err: context.Cause(asked)})}
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
