package config

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/bundle/oci"
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

func TestPathsInTheFileAreRelativeToIt(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "agent.yaml")
	require.NoError(t, os.WriteFile(file, []byte("registry: [oci-layout:out, oci-layout:/srv/out, oci://127.0.0.1:5000/edge]\nreportRegistry: oci-layout:../reports\n"+
		"siteValues: configmap:plant/own\nstateDir: state\n"), 0o600))
	c, err := read(Settings(), Sources{File: file, Named: true, Flag: func(string) ([]string, bool) { return nil, false }})
	require.NoError(t, err)
	require.Equal(t, []oci.Location{{Dir: filepath.Join(dir, "out")}, {Dir: "/srv/out"}, {Host: "127.0.0.1:5000", Prefix: "edge"}}, c.Registry.Locations)
	require.Equal(t, oci.Location{Dir: filepath.Join(filepath.Dir(dir), "reports")}, c.Reports.Registry)
	require.Equal(t, "configmap:plant/own", c.SiteValues)
	require.Equal(t, filepath.Join(dir, "state"), c.StateDir)
}
