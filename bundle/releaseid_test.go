package bundle

import (
	"strings"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"
	"github.com/stretchr/testify/require"
)

// idOf is a release whose digest begins with hex.
func idOf(number, epoch, sequence int64, hex string) ReleaseID {
	return ReleaseID{
		Number: number, Epoch: epoch, Sequence: sequence, IssuedAt: time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC),
		Digest: digest.NewDigestFromEncoded(digest.SHA256, hex+strings.Repeat("0", 64-len(hex))),
	}
}

func TestFindReleaseByWhatPeopleCallIt(t *testing.T) {
	known := []ReleaseID{
		idOf(13, 1, 7, "9abcdef0"),
		idOf(12, 1, 6, "68846e7d"),
		idOf(11, 1, 5, "68846eff"),
		idOf(0, 0, 1795262400, "12345678"),
		idOf(3, 0, 6, "cafecafe"),
		idOf(3, 0, 5, "cafecaff"),
	}
	now := known[0].IssuedAt.Add(72 * time.Hour)
	tests := []struct {
		name, text string
		want       int // -1 for none
		ambiguous  int
	}{
		{name: "by number", text: "12", want: 1},
		{name: "by short name", text: "12 (68846e7d)", want: 1},
		{name: "by short name whose parts do not go together", text: "11 (68846e7d)", want: -1},
		{name: "by eight digits", text: "68846e7d", want: 1},
		{name: "by digits after the algorithm", text: "sha256:9abcde", want: 0},
		{name: "by the whole digest", text: string(known[3].Digest), want: 3},
		{name: "by tag", text: "s0-6", want: 4},
		{name: "by epoch and sequence", text: "1-5", want: 2},
		{name: "by sequence", text: "1795262400", want: 3},
		{name: "by a sequence that two epochs have, the newest", text: "6", want: 1},
		{name: "by the sequence of a tag", text: "s7", want: 0},
		{name: "digits that are no number may begin a digest", text: "123456", want: 3},
		{name: "a number comes before a sequence", text: "3", ambiguous: 2},
		{name: "two digests begin so", text: "68846e", ambiguous: 2},
		{name: "another algorithm", text: "sha512:9abcde", want: -1},
		{name: "none", text: "99", want: -1},
		{name: "none has this tag", text: "s0-99", want: -1},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			q, err := ParseReleaseQuery(tt.text)
			require.NoError(t, err)
			got, err := q.Find(known, now)
			if tt.ambiguous > 0 {
				var ambiguous *AmbiguousError
				require.ErrorAs(t, err, &ambiguous)
				require.Len(t, ambiguous.Candidates, tt.ambiguous)
				return
			}
			require.NoError(t, err)
			require.Equal(t, tt.want, got)
		})
	}
	q, err := ParseReleaseQuery("68846e")
	require.NoError(t, err)
	_, err = q.Find(known, now)
	require.EqualError(t, err, `"68846e" names 2 releases: 12 (68846e7d00000000), issued 3d ago, 11 (68846eff00000000), issued 3d ago`)
}

func TestWhatCannotNameARelease(t *testing.T) {
	for _, text := range []string{"", "0", "-1", "latest", "6884a", "6884g6", "sha256:", "s", "s-1", "s1-", "1-0", "12 (", "12\n"} {
		_, err := ParseReleaseQuery(text)
		require.Error(t, err, "%q", text)
	}
}

func TestReleaseNames(t *testing.T) {
	d := digest.FromString("a")
	require.Equal(t, "12 ("+d.Encoded()[:8]+")", ReleaseName(12, d))
	require.Equal(t, d.Encoded()[:8], ReleaseName(0, d))
	require.Empty(t, ReleaseName(12, ""))
	require.EqualValues(t, 1, NextNumber(nil))
	require.EqualValues(t, 1, NextNumber(&Verified{}), "a release of an older publisher has none")
	require.EqualValues(t, 13, NextNumber(&Verified{Release: Release{Number: 12}}))
	require.EqualValues(t, 1, NextNumber(&Verified{Release: Release{Number: maxNumber}}))
}

// A number that no publisher gives is no reason to refuse a release: older agents do not even read it.
func TestANumberOutOfBoundsIsNone(t *testing.T) {
	for _, number := range []int64{-1, maxNumber + 1} {
		r := sampleRelease(Content{DiffID: digest.FromString("tree")})
		r.Number = number
		data, err := r.Marshal()
		require.NoError(t, err)
		got, err := ParseRelease(data)
		require.NoError(t, err)
		require.Zero(t, got.Number)
	}
}

func TestExpiry(t *testing.T) {
	const day = 24 * time.Hour
	issued := time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)
	tests := []struct {
		name  string
		valid time.Duration
		age   time.Duration
		want  Expiry
	}{
		{"new", 90 * day, 0, Expiry{Text: "in 90d"}},
		{"15 days before its end", 90 * day, 75 * day, Expiry{Text: "in 15d"}},
		{"14 days before its end", 90 * day, 76 * day, Expiry{Soon: true, Text: "in 14d"}},
		{"a short validity, before its last third", 6 * day, 3 * day, Expiry{Text: "in 3d"}},
		{"a short validity, in its last third", 6 * day, 4 * day, Expiry{Soon: true, Text: "in 2d"}},
		{"a second left", day, day - time.Second, Expiry{Soon: true, Text: "in 1s"}},
		{"at its end", day, day, Expiry{Expired: true, Text: "expired 0s ago"}},
		{"two days after", day, 3 * day, Expiry{Expired: true, Text: "expired 2d ago"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := Release{IssuedAt: issued, ExpiresAt: issued.Add(tt.valid)}
			require.Equal(t, tt.want, r.Expiry(issued.Add(tt.age)))
		})
	}
}
