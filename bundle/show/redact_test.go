package show

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestTextsAreWithoutCredentials(t *testing.T) {
	for text, want := range map[string]string{
		"read https://user:t0ken@h/a: not found":          "read https://h/a: not found",
		"mirrors.https://t0ken@h/ is given twice":         "mirrors.https://h/ is given twice",
		`location "oci://u:p@r/e": wrong`:                 `location "oci://r/e": wrong`,
		"https://h/a?token=t0ken and https://h/b":         "https://h/a and https://h/b",
		"mail me@example.com":                             "mail me@example.com",
		"ssh://git@h/a":                                   "ssh://h/a",
		"two https://a:b@h/x https://c:d@i/y":             "two https://h/x https://i/y",
		"https://a:b@c:d@h/x has a password with an at @": "https://h/x has a password with an at @",
	} {
		require.Equal(t, want, Redact(text))
	}
}
