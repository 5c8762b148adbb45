package main

import (
	"debug/elf"
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/sassoftware/go-rpmutils"
	"github.com/stretchr/testify/require"
)

// programs is the folder with the programs that the tests pack.
var programs string

func TestMain(m *testing.M) { os.Exit(testMain(m)) }

func testMain(m *testing.M) int {
	err := os.Chdir("../..")
	if err == nil {
		programs, err = os.MkdirTemp("", "wherry-nfpm-")
	}
	defer os.RemoveAll(programs)
	if err == nil {
		build := exec.Command("go", "build", "-ldflags", "-s -w", "-o", programs+"/", "./cmd/...")
		build.Stdout, build.Stderr = os.Stdout, os.Stderr
		err = build.Run()
	}
	if err != nil {
		println(err.Error())
		return 1
	}
	return m.Run()
}

// packages makes the packages of a version of the programs in a folder, and returns the folder that they are in.
func packages(t *testing.T, version, programsOf string, more ...string) string {
	t.Helper()
	dir := t.TempDir()
	args := append([]string{"-o", dir, "-version", version, "-created", "2026-11-21T12:00:00Z", "-programs", programs}, more...)
	require.NoError(t, run(append(args, runtime.GOARCH+"="+programsOf)))
	return dir
}

// older is a folder with programs of another version, which say so.
func older(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for _, name := range []string{"wherry", "wherry-agent"} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\necho older\n"), 0o755))
	}
	return dir
}

func names(t *testing.T, dir string) (all []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	for _, e := range entries {
		all = append(all, e.Name())
	}
	return all
}

func TestTheSameInputGivesTheSamePackages(t *testing.T) {
	first, second := packages(t, "v1.2.3", older(t)), packages(t, "v1.2.3", older(t))
	require.Len(t, names(t, first), 4)
	for _, name := range names(t, first) {
		a, err := os.ReadFile(filepath.Join(first, name))
		require.NoError(t, err)
		b, err := os.ReadFile(filepath.Join(second, name))
		require.NoError(t, err)
		require.True(t, string(a) == string(b), name)
	}
}

// machine is the root of a machine, made of files of this one: a shell, what maintainer scripts run, and no wherry.
type machine struct {
	t    *testing.T
	root string
}

func newMachine(t *testing.T) machine {
	t.Helper()
	if _, err := exec.LookPath("dpkg"); err != nil || os.Getuid() != 0 {
		required := slices.Contains(strings.Split(os.Getenv("WHERRY_REQUIRE"), ","), "packages")
		require.False(t, required, "packages are installed by root on Debian")
		t.Skip("packages are installed by root on Debian")
	}
	m := machine{t, t.TempDir()}
	for _, program := range []string{"/bin/sh", "/usr/bin/install", "/usr/bin/systemd-sysusers", "/usr/bin/id", "/usr/bin/stat"} {
		m.bring(program)
	}
	var status []byte
	for _, name := range []string{"systemd", "git"} { // which are looked at by name alone
		out, err := exec.CommandContext(t.Context(), "dpkg", "--status", name).Output()
		require.NoError(t, err, "the package %s is missing here", name)
		var lines []string
		for line := range strings.Lines(string(out)) {
			if key, _, _ := strings.Cut(line, ":"); slices.Contains([]string{"Package", "Status", "Architecture", "Version", "Maintainer", "Description"}, key) {
				lines = append(lines, line)
			}
		}
		status = append(append(status, strings.Join(lines, "")...), '\n')
	}
	for _, dir := range []string{"var/lib/dpkg/info", "var/lib/dpkg/updates", "etc", "tmp", "usr/lib/sysusers.d"} {
		require.NoError(t, os.MkdirAll(filepath.Join(m.root, dir), 0o755))
	}
	for name, content := range map[string]string{
		"var/lib/dpkg/info/systemd.list": "", "var/lib/dpkg/info/git.list": "", "var/lib/dpkg/status": string(status), "etc/passwd": "root:x:0:0:root:/root:/bin/sh\n", "etc/group": "root:x:0:\n",
	} {
		require.NoError(t, os.WriteFile(filepath.Join(m.root, name), []byte(content), 0o644))
	}
	return m
}

// bring copies a program with its libraries.
func (m machine) bring(path string) {
	m.t.Helper()
	real, err := filepath.EvalSymlinks(path)
	require.NoError(m.t, err)
	to := filepath.Join(m.root, path)
	if _, err := os.Stat(to); err == nil {
		return
	}
	data, err := os.ReadFile(real)
	require.NoError(m.t, err)
	require.NoError(m.t, os.MkdirAll(filepath.Dir(to), 0o755))
	require.NoError(m.t, os.WriteFile(to, data, 0o755))
	f, err := elf.Open(real)
	require.NoError(m.t, err)
	defer f.Close()
	libraries, err := f.ImportedLibraries()
	require.NoError(m.t, err)
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP {
			loader, err := io.ReadAll(p.Open())
			require.NoError(m.t, err)
			m.bring(strings.TrimRight(string(loader), "\x00"))
		}
	}
	for _, library := range libraries {
		found, err := filepath.Glob("/usr/lib/*-linux-gnu/" + library)
		require.NoError(m.t, err)
		if len(found) == 0 {
			found, err = filepath.Glob("/usr/lib/*-linux-gnu/systemd/" + library)
			require.NoError(m.t, err)
		}
		require.NotEmpty(m.t, found, library)
		m.bring(found[0])
	}
}

func (m machine) dpkg(args ...string) string {
	m.t.Helper()
	cmd := exec.CommandContext(m.t.Context(), "dpkg", append([]string{"--root=" + m.root, "--force-not-root"}, args...)...)
	out, err := cmd.CombinedOutput()
	require.NoError(m.t, err, "%s", out)
	return string(out)
}

// version is that of a package that is installed.
func (m machine) version(name string) string {
	m.t.Helper()
	out, err := exec.CommandContext(m.t.Context(), "dpkg-query", "--admindir="+m.path("var/lib/dpkg"), "--showformat=${Version}", "--show", name).CombinedOutput()
	require.NoError(m.t, err, "%s", out)
	return string(out)
}

// run runs a program of the machine.
func (m machine) run(args ...string) string {
	m.t.Helper()
	cmd := exec.CommandContext(m.t.Context(), "chroot", append([]string{m.root}, args...)...)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	require.NoError(m.t, err, stderr.String())
	return string(out)
}

func (m machine) path(name string) string { return filepath.Join(m.root, name) }

// The packages are installed, upgraded and removed by the real dpkg, and what a person has written stays.
func TestThePackagesOnAMachine(t *testing.T) {
	m := newMachine(t)
	first, second := packages(t, "v1.2.3-rc.1", older(t)), packages(t, "v1.2.3", programs, "-formats", "deb")
	file := func(dir, name string) string {
		found, err := filepath.Glob(filepath.Join(dir, name+"_*.deb"))
		require.NoError(t, err)
		require.Len(t, found, 1)
		return found[0]
	}
	m.dpkg("--install", file(first, "wherry-agent"), file(first, "wherry-hub"))
	require.Equal(t, "older\n", m.run("/usr/bin/wherry", "version"))
	require.Contains(t, m.run("/usr/bin/id", "wherry-hub"), "(wherry-hub)")
	require.Equal(t, "750 root wherry-hub\n", m.run("/usr/bin/stat", "-c", "%a %U %G", "/etc/wherry/hub"))
	require.Equal(t, "/usr/bin/wherry", strings.TrimSpace(strings.TrimPrefix(m.dpkg("--search", "/usr/bin/wherry"), "wherry-hub: ")), "it belongs to dpkg")
	require.Equal(t, "1.2.3~rc.1", m.version("wherry-agent"))

	// The manual and the completions are where the tools look for them.
	man := exec.CommandContext(t.Context(), "zcat", m.path("/usr/share/man/man1/wherry-hub-serve.1.gz"))
	page, err := man.Output()
	require.NoError(t, err)
	require.Contains(t, string(page), ".SH NAME\nwherry\\-hub\\-serve \\- Serve the hub\n")
	require.Contains(t, string(page), "\n.SH OPTIONS\n")
	require.Contains(t, string(page), ".BR wherry\\-hub (1)\n")
	require.FileExists(t, m.path("/usr/share/man/man1/wherry-agent-once.1.gz"))
	require.FileExists(t, m.path("/usr/share/bash-completion/completions/wherry-agent"))

	// An upgrade keeps a configuration that was changed, and replaces the program.
	config := m.path("/etc/wherry/agent.yaml")
	require.NoError(t, os.WriteFile(config, []byte("environment: prod\n"), 0o644))
	m.dpkg("--force-confdef", "--force-confold", "--install", file(second, "wherry-agent"), file(second, "wherry-hub"))
	require.Equal(t, "1.2.3", m.version("wherry-hub"))
	data, err := os.ReadFile(config)
	require.NoError(t, err)
	require.Equal(t, "environment: prod\n", string(data))
	require.Contains(t, m.run("/usr/bin/wherry", "version"), runtime.GOARCH)
	require.Contains(t, m.run("/usr/bin/wherry-agent", "version"), runtime.GOARCH)
	// "wherry install host" writes what a package brings, to other folders; the configuration is kept as well.
	written := m.run("/usr/bin/wherry", "install", "host", "agent", "--root", "/")
	require.NotContains(t, written, "agent.yaml")
	for line := range strings.Lines(written) {
		path := strings.TrimSpace(line)
		ours, err := os.ReadFile(m.path(path))
		require.NoError(t, err)
		packed, err := os.ReadFile(m.path(inPackage(path)))
		require.NoError(t, err, path)
		require.Equal(t, string(packed), string(ours))
		require.NoError(t, os.Remove(m.path(path)))
	}

	require.NoError(t, os.MkdirAll(m.path("/var/lib/wherry-hub"), 0o700))
	m.dpkg("--remove", "wherry-agent", "wherry-hub")
	require.NoFileExists(t, m.path("/usr/bin/wherry"))
	require.NoFileExists(t, m.path("/usr/lib/systemd/system/wherry-agent.service"))
	require.FileExists(t, config)
	m.dpkg("--purge", "wherry-agent", "wherry-hub")
	require.NoFileExists(t, config)
	require.DirExists(t, m.path("/var/lib/wherry-hub"), "the data stays")
	err = filepath.WalkDir(m.root, func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() && strings.Contains(strings.TrimPrefix(path, m.root), "wherry") {
			err = errors.New(path + " was left behind")
		}
		return err
	})
	require.NoError(t, err)
}

// inPackage is the path in a package of a file that "wherry install host" writes.
func inPackage(path string) string {
	for _, folder := range []string{"systemd/system", "udev/rules.d", "tmpfiles.d", "sysusers.d"} {
		if name, found := strings.CutPrefix(path, "/etc/"+folder+"/"); found {
			return "/usr/lib/" + folder + "/" + name
		}
	}
	return path
}

// An rpm has the files of the deb, but for the place of zsh's completions, and says which are configuration.
func TestTheRPMsHoldTheSame(t *testing.T) {
	dir := packages(t, "v1.2.3-rc.1", older(t))
	for name, config := range map[string][]string{
		"wherry-agent": {"/etc/wherry/agent.yaml"}, "wherry-hub": {"/etc/wherry/hub.env", "/etc/wherry/promote.env", "/etc/wherry/publish.env"},
	} {
		found, err := filepath.Glob(filepath.Join(dir, name+"-1.2.3*.rpm"))
		require.NoError(t, err)
		require.Len(t, found, 1)
		f, err := os.Open(found[0])
		require.NoError(t, err)
		defer f.Close()
		rpm, err := rpmutils.ReadRpm(f)
		require.NoError(t, err)
		text := func(tag int) string {
			value, err := rpm.Header.GetString(tag)
			require.NoError(t, err)
			return value
		}
		require.Equal(t, name, text(rpmutils.NAME))
		require.Equal(t, "1.2.3~rc.1", text(rpmutils.VERSION))
		require.Equal(t, "Apache-2.0", text(rpmutils.LICENSE))
		require.Equal(t, "localhost", text(rpmutils.BUILDHOST))
		require.Contains(t, text(rpmutils.POSTIN), "systemctl daemon-reload")
		files, err := rpm.Header.GetFiles()
		require.NoError(t, err)
		var paths, kept []string
		for _, file := range files {
			paths = append(paths, strings.Replace(file.Name(), "site-functions", "vendor-completions", 1))
			const noReplace, configuration = 1 << 4, 1
			if file.Flags()&(noReplace|configuration) == noReplace|configuration {
				kept = append(kept, file.Name())
			}
			require.Equal(t, "root", file.UserName())
		}
		require.Equal(t, config, kept)

		debs, err := filepath.Glob(filepath.Join(dir, name+"_*.deb"))
		require.NoError(t, err)
		out, err := exec.CommandContext(t.Context(), "sh", "-c", `dpkg-deb --fsys-tarfile "$1" | tar -t`, "sh", debs[0]).Output()
		require.NoError(t, err)
		var inDeb []string
		for line := range strings.Lines(string(out)) {
			if path := strings.TrimSpace(line); !strings.HasSuffix(path, "/") {
				inDeb = append(inDeb, strings.TrimPrefix(path, "."))
			}
		}
		require.ElementsMatch(t, inDeb, paths)
	}
}

func TestWrongUse(t *testing.T) {
	require.ErrorContains(t, run(nil), "usage: ")
	require.ErrorContains(t, run([]string{"-programs", programs, "amd64"}), "write ARCHITECTURE=FOLDER")
	require.ErrorContains(t, run([]string{"-programs", t.TempDir(), "amd64=bin"}), "manual and completions of wherry: ")
	require.ErrorContains(t, run([]string{"-created", "today", "amd64=bin"}), "-created: ")
	require.ErrorContains(t, run([]string{"-o", t.TempDir(), "-formats", "apk", "-programs", programs, "amd64=" + older(t)}), "as apk: ")
	dir := t.TempDir()
	require.ErrorContains(t, run([]string{"-o", dir, "-programs", programs, "amd64=" + t.TempDir()}), "wherry-agent")
	require.Empty(t, names(t, dir), "nothing is left behind")
}
