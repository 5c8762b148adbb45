package lint

import (
	"crypto/sha256"
	"encoding/json"

	"github.com/wherry-dev/wherry/bundle/manifests"
	"github.com/wherry-dev/wherry/bundle/sitevalues"
	"github.com/wherry-dev/wherry/scheduler"
	"github.com/wherry-dev/wherry/scheduler/memo"
)

// fillings are the site values of the clusters of a type, for one assignment.
type fillings struct {
	keys     []string // that the workload lists
	document *sitevalues.Document
	rows     []sitevalues.Row
	facts    sitevalues.Facts // that all clusters have in common
}

// fillingsOf returns the site values that an agent fills into the files of an assignment; nil if it uses none.
func fillingsOf(ct *scheduler.ClusterTypeResult, a *scheduler.Assignment, environment string) *fillings {
	if len(a.SiteValues) == 0 {
		return nil
	}
	f := &fillings{keys: a.SiteValues, facts: sitevalues.Facts{Type: ct.Name, Environment: environment}}
	if ct.Sites != nil {
		f.document, f.rows = ct.Sites.Document, ct.Sites.Rows
	}
	return f
}

// id identifies what is filled in.
func (f *fillings) id() memo.ID {
	data, _ := json.Marshal([]any{f.keys, f.document, f.rows, f.facts}) // of plain types
	return sha256.Sum256(data)
}

// variant is a file as some clusters get it.
type variant struct {
	// cluster is one of them; empty if it is none that the platform knows.
	cluster string
	data    []byte
	// sampled is true if a value is not known, so that data has another one of its type.
	sampled bool
	err     error
}

// of returns the different contents that a file has on the clusters, first that of a cluster without values of its own.
func (f *fillings) of(path string, data []byte) []variant {
	referred := sitevalues.References(string(data))
	known := map[[sha256.Size]byte]bool{}
	var all []variant
	add := func(row *sitevalues.Row, facts sitevalues.Facts) {
		resolved, _ := sitevalues.Resolve(f.document, row, nil, facts)
		v, values := variant{cluster: facts.Name}, sitevalues.Values{}
		for _, key := range f.keys {
			value, ok := resolved[key]
			if !ok || row == nil && sitevalues.IsFact(key) {
				value = f.sample(key)
				for _, r := range referred {
					v.sampled = v.sampled || r == key
				}
			}
			values[key] = value
		}
		v.data, v.err = sitevalues.Replace(path, data, values, manifests.MaxFileBytes)
		if sum := sha256.Sum256(v.data); v.err != nil || !known[sum] {
			known[sum] = true
			all = append(all, v)
		}
	}
	add(nil, f.facts)
	if all[0].err != nil {
		return all
	}
	for i := range f.rows {
		facts := f.facts
		facts.Name, facts.UID, facts.Ring, facts.Labels = f.rows[i].Name, f.rows[i].UID, f.rows[i].Ring, f.rows[i].Labels
		add(&f.rows[i], facts)
	}
	return all
}

// sample returns a value of the type of a key that has none yet.
func (f *fillings) sample(key string) sitevalues.Value {
	if f.document != nil {
		switch f.document.Properties[key].Type {
		case sitevalues.Integer, sitevalues.Number:
			return sitevalues.Value{Any: int64(1), Text: "1"}
		case sitevalues.Boolean:
			return sitevalues.Value{Any: true, Text: "true"}
		}
	}
	return sitevalues.Value{Any: "x", Text: "x"}
}
