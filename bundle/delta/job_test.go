package delta

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/bundle"
)

const childArgument = "delta-child"

// TestMain is a child where it is told to be one, which leaves in a file, if it gets one, how much memory it
// has taken: what the kernel tells a parent holds the parent's own, from the moment of the fork.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == childArgument {
		code := Child(os.Stdin, os.Stdout, Make)
		for _, name := range os.Args[2:] {
			most, _ := field("/proc/self/status", "VmHWM:")
			if err := os.WriteFile(name, fmt.Append(nil, most<<10), 0o600); err != nil {
				code = 1
			}
		}
		os.Exit(code)
	}
	os.Exit(m.Run())
}

func self(t *testing.T) []string {
	t.Helper()
	path, err := os.Executable()
	require.NoError(t, err)
	return []string{path, childArgument}
}

// files writes trees to a folder: "x.gz" as a layer.
func files(t *testing.T, all map[string][]byte) string {
	t.Helper()
	dir := t.TempDir()
	for name, data := range all {
		if strings.HasSuffix(name, ".gz") {
			var out bytes.Buffer
			w := gzip.NewWriter(&out)
			_, err := w.Write(data)
			require.NoError(t, err)
			require.NoError(t, w.Close())
			data = out.Bytes()
		}
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), data, 0o600))
	}
	return dir
}

func TestAJobIsDoneInAProcessOfItsOwn(t *testing.T) {
	base := manifests(100 << 10)
	next := inserted(base)
	dir := files(t, map[string][]byte{"base.gz": base, "next": next, "delta": []byte("left by one that was killed")})
	from := Tree{Path: filepath.Join(dir, "base.gz"), Gzip: true, Size: int64(len(base))}
	d, out := filepath.Join(dir, "delta"), filepath.Join(dir, "out")
	require.NoError(t, Job{Base: from, Next: Tree{Path: filepath.Join(dir, "next"), Size: int64(len(next))}, Out: d}.Start(t.Context(), self(t)...))
	made, err := os.ReadFile(d)
	require.NoError(t, err)
	require.Less(t, len(made), 200)

	apply := Job{Base: from, Delta: d, Want: content(next), Out: out}
	require.NoError(t, apply.Start(t.Context(), self(t)...))
	got, err := os.ReadFile(out)
	require.NoError(t, err)
	require.True(t, bytes.Equal(next, got))

	for name, c := range map[string]struct {
		change func(*Job)
		words  string
		reason bundle.Reason
	}{
		"another tree":          {func(j *Job) { j.Want = content(base) }, "BadContent: delta", bundle.BadContent},
		"a longer base":         {func(j *Job) { j.Base.Size-- }, "it is not of", ""},
		"a shorter base":        {func(j *Job) { j.Base.Size++ }, "base.gz: unexpected EOF", ""},
		"a base that is absent": {func(j *Job) { j.Base.Path += "x" }, "no such file", ""},
		"no layer":              {func(j *Job) { j.Base.Path = d }, "gzip: invalid header", ""},
		"a base of a terabyte":  {func(j *Job) { j.Base.Size = 1 << 40 }, "TooLarge: ", bundle.TooLarge},
		"no delta":              {func(j *Job) { j.Delta = dir }, "is a directory", ""},
		"nowhere to put it":     {func(j *Job) { j.Out = filepath.Join(dir, "none", "out") }, "no such file", ""},
	} {
		t.Run(name, func(t *testing.T) {
			j := apply
			c.change(&j)
			err := j.Start(t.Context(), self(t)...)
			require.ErrorContains(t, err, c.words)
			var refusal *bundle.Refusal
			if c.reason == "" {
				require.NotErrorAs(t, err, &refusal)
			} else {
				require.ErrorAs(t, err, &refusal)
				require.Equal(t, c.reason, refusal.Reason)
			}
			require.NoFileExists(t, j.Out)
		})
	}
	require.ErrorContains(t, apply.Start(t.Context(), "/bin/false"), "the process for it has failed: exit status 1")
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, apply.Start(ended, self(t)...), context.Canceled)
}

func TestAProgramWithoutAMakerOnlyApplies(t *testing.T) {
	dir := files(t, map[string][]byte{"base": []byte("tea: 2"), "next": []byte("tea: 3")})
	out := filepath.Join(dir, "out")
	order, err := json.Marshal(Job{Base: Tree{Path: filepath.Join(dir, "base"), Size: 6}, Next: Tree{Path: filepath.Join(dir, "next"), Size: 6}, Out: out})
	require.NoError(t, err)
	var said bytes.Buffer
	require.Equal(t, 3, Child(bytes.NewReader(order), &said, nil))
	require.Contains(t, said.String(), "this program makes no deltas")
	require.NoFileExists(t, out)

	require.Zero(t, Child(bytes.NewReader(order), &said, Make))
	require.FileExists(t, out)
}

// The largest trees there are deltas of, and a small insertion in them.
func TestMemoryIsBoundedAndGivenBack(t *testing.T) {
	t.Parallel()
	times := int64(1)
	if info, _ := debug.ReadBuildInfo(); slices.Contains(info.Settings, debug.BuildSetting{Key: "-race", Value: "true"}) {
		times = 4 // the detector notes the accesses to each byte in others
	}
	base := manifests(MaxTreeBytes - 1<<10)
	next := inserted(base)
	dir := files(t, map[string][]byte{"base": base, "next": next})
	from, to := Tree{Path: filepath.Join(dir, "base"), Size: int64(len(base))}, Tree{Path: filepath.Join(dir, "next"), Size: int64(len(next))}
	d := filepath.Join(dir, "delta")
	want := content(next)
	base, next = nil, nil
	for _, j := range []Job{{Base: from, Next: to, Out: d}, {Base: from, Delta: d, Want: want, Out: filepath.Join(dir, "out")}} {
		memory := filepath.Join(dir, "memory")
		require.NoError(t, j.Start(t.Context(), append(self(t), memory)...))
		most, ok := number64(memory)
		require.True(t, ok)
		allowed := times * j.Memory()
		t.Logf("%d MiB, and %d MiB are allowed", most>>20, allowed>>20)
		require.LessOrEqual(t, most, allowed)
	}
	info, err := os.Stat(d)
	require.NoError(t, err)
	require.LessOrEqual(t, info.Size(), int64(64<<10))
}

func TestAvailableIsTheLeastThatAnyBoundLeaves(t *testing.T) {
	const mib = 1 << 20
	write := func(files map[string]string) string {
		root := t.TempDir()
		for name, text := range files {
			require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(root, name)), 0o755))
			require.NoError(t, os.WriteFile(filepath.Join(root, name), []byte(text), 0o600))
		}
		return root
	}
	meminfo := fmt.Sprintf("MemTotal: 9 kB\nMemAvailable:    %d kB\n", 500<<10)
	for name, c := range map[string]struct {
		files map[string]string
		want  int64
		known bool
	}{
		"nothing is known": {nil, 0, false},
		"no groups":        {map[string]string{"proc/meminfo": meminfo}, 500 * mib, true},
		"no bound": {map[string]string{
			"proc/meminfo": meminfo, "proc/self/cgroup": "0::/agent\n",
			"sys/fs/cgroup/agent/memory.max": "max\n", "sys/fs/cgroup/agent/memory.current": "1048576\n",
		}, 500 * mib, true},
		"its own bound, with cache that can go": {map[string]string{
			"proc/meminfo": meminfo, "proc/self/cgroup": "0::/pods/agent\n",
			"sys/fs/cgroup/pods/agent/memory.max": fmt.Sprint(100 * mib), "sys/fs/cgroup/pods/agent/memory.current": fmt.Sprint(80 * mib),
			"sys/fs/cgroup/pods/agent/memory.stat": fmt.Sprintf("anon 1\ninactive_file %d\n", 30*mib),
		}, 50 * mib, true},
		"that of a group above": {map[string]string{
			"proc/meminfo": meminfo, "proc/self/cgroup": "0::/pods/agent\n",
			"sys/fs/cgroup/pods/memory.max": fmt.Sprint(100 * mib), "sys/fs/cgroup/pods/memory.current": fmt.Sprint(90 * mib),
		}, 10 * mib, true},
		"a container that sees its own group as the root": {map[string]string{
			"proc/meminfo": meminfo, "proc/self/cgroup": "0::/\n",
			"sys/fs/cgroup/memory.max": fmt.Sprint(64 * mib), "sys/fs/cgroup/memory.current": fmt.Sprint(65 * mib),
		}, 0, true},
		"the first version": {map[string]string{
			"proc/meminfo": meminfo, "proc/self/cgroup": "5:cpu:/x\n4:memory:/agent\n",
			"sys/fs/cgroup/memory/agent/memory.limit_in_bytes": fmt.Sprint(100 * mib), "sys/fs/cgroup/memory/agent/memory.usage_in_bytes": fmt.Sprint(60 * mib),
		}, 40 * mib, true},
	} {
		t.Run(name, func(t *testing.T) {
			got, known := availableIn(write(c.files))
			require.Equal(t, c.known, known)
			if known {
				require.Equal(t, c.want, got)
			}
		})
	}
	got, known := Available()
	require.True(t, known)
	require.Positive(t, got)
}
