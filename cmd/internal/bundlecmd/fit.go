package bundlecmd

import "unicode/utf8"

const (
	// tableGap is how far apart cli.Print sets columns.
	tableGap = 2
	// minCell is how short fitTable makes a cell at most.
	minCell = 8
)

// fitTable shortens the cells of the columns elastic, always those of the widest, until a row has at most that many
// characters, or nothing can be shortened any more. All rows have the same number of cells.
func fitTable(rows [][]string, most int, elastic ...int) {
	width := make([]int, len(rows[0]))
	total := tableGap * (len(width) - 1)
	for column := range width {
		for _, r := range rows {
			width[column] = max(width[column], utf8.RuneCountInString(r[column]))
		}
		total += width[column]
	}
	for ; total > most; total-- {
		widest := elastic[0]
		for _, column := range elastic {
			if width[column] > width[widest] {
				widest = column
			}
		}
		if width[widest] <= minCell {
			break
		}
		width[widest]--
	}
	for _, r := range rows {
		for _, column := range elastic {
			r[column] = cutMiddle(r[column], width[column])
		}
	}
}

// cutMiddle shortens s to that many characters and leaves both of its ends, which tell long names apart.
func cutMiddle(s string, most int) string {
	runes := []rune(s)
	if len(runes) <= most {
		return s
	}
	head := most / 2
	return string(runes[:head]) + "…" + string(runes[len(runes)-(most-head-1):])
}
