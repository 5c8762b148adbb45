//go:build !unix

package child

import (
	"os"
	"os/exec"
)

func leadGroup(*exec.Cmd) {}

// endGroup kills p alone: there are no process groups here.
func endGroup(p *os.Process, _ bool) { _ = p.Kill() }
