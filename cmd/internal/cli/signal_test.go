//go:build unix

package cli

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"
)

// stuckVariable makes this test's process the command that is told to stop and goes on.
const stuckVariable = "WHERRY_TEST_STUCK"

func TestASecondSignalEndsWhatTheFirstDoesNot(t *testing.T) {
	if os.Getenv(stuckVariable) != "" {
		os.Exit(Main(&cobra.Command{Args: cobra.ArbitraryArgs, FParseErrWhitelist: cobra.FParseErrWhitelist{UnknownFlags: true}, RunE: func(cmd *cobra.Command, _ []string) error {
			fmt.Println("ready")
			<-cmd.Context().Done()
			fmt.Println("told")
			_, err := io.Copy(io.Discard, os.Stdin)
			return err
		}}))
	}
	t.Parallel()
	child := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$")
	child.Env = append(os.Environ(), stuckVariable+"=1")
	_, err := child.StdinPipe() // stays open
	require.NoError(t, err)
	out, err := child.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, child.Start())
	ended := make(chan struct{})
	t.Cleanup(func() { _ = child.Process.Kill() })
	lines := bufio.NewScanner(out)
	for _, want := range []string{"ready", "told"} {
		require.True(t, lines.Scan())
		require.Equal(t, want, lines.Text())
		require.NoError(t, child.Process.Signal(os.Interrupt))
	}
	go func() { _ = child.Wait(); close(ended) }()
	// The one after "told" may have come before the first had its effect.
	require.Eventually(t, func() bool {
		select {
		case <-ended:
			return true
		default:
			_ = child.Process.Signal(os.Interrupt)
			return false
		}
	}, time.Minute, 10*time.Millisecond)
	require.Equal(t, syscall.SIGINT, child.ProcessState.Sys().(syscall.WaitStatus).Signal())
}
