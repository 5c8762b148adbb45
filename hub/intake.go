package hub

import (
	"cmp"
	"context"
	"log/slog"
	"slices"

	"github.com/opencontainers/go-digest"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/hubapi"
	"github.com/wherry-dev/wherry/hub/desired"
	"github.com/wherry-dev/wherry/hub/metrics"
	"github.com/wherry-dev/wherry/hub/store"
)

// intake stores verified reports and acknowledges them, whatever way they came.
type intake struct {
	store store.Store
	sign  signer
	log   *slog.Logger
	quota store.Quota // of what comes over HTTP

	counters *metrics.Counters
	present  *present
	follower *desired.Follower
}

// taken is the result of storing reports of one cluster.
type taken struct {
	accepted, duplicates int
	stored               []digest.Digest // accepted and duplicates
	rejected             []hubapi.Rejection
	newest               bundle.ReportAgent // of the verified report that is last in order
	sharedHow            string             // store.Outcome
}

// keyring returns the keys that may sign for uid. The error wraps store.ErrUnknownCluster, or is a *store.RetiredError.
func (in intake) keyring(ctx context.Context, uid string) (keyring, error) {
	keys, err := in.store.Keys(ctx, uid)
	return keyring(keys), err
}

// keep stores the verified reports of one cluster, and adds the given rejections to the result.
func (in intake) keep(ctx context.Context, uid string, verified []received, rejected []hubapi.Rejection, via store.Via) (taken, error) {
	t := taken{rejected: rejected}
	if len(verified) > 0 {
		if err := in.ingest(ctx, uid, verified, via, &t); err != nil {
			return taken{}, err
		}
	}
	slices.SortFunc(t.rejected, func(a, b hubapi.Rejection) int { return cmp.Compare(a.Index, b.Index) })
	for _, r := range t.rejected {
		in.counters.Rejected(r.Reason)
		in.log.Warn("report refused", "cluster", uid, "report", r.ID, "reason", r.Reason, "message", r.Message)
	}
	return t, nil
}

func (in intake) ingest(ctx context.Context, uid string, verified []received, via store.Via, t *taken) error {
	b := store.Batch{UID: uid, Via: via}
	if via == store.ViaHTTP { // the other ways are walked by people
		b.Quota = in.quota
	}
	for _, r := range verified {
		b.Reports = append(b.Reports, r.Report)
		if store.OrderOf(r.Body.Agent).Compare(store.OrderOf(t.newest)) >= 0 {
			t.newest = r.Body.Agent
		}
	}
	done, err := in.store.Ingest(ctx, b)
	if err != nil {
		return err
	}
	in.present.apply(done.State)
	if s := done.State; s != nil && s.Observed != nil {
		in.follower.Notice(s.Observed.Digest)
	}
	t.accepted, t.duplicates, t.stored, t.sharedHow = done.Accepted, done.Duplicates, done.Stored, done.SharedHow
	for _, i := range done.Conflicts {
		r := verified[i]
		u := unopened{index: r.index, id: r.ID, cluster: r.Body.Cluster.UID}
		t.rejected = append(t.rejected, *u.reject(hubapi.CodeConflict,
			"another report with incarnation %d and seq %d is stored; do two agents share this identity?", r.Body.Agent.Incarnation, r.Body.Agent.Seq))
	}
	in.counters.Stored(via, done.Accepted, done.Duplicates)
	if done.SharedNow {
		in.log.Warn("two agents share an identity", "cluster", uid, "how", done.SharedHow)
	}
	if done.Accepted > 0 {
		in.log.Debug("reports stored", "cluster", uid, "accepted", done.Accepted, "duplicates", done.Duplicates, "via", via)
	}
	return nil
}

// hint returns the problem with the agent's identity; nil if there is none.
func (t taken) hint() *hubapi.IdentityHint {
	for _, r := range t.rejected {
		if r.Reason == hubapi.CodeKeyReplaced {
			return &hubapi.IdentityHint{Reason: r.Reason, Message: r.Message}
		}
	}
	if t.sharedHow == "" {
		return nil
	}
	return &hubapi.IdentityHint{Reason: hubapi.CodeSharedIdentity, Message: "a second agent has this one's key and uid, such as on a copy of its disk: " + t.sharedHow}
}
