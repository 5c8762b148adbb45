package settings

import (
	"maps"
	"slices"
	"strings"

	"github.com/wherry-dev/wherry/bundle/show"
	"github.com/wherry-dev/wherry/publisher/gitrepo"
)

// Row is a setting as people see it. Its JSON form is an interface.
type Row struct {
	Key    string `json:"key"`
	Value  string `json:"value"`  // empty if nothing gives it
	Origin string `json:"origin"` // empty if nothing gives it
}

// Rows lists all settings with their origins. Values are without credentials and PINs; keys are names of files.
func (s *Settings) Rows() (rows []Row) {
	add := func(key string, values ...Value) {
		given := false
		for _, v := range values {
			if v.Given() {
				rows, given = append(rows, Row{key, Public(v.Text), v.Origin}), true
			}
		}
		if !given {
			rows = append(rows, Row{Key: key})
		}
	}
	add("environment", s.Environment)
	add("registry", s.Registry)
	add("trust", s.Trust)
	add("keys", s.Keys...)
	add("signWith", s.SignWith...)
	add("hub", s.Hub)
	add("cache", s.Cache)
	for _, m := range []struct {
		key    string
		values map[string]Value
	}{{"mirrors", s.Mirrors}, {"workloads", s.Workloads}} {
		if len(m.values) == 0 {
			add(m.key)
		}
		for _, name := range slices.Sorted(maps.Keys(m.values)) {
			add(m.key+"."+Public(name), m.values[name])
		}
	}
	return rows
}

// Public returns a value without the credentials of a URL, and without the query of the URI of a key, which may hold a PIN.
func Public(value string) string {
	if strings.HasPrefix(value, CosignPrefix) {
		value, _, _ = strings.Cut(value, "?")
	}
	return gitrepo.Redact(show.Redact(value))
}
