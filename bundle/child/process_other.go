//go:build !unix && !windows

package child

import (
	"os/exec"
	"time"
)

// OwnGroup does nothing here: only cmd itself ends with its context.
func OwnGroup(*exec.Cmd) {}

func ProcessorTime() time.Duration { return 0 }
