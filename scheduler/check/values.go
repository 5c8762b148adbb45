package check

import (
	"maps"
	"slices"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
)

// newMap returns a map of values of CEL.
func newMap(entries map[string]any) *sortedMap {
	return &sortedMap{types.NewStringInterfaceMap(types.DefaultTypeAdapter, entries), slices.Sorted(maps.Keys(entries))}
}

// get returns the value of a key; nil if there is none.
func (m *sortedMap) get(key string) ref.Val {
	value, ok := m.Find(types.String(key))
	if !ok {
		return nil
	}
	return value
}

// text returns the text at a key; empty if there is none.
func (m *sortedMap) text(key string) string {
	s, _ := m.get(key).(types.String)
	return string(s)
}

// list is a list of values of CEL.
type list struct {
	traits.Lister
	values []ref.Val
}

func newList(values []ref.Val) *list {
	return &list{types.NewRefValList(types.DefaultTypeAdapter, values), values}
}
