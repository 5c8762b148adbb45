package show

import "strings"

// maxWord bounds the words that are compared, in bytes: the cost grows with the product of their lengths.
const maxWord = 64

// Nearest returns the known word nearest to word, or nothing if none is near: half of the word's letters may differ, and three
// at most. Case counts only between words that are equally near.
func Nearest(word string, known []string) string {
	best, nearest, same := "", 1+min(3, max(1, len(word)/2)), 0
	for _, k := range known {
		distance, exact := Edits(strings.ToLower(word), strings.ToLower(k)), Edits(word, k)
		if distance < nearest || best != "" && distance == nearest && exact < same {
			best, nearest, same = k, distance, exact
		}
	}
	return best
}

// Edits counts the insertions, deletions, replacements and swaps of neighbours between a and b, in bytes. Texts of more than
// 64 bytes are taken to have nothing in common.
func Edits(a, b string) int {
	if len(a) > maxWord || len(b) > maxWord {
		return maxWord
	}
	var before, last, row []int
	for j := range len(b) + 1 {
		last = append(last, j)
	}
	for i := 1; i <= len(a); i++ {
		row = append([]int{i}, make([]int, len(b))...)
		for j := 1; j <= len(b); j++ {
			change := last[j-1]
			if a[i-1] != b[j-1] {
				change++
			}
			row[j] = min(last[j]+1, row[j-1]+1, change)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		before, last = last, row
	}
	return last[len(b)]
}
