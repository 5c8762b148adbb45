package hub

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/hubapi"
	"github.com/wherry-dev/wherry/bundle/show"
	"github.com/wherry-dev/wherry/hub/access"
	"github.com/wherry-dev/wherry/hub/desired"
	"github.com/wherry-dev/wherry/hub/store"
)

// publications is what a hub does to know what its fleet should run.
type publications struct {
	follower *desired.Follower
	// archives bounds the archives that are received at once.
	archives chan struct{}
}

const (
	// maxArchives bounds the archives that publishers send at once, each of hubapi.MaxArchiveBytes.
	maxArchives = 2
	// archiveWait bounds the wait of others for one of them.
	archiveWait = time.Minute
)

func newPublications(s store.Store, o Options) publications {
	o.Watch.Now, o.Watch.Log = o.Now, o.Log
	names := &environmentNames{store: s}
	o.Watch.Environments = names.list
	return publications{desired.New(s, o.Trust, o.Watch), make(chan struct{}, maxArchives)}
}

// environmentNames are those of the registered clusters. They are read again once a cluster was registered or changed.
type environmentNames struct {
	store store.Store

	mu    sync.Mutex
	names []string
	until store.Position // of the feed
	read  bool
}

// feedStep is how many entries of the feed are looked through before the clusters are read instead.
const feedStep = 5000

func (e *environmentNames) list(ctx context.Context) ([]string, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	end, err := e.store.End(ctx)
	if err != nil {
		return nil, err
	}
	if e.read && !e.changed(ctx, end) {
		e.until = end
		return e.names, nil
	}
	all, err := e.store.Registrations(ctx)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, c := range all {
		if !slices.Contains(names, c.Environment) {
			names = append(names, c.Environment)
		}
	}
	e.names, e.until, e.read = names, end, true
	return names, nil
}

// changed reports whether a cluster may have been registered or changed since the names were read.
func (e *environmentNames) changed(ctx context.Context, end store.Position) bool {
	if end == e.until {
		return false
	}
	entries, err := e.store.Entries(ctx, e.until, feedStep)
	return err != nil || len(entries) == feedStep || slices.ContainsFunc(entries, func(f store.FeedEntry) bool { return f.Kind == store.FeedCluster })
}

// LookAtReleases has a serving hub look soon whether something new was published where it watches.
func (h *Hub) LookAtReleases() { h.published.follower.Wake() }

// followReleases follows what is published until ctx ends.
func (h *Hub) followReleases(ctx context.Context) {
	for ctx.Err() == nil {
		err := h.published.follower.Run(ctx)
		if ctx.Err() != nil || err == nil {
			return
		}
		h.log.Error("what is published is not followed", "err", err)
		select {
		case <-ctx.Done():
		case <-time.After(unavailableRetry):
		}
	}
}

// postReleases takes what a publisher sends.
func (h *Hub) postReleases(w http.ResponseWriter, r *http.Request) {
	done, err := h.receiveReleases(w, r)
	if err != nil {
		h.fail(w, r, err)
		return
	}
	hubapi.WriteJSON(w, http.StatusOK, done)
}

func (h *Hub) receiveReleases(w http.ResponseWriter, r *http.Request) (hubapi.Learned, error) {
	ctx := r.Context()
	bounded, cancel := context.WithTimeout(ctx, archiveWait)
	defer cancel()
	select {
	case h.published.archives <- struct{}{}:
		defer func() { <-h.published.archives }()
	case <-bounded.Done():
		return hubapi.Learned{}, &hubapi.Error{Code: hubapi.CodeBusy, Message: "others send releases; try again later", RetryAfter: unavailableRetry}
	}
	control := http.NewResponseController(w) // whose deadlines are not supported in tests without a connection
	_ = control.SetReadDeadline(time.Now().Add(hubapi.MaxBodyTime))
	_ = control.SetWriteDeadline(time.Now().Add(hubapi.MaxBodyTime + time.Minute))
	file, err := os.CreateTemp("", "wherry-releases-*.tar")
	if err != nil {
		return hubapi.Learned{}, err
	}
	defer os.Remove(file.Name())
	defer file.Close()
	size, err := io.Copy(file, http.MaxBytesReader(w, r.Body, hubapi.MaxArchiveBytes))
	if large := new(http.MaxBytesError); errors.As(err, &large) {
		return hubapi.Learned{}, &hubapi.Error{Code: hubapi.CodeTooLarge, Message: fmt.Sprintf("releases of more than %d bytes; have the hub watch the registry", large.Limit)}
	}
	if err != nil {
		return hubapi.Learned{}, &hubapi.Error{Code: hubapi.CodeBadRequest, Message: "the body broke off"}
	}
	scope := access.ScopeOf(ctx)
	learned, err := h.published.follower.Receive(ctx, file, size, func(_, environment string) error {
		if !scope.HasEnvironment(environment) || len(scope.Workspaces) > 0 || scope.Selector != "" {
			return &hubapi.Error{Code: hubapi.CodeForbidden, Message: "the token's scope does not have this whole environment"}
		}
		return nil
	})
	var refusal *bundle.Refusal
	switch {
	case errors.Is(err, desired.ErrNoTrust):
		return hubapi.Learned{}, &hubapi.Error{Code: hubapi.CodeUntrusted, Message: "this hub trusts nobody's releases: start it with --trust or --trust-key"}
	case errors.As(err, &refusal):
		return hubapi.Learned{}, &hubapi.Error{Code: hubapi.CodeUntrusted, Message: store.Plain(refusal.Error())}
	case err != nil:
		return hubapi.Learned{}, err
	case learned.New:
		err = access.Note(ctx, h.store, store.AuditEntry{
			At: h.enroller.sign.now(), Action: "publish releases", Object: learned.Platform + "/" + learned.Environment, Environment: learned.Environment,
			Detail: fmt.Sprintf("record %s, %s", learned.Record, show.Count(learned.Releases, "new release")),
		})
	}
	return learned.Learned, err
}
