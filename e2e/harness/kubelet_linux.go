package harness

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"text/template"
)

// containerdConfig keeps containerd in a folder of its own. The pause process of a pod keeps the
// score that it is born with, since lowering it takes a capability that root lacks in a container.
const containerdConfig = `version = 2
root = "{{.Dir}}/root"
state = "{{.Dir}}/state"
[grpc]
  address = "{{.Dir}}/containerd.sock"
[plugins."io.containerd.internal.v1.opt"]
  path = "{{.Dir}}/opt"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{{.Sandbox}}"
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".registry]
    config_path = "{{.Dir}}/certs.d"
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "{{.Tools}}/cni"
    conf_dir = "{{.Dir}}/cni"
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "native"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
      [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
        BinaryName = "{{.Tools}}/runc"
        SystemdCgroup = false
`

// PodGateway is the address by which pods reach this machine.
const PodGateway = "10.244.0.1"

// networkConfig gives each pod an address that this machine reaches, and no way to anywhere else.
const networkConfig = `{"cniVersion": "0.4.0", "name": "wherry-e2e", "plugins": [{"type": "ptp", "ipMasq": false,
 "ipam": {"type": "host-local", "dataDir": "{{.Dir}}/addresses", "ranges": [[{"subnet": "10.244.0.0/24"}]], "routes": [{"dst": "0.0.0.0/0"}]}}]}
`

const kubeletConfig = `apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
containerRuntimeEndpoint: unix://{{.Dir}}/containerd.sock
cgroupDriver: cgroupfs
failCgroupV1: false
failSwapOn: false
enableServer: false
authentication: {anonymous: {enabled: false}, webhook: {enabled: false}}
authorization: {mode: AlwaysAllow}
podLogsDir: {{.Dir}}/logs
volumePluginDir: {{.Dir}}/plugins
evictionHard: {memory.available: 1Mi, nodefs.available: 1%, imagefs.available: 1%}
registerWithTaints: [{key: {{.Key}}, value: {{.Name}}, effect: NoSchedule}]
`

// StartKubelet makes this machine a node of c and returns when it is ready: its pods are processes, run
// by kubelet, containerd and runc, with addresses that this machine reaches. Sandbox names the image that
// holds a pod's namespaces open. It takes root, and no other kubelet with pods on the machine. The caller calls
// Stop, which leaves nothing behind; what a test left behind that was killed, the next call clears. While
// another test has the machine, StartKubelet waits. Flags are more of kubelet's, such as --node-ip where the place of the
// cluster has no route by which kubelet finds its own address.
func (c *Cluster) StartKubelet(ctx context.Context, name, sandbox string, flags ...string) (_ *Node, err error) {
	containerd, err := Tool("containerd") // its shim, runc and the folder cni lie beside it
	if err != nil {
		return nil, err
	}
	kubelet, err := Tool("kubelet")
	if err != nil {
		return nil, err
	}
	n, err := c.newNode(name)
	if err != nil {
		return nil, err
	}
	if n.release, err = claimMachine(ctx, n.dir); err != nil {
		return nil, errors.Join(err, os.RemoveAll(n.dir))
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, n.Stop(""))
		}
	}()
	values := map[string]string{"Dir": n.dir, "Tools": filepath.Dir(containerd), "Sandbox": sandbox, "Key": NodeKey, "Name": name}
	for file, text := range map[string]string{"containerd.toml": containerdConfig, "cni/10-ptp.conflist": networkConfig, "kubelet.yaml": kubeletConfig} {
		if err := writeTemplate(filepath.Join(n.dir, file), text, values); err != nil {
			return nil, err
		}
	}
	if err := n.run(containerd, "--config="+filepath.Join(n.dir, "containerd.toml")); err != nil {
		return nil, err
	}
	socket := filepath.Join(n.dir, "containerd.sock")
	if err := n.until(ctx, "has a container runtime", func(context.Context) (bool, error) { return listens(socket), nil }); err != nil {
		return nil, err // kubelet gives up if it is not there at once
	}
	if err := n.run(kubelet, append(flags, "--config="+filepath.Join(n.dir, "kubelet.yaml"), "--kubeconfig="+c.Kubeconfig,
		"--root-dir="+filepath.Join(n.dir, "kubelet"), "--cert-dir="+filepath.Join(n.dir, "pki"),
		"--hostname-override="+name, "--node-labels="+NodeKey+"="+name)...); err != nil {
		return nil, err
	}
	return n, n.until(ctx, "is ready", n.ready)
}

// listens reports whether a program answers at a Unix socket.
func listens(socket string) bool {
	connection, err := net.Dial("unix", socket)
	if err != nil {
		return false
	}
	_ = connection.Close() // nothing was sent
	return true
}

// Pull pulls an image from a registry of this machine, so that no pod waits for it.
func (n *Node) Pull(ctx context.Context, reference string) error {
	ctr, err := Tool("ctr")
	if err != nil {
		return err
	}
	out, err := exec.CommandContext(ctx, ctr, "--address="+filepath.Join(n.dir, "containerd.sock"), "--namespace=k8s.io",
		"images", "pull", "--snapshotter=native", "--plain-http", reference).CombinedOutput()
	if err != nil {
		return fmt.Errorf("pull %s: %w: %s", reference, err, out)
	}
	return nil
}

// Mirror has the container runtime ask the mirror at a URL for the images of a registry, before the registry itself.
func (n *Node) Mirror(registry, url string) error {
	return writeTemplate(filepath.Join(n.dir, "certs.d", registry, "hosts.toml"),
		"server = \"http://{{.Registry}}\"\n[host.\"{{.URL}}\"]\n  capabilities = [\"pull\", \"resolve\"]\n", map[string]string{"Registry": registry, "URL": url})
}

// Logs returns what the containers in a namespace have written on this node, where it runs any.
func (n *Node) Logs(namespace string) string {
	files, _ := filepath.Glob(filepath.Join(n.dir, "logs", namespace+"_*", "*", "*.log"))
	var all strings.Builder
	for _, file := range files {
		data, err := os.ReadFile(file)
		fmt.Fprintf(&all, "%s (%v)\n%s", file, err, data)
	}
	return all.String()
}

func writeTemplate(path, text string, values map[string]string) error {
	parsed, err := template.New("").Option("missingkey=error").Parse(text)
	if err != nil {
		return err
	}
	var out bytes.Buffer
	if err := parsed.Execute(&out, values); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, out.Bytes(), 0o644)
}
