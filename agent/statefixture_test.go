package agent

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/ecdsa"
	"crypto/elliptic"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/bbolt"

	"github.com/wherry-dev/wherry/agent/agenttest"
	"github.com/wherry-dev/wherry/agent/assignments"
	"github.com/wherry-dev/wherry/agent/state"
	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/reconcilers/directory"
)

// How the fixtures below testdata/state are made: by the binary of an agent of that time, against a registry of
// this test. See testdata/state/README.md.
var (
	fixtureName  = flag.String("state-fixture", "", "make the fixture of this `NAME`, such as 2, before the fixtures are tested")
	fixtureAgent = flag.String("state-agent", "", "the wherry-agent, a `PROGRAM`, that leaves it")
)

const stateFixtures = "testdata/state"

// stateFixture describes a fixture, as its fixture.json does.
type stateFixture struct {
	// At is when the agent was at rest.
	At time.Time `json:"at"`

	name string
}

// What the agent of a fixture had seen: a release that it ran, a newer one that has one assignment for an engine
// that is not there, and one that nobody has signed. Where it was killed, it was about to change all of them and
// to take one away.
const (
	fixtureWorkloads = 12
	fixtureMissing   = "lathe-main" // is for an engine that is not there
	fixtureGone      = "w00-main"   // is not in the last release
)

func fixtureFile(i int) string { return fmt.Sprintf("w%02d-main/config.yaml", i) }

func fixtureFiles(n int) map[string]string {
	files := map[string]string{}
	for i := range fixtureWorkloads {
		files[fixtureFile(i)] = fmt.Sprint("release: ", n)
	}
	if n > 1 {
		files[fixtureMissing+"/config.yaml"] = "speed: 3"
	}
	if n > 3 {
		delete(files, fixtureGone+"/config.yaml")
	}
	return files
}

// fixtureKey returns one of the keys of all fixtures, which everybody may know.
func fixtureKey(t testing.TB, n byte) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.ParseRawPrivateKey(elliptic.P256(), bytes.Repeat([]byte{n}, 32))
	require.NoError(t, err)
	return key
}

func (s *site) fixtureDraft(n int) draft {
	d := s.draft(int64(n), fixtureFiles(n))
	d.ChangeList = func(list []bundle.Assignment) {
		for i := range list {
			if list[i].Name == fixtureMissing {
				list[i].Adapter = "kubernetes"
			}
		}
	}
	return d
}

// makeStateFixture runs a real agent, and saves its state at rest, and its state when it is killed during
// an apply.
func makeStateFixture(t *testing.T, name, program string) {
	program, err := filepath.Abs(program)
	require.NoError(t, err)
	s := newSite(t)
	s.now, s.opts.Now, s.key = time.Now(), nil, fixtureKey(t, 1)
	f := stateFixture{At: s.now.UTC().Truncate(time.Second), name: name}
	dir := t.TempDir()
	s.dir, s.host = filepath.Join(dir, "state"), filepath.Join(dir, "host")

	pub, err := bundle.MarshalPublicKey(s.key.Public())
	require.NoError(t, err)
	key := s.file(pub)
	command := func(args ...string) *exec.Cmd {
		return exec.Command(program, append(args, "--registry", s.location().String(), "--environment", "dev", "--cluster-type", "drone",
			"--cluster-uid", "plant-7", "--cluster-name", "plant-7", "--key", key, "--state-dir", s.dir, "--directory-root", s.host)...)
	}
	exits := func(code int, args ...string) {
		t.Helper()
		out, err := command(args...).CombinedOutput()
		var exit *exec.ExitError
		if code == 0 || !errors.As(err, &exit) {
			require.NoError(t, err, "%s", out)
			return
		}
		require.Equal(t, code, exit.ExitCode(), "%s", out)
	}

	exits(3, "once", "--wait", "0s") // there is nothing yet, but a state
	first := agenttest.NewTrust(s.stream.Platform, s.now, fixtureKey(t, 2), s.key)
	envelope, err := first.Envelope()
	require.NoError(t, err)
	exits(0, "trust", "install", s.file(envelope))
	s.offerTrust(first, first.Next(s.now))
	s.epoch = 1
	s.publish(s.fixtureDraft(1))
	exits(0, "once", "--wait", "0s")
	s.publish(s.fixtureDraft(2))
	exits(1, "once", "--wait", "0s")
	unsigned := s.fixtureDraft(3)
	unsigned.Signer = nil
	s.publish(unsigned)
	exits(4, "once", "--wait", "0s")
	f.keep(t, "rest", dir)

	s.publish(s.fixtureDraft(4))
	before := filepath.Join(t.TempDir(), "before")
	require.NoError(t, os.CopyFS(before, os.DirFS(dir)))
	for delay := 5 * time.Millisecond; ; delay += 3 * time.Millisecond {
		require.Less(t, delay, 10*time.Second, "it was never killed while it applied")
		require.NoError(t, os.RemoveAll(dir))
		require.NoError(t, os.CopyFS(dir, os.DirFS(before)))
		agent := command("once", "--wait", "0s")
		require.NoError(t, agent.Start())
		time.Sleep(delay) // any moment will do, if it is the right one
		require.NoError(t, agent.Process.Kill())
		_ = agent.Wait()
		if appliesHalf(t, s.dir) {
			break
		}
	}
	f.keep(t, "killed", dir)
	data, err := json.MarshalIndent(f, "", "  ")
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(stateFixtures, name, "fixture.json"), append(data, '\n'), 0o644))
}

// appliesHalf reports whether the agent that left a state was about to apply, and had not ended.
func appliesHalf(t *testing.T, dir string) bool {
	s, err := ReadState(dir)
	require.NoError(t, err)
	defer s.Close()
	half := false
	require.NoError(t, s.db.View(func(tx *bbolt.Tx) error {
		j, err1 := state.Load[journal](tx, state.Meta, keyJournal)
		records, err2 := s.records.All(tx)
		applying := func(r assignments.Record) bool { return r.Item.State == bundle.Applying }
		half = j.Step == "apply" && slices.ContainsFunc(records, applying)
		return errors.Join(err1, err2)
	}))
	return half
}

// keep packs a folder, with its state file as small as it can be.
func (f stateFixture) keep(t *testing.T, name, dir string) {
	file := filepath.Join(stateFixtures, f.name, name+".tar.gz")
	require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o755))
	compacted := filepath.Join(t.TempDir(), "agent.db")
	from, err := bbolt.Open(filepath.Join(dir, "state", state.File), 0o600, &bbolt.Options{ReadOnly: true})
	require.NoError(t, err)
	to, err := bbolt.Open(compacted, 0o600, nil)
	require.NoError(t, err)
	require.NoError(t, errors.Join(bbolt.Compact(to, from, 0), to.Close(), from.Close()))

	var packed bytes.Buffer
	zipped, err := gzip.NewWriterLevel(&packed, gzip.BestCompression)
	require.NoError(t, err)
	archive := tar.NewWriter(zipped)
	require.NoError(t, fs.WalkDir(os.DirFS(dir), ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() && !d.Type().IsRegular() {
			return err // the control socket, and nothing else
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		header := &tar.Header{Typeflag: tar.TypeDir, Name: path, Mode: int64(info.Mode().Perm())}
		var content []byte
		if !d.IsDir() {
			source := filepath.Join(dir, path)
			if path == "state/"+state.File {
				source = compacted
			}
			if content, err = os.ReadFile(source); err != nil {
				return err
			}
			header.Typeflag, header.Size = tar.TypeReg, int64(len(content))
		}
		if err := archive.WriteHeader(header); err != nil {
			return err
		}
		_, err = archive.Write(content)
		return err
	}))
	require.NoError(t, errors.Join(archive.Close(), zipped.Close(), os.WriteFile(file, packed.Bytes(), 0o644)))
}

// readStateFixtures returns all fixtures, oldest first.
func readStateFixtures(t *testing.T) (all []stateFixture) {
	entries, err := os.ReadDir(stateFixtures)
	require.NoError(t, err)
	for _, e := range entries {
		if !e.IsDir() {
			continue
		}
		f := stateFixture{name: e.Name()}
		data, err := os.ReadFile(filepath.Join(stateFixtures, e.Name(), "fixture.json"))
		require.NoError(t, err)
		require.NoError(t, json.Unmarshal(data, &f))
		all = append(all, f)
	}
	return all
}

// site returns the site that an agent of the fixture's time has left, an hour later, with a registry that has
// nothing.
func (f stateFixture) site(t *testing.T, name string) *site {
	t.Helper()
	s := newSite(t)
	dir := t.TempDir()
	s.dir, s.host, s.key, s.now = filepath.Join(dir, "state"), filepath.Join(dir, "host"), fixtureKey(t, 1), f.At.Add(time.Hour)
	s.opts.Engines.Reconcilers["directory"] = directory.New(s.host, directory.Options{})
	s.epoch = 1
	file, err := os.Open(filepath.Join(stateFixtures, f.name, name+".tar.gz"))
	require.NoError(t, err)
	defer file.Close()
	zipped, err := gzip.NewReader(file)
	require.NoError(t, err)
	archive := tar.NewReader(zipped)
	for {
		h, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return s
		}
		require.NoError(t, err)
		path := filepath.Join(dir, h.Name)
		if h.Typeflag == tar.TypeDir {
			require.NoError(t, os.MkdirAll(path, h.FileInfo().Mode()))
			continue
		}
		content, err := io.ReadAll(archive)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(path, content, h.FileInfo().Mode()))
	}
}
