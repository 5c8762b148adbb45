package zarf

import (
	"maps"
	"slices"
	"strings"

	"github.com/wherry-dev/wherry/bundle/sitevalues"
	"github.com/wherry-dev/wherry/reconcilers"
)

// setVariables returns the arguments that give a package the assignment's site values as variables, such as
// ZARF_VAR_GATEWAY_ADDRESS for gateway.address. The flag takes a line of CSV if it holds more than one "=", and a text with
// rules of its own if not; the first variable, which no package has, makes it the former.
func setVariables(a reconcilers.Assignment) []string {
	if len(a.Values) == 0 {
		return nil
	}
	pairs := []string{"WHERRY_SITE=true"}
	for _, key := range slices.Sorted(maps.Keys(a.Values)) {
		pair := strings.ToUpper(sitevalues.Variable(key)) + "=" + a.Values[key]
		pairs = append(pairs, `"`+strings.ReplaceAll(pair, `"`, `""`)+`"`)
	}
	return []string{"--set-variables", strings.Join(pairs, ",")}
}
