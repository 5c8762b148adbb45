package window

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"
	_ "time/tzdata" // so that no machine's own database is needed

	"github.com/stretchr/testify/require"
)

func TestMaintenanceWindows(t *testing.T) {
	tests := []struct {
		name, window, after string
		opens               []string // in the window's zone
	}{
		{
			"each Saturday", "0 2 * * SAT 4h Europe/Berlin", "2026-11-22T04:00:00Z",
			[]string{"2026-11-28T02:00:00+01:00", "2026-12-05T02:00:00+01:00"},
		},
		{
			"in UTC, where no zone is named", "30 22 1,15 * * 90m", "2026-11-22T04:00:00Z",
			[]string{"2026-12-01T22:30:00Z", "2026-12-15T22:30:00Z"},
		},
		{
			"not at the moment itself", "0 2 * * * 1h", "2026-11-22T02:00:00Z",
			[]string{"2026-11-23T02:00:00Z"},
		},
		{
			"an hour that is skipped counts when it is", "30 2 * * * 1h Europe/Berlin", "2026-03-28T12:00:00Z",
			[]string{"2026-03-29T03:00:00+02:00", "2026-03-30T02:30:00+02:00"},
		},
		{
			"several that are skipped are one", "0,20,40 2,3 * * * 5m Europe/Berlin", "2026-03-29T00:59:00Z",
			[]string{"2026-03-29T03:00:00+02:00", "2026-03-29T03:20:00+02:00"},
		},
		{
			"an hour that comes twice counts twice", "30 2 * * * 20m Europe/Berlin", "2026-10-24T12:00:00Z",
			[]string{"2026-10-25T02:30:00+02:00", "2026-10-25T02:30:00+01:00", "2026-10-26T02:30:00+01:00"},
		},
		{
			"half an hour that comes twice", "45 1 * * * 10m Australia/Lord_Howe", "2026-04-04T12:00:00Z",
			[]string{"2026-04-05T01:45:00+11:00", "2026-04-05T01:45:00+10:30", "2026-04-06T01:45:00+10:30"},
		},
		{
			"a day that was skipped", "0 12 30 12 * 1h Pacific/Apia", "2011-12-01T00:00:00Z",
			[]string{"2011-12-31T00:00:00+14:00", "2012-12-30T12:00:00+14:00"},
		},
		{
			"days of the month or of the week", "0 0 13 * FRI 1h", "2026-11-01T00:00:00Z",
			[]string{"2026-11-06T00:00:00Z", "2026-11-13T00:00:00Z", "2026-11-20T00:00:00Z", "2026-11-27T00:00:00Z", "2026-12-04T00:00:00Z", "2026-12-11T00:00:00Z", "2026-12-13T00:00:00Z"},
		},
		{
			"days of the month and of the week, with a star", "0 0 */2 * FRI 1h", "2026-11-01T00:00:00Z",
			[]string{"2026-11-13T00:00:00Z", "2026-11-27T00:00:00Z", "2026-12-11T00:00:00Z"},
		},
		{
			"a leap year's day on a Sunday", "0 0 29 2 */7 1h", "2076-01-01T00:00:00Z",
			[]string{"2088-02-29T00:00:00Z", "2128-02-29T00:00:00Z"},
		},
		{
			"a week that ends with Sunday", "0 0 * * sat-sun 1h", "2026-11-22T04:00:00Z",
			[]string{"2026-11-28T00:00:00Z", "2026-11-29T00:00:00Z", "2026-12-05T00:00:00Z"},
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			w, err := ParseMaintenance(test.window)
			require.NoError(t, err)
			at, err := time.Parse(time.RFC3339, test.after)
			require.NoError(t, err)
			for _, want := range test.opens {
				require.False(t, w.Open(at) && !at.Add(time.Minute).Before(w.Opens(at)))
				at = w.Opens(at)
				require.Equal(t, want, at.Format(time.RFC3339))
				require.True(t, w.Open(at))
				require.True(t, w.Open(at.Add(w.lasts-time.Nanosecond)))
			}
		})
	}
}

func TestMaintenanceWindowsThatAreNone(t *testing.T) {
	for text, want := range map[string]string{
		"":                                "is not minute, hour,",
		"0 2 * * SAT":                     "is not minute, hour,",
		"0 2 * * SAT 4h Europe/Berlin x":  "is not minute, hour,",
		"60 2 * * SAT 4h":                 `minute: "60" is not a number from 0 to 59`,
		"0 2 * * SAX 4h":                  `day of the week: "SAX" is not a number from 0 to 7 or a name from SUN to SAT`,
		"0 2 0 * * 4h":                    `day of the month: "0" is not a number from 1 to 31`,
		"0 2 * 13 * 4h":                   `month: "13" is not a number from 1 to 12 or a name from JAN to DEC`,
		"0 +2 * * * 4h":                   `hour: "+2" is not a number`,
		"0 5-3 * * * 4h":                  `hour: "5-3" ends before it begins: write two ranges`,
		"0 2/3 * * * 4h":                  `hour: "2/3": a step needs a range or *`,
		"0 */0 * * * 4h":                  `hour: "*/0": the step is not a number from 1 to 23`,
		"0 1,,2 * * * 4h":                 `hour: "" is not a number`,
		"0 2 30 FEB * 4h":                 `"0 2 30 FEB *" is never`,
		"0 2 * * SAT 4":                   `"4" is not a duration from 1m to 31d, such as 90m or 12h`,
		"0 2 * * SAT 59s":                 `"59s" is not a duration from 1m to 31d, such as 90m or 12h`,
		"0 2 * * SAT 745h":                `"745h" is not a duration from 1m to 31d, such as 90m or 12h`,
		"0 2 * * SAT 4h Europe/Nowhere":   `time zone "Europe/Nowhere" is not known on this machine: install the package tzdata, or write UTC`,
		"0 2 * * SAT 4h ../../etc/passwd": `time zone "../../etc/passwd" is not known`,
		"0 2 * * SAT 4h Local":            `time zone "Local" differs between machines`,
	} {
		_, err := ParseMaintenance(text)
		require.ErrorContains(t, err, want)
	}
}

// ranges writes a set of numbers as a field of ranges, lists, steps or names, whatever comes up.
func ranges(r *rand.Rand, f cronField) (text string, set map[int]bool) {
	set = map[int]bool{}
	last := f.max
	if f.max == 7 {
		last = 6
	}
	if r.IntN(3) == 0 {
		step := 1 + r.IntN(f.max)
		for n := f.least; n <= last; n += step {
			set[n] = true
		}
		if f.max == 7 && 7%step == 0 {
			set[0] = true
		}
		if step == 1 {
			return "*", set
		}
		return fmt.Sprintf("*/%d", step), set
	}
	name := func(n int) string {
		if f.names != nil && r.IntN(2) == 0 {
			return f.names[n-f.least]
		}
		return fmt.Sprint(n)
	}
	var parts []string
	for range 1 + r.IntN(3) {
		a := f.least + r.IntN(last-f.least+1)
		b, step := a+r.IntN(last-a+1), 1+r.IntN(3)
		switch r.IntN(3) {
		case 0:
			b, step = a, 1
			parts = append(parts, name(a))
		case 1:
			step = 1
			parts = append(parts, name(a)+"-"+name(b))
		default:
			parts = append(parts, fmt.Sprintf("%s-%s/%d", name(a), name(b), step))
		}
		for n := a; n <= b; n += step {
			set[n] = true
		}
	}
	return strings.Join(parts, ","), set
}

// Each minute of some days around a change of the clocks is judged by what a clock on the wall shows.
func TestWindowsOpenWhenTheClockOnTheWallShowsIt(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 2))
	zones := []string{"UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Kolkata", "America/St_Johns", "Pacific/Apia", "Africa/Casablanca", "America/Sao_Paulo"}
	opened := 0
	for range 100 {
		var texts [5]string
		var sets [5]map[int]bool
		for i, f := range cronFields {
			texts[i], sets[i] = ranges(r, f)
		}
		lasts := time.Duration(1+r.IntN(300)) * time.Minute
		zone, err := time.LoadLocation(zones[r.IntN(len(zones))])
		require.NoError(t, err)
		text := fmt.Sprintf("%s %dm %s", strings.Join(texts[:], " "), lasts/time.Minute, zone)
		w, err := ParseMaintenance(text)
		if err != nil {
			require.ErrorContains(t, err, "is never")
			continue
		}
		both := texts[2][0] == '*' || texts[4][0] == '*'
		shows := func(wall time.Time) bool {
			inMonth, inWeek := sets[2][wall.Day()], sets[4][int(wall.Weekday())]
			return sets[0][wall.Minute()] && sets[1][wall.Hour()] && sets[3][int(wall.Month())] && (inMonth && inWeek || !both && (inMonth || inWeek))
		}
		begin := time.Date(2005+r.IntN(30), time.Month(1+r.IntN(12)), 1+r.IntN(28), 0, 0, 0, 0, zone)
		if _, leap := begin.ZoneBounds(); !leap.IsZero() && r.IntN(4) > 0 {
			begin = leap.Add(-30 * time.Hour).Truncate(time.Minute)
		}
		var openings []time.Time
		before := naive(begin.Add(-time.Minute))
		for at := begin; at.Before(begin.Add(60 * time.Hour)); at = at.Add(time.Minute) {
			wall, opens := naive(at), false
			for skipped := before.Add(time.Minute); skipped.Before(wall) && !opens; skipped = skipped.Add(time.Minute) {
				opens = shows(skipped)
			}
			if opens || shows(wall) {
				openings = append(openings, at)
			}
			before = wall
		}
		for at, i := begin.Add(-time.Minute), 0; i < len(openings); i++ {
			at = w.Opens(at)
			require.True(t, at.Equal(openings[i]), "%s: %s, and not %s", text, at, openings[i])
			opened++
		}
		for range 200 {
			at := begin.Add(5*time.Hour + rand.N(55*time.Hour))
			want := slices.ContainsFunc(openings, func(o time.Time) bool { return !o.After(at) && at.Before(o.Add(lasts)) })
			require.Equal(t, want, w.Open(at), "%s at %s", text, at)
		}
	}
	require.Greater(t, opened, 300)
}

// naive is what the clock shows at t, in parts.
func naive(t time.Time) time.Time {
	return time.Date(t.Year(), t.Month(), t.Day(), t.Hour(), t.Minute(), 0, 0, time.UTC)
}

func FuzzMaintenanceWindow(f *testing.F) {
	for _, seed := range []string{"0 2 * * SAT 4h Europe/Berlin", "*/5 1-23/2 1,15 JAN-MAR MON,sun 90m", "0 0 29 2 */7 1h UTC", "59 23 31 12 7 744h"} {
		f.Add(seed, int64(0))
	}
	f.Fuzz(func(t *testing.T, text string, unix int64) {
		w, err := ParseMaintenance(text)
		if err != nil {
			return
		}
		again, err := ParseMaintenance(w.String())
		require.NoError(t, err)
		require.Equal(t, w, again)
		at := time.Unix(unix%(1<<33), 0) // some three hundred years
		opens := w.Opens(at)
		require.True(t, opens.After(at))
		require.True(t, w.Open(opens))
	})
}
