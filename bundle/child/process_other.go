//go:build !unix && !windows

package child

import (
	"os"
	"os/exec"
	"time"
)

func ownGroup(*exec.Cmd) {}

func ProcessorTime() time.Duration { return 0 }

func peak(*os.ProcessState) int64 { return 0 }
