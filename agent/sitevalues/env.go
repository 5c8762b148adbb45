package sitevalues

import (
	"bytes"
	"maps"
	"slices"
	"strings"

	"github.com/wherry-dev/wherry/bundle/lazyregexp"
	shared "github.com/wherry-dev/wherry/bundle/sitevalues"
)

// unquoted matches values that need no quotes in a shell, and that programs which know no quotes take as they are.
var unquoted = lazyregexp.New(`^[A-Za-z0-9_./:@%+,=-]*$`)

// environment returns the values as lines KEY=VALUE, sorted, in the form that shells and systemd's EnvironmentFile both
// read: other values than simple words are between double quotes, with a backslash before ", \, $ and `.
func environment(values shared.Values) []byte {
	var b bytes.Buffer
	for _, key := range slices.Sorted(maps.Keys(values)) {
		text := values[key].Text
		if !unquoted.MatchString(text) {
			text = `"` + strings.NewReplacer(`"`, `\"`, `\`, `\\`, "$", `\$`, "`", "\\`").Replace(text) + `"`
		}
		b.WriteString(strings.ToUpper(shared.Variable(key)) + "=" + text + "\n")
	}
	return b.Bytes()
}
