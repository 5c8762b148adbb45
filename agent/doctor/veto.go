package doctor

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/wherry-dev/wherry/bundle/diagnosis"
)

// checkVeto checks whether the site can be asked if it may be changed. It does not ask: a program may do anything.
func checkVeto(_ context.Context, e *examination) diagnosis.Finding {
	v := e.Veto
	if v.File == "" && len(v.Command) == 0 {
		return diagnosis.Skipf("the site is not asked whether it may be changed")
	}
	if v.File != "" {
		if _, err := os.Lstat(filepath.Dir(v.File)); err != nil {
			return diagnosis.Failf("make the folder, mount it, or name another file with --veto-file: where it is missing nobody can say that nothing may change", "%v", err)
		}
	}
	if len(v.Command) > 0 {
		if _, err := exec.LookPath(v.Command[0]); err != nil {
			return diagnosis.Failf("install the program, or name another with --veto-command: nothing is changed where it cannot be run", "%v", err)
		}
	}
	return diagnosis.Okf("the site is asked before something is changed")
}
