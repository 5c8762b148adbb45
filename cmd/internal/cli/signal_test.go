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

// stuckVariable makes this test's process the command that is told to stop, and says how that behaves.
const stuckVariable = "WHERRY_TEST_STUCK"

func TestSignals(t *testing.T) {
	command := &cobra.Command{Args: cobra.ArbitraryArgs, FParseErrWhitelist: cobra.FParseErrWhitelist{UnknownFlags: true}}
	switch os.Getenv(stuckVariable) {
	case "patient": // goes on after the first signal
		command.RunE = func(cmd *cobra.Command, _ []string) error {
			fmt.Println("ready")
			<-cmd.Context().Done()
			fmt.Println("told")
			_, err := io.Copy(io.Discard, os.Stdin)
			return err
		}
		os.Exit(Main(command, nil))
	case "busy": // at work that cannot be stopped
		command.RunE = func(*cobra.Command, []string) error {
			fmt.Println("ready")
			_, err := io.Copy(io.Discard, os.Stdin)
			return err
		}
		EndsWithin(time.Millisecond, command)
		os.Exit(Main(command, nil))
	case "reading": // waits on nothing but input
		command.RunE = func(cmd *cobra.Command, _ []string) error {
			fmt.Println("ready")
			_, err := ReadInput(cmd, "-", 100)
			return err
		}
		os.Exit(Main(command, nil))
	}
	for _, test := range []struct {
		name, behaves string
		signals       []os.Signal
		ignored       bool // the first signal is, when the process starts
		says          []string
	}{
		{"a second interrupt ends what the first does not", "patient", []os.Signal{os.Interrupt, os.Interrupt}, false, []string{"ready", "told"}},
		{"also one of another kind", "patient", []os.Signal{syscall.SIGTERM, os.Interrupt}, false, []string{"ready", "told"}},
		{"also in the background of a shell, which ignores it", "patient", []os.Signal{os.Interrupt, os.Interrupt}, true, []string{"ready", "told"}},
		{"the first ends work that cannot be stopped", "busy", []os.Signal{os.Interrupt}, false, []string{"ready"}},
		{"the first of the other kind too", "busy", []os.Signal{syscall.SIGTERM}, false, []string{"ready"}},
		{"the first ends what waits for input", "reading", []os.Signal{syscall.SIGTERM}, false, []string{"ready"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			args := []string{os.Args[0], "-test.run=^TestSignals$"}
			if test.ignored {
				args = append([]string{"sh", "-c", `trap "" INT; exec "$0" "$@"`}, args...)
			}
			child := exec.CommandContext(t.Context(), args[0], args[1:]...)
			child.Env = append(os.Environ(), stuckVariable+"="+test.behaves)
			_, err := child.StdinPipe() // stays open
			require.NoError(t, err)
			out, err := child.StdoutPipe()
			require.NoError(t, err)
			require.NoError(t, child.Start())
			lines := bufio.NewScanner(out)
			for i, want := range test.says {
				require.True(t, lines.Scan())
				require.Equal(t, want, lines.Text())
				require.NoError(t, child.Process.Signal(test.signals[i]))
			}
			_ = child.Wait()
			require.Equal(t, Interrupted, child.ProcessState.ExitCode())
		})
	}
}
