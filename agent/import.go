package agent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"time"

	"go.etcd.io/bbolt"

	"github.com/wherry-dev/wherry/agent/intake"
	"github.com/wherry-dev/wherry/agent/state"
	sitemedium "github.com/wherry-dev/wherry/airgap/medium"
	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/oci/archive"
)

// ImportRequest names a site package, and what a person allows with it.
type ImportRequest struct {
	// Paths are those of one package: its file, or its parts in any order; or a folder with packages; or "-" alone for Stdin.
	Paths []string `json:"paths"`
	// Each has the paths of several packages, of each as Paths has them of one, which are taken together in place of Paths. So an
	// agent with mounts of its own does not take another folder of that name.
	Each [][]string `json:"each,omitempty"`
	// Stdin is the package itself, read once from front to back; nil is the process's standard input.
	Stdin io.Reader `json:"-"`
	// Opened are the packages themselves if this process has opened them before; nil opens Paths. The caller closes them.
	Opened []sitemedium.Package `json:"-"`
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

// ImportResult is the outcome of the pass after an import, with that of each stream of the package. The verdict is that of
// the agent's own stream; if the package has none of it, it is bad only if nothing of the package was of use.
type ImportResult struct {
	Result
	// Streams are sorted by environment and cluster type, and of several packages the newest first. There is none if no package could
	// be read.
	Streams []intake.Stream `json:"streams"`
	// Damaged is true if the package is cut short, or has other bytes than were written, and Parts names the files of a package in
	// parts that are.
	Damaged bool   `json:"damaged,omitempty"`
	Parts   string `json:"parts,omitempty"`
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
		if err := canOpen(slices.Concat(append(request.Each, request.Paths)...)); err != nil {
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

var errEmpty = errors.New("the folder is empty")

// canOpen returns an error that wraps ErrUnreadable if a path is not there, or not for this process, or is an empty folder.
func canOpen(paths []string) error {
	for _, path := range paths {
		info, err := os.Stat(path)
		if err == nil && (info.IsDir() || info.Mode().IsRegular()) {
			var f *os.File
			if f, err = os.Open(path); err == nil {
				if _, end := f.ReadDir(1); info.IsDir() && errors.Is(end, io.EOF) { // such as a mount point whose medium this process does not see
					err = &fs.PathError{Op: "open", Path: path, Err: errEmpty}
				}
				err = errors.Join(err, f.Close())
			}
		}
		if errors.Is(err, fs.ErrPermission) || errors.Is(err, fs.ErrNotExist) || errors.Is(err, errEmpty) {
			return fmt.Errorf("%w: %w", ErrUnreadable, err)
		}
	}
	return nil
}

// importSite is Import. What is copied ends with asked, the pass with ctx. Last means that the process ends after it.
func (a *Agent) importSite(ctx, asked context.Context, request ImportRequest, last bool) ImportResult {
	request.AllowExpired = bundle.OneLine(request.AllowExpired)
	taken, err := a.takeSite(asked, request)
	out := idle
	if len(taken.offers) == 0 && taken.changed {
		taken.offers = []intake.Result{{}}
	}
	for _, offer := range taken.offers {
		out = a.makePass(ctx, scope{
			from: offer.Releases, documents: offer.Trust, allowExpired: request.AllowExpired, wait: request.Wait,
			ask: true, media: true, all: true, force: true, last: last,
		})
	}
	a.noteOlderMedium(taken.streams)
	out = a.weigh(out, taken.streams, importOutcome(asked, err))
	spoiled := errors.Is(err, archive.ErrDamaged) || slices.ContainsFunc(taken.streams, damaged)
	result := ImportResult{Result: a.result(out), Streams: taken.streams, Damaged: spoiled}
	if parts := (*archive.DamagedError)(nil); errors.As(err, &parts) {
		result.Damaged, result.Parts = true, parts.Error()
	}
	return result
}

// importOutcome is that of an error that has ended the reading of a package.
func importOutcome(ctx context.Context, err error) outcome {
	switch {
	case err == nil:
		return done
	case ctx.Err() != nil:
		return outcome{Verdict: Interrupted, Err: context.Cause(ctx)}
	}
	return outcome{Verdict: Broken, Err: err}
}

// takeSite stores what a medium has for this agent.
func (a *Agent) takeSite(ctx context.Context, request ImportRequest) (siteTaken, error) {
	if err := a.relearn(ctx); err != nil {
		return siteTaken{}, err
	}
	if request.Opened != nil {
		return a.takePackages(ctx, request.Opened, request)
	}
	in := request.Stdin
	if in == nil {
		in = os.Stdin
	}
	var packages []sitemedium.Package
	defer func() {
		for _, p := range packages {
			_ = p.Close() // it was only read
		}
	}()
	sources := request.Each
	if len(sources) == 0 {
		sources = [][]string{request.Paths}
	}
	for _, paths := range sources {
		opened, skipped, err := sitemedium.OpenEach(sitemedium.OS{}, in, paths...)
		for _, s := range skipped {
			a.opts.Log.Warn("a file on the medium is not used", "file", s.Name, "kind", s.Kind, "err", s.Err)
		}
		if err != nil {
			return siteTaken{}, err
		}
		packages = append(packages, opened...)
	}
	return a.takePackages(ctx, packages, request)
}

// sameMedium is the time in which an older release that comes again is the same event.
const sameMedium = time.Hour

// noteOlderMedium records and reports an older release of the own stream, which changes no state.
func (a *Agent) noteOlderMedium(streams []intake.Stream) {
	i := slices.IndexFunc(streams, func(s intake.Stream) bool { return s.Own && s.Outcome == intake.Older })
	if i < 0 {
		return
	}
	next := bundle.OlderMedium{Digest: streams[i].Digest, At: state.Stamp(a.opts.Now())}
	noted := false
	err := a.state.db.UpdateIf(func(tx *bbolt.Tx) (bool, error) {
		old, err := state.Load[*bundle.OlderMedium](tx, state.Meta, keyOlderMedium)
		if err != nil || old != nil && old.Digest == next.Digest && next.At.Sub(old.At).Abs() < sameMedium {
			return false, err
		}
		noted = true
		return true, state.Save(tx, state.Meta, keyOlderMedium, next)
	})
	if err == nil && noted {
		a.busy.Lock()
		defer a.busy.Unlock()
		err = a.report(a.opts.Now())
	}
	if err != nil {
		a.opts.Log.Warn("an older release on a medium is not recorded", "release", streams[i].Release, "err", err)
	}
}

func damaged(s intake.Stream) bool { return s.Reason == bundle.DigestMismatch }

// maybeDamaged reports whether a part of another package may be why a stream was not taken.
func maybeDamaged(s intake.Stream) bool {
	return damaged(s) || s.Reason == bundle.BadContent || s.Reason == intake.ReasonIncomplete
}

// weigh returns the outcome of an import: that of the pass, unless something of it has kept the pass from judging the
// release for this agent. Streams are corrected by what the pass has said of the own one. An older release on a medium is not bad.
func (a *Agent) weigh(pass outcome, streams []intake.Stream, reading outcome) outcome {
	if pass.Verdict == Interrupted || reading.Verdict != Done && (pass.Verdict == Done || pass.Verdict == Idle) {
		if pass.Verdict != Interrupted {
			pass.Verdict, pass.Err = reading.Verdict, reading.Err
		}
		return pass
	}
	good, goodOwn, judged := false, false, false
	var bad *intake.Stream
	for i := range streams {
		s := &streams[i]
		if s.Own && s.Outcome.Good() && !judged { // the newest
			if judged = true; pass.Verdict == Refused {
				a.refuseOwn(s, pass)
			}
		}
		good, goodOwn = good || s.Outcome.Good(), goodOwn || s.Own && s.Outcome.Good()
		if !s.Outcome.Good() && s.Outcome != intake.Older && (bad == nil || s.Own && !bad.Own) {
			bad = s
		}
	}
	if bad != nil && (bad.Own && !goodOwn || !good) && (pass.Verdict == Done || pass.Verdict == Idle) {
		pass.Verdict, pass.Err = Refused, &bundle.Refusal{Reason: bad.Reason, Message: bundle.Clip(bad.Name() + ": " + bad.Message)}
	}
	return pass
}

// refuseOwn gives the own stream the result of the pass, which has refused its release by what is in its tree.
func (a *Agent) refuseOwn(s *intake.Stream, pass outcome) {
	var refusal *bundle.Refusal
	if !errors.As(pass.Err, &refusal) {
		return
	}
	s.Outcome, s.Reason, s.Message = intake.Refused, refusal.Reason, refusal.Message
	if err := a.intake.Refuse(s.Digest); err != nil {
		a.opts.Log.Warn("what has arrived of a refused release stays on the disk", "err", err)
	}
}
