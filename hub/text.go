package hub

import (
	"database/sql"
	"fmt"
	"regexp"
	"strings"
	"time"
	"unicode"

	"github.com/wherry-dev/wherry/bundle"
)

// plain returns s without what could command a terminal or turn text around: control and format
// characters go, line breaks and tabs become spaces. Everything that agents say passes through here
// before it is stored, and what another hub says before it is shown.
func plain(s string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\n' || r == '\r' || r == '\t':
			return ' '
		case unicode.IsControl(r), unicode.Is(unicode.Cf, r), unicode.Is(unicode.Zl, r), unicode.Is(unicode.Zp, r):
			return -1
		}
		return r
	}, strings.ToValidUTF8(s, "\uFFFD"))
}

// plainLabels is plain for the keys and values of labels.
func plainLabels(labels map[string]string) map[string]string {
	if len(labels) == 0 {
		return nil
	}
	clean := make(map[string]string, len(labels))
	for k, v := range labels {
		clean[plain(k)] = plain(v)
	}
	return clean
}

// maxMoment is the last second that JSON can carry, in milliseconds since 1970.
const maxMoment = 253402300799_000

// millis is how the database keeps a time. An agent's clock may say anything; what lies outside the
// years 1970 to 9999 becomes the nearest of their ends, and 0 means unknown.
func millis(t time.Time) int64 {
	switch {
	case t.Before(time.UnixMilli(0)):
		return 0
	case t.After(time.UnixMilli(maxMoment)):
		return maxMoment
	}
	return t.UnixMilli()
}

// moment is the time that millis kept; the zero time where it is unknown.
func moment(ms int64) time.Time {
	if ms == 0 {
		return time.Time{}
	}
	return time.UnixMilli(ms).UTC()
}

// Ago says how long before now t was, as people do, in one unit: "now", "5m ago", "3d ago". The zero
// time is "never".
func Ago(t, now time.Time) string {
	d := now.Sub(t)
	switch {
	case t.IsZero():
		return "never"
	case d < time.Second:
		return "now"
	}
	return bundle.Age(d) + " ago"
}

// digestLike matches a whole digest, and a commit.
var digestLike = regexp.MustCompile(`(?:^|@)(?:[a-z0-9]+:)?[0-9a-f]{40,}$`)

// ShownVersion is a workload's version as lists show it. One that is a digest says nothing to people, and is not shown.
func ShownVersion(version string) string {
	if digestLike.MatchString(version) {
		return ""
	}
	return version
}

// shown is a state as people read it: the last word of a silent cluster is not its present.
func shown(state, was bundle.State) string {
	if was != "" {
		return fmt.Sprintf("%s (was %s)", state, was)
	}
	return string(state)
}

// momentOf is moment for a column that may be NULL.
func momentOf(ms sql.NullInt64) *time.Time {
	if !ms.Valid {
		return nil
	}
	t := moment(ms.Int64)
	return &t
}
