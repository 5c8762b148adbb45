package fleet

import (
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/opencontainers/go-digest"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/duration"
	"github.com/wherry-dev/wherry/bundle/show"
	"github.com/wherry-dev/wherry/hub/store"
)

// Bounds of the parameters of a request.
const (
	// MaxRows is the largest Limit of one answer over HTTP.
	MaxRows = 1000
	// maxParameter bounds one value, in bytes; a selector and a side of a comparison may be longer.
	maxParameter     = 512
	maxLongParameter = 4096
	// maxValues bounds the values of one repeatable parameter.
	maxValues = 16
)

// parameter is one parameter of a request: how it is read into a Query, and written from one.
type parameter struct {
	name string
	long bool
	// several is true if it may be repeated.
	several bool
	// read sets the field; now is the moment that durations go back from.
	read func(q *Query, value string, now time.Time) error
	// write returns the value, empty if the field is not set.
	write func(q *Query) string
	// clear unsets a field that is also a dimension; nil for others.
	clear func(q *Query)
}

// text is the parameter of a field that is text.
func text[T ~string](name string, field func(*Query) *T) parameter {
	return parameter{
		name:  name,
		read:  func(q *Query, v string, _ time.Time) error { *field(q) = T(v); return nil },
		write: func(q *Query) string { return string(*field(q)) },
		clear: func(q *Query) { *field(q) = "" },
	}
}

// list is the parameter of a field with several values, which are repeated, or have commas between them.
func list[T ~string](name string, field func(*Query) *[]T) parameter {
	return parameter{
		name:    name,
		several: true,
		read: func(q *Query, v string, _ time.Time) error {
			for one := range strings.SplitSeq(v, ",") {
				if one = strings.TrimSpace(one); one != "" && !slices.Contains(*field(q), T(one)) {
					*field(q) = append(*field(q), T(one))
				}
			}
			if len(*field(q)) > maxValues {
				return fmt.Errorf("has more than %d values", maxValues)
			}
			return nil
		},
		write: func(q *Query) string {
			var all []string
			for _, v := range *field(q) {
				all = append(all, string(v))
			}
			return strings.Join(all, ",")
		},
		clear: func(q *Query) { *field(q) = nil },
	}
}

// parameters returns the one table of the parameters of all reads.
func parameters() []parameter {
	selector := text("selector", func(q *Query) *string { return &q.Selector })
	selector.long = true
	return []parameter{
		selector,
		text("cluster", func(q *Query) *string { return &q.Cluster }),
		text("platform", func(q *Query) *string { return &q.Platform }),
		list("environment", func(q *Query) *[]string { return &q.Environments }),
		text("type", func(q *Query) *string { return &q.Type }),
		text("ring", func(q *Query) *string { return &q.Ring }),
		text("workspace", func(q *Query) *string { return &q.Workspace }),
		text("application", func(q *Query) *string { return &q.Application }),
		text("workload", func(q *Query) *string { return &q.Workload }),
		text("target", func(q *Query) *string { return &q.Target }),
		text("adapter", func(q *Query) *string { return &q.Adapter }),
		text("version", func(q *Query) *string { return &q.Version }),
		text("commit", func(q *Query) *string { return &q.Commit }),
		text("config", func(q *Query) *digest.Digest { return &q.ConfigDigest }),
		text("content", func(q *Query) *digest.Digest { return &q.Content }),
		text("release", func(q *Query) *digest.Digest { return &q.Release }),
		text("image", func(q *Query) *string { return &q.Image }),
		list("state", func(q *Query) *[]bundle.State { return &q.State }),
		list("relation", func(q *Query) *[]Relation { return &q.Relation }),
		{
			name: "silentFor",
			read: func(q *Query, v string, _ time.Time) (err error) {
				q.SilentFor, err = duration.Parse(v)
				return err
			},
			write: func(q *Query) string {
				if q.SilentFor == 0 {
					return ""
				}
				return q.SilentFor.String()
			},
		},
		{
			name: "asOf",
			read: func(q *Query, v string, now time.Time) (err error) {
				if q.AsOf, err = duration.Moment(v, now); err == nil && q.AsOf.After(now.Add(maxSkew)) {
					err = fmt.Errorf("%s is in the future", q.AsOf.Format(time.RFC3339))
				}
				return err
			},
			write: func(q *Query) string { return FormatMoment(q.AsOf) },
		},
		text("sort", func(q *Query) *string { return &q.Sort }),
		text("after", func(q *Query) *string { return &q.After }),
		{
			name: "limit",
			read: func(q *Query, v string, _ time.Time) (err error) {
				if q.Limit, err = strconv.Atoi(v); err != nil || q.Limit < 1 {
					return fmt.Errorf("%q is not a positive number", v)
				}
				if q.Limit > MaxRows {
					return fmt.Errorf("%d is more than %d", q.Limit, MaxRows)
				}
				return nil
			},
			write: func(q *Query) string {
				if q.Limit == 0 {
					return ""
				}
				return strconv.Itoa(q.Limit)
			},
		},
	}
}

// maxSkew is how far ahead the clock of whoever asks may be.
const maxSkew = 5 * time.Minute

// shortSelector is a second name of the parameter selector, as kubectl has it.
const shortSelector = "l"

// Parameters returns the names of the parameters that choose rows, in the order of the fields of Query.
func Parameters() []string {
	var names []string
	for _, p := range parameters() {
		names = append(names, p.name)
	}
	return names
}

// ParseQuery reads the parameters of a request. Others are parameters that the caller reads itself. An empty value is
// none, as forms send it. The error wraps store.ErrInvalid: for a parameter that does not exist, or comes twice, or whose
// value cannot be read. Whether names and states exist is for Answers to say.
func ParseQuery(values url.Values, now time.Time, others ...string) (Query, error) {
	var q Query
	known := map[string]parameter{}
	for _, p := range parameters() {
		known[p.name] = p
	}
	known[shortSelector] = known["selector"]
	for _, name := range slices.Sorted(maps.Keys(values)) {
		if slices.Contains(others, name) {
			if err := checkValues(name, values[name], maxLongParameter); err != nil {
				return Query{}, err
			}
			continue
		}
		p, ok := known[name]
		if !ok {
			return Query{}, UnknownParameter(name, append(Parameters(), others...))
		}
		most := maxParameter
		if p.long {
			most = maxLongParameter
		}
		if err := checkValues(name, values[name], most); err != nil {
			return Query{}, err
		}
		given := slices.DeleteFunc(slices.Clone(values[name]), func(v string) bool { return v == "" })
		if len(given) > 1 && !p.several {
			return Query{}, invalid("parameter %s is given %d times", name, len(given))
		}
		if p.name == "selector" && len(given) > 0 && q.Selector != "" {
			return Query{}, invalid("selector and l are the same parameter; give one of them")
		}
		for _, v := range given {
			if err := p.read(&q, v, now); err != nil {
				return Query{}, invalid("parameter %s: %s", name, err)
			}
		}
	}
	return q, nil
}

// Values returns q as parameters of a request. ParseQuery reads them again.
func (q Query) Values() url.Values {
	values := url.Values{}
	for _, p := range parameters() {
		if v := p.write(&q); v != "" {
			values.Set(p.name, v)
		}
	}
	return values
}

// ParseSide reads one side of a comparison: the name of an environment; parameters with commas between them, such as
// "type=drone,asOf=24h", of which the first may be the name of an environment, as in "prod,asOf=24h"; or the query string of a request, whose values are escaped. A selector with a comma needs that
// last form. The error wraps store.ErrInvalid.
func ParseSide(s string, now time.Time) (Side, error) {
	side := Side{Name: s}
	if len(s) > maxLongParameter || s != store.Plain(s) || strings.TrimSpace(s) == "" {
		return side, invalid("side %q: expected an environment, or a query such as type=drone,asOf=24h", store.Clip(store.Plain(s)))
	}
	if !strings.Contains(s, "=") {
		side.Environments = []string{s}
		return side, nil
	}
	values := url.Values{}
	var err error
	if strings.ContainsAny(s, "&%") {
		values, err = url.ParseQuery(s)
	} else {
		for i, part := range strings.Split(s, ",") {
			name, value, named := strings.Cut(part, "=")
			if i == 0 && !named {
				name, value = "environment", part
			}
			values.Add(strings.TrimSpace(name), strings.TrimSpace(value))
		}
	}
	if err != nil {
		return side, invalid("side %q: expected a query string", s)
	}
	if side.Query, err = ParseQuery(values, now); err != nil {
		return side, fmt.Errorf("side %q: %w", s, err)
	}
	return side, nil
}

// FormatMoment returns a time as duration.Moment reads it; empty for the zero time.
func FormatMoment(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(time.RFC3339Nano)
}

// UnknownParameter returns the error of an unknown parameter. It suggests the nearest known one,
// and wraps store.ErrInvalid.
func UnknownParameter(name string, known []string) error {
	hint := ""
	if near := show.Nearest(name, known); near != "" {
		hint = fmt.Sprintf("; did you mean %s?", near)
	}
	return invalid("unknown parameter %q%s", store.Plain(store.Clip(name)), hint)
}

// checkValues refuses values that are too many, too long, or would not stay what they are on a terminal.
func checkValues(name string, values []string, most int) error {
	if len(values) > maxValues {
		return invalid("parameter %s is given %d times", name, len(values))
	}
	for _, v := range values {
		if len(v) > most {
			return invalid("parameter %s is longer than %d bytes", name, most)
		}
		if v != store.Plain(v) {
			return invalid("parameter %s has control characters: %q", name, store.Plain(v))
		}
	}
	return nil
}

func invalid(format string, args ...any) error {
	return fmt.Errorf("%w: %s", store.ErrInvalid, fmt.Sprintf(format, args...))
}
