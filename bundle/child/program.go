package child

import (
	"context"
	"errors"
	"os/exec"
	"time"
)

// programGrace is the time that a program gets to clean up when it is asked to end.
const programGrace = 2 * time.Second

// Run runs cmd, made by exec.Command, in a process group of its own, so that its child processes end
// with it when ctx does. The error is ctx's if ctx has ended it.
func Run(ctx context.Context, cmd *exec.Cmd) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	leadGroup(cmd)
	cmd.WaitDelay = programGrace
	if err := cmd.Start(); err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	select {
	case err := <-ended:
		if errors.Is(err, exec.ErrWaitDelay) {
			endGroup(cmd.Process, true)
			err = errors.New("it has ended, and left behind a process that holds its output")
		}
		return err
	case <-ctx.Done():
	}
	endGroup(cmd.Process, false)
	select {
	case <-ended:
		endGroup(cmd.Process, true) // what has not ended with it
	case <-time.After(programGrace):
		endGroup(cmd.Process, true)
		<-ended
	}
	return ctx.Err()
}
