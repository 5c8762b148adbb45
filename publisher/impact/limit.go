package impact

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/wherry-dev/wherry/bundle/lazyregexp"
)

// Limit is a condition on a plan: whether it adds, removes or changes something, or reaches more clusters or bytes than a
// bound.
type Limit struct {
	what    string
	bound   float64
	percent bool
	text    string // as it was written
}

// kinds of limits without a bound, and what there is too much of if they are exceeded.
var limitKinds = map[string]func(f *Facts) (int, string){
	"added":   func(f *Facts) (int, string) { return f.Added, "assignment is added|assignments are added" },
	"changed": func(f *Facts) (int, string) { return f.Changed, "assignment is changed|assignments are changed" },
	"removed": func(f *Facts) (int, string) { return f.Removed, "assignment is removed|assignments are removed" },
	"failed":  func(f *Facts) (int, string) { return f.Failed, "assignment fails|assignments fail" },
	"refused": func(f *Facts) (int, string) {
		return f.Refused, "assignment cannot change so|assignments cannot change so"
	},
	"restarts": func(f *Facts) (int, string) { return f.Restarts, "assignment restarts pods|assignments restart pods" },
}

// LimitNames lists what a limit may be about, sorted, with an example of each that has a bound.
func LimitNames() []string {
	names := []string{"bytes>64KiB", "clusters>10", "clusters>10%"}
	for name := range limitKinds {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

var boundPattern = lazyregexp.New(`^(clusters|bytes)>([0-9]{1,12})(%|KiB|MiB|GiB)?$`)

// ParseLimit reads a limit: added, changed, removed, failed, refused or restarts, or clusters>N, clusters>N% or bytes>N, where N of
// bytes may have the unit KiB, MiB or GiB.
func ParseLimit(text string) (Limit, error) {
	if limitKinds[text] != nil {
		return Limit{what: text, text: text}, nil
	}
	m := boundPattern.FindStringSubmatch(text)
	if m == nil || m[1] == "clusters" && strings.HasSuffix(m[3], "B") || m[1] == "bytes" && m[3] == "%" {
		return Limit{}, fmt.Errorf("unknown limit %q (known: %s)", text, strings.Join(LimitNames(), ", "))
	}
	n, err := strconv.ParseFloat(m[2], 64)
	if err != nil {
		return Limit{}, err
	}
	for unit, factor := range map[string]float64{"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30} {
		if m[3] == unit {
			n *= factor
		}
	}
	return Limit{what: m[1], bound: n, percent: m[3] == "%", text: text}, nil
}

// Exceeded returns why a plan exceeds the limit; empty if it does not. A limit of clusters is exceeded as well if the plan
// changes something and the number of clusters is unknown.
func (l Limit) Exceeded(f *Facts) string {
	switch l.what {
	case "clusters":
		return l.clusters(f)
	case "bytes":
		if float64(f.Bytes) > l.bound {
			return fmt.Sprintf("%s: a cluster fetches up to %d bytes", l.text, f.Bytes)
		}
		return ""
	}
	n, words := limitKinds[l.what](f)
	one, many, _ := strings.Cut(words, "|")
	switch {
	case n == 0:
		return ""
	case n == 1:
		return fmt.Sprintf("%s: 1 %s", l.text, one)
	}
	return fmt.Sprintf("%s: %d %s", l.text, n, many)
}

func (l Limit) clusters(f *Facts) string {
	if f.ClustersFrom == "" {
		if f.Added+f.Changed+f.Removed == 0 {
			return ""
		}
		return l.text + ": no roster and no hub says how many clusters there are"
	}
	bound := l.bound
	if l.percent {
		bound *= float64(f.Clusters) / 100
	}
	if float64(f.ChangedClusters) <= bound {
		return ""
	}
	return fmt.Sprintf("%s: %d of %d clusters would change", l.text, f.ChangedClusters, f.Clusters)
}
