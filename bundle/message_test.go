package bundle

import (
	"strings"
	"testing"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/stretchr/testify/require"
)

func TestMessages(t *testing.T) {
	for text, want := range map[string]string{
		"Raise the log level":             "",
		"Größer, 日本語, می\u200cخواهم":      "",
		strings.Repeat("x", 500):          "",
		strings.Repeat("x", 501):          "it has 501 bytes, and may have 500",
		"":                                "must not be empty",
		"  ":                              "must not be empty",
		"two\nlines":                      "it must be one line, without control characters",
		"\x1b[31mred":                     "it must be one line, without control characters",
		"turned \u202earound":             "it must be one line, without control characters",
		"a\u2028::error::b":               "it must be one line, without control characters",
		"half a character \xe2\x80 at it": "it is not UTF-8",
	} {
		err := CheckMessage(text)
		m := ocispec.Manifest{Annotations: map[string]string{AnnotationMessage: text}}
		if want == "" {
			require.NoError(t, err, text)
			require.Equal(t, text, MessageOf(m))
			continue
		}
		require.EqualError(t, err, want, text)
		require.Empty(t, MessageOf(m), "what no publisher writes is not shown")
	}
}
