// Command up brings up the cluster of the end-to-end tests, for trying things by hand:
//
//	make e2e-up                            until Ctrl-C
//	make e2e-up CMD="kubectl get ns"       while the command runs
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"syscall"

	"github.com/wherry-dev/wherry/e2e/harness"
)

func main() { os.Exit(run(os.Args[1:])) }

func run(command []string) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	cluster, err := harness.Start(ctx)
	if err != nil {
		fmt.Fprintln(os.Stderr, "up:", err)
		return 1
	}
	code := 0
	if len(command) == 0 {
		fmt.Printf("export KUBECONFIG=%[1]s\nexport %[2]s=%[1]s\n", cluster.Kubeconfig, harness.KubeconfigEnv)
		fmt.Fprintln(os.Stderr, "the cluster stays up until Ctrl-C")
		<-ctx.Done()
	} else {
		code = runCommand(ctx, cluster, command)
	}
	if err := cluster.Stop(""); err != nil {
		fmt.Fprintln(os.Stderr, "up:", err)
		return 1
	}
	return code
}

// runCommand returns the exit code of command, run with access to cluster.
func runCommand(ctx context.Context, cluster *harness.Cluster, command []string) int {
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.Env = append(os.Environ(), "KUBECONFIG="+cluster.Kubeconfig, harness.KubeconfigEnv+"="+cluster.Kubeconfig)
	err := cmd.Run()
	var exit *exec.ExitError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &exit) && exit.ExitCode() >= 0:
		return exit.ExitCode()
	}
	fmt.Fprintln(os.Stderr, "up:", err)
	return 1
}
