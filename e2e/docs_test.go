//go:build e2e

package e2e

import (
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/e2e/harness"
)

// block is a fenced block of a page that a reader can paste into a shell.
var block = regexp.MustCompile("(?ms)^```sh\n(.*?)^```$")

func TestThePageOnInstallingSaysWhatWorks(t *testing.T) {
	s := newSite(t)
	s.edit("platform/cluster-types.yaml", "name: edge", "name: drone")
	s.publish()
	page, err := os.ReadFile("../docs/install.md")
	require.NoError(t, err)
	names := strings.NewReplacer(
		"registry.plant-7:5000/edge", s.prefix,
		"--environment dev", "--environment "+s.environment,
		"environment: dev", "environment: "+s.environment,
		"--print", "--namespace "+s.environment+"-agent --print",
		"directoryRoot: /srv/site", "directoryRoot: site\nstateDir: host-agent",
	)
	var ran int
	for _, found := range block.FindAllStringSubmatch(string(page), -1) {
		script := names.Replace(found[1])
		if file, ok := strings.CutPrefix(strings.TrimSpace(script), "kubectl apply --server-side -f "); ok {
			data, err := os.ReadFile(s.path(file))
			require.NoError(t, err)
			s.apply(objectsIn(string(data)))
		} else {
			s.shell(script)
		}
		ran++
	}
	require.Equal(t, 4, ran)
}

// shell runs a script as a person would, with our programs in the path.
func (s *site) shell(script string) {
	s.t.Helper()
	cmd := exec.CommandContext(s.t.Context(), "bash", "-euo", "pipefail", "-c", script)
	cmd.Dir = s.dir
	cmd.Env = []string{"PATH=" + os.Getenv(harness.ProgramsEnv) + ":" + os.Getenv("PATH"), "HOME=" + s.dir, "COSIGN_PASSWORD=" + password}
	out, err := cmd.CombinedOutput()
	require.NoError(s.t, err, "%s\n%s", script, out)
	s.t.Logf("%s\n%s", script, out)
}
