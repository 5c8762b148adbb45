package impact

import (
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/wherry-dev/wherry/bundle/lazyregexp"
)

// Link is the rate of a cluster's link, in bits per second. The zero value stands for no link.
type Link int64

var (
	linkPattern = lazyregexp.New(`^([0-9]{1,6}(?:\.[0-9]{1,3})?)(k|M|G)?bit(?:/s)?$`)
	linkUnits   = map[string]float64{"": 1, "k": 1e3, "M": 1e6, "G": 1e9}
)

// ParseLink reads a rate such as 512kbit, 2.5Mbit/s or 9600bit, in decimal units as links are sold.
func ParseLink(text string) (Link, error) {
	m := linkPattern.FindStringSubmatch(text)
	if m == nil {
		return 0, fmt.Errorf("%q is not a rate: write it as 9600bit, 512kbit, 2.5Mbit or 1Gbit", text)
	}
	n, err := strconv.ParseFloat(m[1], 64)
	if l := Link(n * linkUnits[m[2]]); err == nil && l >= 1 {
		return l, nil
	}
	return 0, fmt.Errorf("%q: the rate must be at least 1bit", text)
}

// String returns the rate as ParseLink reads it.
func (l Link) String() string {
	for _, unit := range []string{"G", "M", "k"} {
		if n := float64(l) / linkUnits[unit]; n >= 1 && n*1000 == math.Trunc(n*1000) {
			return strconv.FormatFloat(n, 'f', -1, 64) + unit + "bit"
		}
	}
	return fmt.Sprintf("%dbit", int64(l))
}

// Seconds returns the time that so many bytes take at least, in seconds, rounded up; 0 without a link.
func (l Link) Seconds(bytes int64) int64 {
	if l == 0 {
		return 0
	}
	return int64(math.Ceil(float64(bytes) * 8 / float64(l)))
}

// On sets the link, and the times on it.
func (f *Facts) On(l Link) {
	f.Link, f.Seconds = l, l.Seconds(f.Bytes)
	for i := range f.ClusterTypes {
		f.ClusterTypes[i].Seconds = l.Seconds(f.ClusterTypes[i].Bytes)
	}
}

// Time returns a number of seconds for people: "1 s", "3 min", "2.5 h", "4.2 days".
func Time(seconds int64) string {
	d := time.Duration(seconds) * time.Second
	switch {
	case d < 2*time.Minute:
		return fmt.Sprintf("%d s", seconds)
	case d < 2*time.Hour:
		return fmt.Sprintf("%.0f min", d.Minutes())
	case d < 48*time.Hour:
		return fmt.Sprintf("%.1f h", d.Hours())
	}
	return fmt.Sprintf("%.1f days", d.Hours()/24)
}
