package deploy

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"
)

// A package brings the files of its parts, all of them and as they are.
func TestPackagesBringWhatInstallWrites(t *testing.T) {
	lib := strings.NewReplacer("/etc/systemd/", "/usr/lib/systemd/", "/etc/udev/", "/usr/lib/udev/", "/etc/tmpfiles.d/", "/usr/lib/tmpfiles.d/", "/etc/sysusers.d/", "/usr/lib/sysusers.d/")
	for name, parts := range map[string][]string{"wherry-agent": {"agent"}, "wherry-hub": {"hub", "promoter", "publisher"}} {
		data, err := os.ReadFile("packages/" + name + ".yaml")
		require.NoError(t, err)
		var description struct {
			Contents []struct{ Src, Dst, Type string }
		}
		require.NoError(t, yaml.Unmarshal(data, &description))
		want, got := map[string]string{}, map[string]string{}
		for _, part := range parts {
			files, start := Host(part, false)
			require.Contains(t, start, "systemctl enable --now wherry-")
			for _, f := range files {
				want[lib.Replace(f.Path)] = fmt.Sprint(f.Config, string(f.Data))
			}
		}
		for _, c := range description.Contents {
			file, ours := strings.CutPrefix(c.Src, "deploy/")
			if !ours || strings.HasPrefix(c.Dst, "/usr/share/doc/") {
				continue
			}
			data, err := os.ReadFile(file)
			require.NoError(t, err)
			got[c.Dst] = fmt.Sprint(c.Type == "config|noreplace", string(data))
		}
		require.Equal(t, want, got, name)
	}
}
