package deploy

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/bundle/child/childtest"
)

// commands is a folder that holds programs of this machine, and scripts that stand for others.
func commands(t *testing.T, scripts map[string]string, programs ...string) string {
	t.Helper()
	dir := t.TempDir()
	for _, name := range programs {
		path, err := exec.LookPath(name)
		require.NoError(t, err)
		require.NoError(t, os.Symlink(path, filepath.Join(dir, name)))
	}
	for name, script := range scripts {
		childtest.WriteProgram(t, filepath.Join(dir, name), "#!/bin/sh\n"+script)
	}
	return dir
}

func kindRun(t *testing.T, path string, command ...string) (output string, code int) {
	t.Helper()
	bash, err := exec.LookPath("bash")
	require.NoError(t, err)
	cmd := exec.Command(bash, append([]string{"kind/run"}, command...)...)
	cmd.Env = []string{"PATH=" + path, "KIND=kind-of-the-test", "WHERRY=wherry", "TMPDIR=" + t.TempDir(), "NODE_IMAGE=" + os.Getenv("NODE_IMAGE")}
	out, _ := cmd.CombinedOutput()
	return string(out), cmd.ProcessState.ExitCode()
}

func TestWithoutAContainerEngineTheReasonIsSaid(t *testing.T) {
	out, code := kindRun(t, commands(t, nil, "dirname"), "false")
	require.Zero(t, code)
	require.Equal(t, "e2e-kind: SKIPPED: there is no container engine: neither docker nor podman is installed\n", out)

	docker := map[string]string{"docker": "echo the daemon sleeps >&2; exit 1"}
	out, code = kindRun(t, commands(t, docker, "dirname"), "false")
	require.Zero(t, code)
	require.Equal(t, "e2e-kind: SKIPPED: there is no container engine: docker is installed and says: the daemon sleeps\n", out)
}

// Containers cannot be had everywhere; what the script asks for can be seen everywhere.
func TestWhatWasStartedInContainersEndsWithTheCommand(t *testing.T) {
	scripts := map[string]string{
		"podman":           "echo podman $1 >&2\n[ $1 != port ] || echo 127.0.0.1:50123",
		"kind-of-the-test": "echo kind $1 by $KIND_EXPERIMENTAL_PROVIDER >&2",
		"curl":             "for url; do :; done; echo curl $url >&2",
		"tests":            "echo tests on $WHERRY_E2E_REGISTRY and ${WHERRY_E2E_KUBECONFIG##*/} >&2; exit 7",
	}
	out, code := kindRun(t, commands(t, scripts, "dirname", "mktemp", "rm"), "tests")
	require.Equal(t, 7, code)
	require.Equal(t, `kind create by podman
podman run
podman port
curl http://127.0.0.1:50123/v2/
tests on 127.0.0.1:50123 and e2e.kubeconfig
kind delete by podman
podman rm
`, out)
}

// deploy/kind/debian names an image of the node where none can be pulled.
func TestANodeImageThatWasMadeHereIsUsed(t *testing.T) {
	t.Setenv("NODE_IMAGE", "localhost/node")
	scripts := map[string]string{"podman": "exit 0", "kind-of-the-test": "echo kind \"$@\" >&2", "curl": "exit 0", "tests": "exit 0"}
	out, code := kindRun(t, commands(t, scripts, "dirname", "mktemp", "rm"), "tests")
	require.Zero(t, code, out)
	require.Regexp(t, `(?m)^kind create cluster .* --wait 5m --image localhost/node$`, out)
}

// The platform of the sample fleet is made here as there. The other programs say what they are asked for, and take what is piped to them.
func TestTheSampleFleetIsMadeAndTakenAway(t *testing.T) {
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip("git is not installed")
	}
	const say = "echo ${0##*/} \"$@\" >&2\n"
	const take = "case \"$*\" in *' -f -'* | 'exec -i'*) cat >/dev/null ;; esac\n"
	path := commands(t, map[string]string{
		"podman":           say + take + "[ $1 != port ] || echo 127.0.0.1:50123",
		"kind-of-the-test": say,
		"curl":             "exit 0",
		"make":             say,
		"kubectl":          "case \"$*\" in *port-forward*) exec sleep 60 ;; *nodePort*) echo 30080 ;; *jsonpath*token*) echo dG9rZW4= ;; *) " + say + take + ";; esac",
		"wherry":           "case \"$*\" in keys*) echo key >$4.key; echo key >$4.pub ;; *--watch*) exec sleep 60 ;; *) " + say + ";; esac",
		"tests":            "w=${KUBECONFIG%%/dev.kubeconfig*}; echo tests as $WHERRY_HUB_TOKEN >&2; git -C $w/platform.git log --format=%s main >&2; cat $w/platform/base/workloads.yaml | grep -c registry.k8s.io/pause >&2; exit 7",
	}, "dirname", "mktemp", "rm", "cp", "sed", "git", "base64", "sleep", "cat", "bash", "grep")
	out, code := kindRun(t, path, "--fleet", "tests")
	require.Equal(t, 7, code, out)
	root, err := filepath.Abs("..")
	require.NoError(t, err)
	for _, r := range [][2]string{{`wherry-fleet-[0-9]+`, "FLEET"}, {regexp.QuoteMeta(root) + `/deploy/kind/\.\./\.\.`, "ROOT"}, {regexp.QuoteMeta(root) + `/deploy/kind`, "KIND"}, {`/\S*/tmp\.\w+`, "WORK"}} {
		out = regexp.MustCompile(r[0]).ReplaceAllString(out, r[1])
	}
	lines := slices.Collect(strings.Lines(out)) // the two ends of a pipe speak in any order
	slices.Sort(lines)
	out = strings.Join(lines, "")
	want, err := os.ReadFile("testdata/fleet.txt")
	if os.Getenv("WHERRY_UPDATE") != "" {
		require.NoError(t, os.MkdirAll("testdata", 0o755))
		require.NoError(t, os.WriteFile("testdata/fleet.txt", []byte(out), 0o644))
		return
	}
	require.NoError(t, err)
	require.Equal(t, string(want), out, "WHERRY_UPDATE=1 writes it")
}

func TestTheConfigurationOfZot(t *testing.T) {
	data, err := os.ReadFile("zot/config.json")
	require.NoError(t, err)
	var config struct {
		Storage struct{ RootDirectory string }
		HTTP    struct{ Address, Port string }
	}
	require.NoError(t, json.Unmarshal(data, &config))
	require.NotEmpty(t, config.Storage.RootDirectory)
	require.Equal(t, "5000", config.HTTP.Port, "which kind/run publishes")
	require.Equal(t, "0.0.0.0", config.HTTP.Address, "loopback inside of the container is nobody's")
}

// WHERRY_E2E_ZOT names a zot, which CI has not.
func TestARealZotAcceptsItsConfigurations(t *testing.T) {
	zot := os.Getenv("WHERRY_E2E_ZOT")
	if zot == "" {
		t.Skip("WHERRY_E2E_ZOT names no zot")
	}
	page, err := os.ReadFile("../docs/registry.md")
	require.NoError(t, err)
	blocks := regexp.MustCompile("(?s)```json\n(.*?)```").FindAllSubmatch(page, -1)
	require.Len(t, blocks, 2, "the configuration, and the keepTags of its first policy")
	whole := strings.Replace(string(blocks[0][1]), `"deleteUntagged": true}`, `"deleteUntagged": true, `+string(blocks[1][1])+"}", 1)
	ours, err := os.ReadFile("zot/config.json")
	require.NoError(t, err)
	for _, text := range []string{string(ours), string(blocks[0][1]), whole} {
		file := filepath.Join(t.TempDir(), "config.json")
		require.NoError(t, os.WriteFile(file, []byte(strings.ReplaceAll(text, "/var/lib/registry", t.TempDir())), 0o644))
		out, err := exec.Command(zot, "verify", file).CombinedOutput()
		require.NoError(t, err, "%s\n%s", text, out)
	}
	// What a registry under it answers is the matter of "deploy/zot/run $WHERRY_E2E_ZOT make e2e".
	out, err := exec.Command("zot/run", zot, "sh", "-c", "curl --silent --fail http://$WHERRY_E2E_REGISTRY/v2/_catalog").CombinedOutput()
	require.NoError(t, err, string(out))
	require.Contains(t, string(out), `{"repositories":[]}`)
}

// CI has no zot. The record of a run by hand is kept, and is no record any more once the tests have others.
func TestTheRecordOfZotIsOfTheseTests(t *testing.T) {
	record, err := os.ReadFile("testdata/zot.txt")
	require.NoError(t, err)
	files, err := filepath.Glob("../e2e/*_test.go")
	require.NoError(t, err)
	var all []byte
	for _, file := range files {
		data, err := os.ReadFile(file)
		require.NoError(t, err)
		all = append(all, data...)
	}
	for _, ok := range regexp.MustCompile(`(?m)^ok: (.*)$`).FindAllSubmatch(record, -1) {
		require.Contains(t, string(all), "func "+string(ok[1])+"(", "which has run on zot")
	}
	makefile, err := os.ReadFile("../Makefile")
	require.NoError(t, err)
	smoke := regexp.MustCompile(`(?m)^E2E_SMOKE = (.*)$`).FindSubmatch(makefile)
	require.NotNil(t, smoke)
	for name := range strings.SplitSeq(string(smoke[1]), "|") {
		for _, f := range regexp.MustCompile(`(?m)^func (`+name+`\w*)\(`).FindAllSubmatch(all, -1) {
			require.Contains(t, string(record), "ok: "+string(f[1])+"\n", "run deploy/zot/run ZOT make e2e, and bring docs/tested.md up to date")
		}
	}
	require.Contains(t, string(record), "on: kube-apiserver "+string(regexp.MustCompile(`(?m)^KUBE += (\S+)$`).FindSubmatch(makefile)[1])+",")
	page, err := os.ReadFile("../docs/tested.md")
	require.NoError(t, err)
	program := regexp.MustCompile(`(?m)^program: zot (\S+),`).FindSubmatch(record)
	require.Regexp(t, `(?m)^\| zot \| run, `+regexp.QuoteMeta(strings.TrimPrefix(string(program[1]), "v")), string(page))
}
