//go:build e2e && linux

package ansible_test

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/reconcilers"
	"github.com/wherry-dev/wherry/reconcilers/ansible"
)

// playbook returns an assignment with the tasks, on localhost and without gathering facts.
func playbook(t *testing.T, name, tasks string) reconcilers.Assignment {
	t.Helper()
	return files(t, name, map[string]string{"site.yaml": "- hosts: localhost\n  gather_facts: false\n  tasks:\n" + tasks})
}

func files(t *testing.T, name string, content map[string]string) reconcilers.Assignment {
	t.Helper()
	a := reconcilers.Assignment{Dir: filepath.Join(t.TempDir(), name)}
	a.Name = name
	require.NoError(t, os.Mkdir(a.Dir, 0o755))
	for file, text := range content {
		require.NoError(t, os.WriteFile(filepath.Join(a.Dir, file), []byte(text), 0o644))
	}
	var err error
	a.Content, err = bundle.ContentDigestOf(os.DirFS(filepath.Dir(a.Dir)), name)
	require.NoError(t, err)
	return a
}

// patience is how long a run may take here: each starts Python anew, on whatever machine this is.
const patience = 6 * time.Minute

// bring applies a and waits for the end of that.
func bring(t *testing.T, r reconcilers.Reconciler, a reconcilers.Assignment) reconcilers.Result {
	t.Helper()
	res := r.Apply(t.Context(), a)
	for end := time.Now().Add(patience); res.State == bundle.Progressing && time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		res = r.Observe(t.Context(), a)
	}
	return res
}

func open(t *testing.T, root string) *ansible.Reconciler {
	t.Helper()
	r := ansible.New(root, ansible.Options{})
	t.Cleanup(func() { require.NoError(t, r.Close()) })
	return r
}

func TestBadDays(t *testing.T) {
	t.Parallel()
	secret := filepath.Join(t.TempDir(), "secret")
	require.NoError(t, os.WriteFile(secret, []byte("swordfish"), 0o600))
	root := filepath.Join(t.TempDir(), "root")
	r := open(t, root)
	for _, test := range []struct {
		name, tasks   string
		state         bundle.State
		reason, words string
	}{
		{"a variable that is not defined", "  - name: say\n    debug: {msg: '{{ nope }}'}\n", bundle.Failed, ansible.TaskFailed, `site.yaml: task "say": The task includes an option with an undefined variable. The error was: 'nope' is undefined`},
		{"a package that no source has", "  - name: package\n    apt: {name: wherry-no-such-package}\n", bundle.Failed, ansible.TaskFailed, "No package matching 'wherry-no-such-package' is available"},
		{"a host that cannot be worked on", "  - name: ping\n    ping:\n    vars: {ansible_remote_tmp: /proc/nowhere}\n", bundle.Failed, ansible.Unreachable, `site.yaml: task "ping": `},
		{"conditions that nothing meets", "  - debug:\n    when: false\n", bundle.Failed, ansible.NothingDone, "no task has done anything"},
		{"a play for another host", "  - debug:\n- hosts: elsewhere\n  tasks:\n  - debug:\n", bundle.Failed, ansible.NoHostsMatched, `site.yaml: play "elsewhere" is for no host`},
		{"a password in a task with no_log", "  - name: secret\n    shell: echo {{ lookup('file', '" + secret + "') }} >&2; false\n    no_log: true\n", bundle.Failed, ansible.TaskFailed, `site.yaml: task "secret": its output is hidden by no_log`},
		{
			"failures that are borne", "  - name: try\n    command: 'false'\n    ignore_errors: true\n  - block:\n    - command: 'false'\n    rescue:\n    - debug:\n",
			bundle.Compliant, ansible.WithFailures, `2 failed tasks were ignored or rescued; the first ignored is site.yaml: task "try": non-zero return code`,
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			res := bring(t, r, playbook(t, "app", test.tasks))
			require.Equal(t, []any{test.state, test.reason}, []any{res.State, res.Reason}, res.Message)
			require.Contains(t, res.Message, test.words)
		})
	}
	require.NoError(t, filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := os.ReadFile(path)
		require.False(t, bytes.Contains(data, []byte("swordfish")), path)
		return err
	}))
}

func TestWhatCheckModeCannotTellIsNoDrift(t *testing.T) {
	t.Parallel()
	r := open(t, filepath.Join(t.TempDir(), "root"))
	a := playbook(t, "app", "  - command: echo x\n    register: said\n  - name: use it\n    debug: {msg: '{{ said.stdout_lines[0] }}'}\n")
	require.Equal(t, bundle.Compliant, bring(t, r, a).State)
	res := r.Observe(t.Context(), a)
	require.Equal(t, []any{bundle.Compliant, ansible.DriftUnknown, a.Content.String()}, []any{res.State, res.Reason, res.Revision})
	require.Contains(t, res.Message, `check mode: site.yaml: task "use it": `)
}

func TestWhatAnAppTeamSaysIsNotEvaluated(t *testing.T) {
	t.Parallel()
	r := open(t, filepath.Join(t.TempDir(), "root"))
	sign := filepath.Join(t.TempDir(), "sign")
	a := playbook(t, "app", "  - copy: {dest: '"+sign+".version', content: '{{ wherry.version }}'}\n")
	a.Version = "1.0\x7f \"é\" {{ lookup('pipe', 'touch " + sign + "') }}"
	require.Equal(t, bundle.Compliant, bring(t, r, a).State)
	require.NoFileExists(t, sign)
	got, err := os.ReadFile(sign + ".version")
	require.NoError(t, err)
	require.Equal(t, a.Version, string(got))
}

func TestPlaybooksTakeTurns(t *testing.T) {
	t.Parallel()
	r := open(t, filepath.Join(t.TempDir(), "root"))
	sign := filepath.Join(t.TempDir(), "sign")
	slow := playbook(t, "slow", fmt.Sprintf("  - name: wait\n    shell: while ! test -e '%s'; do sleep 0.05; done\n", sign))
	next := files(t, "next", map[string]string{
		"namespace.yaml":  "- hosts: localhost\n  gather_facts: false\n  tasks:\n  - debug: {msg: '{{ wherry.assignment }}'}\n",
		"reconciler.yaml": "- hosts: localhost\n  gather_facts: false\n  tasks:\n  - assert: {that: wherry.assignment == 'next'}\n",
	})
	require.Equal(t, bundle.Progressing, r.Apply(t.Context(), slow).State)
	res := r.Apply(t.Context(), next)
	require.Equal(t, []any{bundle.Pending, ansible.Queued}, []any{res.State, res.Reason})
	require.Equal(t, res, r.Apply(t.Context(), next))
	require.Eventually(t, func() bool {
		res = r.Observe(t.Context(), slow)
		return res.Message == `site.yaml: task 1, "wait"`
	}, patience, 50*time.Millisecond, "%+v", res)
	require.NoError(t, os.WriteFile(sign, nil, 0o600))
	require.Equal(t, bundle.Compliant, bring(t, r, slow).State)
	require.Equal(t, bundle.Compliant, bring(t, r, next).State)
}

func TestWhatPlaybooksDoNotUndoStaysAndIsSaid(t *testing.T) {
	t.Parallel()
	r := open(t, filepath.Join(t.TempDir(), "root"))
	file := filepath.Join(t.TempDir(), "file")
	a := playbook(t, "app", fmt.Sprintf("  - copy: {dest: '%s', content: x}\n", file))
	require.Equal(t, bundle.Compliant, bring(t, r, a).State)
	var name reconcilers.Assignment
	name.Name = a.Name
	res := r.Remove(t.Context(), name)
	for end := time.Now().Add(patience); res.State == bundle.Progressing && time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		res = r.Remove(t.Context(), name)
	}
	require.Equal(t, []any{bundle.Removed, ansible.NothingToUndo}, []any{res.State, res.Reason}, res.Message)
	require.FileExists(t, file)
	require.Equal(t, reconcilers.Result{State: bundle.Removed}, r.Remove(t.Context(), name))

	require.Equal(t, bundle.Compliant, bring(t, r, a).State)
	res = r.Release(t.Context(), name)
	for end := time.Now().Add(patience); res.State == bundle.Progressing && time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		res = r.Release(t.Context(), name)
	}
	require.Equal(t, reconcilers.Result{State: bundle.Removed}, res)
	require.Equal(t, ansible.NotApplied, r.Observe(t.Context(), a).Reason)
}
