//go:build e2e

package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/e2e/harness"
)

// block is a fenced block of a page that a reader can paste into a shell.
var block = regexp.MustCompile("(?ms)^```sh\n(.*?)^```$")

func TestThePageOnInstallingSaysWhatWorks(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.edit("platform/cluster-types.yaml", "name: edge", "name: drone")
	s.publish()
	page, err := os.ReadFile("../docs/install.md")
	require.NoError(t, err)
	namespace := s.environment + "-agent"
	s.write("cosign.password", password)
	s.write("webhook.secret", webhookSecret)
	charts, err := filepath.Abs("../deploy/charts")
	require.NoError(t, err)
	names := strings.NewReplacer(
		"registry.plant-7:5000/edge", s.prefix,
		"--platform fleet", "--platform default", "platform: fleet", "platform: default",
		"--environment dev", "--environment "+s.environment,
		"environment: dev", "environment: "+s.environment,
		"wherry-system", namespace,
		"--print", "--namespace "+namespace+" --print", "--values", "--namespace "+namespace+" --values", "--secret", "--namespace "+namespace+" --secret",
		"deploy/charts", charts,
		"directoryRoot: /srv/site", "directoryRoot: site\nstateDir: host-agent",
	)
	defer s.helm("uninstall", "wherry-agent", "--namespace", namespace) // with its ClusterRole
	var ran int
	for _, found := range block.FindAllStringSubmatch(string(page), -1) {
		s.shell(names.Replace(found[1]))
		ran++
	}
	require.Equal(t, 7, ran)
	token, err := os.ReadFile(s.path("admin.token"))
	require.NoError(t, err)
	require.Regexp(t, `^wha_`, string(token))
}

// shell runs a script as a person would, with our programs in the path.
func (s *site) shell(script string) {
	s.t.Helper()
	cmd := exec.CommandContext(s.t.Context(), "bash", "-euo", "pipefail", "-c", script)
	cmd.Dir = s.dir
	cmd.Env = []string{
		"PATH=" + strings.Join([]string{os.Getenv(harness.ProgramsEnv), os.Getenv("PATH"), os.Getenv(harness.ToolsEnv)}, ":"),
		"HOME=" + s.dir, "COSIGN_PASSWORD=" + password, "KUBECONFIG=" + cluster.Kubeconfig,
	}
	out, err := cmd.CombinedOutput()
	require.NoError(s.t, err, "%s\n%s", script, out)
	s.t.Logf("%s\n%s", script, out)
}
