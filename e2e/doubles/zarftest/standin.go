// Package zarftest has what tests of the adapter zarf run it on: a stand-in for the program, built from what
// Zarf documents and its source says, a small API server, and the engine of the conformance suite, which
// drives the stand-in and a real zarf alike.
//
// The stand-in does what the adapter relies on, as zarf 0.84 does it: packages with checksums and a signature
// by a cosign key, refusals of --verify=always, the check for a node and a pod, Helm's releases as Secrets
// and their pending states, the record of a deployed package, actions, and a log in JSON. It is not a Zarf:
// it knows manifests of files, and no charts, images or variables.
package zarftest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/bundle/child/childtest"
)

// standInVariable makes a test binary the stand-in; its value is the stand-in's folder, for orders and
// packages of its registry.
const standInVariable = "WHERRY_ZARF_STANDIN"

// StandIn does the work of the stand-in where the test binary was started as one, and does not return there.
// It is the first call of a TestMain.
func StandIn() {
	dir := os.Getenv(standInVariable)
	if dir == "" {
		return
	}
	z := &standIn{dir: dir, log: slog.New(slog.NewJSONHandler(os.Stderr, nil))}
	if err := z.main(os.Args[1:]); err != nil {
		z.log.Error(err.Error())
		os.Exit(1)
	}
	os.Exit(0)
}

// Program is a zarf for tests: the stand-in, under a name of its own.
type Program struct {
	Path string
	dir  string
}

// NewProgram makes this test binary a zarf. Its version, which each agent asks for first, needs no process of
// that size. Others live for a moment, and a fourth of that would be garbage collection.
func NewProgram(t testing.TB) Program {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	p := Program{dir: t.TempDir()}
	p.Path = filepath.Join(p.dir, "zarf")
	script := fmt.Sprintf(`#!/bin/sh
if [ "$1" = version ]; then
	echo "$*" >>'%[2]s/calls'
	cat '%[2]s/%[4]s' 2>/dev/null || echo v0.84.0
	exit
fi
GOGC=off %[1]s='%[2]s' exec '%[3]s' "$@"
`, standInVariable, p.dir, self, Version)
	childtest.WriteProgram(t, p.Path, script)
	return p
}

// Order is a misbehaviour of the stand-in that no real zarf has, once or until the next order.
type Order string

// The orders.
const (
	// Die makes it vanish in the middle of a deploy, as by kill -9: the release is pending.
	Die Order = "die"
	// DieLast makes it vanish before its last write, when the revision before is marked already.
	DieLast Order = "die-last"
	// Hang makes it stop there until it is asked to end.
	Hang Order = "hang"
	// Version makes it print another version.
	Version Order = "version"
	// Idle makes it exit with 0 and do nothing.
	Idle Order = "idle"
)

// Order makes the stand-in obey o from now on, with an argument.
func (p Program) Order(t testing.TB, o Order, argument string) {
	t.Helper()
	require.NoError(t, os.WriteFile(filepath.Join(p.dir, string(o)), []byte(argument), 0o600))
}

// Countermand takes an order back.
func (p Program) Countermand(t testing.TB, o Order) {
	t.Helper()
	require.NoError(t, os.RemoveAll(filepath.Join(p.dir, string(o))))
}

// Calls returns the arguments of each run so far.
func (p Program) Calls(t testing.TB) []string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(p.dir, "calls"))
	if !errors.Is(err, os.ErrNotExist) {
		require.NoError(t, err)
	}
	return strings.Split(strings.TrimSpace(string(data)), "\n")
}

type standIn struct {
	dir  string
	log  *slog.Logger
	args []string

	confirm, skipSBOM, connected, force bool
	output, signingKey, key, verify     string
	cache                               string
	components, namespace               string
	timeout                             time.Duration
}

// ordered reports whether an order was given.
func (z *standIn) ordered(o Order) bool {
	_, err := os.Stat(filepath.Join(z.dir, string(o)))
	return err == nil
}

func (z *standIn) main(args []string) error {
	if err := z.parse(args); err != nil {
		return err
	}
	calls, err := os.OpenFile(filepath.Join(z.dir, "calls"), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	fmt.Fprintln(calls, strings.Join(args, " "))
	if err := calls.Close(); err != nil {
		return err
	}
	switch verb := strings.Join(z.args[:min(2, len(z.args))], " "); verb {
	case "package create":
		return z.create(z.args[2])
	case "package deploy":
		return z.deploy(z.args[2])
	case "package remove":
		return z.remove(z.args[2])
	case "package inspect":
		return z.inspect(z.args[3])
	case "tools helm":
		return z.uninstall(z.args[3])
	default:
		return fmt.Errorf("unknown command %q for \"zarf\"", verb)
	}
}

func (z *standIn) parse(args []string) error {
	flags := pflag.NewFlagSet("zarf", pflag.ContinueOnError)
	flags.BoolVarP(&z.confirm, "confirm", "c", false, "")
	flags.BoolVar(&z.skipSBOM, "skip-sbom", false, "")
	flags.StringVarP(&z.output, "output", "o", "", "")
	flags.StringVar(&z.signingKey, "signing-key", "", "")
	flags.StringVarP(&z.key, "key", "k", "", "")
	flags.StringVar(&z.verify, "verify", "if-possible", "")
	flags.BoolVar(&z.connected, "connected", false, "")
	flags.BoolVar(&z.force, "force-conflicts", false, "")
	flags.StringVar(&z.components, "components", "", "")
	flags.StringVar(&z.namespace, "namespace", "", "")
	flags.DurationVar(&z.timeout, "timeout", 15*time.Minute, "")
	flags.Int("retries", 3, "")
	if len(args) == 0 || args[0] != "tools" { // whose commands have none of these
		flags.String("log-format", "console", "")
		flags.Bool("no-color", false, "")
		flags.String("tmpdir", "", "")
		flags.StringVar(&z.cache, "cache", "", "")
	}
	err := flags.Parse(args)
	if z.args = flags.Args(); err == nil && len(z.args) == 0 {
		err = errors.New("a command is needed")
	}
	return err
}

// interrupted does what a test has ordered for the middle of a deploy.
func (z *standIn) interrupted(ctx context.Context) {
	z.dies(Die)
	for z.ordered(Hang) && ctx.Err() == nil {
		time.Sleep(20 * time.Millisecond)
	}
}

// dies vanishes there if o was ordered.
func (z *standIn) dies(o Order) {
	if z.ordered(o) {
		_ = os.Remove(filepath.Join(z.dir, string(o)))
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	}
}

// config is a ZarfPackageConfig, as far as the stand-in knows it.
type config struct {
	Kind       string         `json:"kind"`
	Metadata   map[string]any `json:"metadata"`
	Build      map[string]any `json:"build,omitempty"`
	Components []component    `json:"components"`
}

func (c *config) name() string { s, _ := c.Metadata["name"].(string); return s }

type component struct {
	Name      string     `json:"name"`
	Required  bool       `json:"required,omitempty"`
	Images    []string   `json:"images,omitempty"`
	Manifests []manifest `json:"manifests,omitempty"`
	Actions   struct {
		OnDeploy struct {
			Before []action `json:"before,omitempty"`
		} `json:"onDeploy,omitzero"`
		OnRemove struct {
			Before []action `json:"before,omitempty"`
		} `json:"onRemove,omitzero"`
	} `json:"actions,omitzero"`
}

type manifest struct {
	Name      string   `json:"name"`
	Namespace string   `json:"namespace,omitempty"`
	Files     []string `json:"files"`
}

type action struct {
	Command string `json:"cmd"`
}

// record is Zarf's DeployedPackage.
type record struct {
	Name       string              `json:"name"`
	Digest     string              `json:"digest"`
	Data       config              `json:"data"`
	CLIVersion string              `json:"cliVersion"`
	Generation int                 `json:"generation"`
	Components []deployedComponent `json:"deployedComponents"`
}

type deployedComponent struct {
	Name       string           `json:"name"`
	Charts     []installedChart `json:"installedCharts"`
	Status     string           `json:"status"`
	Generation int              `json:"observedGeneration"`
}

type installedChart struct {
	Namespace string `json:"namespace"`
	Name      string `json:"chartName"`
	Status    string `json:"status"`
}

func mustJSON(v any) []byte {
	data, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return data
}
