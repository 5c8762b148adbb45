package window

import (
	"errors"
	"fmt"
	"math/bits"
	"slices"
	"strconv"
	"strings"
	"time"
)

// cron is a set of minutes, written in five fields as in crontab(5).
type cron struct {
	text                                   string
	minutes, hours, days, months, weekdays uint64 // bits by number; of the week from Sunday, 0
	// bothDays is true where a day has to be right in the month and in the week, and not in either.
	bothDays bool
}

type cronField struct {
	name       string
	least, max int
	names      []string // of the numbers from least
}

var cronFields = [...]cronField{
	{"minute", 0, 59, nil},
	{"hour", 0, 23, nil},
	{"day of the month", 1, 31, nil},
	{"month", 1, 12, []string{"JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"}},
	{"day of the week", 0, 7, []string{"SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"}},
}

// cronYears is how long one may have to wait for a minute: forty years for a 29 February that is a certain day of
// the week, with 2100 between, which has none.
const cronYears = 41

func parseCron(fields []string) (c cron, err error) {
	var sets [len(cronFields)]uint64
	if len(fields) != len(sets) {
		return c, fmt.Errorf("%q has not the five fields minute, hour, day of the month, month, day of the week", strings.Join(fields, " "))
	}
	for i, f := range cronFields {
		if sets[i], err = f.set(strings.ToUpper(fields[i])); err != nil {
			return c, fmt.Errorf("%s: %w", f.name, err)
		}
	}
	c = cron{text: strings.ToUpper(strings.Join(fields, " ")), minutes: sets[0], hours: sets[1], days: sets[2], months: sets[3]}
	c.weekdays = sets[4]&^(1<<7) | sets[4]>>7 // Sunday is 7 as well
	// So crontab(5) has it where one of them begins with a star.
	c.bothDays = strings.HasPrefix(fields[2], "*") || strings.HasPrefix(fields[4], "*")
	if _, ok := c.next(time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)); !ok {
		return c, fmt.Errorf("%q is never", c.text)
	}
	return c, nil
}

// set reads a list of numbers, names, ranges and steps.
func (f cronField) set(text string) (set uint64, err error) {
	for part := range strings.SplitSeq(text, ",") {
		span, stepText, stepped := strings.Cut(part, "/")
		step := 1
		if stepped {
			if step, err = number(stepText); err != nil || step < 1 || step > f.max {
				return 0, fmt.Errorf("%q: the step is not a number from 1 to %d", part, f.max)
			}
		}
		from, to, ranged := strings.Cut(span, "-")
		first, last := f.least, f.max
		if span != "*" {
			if first, err = f.value(from); err != nil {
				return 0, err
			}
			if last = first; ranged {
				if last, err = f.value(to); err != nil {
					return 0, err
				}
			}
		}
		if f.max == 7 && ranged && last == 0 && first > 0 { // a week that ends with Sunday
			last = 7
		}
		switch {
		case stepped && !ranged && span != "*":
			return 0, fmt.Errorf("%q: a step needs a range or *", part)
		case first > last:
			return 0, fmt.Errorf("%q ends before it begins: write two ranges", part)
		}
		for n := first; n <= last; n += step {
			set |= 1 << n
		}
	}
	return set, nil
}

func (f cronField) value(text string) (int, error) {
	if i := slices.Index(f.names, text); i >= 0 {
		return f.least + i, nil
	}
	n, err := number(text)
	if err != nil || n < f.least || n > f.max {
		names := ""
		if f.names != nil {
			names = fmt.Sprintf(" or a name from %s to %s", f.names[0], f.names[len(f.names)-1])
		}
		return 0, fmt.Errorf("%q is not a number from %d to %d%s", text, f.least, f.max, names)
	}
	return n, nil
}

// number reads digits, and no sign.
func number(text string) (int, error) {
	if text == "" || len(text) > 2 || strings.Trim(text, "0123456789") != "" {
		return 0, errors.New("no number")
	}
	return strconv.Atoi(text)
}

// onDay reports whether a day has minutes of c.
func (c cron) onDay(month time.Month, day int, weekday time.Weekday) bool {
	inMonth, inWeek := c.days>>day&1 == 1, c.weekdays>>weekday&1 == 1
	if c.bothDays {
		return c.months>>month&1 == 1 && inMonth && inWeek
	}
	return c.months>>month&1 == 1 && (inMonth || inWeek)
}

// next returns the first minute of c that is not before t, whose date and time of the day are taken as they are,
// without a zone.
func (c cron) next(t time.Time) (time.Time, bool) {
	if whole := t.Truncate(time.Minute); whole.Before(t) {
		t = whole.Add(time.Minute)
	}
	hour, minute := t.Hour(), t.Minute()
	for range cronYears * 366 {
		if c.onDay(t.Month(), t.Day(), t.Weekday()) {
			if m := atLeast(c.minutes, minute); c.hours>>hour&1 == 1 && m < 60 {
				return time.Date(t.Year(), t.Month(), t.Day(), hour, m, 0, 0, time.UTC), true
			}
			if h := atLeast(c.hours, hour+1); h < 24 {
				return time.Date(t.Year(), t.Month(), t.Day(), h, atLeast(c.minutes, 0), 0, 0, time.UTC), true
			}
		}
		t = time.Date(t.Year(), t.Month(), t.Day()+1, 0, 0, 0, 0, time.UTC)
		hour, minute = 0, 0
	}
	return time.Time{}, false
}

// atLeast is the first number of a set from n on, 64 where there is none.
func atLeast(set uint64, n int) int { return bits.TrailingZeros64(set >> n << n) }
