//go:build e2e && linux

package ansible_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/reconcilers"
	"github.com/wherry-dev/wherry/reconcilers/ansible"
	"github.com/wherry-dev/wherry/reconcilers/reconcilertest"
)

func TestMain(m *testing.M) {
	reconcilertest.Child(func(root string) (reconcilers.Reconciler, error) {
		return ansible.New(root, ansible.Options{}), nil
	})
	os.Exit(m.Run())
}

// The playbooks of the suite write a file for each value, and have a play that takes it all away.
func TestConformance(t *testing.T) {
	reconcilertest.Run(t, reconcilertest.Adapter{
		Name:     "ansible",
		On:       "Debian's ansible-core, with playbooks that write files",
		Start:    func(t *testing.T) reconcilertest.Engine { return newEngine(t) },
		Patience: patience,
		Parallel: true,
		Whole:    "site.yaml",
		Without: map[reconcilertest.Case]string{
			reconcilertest.Prune: "a playbook says what to bring, and what it does not mention stays: it has to say `state: absent` for what is to go",
		},
	})
}

// engine is Ansible, which is found by a link in a folder of the engine, and a folder of the host.
type engine struct{ base string }

func newEngine(t *testing.T) *engine {
	t.Helper()
	e := &engine{t.TempDir()}
	e.link(t)
	return e
}

func (e *engine) program() string { return filepath.Join(e.base, "ansible-playbook") }

func (e *engine) link(t *testing.T) {
	t.Helper()
	found, err := exec.LookPath("ansible-playbook")
	require.NoError(t, err)
	require.NoError(t, os.Symlink(found, e.program()))
}

func (e *engine) root() string { return filepath.Join(e.base, "root") }

func (e *engine) Reconciler(*testing.T) reconcilers.Reconciler {
	return ansible.New(e.root(), ansible.Options{Program: e.program()})
}

func (e *engine) Hasty(_ *testing.T, deadline time.Duration) reconcilers.Reconciler {
	return ansible.New(e.root(), ansible.Options{Program: e.program(), Deadline: deadline})
}

func (e *engine) Handle(*testing.T) string { return e.root() }

func (e *engine) Namespace() string { return "" }

func (e *engine) path(assignment string, names ...string) string {
	return filepath.Join(append([]string{e.base, "host", assignment}, names...)...)
}

func (e *engine) Files(t *testing.T, assignment string, content map[string]string) []bundle.File {
	require.NoError(t, os.MkdirAll(filepath.Join(e.base, "host"), 0o755))
	count := fmt.Sprintf("- hosts: localhost\n  gather_facts: false\n  tasks:\n  - name: count\n    shell: echo run >>'%s.runs'\n    changed_when: false\n", e.path(assignment))
	site := strings.Replace(count, "  tasks:", "  tags: [never, wherry-remove]\n  tasks:", 1) +
		fmt.Sprintf("  - name: no folder\n    file: {path: %q, state: absent}\n", e.path(assignment)) +
		count + fmt.Sprintf("  - name: the folder\n    file: {path: %q, state: directory}\n", e.path(assignment))
	for name, value := range content {
		site += fmt.Sprintf("  - name: write %s\n    copy: {dest: %q, content: %q}\n", name, e.path(assignment, name), value)
	}
	return []bundle.File{{Path: "site.yaml", Data: []byte(site)}}
}

func (e *engine) Value(t *testing.T, assignment, name string) (string, bool) {
	data, err := os.ReadFile(e.path(assignment, name))
	if os.IsNotExist(err) {
		return "", false
	}
	require.NoError(t, err)
	return string(data), true
}

func (e *engine) Writes(t *testing.T, assignment string) string {
	data, err := os.ReadFile(e.path(assignment) + ".runs")
	require.NoError(t, err)
	return string(data)
}

func (e *engine) Tamper(t *testing.T, assignment, name, value string) {
	require.NoError(t, os.WriteFile(e.path(assignment, name), []byte(value), 0o644))
}

func (e *engine) Delete(t *testing.T, assignment, name string) {
	require.NoError(t, os.Remove(e.path(assignment, name)))
}

func (e *engine) AddForeign(t *testing.T, _, _ string) {
	require.NoError(t, os.WriteFile(e.path("theirs"), []byte("theirs"), 0o600))
}

func (e *engine) CheckForeign(t *testing.T, _, _ string) {
	data, err := os.ReadFile(e.path("theirs"))
	require.NoError(t, err)
	require.Equal(t, "theirs", string(data))
}

// Obstruct takes the program away.
func (e *engine) Obstruct(t *testing.T, _ string) (reason string, mend func()) {
	require.NoError(t, os.Remove(e.program()))
	return ansible.EngineMissing, func() { e.link(t) }
}

// edit changes site.yaml.
func edit(t *testing.T, dir string, change func(string) string) {
	t.Helper()
	path := filepath.Join(dir, "site.yaml")
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(path, []byte(change(string(data))), 0o644))
}

func (e *engine) Break(t *testing.T, a reconcilers.Assignment) string {
	edit(t, a.Dir, func(s string) string { return s + "  - name: no such thing\n    no_such_module: {}\n" })
	return ansible.InvalidPlaybook
}

func (e *engine) Fail(t *testing.T, a reconcilers.Assignment) (reason, words string) {
	edit(t, a.Dir, func(s string) string { return s + "  - name: look\n    command: ls /no/such/folder\n" })
	return ansible.TaskFailed, `site.yaml: task "look": non-zero return code: ls: cannot access '/no/such/folder'`
}

func (e *engine) Stall(t *testing.T, a reconcilers.Assignment) (words string, finish func()) {
	sign := filepath.Join(e.base, a.Name+strings.ReplaceAll(a.Dir, "/", "-"))
	edit(t, a.Dir, func(s string) string {
		const tasks = "  tasks:\n"
		i := strings.LastIndex(s, tasks) + len(tasks)
		return s[:i] + fmt.Sprintf("  - name: wait\n    shell: while ! test -e '%s'; do sleep 0.05; done\n    changed_when: false\n", sign) + s[i:]
	})
	return "site.yaml", func() { require.NoError(t, os.WriteFile(sign, nil, 0o600)) }
}

// Running counts the processes that have the engine's folder in their command line.
func (e *engine) Running(t *testing.T) int {
	paths, err := filepath.Glob("/proc/[0-9]*/cmdline")
	require.NoError(t, err)
	return len(slices.DeleteFunc(paths, func(path string) bool {
		line, err := os.ReadFile(path)
		return err != nil || !strings.Contains(string(line), e.base)
	}))
}
