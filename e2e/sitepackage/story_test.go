//go:build e2e

package sitepackage

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/e2e/harness"
)

// fleet is a trip with a hub at home, and ships that nothing reaches but a stick.
type fleet struct {
	*trip
	stick string // the folder that it is mounted at
}

// carrying is the platform of a trip whose clusters bring images to their stores.
var carrying = strings.Replace(platform, "metadata: {name: edge}", `metadata: {name: edge, annotations: {wherry.dev/carry: images}}`, 1)

// release publishes a new version of the image, and of the release that runs it.
func (f *fleet) release(version string) {
	f.t.Helper()
	f.releaseBy(version, f.wherry)
}

func (f *fleet) releaseBy(version string, wherry func(args ...string) ran) {
	f.t.Helper()
	f.index = f.grown()
	ref, err := name.ParseReference(f.images + "/shop/app:" + version)
	require.NoError(f.t, err)
	require.NoError(f.t, remote.WriteIndex(ref, f.index))
	digest, err := f.index.Digest()
	require.NoError(f.t, err)
	require.NoError(f.t, os.WriteFile(f.path("platform", "all.yaml"), fmt.Appendf(nil, carrying, ref.Name()+"@"+digest.String()), 0o644))
	r := wherry("publish", "platform", "--environment", "dev", "--to", "oci-layout:out", "--key", "cosign.key")
	require.Zero(f.t, r.code, r.stderr)
}

// grown is the image with one more layer.
func (f *fleet) grown() v1.ImageIndex {
	f.t.Helper()
	var index v1.ImageIndex = empty.Index
	for _, architecture := range []string{"arm64", "amd64"} {
		layer, err := random.Layer(64<<10, types.OCIUncompressedLayer)
		require.NoError(f.t, err)
		image, err := mutate.AppendLayers(platformOf(f.t, f.index, architecture), layer)
		require.NoError(f.t, err)
		index = mutate.AppendManifests(index, mutate.IndexAddendum{
			Add: image, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: architecture}},
		})
	}
	return index
}

// good runs wherry, which has to succeed.
func (f *fleet) good(args ...string) ran {
	f.t.Helper()
	r := f.wherry(args...)
	require.Zero(f.t, r.code, r.stderr)
	return r
}

// ship runs a command of the agent of a ship.
func (f *fleet) ship(name string, args ...string) ran {
	f.t.Helper()
	return f.try(f.program("wherry-agent"), append(slices.Clone(args), f.flags(name)...)...)
}

func (f *fleet) flags(name string) []string {
	return []string{
		"--environment", "dev", "--cluster-type", "edge", "--key", "cosign.pub", "--hub-key", "hub.pub", "--cluster-name", name, "--cluster-uid", "uid-" + name,
		"--adapter", "directory", "--directory-root", name + "-host", "--state-dir", name, "--carry-platforms", "linux/arm64",
	}
}

// runs are the images in the files that the ship has applied.
func (f *fleet) runs(name string) string {
	f.t.Helper()
	var all strings.Builder
	require.NoError(f.t, filepath.WalkDir(f.path(name+"-host"), func(path string, e os.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		data, err := os.ReadFile(path)
		all.Write(data)
		return err
	}))
	return all.String()
}

// requireRuns requires that the ship runs this version of the image.
func (f *fleet) requireRuns(name, version string) {
	f.t.Helper()
	require.Contains(f.t, f.runs(name), f.images+"/shop/app:"+version+"@")
}

func (f *fleet) export(file string, more ...string) {
	f.t.Helper()
	f.good(append([]string{"airgap", "export", "--environment", "dev", "--from", "oci-layout:out", "-o", file, "--verify", "--allow-private", "127.0.0.1"}, more...)...)
}

// read returns a file on the stick.
func (f *fleet) read(name string) string {
	f.t.Helper()
	data, err := os.ReadFile(filepath.Join(f.stick, name))
	require.NoError(f.t, err)
	return string(data)
}

// start runs wherry-agent until the test ends.
func (f *fleet) start(args ...string) *exec.Cmd {
	f.t.Helper()
	cmd := exec.Command(f.program("wherry-agent"), args...)
	cmd.Dir = f.dir
	require.NoError(f.t, cmd.Start())
	f.t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return cmd
}

// makeHub makes the hub at home, and writes down its key.
func (f *fleet) makeHub() {
	f.t.Helper()
	cmd := exec.Command(f.program("wherry"), "hub", "serve", "--data", "hub", "--addr", "127.0.0.1:0")
	cmd.Dir = f.dir
	out, err := cmd.StdoutPipe()
	require.NoError(f.t, err)
	require.NoError(f.t, cmd.Start())
	_, err = bufio.NewReader(out).ReadString('\n') // its address: the hub is made
	require.NoError(f.t, err)
	require.NoError(f.t, cmd.Process.Signal(os.Interrupt))
	require.NoError(f.t, cmd.Wait())
	require.NoError(f.t, os.WriteFile(f.path("hub.pub"), []byte(f.good("hub", "keys", "show", "--data", "hub").stdout), 0o644))
}

// newFleet has a first release on the stick, beside files of others.
func newFleet(t *testing.T) *fleet {
	t.Helper()
	f := &fleet{trip: newTrip(t, "linux/arm64")}
	f.stick = f.path("stick")
	require.NoError(t, os.Mkdir(f.stick, 0o755))
	f.makeHub()
	require.NoError(t, os.WriteFile(filepath.Join(f.stick, "reports.tar"), nil, 0o644))
	f.tool("tar", "-cf", "stick/photos.tar", "platform")
	return f
}

// Two ships share a stick, on which releases gather beside files of others. It carries images of a registry with a port to them, and
// their reports home. An old stick, one for other machines and a damaged one do no harm. A boat follows a ship while its first
// registry is dead. An agent that hangs holds nobody up, and a wrong clock cuts nobody off.
func TestTwoShipsShareAStick(t *testing.T) {
	f := newFleet(t)
	f.release("1.1")
	f.export("stick/site-1.tar", "--image-platform", "linux/arm64")
	require.NoError(t, os.Mkdir(f.path("old"), 0o755))
	require.NoError(t, os.Link(f.path("stick", "site-1.tar"), f.path("old", "site-1.tar")))

	// Both ships take it, and neither erases what the other one says.
	for _, ship := range []string{"Nordlys", "Ship_2"} {
		r := f.ship(ship, "import", "stick", "--reports", "stick")
		require.Zero(t, r.code, r.stderr)
		require.Contains(t, r.stdout, "stick/site-1.tar: taken")
		require.Contains(t, r.stderr, "photos.tar is passed over")
		f.requireRuns(ship, "1.1")
		require.NoError(t, os.WriteFile(f.path(ship+".json"), []byte(f.ship(ship, "status", "-o", "json").stdout), 0o644))
		f.good("hub", "clusters", "add", "--data", "hub", "--from", ship+".json")
	}
	for _, ship := range []string{"nordlys", "ship_2"} {
		require.Contains(t, f.read("RESULT-"+ship+".txt"), "All is well: ")
	}
	took := f.good("hub", "import", "--data", "hub", "stick")
	require.Contains(t, took.stdout, "Nordlys")
	require.Contains(t, took.stdout, "Ship_2")
	f.good("hub", "export-ack", "--data", "hub", "-o", "stick/acks.tar")

	// The next release builds on the first one, which stays on the stick: who comes aboard only now takes both, and runs the newest.
	f.release("1.2")
	f.export("stick/site-2.tar", "--image-platform", "linux/arm64", "--since", "stick/site-1.tar")
	r := f.ship("Nordlys", "import", "stick", "--reports", "stick")
	require.Zero(t, r.code, r.stderr)
	require.Contains(t, r.stdout, "deleted ", "the acknowledgements have come back")
	f.requireRuns("Nordlys", "1.2")
	late := f.ship("Late", "import", "stick/site-2.tar")
	require.Equal(t, 4, late.code, late.stderr)
	require.Regexp(t, `builds on release 2 \([0-9a-f]{8}\), which is not here: import the medium with it first`, late.stderr)
	late = f.ship("Late", "import", "stick")
	require.Zero(t, late.code, late.stderr)
	require.Contains(t, late.stdout, "stick: 2 packages: 2 streams, 2 taken")
	f.requireRuns("Late", "1.2")

	// The old stick changes nothing, and raises no alarm.
	r = f.ship("Nordlys", "import", "old")
	require.Zero(t, r.code, r.stderr)
	require.Contains(t, r.stdout, "older")
	require.Regexp(t, `(?m)^state +compliant$`, r.stdout)
	f.requireRuns("Nordlys", "1.2")

	f.otherMachines()
	f.damaged()
	later := f.later()
	f.home.Close()
	nordlys := f.boat()
	f.emptyStick()
	f.hangs(nordlys)
	f.wrongClock(later)
}

// otherMachines tries a package for machines that the ships do not have.
func (f *fleet) otherMachines() {
	f.t.Helper()
	f.release("1.3")
	f.export("wrong.tar", "--image-platform", "linux/amd64")
	r := f.ship("Nordlys", "import", "wrong.tar", "--reports", "stick")
	require.Equal(f.t, 4, r.code, r.stderr)
	require.Contains(f.t, r.stderr, "is here for linux/amd64, and the site needs linux/arm64")
	require.Contains(f.t, f.read("RESULT-nordlys.txt"), "LacksPlatform")
	require.Contains(f.t, f.try(f.program("wherry-agent"), "explain", "LacksPlatform").stdout, "--image-platform")
	f.requireRuns("Nordlys", "1.2")
}

// damaged flips a bit of an image on the way.
func (f *fleet) damaged() {
	f.t.Helper()
	f.export("stick/site-3.tar", "--image-platform", "linux/arm64", "--split", "1MiB")
	f.toolIn(f.stick, "sha256sum", "-c", "site-3.tar.sha256")
	part := filepath.Join(f.stick, "site-3.tar.001")
	data, err := os.ReadFile(part)
	require.NoError(f.t, err)
	whole := data[len(data)-20_000]
	data[len(data)-20_000] ^= 1
	require.NoError(f.t, os.WriteFile(part, data, 0o644))
	r := f.wherry("airgap", "verify", "stick/site-3.tar")
	require.Equal(f.t, 1, r.code, r.stderr)
	r = f.ship("Nordlys", "import", "stick/site-3.tar")
	require.NotZero(f.t, r.code)
	require.Contains(f.t, r.stderr, "site-3.tar.001 is not as it was exported")
	f.requireRuns("Nordlys", "1.2")
	data[len(data)-20_000] = whole
	require.NoError(f.t, os.WriteFile(part, data, 0o644))
	r = f.ship("Nordlys", "import", "stick", "--reports", "stick")
	require.Zero(f.t, r.code, r.stderr)
	f.requireRuns("Nordlys", "1.3")
}

// boat follows the ship Nordlys while its first registry is dead, and other programs pull from the ship.
func (f *fleet) boat() (nordlys *exec.Cmd) {
	f.t.Helper()
	address, err := harness.FreeAddress()
	require.NoError(f.t, err)
	nordlys = f.serve(address, "--serve-plain-http")
	dead, err := harness.FreeAddress()
	require.NoError(f.t, err)
	r := f.ship("Boat", "once", "--registry", "oci://"+dead+"/default", "--registry", "oci://"+address+"/default", "--wait", programTime.String())
	require.Zero(f.t, r.code, r.stderr)
	f.requireRuns("Boat", "1.3")

	image := address + "/" + strings.ReplaceAll(f.images, ":", "_") + "/shop/app:1.3"
	ref, err := name.ParseReference(image, name.Insecure)
	require.NoError(f.t, err)
	pulled, err := remote.Image(ref, remote.WithPlatform(v1.Platform{OS: "linux", Architecture: "arm64"}))
	require.NoError(f.t, err)
	f.requireSame(pulled)
	f.tool("skopeo", "--insecure-policy", "--override-os", "linux", "--override-arch", "arm64", "copy", "--src-tls-verify=false", "docker://"+image, "dir:pulled")
	return nordlys
}

// serve starts the agent of the ship Nordlys, and returns once its endpoint answers.
func (f *fleet) serve(address string, more ...string) *exec.Cmd {
	f.t.Helper()
	cmd := f.start(slices.Concat([]string{"run", "--interval", "24h", "--serve", address}, more, f.flags("Nordlys"))...)
	require.Eventually(f.t, func() bool {
		c, err := net.Dial("tcp", address)
		return err == nil && c.Close() == nil
	}, programTime, 50*time.Millisecond)
	return cmd
}

// end ends an agent in order.
func (f *fleet) end(cmd *exec.Cmd) {
	f.t.Helper()
	require.NoError(f.t, cmd.Process.Signal(syscall.SIGTERM))
	require.NoError(f.t, cmd.Wait())
}

// hangs stops the process of the ship's agent for a while: no command waits for it, and what was given up is not done later. Then
// it ends.
func (f *fleet) hangs(nordlys *exec.Cmd) {
	f.t.Helper()
	require.NoError(f.t, nordlys.Process.Signal(syscall.SIGSTOP))
	for _, args := range [][]string{{"pause", "--reason", "nobody waits for it"}, {"import", "stick"}} {
		r := f.ship("Nordlys", args...)
		require.Equal(f.t, 3, r.code, r.stderr)
		require.Contains(f.t, r.stderr, "the agent is running, but does not answer")
	}
	require.NoError(f.t, nordlys.Process.Signal(syscall.SIGCONT))
	r := f.ship("Nordlys", "import", "stick")
	require.Zero(f.t, r.code, r.stderr)
	require.Regexp(f.t, `(?m)^state +compliant$`, r.stdout, "it is not paused")
	f.end(nordlys)
}

// later exports a release that was issued years from now, as one finds it whose clock is wrong.
func (f *fleet) later() string {
	f.t.Helper()
	years := time.Now().AddDate(3, 0, 0).UTC().Format(time.RFC3339)
	build := exec.CommandContext(f.t.Context(), "go", "build", "-trimpath", "-ldflags", "-X github.com/wherry-dev/wherry/cmd/internal/cli.fixedTime="+years, "-o", f.path("wherry-later"), "../../cmd/wherry")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	out, err := build.CombinedOutput()
	require.NoError(f.t, err, string(out))
	running := f.index
	defer func() { f.index = running }()
	f.releaseBy("1.4", func(args ...string) ran { return f.try(f.path("wherry-later"), args...) })
	r := f.try(f.path("wherry-later"), "airgap", "export", "--environment", "dev", "--from", "oci-layout:out", "-o", "later.tar", "--allow-private", "127.0.0.1", "--image-platform", "linux/arm64")
	require.Zero(f.t, r.code, r.stderr)
	return "later.tar"
}

// wrongClock brings that release to the ship, whose endpoint a boat trusts by its first certificate all the time.
func (f *fleet) wrongClock(later string) {
	f.t.Helper()
	address, err := harness.FreeAddress()
	require.NoError(f.t, err)
	machine, err := os.Hostname() // loopback addresses are asked without TLS
	require.NoError(f.t, err)
	f.t.Setenv("NO_PROXY", machine) // what else is outside is behind a dead proxy
	host := machine + address[strings.LastIndexByte(address, ':'):]
	boat := func(version string) {
		r := f.ship("Boat", "once", "--registry", "oci://"+host+"/default", "--tls-host-ca", host+"=first.pem", "--wait", programTime.String())
		require.Zero(f.t, r.code, r.stderr)
		f.requireRuns("Boat", version)
	}
	https := []string{"--serve-url", "https://" + host}
	nordlys := f.serve(address, https...)
	require.NoError(f.t, os.WriteFile(f.path("first.pem"), []byte(f.ship("Nordlys", "serve", "ca").stdout), 0o644))
	boat("1.3")
	r := f.ship("Nordlys", "import", later)
	require.Zero(f.t, r.code, r.stderr)
	require.Regexp(f.t, `(?m)^clock +behind by at least `, r.stdout)
	f.requireRuns("Nordlys", "1.4")
	f.end(nordlys)
	nordlys = f.serve(address, https...) // with certificates by the later time
	boat("1.4")
	boat("1.4") // which judges certificates by that time, too
	f.end(nordlys)
}

// emptyStick mounts a stick without a package where the ship Nordlys watches, which takes its reports home.
func (f *fleet) emptyStick() {
	f.t.Helper()
	require.NoError(f.t, os.Mkdir(f.path("mount"), 0o755))
	said, err := os.Create(f.path("watch.log"))
	require.NoError(f.t, err)
	defer said.Close()
	script := `mount -t tmpfs none mount && exec "$@" >watch.log`
	cmd := exec.Command("unshare", append([]string{"--map-root-user", "--mount", "sh", "-c", script, "sh", f.program("wherry-agent"), "import", "--watch", "mount", "--reports", "."}, f.flags("Nordlys")...)...)
	cmd.Dir = f.dir
	require.NoError(f.t, cmd.Start())
	defer func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}()
	require.Eventually(f.t, func() bool {
		data, err := os.ReadFile(f.path("watch.log"))
		return err == nil && strings.Contains(string(data), "mount: nothing to take: no *.tar or *.tar.001 on it; wrote ")
	}, programTime, 50*time.Millisecond)
}

// toolIn is tool in a folder.
func (f *fleet) toolIn(dir, name string, args ...string) {
	f.t.Helper()
	cmd := exec.CommandContext(f.t.Context(), name, args...)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	require.NoError(f.t, err, string(out))
}
