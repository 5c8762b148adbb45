package checks

import (
	"bytes"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestLinesHaveAPrefix(t *testing.T) {
	var out bytes.Buffer
	w := &prefixWriter{w: &out, prefix: "> "}
	for _, text := range []string{"a\nb", "c\n", "\n", strings.Repeat("x", maxLine+1), "y"} {
		n, err := w.Write([]byte(text))
		require.NoError(t, err)
		require.Equal(t, len(text), n)
	}
	w.flush()
	require.Equal(t, "> a\n> bc\n> \n> "+strings.Repeat("x", maxLine)+"\n> xy\n", out.String())
}
