package carry

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	orascontent "oras.land/oras-go/v2/content"
	"oras.land/oras-go/v2/errdef"
	"oras.land/oras-go/v2/registry/remote/errcode"

	"github.com/wherry-dev/wherry/agent/retry"
	"github.com/wherry-dev/wherry/agent/state"
	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/graph"
	"github.com/wherry-dev/wherry/bundle/oci"
)

// job is a transfer in the background.
type job struct {
	cancel context.CancelFunc
	done   chan struct{}

	mu   sync.Mutex
	now  key   // the artifact that is being brought
	have int64 // of the blob that is arriving
	got  atomic.Int64
}

// stop ends a job, which may be nil, and waits for its end.
func (j *job) stop() {
	if j != nil {
		j.cancel()
		<-j.done
	}
}

// arrived is the number of bytes that have come since the job began; zero for no job.
func (j *job) arrived() int64 {
	if j == nil {
		return 0
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.got.Load() + j.have
}

// failure is the reason why an artifact could not be brought.
type failure struct {
	reason, message string
	count           int
	notBefore       time.Time
}

// retryTime is the default of Options.Retry.
func retryTime(failures int) time.Duration {
	return retry.Jitter(retry.Backoff(30*time.Second, time.Hour, failures-1))
}

// Forgive has artifacts that could not be brought asked for again by the next Begin.
func (c *Carrier) Forgive() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for k, f := range c.failures {
		f.notBefore = time.Time{}
		c.failures[k] = f
	}
}

// windowClosed says when the transfer window opens; it is empty while it is open.
func (c *Carrier) windowClosed() string {
	if c.opts.Window == nil {
		return ""
	}
	_, leave, err := c.opts.Window(context.Background())
	if err != nil {
		return err.Error()
	}
	_ = leave(nil)
	return ""
}

// Begin starts to bring what the last Look has found to be missing, and returns at once. A transfer that runs already goes
// on, unless its artifact is not wanted any more.
func (c *Carrier) Begin() {
	todo, running := c.todo()
	if running != nil {
		running.stop()
	}
	if len(todo) == 0 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.job != nil || c.closed {
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	j := &job{cancel: cancel, done: make(chan struct{})}
	c.job = j
	go func() {
		defer close(j.done)
		c.work(ctx, j, todo)
		cancel()
		c.mu.Lock()
		c.job, c.stale = nil, true
		c.mu.Unlock()
		c.opts.Wake()
	}()
}

// todo returns the artifacts to transfer, and the job to stop first. Both are nil while a job that still fits goes on.
func (c *Carrier) todo() (todo []Wanted, ends *job) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if j := c.job; j != nil {
		j.mu.Lock()
		defer j.mu.Unlock()
		if s := c.view.artifacts[j.now]; s != nil && s.fits {
			return nil, nil
		}
		ends = j
	}
	if c.view.closed != "" || c.closed {
		return nil, ends
	}
	now := c.opts.Now()
	for _, k := range c.view.order {
		if s := c.view.artifacts[k]; !s.whole && s.fits && !now.Before(s.last.notBefore) {
			todo = append(todo, s.Wanted)
		}
	}
	return todo, ends
}

// work brings one artifact after another.
func (c *Carrier) work(ctx context.Context, j *job, todo []Wanted) {
	if err := c.dropParts(ctx); err != nil && ctx.Err() == nil {
		c.opts.Log.Warn("parts of unfinished downloads stay on the disk", "err", err)
	}
	b := &bringing{Carrier: c, job: j, away: map[string]error{}}
	for _, w := range todo {
		j.mu.Lock()
		j.now = w.key()
		j.mu.Unlock()
		err := b.artifact(ctx, w)
		if ctx.Err() != nil || errors.Is(err, errNotNow) {
			return
		}
		c.brought(w, err)
	}
}

// dropParts deletes the unfinished downloads of blobs that are not missing.
func (c *Carrier) dropParts(ctx context.Context) error {
	c.mu.Lock()
	var keep []digest.Digest
	unknown := false
	for _, s := range c.view.artifacts {
		unknown = unknown || s.graph == nil
		for d := range s.lacks {
			keep = append(keep, d)
		}
	}
	c.mu.Unlock()
	if unknown { // a part may be of one whose manifests were lost
		return nil
	}
	return c.layout.DropParts(ctx, keep...)
}

// brought records the outcome for an artifact. The agent is woken when an assignment may go on.
func (c *Carrier) brought(w Wanted, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stale = true
	if err == nil {
		delete(c.failures, w.key())
		c.opts.Log.Info("artifact is in the store", "artifact", w.name(), "digest", w.Digest)
		c.opts.Wake()
		return
	}
	if errors.Is(err, errNoRoom) { // the next Look knows its size, and says so
		return
	}
	old := c.failures[w.key()]
	f := failure{reason: reasonOf(err), message: bundle.Clip(err.Error()), count: old.count + 1}
	f.notBefore = c.opts.Now().Add(c.opts.Retry(f.count))
	c.failures[w.key()] = f
	if old.reason != f.reason {
		c.opts.Log.Warn("artifact cannot be brought", "artifact", w.name(), "reason", f.reason, "err", err)
	}
}

var (
	// errNoRoom means that an artifact does not fit into the budget.
	errNoRoom = errors.New("there is no room for it")
	// errNotNow means that the transfer window is closed.
	errNotNow = errors.New("the transfer window is closed")
)

// reasonOf returns the reason for an error of a transfer.
func reasonOf(err error) string {
	switch {
	case errors.Is(err, errNoRoom), errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return ReasonNoRoom
	case errors.As(err, new(*graph.InvalidError)):
		return ReasonInvalidArtifact
	case errors.Is(err, oci.ErrUnauthorized):
		return ReasonArtifactForbidden
	case errors.Is(err, errdef.ErrNotFound):
		return ReasonArtifactNotFound
	case errors.Is(err, orascontent.ErrMismatchedDigest), errors.Is(err, orascontent.ErrTrailingData), errors.As(err, new(*bundle.Refusal)):
		return ReasonArtifactMismatch
	case onDisk(err):
		return ReasonStoreFailed
	}
	return ReasonArtifactUnreachable
}

// onDisk reports whether an error is this machine's.
func onDisk(err error) bool {
	return errors.As(err, new(*oci.DiskError)) || errors.As(err, new(*state.LocalError))
}

// bringing is what one job knows.
type bringing struct {
	*Carrier
	job *job
	// away are the hosts that have not answered, with the error.
	away map[string]error
}

// artifact brings one artifact. The error wraps errNoRoom or errNotNow, or is that of the step that failed.
func (b *bringing) artifact(ctx context.Context, w Wanted) (err error) {
	if err := w.check(); err != nil {
		return err
	}
	if b.opts.Window != nil {
		inWindow, leave, closed := b.opts.Window(ctx)
		if closed != nil {
			return errNotNow
		}
		outer := ctx
		ctx = inWindow
		defer func() {
			ended := inWindow.Err() != nil && outer.Err() == nil
			if err = leave(err); err != nil && ended {
				err = errNotNow
			}
		}()
	}
	sources, err := b.opts.Sources(ctx, w.Repository)
	if err != nil {
		return graph.Invalid("%s", err.Error())
	}
	g, err := b.manifests(ctx, sources, w)
	if err != nil {
		return err
	}
	if err := b.bringReferrers(ctx, sources, w, g); err != nil {
		return err
	}
	b.mu.Lock()
	whole := b.withReferrers(w.Digest, g)
	b.mu.Unlock()
	if err := b.claim(w, whole); err != nil {
		return err
	}
	if err := b.referrerBlobs(ctx, sources, w); err != nil {
		return err
	}
	for _, d := range g.Blobs {
		if err := b.blob(ctx, sources, d); err != nil {
			return err
		}
		if b.db.At("carry: a blob has arrived"); ctx.Err() != nil {
			return ctx.Err()
		}
	}
	return nil
}

// check returns an error for what no registry can be asked for.
func (w Wanted) check() error {
	if w.Digest == "" {
		return graph.Invalid("it has no digest: publish it with the annotation wherry.dev/pin: commit")
	}
	if err := w.Digest.Validate(); err != nil || w.Digest.Algorithm() != digest.SHA256 {
		return graph.Invalid("%.100q is no SHA-256 digest", w.Digest)
	}
	return nil
}

// each calls f with one source after another until it succeeds. A source that does not answer is not asked again by the
// same job. The error is that of the last source, where artifacts come from originally.
func (b *bringing) each(ctx context.Context, sources []Source, f func(Source) error) error {
	err := fmt.Errorf("%w: this agent has no place to ask for it", oci.ErrUnreachable)
	for _, s := range sources {
		if err = b.away[s.Host]; err != nil {
			continue
		}
		if err = f(s); err == nil || ctx.Err() != nil || onDisk(err) || errors.As(err, new(*graph.InvalidError)) {
			return err
		}
		if reasonOf(err) == ReasonArtifactUnreachable && !errors.As(err, new(*errcode.ErrorResponse)) {
			b.away[s.Host] = err
		}
	}
	return err
}

// manifests brings the missing manifests of an artifact to the store, and returns its graph.
func (b *bringing) manifests(ctx context.Context, sources []Source, w Wanted) (graph.Graph, error) {
	b.mu.Lock()
	g, ok := b.graph(w.Digest)
	platforms := b.platforms
	b.mu.Unlock()
	here := b.disk()
	if ok && !missingAny(g.Manifests, here) {
		return g, nil
	}
	root := ocispec.Descriptor{Digest: w.Digest}
	g, err := graph.Walk(root, platforms, func(d ocispec.Descriptor) (data []byte, err error) {
		if data, err = b.stored(ctx, d); err == nil {
			return data, nil
		}
		err = b.each(ctx, sources, func(s Source) (err error) {
			data, d, err = fetch(ctx, s, d)
			return err
		})
		if err != nil {
			return nil, err
		}
		b.documents.Lock()
		defer b.documents.Unlock()
		b.db.At("carry: a manifest has arrived")
		if err := b.blobs.Push(ctx, d, bytes.NewReader(data)); err != nil && !errors.Is(err, errdef.ErrAlreadyExists) {
			return nil, state.Local("store: %w", err)
		}
		return data, nil
	})
	if err != nil {
		return g, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.graphs[w.Digest] = g
	return g, nil
}

func missingAny(all []ocispec.Descriptor, here disk) bool {
	for _, d := range all {
		if !here(d) {
			return true
		}
	}
	return false
}

// stored returns a manifest that is in the store.
func (b *bringing) stored(ctx context.Context, d ocispec.Descriptor) ([]byte, error) {
	desc, err := b.blobs.Resolve(ctx, d.Digest.String())
	if err != nil {
		return nil, err
	}
	return bundle.ReadBlob(ctx, b.blobs, desc, graph.MaxManifestBytes)
}

// fetch reads a manifest by its digest.
func fetch(ctx context.Context, from Source, d ocispec.Descriptor) ([]byte, ocispec.Descriptor, error) {
	desc, err := from.Resolve(ctx, d.Digest.String())
	if err != nil {
		return nil, d, err
	}
	if desc.Digest != d.Digest {
		return nil, d, fmt.Errorf("%w: the registry answers with manifest %s, asked for was %s", orascontent.ErrMismatchedDigest, desc.Digest, d.Digest)
	}
	data, err := bundle.ReadBlob(ctx, from, desc, graph.MaxManifestBytes)
	return data, desc, err
}

// claim returns errNoRoom unless what g lacks fits, now that its size is known.
func (b *bringing) claim(w Wanted, g graph.Graph) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := b.view.artifacts[w.key()]
	if s == nil {
		return errNoRoom // it is not wanted any more
	}
	here, need := b.disk(), int64(0)
	for _, d := range g.All() {
		if !here(d) {
			need += d.Size
		}
	}
	if need > s.missing && need-s.missing > b.spare() {
		return errNoRoom
	}
	return nil
}

// spare is the room that is not meant for another artifact.
func (c *Carrier) spare() int64 {
	_, missing, _ := c.view.missing(c.view.order)
	return c.view.room - missing
}

// blob brings one blob.
func (b *bringing) blob(ctx context.Context, sources []Source, d ocispec.Descriptor) error {
	if here, _ := b.blobs.Exists(ctx, d); here {
		return nil
	}
	opts := b.opts.Download
	opts.Moment = b.db.At
	opts.Progress = func(have int64) {
		b.job.mu.Lock()
		b.job.have = have
		b.job.mu.Unlock()
	}
	err := b.each(ctx, sources, func(s Source) error { return b.layout.Download(ctx, s.Target, d, opts) })
	b.job.mu.Lock()
	defer b.job.mu.Unlock()
	b.job.have = 0
	if err == nil {
		b.job.got.Add(d.Size)
	}
	return err
}
