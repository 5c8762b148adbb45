package doctor

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
)

// checkVeto checks whether the site can be asked if it may be changed. It does not ask: a program may do anything.
func checkVeto(_ context.Context, e *examination) Finding {
	v := e.Veto
	if v.File == "" && len(v.Command) == 0 {
		return skipped("the site is not asked whether it may be changed")
	}
	if v.File != "" {
		if _, err := os.Lstat(filepath.Dir(v.File)); err != nil {
			return failed("make the folder, mount it, or name another file with --veto-file: where it is missing nobody can say that nothing may change", "%v", err)
		}
	}
	if len(v.Command) > 0 {
		if _, err := exec.LookPath(v.Command[0]); err != nil {
			return failed("install the program, or name another with --veto-command: nothing is changed where it cannot be run", "%v", err)
		}
	}
	return ok("the site is asked before something is changed")
}
