package freeze

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/child"
)

// DefaultTimeout is what asking a machine over a plant's network takes, many times over.
const DefaultTimeout = 10 * time.Second

const (
	// maxReasonBytes bounds a reason, a line for people.
	maxReasonBytes = 1 << 10
	// pipeTime bounds the wait for output after a command has ended whose children hold the pipe open.
	pipeTime = time.Second
)

// Veto lets a site forbid changes for a time. The zero Veto forbids none.
type Veto struct {
	// File forbids changes while it exists. Its first line is the reason.
	File string
	// Command is a program and its arguments. It forbids changes with any exit code but 0, and where it cannot be
	// run or does not end in time. The first line that it writes is the reason.
	Command []string
	// Timeout bounds Command. Zero is DefaultTimeout.
	Timeout time.Duration
}

// Ask reports whether the site forbids changes, and the reason for people. Its error is that of ctx.
func (v Veto) Ask(ctx context.Context) (why string, veto bool, err error) {
	if why, veto = v.byFile(); veto {
		return why, veto, nil
	}
	return v.byCommand(ctx)
}

// byFile reports whether there is such a file, and why. What cannot be read may be there.
func (v Veto) byFile() (why string, veto bool) {
	if v.File == "" {
		return "", false
	}
	info, err := os.Lstat(v.File)
	if errors.Is(err, fs.ErrNotExist) {
		return "", false
	}
	if err == nil && info.Mode()&fs.ModeSymlink != 0 {
		info, err = os.Stat(v.File)
	}
	var line string
	if err == nil && info.Mode().IsRegular() { // to open another kind may hang
		line, err = readFirstLine(v.File)
	}
	switch {
	case errors.Is(err, fs.ErrNotExist): // it points nowhere, or has just gone: the next question tells
		return v.File + " is there", true
	case err != nil:
		return bundle.Clip("the site cannot be asked: " + err.Error()), true
	}
	return cmp.Or(line, v.File+" is there"), true
}

func readFirstLine(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxReasonBytes))
	return firstLine(data), err
}

// byCommand asks the command. Its error is that of ctx.
func (v Veto) byCommand(ctx context.Context) (why string, veto bool, err error) {
	if len(v.Command) == 0 {
		return "", false, nil
	}
	limit := cmp.Or(v.Timeout, DefaultTimeout)
	asking, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	cmd := exec.CommandContext(asking, v.Command[0], v.Command[1:]...)
	var out, errOut bytes.Buffer
	cmd.Stdout, cmd.Stderr = &child.Head{W: &out, Left: maxReasonBytes}, &child.Head{W: &errOut, Left: maxReasonBytes}
	cmd.Env = []string{"PATH=" + os.Getenv("PATH")} // of the agent's, which may hold secrets, nothing else
	cmd.WaitDelay = pipeTime
	child.OwnGroup(cmd)
	err = cmd.Run()
	var exit *exec.ExitError
	switch {
	case ctx.Err() != nil:
		return "", false, ctx.Err()
	case err == nil, errors.Is(err, exec.ErrWaitDelay): // it said yes, and left something running
		return "", false, nil
	case asking.Err() != nil:
		return fmt.Sprintf("%s has not answered in %s", v.Command[0], limit), true, nil
	case errors.As(err, &exit):
		return cmp.Or(firstLine(out.Bytes()), firstLine(errOut.Bytes()), v.Command[0]+": "+exit.Error()), true, nil
	}
	return bundle.Clip("the site cannot be asked: " + err.Error()), true, nil
}

// firstLine returns the first line of data that is not empty, as a message.
func firstLine(data []byte) string {
	for line := range bytes.Lines(data) {
		if s := bundle.Clip(strings.TrimSpace(string(line))); s != "" {
			return s
		}
	}
	return ""
}
