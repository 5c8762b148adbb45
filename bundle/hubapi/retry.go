package hubapi

import (
	"math"
	"net/http"
	"strconv"
	"time"
)

// retryAfter is the header in which a hub says when the same request may come again. Proxies and load balancers
// between the two send it as well.
const retryAfter = "Retry-After"

// SetRetryAfter asks for the same request again after wait, which becomes whole seconds, rounded up.
func SetRetryAfter(h http.Header, wait time.Duration) {
	h.Set(retryAfter, strconv.FormatInt(int64((wait+time.Second-1)/time.Second), 10))
}

// RetryAfter returns how long an answer asks to wait, in seconds or as a date; zero if it does not ask, or asks for
// the past. Any server may say any time: bound it. See RFC 9110, section 10.2.3.
func RetryAfter(h http.Header, now time.Time) time.Duration {
	value := h.Get(retryAfter)
	if n, err := strconv.ParseInt(value, 10, 64); err == nil {
		return time.Duration(min(max(n, 0), int64(math.MaxInt64/time.Second))) * time.Second
	}
	if at, err := http.ParseTime(value); err == nil {
		return max(at.Sub(now), 0)
	}
	return 0
}
