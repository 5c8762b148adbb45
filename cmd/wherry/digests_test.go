package main

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/rogpeppe/go-internal/testscript"
	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/publisher/gittest"
)

var (
	digestsOf  = flag.String("program", "", "take the digests of what this `PROGRAM`, and the wherry-agent beside it, make, which are linked with a fixed time: see make digests")
	digestsOut = flag.String("digests", "", "write the digests to this `FILE` and compare nothing")
)

const (
	digestsFile = "testdata/digests.txt"
	digestsTime = "2026-01-01T00:00:00Z"
	// clockVariable stops the clock of this program when it runs as wherry.
	clockVariable = "WHERRY_TEST_CLOCK"
)

// TestDigests holds the bytes of what is made of all examples and of Kalypso's cases: trees, records, releases with their
// signatures, site packages and reports, with a fixed clock and key. TestScripts does the same for the platforms of its
// scripts. A change that means to change bytes changes testdata/digests.txt, by -update. Lint has no warning about an example.
func TestDigests(t *testing.T) {
	list := newDigestList(t)
	d := newDigester(t)
	t.Run("examples", func(t *testing.T) {
		d.publish = []string{"--unproved", "no environment below is published"} // else the later ones of a chain are refused
		dir := t.TempDir()                                                      // no git, so that no commit of ours is in a release
		require.NoError(t, gittest.CopyKnown(dir, "../../examples"))
		_, err := gittest.Commit(filepath.Join(dir, "team", "cafe.git"), "main", filepath.Join(dir, "charts", "cafe"))
		require.NoError(t, err)
		for name, args := range examplePlatforms {
			says, code, err := d.run(dir, os.Environ(), append([]string{"lint"}, strings.Fields(args)...)...)
			require.NoError(t, err)
			require.Zero(t, code, "lint of %s: %s", name, says)
			lines, err := d.digests(dir, os.Environ(), strings.Fields(args))
			require.NoError(t, err)
			list.add("example/"+name, lines)
		}
	})
	t.Run("kalypso", func(t *testing.T) {
		root := os.Getenv("WHERRY_CASES")
		if root == "" {
			require.NotContains(t, strings.Split(os.Getenv("WHERRY_REQUIRE"), ","), "cases", "WHERRY_CASES is not set")
			t.Logf("WHERRY_CASES is not set: %d of Kalypso's cases are left out", len(list.prefixes("kalypso/")))
			return
		}
		files, err := filepath.Glob(filepath.Join(root, "kalypso", "*", "*", "case.json"))
		require.NoError(t, err)
		for _, file := range files {
			lines, err := d.digests(t.TempDir(), os.Environ(), caseArguments(t, file))
			require.NoError(t, err)
			list.add("kalypso/"+filepath.Base(filepath.Dir(file)), lines)
		}
		list.complete("kalypso/")
	})
	list.complete("example/")
	for _, name := range list.prefixes("script/") {
		require.FileExists(t, filepath.Join("testdata/script", strings.Split(name, "/")[1]+".txtar"), "of %s in %s", name, digestsFile)
	}
	list.check(t)
}

// examplePlatforms are the platforms of the folder examples, with what reads each of them.
var examplePlatforms = map[string]string{
	"charts":       "charts/platform -e prod --mirror https://git.example.com/team=team",
	"coffee/dev":   "coffee/dev -e dev --base coffee/main --workload storefront=coffee/workloads/storefront --workload roasting=coffee/workloads/roasting",
	"coffee/prod":  "coffee/prod -e prod --base coffee/main --workload storefront=coffee/workloads/storefront --workload roasting=coffee/workloads/roasting",
	"factory":      "factory/platform -e prod",
	"host":         "host/platform -e dev",
	"namespaces":   "namespaces/dev -e dev --base namespaces/main",
	"retail/dev":   "retail/platform/dev -e dev --base retail/platform/base --workload till=retail/till",
	"retail/prod":  "retail/platform/prod -e prod --base retail/platform/base --workload till=retail/till",
	"retail/stage": "retail/platform/stage -e stage --base retail/platform/base --workload till=retail/till",
	"ship":         "ship/platform -e prod",
}

// Each folder of examples that has a ClusterType is among examplePlatforms.
func TestEachExampleHasItsDigests(t *testing.T) {
	var read []string
	for _, args := range examplePlatforms {
		read = append(read, strings.Fields(args)...)
	}
	dir := t.TempDir()
	require.NoError(t, gittest.CopyKnown(dir, "../../examples"))
	require.NoError(t, filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() || filepath.Ext(path) != ".yaml" {
			return err
		}
		data, err := os.ReadFile(path)
		if err != nil || !bytes.Contains(data, []byte("kind: ClusterType\n")) {
			return err
		}
		path = strings.TrimPrefix(filepath.ToSlash(path), filepath.ToSlash(dir)+"/")
		if !slices.ContainsFunc(read, func(folder string) bool { return strings.HasPrefix(path, folder+"/") }) {
			t.Errorf("examples/%s is of no platform in examplePlatforms", path)
		}
		return nil
	}))
}

// caseArguments are how a person would give the sources of a case.json of Kalypso's.
func caseArguments(t *testing.T, file string) []string {
	data, err := os.ReadFile(file)
	require.NoError(t, err)
	var c struct {
		Environment string
		Sources     []struct{ Dir, FluxKustomization string }
	}
	require.NoError(t, json.Unmarshal(data, &c))
	platform := t.TempDir()
	args := []string{platform, "-e", c.Environment}
	for i, s := range c.Sources {
		dir := filepath.Join(filepath.Dir(file), s.Dir)
		switch name := strings.TrimPrefix(strings.TrimPrefix(s.FluxKustomization, c.Environment), "-"); name {
		case "":
			require.NoError(t, os.CopyFS(filepath.Join(platform, fmt.Sprint(i)), os.DirFS(dir)))
		case "main":
			args = append(args, "--base", dir)
		default:
			args = append(args, "--workload", name+"="+dir)
		}
	}
	return args
}

// digestList is the digests of platforms, one a line: platform, what of it, and the digest.
type digestList struct {
	mu    sync.Mutex
	known map[string][]string // those of digestsFile, by platform
	found map[string][]string
	// whole are prefixes of platforms of which none may be missing.
	whole []string
}

func newDigestList(t *testing.T) *digestList {
	data, err := os.ReadFile(digestsFile)
	if !errors.Is(err, fs.ErrNotExist) {
		require.NoError(t, err)
	}
	l := &digestList{known: map[string][]string{}, found: map[string][]string{}}
	for line := range strings.Lines(string(data)) {
		platform, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		l.known[platform] = append(l.known[platform], rest)
	}
	return l
}

// prefixes returns the known platforms whose names begin with prefix.
func (l *digestList) prefixes(prefix string) (names []string) {
	for name := range l.known {
		if strings.HasPrefix(name, prefix) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

func (l *digestList) add(platform string, lines []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.found[platform] = slices.Sorted(slices.Values(lines))
}

// complete says that all platforms whose names begin with prefix have been added.
func (l *digestList) complete(prefix string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.whole = append(l.whole, prefix)
}

// check compares with digestsFile, or writes it with -update, or writes another file with -digests.
func (l *digestList) check(t *testing.T) {
	for _, prefix := range l.whole {
		for _, name := range l.prefixes(prefix) {
			switch {
			case l.found[name] != nil:
			case os.Getenv("WHERRY_CASES") == "": // a part of a script needs it; TestDigests fails where they are required
				t.Logf("left out, since WHERRY_CASES is not set: %s", name)
			default:
				l.found[name] = []string{}
			}
		}
	}
	switch {
	case *digestsOut != "":
		f, err := os.OpenFile(*digestsOut, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
		require.NoError(t, err)
		defer f.Close()
		_, err = io.WriteString(f, digestText(l.found))
		require.NoError(t, err)
	case *update:
		maps.Copy(l.known, l.found)
		require.NoError(t, os.WriteFile(digestsFile, []byte(digestText(l.known)), 0o644))
	default:
		for name, got := range l.found {
			if want := l.known[name]; !slices.Equal(want, got) {
				t.Errorf("what is made of %s has other bytes; -update writes them into %s, if they are meant:\nwant %s\ngot  %s",
					name, digestsFile, strings.Join(want, "\n     "), strings.Join(got, "\n     "))
			}
		}
	}
}

func digestText(all map[string][]string) string {
	var lines []string
	for name, digests := range all {
		for _, d := range digests {
			lines = append(lines, name+" "+d+"\n")
		}
	}
	slices.Sort(lines)
	return strings.Join(lines, "")
}

// digester runs a program on platforms, with a fixed clock and key. The program is this one, or that of -program.
type digester struct {
	scratch, key, public string
	publish              []string // flags of publish
	ws                   *workers
}

func newDigester(t testing.TB) *digester {
	key, err := filepath.Abs("testdata/digests.key")
	require.NoError(t, err)
	d := &digester{scratch: t.TempDir(), key: key, public: strings.TrimSuffix(key, "key") + "pub", ws: &workers{program: filepath.Join(programs, program)}}
	t.Cleanup(d.ws.close)
	return d
}

// run runs wherry in dir and returns its exit code, and runProgram does so with either program.
func (d *digester) run(dir string, env []string, args ...string) (stderr string, code int, err error) {
	return d.runProgram(program, dir, env, args...)
}

func (d *digester) runProgram(name, dir string, env []string, args ...string) (stderr string, code int, err error) {
	env = append(slices.Clone(env), "COSIGN_PASSWORD="+scriptPassword, clockVariable+"="+digestsTime)
	if *digestsOf == "" && haveWorkers {
		_, stderr, code, err := d.ws.command(dir, append([]string{name}, args...), env)
		return stderr, code, err
	}
	cmd := exec.Command(filepath.Join(programs, name), args...)
	if *digestsOf != "" {
		cmd.Path = filepath.Join(filepath.Dir(*digestsOf), name)
	}
	var said bytes.Buffer
	cmd.Dir, cmd.Env, cmd.Stderr = dir, env, &said
	var ended *exec.ExitError
	if err := cmd.Run(); err != nil && !errors.As(err, &ended) {
		return "", 0, err
	}
	return said.String(), cmd.ProcessState.ExitCode(), nil
}

// digests returns a line for each of: the tree that is rendered of the sources that args name, all that is published, the
// site package of it, and the report of an agent of its first cluster type with something to run. A command that fails has
// its exit code in place of a digest.
func (d *digester) digests(dir string, env, source []string) ([]string, error) {
	out, err := os.MkdirTemp(d.scratch, "")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(out)
	var lines []string
	line := func(what string, code int, sum func() (string, error)) error {
		text := fmt.Sprintf("exit %d", code)
		if code <= 1 {
			var err error
			if text, err = sum(); err != nil {
				return fmt.Errorf("%s of %q: %w", what, source, err)
			}
		}
		lines = append(lines, what+" "+text)
		return nil
	}

	tree, layout, site := filepath.Join(out, "tree"), filepath.Join(out, "layout"), filepath.Join(out, "site.tar")
	_, code, err := d.run(dir, env, append([]string{"render", "-o", tree}, source...)...)
	if err != nil {
		return nil, err
	}
	if ofThisRun, err := holdsAddress(tree, dir); err != nil || ofThisRun {
		return []string{"tree with an address of the run"}, err
	}
	if err := line("tree", code, func() (string, error) { return sumOfFolder(tree) }); err != nil || code > 1 {
		return lines, err
	}
	publish := append([]string{"publish", "--to", "oci-layout:" + layout, "--key", d.key, "--new-key"}, d.publish...)
	if _, code, err = d.run(dir, env, append(publish, source...)...); err != nil {
		return nil, err
	}
	if err := line("releases", code, func() (string, error) { return sumOfLayout(layout) }); err != nil || code > 1 {
		return lines, err
	}
	first, err := firstRelease(layout)
	if err != nil || first == nil {
		return lines, err
	}
	if _, code, err = d.run(dir, env, "airgap", "export", "-e", string(first.Environment), "--from", "oci-layout:"+layout, "-o", site, "--artifacts", "none"); err != nil {
		return nil, err
	}
	if err := line("package", code, func() (string, error) { return sumOfFile(site) }); err != nil {
		return lines, err
	}
	if _, code, err = d.runProgram(agentProgram, out, env, "once", "--registry", "oci-layout:"+layout, "--key", d.public, "--platform", first.Platform,
		"--environment", string(first.Environment), "--cluster-type", string(first.ClusterType), "--cluster-name", "site",
		"--adapter", "directory", "--directory-root", "applied", "--state-dir", "state", "--config", ""); err != nil {
		return nil, err
	}
	if lines = append(lines, fmt.Sprintf("agent %s exit %d", first.ClusterType, code)); code > 1 {
		return lines, nil // it waits for something, and is at no particular point
	}
	if _, code, err = d.runProgram(agentProgram, out, env, "reports", "export", "--state-dir", "state", "-o", "reports.tar", "--config", ""); err != nil {
		return nil, err
	}
	return lines, line("report", code, func() (string, error) { return sumOfReports(filepath.Join(out, "reports.tar")) })
}

// firstRelease is the first release of a layout with an assignment that agents would take, or nil.
func firstRelease(layout string) (*bundle.Release, error) {
	index, err := readJSON[ocispec.Index](filepath.Join(layout, "index.json"))
	if err != nil {
		return nil, err
	}
	slices.SortFunc(index.Manifests, func(a, b ocispec.Descriptor) int {
		return strings.Compare(a.Annotations[ocispec.AnnotationRefName], b.Annotations[ocispec.AnnotationRefName])
	})
	blob := func(d ocispec.Descriptor) string { return filepath.Join(layout, "blobs", "sha256", d.Digest.Encoded()) }
	for _, d := range index.Manifests {
		m, err := readJSON[ocispec.Manifest](blob(d))
		if err != nil {
			return nil, err
		}
		if m.Config.MediaType != bundle.MediaTypeRelease {
			continue
		}
		r, err := readJSON[bundle.Release](blob(m.Config))
		if err != nil {
			return nil, err
		}
		if r.Content.Files > 1 {
			return &r, nil
		}
	}
	return nil, nil
}

func readJSON[T any](path string) (v T, err error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return v, err
	}
	err = json.Unmarshal(data, &v)
	return v, err
}

// sumOfLayout is over the tags and blobs of a layout.
func sumOfLayout(dir string) (string, error) {
	index, err := readJSON[ocispec.Index](filepath.Join(dir, "index.json"))
	if errors.Is(err, fs.ErrNotExist) {
		return "none", nil
	}
	var all []string
	for _, d := range index.Manifests {
		all = append(all, d.Annotations[ocispec.AnnotationRefName]+" "+d.Digest.String())
	}
	blobs, readErr := os.ReadDir(filepath.Join(dir, "blobs", "sha256"))
	for _, b := range blobs {
		all = append(all, b.Name())
	}
	slices.Sort(all)
	return sumOf(strings.Join(all, "\n")), errors.Join(err, readErr)
}

func sumOfFolder(dir string) (string, error) {
	var all strings.Builder
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		sum, err := sumOfFile(path)
		fmt.Fprintln(&all, strings.TrimPrefix(path, dir), sum)
		return err
	})
	return sumOf(all.String()), err
}

// ephemeral matches an address that the kernel chose for a server of this run.
var ephemeral = regexp.MustCompile(`127\.0\.0\.1:[3-6][0-9]{4}`)

// holdsAddress reports whether a file below root names such an address, or folder.
func holdsAddress(root, folder string) (holds bool, err error) {
	err = filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) || err == nil && e.IsDir() {
			return nil
		}
		if err != nil {
			return err
		}
		data, err := os.ReadFile(path)
		holds = holds || ephemeral.Match(data) || bytes.Contains(data, []byte(folder))
		return err
	})
	return holds, err
}

func sumOfFile(path string) (string, error) {
	data, err := os.ReadFile(path)
	return sumOf(string(data)), err
}

func sumOf(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:16])
}

// sumOfReports is over the reports of a file, without what an agent chooses at random and without its version.
func sumOfReports(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	var all []string
	for r := tar.NewReader(f); ; {
		h, err := r.Next()
		if err == io.EOF {
			slices.Sort(all)
			return sumOf(strings.Join(all, "\n")), nil
		}
		if err != nil {
			return "", err
		}
		data, err := io.ReadAll(r)
		if err != nil {
			return "", err
		}
		var envelope struct{ Payload []byte }
		if !strings.HasPrefix(h.Name, "blobs/") || json.Unmarshal(data, &envelope) != nil || envelope.Payload == nil {
			continue
		}
		var report map[string]any
		if err := json.Unmarshal(envelope.Payload, &report); err != nil {
			return "", err
		}
		delete(report["cluster"].(map[string]any), "uid")
		for _, field := range []string{"version", "instance", "incarnation", "oldest"} {
			delete(report["agent"].(map[string]any), field)
		}
		plain, err := json.Marshal(report)
		if err != nil {
			return "", err
		}
		all = append(all, string(plain))
	}
}

// sourceArguments are those of a command's arguments that say what platform it reads; ok is false for a command that reads
// none, and for sources at an address that only this run has.
func sourceArguments(args []string, workdir string) (source []string, ok bool) {
	switch args[0] {
	case "render", "publish", "plan", "lint":
	default:
		return nil, false
	}
	cmd, rest, err := newRootCommand().Find(args)
	if err != nil || cmd.ParseFlags(rest) != nil {
		return nil, false
	}
	for i, arg := range rest {
		name, value, given := strings.Cut(strings.TrimPrefix(arg, "-"), "=")
		if !given && i+1 < len(rest) {
			value = rest[i+1]
		}
		if slices.Contains([]string{"e", "-environment", "-base", "-workload", "-mirror", "-assignments", "-commit"}, name) && strings.HasPrefix(arg, "-") {
			source = append(source, "-"+name, value)
		}
	}
	source = append(source, cmd.Flags().Args()...)
	volatile := func(arg string) bool {
		return strings.Contains(arg, workdir) || strings.Contains(arg, "127.0.0.1") || arg == "-"
	}
	return source, !slices.ContainsFunc(source, volatile)
}

// scriptDigests makes the digests of the platforms that a script publishes, renders, plans or lints, as they are at that
// moment.
type scriptDigests struct {
	list *digestList
	d    *digester
	seen map[string]bool
	n    int
	off  bool
}

// after takes part when a script has run a command that read a platform.
func (s *scriptDigests) after(ts *testscript.TestScript, env, args []string) {
	if s == nil || s.off || len(args) == 0 {
		return
	}
	source, ok := sourceArguments(args, ts.Getenv("WORK"))
	if !ok {
		return
	}
	lines, err := s.d.digests(ts.MkAbs("."), env, source)
	ts.Check(err)
	if all := strings.Join(lines, "\n"); !s.seen[all] {
		s.seen[all] = true
		s.n++
		s.list.add(fmt.Sprintf("script/%s/%02d", ts.Name(), s.n), lines)
	}
}
