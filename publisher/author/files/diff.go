package files

import (
	"fmt"
	"strings"
)

// context is the number of unchanged lines around a change.
const context = 3

// maxCells bounds the table of line pairs that is compared; beyond it, all lines between the first and the last change are
// shown as replaced.
const maxCells = 4 << 20

// Unified returns the difference between two texts in the unified format, empty if they are equal. A nil text is a file that
// does not exist.
func Unified(name string, before, after []byte) string {
	if (Change{Before: before, After: after}).same() {
		return ""
	}
	from, to := "a/"+name, "b/"+name
	if before == nil {
		from = "/dev/null"
	}
	if after == nil {
		to = "/dev/null"
	}
	var out strings.Builder
	fmt.Fprintf(&out, "--- %s\n+++ %s\n", from, to)
	for _, h := range hunks(script(lines(before), lines(after))) {
		h.write(&out)
	}
	return out.String()
}

func lines(data []byte) []string {
	var all []string
	for line := range strings.Lines(string(data)) {
		all = append(all, line)
	}
	return all
}

// step is one line of a difference: kept (' '), removed ('-') or added ('+').
type step struct {
	op   byte
	text string
}

// script returns the steps from a to b.
func script(a, b []string) []step {
	var steps []step
	start := 0
	for start < len(a) && start < len(b) && a[start] == b[start] {
		steps = append(steps, step{' ', a[start]})
		start++
	}
	end := 0
	for end < len(a)-start && end < len(b)-start && a[len(a)-1-end] == b[len(b)-1-end] {
		end++
	}
	steps = append(steps, middle(a[start:len(a)-end], b[start:len(b)-end])...)
	for _, line := range a[len(a)-end:] {
		steps = append(steps, step{' ', line})
	}
	return steps
}

// middle keeps the longest common subsequence of lines.
func middle(a, b []string) []step {
	var steps []step
	if len(a)*len(b) > maxCells {
		for _, line := range a {
			steps = append(steps, step{'-', line})
		}
		for _, line := range b {
			steps = append(steps, step{'+', line})
		}
		return steps
	}
	common := make([][]int32, len(a)+1)
	for i := range common {
		common[i] = make([]int32, len(b)+1)
	}
	for i := len(a) - 1; i >= 0; i-- {
		for j := len(b) - 1; j >= 0; j-- {
			if common[i][j] = max(common[i+1][j], common[i][j+1]); a[i] == b[j] {
				common[i][j] = common[i+1][j+1] + 1
			}
		}
	}
	i, j := 0, 0
	for i < len(a) || j < len(b) {
		switch {
		case i < len(a) && j < len(b) && a[i] == b[j]:
			steps = append(steps, step{' ', a[i]})
			i, j = i+1, j+1
		case i < len(a) && (j == len(b) || common[i+1][j] >= common[i][j+1]):
			steps = append(steps, step{'-', a[i]})
			i++
		default:
			steps = append(steps, step{'+', b[j]})
			j++
		}
	}
	return steps
}

// hunk is a group of steps with the lines that it begins at, counted from 0.
type hunk struct {
	from, to int
	steps    []step
}

func hunks(steps []step) []hunk {
	var all []hunk
	from, to, kept := 0, 0, context+1 // kept is the number of unchanged lines since the last change
	for i, s := range steps {
		switch {
		case s.op == ' ':
			if kept++; kept <= context {
				all[len(all)-1].steps = append(all[len(all)-1].steps, s)
			}
		default:
			if kept > context {
				lead := min(context, kept-context-1, i)
				if len(all) == 0 {
					lead = min(context, i)
				}
				all = append(all, hunk{from: from - lead, to: to - lead, steps: append([]step(nil), steps[i-lead:i]...)})
			}
			kept = 0
			all[len(all)-1].steps = append(all[len(all)-1].steps, s)
		}
		if s.op != '+' {
			from++
		}
		if s.op != '-' {
			to++
		}
	}
	return all
}

func (h hunk) write(out *strings.Builder) {
	removed, added := 0, 0
	for _, s := range h.steps {
		if s.op != '+' {
			removed++
		}
		if s.op != '-' {
			added++
		}
	}
	fmt.Fprintf(out, "@@ -%s +%s @@\n", span(h.from, removed), span(h.to, added))
	for _, s := range h.steps {
		out.WriteByte(s.op)
		out.WriteString(s.text)
		if !strings.HasSuffix(s.text, "\n") {
			out.WriteString("\n\\ No newline at end of file\n")
		}
	}
}

func span(start, count int) string {
	if count > 0 {
		start++ // lines are counted from 1; an empty span names the line before it
	}
	if count == 1 {
		return fmt.Sprint(start)
	}
	return fmt.Sprintf("%d,%d", start, count)
}
