//go:build unix

package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/cmd/internal/cli"
	"github.com/wherry-dev/wherry/publisher/gittest"
	"github.com/wherry-dev/wherry/scheduler/platformtest"
)

// BenchmarkAuthoring prints the figures of "make bench-authoring": a platform of 316 cluster types × 316 targets in a git
// work tree, and the program that WHERRY_E2E_PROGRAMS has, run as its users run it.
//
// A change is made before each command, so that none finds what another one has rendered: of a region's ConfigMap, which
// changes all 316 assignments of four cluster types, and of a workload's target, which changes one assignment of each type.
func BenchmarkAuthoring(b *testing.B) {
	a := newAuthoring(b)
	plan := []string{"plan", a.platform, "-o", "json", "--environment", "dev", "--to", a.registry, "--key", "cosign.pub"}
	lint := []string{"lint", a.platform, "-o", "json", "--environment", "dev"}
	publish := []string{"publish", a.platform, "-o", "json", "--environment", "dev", "--to", a.registry, "--key", "cosign.key"}
	for range b.N {
		a.once("lint-100k-first", nil, lint)
		require.NoError(b, os.RemoveAll(a.cache())) // the first publication finds nothing either
		a.once("publish-100k-first", nil, publish)
		a.once("lint-100k-after-publish", nil, lint)
		a.once("publish-100k-no-change", nil, publish)
		a.once("plan-100k-no-change", nil, plan)
		for _, change := range []struct {
			name string
			make func(dir, value string) error
		}{{"", platformtest.ChangeRegion}, {"-every-type", platformtest.ChangeWorkload}} {
			publishName := "publish-100k-one-change"
			if change.name != "" {
				publishName = "publish-100k" + change.name
			}
			a.best("plan-100k"+change.name, change.make, plan)
			a.best("lint-100k"+change.name, change.make, lint)
			a.best(publishName, change.make, publish)
		}
	}
}

// BenchmarkAuthoringInAChain prints the figures of BenchmarkAuthoring for the second environment of a chain, whose gate holds content, beside
// those without a chain. Both have 316 workloads, and so has the environment below; no cluster reports.
func BenchmarkAuthoringInAChain(b *testing.B) {
	a := newAuthoring(b)
	stage, base := filepath.Join(a.dir, "stage"), filepath.Join(a.dir, "base")
	require.NoError(b, os.CopyFS(stage, os.DirFS(a.platform)))
	for i := range 316 {
		file := filepath.Join(stage, "workloads", fmt.Sprintf("%d.yaml", i))
		text, err := os.ReadFile(file)
		require.NoError(b, err)
		require.NoError(b, os.WriteFile(file, bytes.ReplaceAll(text, []byte("environment: dev"), []byte("environment: stage")), 0o600))
	}
	require.NoError(b, os.MkdirAll(base, 0o700))
	of := func(folder, environment string) []string {
		return []string{folder, "-o", "json", "--environment", environment, "--to", a.registry, "--base", base, "--commit", strings.Repeat("c", 40)}
	}
	plan := append([]string{"plan"}, append(of(a.platform, "dev"), "--key", "cosign.pub")...)
	publish := append([]string{"publish"}, append(of(a.platform, "dev"), "--key", "cosign.key")...)
	for range b.N {
		a.run(append([]string{"publish"}, append(of(stage, "stage"), "--key", "cosign.key")...)...)
		a.run(publish...)
		for _, chain := range []string{"", "-in-a-chain"} {
			if chain != "" {
				require.NoError(b, os.WriteFile(filepath.Join(base, "promotion.yaml"), []byte(chainOfTwo), 0o600))
				a.run(plan...)
			}
			a.best("plan-100k"+chain, platformtest.ChangeRegion, plan)
			a.best("publish-100k-one-change"+chain, platformtest.ChangeRegion, publish)
		}
	}
}

const chainOfTwo = `apiVersion: wherry.dev/v1alpha1
kind: PromotionPolicy
metadata: {name: edge}
spec:
  chain: [stage, dev]
  gate: {soak: 1h, allowFloating: true}
`

// authoring is the folder of a platform engineer, with a registry.
type authoring struct {
	testing.TB
	program  string
	dir      string // with the keys and the cache
	platform string
	registry string
	serving  *exec.Cmd // the registry
	changes  int
}

func newAuthoring(tb testing.TB) *authoring {
	programs := os.Getenv("WHERRY_E2E_PROGRAMS")
	if programs == "" {
		tb.Fatal(`WHERRY_E2E_PROGRAMS names no folder with the program: run "make bench-authoring"`)
	}
	a := &authoring{TB: tb, program: filepath.Join(programs, "wherry"), dir: tb.TempDir()}
	a.platform = filepath.Join(a.dir, "platform")
	require.NoError(tb, platformtest.Write(a.platform, 316))
	a.commit()
	a.run("keys", "generate")
	a.serve()
	return a
}

// commit commits the platform as it lies there.
func (a *authoring) commit() {
	_, err := gittest.CommitWorkTree(a.platform, "main")
	require.NoError(a, err)
}

// serve runs a registry until the benchmark ends.
func (a *authoring) serve() { a.serveAt("127.0.0.1:0") }

func (a *authoring) serveAt(address string) {
	cmd := a.command("registry", "serve", filepath.Join(a.dir, "registry"), "--addr", address)
	out, err := cmd.StdoutPipe()
	require.NoError(a, err)
	require.NoError(a, cmd.Start())
	a.Cleanup(func() {
		_ = cmd.Process.Signal(os.Interrupt)
		_ = cmd.Wait()
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(a, err)
	a.registry, a.serving = strings.TrimSpace(line)+"/edge", cmd
}

// command is a run of the program with a cache of its own.
func (a *authoring) command(args ...string) *exec.Cmd {
	cmd := exec.Command(a.program, args...)
	cmd.Dir = a.dir
	cmd.Env = append(os.Environ(), "HOME="+a.dir, "XDG_CACHE_HOME="+a.cache(), "COSIGN_PASSWORD=benchmark")
	return cmd
}

func (a *authoring) cache() string { return filepath.Join(a.dir, "cache") }

// used is what one run took.
type used struct {
	wall, cpu time.Duration
	peak      int64 // bytes resident
}

func (a *authoring) run(args ...string) used {
	cmd := a.command(args...)
	var errs bytes.Buffer
	cmd.Stderr = &errs
	began := time.Now()
	err := cmd.Run()
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.ExitCode() == cli.No { // lint has findings: the model has lists in ConfigMaps
		err = nil
	}
	require.NoError(a, err, "%v: %s", args, &errs)
	u := used{wall: time.Since(began), cpu: cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()}
	if usage, ok := cmd.ProcessState.SysUsage().(*syscall.Rusage); ok {
		if u.peak = int64(usage.Maxrss); runtime.GOOS != "darwin" {
			u.peak <<= 10
		}
	}
	return u
}

// once prints the figures of one run, after a change unless that is nil.
func (a *authoring) once(name string, change func(dir, value string) error, args []string) {
	a.print(name, a.changed(change, args))
}

// best prints the figures of the fastest of three runs, each after a change, and the highest of their peaks.
func (a *authoring) best(name string, change func(dir, value string) error, args []string) {
	best := a.changed(change, args)
	for range 2 {
		next := a.changed(change, args)
		next.peak = max(next.peak, best.peak)
		if next.wall > best.wall {
			next.wall, next.cpu = best.wall, best.cpu
		}
		best = next
	}
	a.print(name, best)
}

func (a *authoring) changed(change func(dir, value string) error, args []string) used {
	if change != nil {
		a.changes++
		require.NoError(a, change(a.platform, fmt.Sprintf("changed-%d", a.changes)))
		a.commit()
	}
	return a.run(args...)
}

func (a *authoring) print(name string, u used) {
	fmt.Printf("figure %s-ms %d ms\n", name, u.wall.Milliseconds())
	fmt.Printf("figure %s-cpu-ms %d ms\n", name, u.cpu.Milliseconds())
	fmt.Printf("figure %s-peak-bytes %d bytes\n", name, u.peak)
}
