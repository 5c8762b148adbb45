package window

import (
	"fmt"
	"strings"
	"time"

	"github.com/wherry-dev/wherry/bundle/duration"
)

// maxMaintenance bounds how long a window stays open: it may be opened each month.
const maxMaintenance = 31 * day

// Maintenance is a window in which a cluster may be changed. It opens whenever the clock of its zone shows a
// minute of its pattern: twice where that hour comes twice, and at the moment in which the clock leaps over it. ParseMaintenance makes one.
type Maintenance struct {
	opens cron
	lasts time.Duration
	zone  *time.Location
	text  string
}

// ParseMaintenance reads the five fields of crontab(5), how long the window stays open, as
// duration.Parse has it, and the name of a time zone as in IANA's database, which is UTC where it is left out:
// "0 2 * * SAT 4h Europe/Berlin". Zones other than UTC are the system's.
func ParseMaintenance(text string) (w Maintenance, err error) {
	words := strings.Fields(text)
	n := len(cronFields)
	if len(words) != n+1 && len(words) != n+2 {
		return w, fmt.Errorf("%q is not minute, hour, day of the month, month, day of the week, time and zone", text)
	}
	if w.opens, err = parseCron(words[:n]); err != nil {
		return w, err
	}
	w.lasts, err = duration.Parse(words[n])
	if err != nil || w.lasts < time.Minute || w.lasts > maxMaintenance {
		return w, fmt.Errorf("%q is not a duration from 1m to %dd, such as 90m or 12h", words[n], maxMaintenance/day)
	}
	w.zone, w.text = time.UTC, w.opens.text+" "+words[n]
	if len(words) == n+1 {
		return w, nil
	}
	name := words[n+1]
	if name == "Local" {
		return w, fmt.Errorf("time zone %q differs between machines: expected a name such as Europe/Berlin", name)
	}
	if w.zone, err = time.LoadLocation(name); err != nil {
		return w, fmt.Errorf("time zone %q is not known on this machine: install the package tzdata, or write UTC", name)
	}
	w.text += " " + name
	return w, nil
}

// String is what ParseMaintenance reads.
func (w Maintenance) String() string { return w.text }

// Open reports whether the cluster may be changed at t.
func (w Maintenance) Open(t time.Time) bool {
	opened := w.Opens(t.Add(-w.lasts))
	return !opened.IsZero() && !opened.After(t)
}

// Opens is when the window opens for the first time after t.
func (w Maintenance) Opens(t time.Time) time.Time {
	t = t.In(w.zone)
	wall := wallClock(t).Truncate(time.Minute).Add(time.Minute)
	for {
		_, offset := t.Zone()
		_, leap := t.ZoneBounds()
		found, ok := w.opens.next(wall)
		at := found.Add(-time.Duration(offset) * time.Second)
		switch {
		case !ok:
			return time.Time{}
		case leap.IsZero() || at.Before(leap):
			return at.In(w.zone)
		case found.Before(wallClock(leap)): // the clock leaps over it
			return leap
		}
		t, wall = leap, wallClock(leap)
	}
}

// wallClock is what a clock shows at t, as a time of UTC.
func wallClock(t time.Time) time.Time {
	_, offset := t.Zone()
	return t.UTC().Add(time.Duration(offset) * time.Second)
}
