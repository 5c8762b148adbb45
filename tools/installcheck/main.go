// Command installcheck shows that "go install github.com/wherry-dev/wherry/cmd/…@latest" works for the
// commit that is checked out: it serves that commit as the newest version from a module proxy of files,
// installs both programs through it, and runs them.
//
//	go run -C tools ./installcheck "$PWD"
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/mod/module"
	"golang.org/x/mod/zip"
)

const path = "github.com/wherry-dev/wherry"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: installcheck CHECKOUT")
		os.Exit(2)
	}
	if err := check(ctx, os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "installcheck:", err)
		os.Exit(1)
	}
}

func check(ctx context.Context, checkout string) error {
	dir, err := os.MkdirTemp("", "wherry-install-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	commit, err := output(ctx, checkout, nil, "git", "rev-parse", "HEAD")
	if err != nil {
		return err
	}
	// The version names the commit, so that the module cache never has other content for it.
	version := module.Version{Path: path, Version: "v0.0.1-g" + commit[:12]}
	proxy, bin := filepath.Join(dir, "proxy"), filepath.Join(dir, "bin")
	if err := serve(ctx, checkout, commit, version, proxy); err != nil {
		return fmt.Errorf("make a module proxy: %w", err)
	}
	upstream, err := output(ctx, checkout, nil, "go", "env", "GOPROXY")
	if err != nil {
		return err
	}
	// Without -trimpath, Go would compile once more all libraries that make has compiled.
	env := []string{"GOPROXY=file://" + proxy + "," + upstream, "GONOSUMDB=" + path, "GOBIN=" + bin, "GOFLAGS=-trimpath", "GOWORK=off"}
	for _, program := range []string{"wherry", "wherry-agent"} {
		if err := install(ctx, dir, env, bin, program, version.Version); err != nil {
			return err
		}
	}
	return nil
}

// serve lays out folder as a module proxy that has one version. See https://go.dev/ref/mod#goproxy-protocol.
func serve(ctx context.Context, checkout, commit string, v module.Version, folder string) error {
	folder = filepath.Join(folder, filepath.FromSlash(v.Path), "@v")
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	info, err := json.Marshal(map[string]any{"Version": v.Version, "Time": time.Now().UTC()})
	if err != nil {
		return err
	}
	gomod, err := output(ctx, checkout, nil, "git", "show", commit+":go.mod")
	if err != nil {
		return err
	}
	archive, err := os.Create(filepath.Join(folder, v.Version+".zip"))
	if err != nil {
		return err
	}
	return errors.Join(
		zip.CreateFromVCS(archive, v, checkout, commit, ""),
		archive.Close(),
		os.WriteFile(filepath.Join(folder, "list"), []byte(v.Version+"\n"), 0o644),
		os.WriteFile(filepath.Join(folder, v.Version+".info"), info, 0o644),
		os.WriteFile(filepath.Join(folder, v.Version+".mod"), []byte(gomod+"\n"), 0o644),
	)
}

// install does what a reader of the README would, and looks whether the program knows its version.
func install(ctx context.Context, dir string, env []string, bin, program, version string) error {
	if _, err := output(ctx, dir, env, "go", "install", path+"/cmd/"+program+"@latest"); err != nil {
		return err
	}
	got, err := output(ctx, dir, env, filepath.Join(bin, program), "version")
	if err != nil {
		return err
	}
	if !strings.Contains(got, version) {
		return fmt.Errorf("%s version: got %q, want one with %s", program, got, version)
	}
	if _, err := output(ctx, dir, env, filepath.Join(bin, program), "--help"); err != nil {
		return err
	}
	fmt.Printf("go install %s/cmd/%s@latest: ok, %s\n", path, program, got)
	return nil
}

// output runs a command and returns its stdout without the last line's end.
func output(ctx context.Context, dir string, env []string, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), env...)
	out, err := cmd.Output()
	if err != nil {
		var stderr []byte
		if exit := new(exec.ExitError); errors.As(err, &exit) {
			stderr = exit.Stderr
		}
		return "", fmt.Errorf("%s %s: %w\n%s", filepath.Base(name), strings.Join(args, " "), err, stderr)
	}
	return strings.TrimSuffix(string(out), "\n"), nil
}
