package sitevalues

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/wherry-dev/wherry/bundle"
)

// Row is a line of .wherry/sites.ndjson: what the platform says about one cluster.
type Row struct {
	UID    string            `json:"uid"`
	Name   string            `json:"name"`
	Ring   string            `json:"ring,omitempty"`
	Labels map[string]string `json:"labels,omitempty"`
	// Values hold a string, a json.Number or a bool each.
	Values map[string]any `json:"values,omitempty"`
	// HeldFrom marks a row that was not valid when the release was made, and that is the one of an earlier release.
	HeldFrom *bundle.Held `json:"heldFrom,omitempty"`
}

// MarshalRows returns the content of RowsPath, sorted by uid; nil if there are no rows. It returns an error if two rows have
// one uid, and one that wraps bundle.ErrTooLarge above MaxRowsBytes.
func MarshalRows(rows []Row) ([]byte, error) {
	rows = slices.SortedFunc(slices.Values(rows), func(a, b Row) int { return cmp.Compare(a.UID, b.UID) })
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	for i, row := range rows {
		if i > 0 && rows[i-1].UID == row.UID {
			return nil, fmt.Errorf("clusters %s and %s have the same uid", rows[i-1].Name, row.Name)
		}
		if err := enc.Encode(row); err != nil {
			return nil, fmt.Errorf("cluster %s: %w", row.Name, err)
		}
	}
	if b.Len() > MaxRowsBytes {
		return nil, fmt.Errorf("site values of %d clusters: %d bytes: %w (at most %d)", len(rows), b.Len(), bundle.ErrTooLarge, MaxRowsBytes)
	}
	return b.Bytes(), nil
}

// ParseRows parses the output of MarshalRows. Its errors are of type *bundle.Refusal.
func ParseRows(data []byte) ([]Row, error) {
	var rows []Row
	err := eachRow(data, func(row Row) { rows = append(rows, row) })
	return rows, err
}

// RowOf parses the output of MarshalRows and returns the row with the given uid; nil if there is none. Its errors are of type
// *bundle.Refusal.
func RowOf(data []byte, uid string) (*Row, error) {
	var found *Row
	err := eachRow(data, func(row Row) {
		if row.UID == uid {
			found = &row
		}
	})
	return found, err
}

func eachRow(data []byte, take func(Row)) error {
	if len(data) > MaxRowsBytes {
		return bundle.Refuse(bundle.TooLarge, "%s has more than %d bytes", RowsPath, MaxRowsBytes)
	}
	seen := map[string]bool{}
	n := 0
	for line := range bytes.Lines(data) {
		n++
		var row Row
		dec := json.NewDecoder(bytes.NewReader(line))
		dec.UseNumber()
		if err := dec.Decode(&row); err != nil {
			return bundle.Refuse(bundle.BadContent, "%s:%d: it is no row", RowsPath, n) // the parser's error may have a value
		}
		if row.UID == "" || seen[row.UID] {
			return bundle.Refuse(bundle.BadContent, "%s:%d: no uid, or that of another row", RowsPath, n)
		}
		seen[row.UID] = true
		take(row)
	}
	return nil
}
