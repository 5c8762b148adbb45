//go:build e2e && linux

package ansible_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/sitevalues"
)

func TestPlaysGetTheValuesOfTheSite(t *testing.T) {
	t.Parallel()
	out := filepath.Join(t.TempDir(), "out")
	r := open(t, filepath.Join(t.TempDir(), "root"))
	a := playbook(t, "valued", `
    - copy: {dest: `+out+`, content: "{{ wherry_site.gateway_address }}"}`)
	for _, value := range []string{"10.7.0.2", "{{ lookup('pipe', 'touch /tmp/never') }} ü: \"x\"\n# y", "10.7.0.3"} {
		a.Values = map[string]string{"gateway.address": value}
		a.ValuesDigest = sitevalues.Digest(a.Values)
		res := bring(t, r, a)
		require.Equal(t, bundle.Compliant, res.State, "%s: %s", res.Reason, res.Message)
		data, err := os.ReadFile(out)
		require.NoError(t, err)
		require.Equal(t, value, string(data), "new values run the playbooks again, and are not evaluated")
	}
}
