//go:build !linux

package main

import "time"

// haveWorkers says that each command of a script has a process of its own: descriptors are handed over as Linux does it.
const haveWorkers = false

type workers struct {
	program  string
	deadline time.Time
}

func (*workers) command(string, []string, []string) (stdout, stderr string, code int, err error) {
	panic("no workers")
}

func (*workers) close() {}

func endWorkers() {}

func work(func(args ...string) int) { panic("no workers") }
