// Package textdiff compares texts line by line and writes their difference as diff -u does. Begin with Unified. It does no
// I/O. In texts that differ in many lines, the difference is not the shortest one.
package textdiff

import (
	"fmt"
	"strings"

	"github.com/aymanbagabas/go-udiff/lcs"
)

// Line is a line of a text.
type Line struct {
	// Text is the line as shown, without its end.
	Text string
	// Key is compared in place of Text, if not empty. It is never shown.
	Key string
	// NoEnd is true for the last line of a text that does not end with a line break.
	NoEnd bool
}

func (l Line) key() string {
	key := l.Text
	if l.Key != "" {
		key = l.Key
	}
	if l.NoEnd {
		key += "\n" // which no line holds, so that it differs from one with an end
	}
	return key
}

// shown is the line as diff -u writes it, without its mark.
func (l Line) shown() string {
	if l.NoEnd {
		return l.Text + "\n\\ No newline at end of file"
	}
	return l.Text
}

// Lines returns the lines of a text, each as it is.
func Lines(text string) []Line {
	var all []Line
	for line := range strings.Lines(text) {
		text, ended := strings.CutSuffix(line, "\n")
		all = append(all, Line{Text: text, NoEnd: !ended})
	}
	return all
}

// context is the number of unchanged lines around changed ones.
const context = 3

// Unified returns the difference of two texts as hunks, each of which begins with a line such as "@@ -1,3 +1,4 @@". It is
// empty if all keys are equal. Of a longer difference, the first most lines are returned, and left is the number of the
// others.
func Unified(old, now []Line, most int) (text string, left int) {
	var b strings.Builder
	written := 0
	line := func(mark, text string) {
		if written++; written > most {
			left++
			return
		}
		b.WriteString(mark + text + "\n")
	}
	diffs := lcs.DiffLines(keys(old), keys(now))
	for len(diffs) > 0 {
		n := 1 // those of this hunk
		for n < len(diffs) && diffs[n].Start-diffs[n-1].End <= 2*context {
			n++
		}
		first, last := diffs[0], diffs[n-1]
		at := max(first.Start-context, 0)
		end := min(last.End+context, len(old))
		nowAt, nowEnd := first.ReplStart-(first.Start-at), last.ReplEnd+end-last.End
		line("", fmt.Sprintf("@@ -%s +%s @@", place(at, end-at), place(nowAt, nowEnd-nowAt)))
		unchanged := func(stop int) {
			for ; at < stop; at++ {
				line(" ", now[nowAt].shown())
				nowAt++
			}
		}
		for _, d := range diffs[:n] {
			unchanged(d.Start)
			for ; at < d.End; at++ {
				line("-", old[at].shown())
			}
			for ; nowAt < d.ReplEnd; nowAt++ {
				line("+", now[nowAt].shown())
			}
		}
		unchanged(end)
		diffs = diffs[n:]
	}
	return b.String(), left
}

func keys(lines []Line) []string {
	all := make([]string, len(lines))
	for i, l := range lines {
		all[i] = l.key()
	}
	return all
}

// place writes the lines of a hunk as diff does, which names the line before where there is none.
func place(first, count int) string {
	if count == 0 {
		return fmt.Sprintf("%d,0", first)
	}
	if count == 1 {
		return fmt.Sprint(first + 1)
	}
	return fmt.Sprintf("%d,%d", first+1, count)
}
