package hub

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/diagnosis"
	"github.com/wherry-dev/wherry/bundle/oci"
	"github.com/wherry-dev/wherry/bundle/show"
)

// checkTime bounds what one check of Examine asks others.
const checkTime = 30 * time.Second

// Examine says what the hub lacks, and what it will lack soon. It writes no more than what a probe of the database does, and may run
// beside a hub that serves.
func (h *Hub) Examine(ctx context.Context) (diagnosis.Report, error) {
	return diagnosis.Run(ctx, []diagnosis.Check{
		{Name: "key", Limit: checkTime, Run: h.checkKey},
		{Name: "database", Limit: checkTime, Run: h.checkDatabase},
		{Name: "disk", Limit: checkTime, Run: h.checkDisk},
		{Name: "tokens", Limit: checkTime, Run: h.checkTokens},
		{Name: "trust", Limit: checkTime, Run: h.checkTrust},
		{Name: "registry", Limit: checkTime, Run: h.checkLocations},
		{Name: "clusters", Limit: checkTime, Run: h.checkClusters},
	})
}

func (h *Hub) checkKey(context.Context) diagnosis.Finding {
	id, err := bundle.KeyID(h.PublicKey())
	if err != nil {
		return diagnosis.Failf("restore hub.key from a backup", "%v", err)
	}
	return diagnosis.Okf("acknowledgements are signed by %s, which is the key of this database", id[:12])
}

func (h *Hub) checkDatabase(ctx context.Context) diagnosis.Finding {
	if err := h.store.Ready(ctx); err != nil {
		return diagnosis.Failf("make room on its disk, or see why the database server refuses", "the database cannot be written: %v", err)
	}
	return diagnosis.Okf("it can be written, and has %d MiB", max(0, h.databaseBytes(ctx))>>20)
}

func (h *Hub) checkDisk(context.Context) diagnosis.Finding {
	const remedy = `make room there, or keep less history: "wherry hub trim"`
	free, size, known := oci.SpaceIn(h.dir)
	switch {
	case !known:
		return diagnosis.Skipf("the file system of %s does not say how much room it has", h.dir)
	case free < size/50:
		return diagnosis.Failf(remedy, "%s has %d of %d MiB free", h.dir, free>>20, size>>20)
	case free < size/10:
		return diagnosis.Warnf(remedy, "%s has %d of %d MiB free", h.dir, free>>20, size>>20)
	}
	return diagnosis.Okf("%s has %d of %d MiB free", h.dir, free>>20, size>>20)
}

// soonToken is the time before the end of an access token in which people are to hear of it.
const soonToken = 14 * 24 * time.Hour

func (h *Hub) checkTokens(ctx context.Context) diagnosis.Finding {
	all, err := h.endingTokens(ctx)
	if err != nil {
		return diagnosis.Failf("see why the database cannot be read", "%v", err)
	}
	now := h.enroller.sign.now()
	var ending []string
	for _, t := range all {
		if t.ExpiresAt.Before(now.Add(soonToken)) {
			ending = append(ending, fmt.Sprintf("%s at %s", t.Name, t.ExpiresAt.Format(time.RFC3339)))
		}
	}
	if len(ending) > 0 {
		return diagnosis.Warnf(`make new ones with "wherry hub access create", and revoke these`, "these expire, or have expired: %s", strings.Join(ending, ", "))
	}
	return diagnosis.Okf("none of %s ends within %s", show.Count(len(all), "access token"), show.Days(int64(soonToken/(24*time.Hour))))
}

func (h *Hub) checkTrust(context.Context) diagnosis.Finding {
	const remedy = `have the roots sign the next version and publish it: "wherry trust rotate"`
	ends := h.published.follower.TrustEnds()
	for platform, at := range ends {
		switch left := at.Sub(h.enroller.sign.now()); {
		case left <= 0:
			return diagnosis.Failf(remedy, "the trust document of platform %s expired at %s", platform, at.Format(time.RFC3339))
		case left < 30*24*time.Hour:
			return diagnosis.Warnf(remedy, "the trust document of platform %s expires at %s", platform, at.Format(time.RFC3339))
		}
	}
	if len(ends) == 0 {
		return diagnosis.Skipf("no trust document was given with --trust")
	}
	return diagnosis.Okf("%s, none of which expires within 30 days", show.Count(len(ends), "trust document"))
}

func (h *Hub) checkLocations(ctx context.Context) diagnosis.Finding {
	n, err := h.published.follower.Reach(ctx)
	switch {
	case err != nil:
		return diagnosis.Failf("see whether the registry runs, and give this user its login", "%v", err)
	case n == 0:
		return diagnosis.Skipf("none was given with --watch")
	}
	return diagnosis.Okf("%s can be read", show.Count(n, "location"))
}

func (h *Hub) checkClusters(ctx context.Context) diagnosis.Finding {
	all, err := h.AllRegistrations(ctx)
	if err != nil {
		return diagnosis.Failf("see why the database cannot be read", "%v", err)
	}
	silent, err := h.Silent(ctx, 0)
	if err != nil {
		return diagnosis.Failf("see why the database cannot be read", "%v", err)
	}
	if 2*len(silent) > len(all) {
		return diagnosis.Warnf(`"wherry hub export-ack" and "wherry get clusters --state stale,unreported" list them`, "%d of %s are silent", len(silent), show.Count(len(all), "cluster"))
	}
	return diagnosis.Okf("%s, of which %d are silent", show.Count(len(all), "cluster"), len(silent))
}
