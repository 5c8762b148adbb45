package directory_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"
	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/reconcilers"
	"github.com/wherry-dev/wherry/reconcilers/directory"
)

// childVariable makes the test binary a process that brings one assignment, a child in JSON, to its root.
const childVariable = "WHERRY_TEST_DIRECTORY"

var background = context.Background() // a child ends by being killed

type child struct {
	Root, Ledger string
	Assignment   reconcilers.Assignment
	Status       string // where to copy the process's status to at its end
}

// fetch is what a child does that text describes; it does not return.
func fetch(text string) {
	var c child
	if err := json.Unmarshal([]byte(text), &c); err != nil {
		panic(err)
	}
	r := c.reconciler()
	println("began")
	for res := r.Apply(background, c.Assignment); res.State != bundle.Compliant; res = r.Observe(background, c.Assignment) {
		if res.State != bundle.Pulling {
			panic(res.Message)
		}
		time.Sleep(time.Millisecond)
	}
	if c.Status != "" {
		status, err := os.ReadFile("/proc/self/status")
		if err = errors.Join(err, os.WriteFile(c.Status, status, 0o600)); err != nil {
			panic(err)
		}
	}
	os.Exit(0)
}

func (c child) reconciler() *directory.Reconciler {
	return directory.New(c.Root, directory.Options{
		Ledger: ledgerFile(c.Ledger),
		Fetch:  func(repository string) (bundle.Source, error) { return openAt(http.DefaultClient, repository) },
	})
}

// start runs c in a process of its own, which has begun when start returns.
func (c child) start(t testing.TB) *exec.Cmd {
	t.Helper()
	text, err := json.Marshal(c)
	require.NoError(t, err)
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childVariable+"="+string(text))
	said, err := cmd.StderrPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	line, err := bufio.NewReader(said).ReadString('\n')
	require.NoError(t, err)
	require.Equal(t, "began\n", line)
	return cmd
}

func kill(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	if err := cmd.Process.Kill(); !errors.Is(err, os.ErrProcessDone) {
		require.NoError(t, err)
	}
	_ = cmd.Wait()
}

// ledgerFile keeps one entry in a file, whole or not at all.
type ledgerFile string

func (l ledgerFile) Load(string) ([]byte, error) {
	data, err := os.ReadFile(string(l))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return data, err
}

func (l ledgerFile) Save(_ string, entry []byte) error {
	if err := os.WriteFile(string(l)+".new", entry, 0o600); err != nil {
		return err
	}
	return os.Rename(string(l)+".new", string(l))
}

func TestAKillCostsTheBlobUnderWay(t *testing.T) {
	s := newShelf(t)
	one, two, three := sized(1<<20), sized(2<<20), sized(3<<20)
	c := child{Root: filepath.Join(t.TempDir(), "root"), Ledger: filepath.Join(t.TempDir(), "ledger")}
	c.Assignment = with(assignment(t, "drone", map[string]string{"a": "1"}), s.push(titled("one", one), titled("two", two), titled("three", three)))
	g := newGate(two)
	s.answer(g.front)
	cmd := c.start(t)
	<-g.half
	kill(t, cmd)

	s.answer(nil)
	r := c.reconciler()
	res := r.Apply(t.Context(), c.Assignment)
	require.Contains(t, []bundle.State{bundle.Pulling, bundle.Compliant}, res.State, res.Message) // it may be done already
	require.Eventually(t, func() bool { return r.Observe(t.Context(), c.Assignment).State == bundle.Compliant }, time.Minute, time.Millisecond)
	require.Equal(t, []string{digest.FromString(two).Encoded(), digest.FromString(three).Encoded()}, s.asked())
	require.Equal(t, map[string]string{"drone/a": "1", "drone/one": one, "drone/two": two, "drone/three": three}, contents(t, c.Root))
}

// A process is killed at any moment, and the next one gets other content. The folder is always one of those
// that were wanted, or not there yet.
func TestKilledAtAnyMomentTheFolderIsWhole(t *testing.T) {
	s := newShelf(t)
	c := child{Root: filepath.Join(t.TempDir(), "root"), Ledger: filepath.Join(t.TempDir(), "ledger")}
	shared, other := sized(4<<20), sized(5<<20)
	versions := []map[string]string{
		{"drone/a": "0", "drone/model": shared},
		{"drone/a": "1", "drone/model": shared, "drone/labels": other},
		{"drone/a": "2", "drone/model": other},
	}
	assignments := []reconcilers.Assignment{
		with(assignment(t, "drone", map[string]string{"a": "0"}), s.push(titled("model", shared))),
		with(assignment(t, "drone", map[string]string{"a": "1"}), s.push(titled("model", shared), titled("labels", other))),
		with(assignment(t, "drone", map[string]string{"a": "2"}), s.push(titled("model", other))),
	}
	const kills = 15
	for i := range kills {
		c.Assignment = assignments[i%len(assignments)]
		cmd := c.start(t)
		time.Sleep(rand.N(60 * time.Millisecond))
		kill(t, cmd)
		if _, err := os.Stat(filepath.Join(c.Root, "drone")); err == nil {
			got := map[string]string{}
			for name, text := range contents(t, filepath.Join(c.Root, "drone")) {
				got["drone/"+name] = text
			}
			require.Contains(t, versions, got)
		}
	}
	c.Assignment = assignments[1]
	require.NoError(t, c.start(t).Wait())
	require.Equal(t, versions[1], contents(t, c.Root))
	requireMarksOnly(t, c.Root, "drone")
}
