package doctor

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
)

// veto says whether the site can be asked if it may be changed. It does not ask: a program may do anything.
func (e *examination) veto(context.Context) {
	const check = "veto"
	v := e.Veto
	if v.File == "" && len(v.Command) == 0 {
		e.skipped(check, "the site is not asked whether it may be changed")
		return
	}
	if v.File != "" {
		if _, err := os.Lstat(filepath.Dir(v.File)); err != nil {
			e.failed(check, "make the folder, mount it, or name another file with --veto-file: where it is missing nobody can say that nothing may change", "%v", err)
			return
		}
	}
	if len(v.Command) > 0 {
		if _, err := exec.LookPath(v.Command[0]); err != nil {
			e.failed(check, "install the program, or name another with --veto-command: nothing is changed where it cannot be run", "%v", err)
			return
		}
	}
	e.ok(check, "the site is asked before something is changed")
}
