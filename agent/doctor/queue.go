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
	"github.com/wherry-dev/wherry/bundle/diagnosis"
	"github.com/wherry-dev/wherry/bundle/show"
)

// oldQueue is an age of reports at which somebody should look why nobody takes them, though there is a hub. Links that
// are down for a week are what agents are for.
const oldQueue = 8 * 24 * time.Hour

// checkReports checks whether the registry for reports answers, and that something will delete them. It pushes nothing.
func checkReports(ctx context.Context, e *examination) diagnosis.Finding {
	if e.Reports.Repository == nil {
		return diagnosis.Finding{}
	}
	_, err := e.Reports.Repository.Resolve(ctx, bundle.AckTag)
	switch {
	case err != nil && !errors.Is(err, errdef.ErrNotFound): // the first push makes the repository
		return diagnosis.Failf(registryRemedy(err), "%v", err)
	case !e.Hub.HasKey && !e.Reports.AckStored:
		return diagnosis.Failf(`pin the hub's key with --hub-key, or, where there is no hub, give --ack-mode stored`, "%s answers, but without the hub's key no report is ever deleted", e.Reports.Place)
	default:
		return diagnosis.Okf("%s answers", e.Reports.Place)
	}
}

// checkQueue checks whether reports arrive anywhere.
func checkQueue(_ context.Context, e *examination) diagnosis.Finding {
	q := e.waiting
	if q == nil {
		return diagnosis.Finding{} // the state has been spoken of
	}
	waiting := show.Count(q.Length, "report") + " waiting"
	var age time.Duration
	if q.Oldest != nil {
		age = e.Now().Sub(*q.Oldest)
		waiting += ", the oldest since " + q.Oldest.Format(time.RFC3339)
	}
	switch {
	case q.Rejected > 0:
		return diagnosis.Warnf("reports dead shows them with the hub's reason; see to that, and then reports dead retry, or reports dead drop", "%s; %d the hub will not take: %s", waiting, q.Rejected, q.LastRejection)
	case e.Hub.URL != "" && age > oldQueue:
		return diagnosis.Warnf("see the check of the hub; reports export takes them out by media", "%s", waiting)
	case len(q.Unsent) > 0:
		to := slices.Sorted(maps.Keys(q.Unsent))[0]
		return diagnosis.Warnf("a hub that does not know this agent: enroll it, or wherry hub clusters add; one that is out of reach: nothing, they wait", "%s; not taken by %s: %s", waiting, to, q.Unsent[to])
	case q.Dropped > 0:
		return diagnosis.Warnf("have the hub take reports, or export them, before the queue is full", "%s; %d were given up since the state was made, because there was no room", waiting, q.Dropped)
	default:
		return diagnosis.Okf("%s", waiting)
	}
}

// checkListen checks whether an agent that starts now can have the address for health and metrics.
func checkListen(_ context.Context, e *examination) diagnosis.Finding {
	if e.Listen == "" {
		return diagnosis.Finding{}
	}
	if e.live {
		return diagnosis.Okf("the running agent has %s", e.Listen)
	}
	l, err := net.Listen("tcp", e.Listen)
	if err != nil {
		return diagnosis.Failf("end what has the address, or name another with --listen", "%v", err)
	}
	_ = l.Close() // nobody has connected
	return diagnosis.Okf("%s is free", e.Listen)
}
