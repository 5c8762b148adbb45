package hubapi

import (
	"math"
	"net/http"
	"strconv"
	"time"
)

// retryAfter is the header with the time after which the same request may be sent again. Proxies and load balancers
// between agent and hub send it as well.
const retryAfter = "Retry-After"

// SetRetryAfter asks for the same request again after wait, which becomes whole seconds, rounded up.
func SetRetryAfter(h http.Header, wait time.Duration) {
	h.Set(retryAfter, strconv.FormatInt(int64((wait+time.Second-1)/time.Second), 10))
}

// RetryAfter returns the wait that an answer asks for, in seconds or as a date; zero if it asks for none, or for a time in
// the past. A server may ask for any time, so bound it. See RFC 9110, section 10.2.3.
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
