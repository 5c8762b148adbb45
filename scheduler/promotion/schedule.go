package promotion

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/wherry-dev/wherry/scheduler/kinds"
)

func (r *reader) schedule(s kinds.PromotionSchedule) Schedule {
	read, zone := Schedule{}, time.UTC
	if name := s.TimeZone.Value; name != "" {
		var err error
		if zone, err = time.LoadLocation(name); err != nil || name == "Local" {
			r.mistake(s.TimeZone.Line, "write a name such as Europe/Berlin", "there is no time zone %q", name)
			zone = time.UTC
		}
	}
	if !r.fits(s.Line, "periods", len(s.Open)) || !r.fits(s.Line, "freezes", len(s.Freeze)) {
		return read
	}
	for _, open := range s.Open {
		p, err := parsePeriod(open.Value)
		if err != nil {
			r.mistake(open.Line, `write it as "Mon-Thu 08:00-16:00"`, "open: %v", err)
			continue
		}
		if p.Location = zone; p.Opens == p.Closes {
			r.unreachable(open.Line, "", "open: %q has no minute", open.Value)
		}
		read.Open = append(read.Open, p)
	}
	for i := range s.Freeze {
		if f, ok := r.freeze(&s.Freeze[i], zone); ok {
			read.Freezes = append(read.Freezes, f)
		}
	}
	return read
}

func (r *reader) freeze(f *kinds.PromotionFreeze, zone *time.Location) (Freeze, bool) {
	before := len(r.errs)
	read := Freeze{From: r.moment(f.From, zone), Until: r.moment(f.Until, zone), Reason: f.Reason.Value}
	switch {
	case f.From.Value == "":
		r.mistake(f.Line, "give from", "a freeze has no beginning")
	case f.Until.Value == "":
		r.unreachable(f.Line, "give until", "a freeze has no end, so that the gate never opens again")
	case len(r.errs) == before && !read.Until.After(read.From):
		r.mistake(f.Until.Line, "until is the moment at which the freeze is over", "a freeze ends at %s, which is not after %s", f.Until.Value, f.From.Value)
	}
	return read, len(r.errs) == before
}

// moment reads a date or a time. The zero time is that of an empty text or of a mistake.
func (r *reader) moment(t kinds.Text, zone *time.Location) time.Time {
	if t.Value == "" {
		return time.Time{}
	}
	if date, err := time.ParseInLocation(time.DateOnly, t.Value, zone); err == nil {
		return date
	}
	at, err := time.Parse(time.RFC3339, t.Value)
	if err != nil {
		r.mistake(t.Line, "write a date, such as 2026-12-20, or a time, such as 2026-12-20T18:00:00+01:00", "freeze: %q is not a date", t.Value)
	}
	return at
}

// weekdays are the days as people write them, by [time.Weekday].
var weekdays = [...]string{"Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"}

// parsePeriod reads days, times or both: "Mon-Thu 08:00-16:00", "Sat,Sun", "22:00-04:00".
func parsePeriod(s string) (Period, error) {
	p := Period{Closes: 24 * time.Hour}
	days, hours, both := strings.Cut(s, " ")
	if !both && strings.Contains(s, ":") {
		days, hours = "", s
	}
	if days != "" || hours == "" {
		var err error
		if p.Days, err = parseDays(days); err != nil {
			return p, fmt.Errorf("%q: %w", s, err)
		}
	}
	if hours == "" && !both {
		return p, nil
	}
	opens, closes, ok := strings.Cut(hours, "-")
	from, ok1 := clockTime(opens)
	to, ok2 := clockTime(closes)
	if !ok || !ok1 || !ok2 {
		return p, fmt.Errorf("%q: %q is not a time from 00:00 to 24:00", s, hours)
	}
	p.Opens, p.Closes = from, to
	return p, nil
}

// parseDays reads days and ranges of days, which may go over the end of the week. Each day is returned once, Sunday first.
func parseDays(s string) ([]time.Weekday, error) {
	var open [7]bool
	for part := range strings.SplitSeq(s, ",") {
		first, last, isRange := strings.Cut(part, "-")
		if !isRange {
			last = first
		}
		from, to := slices.Index(weekdays[:], first), slices.Index(weekdays[:], last)
		if from < 0 || to < 0 {
			return nil, fmt.Errorf("%q is not a day: write Mon, Tue, Wed, Thu, Fri, Sat or Sun", part)
		}
		for day := from; ; day = (day + 1) % 7 {
			if open[day] = true; day == to {
				break
			}
		}
	}
	var days []time.Weekday
	for day, isOpen := range open {
		if isOpen {
			days = append(days, time.Weekday(day))
		}
	}
	return days, nil
}

// clockTime reads a time of the day as HH:MM, 24:00 included.
func clockTime(s string) (time.Duration, bool) {
	if len(s) != len("08:00") || s[2] != ':' {
		return 0, false
	}
	hour, err1 := strconv.ParseUint(s[:2], 10, 8)
	minute, err2 := strconv.ParseUint(s[3:], 10, 8)
	d := time.Duration(hour)*time.Hour + time.Duration(minute)*time.Minute
	return d, err1 == nil && err2 == nil && minute < 60 && d <= 24*time.Hour
}
