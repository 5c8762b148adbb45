package program

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// endPoll is the time between two looks at whether processes have gone.
const endPoll = 10 * time.Millisecond

// ownSession makes a child the leader of a session and a group: no terminal's signal reaches it.
func ownSession() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setsid: true} }

func newMark() string { return "WHERRY_PROGRAM=" + rand.Text() }

// free gives the space of the first n bytes of a file back to the disk. They read as zeros.
func free(f *os.File, n int64) error {
	return unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, 0, n)
}

// process is a line of the process table.
type process struct {
	pid, parent, group, session int
	start                       uint64
	gone                        bool // dead, and not taken yet by its parent
}

// readProcess reads /proc/[pid]/stat, in which the name stands in brackets and may hold any character.
func readProcess(pid int) (process, error) {
	path := fmt.Sprintf("/proc/%d/stat", pid)
	data, err := os.ReadFile(path)
	if err != nil {
		return process{}, err
	}
	fields := strings.Fields(string(data[bytes.LastIndexByte(data, ')')+1:])) // from the third, the state
	if len(fields) < 20 {
		return process{}, fmt.Errorf("%s has only %d fields", path, len(fields))
	}
	p := process{pid: pid, gone: fields[0] == "Z" || fields[0] == "X"}
	var errs [4]error
	p.parent, errs[0] = strconv.Atoi(fields[1])
	p.group, errs[1] = strconv.Atoi(fields[2])
	p.session, errs[2] = strconv.Atoi(fields[3])
	p.start, errs[3] = strconv.ParseUint(fields[19], 10, 64)
	return p, errors.Join(errs[:]...)
}

func processes() ([]process, error) {
	paths, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return nil, err
	}
	var all []process
	for _, path := range paths {
		pid, err := strconv.Atoi(filepath.Base(path))
		if err != nil {
			continue
		}
		if p, err := readProcess(pid); err == nil { // else it has just gone
			all = append(all, p)
		}
	}
	if len(all) == 0 {
		return nil, errors.New("/proc shows no processes")
	}
	return all, nil
}

func identify(pid int, mark string) (identity, error) {
	p, err := readProcess(pid)
	if err != nil {
		return identity{}, err
	}
	boot, err := bootID()
	return identity{PID: pid, Start: p.start, Boot: boot, Mark: mark}, err
}

func bootID() (string, error) {
	data, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return strings.TrimSpace(string(data)), err
}

// alive reports whether anything of id's session, or of its descendants, is left.
func alive(id identity) bool {
	all, err := processes()
	return err != nil || len(family(id, all)) > 0
}

// family returns the processes of the program id: its session, and the descendants of that in any session. A process that
// has made itself a daemon is no descendant any more.
//
// The kernel gives no process a number that is still that of a session. So where the leader has gone and
// its session has not, the session is the program's, or one whose leader got the number later and is gone
// too: the mark tells which.
func family(id identity, all []process) []process {
	if boot, err := bootID(); err == nil && boot != id.Boot {
		return nil
	}
	ours := map[int]bool{}
	leader := slices.IndexFunc(all, func(p process) bool { return p.pid == id.PID })
	if leader >= 0 && all[leader].start != id.Start {
		return nil
	}
	inSession := func(p process) bool { return p.session == id.PID }
	marked := func(p process) bool { return inSession(p) && hasMark(p.pid, id.Mark) }
	if leader >= 0 || slices.ContainsFunc(all, marked) {
		for _, p := range all {
			ours[p.pid] = inSession(p)
		}
	}
	for more := true; more; {
		more = false
		for _, p := range all {
			if !ours[p.pid] && ours[p.parent] {
				ours[p.pid], more = true, true
			}
		}
	}
	return slices.DeleteFunc(slices.Clone(all), func(p process) bool { return !ours[p.pid] || p.gone })
}

func hasMark(pid int, mark string) bool {
	env, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
	return err == nil && slices.Contains(strings.Split(string(env), "\x00"), mark)
}

// endAll ends the family of id: SIGTERM to each group once, and SIGKILL after the grace. It returns when
// none is left.
func endAll(id identity, grace time.Duration) error {
	begun := time.Now()
	asked, seen := map[int]bool{}, map[int]uint64{} // groups; processes by their start
	for {
		all, err := processes()
		if err != nil {
			return err
		}
		left := family(id, all)
		for _, p := range all { // members whose parents have gone before them
			if start, ok := seen[p.pid]; ok && start == p.start && !p.gone && !slices.Contains(left, p) {
				left = append(left, p)
			}
		}
		if len(left) == 0 {
			return nil
		}
		elapsed := time.Since(begun)
		if elapsed > grace+killTime {
			return fmt.Errorf("process %d does not end, although it was killed", left[0].pid)
		}
		for _, p := range left {
			seen[p.pid] = p.start
			switch {
			case elapsed >= grace:
				err = errors.Join(err, signal(p.group, syscall.SIGKILL))
			case !asked[p.group]:
				asked[p.group] = true
				err = errors.Join(err, signal(p.group, syscall.SIGTERM))
			}
		}
		if err != nil {
			return err
		}
		time.Sleep(endPoll)
	}
}

func signal(group int, s syscall.Signal) error {
	if err := syscall.Kill(-group, s); err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("%s to process group %d: %w", s, group, err)
	}
	return nil
}
