// Package textdiff compares texts line by line and writes their difference as diff -u does. Begin with Unified. It does no
// I/O, and the time and memory that it takes are bounded: texts that differ in very many lines are shown as replaced.
package textdiff

import (
	"fmt"
	"strings"
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

// maxEdits bounds the added and removed lines that are searched for. The search takes memory for the square of it.
const maxEdits = 1000

// Unified returns the difference of two texts as hunks, each of which begins with a line such as "@@ -1,3 +1,4 @@". It is
// empty if all keys are equal. Of a longer difference, the first most lines are returned, and left is the number of the
// others.
func Unified(old, now []Line, most int) (text string, left int) {
	edits := compare(old, now)
	var b strings.Builder
	written := 0
	line := func(mark, text string) {
		if written++; written > most {
			left++
			return
		}
		b.WriteString(mark + text + "\n")
	}
	for _, h := range hunks(edits) {
		line("", h.head())
		for _, e := range h.edits {
			switch e.kind {
			case removed:
				line("-", old[e.old].shown())
			case added:
				line("+", now[e.now].shown())
			default:
				line(" ", now[e.now].shown())
			}
		}
	}
	return b.String(), left
}

type kind int

const (
	same kind = iota
	removed
	added
)

// edit is one line of the difference: at old and now, of which a removed line has only the first and an added one only the
// second.
type edit struct {
	kind     kind
	old, now int
}

// compare returns the edits that lead from old to now, all lines that are the same included.
func compare(old, now []Line) []edit {
	head := 0
	for head < len(old) && head < len(now) && old[head].key() == now[head].key() {
		head++
	}
	tail := 0
	for tail < len(old)-head && tail < len(now)-head && old[len(old)-1-tail].key() == now[len(now)-1-tail].key() {
		tail++
	}
	var edits []edit
	for i := range head {
		edits = append(edits, edit{same, i, i})
	}
	for _, e := range between(old[head:len(old)-tail], now[head:len(now)-tail]) {
		edits = append(edits, edit{e.kind, e.old + head, e.now + head})
	}
	for i := range tail {
		edits = append(edits, edit{same, len(old) - tail + i, len(now) - tail + i})
	}
	return edits
}

// between finds a shortest list of edits, as E. W. Myers describes in "An O(ND) Difference Algorithm and Its Variations"
// (1986). Beyond maxEdits, everything is replaced.
func between(old, now []Line) []edit {
	n, m := len(old), len(now)
	var trace [][]int // the furthest place in old on each diagonal, before each number of edits
	v := map[int]int{1: 0}
	for d := 0; d <= min(n+m, maxEdits); d++ {
		row := make([]int, 2*d+3)
		for k := -d - 1; k <= d+1; k++ {
			row[k+d+1] = v[k]
		}
		trace = append(trace, row)
		for k := -d; k <= d; k += 2 {
			x := v[k-1] + 1
			if k == -d || k != d && v[k-1] < v[k+1] {
				x = v[k+1]
			}
			for x < n && x-k < m && old[x].key() == now[x-k].key() {
				x++
			}
			v[k] = x
			if x >= n && x-k >= m {
				return walkBack(trace, n, m)
			}
		}
	}
	var edits []edit
	for i := range old {
		edits = append(edits, edit{removed, i, 0})
	}
	for i := range now {
		edits = append(edits, edit{added, n, i})
	}
	return edits
}

// walkBack reads the edits from a search that has reached the ends n and m.
func walkBack(trace [][]int, n, m int) []edit {
	var backwards []edit
	x, y := n, m
	for d := len(trace) - 1; d >= 0; d-- {
		v := func(k int) int { return trace[d][k+d+1] }
		k := x - y
		from := k - 1
		if k == -d || k != d && v(k-1) < v(k+1) {
			from = k + 1
		}
		fromX := v(from)
		fromY := fromX - from
		for x > fromX && y > fromY && x > 0 && y > 0 {
			x, y = x-1, y-1
			backwards = append(backwards, edit{same, x, y})
		}
		if d == 0 {
			break
		}
		if from == k+1 {
			backwards = append(backwards, edit{added, x, y - 1})
		} else {
			backwards = append(backwards, edit{removed, x - 1, y})
		}
		x, y = fromX, fromY
	}
	edits := make([]edit, 0, len(backwards))
	for i := len(backwards) - 1; i >= 0; i-- {
		edits = append(edits, backwards[i])
	}
	return edits
}

// hunk is changed lines and those around them.
type hunk struct {
	edits []edit
}

// head is the first line of a hunk, with the numbers of its lines in both texts.
func (h hunk) head() string {
	old, now := 0, 0
	for _, e := range h.edits {
		if e.kind != added {
			old++
		}
		if e.kind != removed {
			now++
		}
	}
	return fmt.Sprintf("@@ -%s +%s @@", place(h.edits[0].old, old), place(h.edits[0].now, now))
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

// hunks groups the changed lines that are near each other.
func hunks(edits []edit) []hunk {
	var all []hunk
	end := 0 // of the last hunk
	for i, e := range edits {
		if e.kind == same {
			continue
		}
		begin := max(i-context, 0)
		if len(all) == 0 || begin > end {
			all = append(all, hunk{})
		} else {
			begin = end
		}
		last := &all[len(all)-1]
		stop := min(i+context+1, len(edits))
		if stop > begin {
			last.edits = append(last.edits, edits[begin:stop]...)
			end = stop
		}
	}
	return all
}
