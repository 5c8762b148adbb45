//go:build !unix

package program

import (
	"os"
	"os/exec"
)

func ownGroup(*exec.Cmd) {}

// endGroup kills p alone: there are no process groups here.
func endGroup(p *os.Process, _ bool) { _ = p.Kill() }
