package config

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "write docs/reference/agent-settings.md anew")

// The page on settings is made of them, so that help and page say the same.
func TestThePageOnSettingsIsOfThem(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	b.WriteString("# Settings of the agent\n\nMade of `wherry-agent run --help` by `go test ./agent/config -update`. The variable of `--state-dir` is `WHERRY_STATE_DIR`, and so on.\n\n| flag | field of the file | |\n|-|-|-|\n")
	for _, s := range Settings() {
		usage := strings.ReplaceAll(s.Usage, "|", `\|`)
		if s.On {
			usage += " (default true)"
		}
		fmt.Fprintf(&b, "| `--%s` | `%s` | %s |\n", s.Flag, s.Field, usage)
	}
	const page = "../../docs/reference/agent-settings.md"
	if *update {
		require.NoError(t, os.WriteFile(page, []byte(b.String()), 0o644))
	}
	got, err := os.ReadFile(page)
	require.NoError(t, err)
	require.Equal(t, b.String(), string(got), "-update writes it")
}
