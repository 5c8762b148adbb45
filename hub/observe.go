package hub

import (
	"context"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/oci"
	"github.com/wherry-dev/wherry/hub/fleet"
	"github.com/wherry-dev/wherry/hub/metrics"
	"github.com/wherry-dev/wherry/hub/store"
	"github.com/wherry-dev/wherry/hub/store/postgres"
	"github.com/wherry-dev/wherry/hub/store/sqlite"
)

// eventsPattern is the route whose answers end when the client has enough: its durations say nothing.
const eventsPattern = "GET /v1/events"

// observe counts the requests that next answers. A mux notes the pattern of its route in the request.
func (h *Hub) observe(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		began, answer := time.Now(), &answer{ResponseWriter: w, status: http.StatusOK}
		next.ServeHTTP(answer, r)
		if r.Pattern != eventsPattern {
			h.counters.Answered(r.Pattern, answer.status, time.Since(began))
		}
	})
}

// answer notes the status of an answer.
type answer struct {
	http.ResponseWriter
	status int
}

func (a *answer) WriteHeader(status int) {
	a.status = status
	a.ResponseWriter.WriteHeader(status)
}

// Unwrap is for http.ResponseController.
func (a *answer) Unwrap() http.ResponseWriter { return a.ResponseWriter }

// getMetrics answers Prometheus.
func (h *Hub) getMetrics(w http.ResponseWriter, r *http.Request) {
	page, err := h.Metrics(r.Context())
	if err != nil {
		h.log.Error("metrics are not complete", "err", err)
	}
	w.Header().Set("Content-Type", metrics.ContentType)
	_, _ = w.Write(page) // the client may have gone
}

// Metrics returns the page of metrics. With an error it lacks some.
func (h *Hub) Metrics(ctx context.Context) ([]byte, error) {
	s, err := h.snapshot(ctx)
	return h.counters.Page(s), err
}

// snapshot returns how the hub stands. What the database does not say is left out: metrics are needed most when it is away.
func (h *Hub) snapshot(ctx context.Context) (metrics.Snapshot, error) {
	s := metrics.Snapshot{Version: h.version, End: -1, Applied: -1, DatabaseBytes: h.databaseBytes(ctx)}
	var err error
	if f, err := h.readPresent(ctx); err == nil {
		s.Applied = f.Position()
	}
	if s.End, err = h.store.End(ctx); err != nil {
		s.End = -1
	}
	if h.forwarder != nil {
		u := h.forwarder.Status()
		s.Upstream = &metrics.Upstream{Position: u.Position, Forwarded: u.Forwarded, Refused: u.RefusedCount, Waiting: u.Waiting, Failing: u.Failed != ""}
		if !u.Behind.IsZero() {
			s.Upstream.BehindSeconds = max(0, h.enroller.sign.now().Sub(u.Behind).Seconds())
		}
	}
	s.Trust = h.published.follower.TrustEnds()
	s.DiskFree, s.DiskSize, _ = oci.SpaceIn(h.dir)
	var tokensErr error
	s.Tokens, tokensErr = h.endingTokens(ctx)
	err = errors.Join(err, tokensErr, h.measureFleet(ctx, &s))
	return s, err
}

// measureFleet adds what the fleet runs and should run.
func (h *Hub) measureFleet(ctx context.Context, s *metrics.Snapshot) error {
	view, err := h.Answers(ctx, store.AccessScope{})
	if err != nil {
		return err
	}
	if s.Environments, err = countClusters(ctx, view, "environment"); err != nil {
		return err
	}
	if s.Types, err = countClusters(ctx, view, "type"); err != nil {
		return err
	}
	list, err := view.Releases(ctx, fleet.Query{})
	if err != nil {
		return err
	}
	for _, r := range list.Releases {
		if r.Current {
			s.Releases = append(s.Releases, metrics.Release{
				Platform: r.Platform, Environment: r.Environment, Type: r.Type, Name: bundle.ReleaseName(r.Number, r.Digest), Commit: r.BaseCommit[:min(len(r.BaseCommit), 8)],
				IssuedAt: r.IssuedAt, ExpiresAt: r.ExpiresAt,
				Compliant: r.Compliant, Progressing: r.Progressing, Failed: r.Failed, Waiting: r.Waiting, Unknown: r.Unknown,
			})
		}
	}
	for i, e := range s.Environments {
		if i > 0 && s.Environments[i-1].Name == e.Name || len(s.Deployments) > metrics.MaxNames {
			continue
		}
		counts, err := view.Count(ctx, "deployments", []string{"workload", "version"}, fleet.Query{Environments: []string{e.Name}})
		if err != nil {
			return err
		}
		for _, r := range counts.Rows {
			if r.Values[1] != "" {
				s.Deployments = append(s.Deployments, metrics.Deployments{Environment: e.Name, Workload: r.Values[0], Version: r.Values[1], Count: r.Count})
			}
		}
	}
	return nil
}

// endingTokens returns the access tokens that end and are not revoked. Sessions are none.
func (h *Hub) endingTokens(ctx context.Context) (all []metrics.Token, err error) {
	tokens, err := h.store.AccessTokens(ctx)
	for _, t := range tokens {
		if t.RevokedAt.IsZero() && !t.ExpiresAt.IsZero() && t.Subject == "" {
			all = append(all, metrics.Token{Name: t.Name, Role: t.Role, ExpiresAt: t.ExpiresAt})
		}
	}
	return all, err
}

// countClusters counts the clusters by one of their values and by state.
func countClusters(ctx context.Context, view *fleet.View, by string) (all []metrics.Clusters, err error) {
	counts, err := view.Count(ctx, "clusters", []string{by, "state"}, fleet.Query{})
	for _, r := range counts.Rows {
		all = append(all, metrics.Clusters{Name: r.Values[0], State: r.Values[1], Count: r.Count})
	}
	return all, err
}

// databaseBytes returns the size of the database; -1 if it is not known.
func (h *Hub) databaseBytes(ctx context.Context) int64 {
	n := int64(-1)
	if server, ok := h.store.(*postgres.DB); ok {
		if size, err := server.Size(ctx); err == nil {
			n = size
		}
		return n
	}
	for _, name := range sqlite.Files(DatabaseFile) {
		if info, err := os.Stat(filepath.Join(h.dir, name)); err == nil {
			n = max(n, 0) + info.Size()
		}
	}
	return n
}
