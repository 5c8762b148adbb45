package deploy

import (
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/kustomize/kyaml/filesys"
)

func TestTheManifestsOfThePromoter(t *testing.T) {
	data, err := build(filesys.MakeFsOnDisk(), "promoter")
	require.NoError(t, err)
	m := parse(t, data)
	require.Len(t, m, 2)
	promoter := decode[appsv1.Deployment](t, m, "Deployment")
	service := decode[corev1.Service](t, m, "Service")
	pod := promoter.Spec.Template.Spec
	container := pod.Containers[0]
	require.Equal(t, promoter.Spec.Template.Labels, service.Spec.Selector)
	require.Equal(t, container.Ports[0].Name, service.Spec.Ports[0].TargetPort.StrVal)
	require.False(t, *pod.AutomountServiceAccountToken)
	require.True(t, *pod.SecurityContext.RunAsNonRoot)
	require.True(t, *container.SecurityContext.ReadOnlyRootFilesystem)
	require.False(t, *container.SecurityContext.AllowPrivilegeEscalation)
	require.Equal(t, []corev1.Capability{"ALL"}, container.SecurityContext.Capabilities.Drop)
	for path, probes := range map[string][]*corev1.Probe{
		"/healthz": {container.StartupProbe, container.LivenessProbe}, "/readyz": {container.ReadinessProbe},
	} {
		for _, probe := range probes {
			require.Equal(t, path, probe.HTTPGet.Path)
			require.Equal(t, container.Ports[0].Name, probe.HTTPGet.Port.StrVal)
		}
	}
	require.Contains(t, container.Args, "--watch")
	require.Equal(t, "wherry-promoter", volume(t, pod, "secrets").Secret.SecretName)
	require.Nil(t, volume(t, pod, "secrets").Secret.Optional)
	for _, arg := range container.Args { // no secret is among the arguments, which all users of a node can read
		if _, file, ok := strings.Cut(arg, "-file="); ok {
			require.True(t, strings.HasPrefix(file, "/etc/wherry-promoter/"), arg)
		}
	}
}

func TestTheUnitThatPromotes(t *testing.T) {
	data, err := os.ReadFile("systemd/wherry-promote.service")
	require.NoError(t, err)
	unit := directives(t, data)
	require.Contains(t, unit["Service.ExecStart"], `exec wherry promote "$PLATFORM" --watch`)
	require.Equal(t, "always", unit["Service.Restart"])
	require.Equal(t, "multi-user.target", unit["Install.WantedBy"])
	require.Empty(t, unit["Service.CapabilityBoundingSet"])
	require.Equal(t, "yes", unit["Service.DynamicUser"])

	// It is confined as the agent is, and more.
	agentData, err := os.ReadFile("systemd/wherry-agent.service")
	require.NoError(t, err)
	agent := directives(t, agentData)
	confines := regexp.MustCompile(`^Service\.(Protect|Private|Restrict[A-Z]|SystemCall|NoNewPrivileges|LockPersonality|MemoryDeny)`)
	for _, name := range slices.Sorted(maps.Keys(agent)) {
		if confines.MatchString(name) && name != "Service.ProtectHome" {
			require.Equal(t, agent[name], unit[name], name)
		}
	}
	require.Equal(t, "yes", unit["Service.ProtectHome"])

	if analyze, err := exec.LookPath("systemd-analyze"); err == nil {
		file := filepath.Join(t.TempDir(), "wherry-promote.service")
		require.NoError(t, os.WriteFile(file, data, 0o644))
		out, err := exec.Command(analyze, "verify", file).CombinedOutput()
		require.NoError(t, err, "%s", out)
		require.NotContains(t, string(out), "Unknown", "%s", out)
	}
}
