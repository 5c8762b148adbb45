package ansible

import (
	"cmp"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/wherry-dev/wherry/bundle/diskfile"
	"github.com/wherry-dev/wherry/bundle/sitevalues"
	"github.com/wherry-dev/wherry/reconcilers"
	"github.com/wherry-dev/wherry/reconcilers/internal/program"
)

// The files that Ansible needs from us.
var (
	//go:embed plugin/ansible.cfg
	ansibleCfg []byte
	//go:embed plugin/wherry.py
	wherryPy []byte
)

// systemPython is the interpreter of Debian's Ansible and of the packages that its modules need, such as
// python3-apt. Another one is used only if it is absent.
const systemPython = "/usr/bin/python3"

// systemPath is the PATH of tasks: the agent's own PATH, as that of a service, may be anything.
const systemPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// engine is Ansible as it was found on this machine.
type engine struct{ program, python string }

func (r *Reconciler) engine() (engine, error) {
	e, err := find(r.opts.Program)
	if err != nil {
		err = failure(EngineMissing, "%w: install ansible-core (Debian: apt-get install ansible-core), which brings python3, or name the program with --ansible-playbook", err)
	}
	return e, err
}

func find(program string) (e engine, err error) {
	if e.program, err = exec.LookPath(cmp.Or(program, "ansible-playbook")); err != nil {
		return e, err
	}
	if e.program, err = filepath.Abs(e.program); err != nil {
		return e, err
	}
	if e.python, err = exec.LookPath(systemPython); err != nil {
		e.python, err = exec.LookPath("python3")
	}
	return e, err
}

// order is one run of ansible-playbook.
type order struct {
	place     place
	keep      string // the folder of the program's files
	dir       string // with the playbooks
	playbooks []string
	extra     []string // arguments
	deadline  time.Duration
}

// saveVars saves the variables that every play gets as the dictionaries wherry and wherry_site. Removal needs the saved ones, since only
// the assignment's name is known then.
func (p place) saveVars(a reconcilers.Assignment) error {
	return diskfile.WriteFile(p.path(varsFile), variables(a))
}

// variables writes YAML. A version is an app team's text, which Ansible would evaluate where it holds a
// template, and a template may run programs: !unsafe has it taken as it is.
func variables(a reconcilers.Assignment) []byte {
	data := []byte("wherry:\n")
	for _, v := range []struct{ name, value string }{
		{"assignment", a.Name},
		{"workspace", a.Workspace},
		{"workload", a.Workload},
		{"target", a.Target},
		{"namespace", a.Namespace},
		{"version", a.Version},
		{"content", a.Content.String()},
	} {
		data = fmt.Appendf(data, "  %s: !unsafe %+q\n", v.name, v.value) // Go's escapes are among YAML's
	}
	if len(a.Values) > 0 {
		data = append(data, "wherry_site:\n"...)
	}
	for _, key := range slices.Sorted(maps.Keys(a.Values)) {
		data = fmt.Appendf(data, "  %q: !unsafe %+q\n", sitevalues.Variable(key), a.Values[key])
	}
	return data
}

// play starts ansible-playbook and returns its events.
func (r *Reconciler) play(o order) (*program.Run, *story, error) {
	e, err := r.engine()
	if err != nil {
		return nil, nil, err
	}
	root, err := r.root()
	if err != nil {
		return nil, nil, err
	}
	own, keep := filepath.Join(root, ownDir), o.place.path(o.keep)
	if err := r.install(own, e); err != nil {
		return nil, nil, err
	}
	tmp, events := filepath.Join(keep, "tmp"), filepath.Join(keep, "events.jsonl")
	if err := errors.Join(os.MkdirAll(keep, 0o700), os.RemoveAll(tmp), os.RemoveAll(events)); err != nil {
		return nil, nil, err
	}
	args := []string{"--inventory", filepath.Join(own, "inventory.ini"), "--connection", "local", "--extra-vars", "@" + o.place.path(varsFile)}
	run, err := program.Start(keep, program.Command{
		Path: e.program, Args: append(append(args, o.extra...), o.playbooks...), Dir: o.dir, Deadline: o.deadline, Grace: r.opts.Grace,
		Env: append(environment(),
			"ANSIBLE_CONFIG="+filepath.Join(own, "ansible.cfg"), "ANSIBLE_CALLBACK_PLUGINS="+own, "ANSIBLE_HOME="+filepath.Join(own, "home"),
			"ANSIBLE_LOCAL_TEMP="+tmp, "ANSIBLE_REMOTE_TEMP="+tmp, "WHERRY_EVENTS="+events),
	})
	return run, &story{path: events}, err
}

// install writes wherry's files for Ansible: its configuration and its plugin.
func (r *Reconciler) install(own string, e engine) error {
	if err := os.MkdirAll(own, 0o700); err != nil {
		return err
	}
	files := map[string][]byte{
		"inventory.ini": fmt.Appendf(nil, "localhost ansible_connection=local ansible_python_interpreter=%q\n", e.python),
		"ansible.cfg":   ansibleCfg,
		"wherry.py":     wherryPy,
	}
	for name, data := range files { // whole at every moment: a check may begin while a run does
		name = filepath.Join(own, name)
		if have, err := os.ReadFile(name); err == nil && string(have) == string(data) {
			continue
		}
		f, err := os.CreateTemp(own, ".new-")
		if err != nil {
			return err
		}
		_, err = f.Write(data)
		if err := errors.Join(err, f.Close(), os.Rename(f.Name(), name)); err != nil {
			return err
		}
	}
	return nil
}

// environment returns the variables of playbooks beside Ansible's own settings. Of the agent's variables they get only the
// proxy settings, which tasks that fetch files need too.
func environment() []string {
	home := "/"
	if u, err := user.Current(); err == nil && u.HomeDir != "" {
		home = u.HomeDir
	}
	env := []string{"PATH=" + systemPath, "HOME=" + home, "LANG=C.UTF-8", "LC_ALL=C.UTF-8"}
	for _, name := range []string{"http_proxy", "https_proxy", "no_proxy", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY"} {
		if v, ok := os.LookupEnv(name); ok {
			env = append(env, name+"="+v)
		}
	}
	return env
}

// Version runs the program and returns its version and its Python's in a sentence for people.
func Version(ctx context.Context, program string) (string, error) {
	e, err := find(program)
	if err != nil {
		return "", err
	}
	cmd := exec.CommandContext(ctx, e.program, "--version")
	cmd.Env = environment()
	out, err := cmd.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%s --version: %w: %s", e.program, err, lastWords(string(out)))
	}
	first, _, _ := strings.Cut(string(out), "\n")
	if !strings.Contains(first, "ansible") {
		return "", fmt.Errorf("%s --version says %q: is this ansible-playbook?", e.program, reconcilers.Clip(first))
	}
	return fmt.Sprintf("%s is %s, and modules run by %s", e.program, first, e.python), nil
}
