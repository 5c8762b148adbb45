// Package diagnosis makes checks, one after another, and has advice for each that fails. Begin with Run.
package diagnosis

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"time"
)

// Result is how a check ended.
type Result string

// The results.
const (
	OK      Result = "ok"
	Failed  Result = "failed"
	Warning Result = "warning" // nothing is missing yet
	Skipped Result = "skipped" // not configured, or a check that it builds on has failed
)

// Finding is the result of one check.
type Finding struct {
	Check   string `json:"check"`
	Result  Result `json:"result"`
	Message string `json:"message"`
	// Remedy is a hint for a check that has failed, or warns.
	Remedy string `json:"remedy,omitempty"`
}

// Report is findings, in the order of the checks.
type Report struct {
	OK     bool      `json:"ok"`
	Checks []Finding `json:"checks"`
}

// Count returns how many checks have a result.
func (r Report) Count(of Result) (n int) {
	for _, f := range r.Checks {
		if f.Result == of {
			n++
		}
	}
	return n
}

// Check is one question.
type Check struct {
	Name string
	// Limit bounds the time of Run.
	Limit time.Duration
	// Run answers it, and may keep what later checks need. The zero Finding is left out of the report: the question does not
	// arise, or another check answers it.
	Run func(context.Context) Finding
}

// Run makes all checks. Its error is that of ctx.
func Run(ctx context.Context, checks []Check) (Report, error) {
	r := Report{OK: true}
	for _, c := range checks {
		bounded, cancel := context.WithTimeout(ctx, c.Limit)
		f := c.Run(bounded)
		cancel()
		if ctx.Err() != nil {
			return Report{}, ctx.Err()
		}
		if f.Result == "" {
			continue
		}
		f.Check = c.Name
		r.Checks, r.OK = append(r.Checks, f), r.OK && f.Result != Failed
	}
	return r, nil
}

// Okf is the finding that nothing is missing.
func Okf(format string, args ...any) Finding {
	return Finding{Result: OK, Message: fmt.Sprintf(format, args...)}
}

// Failf is the finding that something is missing, with what to do.
func Failf(remedy, format string, args ...any) Finding {
	return Finding{Result: Failed, Message: fmt.Sprintf(format, args...), Remedy: remedy}
}

// Warnf is the finding that something will be missing, with what to do.
func Warnf(remedy, format string, args ...any) Finding {
	return Finding{Result: Warning, Message: fmt.Sprintf(format, args...), Remedy: remedy}
}

// Skipf is the finding that there is nothing to check.
func Skipf(format string, args ...any) Finding {
	return Finding{Result: Skipped, Message: fmt.Sprintf(format, args...)}
}

// Dated returns a transport that tells how far the clock now is ahead of that of each server that answers. A nil base is
// [http.DefaultTransport].
func Dated(base http.RoundTripper, now func() time.Time, tell func(skew time.Duration)) http.RoundTripper {
	return transport(func(r *http.Request) (*http.Response, error) {
		sent := now()
		resp, err := cmp.Or(base, http.DefaultTransport).RoundTrip(r)
		if err != nil {
			return nil, err
		}
		received := now()
		if at, err := http.ParseTime(resp.Header.Get("Date")); err == nil { // in whole seconds, cut off
			tell(sent.Add(received.Sub(sent) / 2).Sub(at.Add(time.Second / 2)))
		}
		return resp, nil
	})
}

type transport func(*http.Request) (*http.Response, error)

func (t transport) RoundTrip(r *http.Request) (*http.Response, error) { return t(r) }
