package gate

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/wherry-dev/wherry/bundle/duration"
	"github.com/wherry-dev/wherry/scheduler/promotion"
)

// soakIn returns the environments that have to have had the commit for some time.
func (j judge) soakIn() []string {
	if j.Ring != "" {
		return []string{j.Policy.Environment}
	}
	if len(j.Gate.SoakIn) > 0 {
		return j.Gate.SoakIn
	}
	return []string{j.from()}
}

func (j judge) soak() Rule {
	if j.Gate.Soak <= 0 {
		return pass(RuleSoak, nothing, nothing)
	}
	var has, change []string
	var ends time.Time
	done, absent := true, false
	for _, environment := range j.soakIn() {
		had := soaked(j.Stays[environment], j.now)
		end, present := soakEnd(j.Stays[environment], j.Gate.Soak, j.now)
		has = append(has, fmt.Sprintf("%s %s", environment, length(had)))
		switch {
		case had >= j.Gate.Soak:
			continue
		case present:
			change, ends = append(change, fmt.Sprintf("the soak in %s ends at %s", environment, end.Format(time.RFC3339))), maxTime(ends, end)
		default:
			absent = true
			change = append(change, fmt.Sprintf("%s has to have the commit for %s more", environment, length(j.Gate.Soak-had)))
		}
		done = false
	}
	wants := fmt.Sprintf("%s in %s", length(j.Gate.Soak), strings.Join(j.soakIn(), ", "))
	r := unless(done, Wait, RuleSoak, strings.Join(has, ", "), wants, strings.Join(change, "; "))
	if !absent {
		r.Ends = ends
	}
	return r
}

// soaked returns how long the stays were until now, together. What two of them share counts once.
func soaked(stays []Stay, now time.Time) (sum time.Duration) {
	stays = slices.SortedFunc(slices.Values(stays), func(a, b Stay) int { return a.From.Compare(b.From) })
	var counted time.Time
	for _, s := range stays {
		from, until := s.From, s.Until
		if until.IsZero() || until.After(now) {
			until = now
		}
		if from.Before(counted) {
			from = counted
		}
		if until.After(from) {
			sum, counted = sum+until.Sub(from), until
		}
	}
	return sum
}

// soakEnd returns the moment at which the stays have the length that is wanted if the last one goes on; false if none does.
func soakEnd(stays []Stay, wanted time.Duration, now time.Time) (time.Time, bool) {
	i := slices.IndexFunc(stays, func(s Stay) bool { return s.Until.IsZero() || s.Until.After(now) })
	if i < 0 {
		return time.Time{}, false
	}
	start := now
	if stays[i].From.After(now) { // the clock of whoever signed the record is ahead
		start = stays[i].From
	}
	return start.Add(wanted - soaked(stays, now)).UTC(), true
}

// length writes a duration in whole seconds, or coarser where nothing is lost: 24h and not 24h0m0s.
func length(d time.Duration) string {
	v := duration.Value(d.Truncate(time.Second))
	return v.String()
}

func (j judge) schedule() Rule {
	s := j.Gate.Schedule
	if len(s.Open) == 0 && len(s.Freezes) == 0 {
		return pass(RuleSchedule, nothing, nothing)
	}
	const wants = "open"
	why := closedAt(s, j.now)
	if why == "" {
		return pass(RuleSchedule, "open", wants)
	}
	next, ok := nextOpening(s, j.now)
	if !ok {
		return unless(false, Fail, RuleSchedule, why, wants, "change the schedule: it never opens")
	}
	r := unless(false, Wait, RuleSchedule, why, wants, "it opens at "+next.UTC().Format(time.RFC3339))
	r.Ends = next.UTC()
	return r
}

// closedAt says why a schedule is closed at a moment; empty if it is open.
func closedAt(s promotion.Schedule, at time.Time) string {
	for _, f := range s.Freezes {
		if covers(f, at) {
			return strings.TrimSuffix(fmt.Sprintf("frozen until %s: %s", f.Until.UTC().Format(time.RFC3339), f.Reason), ": ")
		}
	}
	if len(s.Open) == 0 || slices.ContainsFunc(s.Open, func(p promotion.Period) bool { return isIn(p, at) }) {
		return ""
	}
	return "closed"
}

// nextOpening returns the first moment, not before at, at which a schedule is open; false if there is none.
func nextOpening(s promotion.Schedule, at time.Time) (time.Time, bool) {
	// A turn leaves a freeze, or goes to the next period, which is at most one turn before the next freeze.
	for range 2*len(s.Freezes) + 2 {
		if i := slices.IndexFunc(s.Freezes, func(f promotion.Freeze) bool { return covers(f, at) }); i >= 0 {
			at = s.Freezes[i].Until
			continue
		}
		if closedAt(s, at) == "" {
			return at, true
		}
		var opens []time.Time
		for _, p := range s.Open {
			if t, ok := nextStart(p, at); ok {
				opens = append(opens, t)
			}
		}
		if len(opens) == 0 {
			return time.Time{}, false
		}
		at = slices.MinFunc(opens, time.Time.Compare)
	}
	return time.Time{}, false
}

func covers(f promotion.Freeze, at time.Time) bool { return !at.Before(f.From) && at.Before(f.Until) }

// onDay returns a period as it is on the day that begins days after that of a moment, in the period's place. An hour that the day
// lacks, since clocks went forward, is the one after it.
func onDay(p promotion.Period, of time.Time, days int) (from, until time.Time, ok bool) {
	where := cmp.Or(p.Location, time.UTC)
	y, m, d := of.In(where).Date()
	at := func(day int, since time.Duration) time.Time {
		return time.Date(y, m, day, 0, 0, int(since/time.Second), 0, where)
	}
	day := time.Date(y, m, d+days, 12, 0, 0, 0, where).Weekday()
	if len(p.Days) > 0 && !slices.Contains(p.Days, day) {
		return time.Time{}, time.Time{}, false
	}
	from, until = at(d+days, p.Opens), at(d+days, p.Closes)
	if p.Closes < p.Opens {
		until = at(d+days+1, p.Closes)
	}
	return from, until, until.After(from)
}

// isIn reports whether a moment is in a period: in that of its day, or of the day before, which may last over midnight.
func isIn(p promotion.Period, at time.Time) bool {
	for _, days := range []int{-1, 0} {
		if from, until, ok := onDay(p, at, days); ok && !at.Before(from) && at.Before(until) {
			return true
		}
	}
	return false
}

// nextStart returns the first start of a period after a moment.
func nextStart(p promotion.Period, after time.Time) (time.Time, bool) {
	for days := range 15 { // a week, and one more in case clocks leave nothing of a day's period
		if from, _, ok := onDay(p, after, days); ok && from.After(after) {
			return from, true
		}
	}
	return time.Time{}, false
}

// nextLook returns the moment from which no rule waits for time alone; zero if there is none.
func (j judge) nextLook(rules []Rule) time.Time {
	at, waits := j.now, map[string]bool{}
	for _, r := range rules {
		waits[r.Name] = r.Result == Wait
	}
	if waits[RuleSoak] {
		for _, environment := range j.soakIn() {
			end, present := soakEnd(j.Stays[environment], j.Gate.Soak, j.now)
			if soaked(j.Stays[environment], j.now) >= j.Gate.Soak {
				continue
			}
			if !present {
				return time.Time{}
			}
			at = maxTime(at, end)
		}
	}
	if !overridden(rules, RuleSchedule) {
		next, ok := nextOpening(j.Gate.Schedule, at)
		if !ok {
			return time.Time{}
		}
		at = next
	}
	if at.Equal(j.now) {
		return time.Time{}
	}
	return at.UTC()
}

func overridden(rules []Rule, name string) bool {
	return slices.ContainsFunc(rules, func(r Rule) bool { return r.Name == name && r.Overridden != "" })
}

func maxTime(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}
