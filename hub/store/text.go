package store

import (
	"fmt"
	"strings"
	"time"
	"unicode"

	"github.com/wherry-dev/wherry/bundle"
)

// Plain returns s without the characters that could control a terminal or reverse text: it removes control and format
// characters, and replaces line breaks and tabs by spaces. All text of agents becomes plain before it is
// stored, and all text of another hub before it is shown.
func Plain(s string) string {
	if isPlain(s) {
		return s
	}
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

// isPlain reports whether s has printable ASCII alone, as nearly all text of agents has.
func isPlain(s string) bool {
	for i := range len(s) {
		if s[i] < ' ' || s[i] > '~' {
			return false
		}
	}
	return true
}

// PlainLabels returns labels with plain keys and values; nil if there are none.
func PlainLabels(labels map[string]string) map[string]string {
	if len(labels) == 0 {
		return nil
	}
	clean := make(map[string]string, len(labels))
	for k, v := range labels {
		clean[Plain(k)] = Plain(v)
	}
	return clean
}

// Clip returns s, cut to bundle.MaxMessageBytes.
func Clip(s string) string {
	if len(s) <= bundle.MaxMessageBytes && isPlain(s) {
		return s
	}
	return strings.ToValidUTF8(s[:min(len(s), bundle.MaxMessageBytes)], "")
}

// maxMoment is the last second that JSON can carry, in milliseconds since 1970.
const maxMoment = 253402300799_000

// Millis returns a time in the form of stores, in milliseconds since 1970. An agent's clock may be set to any time; a time
// outside the years 1970 to 9999 becomes the nearest end of that range, and 0 means unknown.
func Millis(t time.Time) int64 {
	switch {
	case t.Before(time.UnixMilli(0)):
		return 0
	case t.After(time.UnixMilli(maxMoment)):
		return maxMoment
	}
	return t.UnixMilli()
}

// Moment returns the time that Millis kept; the zero time if it is unknown.
func Moment(ms int64) time.Time {
	if ms == 0 {
		return time.Time{}
	}
	return time.UnixMilli(ms).UTC()
}

// shown returns a state as people read it. The last state of a silent cluster is not its present one.
func shown(state, last bundle.State) string {
	if last != "" {
		return fmt.Sprintf("%s (was %s)", state, last)
	}
	return string(state)
}
