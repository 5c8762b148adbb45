package checks

import (
	"bytes"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestACheckGetsNoneOfOurTokens(t *testing.T) {
	secrets := []string{"WHERRY_HUB_TOKEN", "WHERRY_FORGE_TOKEN", "WHERRY_ENROLL_TOKEN", "WHERRY_HUB_DATABASE", "GITHUB_TOKEN", "CI_JOB_TOKEN", "DOCKER_AUTH_CONFIG", "COSIGN_PASSWORD", "SIGSTORE_ID_TOKEN"}
	for _, name := range secrets {
		t.Setenv(name, "secret-"+name)
	}
	t.Setenv("SCANNER_TOKEN", "of the check")
	var out bytes.Buffer
	require.NoError(t, Files(t.Context(), "env", []string{"x"}, nil, []string{"GITHUB_TOKEN"}, &out))
	require.Contains(t, out.String(), "check: SCANNER_TOKEN=of the check\n")
	require.Contains(t, out.String(), "check: GITHUB_TOKEN=secret-GITHUB_TOKEN\n", "it is handed over")
	require.Equal(t, 1, strings.Count(out.String(), "secret-"))
	out.Reset()
	require.NoError(t, Commands{Lines: []string{"env"}, Output: &out, Platform: "p", Env: []string{"WHERRY_HUB_TOKEN"}}.Run(t.Context(), nil, false))
	require.Contains(t, out.String(), "check: WHERRY_PLATFORM=p\n")
	require.Contains(t, out.String(), "check: WHERRY_HUB_TOKEN=secret-WHERRY_HUB_TOKEN\n")
	require.Equal(t, 1, strings.Count(out.String(), "secret-"))
	require.Error(t, CheckNames([]string{"A=b"}))
}

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
