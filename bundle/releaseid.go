package bundle

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/opencontainers/go-digest"

	"github.com/wherry-dev/wherry/bundle/lazyregexp"
)

// maxNumber bounds the number of a release, which people read and write. The release after it has number 1.
const maxNumber = 999_999_999

// NextNumber returns the number of the release after last, the newest verified release of its stream in any epoch. It is
// 1 if last is nil. No decision depends on numbers: they begin again if a registry's history is lost.
func NextNumber(last *Verified) int64 {
	if last == nil {
		return 1
	}
	return last.Release.Number%maxNumber + 1
}

// shortDigits is the number of digits of a digest in a short name; minDigits is the fewest that a query may have.
const (
	shortDigits = 8
	minDigits   = 6
	// distinctDigits is the number of digits that tell apart releases with the same short name.
	distinctDigits = 16
)

// ReleaseName returns the short name of a release, such as "12 (68846e7d)": its number and the first digits of its
// manifest's digest. A release without a number has the digits alone. The name is empty if the digest is.
func ReleaseName(number int64, d digest.Digest) string { return releaseName(number, d, shortDigits) }

func releaseName(number int64, d digest.Digest, digits int) string {
	_, hex, ok := strings.Cut(string(d), ":")
	if !ok {
		hex = string(d)
	}
	hex = hex[:min(len(hex), digits)]
	if number == 0 || hex == "" {
		return hex
	}
	return fmt.Sprintf("%d (%s)", number, hex)
}

// ReleaseID holds everything by which a person may name a release.
type ReleaseID struct {
	Number   int64
	Epoch    int64
	Sequence int64
	IssuedAt time.Time
	Digest   digest.Digest // of the manifest
}

// IDOf returns the ReleaseID of release r, whose manifest has digest d.
func IDOf(r Release, d digest.Digest) ReleaseID {
	return ReleaseID{Number: r.Number, Epoch: r.Epoch, Sequence: r.Sequence, IssuedAt: r.IssuedAt, Digest: d}
}

// String returns the release's short name.
func (id ReleaseID) String() string { return ReleaseName(id.Number, id.Digest) }

// ReleaseQuery finds a release by a name that a person gave. If the name can be read in several ways, the first reading
// that matches a release counts.
type ReleaseQuery struct {
	text string
	ways []releaseWay
}

// releaseWay is one reading of a query.
type releaseWay struct {
	matches func(ReleaseID) bool
	// lastEpoch passes over all but the newest epoch: sequences begin again with each.
	lastEpoch bool
}

var (
	queryShort  = lazyregexp.New(`^([0-9]{1,9}) \(([0-9a-f]{6,64})\)$`)
	queryTag    = lazyregexp.New(`^s?([0-9]{1,19})-([0-9]{1,19})$`)
	queryNumber = lazyregexp.New(`^(s?)([0-9]{1,19})$`)
	queryHex    = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(fmt.Sprintf(`^(?:[a-z0-9]+:)?[0-9a-f]{%d,128}$`, minDigits))
	})
)

// ParseReleaseQuery parses a name of a release: its number, at least the first 6 digits of its manifest's digest, with or
// without "sha256:" before them, the whole digest, its tag such as s0-1795262400, with or without the s, its sequence, or
// its short name, such as "12 (68846e7d)".
func ParseReleaseQuery(text string) (ReleaseQuery, error) {
	q := ReleaseQuery{text: text}
	add := func(matches func(ReleaseID) bool) { q.ways = append(q.ways, releaseWay{matches: matches}) }
	if m := queryShort.FindStringSubmatch(text); m != nil {
		add(func(id ReleaseID) bool { return strconv.FormatInt(id.Number, 10) == m[1] && id.begins(m[2]) })
	}
	if m := queryTag.FindStringSubmatch(text); m != nil {
		epoch, err1 := strconv.ParseInt(m[1], 10, 64)
		sequence, err2 := strconv.ParseInt(m[2], 10, 64)
		if err1 == nil && err2 == nil && sequence > 0 {
			add(func(id ReleaseID) bool { return id.Epoch == epoch && id.Sequence == sequence })
		}
	}
	if m := queryNumber.FindStringSubmatch(text); m != nil {
		if n, err := strconv.ParseInt(m[2], 10, 64); err == nil && n > 0 {
			if m[1] == "" {
				add(func(id ReleaseID) bool { return id.Number == n })
			}
			q.ways = append(q.ways, releaseWay{func(id ReleaseID) bool { return id.Sequence == n }, true})
		}
	}
	if queryHex().MatchString(text) {
		add(func(id ReleaseID) bool { return id.begins(text) })
	}
	if len(q.ways) == 0 {
		return q, fmt.Errorf("%q does not name a release: write its number, its tag s<epoch>-<sequence>, or its digest, whole or at least the first %d digits", text, minDigits)
	}
	return q, nil
}

// begins reports whether the digest of id begins with text, with or without the algorithm.
func (id ReleaseID) begins(text string) bool {
	if strings.Contains(text, ":") {
		return strings.HasPrefix(string(id.Digest), text)
	}
	return id.Digest.Validate() == nil && strings.HasPrefix(id.Digest.Encoded(), text)
}

// Find returns the index of the release in known that q names, or -1 if q names none. The error is an *AmbiguousError if
// q names releases with different digests.
func (q ReleaseQuery) Find(known []ReleaseID, now time.Time) (int, error) {
	for _, way := range q.ways {
		found, epoch := []int{}, int64(-1)
		for i, id := range known {
			if !way.matches(id) || way.lastEpoch && id.Epoch < epoch {
				continue
			}
			if way.lastEpoch && id.Epoch > epoch {
				found, epoch = nil, id.Epoch
			}
			found = append(found, i)
		}
		if len(found) == 0 {
			continue
		}
		ambiguous := &AmbiguousError{Text: q.text, now: now}
		for _, i := range found {
			ambiguous.Candidates = append(ambiguous.Candidates, known[i])
		}
		for _, c := range ambiguous.Candidates {
			if c.Digest != ambiguous.Candidates[0].Digest {
				return -1, ambiguous
			}
		}
		return found[0], nil
	}
	return -1, nil
}

// AmbiguousError means that a query names several releases.
type AmbiguousError struct {
	Text       string
	Candidates []ReleaseID
	now        time.Time
}

// maxCandidates bounds the releases that an AmbiguousError lists.
const maxCandidates = 8

func (e *AmbiguousError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%q names %d releases", e.Text, len(e.Candidates))
	for i, c := range e.Candidates[:min(len(e.Candidates), maxCandidates)] {
		sep := ", "
		if i == 0 {
			sep = ": "
		}
		fmt.Fprintf(&b, "%s%s, issued %s ago", sep, releaseName(c.Number, c.Digest, distinctDigits), Age(e.now.Sub(c.IssuedAt)))
	}
	if n := len(e.Candidates) - maxCandidates; n > 0 {
		fmt.Fprintf(&b, ", and %d more", n)
	}
	return b.String()
}

// Age formats a duration for people, in one unit: "40s", "5m", "30h", "3d". A negative duration is 0s.
func Age(d time.Duration) string {
	switch {
	case d < time.Minute:
		return fmt.Sprintf("%ds", max(0, d)/time.Second)
	case d < time.Hour:
		return fmt.Sprintf("%dm", d/time.Minute)
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh", d/time.Hour)
	}
	return fmt.Sprintf("%dd", d/(24*time.Hour))
}

// Ago formats the time from t to now with Age: "now", "5m ago", "3d ago". The zero time is "never".
func Ago(t, now time.Time) string {
	d := now.Sub(t)
	switch {
	case t.IsZero():
		return "never"
	case d < time.Second:
		return "now"
	}
	return Age(d) + " ago"
}

// soon is the time before expiry at which a release counts as expiring soon, unless a third of its validity is less.
const soon = 14 * 24 * time.Hour

// Expiry describes the expiry of a release, seen from one moment.
type Expiry struct {
	// Expired means that only agents that have accepted the release already may still run it.
	Expired bool
	// Soon means that it expires within 14 days, or within a third of its validity where that is less.
	Soon bool
	// Text is "in 40d", or "expired 2d ago".
	Text string
}

// Expiry returns the expiry of r, seen from now.
func (r Release) Expiry(now time.Time) Expiry { return ExpiryOf(r.IssuedAt, r.ExpiresAt, now) }

// ExpiryOf returns the expiry of a release with the given times, seen from now.
func ExpiryOf(issued, expires, now time.Time) Expiry {
	left := expires.Sub(now)
	if left <= 0 {
		return Expiry{Expired: true, Text: "expired " + Age(-left) + " ago"}
	}
	return Expiry{Soon: left <= min(soon, expires.Sub(issued)/3), Text: "in " + Age(left)}
}
