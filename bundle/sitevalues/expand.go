package sitevalues

import (
	"slices"
	"strings"

	"github.com/wherry-dev/wherry/bundle/lazyregexp"
)

// reference matches ${site.KEY}, and $${site.KEY}, which stands for the text ${site.KEY}.
var reference = lazyregexp.New(`\$?\$\{site\.([A-Za-z0-9][A-Za-z0-9._/-]*)\}`)

// References returns the keys of ${site.KEY} in text, sorted.
func References(text string) []string {
	if !strings.Contains(text, "${site.") {
		return nil
	}
	var keys []string
	for _, found := range reference.FindAllStringSubmatch(text, -1) {
		if !strings.HasPrefix(found[0], "$$") {
			keys = append(keys, found[1])
		}
	}
	slices.Sort(keys)
	return slices.Compact(keys)
}

// Expand returns text with each ${site.KEY} replaced by the text of its key, and $${site.KEY} by ${site.KEY}. A key that
// texts lacks stays as it is. A ${site.KEY} in a replacement is not replaced again.
func Expand(text string, texts map[string]string) string {
	if !strings.Contains(text, "${site.") {
		return text
	}
	return reference.ReplaceAllStringFunc(text, func(found string) string {
		if strings.HasPrefix(found, "$$") {
			return found[1:]
		}
		key := found[len("${site.") : len(found)-1]
		if value, ok := texts[key]; ok {
			return value
		}
		return found
	})
}
