//go:build e2e && pods

// Package images tests what "make image" makes, with real packages of Debian's, in a real containerd. No cluster is needed.
package images

import (
	"archive/tar"
	"bufio"
	"bytes"
	"crypto/rand"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/e2e/harness"
)

// anyUser is what OpenShift gives a container: a user that no file names, and root's group.
const anyUser = 1000690000

// Bounds of what a site has to transfer, in bytes: the layers as they are in a registry.
var maxImageBytes = map[string]int64{"wherry-agent": 16e6, "wherry": 45e6}

// site is a registry with a repository of a test, and a folder with a key.
type site struct {
	t      *testing.T
	dir    string
	prefix string
}

const password = "of the keys of a test"

func newSite(t *testing.T) *site {
	t.Helper()
	registry, err := harness.StartRegistry(t.Context())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, registry.Stop()) })
	return &site{t, t.TempDir(), registry.Prefix + "/" + strings.ToLower(rand.Text()[:8])}
}

func (s *site) path(name string) string { return filepath.Join(s.dir, name) }

// execute runs a program in the site's folder, and returns what it prints to standard output.
func (s *site) execute(program string, args ...string) string {
	s.t.Helper()
	cmd := exec.CommandContext(s.t.Context(), program, args...)
	cmd.Dir, cmd.Env = s.dir, append(os.Environ(), "COSIGN_PASSWORD="+password, "HOME="+s.dir, "HTTPS_PROXY=http://127.0.0.1:1")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	require.NoError(s.t, err, stderr.String())
	return strings.TrimSpace(string(out))
}

// ours is the path of a program that is tested.
func ours(t *testing.T, name string) string {
	t.Helper()
	programs := os.Getenv(harness.ProgramsEnv)
	require.NotEmpty(t, programs, `%s is not set: run "make e2e"`, harness.ProgramsEnv)
	return filepath.Join(programs, name)
}

// image makes an image in the folder of its name, as "make image" does, and returns its digest.
func (s *site) image(name, platform, program string, more ...string) string {
	s.t.Helper()
	args := []string{"run", "-C", "../../tools", "./image", "-name", name, "-o", s.path("image-" + name)}
	image := exec.CommandContext(s.t.Context(), "go", append(append(args, more...), platform+"="+program)...)
	image.Env = append(os.Environ(), "COSIGN_PASSWORD="+password)
	var stderr bytes.Buffer
	image.Stderr = &stderr
	out, err := image.Output()
	require.NoError(s.t, err, stderr.String())
	return strings.TrimSpace(string(out))
}

// written returns the image for the only platform in the layout that image wrote.
func (s *site) written(name string) v1.Image {
	s.t.Helper()
	root, err := layout.ImageIndexFromPath(s.path("image-" + name))
	require.NoError(s.t, err)
	manifest, err := root.IndexManifest()
	require.NoError(s.t, err)
	index, err := root.ImageIndex(manifest.Manifests[0].Digest)
	require.NoError(s.t, err)
	manifest, err = index.IndexManifest()
	require.NoError(s.t, err)
	image, err := index.Image(manifest.Manifests[0].Digest)
	require.NoError(s.t, err)
	return image
}

// cosign verifies the image, that of the platform, its SBOM and its provenance, where they were pushed.
func TestTheImagesAreSigned(t *testing.T) {
	s := newSite(t)
	cosign, err := harness.Tool("cosign")
	require.NoError(t, err)
	s.execute(ours(t, "wherry"), "keys", "generate", "-o", "cosign")
	reference := s.prefix + "/wherry-agent:dev"
	s.image("wherry-agent", "linux/"+runtime.GOARCH, ours(t, "wherry-agent"), "-push", reference, "-key", s.path("cosign.key"), "-cosign", cosign)
	root, err := layout.ImageIndexFromPath(s.path("image-wherry-agent"))
	require.NoError(t, err)
	manifest, err := root.IndexManifest()
	require.NoError(t, err)
	var digests []string
	for _, d := range manifest.Manifests {
		if !strings.HasSuffix(d.Annotations["org.opencontainers.image.ref.name"], ".sig") {
			digests = append(digests, d.Digest.String())
		}
	}
	platform, err := s.written("wherry-agent").Digest()
	require.NoError(t, err)
	digests = append(digests, platform.String())
	require.Len(t, digests, 4)
	require.Len(t, manifest.Manifests, 3+len(digests), "the layout has the signatures as well")
	for _, digest := range digests {
		claims := s.execute(cosign, "verify", "--key", "cosign.pub", "--insecure-ignore-tlog=true", "--allow-http-registry", s.prefix+"/wherry-agent@"+digest)
		require.Contains(t, claims, digest)
	}
}

// What "make image" makes is the same again, is small, and runs as a user that nobody has heard of, on a file system that it may only read.
func TestTheImagesRunAsAnyUser(t *testing.T) {
	s := newSite(t)
	c, err := harness.StartContainerd(t.Context())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Stop()) })
	host, _, _ := strings.Cut(s.prefix, "/")
	hosts := filepath.Join(c.Hosts, host)
	require.NoError(t, os.MkdirAll(hosts, 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(hosts, "hosts.toml"), fmt.Appendf(nil, "server = \"http://%s\"\n", host), 0o644))

	platform, containers := "linux/"+runtime.GOARCH, map[string]harness.Container{}
	for _, name := range []string{"wherry-agent", "wherry"} {
		reference := s.prefix + "/" + name + ":dev"
		first := s.image(name, platform, ours(t, name), "-push", reference)
		require.Equal(t, first, s.image(name, platform, ours(t, name)), "equal packages give one digest")
		size := int64(0)
		layers, err := s.written(name).Layers()
		require.NoError(t, err)
		for _, layer := range layers {
			bytes, err := layer.Size()
			require.NoError(t, err)
			size += bytes
		}
		t.Logf("image-%s-bytes %d", name, size)
		require.LessOrEqual(t, size, maxImageBytes[name])
		require.NoError(t, c.Pull(t.Context(), reference))
		config, err := s.written(name).ConfigFile()
		require.NoError(t, err)
		root, err := c.Mount(t.Context(), reference)
		require.NoError(t, err)
		containers[name] = harness.Container{Root: root, UID: anyUser, Env: config.Config.Env}
	}

	type ran struct {
		code           int
		stdout, stderr string
	}
	run := func(image, name string, args ...string) ran {
		cmd, err := c.Command(t.Context(), name, containers[image], args...)
		require.NoError(t, err)
		var stdout, stderr bytes.Buffer
		cmd.Stdout, cmd.Stderr = &stdout, &stderr
		if err := cmd.Run(); err != nil {
			require.ErrorAs(t, err, new(*exec.ExitError))
		}
		return ran{cmd.ProcessState.ExitCode(), stdout.String(), stderr.String()}
	}
	for image, program := range map[string]string{"wherry-agent": "/wherry-agent", "wherry": "/usr/bin/wherry"} {
		begin := time.Now()
		r := run(image, image+"-version", program, "version", "-o", "json")
		require.Zero(t, r.code, r.stderr)
		t.Logf("cold-start-%s-ms %d", image, time.Since(begin).Milliseconds())
		require.Contains(t, r.stdout, platform)
	}

	// The platform comes from git, and what was rendered goes there by the program git, over libcurl.
	git, err := harness.StartGit()
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, git.Stop()) })
	_, err = git.Commit(t.Context(), "platform", "main", files(t, "../testdata", "platform", "workloads"))
	require.NoError(t, err)
	require.NoError(t, git.Create(t.Context(), "rendered"))
	in := strings.Replace(git.URL, "://", "://"+url.UserPassword(harness.GitUser, harness.GitPassword).String()+"@", 1)
	r := run("wherry", "render", "/usr/bin/wherry", "render", in+"/platform#main:platform", "--environment", "dev",
		"--workload", "shop="+in+"/platform#main:workloads/shop", "--to-git", in+"/rendered#dev", "--direct")
	require.Zero(t, r.code, r.stderr)
	commit, err := exec.CommandContext(t.Context(), "git", "--git-dir="+filepath.Join(git.Folder(), "rendered"), "rev-parse", "dev").Output()
	require.NoError(t, err)
	require.Equal(t, strings.TrimSpace(string(commit)), strings.TrimSpace(r.stdout))

	// ssh runs, too, which asks for the name of its user.
	r = run("wherry", "ssh", "/usr/bin/git", "ls-remote", "ssh://git@127.0.0.1:1/platform")
	require.NotZero(t, r.code)
	require.Contains(t, r.stderr, "Connection refused")
	r = run("wherry", "gap", "/usr/bin/git", "ls-remote", "https://127.0.0.1:1/platform")
	require.Contains(t, r.stderr, "Failed to connect")

	s.runHub(c, containers["wherry"])
}

// files reads folders of dir, by the paths of the files in it.
func files(t *testing.T, dir string, folders ...string) map[string]string {
	t.Helper()
	found := map[string]string{}
	for _, folder := range folders {
		require.NoError(t, filepath.WalkDir(filepath.Join(dir, folder), func(path string, d os.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			data, err := os.ReadFile(path)
			name, relative := filepath.Rel(dir, path)
			found[name] = strings.ReplaceAll(string(data), "ENVIRONMENT", "dev")
			return errors.Join(err, relative)
		}))
	}
	return found
}

// runHub runs the hub with its data in a volume that belongs to root and its group, until it is told to end.
func (s *site) runHub(c *harness.Containerd, in harness.Container) {
	t := s.t
	data := s.path("hub-data")
	require.NoError(t, os.Mkdir(data, 0o770))
	require.NoError(t, os.Chmod(data, 0o770)) // whatever the umask is
	in.Mounts = map[string]string{"/var/lib/wherry-hub": data}
	cmd, err := c.Command(t.Context(), "hub", in, "/usr/bin/wherry", "hub", "serve", "--addr", "127.0.0.1:0", "--data", "/var/lib/wherry-hub")
	require.NoError(t, err)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	stdout, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	begin := time.Now()
	line, err := bufio.NewReader(stdout).ReadString('\n')
	require.NoError(t, err, stderr.String())
	t.Logf("cold-start-hub-ms %d", time.Since(begin).Milliseconds())
	answer, err := http.Get(strings.TrimSpace(line) + "/healthz")
	require.NoError(t, err)
	require.NoError(t, answer.Body.Close())
	require.Equal(t, http.StatusOK, answer.StatusCode)
	require.NoError(t, cmd.Process.Signal(syscall.SIGTERM)) // ctr passes it on
	_, _ = io.Copy(io.Discard, stdout)
	_ = cmd.Wait()
	info, err := os.Stat(filepath.Join(data, "admin.token"))
	require.NoError(t, err, stderr.String())
	require.Equal(t, os.FileMode(0o600), info.Mode().Perm())
}

// An image for a machine that is not here cannot be run: each program in it is for that machine, with all of its libraries.
func TestTheImageForAnotherMachineIsWhole(t *testing.T) {
	s := newSite(t)
	arch, machine := "arm64", elf.EM_AARCH64
	if runtime.GOARCH == arch {
		arch, machine = "amd64", elf.EM_X86_64
	}
	program := s.path("program")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", program, "../harness/cmd/pod")
	build.Env = append(os.Environ(), "CGO_ENABLED=0", "GOARCH="+arch)
	out, err := build.CombinedOutput()
	require.NoError(t, err, "%s", out)
	s.image("wherry", "linux/"+arch, program)

	files, needs := map[string]bool{}, map[string][]string{}
	content := mutate.Extract(s.written("wherry"))
	defer content.Close()
	for r := tar.NewReader(content); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		require.NoError(t, err)
		files[filepath.Base(h.Name)] = true
		data, err := io.ReadAll(r)
		require.NoError(t, err)
		if !bytes.HasPrefix(data, []byte(elf.ELFMAG)) {
			continue
		}
		f, err := elf.NewFile(bytes.NewReader(data))
		require.NoError(t, err, h.Name)
		require.Equal(t, machine, f.Machine, h.Name)
		needs[h.Name], err = f.ImportedLibraries()
		require.NoError(t, err, h.Name)
	}
	for _, program := range []string{"usr/bin/wherry", "usr/bin/git", "usr/lib/git-core/git-remote-http", "usr/bin/ssh", "usr/bin/dash"} {
		require.Contains(t, needs, program)
	}
	for name, libraries := range needs {
		for _, library := range libraries {
			require.True(t, files[library], "%s needs %s", name, library)
		}
	}
}
