// Command up brings up what the end-to-end tests run against, for trying things by hand:
//
//	make e2e-up                            until Ctrl-C
//	make e2e-up CMD="kubectl get ns"       while the command runs
//
// That is a cluster, and a registry where WHERRY_E2E_PROGRAMS names the folder with wherry.
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
	code, err := serve(ctx, command)
	if err != nil {
		fmt.Fprintln(os.Stderr, "up:", err)
		return 1
	}
	return code
}

// serve keeps everything up until command has ended, or ctx where there is none, and returns the
// command's exit code.
func serve(ctx context.Context, command []string) (code int, err error) {
	cluster, err := harness.Start(ctx)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, cluster.Stop("")) }() // err is the result
	env := []string{"KUBECONFIG=" + cluster.Kubeconfig, harness.KubeconfigEnv + "=" + cluster.Kubeconfig}
	if os.Getenv(harness.ProgramsEnv) != "" || os.Getenv(harness.RegistryEnv) != "" {
		registry, failure := harness.StartRegistry(ctx)
		if failure != nil {
			return 0, failure
		}
		defer func() { err = errors.Join(err, registry.Stop()) }()
		env = append(env, harness.RegistryEnv+"="+registry.Prefix)
	}
	if len(command) > 0 {
		return runCommand(ctx, env, command)
	}
	for _, v := range env {
		fmt.Println("export", v)
	}
	fmt.Fprintln(os.Stderr, "all is up until Ctrl-C")
	<-ctx.Done()
	return 0, nil
}

func runCommand(ctx context.Context, env, command []string) (int, error) {
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.Env = append(os.Environ(), env...)
	err := cmd.Run()
	if exit := new(exec.ExitError); errors.As(err, &exit) && exit.ExitCode() > 0 {
		return exit.ExitCode(), nil
	}
	return 0, err
}
