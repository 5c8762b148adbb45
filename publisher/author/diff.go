package author

import (
	"math"

	"github.com/wherry-dev/wherry/publisher/textdiff"
)

// Unified returns the difference between two texts in the unified format, empty if they are equal. A nil text is a file that
// does not exist.
func Unified(name string, before, after []byte) string {
	if (FileChange{Before: before, After: after}).same() {
		return ""
	}
	from, to := "a/"+name, "b/"+name
	if before == nil {
		from = "/dev/null"
	}
	if after == nil {
		to = "/dev/null"
	}
	text, _ := textdiff.Unified(textdiff.Lines(string(before)), textdiff.Lines(string(after)), math.MaxInt)
	return "--- " + from + "\n+++ " + to + "\n" + text
}
