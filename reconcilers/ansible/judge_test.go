package ansible

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"
	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/reconcilers"
	"github.com/wherry-dev/wherry/reconcilers/internal/program"
)

// storyOf returns the story of events, as the callback writes them.
func storyOf(t *testing.T, lines ...string) *story {
	t.Helper()
	s := &story{path: filepath.Join(t.TempDir(), "events.jsonl")}
	require.NoError(t, s.read(), "nothing was told yet")
	for _, line := range lines { // and read while it is being written
		f, err := os.OpenFile(s.path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
		require.NoError(t, err)
		for _, part := range []string{line[:len(line)/2], line[len(line)/2:] + "\n"} {
			_, err = f.WriteString(part)
			require.NoError(t, err)
			require.NoError(t, s.read())
		}
		require.NoError(t, f.Close())
	}
	return s
}

const (
	began  = `{"event":"playbook","name":"site.yaml"}`
	play   = `{"event":"play","name":"the host"}`
	task   = `{"event":"task","name":"look"}`
	fell   = `{"event":"failed","task":"look","ignored":false,"words":"no such file"}`
	passed = `{"event":"failed","task":"try","ignored":true,"words":"not there"}`
)

func stats(figures string) string {
	return `{"event":"stats","hosts":{"localhost":{` + figures + `}}}`
}

func TestARunIsJudgedByAnsiblesOwnFigures(t *testing.T) {
	late := program.Exit{Code: -1, Cause: program.ErrDeadline}
	for _, test := range []struct {
		name    string
		events  []string
		exit    program.Exit
		log     string
		state   bundle.State
		reason  string
		message string
	}{
		{"well", []string{began, play, task, stats(`"ok":2`)}, program.Exit{}, "", bundle.Compliant, "", ""},
		{"a failed task", []string{began, play, task, fell, stats(`"ok":1,"failures":1`)}, program.Exit{Code: 2}, "ERROR! x", bundle.Failed, TaskFailed, `site.yaml: task "look": no such file`},
		{"a host that is not there", []string{began, play, task, `{"event":"unreachable","task":"look","words":"no route"}`, stats(`"unreachable":1`)}, program.Exit{Code: 4}, "", bundle.Failed, Unreachable, `site.yaml: task "look": no route`},
		{
			"failures that were borne",
			[]string{began, play, passed, fell, stats(`"ok":2,"ignored":1,"rescued":1`)},
			program.Exit{},
			"", bundle.Compliant, WithFailures,
			`2 failed tasks were ignored or rescued; the first ignored is site.yaml: task "try": not there`,
		},
		{"a play for nobody", []string{began, play, `{"event":"noHosts"}`, stats(``)}, program.Exit{}, "", bundle.Failed, NoHostsMatched, `site.yaml: play "the host" is for no host: the inventory has localhost alone`},
		{"nothing to do", []string{began, play, stats(`"skipped":3`)}, program.Exit{}, "", bundle.Failed, NothingDone, "no task has done anything: each play was empty, or its conditions were not met"},
		{"no word of its end", []string{began, play, task}, program.Exit{}, "some\noutput\n", bundle.Failed, EngineFailed, "ansible-playbook has told of 0 of 1 playbooks: output"},
		{"a crash", []string{began}, program.Exit{Code: 250}, "Traceback\nERROR! Unexpected\n  Exception\n", bundle.Failed, EngineFailed, "ansible-playbook exited with 250: Unexpected Exception"},
		{"silence", nil, program.Exit{Code: 1}, "", bundle.Failed, EngineFailed, "ansible-playbook exited with 1: it has written nothing"},
		{"too late", []string{began, play, task}, late, "", bundle.Failed, DeadlineExceeded, `site.yaml: task 1, "look", was not done after 5m0s and has been ended`},
		{"too late before anything", nil, late, "", bundle.Failed, DeadlineExceeded, `ansible-playbook: begins, was not done after 5m0s and has been ended`},
	} {
		t.Run(test.name, func(t *testing.T) {
			res := judge(storyOf(t, test.events...), test.exit, 1, 5*time.Minute, test.log)
			message := strings.TrimSuffix(res.Message, rights())
			require.Equal(t, []any{test.state, test.reason, test.message}, []any{res.State, res.Reason, message})
		})
	}
	t.Run("not all playbooks", func(t *testing.T) {
		require.Equal(t, EngineFailed, judge(storyOf(t, began, play, stats(`"ok":1`)), program.Exit{}, 2, 0, "").Reason)
	})
}

func TestChangesAreNamedUpToABound(t *testing.T) {
	lines := []string{began}
	for i := range maxNamed + 5 {
		lines = append(lines, fmt.Sprintf(`{"event":"changed","task":"t%d"}`, i))
	}
	s := storyOf(t, append(lines, stats(`"ok":25,"changed":25`))...)
	require.True(t, strings.HasPrefix(s.changes(), `site.yaml: task "t0", site.yaml: task "t1", `))
	require.True(t, strings.HasSuffix(s.changes(), " and 5 more"))
	require.Equal(t, 25, s.worked)
}

func TestDamagedEventsAreAnError(t *testing.T) {
	s := &story{path: filepath.Join(t.TempDir(), "events.jsonl")}
	require.NoError(t, os.WriteFile(s.path, []byte("{}\nnonsense\n"), 0o600))
	require.ErrorContains(t, s.read(), "events.jsonl: offset 3: ")
}

func TestASyntaxErrorIsSaidInAnsiblesWords(t *testing.T) {
	for _, test := range []struct {
		name            string
		exit            program.Exit
		log             string
		reason, message string
	}{
		{"nothing wrong", program.Exit{}, "playbook: site.yaml\n", "", ""},
		{"a mistake", program.Exit{Code: 4}, "[WARNING]: x\nERROR! did not find\nexpected key\n", InvalidPlaybook, "did not find expected key"},
		{
			"a module that is not there",
			program.Exit{Code: 4},
			"ERROR! couldn't resolve module/action 'x'.\n", InvalidPlaybook,
			"collections are not fetched: put the module's into the assignment's folder collections. couldn't resolve module/action 'x'.",
		},
		{"a broken Ansible", program.Exit{Code: 1}, "Traceback\nModuleNotFoundError: No module named 'yaml'\n", EngineFailed, "ansible-playbook exited with 1: ModuleNotFoundError: No module named 'yaml'"},
		{"too late", program.Exit{Code: -1, Cause: program.ErrDeadline}, "", DeadlineExceeded, "the syntax check was not done after 1s and has been ended"},
	} {
		t.Run(test.name, func(t *testing.T) {
			res := judgeSyntax(test.exit, time.Second, test.log)
			require.Equal(t, []any{test.reason, test.message}, []any{res.Reason, res.Message})
		})
	}
}

func TestTroubleOfThisMachineHasAReason(t *testing.T) {
	for reason, err := range map[string]error{
		DiskFull:                      &fs.PathError{Err: syscall.ENOSPC},
		NotWritable:                   &fs.PathError{Err: syscall.EROFS},
		DiskError:                     errors.New("other"),
		EngineMissing:                 errors.ErrUnsupported,
		reconcilers.ReasonInterrupted: context.Canceled,
	} {
		require.Equal(t, reason, failed(fmt.Errorf("apply: %w", err)).Reason)
	}
}

// assignment returns an assignment with files.
func assignment(t *testing.T, name string, files map[string]string) reconcilers.Assignment {
	t.Helper()
	a := reconcilers.Assignment{Dir: filepath.Join(t.TempDir(), name)}
	a.Name = name
	require.NoError(t, os.MkdirAll(a.Dir, 0o755))
	for path, content := range files {
		path = filepath.Join(a.Dir, path)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte(content), 0o644))
	}
	var err error
	a.Content, err = bundle.ContentDigestOf(os.DirFS(filepath.Dir(a.Dir)), name)
	require.NoError(t, err)
	return a
}

func TestPlaybooksAreListsOfPlaysInOrder(t *testing.T) {
	const play = "---\n- hosts: localhost\n"
	a := assignment(t, "app", map[string]string{
		"reconciler.yaml": play, "namespace.yaml": play, "b.yml": "- import_playbook: tasks/x.yaml\n", "a.yaml": play,
		"broken.yaml": "- hosts: [\n", "vars.yaml": "a: 1\n", "list.yaml": "- a\n- b: 1\n", "empty.yaml": "", "vault.yaml": "- hosts: x\n  vars: {k: !vault abc}\n",
		"platform-config.sh": "- hosts: x\n", "tasks/x.yaml": play, "big.yaml": play + strings.Repeat("#", maxPlaybookBytes),
	})
	names, err := playbooks(a.Dir)
	require.NoError(t, err)
	require.Equal(t, []string{"namespace.yaml", "a.yaml", "b.yml", "broken.yaml", "vault.yaml", "reconciler.yaml"}, names)
}

func TestWhatIsRunIsWhatWasVerified(t *testing.T) {
	p := place(filepath.Join(t.TempDir(), "app"))
	a := assignment(t, "app", map[string]string{"site.yaml": "- hosts: localhost\n", "files/run.sh": "x"})
	require.NoError(t, p.stage(t.Context(), a))
	require.NoError(t, p.take())
	require.NoError(t, os.WriteFile(filepath.Join(a.Dir, "site.yaml"), []byte("- hosts: all\n"), 0o644))
	err := p.stage(t.Context(), a)
	require.Equal(t, FilesUnreadable, failed(err).Reason)
	require.Equal(t, bundle.Pending, failed(err).State)
	dir, names, err := p.applied()
	require.NoError(t, err)
	require.Equal(t, []string{"site.yaml"}, names)
	data, err := os.ReadFile(filepath.Join(dir, "site.yaml"))
	require.NoError(t, err)
	require.Equal(t, "- hosts: localhost\n", string(data), "the agent's tree may change, and go")

	require.NoError(t, os.Rename(p.path(contentDir), p.path(oldDir)), "a crash between two renames")
	_, names, err = p.applied()
	require.NoError(t, err)
	require.Equal(t, []string{"site.yaml"}, names)

	require.NoError(t, os.Symlink("/etc/passwd", filepath.Join(a.Dir, "link")))
	require.Equal(t, InvalidAssignment, failed(p.stage(t.Context(), a)).Reason)
}

func TestWhatIsKnownOutlivesTheProcess(t *testing.T) {
	p := place(filepath.Join(t.TempDir(), "app"))
	none, err := p.load()
	require.NoError(t, err)
	require.Zero(t, none)
	s := standing{Content: digest.FromString("x"), Ended: true, State: bundle.Compliant, Drifted: true}
	require.NoError(t, p.save(s))
	got, err := p.load()
	require.NoError(t, err)
	require.Equal(t, s, got)
	require.NoError(t, os.WriteFile(p.path(stateFile), []byte("{"), 0o600))
	none, err = p.load()
	require.NoError(t, err)
	require.Zero(t, none, "a damaged one is as none: playbooks bear being run again")
}

func TestWhatCannotBeRunIsSaidAtOnce(t *testing.T) {
	const play = "- hosts: localhost\n"
	missing := filepath.Join(t.TempDir(), "ansible-playbook")
	for _, test := range []struct {
		name   string
		opts   Options
		change func(*reconcilers.Assignment)
		state  bundle.State
		reason string
		words  string
	}{
		{"no Ansible", Options{Program: missing}, nil, bundle.Failed, EngineMissing, "apt-get install ansible-core"},
		{"no playbook", Options{Program: "sh"}, func(a *reconcilers.Assignment) { *a = assignment(t, "app", map[string]string{"x.yaml": "a: 1\n"}) }, bundle.Failed, NoPlaybook, "- hosts:"},
		{"no files", Options{Program: "sh"}, func(a *reconcilers.Assignment) { a.Dir += "-gone" }, bundle.Pending, FilesUnreadable, "-gone"},
		{"a name that is not a folder's", Options{Program: "sh"}, func(a *reconcilers.Assignment) { a.Name = "../x" }, bundle.Failed, InvalidAssignment, `"../x"`},
	} {
		t.Run(test.name, func(t *testing.T) {
			r := New(filepath.Join(t.TempDir(), "root"), test.opts)
			a := assignment(t, "app", map[string]string{"site.yaml": play})
			if test.change != nil {
				test.change(&a)
			}
			res := r.Apply(t.Context(), a)
			require.Equal(t, []any{test.state, test.reason}, []any{res.State, res.Reason}, res.Message)
			require.Contains(t, res.Message, test.words)
			if test.reason == EngineMissing || test.reason == NoPlaybook {
				require.Equal(t, res, r.Observe(t.Context(), a))
			}
			require.NoError(t, r.Close())
			require.Equal(t, reconcilers.ReasonInterrupted, r.Observe(t.Context(), assignment(t, "app", nil)).Reason, "it was closed")
		})
	}
}
