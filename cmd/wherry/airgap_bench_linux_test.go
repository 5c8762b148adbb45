package main

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/specs-go"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/wherry-dev/wherry/bundle/oci"
)

// The platform of BenchmarkAirgap: so many workloads with an image each, of which ten have a layer in common. Both
// kinds of layer together have airgapBytes, none of which gzip makes smaller.
const (
	airgapWorkloads   = 200
	airgapBases       = 20
	airgapBaseBytes   = 32 << 20
	airgapBytes       = 2 << 30
	airgapLayerBytes  = (airgapBytes - airgapBases*airgapBaseBytes) / airgapWorkloads
	airgapChanged     = airgapWorkloads / 100 // images that are new in the second release
	airgapClusterType = "edge"
	airgapTypes       = 10 // cluster types of the platform, all with the same workloads
	airgapRounds      = 3
)

// BenchmarkAirgap prints the figures of "make bench-airgap": the programs that WHERRY_E2E_PROGRAMS has write and import a site
// package with 2 GiB of images, beside cp and sync of the same bytes on the same disk. Throughputs are medians of
// the rounds, in each of which cp runs before and after.
func BenchmarkAirgap(b *testing.B) {
	a := newAirgapBench(b)
	for i := range airgapWorkloads {
		a.pushImage(i, 0)
	}
	a.publish("0")
	var export, imports, rebuilt []float64
	var exportPeak, importPeak int64
	var space float64
	first := a.path("first.tar")
	state := ""
	for round := range airgapRounds {
		require.NoError(b, os.RemoveAll(first))
		a.dropState(state)
		wrote := a.timed(a.wherry, "airgap", "export", "--from", a.registry, "--environment", "dev", "--cluster-type", airgapClusterType, "-o", first)
		size := fileSize(b, first)
		before := a.copy(first)
		state = a.path(fmt.Sprintf("state-%d", round))
		took := a.imported(state, first)
		after := a.copy(first)
		export = append(export, before.wall.Seconds()/wrote.wall.Seconds())
		imports = append(imports, (before.wall+after.wall).Seconds()/2/took.wall.Seconds())
		rebuilt = append(rebuilt, float64(took.wall.Milliseconds())) // its state folder was empty
		exportPeak, importPeak = max(exportPeak, wrote.peak), max(importPeak, took.peak)
		space = max(space, float64(took.written)/float64(size))
		fmt.Printf("round %d: %d bytes; export %.1f s (%.1f s CPU), import %.1f s (%.1f s CPU), cp and sync %.1f s and %.1f s\n", round+1, size,
			wrote.wall.Seconds(), wrote.cpu.Seconds(), took.wall.Seconds(), took.cpu.Seconds(), before.wall.Seconds(), after.wall.Seconds())
	}
	ratio("export-throughput-vs-cp", median(export))
	ratio("import-throughput-vs-cp", median(imports))
	fmt.Printf("figure export-peak-rss-bytes %d bytes\n", exportPeak)
	fmt.Printf("figure import-peak-rss-bytes %d bytes\n", importPeak)
	ratio("import-space-ratio", space)
	fmt.Printf("figure rebuild-medium-ms %d ms\n", int64(median(rebuilt)))
	fmt.Printf("figure rebuild-registry-ms %d ms\n", a.rebuilt().wall.Milliseconds())
	fmt.Printf("figure refuse-bytes-read %d bytes\n", a.refused())
	a.followUps(first, state)
}

// followUps prints the figures of the releases after the first one, for the cluster with this state folder.
func (a *airgapBench) followUps(first, state string) {
	for i := range airgapChanged {
		a.pushImage(i*airgapWorkloads/airgapChanged, 1)
	}
	a.publish("0")
	second := a.path("second.tar")
	a.timed(a.wherry, "airgap", "export", "--from", a.registry, "--environment", "dev", "--cluster-type", airgapClusterType, "--since", first, "-o", second)
	ratio("since-export-ratio", float64(fileSize(a, second))/float64(fileSize(a, first)))
	a.imported(state, second)

	var took []float64
	base := second
	for i := range airgapRounds {
		a.publish(strconv.Itoa(i + 1)) // another value of one workload
		next := a.path(fmt.Sprintf("next-%d.tar", i))
		a.timed(a.wherry, "airgap", "export", "--from", a.registry, "--environment", "dev", "--cluster-type", airgapClusterType, "--since", base, "-o", next)
		took = append(took, float64(a.imported(state, next).wall.Milliseconds()))
		base = next
	}
	fmt.Printf("figure medium-to-compliant-ms %d ms\n", int64(median(took)))
}

// airgapBench is a platform with its registry, and the disk of a site.
type airgapBench struct {
	*authoring
	wherry, agent string
	images        [airgapWorkloads]string // references by digest
}

func newAirgapBench(tb testing.TB) *airgapBench {
	programs := os.Getenv("WHERRY_E2E_PROGRAMS")
	if programs == "" {
		tb.Fatal(`WHERRY_E2E_PROGRAMS names no folder with the programs: run "make bench-airgap"`)
	}
	a := &airgapBench{wherry: filepath.Join(programs, "wherry"), agent: filepath.Join(programs, "wherry-agent")}
	a.authoring = &authoring{TB: tb, program: a.wherry, dir: tb.TempDir()}
	var disk unix.Statfs_t
	require.NoError(tb, unix.Statfs(a.dir, &disk))
	if int64(disk.Type) == unix.TMPFS_MAGIC {
		tb.Fatalf("%s is in memory: set TMPDIR to a folder on a disk", a.dir)
	}
	const copies = 5 // registry, package, its copy, the store, and one more for what an import writes before it renames
	if free := int64(disk.Bavail) * disk.Bsize; free < copies*airgapBytes {
		tb.Fatalf("%s has %d bytes free, and this takes %d: set TMPDIR to a folder on another disk", a.dir, free, copies*int64(airgapBytes))
	}
	a.platform = filepath.Join(a.dir, "platform")
	a.run("keys", "generate")
	a.serve()
	return a
}

func (a *airgapBench) path(name string) string { return filepath.Join(a.dir, name) }

// pushImage pushes a version of a workload's image. Only its own layer differs from the other versions.
func (a *airgapBench) pushImage(workload, version int) {
	a.Helper()
	location, err := oci.Parse(strings.TrimSuffix(a.registry, "/edge"))
	require.NoError(a, err)
	name := fmt.Sprintf("images/team-%02d", workload%airgapBases)
	repo, err := location.Repository(name, oci.Options{})
	require.NoError(a, err)
	push := func(mediaType string, size int64, open func() io.Reader) ocispec.Descriptor {
		hash := digest.SHA256.Digester()
		_, err := io.Copy(hash.Hash(), open())
		require.NoError(a, err)
		d := ocispec.Descriptor{MediaType: mediaType, Digest: hash.Digest(), Size: size}
		if there, err := repo.Exists(a.Context(), d); err == nil && there {
			return d
		}
		require.NoError(a, repo.Push(a.Context(), d, open()))
		return d
	}
	layer := func(kind, n, size int) ocispec.Descriptor {
		return push(ocispec.MediaTypeImageLayer, int64(size), func() io.Reader {
			var seed [32]byte
			binary.LittleEndian.PutUint64(seed[:], uint64(kind))
			binary.LittleEndian.PutUint64(seed[8:], uint64(n))
			return io.LimitReader(rand.NewChaCha8(seed), int64(size))
		})
	}
	document := func(mediaType string, v any) ocispec.Descriptor {
		data, err := json.Marshal(v)
		require.NoError(a, err)
		return push(mediaType, int64(len(data)), func() io.Reader { return bytes.NewReader(data) })
	}
	layers := []ocispec.Descriptor{layer(0, workload%airgapBases, airgapBaseBytes), layer(1+version, workload, airgapLayerBytes)}
	manifest := document(ocispec.MediaTypeImageManifest, ocispec.Manifest{
		Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: ocispec.MediaTypeImageManifest, Layers: layers,
		Config: document(ocispec.MediaTypeImageConfig, ocispec.Image{
			Platform: ocispec.Platform{OS: "linux", Architecture: runtime.GOARCH},
			RootFS:   ocispec.RootFS{Type: "layers", DiffIDs: []digest.Digest{layers[0].Digest, layers[1].Digest}},
		}),
	})
	a.images[workload] = strings.TrimPrefix(strings.TrimSuffix(a.registry, "/edge"), "oci://") + "/" + name + "@" + manifest.Digest.String()
}

// publish publishes all workloads with their images. The value is in the environment of the first one.
func (a *airgapBench) publish(value string) {
	a.Helper()
	var text strings.Builder
	for i := range airgapTypes {
		clusterType := airgapClusterType
		if i > 0 {
			clusterType += fmt.Sprint("-", i)
		}
		fmt.Fprintf(&text, "apiVersion: scheduler.kalypso.io/v1alpha1\nkind: ClusterType\nmetadata:\n  name: %s\n"+
			"  annotations: {wherry.dev/adapter: directory, wherry.dev/carry: images}\n"+
			"spec: {reconciler: deployment, namespaceService: namespace, configType: settings}\n---\n", clusterType)
	}
	text.WriteString(airgapPlatform)
	text.WriteString("---\napiVersion: scheduler.kalypso.io/v1alpha1\nkind: Workload\nmetadata:\n  name: shop\nspec:\n  deploymentTargets:\n")
	for i, image := range a.images {
		fmt.Fprintf(&text, "    - name: service-%03d\n      environment: dev\n      manifests: {image: %q, value: %q}\n", i, image, value)
		value = "0"
	}
	require.NoError(a, os.MkdirAll(a.platform, 0o755))
	require.NoError(a, os.WriteFile(filepath.Join(a.platform, "platform.yaml"), []byte(text.String()), 0o600))
	a.timed(a.wherry, "publish", a.platform, "--environment", "dev", "--to", a.registry, "--key", "cosign.key")
}

const airgapPlatform = `apiVersion: scheduler.kalypso.io/v1alpha1
kind: SchedulingPolicy
metadata: {name: all}
spec: {deploymentTargetSelector: {labelSelector: {}}, clusterTypeSelector: {labelSelector: {}}}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: common, labels: {platform-config: "true"}}
data: {REGION: north}
---
apiVersion: scheduler.kalypso.io/v1alpha1
kind: Template
metadata: {name: namespace}
spec: {type: namespace, manifests: ["{apiVersion: v1, kind: Namespace, metadata: {name: {{ .Namespace }}}}\n"]}
---
apiVersion: scheduler.kalypso.io/v1alpha1
kind: Template
metadata: {name: settings}
spec:
  type: config
  manifests:
    - |
      apiVersion: v1
      kind: ConfigMap
      metadata: {name: settings, namespace: {{ .Namespace }}}
      data: {region: {{ .ConfigData.REGION | quote }}}
---
apiVersion: scheduler.kalypso.io/v1alpha1
kind: Template
metadata: {name: deployment}
spec:
  type: reconciler
  manifests:
    - |
      apiVersion: apps/v1
      kind: Deployment
      metadata: {name: {{ .DeploymentTargetName }}, namespace: {{ .Namespace }}}
      spec:
        selector: {matchLabels: {app: {{ .DeploymentTargetName }}}}
        template:
          metadata: {labels: {app: {{ .DeploymentTargetName }}}}
          spec:
            containers:
              - name: service
                image: {{ .Manifests.image }}
                envFrom: [{configMapRef: {name: settings}}]
                env: [{name: VALUE, value: {{ .Manifests.value | quote }}}]
`

// imported imports a package while the registry is gone.
func (a *airgapBench) imported(state, medium string) cost {
	a.Helper()
	a.stopServing()
	defer a.serveAgain()
	return a.timed(a.agent, a.importing(state, medium)...)
}

// stopServing ends the registry, and serveAgain starts it at the same address.
func (a *airgapBench) stopServing() {
	require.NoError(a, a.serving.Process.Signal(os.Interrupt))
	_ = a.serving.Wait()
}

func (a *airgapBench) serveAgain() {
	a.Helper()
	address := strings.TrimSuffix(strings.TrimPrefix(a.registry, "oci://"), "/edge")
	a.serveAt(address)
}

// importing are the arguments of an import by an agent with this state folder.
func (a *airgapBench) importing(state, medium string) []string {
	return []string{
		"import", medium, "--environment", "dev", "--cluster-type", airgapClusterType, "--key", "cosign.pub",
		"--state-dir", state, "--adapter", "directory", "--directory-root", state + "-applied", "--wait", "2m",
		"--carry-budget", "8GiB", // however full the disk is
	}
}

// rebuilt brings a site that has nothing to the release of the registry, with its images.
func (a *airgapBench) rebuilt() cost {
	a.Helper()
	state := a.path("state-rebuilt")
	defer a.dropState(state)
	return a.timed(a.agent, append([]string{"once", "--registry", a.registry}, a.importing(state, "")[2:]...)...)
}

// dropState deletes a state folder and its applied files.
func (a *airgapBench) dropState(state string) {
	if state != "" {
		require.NoError(a, errors.Join(os.RemoveAll(state), os.RemoveAll(state+"-applied")))
	}
}

// refused returns the bytes that an agent reads, of all files together, to refuse a package of another platform's ten
// cluster types.
func (a *airgapBench) refused() int64 {
	a.Helper()
	foreign := a.path("foreign.tar")
	a.timed(a.wherry, "airgap", "export", "--from", a.registry, "--environment", "dev", "-o", foreign)
	a.run("keys", "generate", "-o", "other")
	args := a.importing(a.path("other-state"), foreign)
	args[slices.Index(args, "cosign.pub")] = "other.pub"
	const denied = 4
	u := a.measured(a.agent, denied, args...)
	require.NoError(a, os.Remove(foreign))
	return u.read
}

// cost is what a process took.
type cost struct {
	used
	read    int64 // bytes that it read from files and pipes
	written int64 // bytes that it wrote to the disk
}

func (a *airgapBench) timed(program string, args ...string) cost {
	a.Helper()
	return a.measured(program, 0, args...)
}

// measured runs a program to its end, after all that has been written before has reached the disk.
func (a *airgapBench) measured(program string, code int, args ...string) (u cost) {
	a.Helper()
	cmd := a.command(args...)
	cmd.Path = program
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	unix.Sync()
	began := time.Now()
	require.NoError(a, cmd.Start())
	// The kernel forgets what a process has read and written when its parent has taken note of its end. Its resource
	// usage is no source of the peak: that begins with what this process, its parent, had resident.
	ended := make(chan error, 1)
	go func() {
		err := unix.EINTR
		for errors.Is(err, unix.EINTR) {
			err, _ = unix.Waitid(unix.P_PID, cmd.Process.Pid, nil, unix.WEXITED|unix.WNOWAIT, nil).(syscall.Errno)
		}
		if err != 0 {
			ended <- err
		}
		close(ended)
	}()
	for ticks := time.NewTicker(peakInterval); ; {
		select {
		case err := <-ended:
			ticks.Stop()
			require.NoError(a, err)
		case <-ticks.C:
			u.peak = max(u.peak, peakOf(cmd.Process.Pid))
			continue
		}
		break
	}
	u.wall = time.Since(began)
	account, err := os.ReadFile(fmt.Sprintf("/proc/%d/io", cmd.Process.Pid))
	require.NoError(a, err)
	_ = cmd.Wait() // the code says how it ended
	require.Equal(a, code, cmd.ProcessState.ExitCode(), "%v: %s", args, &out)
	u.cpu = cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
	for line := range strings.Lines(string(account)) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ": ")
		n, _ := strconv.ParseInt(value, 10, 64)
		switch name {
		case "rchar":
			u.read = n
		case "write_bytes":
			u.written = n
		}
	}
	return u
}

// peakInterval is the time between two looks at the peak of a process, which never falls while it runs.
const peakInterval = 5 * time.Millisecond

// peakOf is the most that a process has had resident, in bytes.
func peakOf(pid int) int64 {
	status, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid)) // it may have ended
	_, peak, _ := strings.Cut(string(status), "VmHWM:")
	fields := strings.Fields(peak)
	if len(fields) == 0 {
		return 0
	}
	kilobytes, _ := strconv.ParseInt(fields[0], 10, 64)
	return kilobytes << 10
}

// copy copies a file as cp and sync do.
func (a *airgapBench) copy(file string) cost {
	a.Helper()
	to := a.path("copy")
	u := a.timed("/bin/sh", "-c", `cp --reflink=never "$0" "$1" && sync "$1"`, file, to)
	require.NoError(a, os.Remove(to))
	return u
}

func fileSize(tb testing.TB, path string) int64 {
	info, err := os.Stat(path)
	require.NoError(tb, err)
	return info.Size()
}

func median(values []float64) float64 {
	slices.Sort(values)
	return values[len(values)/2]
}

func ratio(name string, value float64) { fmt.Printf("figure %s %.4f ratio\n", name, value) }
