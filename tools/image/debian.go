package main

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"debug/elf"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

// debianRelease is the release of Debian whose packages an image holds, in the versions of the day.
const debianRelease = "trixie"

// debianSources are where apt-get looks for packages; their signatures are checked with Debian's own keys.
const debianSources = `deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] http://deb.debian.org/debian ` + debianRelease + ` main
deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] http://deb.debian.org/debian-security ` + debianRelease + `-security main
`

// debianArch names a platform's architecture as Debian does, and elfMachine as ELF files do.
var (
	debianArch = map[string]string{"amd64": "amd64", "arm64": "arm64"}
	elfMachine = map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64}
)

// debPackage is a package of Debian's that has been unpacked in memory.
type debPackage struct {
	name, version, arch string
	control             []byte
	sha256              string
	files               []entry
}

// downloader keeps Debian's packages in a cache folder. The machine's own apt and dpkg are left as they are.
type downloader struct {
	cache string
	// refresh asks for the newest versions; otherwise those of an earlier call are used.
	refresh bool
}

// fetch returns the files of the packages with these names, and of the libraries that they depend on.
func (d downloader) fetch(ctx context.Context, arch string, names []string) ([]string, error) {
	names = slices.Sorted(slices.Values(names))
	dir := filepath.Join(d.cache, debianRelease+"-"+arch)
	state := filepath.Join(dir, "apt")
	for _, folder := range []string{"lists/partial", "cache/archives/partial"} {
		if err := os.MkdirAll(filepath.Join(state, folder), 0o755); err != nil {
			return nil, err
		}
	}
	lock, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	defer lock.Close() // which unlocks it
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		return nil, fmt.Errorf("lock %s: %w", lock.Name(), err)
	}
	sum := sha256.Sum256([]byte(debianSources + strings.Join(names, " ")))
	debs := filepath.Join(dir, hex.EncodeToString(sum[:8]))
	if _, err := os.Stat(debs); errors.Is(err, os.ErrNotExist) || d.refresh {
		if err := download(ctx, state, debs, arch, names); err != nil {
			return nil, fmt.Errorf("download packages of Debian with apt-get: %w", err)
		}
	}
	return filepath.Glob(filepath.Join(debs, "*.deb"))
}

// download replaces the folder debs when all packages are there.
func download(ctx context.Context, state, debs, arch string, names []string) error {
	sources, status := filepath.Join(state, "sources.list"), filepath.Join(state, "status")
	if err := errors.Join(os.WriteFile(sources, []byte(debianSources), 0o644), os.WriteFile(status, nil, 0o644)); err != nil {
		return err
	}
	temp, err := os.MkdirTemp(filepath.Dir(debs), "debs-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(temp)
	apt := func(args ...string) (string, error) {
		cmd := exec.CommandContext(ctx, "apt-get", append([]string{
			"-qq", "-o", "APT::Architecture=" + arch, "-o", "APT::Architectures=" + arch, "-o", "Acquire::Languages=none", "-o", "APT::Sandbox::User=",
			"-o", "Dir::State=" + state, "-o", "Dir::State::status=" + status, "-o", "Dir::Cache=" + filepath.Join(state, "cache"),
			"-o", "Dir::Etc::sourcelist=" + sources, "-o", "Dir::Etc::sourceparts=/dev/null",
		}, args...)...)
		cmd.Dir = temp
		return output(cmd)
	}
	if _, err := apt("update"); err != nil {
		return err
	}
	plan, err := apt(append([]string{"install", "--simulate", "--no-install-recommends"}, names...)...)
	if err != nil {
		return err
	}
	if _, err := apt(append([]string{"download"}, chosen(plan, names)...)...); err != nil {
		return err
	}
	if err := os.RemoveAll(debs); err != nil {
		return err
	}
	return os.Rename(temp, debs)
}

// chosen returns the packages with these names and the libraries of a plan of apt-get's. What else they depend on, such as perl, nothing in an
// image runs.
func chosen(plan string, names []string) (list []string) {
	for line := range strings.Lines(plan) {
		f := strings.Fields(line)
		if len(f) > 1 && f[0] == "Inst" && (slices.Contains(names, f[1]) || strings.Contains(f[1], "lib") && !strings.Contains(f[1], "perl")) {
			list = append(list, f[1])
		}
	}
	return list
}

func output(cmd *exec.Cmd) (string, error) {
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("%s: %w: %s", filepath.Base(cmd.Path), err, strings.TrimSpace(stderr.String()))
	}
	return stdout.String(), nil
}

// readDeb unpacks the file of a package in memory.
func readDeb(ctx context.Context, file string) (*debPackage, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(data)
	control, err := output(exec.CommandContext(ctx, "dpkg-deb", "--field", file))
	if err != nil {
		return nil, err
	}
	p := &debPackage{control: []byte(control), sha256: hex.EncodeToString(sum[:])}
	for line := range strings.Lines(control) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), ": ")
		switch key {
		case "Package":
			p.name = value
		case "Version":
			p.version = value
		case "Architecture":
			p.arch = value
		}
	}
	content, err := output(exec.CommandContext(ctx, "dpkg-deb", "--fsys-tarfile", file))
	if err != nil {
		return nil, err
	}
	p.files, err = filesOf(strings.NewReader(content))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", filepath.Base(file), err)
	}
	return p, nil
}

// filesOf reads the files and links of an archive. Folders, owners and times are left out, and the bits that let a program run as somebody else.
func filesOf(archive io.Reader) (files []entry, err error) {
	for r := tar.NewReader(archive); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return files, nil
		}
		if err != nil {
			return nil, err
		}
		e := entry{name: merged(h.Name), mode: h.Mode & 0o777}
		switch h.Typeflag {
		case tar.TypeReg:
			if e.data, err = io.ReadAll(r); err != nil {
				return nil, err
			}
		case tar.TypeSymlink:
			e.link = h.Linkname
		case tar.TypeLink: // to an earlier file
			i := slices.IndexFunc(files, func(f entry) bool { return f.name == merged(h.Linkname) })
			if i < 0 {
				return nil, fmt.Errorf("%s links to %s, which is missing", h.Name, h.Linkname)
			}
			e.mode, e.data = files[i].mode, files[i].data
		default:
			continue
		}
		files = append(files, e)
	}
}

// merged returns a path in a file system where /bin and /lib are links to those in /usr.
func merged(name string) string {
	name = strings.TrimPrefix(path.Clean("/"+name), "/")
	if first, _, _ := strings.Cut(name, "/"); slices.Contains([]string{"bin", "sbin", "lib", "lib64"}, first) {
		return "usr/" + name
	}
	return name
}

// owned is a file with the package that it is from.
type owned struct {
	entry
	from *debPackage
}

// pick returns the files of packages that match the patterns of their package, with each library that one of them needs and the
// licence of each package; and the packages that they are from. Each program has to be for machine.
func pick(packages []*debPackage, patterns map[string][]string, machine elf.Machine) ([]entry, []*debPackage, error) {
	all := map[string]owned{}
	libraries := map[string]string{} // by base name
	for _, p := range packages {
		for _, f := range p.files {
			all[f.name] = owned{f, p}
			if strings.HasPrefix(f.name, "usr/lib") && strings.Contains(path.Base(f.name), ".so") {
				libraries[path.Base(f.name)] = f.name
			}
		}
	}
	picked := map[string]owned{}
	var add func(name string) error
	add = func(name string) error {
		f, found := all[name]
		if _, known := picked[name]; known || !found {
			if !found {
				return fmt.Errorf("%s is in none of the packages", name)
			}
			return nil
		}
		picked[name] = f
		if f.link != "" {
			to := f.link
			if !path.IsAbs(to) {
				to = path.Join(path.Dir(name), to)
			}
			return add(merged(to))
		}
		needs, err := needed(f.data, machine)
		if err != nil {
			return fmt.Errorf("%s of %s: %w", name, f.from.name, err)
		}
		for _, need := range needs {
			library := merged(need)
			if !strings.Contains(need, "/") {
				library = libraries[need]
			}
			if err := add(library); err != nil {
				return fmt.Errorf("%s needs %s: %w", name, need, err)
			}
		}
		return nil
	}
	for name := range patterns {
		if !slices.ContainsFunc(packages, func(p *debPackage) bool { return p.name == name }) {
			return nil, nil, fmt.Errorf("the package %s is missing", name)
		}
	}
	for _, p := range packages {
		for _, pattern := range patterns[p.name] {
			before := len(picked)
			for _, f := range p.files {
				if match, _ := path.Match(pattern, f.name); match {
					if err := add(f.name); err != nil {
						return nil, nil, err
					}
				}
			}
			if len(picked) == before {
				return nil, nil, fmt.Errorf("the package %s has no file %s", p.name, pattern)
			}
		}
	}
	var used []*debPackage
	for _, p := range packages {
		if !slices.ContainsFunc(p.files, func(f entry) bool { return picked[f.name].from == p }) {
			continue
		}
		used = append(used, p)
		// Scanners look here for the packages of an image that has no dpkg.
		status := entry{name: "var/lib/dpkg/status.d/" + p.name, mode: 0o644, data: p.control}
		picked[status.name] = owned{status, p}
		licence := "usr/share/doc/" + p.name + "/copyright"
		if f, found := all[licence]; found && f.link == "" {
			picked[licence] = f
		}
	}
	var entries []entry
	for _, f := range picked {
		entries = append(entries, f.entry)
	}
	return entries, used, nil
}

// needed returns the libraries and the loader that a program or library needs; nothing for other files.
func needed(data []byte, machine elf.Machine) ([]string, error) {
	if !bytes.HasPrefix(data, []byte(elf.ELFMAG)) {
		return nil, nil
	}
	f, err := elf.NewFile(bytes.NewReader(data))
	if err != nil {
		return nil, err
	}
	if f.Machine != machine {
		return nil, fmt.Errorf("is for %s and not for %s", f.Machine, machine)
	}
	needs, err := f.ImportedLibraries()
	if err != nil {
		return nil, err
	}
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP {
			loader, err := io.ReadAll(p.Open())
			if err != nil {
				return nil, err
			}
			needs = append(needs, strings.TrimRight(string(loader), "\x00"))
		}
	}
	return needs, nil
}
