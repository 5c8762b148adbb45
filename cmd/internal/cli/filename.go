package cli

import (
	"strings"
	"unicode"
)

// FileName returns the name of a cluster or a site as a part of a file's name that every file system takes, FAT32 too.
func FileName(name string) string {
	safe := strings.Map(func(r rune) rune {
		if r < 0x80 && (unicode.IsLetter(r) || unicode.IsDigit(r) || r == '-' || r == '_') {
			return unicode.ToLower(r)
		}
		return '-'
	}, name)
	return safe[:min(len(safe), 100)]
}
