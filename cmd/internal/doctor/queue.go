package doctor

import (
	"context"
	"errors"
	"maps"
	"net"
	"slices"
	"time"

	"oras.land/oras-go/v2/errdef"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/cmd/internal/cli"
)

// oldQueue is an age of reports at which somebody should look why nobody takes them, though there is a hub. Links that
// are down for a week are what agents are for.
const oldQueue = 8 * 24 * time.Hour

// reports says whether the registry that reports are pushed to answers, and what would delete them. It pushes nothing.
func (e *examination) reports(ctx context.Context) {
	const check = "reports"
	if e.Reports == nil {
		return
	}
	_, err := e.Reports.Resolve(ctx, bundle.AckTag)
	switch {
	case err != nil && !errors.Is(err, errdef.ErrNotFound): // the first push makes the repository
		e.failed(check, registryRemedy(err), "%v", err)
	case !e.HasHubKey && !e.AckStored:
		e.failed(check, `pin the hub's key with --hub-key, or, where there is no hub, give --ack-mode stored`, "%s answers, but without the hub's key no report is ever deleted", e.ReportPlace)
	default:
		e.ok(check, "%s answers", e.ReportPlace)
	}
}

// queue says whether reports get to somebody.
func (e *examination) queue(context.Context) {
	const check = "queue"
	q := e.waiting
	if q == nil {
		return // the state has been spoken of
	}
	waiting := cli.Count(q.Length, "report") + " waiting"
	var age time.Duration
	if q.Oldest != nil {
		age = e.Now().Sub(*q.Oldest)
		waiting += ", the oldest since " + q.Oldest.Format(time.RFC3339)
	}
	switch {
	case q.Rejected > 0:
		e.warned(check, "reports dead shows them with the hub's reason; see to that, and then reports dead retry, or reports dead drop", "%s; %d the hub will not take: %s", waiting, q.Rejected, q.LastRejection)
	case e.HubURL != "" && age > oldQueue:
		e.warned(check, "see the check of the hub; reports export takes them out by media", "%s", waiting)
	case len(q.Unsent) > 0:
		to := slices.Sorted(maps.Keys(q.Unsent))[0]
		e.warned(check, "a hub that does not know this agent: enroll it, or wherry hub clusters add; one that is out of reach: nothing, they wait", "%s; not taken by %s: %s", waiting, to, q.Unsent[to])
	case q.Dropped > 0:
		e.warned(check, "have the hub take reports, or export them, before the queue is full", "%s; %d were given up since the state was made, because there was no room", waiting, q.Dropped)
	default:
		e.ok(check, "%s", waiting)
	}
}

// listen says whether the address for health and metrics can be had by an agent that is about to start.
func (e *examination) listen(context.Context) {
	const check = "listen"
	if e.Listen == "" {
		return
	}
	if e.live {
		e.ok(check, "the running agent has %s", e.Listen)
		return
	}
	l, err := net.Listen("tcp", e.Listen)
	if err != nil {
		e.failed(check, "end what has the address, or name another with --listen", "%v", err)
		return
	}
	_ = l.Close() // nobody has connected
	e.ok(check, "%s is free", e.Listen)
}
