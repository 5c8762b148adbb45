package relational

import (
	"fmt"
	"time"

	"github.com/wherry-dev/wherry/hub/store"
)

// spent is what a cluster has used of its quota: for reports and for bytes the time, in microseconds since 1970, at which it
// has all of its quota again. Zero, and each time that has passed, is all of it.
type spent struct{ reports, bytes int64 }

const (
	hour = int64(time.Hour / time.Microsecond)
	// maxDebt bounds how long a cluster waits after a clock was set back, or one large request.
	maxDebt = 24 * hour
)

// charge takes the new reports from the cluster's quota. It may be overdrawn by one batch. The error is a *store.QuotaError.
func (in *intake) charge(fresh []int) error {
	if len(fresh) == 0 {
		return nil
	}
	bytes := 0
	for _, i := range fresh {
		bytes += len(in.reports[i].Envelope)
	}
	c, now := in.cluster, in.now.UnixMicro()
	for _, of := range []struct {
		until      *int64
		n, perHour int
		unit       string
	}{{&c.spent.reports, len(fresh), in.quota.Reports, "reports"}, {&c.spent.bytes, bytes, in.quota.Bytes, "bytes"}} {
		if of.perHour <= 0 {
			continue
		}
		*of.until = min(max(*of.until, now), now+maxDebt)
		if wait := *of.until - now - hour; wait >= 0 {
			return &store.QuotaError{
				UID: c.registration.UID, Bound: fmt.Sprintf("%d %s an hour", of.perHour, of.unit),
				Wait: time.Duration(wait)*time.Microsecond + time.Second, // for something more than nothing
			}
		}
		*of.until += int64(of.n) * hour / int64(of.perHour)
	}
	return nil
}
