// Package duration reads lengths of time as people write them: 90m, 12h, 7d, 2w, and combinations such as 1d12h. All flags,
// fields and annotations of wherry that take one are read by Parse. Moment reads points in time.
package duration

import (
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/wherry-dev/wherry/bundle/lazyregexp"
)

const (
	day  = 24 * time.Hour
	week = 7 * day
)

// long matches weeks and days, which package time does not support, and the rest.
var long = lazyregexp.New(`^(?:([0-9]{1,6})w)?(?:([0-9]{1,6})d)?(.*)$`)

// Moment reads a time in RFC 3339, a day such as 2026-11-21 (its beginning, in UTC), or a duration back from now,
// such as 24h or 7d. The result is in UTC.
func Moment(s string, now time.Time) (time.Time, error) {
	if t, err := time.Parse(time.RFC3339, s); err == nil {
		return t.UTC(), nil
	}
	if t, err := time.Parse(time.DateOnly, s); err == nil {
		return t, nil
	}
	d, err := Parse(s)
	if err != nil {
		return time.Time{}, fmt.Errorf("%.40q is neither a time such as 2026-11-21T12:00:00Z nor a duration such as 24h or 7d", s)
	}
	return now.Add(-d).UTC(), nil
}

// Parse reads weeks and days, in whole numbers, and then what [time.ParseDuration] reads. A day has 24 hours. Negative
// lengths are errors.
func Parse(s string) (time.Duration, error) {
	wrong := fmt.Errorf("%.40q is not a duration: write a number and a unit, such as 90m, 12h, 7d or 2w", s)
	m := long.FindStringSubmatch(s)
	if m == nil || s == "" {
		return 0, wrong
	}
	total := units(m[1], week) + units(m[2], day)
	if m[3] == "" {
		return total, nil
	}
	rest, err := time.ParseDuration(m[3])
	if m[3][0] == '-' || m[3][0] == '+' || err != nil || m[3] == "0" && s != "0" || rest > math.MaxInt64-total {
		return 0, wrong
	}
	return total + rest, nil
}

// units returns number times unit; 0 for no number. A million weeks exceed a time.Duration, which ends at 292 years.
func units(number string, unit time.Duration) time.Duration {
	n, _ := strconv.ParseInt(number, 10, 64)
	return time.Duration(min(n, int64(math.MaxInt64/4/unit))) * unit
}

// Value is a duration as a flag's value: it implements the interface of package pflag.
type Value time.Duration

// Set reads s.
func (v *Value) Set(s string) error {
	d, err := Parse(s)
	*v = Value(d)
	return err
}

// String writes v as Parse reads it, without units of which there are none: 2m and not 2m0s. Two days and more are written in days.
func (v *Value) String() string {
	total, days := time.Duration(*v), ""
	if total >= 2*day && total < math.MaxInt64/4 { // more days than that are not read
		days, total = fmt.Sprintf("%dd", total/day), total%day
	}
	if days != "" && total == 0 {
		return days
	}
	s := total.String()
	for _, zero := range []string{"m0s", "h0m"} {
		if n := len(s) - len(zero); n > 0 && s[n:] == zero {
			s = s[:n+1]
		}
	}
	if s == "0s" {
		return "0" // pflag shows no default for it
	}
	return days + s
}

// Text writes d in whole seconds, as [Value.String] does.
func Text(d time.Duration) string {
	v := Value(d.Round(time.Second))
	return v.String()
}

// Type returns "duration", for help texts.
func (v *Value) Type() string { return "duration" }
