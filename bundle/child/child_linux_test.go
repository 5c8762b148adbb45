package child

import (
	"bufio"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestAChildEndsWithItsParent(t *testing.T) {
	self, err := os.Executable()
	require.NoError(t, err)
	parent := exec.Command(self, "parent")
	stdout, err := parent.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, parent.Start())
	out := bufio.NewReader(stdout)
	line, err := out.ReadString('\n')
	require.NoError(t, err)
	require.Equal(t, "waiting\n", line, "of the child, which has the pipe too")
	require.NoError(t, parent.Process.Kill())
	_, err = out.ReadByte()
	require.ErrorIs(t, err, io.EOF, "when both have ended")
	require.Error(t, parent.Wait())
}

func TestAChildHasAProcessGroupOfItsOwn(t *testing.T) {
	cmd := Command(t.Context(), Self("wait"))
	stdout, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	_, err = bufio.NewReader(stdout).ReadString('\n')
	require.NoError(t, err)
	group, err := syscall.Getpgid(cmd.Process.Pid)
	require.NoError(t, err)
	require.Equal(t, cmd.Process.Pid, group)
	require.NoError(t, cmd.Cancel())
	require.Error(t, cmd.Wait())
}

func TestAConfinedChildOpensNothing(t *testing.T) {
	out, err := run(t, "confined")
	require.NoError(t, err)
	if strings.HasPrefix(out, "[]\n") {
		t.Skip("the kernel grants no seccomp")
	}
	require.Equal(t, "[seccomp]\ntrue\ntrue\ntrue\ntrue\n7\n", out)
}
