package web

import (
	"slices"
	"strings"

	"github.com/wherry-dev/wherry/hub/fleet"
)

// facet is the values of one field, with links that choose them.
type facet struct {
	Name   string
	Values []facetValue
	More   int
}

type facetValue struct {
	Name   string
	Count  int
	Link   string // empty if it cannot be chosen
	Chosen bool
}

// clusterFacets are the fields of clusters that the page lets people choose by.
var clusterFacets = []string{"state", "relation", "environment", "type", "ring", fleet.EachLabel}

// shownValues bounds the values of one facet.
const shownValues = 12

// facets returns the facets with at least two values, or one that is chosen.
func (f *frame) facets(all []fleet.Facet) (shown []facet) {
	for _, of := range all {
		one := facet{Name: strings.TrimPrefix(of.By, "label:"), More: of.More + max(0, len(of.Values)-shownValues)}
		chosen := false
		for _, v := range of.Values[:min(len(of.Values), shownValues)] {
			value := facetValue{Name: v.Value, Count: v.Count}
			if of.By == "state" || of.By == "relation" {
				value.Name = lookOf(v.Value).Word
			}
			if key, isLabel := strings.CutPrefix(of.By, "label:"); v.Value != "" && (!isLabel || selectorOf(key, v.Value) != "") {
				value.Link, value.Chosen = f.choosing(of.By, v.Value)
			} else if v.Value == "" {
				value.Name = "none"
			}
			chosen = chosen || value.Chosen
			one.Values = append(one.Values, value)
		}
		if len(one.Values) > 1 || chosen {
			shown = append(shown, one)
		}
	}
	return shown
}

// choosing returns the link that chooses a value of a field too, or not any more if it is chosen.
func (f *frame) choosing(field, value string) (link string, chosen bool) {
	several := []string{"state", "relation", "environment"}
	parameter, wanted := field, value
	key, isLabel := strings.CutPrefix(field, "label:")
	if isLabel {
		parameter, wanted = "selector", key+"="+value
	}
	var values []string
	if before := f.values.Get(parameter); before != "" {
		values = strings.Split(before, ",")
	}
	switch i := slices.Index(values, wanted); {
	case i >= 0:
		values, chosen = slices.Delete(values, i, i+1), true
	case isLabel:
		values = append(slices.DeleteFunc(values, func(v string) bool { return strings.HasPrefix(v, key+"=") }), wanted)
	case slices.Contains(several, field):
		values = append(values, wanted)
	default:
		values = []string{wanted}
	}
	return f.With(parameter, strings.Join(values, ",")), chosen
}
