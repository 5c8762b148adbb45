package browser

import (
	"bytes"
	"encoding/hex"
	"io"
	"regexp"
	"strings"
	"unicode/utf16"

	"github.com/stretchr/testify/require"
	"rsc.io/pdf"
)

// textOf returns what can be read on the pages of a PDF that Chromium has printed, without space and some letters that are set closer than others.
func textOf(p tab, printed []byte) string {
	p.Helper()
	file, err := pdf.NewReader(bytes.NewReader(printed), int64(len(printed)))
	require.NoError(p, err)
	var text strings.Builder
	for n := range file.NumPage() {
		page, letters := file.Page(n+1), map[string]map[string]string{}
		for _, name := range page.Fonts() {
			_, base, _ := strings.Cut(page.Font(name).BaseFont(), "+") // without the name of the subset
			letters[base] = lettersOf(p, page.Font(name))
		}
		first := "" // a glyph has two bytes, which come one by one
		for _, t := range page.Content().Text {
			if first == "" {
				first = t.S
				continue
			}
			text.WriteString(letters[t.Font][first+t.S])
			first = ""
		}
	}
	return strings.Join(strings.Fields(text.String()), "")
}

var (
	mappings = regexp.MustCompile(`(?s)beginbf(char|range)(.*?)endbf`)
	codes    = regexp.MustCompile(`<([0-9A-Fa-f]+)>`)
)

// lettersOf returns the letters of a font's glyphs, by its map to Unicode.
func lettersOf(p tab, font pdf.Font) map[string]string {
	p.Helper()
	data, err := io.ReadAll(font.V.Key("ToUnicode").Reader())
	require.NoError(p, err)
	all := map[string]string{}
	for _, m := range mappings.FindAllStringSubmatch(string(data), -1) {
		var numbers [][]byte
		for _, c := range codes.FindAllStringSubmatch(m[2], -1) {
			b, err := hex.DecodeString(c[1])
			require.NoError(p, err)
			numbers = append(numbers, b)
		}
		each := map[string]int{"char": 2, "range": 3}[m[1]]
		for ; len(numbers) >= each; numbers = numbers[each:] {
			letter := numbers[each-1]
			units := make([]uint16, len(letter)/2)
			for i := range units {
				units[i] = uint16(letter[2*i])<<8 | uint16(letter[2*i+1])
			}
			first, last := int(numbers[0][0])<<8|int(numbers[0][1]), 0
			if last = first; each == 3 {
				last = int(numbers[1][0])<<8 | int(numbers[1][1])
			}
			for glyph := first; glyph <= last; glyph++ {
				all[string([]byte{byte(glyph >> 8), byte(glyph)})] = string(utf16.Decode(units))
				units[len(units)-1]++
			}
		}
	}
	return all
}
