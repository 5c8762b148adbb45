package reconcilertest

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/reconcilers"
)

// childVariable makes the test binary a process that applies one assignment; its value is an order in JSON.
const childVariable = "WHERRY_RECONCILERTEST_CHILD"

// order is a child's task.
type order struct {
	Handle     string
	Assignment bundle.Assignment
	Dir        string
	Patience   time.Duration
}

// The lines that a child writes to stdout.
const (
	saysBegin = "begin"
	saysEnd   = "end"
)

// Child runs the process that the suite has started to kill it, with the reconciler that open makes of an Engine's Handle,
// and does not return. In other processes it does nothing. It is the first call of the adapter's TestMain.
func Child(open func(handle string) (reconcilers.Reconciler, error)) {
	text := os.Getenv(childVariable)
	if text == "" {
		return
	}
	if err := obey(text, open); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// obey applies an assignment as an agent does, from the first call until it is compliant.
func obey(text string, open func(handle string) (reconcilers.Reconciler, error)) error {
	var o order
	if err := json.Unmarshal([]byte(text), &o); err != nil {
		return err
	}
	r, err := open(o.Handle)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), o.Patience)
	defer cancel()
	a := reconcilers.Assignment{Assignment: o.Assignment, Dir: o.Dir}
	fmt.Println(saysBegin)
	res := r.Apply(ctx, a)
	for ; res.State != bundle.Compliant; time.Sleep(pollTime) {
		switch {
		case ctx.Err() != nil || res.State == bundle.Failed:
			return fmt.Errorf("%s %s: %s", res.State, res.Reason, res.Message)
		case res.State == bundle.Progressing:
			res = r.Observe(ctx, a)
		default:
			res = r.Apply(ctx, a)
		}
	}
	fmt.Println(saysEnd)
	return nil
}

// child is a process that applies an assignment.
type child struct {
	cmd    *exec.Cmd
	out    *bufio.Reader
	rest   []byte // of its output when it was killed
	stderr bytes.Buffer
}

// start starts a child and returns when it is about to apply a.
func (b *bench) start(t *testing.T, a reconcilers.Assignment) *child {
	t.Helper()
	b.close(t)
	self, err := os.Executable()
	require.NoError(t, err)
	text, err := json.Marshal(order{b.Handle(t), a.Assignment, a.Dir, b.adapter.Patience})
	require.NoError(t, err)
	c := &child{cmd: exec.Command(self, "-test.run=^$")} // harmless if TestMain does not call Child
	c.cmd.Env = append(os.Environ(), childVariable+"="+string(text))
	c.cmd.Stderr = &c.stderr
	out, err := c.cmd.StdoutPipe()
	require.NoError(t, err)
	c.out = bufio.NewReader(out)
	require.NoError(t, c.cmd.Start())
	t.Cleanup(func() { c.kill(t) })
	require.Equal(t, saysBegin, c.says(), "TestMain has to call reconcilertest.Child; stderr: %s", &c.stderr)
	return c
}

// says returns the next line of output, or the rest of it.
func (c *child) says() string {
	line, err := c.out.ReadString('\n')
	if err != nil {
		return line + err.Error()
	}
	return line[:len(line)-1]
}

// kill ends the child as a power cut does, if it has not ended already.
func (c *child) kill(t *testing.T) {
	t.Helper()
	if c.cmd.ProcessState != nil {
		return
	}
	if err := c.cmd.Process.Kill(); !errors.Is(err, os.ErrProcessDone) {
		require.NoError(t, err)
	}
	c.rest, _ = io.ReadAll(c.out)
	_ = c.cmd.Wait() // its end is an error
}

// killed measures the time that a process takes to apply an assignment, kills others after parts of that time, and lets
// another one continue, half of the time with newer content.
func killed(t *testing.T, b *bench) {
	const kills = 6
	c := b.start(t, b.assign(t, "drone-east", cutOffContent(0)))
	start := time.Now()
	require.Equal(t, saysEnd, c.says(), "stderr: %s", &c.stderr)
	whole := time.Since(start)
	c.kill(t)
	b.holds(t, "drone-east", cutOffContent(0))
	for i := 1; i <= kills; i++ {
		c := b.start(t, b.assign(t, "drone-east", cutOffContent(i)))
		time.Sleep(whole * time.Duration(i) / (kills + 1))
		c.kill(t)
		t.Logf("killed after %d of %d parts of %v, and had said %q", i, kills+1, whole, c.rest)
		if i%2 == 0 {
			b.completes(t, i)
		}
	}
	b.vanishes(t, kills)
	b.requireNoneRunning(t)
}

// cutOffContent has one value that stays, one that changes, and one that is new each time.
func cutOffContent(i int) values {
	return values{"alpha": "1", "beta": strconv.Itoa(i), "extra-" + strconv.Itoa(i): "x"}
}

// completes applies content i, which an earlier process has begun, in a new process.
func (b *bench) completes(t *testing.T, i int) {
	t.Helper()
	content := cutOffContent(i)
	b.apply(t, b.Reconciler(t), b.assign(t, "drone-east", content))
	b.holds(t, "drone-east", content)
	if b.can(Prune) {
		b.holds(t, "drone-east", nil, "extra-"+strconv.Itoa(i-1), "extra-"+strconv.Itoa(i-2))
	}
}

// vanishes removes the assignment, if the engine supports it, and requires that all content up to i is gone.
func (b *bench) vanishes(t *testing.T, i int) {
	t.Helper()
	if b.can(Remove) {
		b.remove(t, b.Reconciler(t), "drone-east")
		b.holds(t, "drone-east", nil, "alpha", "beta", "extra-"+strconv.Itoa(i), "extra-"+strconv.Itoa(i-1))
	}
}
