package agent

import (
	"math/rand/v2"
	"os"
	"reflect"
	"syscall"
	"unsafe"

	"github.com/wherry-dev/wherry/agent/agenttest"
)

// fault is what befalls one write to the state file.
type fault int

const (
	faultNone   fault = iota
	faultTorn         // half of the page gets there, and the process dies
	faultPower        // some of the unsynced sectors get there, and the process dies
	faultErrno        // the write fails
	faultPartly       // half of it gets there, and the write fails
	faultSync         // it gets there, and the sync that follows fails
)

// sector is what a disk writes as a whole.
const sector = 512

// powerOff has a file system lose all that is not on its disk, and take nothing any more, as a power cut does.
func powerOff(mounted string) error {
	const shutdown, withoutLog = 0x8004587d, 2 // EXT4_IOC_SHUTDOWN, EXT4_GOING_FLAGS_NOLOGFLUSH
	dir, err := os.Open(mounted)
	if err != nil {
		return err
	}
	defer dir.Close()
	how := uint32(withoutLog)
	if _, _, no := syscall.Syscall(syscall.SYS_IOCTL, dir.Fd(), shutdown, uintptr(unsafe.Pointer(&how))); no != 0 {
		return no
	}
	return nil
}

// underFile stands between bbolt and the state file.
type underFile struct {
	write  func(b []byte, off int64) (int, error)
	file   *os.File
	synced **os.File // what bbolt syncs
	random *rand.Rand
	deed   func(n int) fault // for write n, from 1
	wrote  func()            // after a write, and before any sync
	errno  syscall.Errno
	writes int

	meta     bool // of the write before
	unsynced []change
}

// change is a write of which nobody knows yet whether it is on the disk.
type change struct {
	off         int64
	before, now []byte
}

// underState puts a layer under the state's file. bbolt has the place for it, but no way to reach it from here.
func underState(s *State, seed uint64) *underFile {
	db := reflect.ValueOf(agenttest.Bolt(s.db)).Elem()
	write := field[func([]byte, int64) (int, error)](db.FieldByName("ops").FieldByName("writeAt"))
	file := field[*os.File](db.FieldByName("file"))
	u := &underFile{
		write: *write, file: *file, synced: file, random: rand.New(rand.NewPCG(seed, 1)),
		deed: func(int) fault { return faultNone }, wrote: func() {},
	}
	*write = u.writeAt
	watched := s.db.Moment
	s.db.Moment = func(name string) {
		if name == "commit: before" {
			*u.synced = u.file
		}
		if watched != nil {
			watched(name)
		}
	}
	return u
}

func field[T any](v reflect.Value) *T { return (*T)(unsafe.Pointer(v.UnsafeAddr())) }

// writeAt is called for one page after the other. bbolt syncs after the pages of data of a commit, and after the
// page that makes them count, which is one of the first two.
func (u *underFile) writeAt(b []byte, off int64) (int, error) {
	u.writes++
	meta := off < 2*int64(os.Getpagesize())
	if meta != u.meta {
		u.unsynced, u.meta = nil, meta
	}
	before := make([]byte, len(b))
	_, _ = u.file.ReadAt(before, off) // bytes after the end are zero
	half := len(b) / 2 / sector * sector
	*u.synced = u.file
	switch u.deed(u.writes) {
	case faultSync:
		*u.synced = os.Stdin // which cannot be synced
	case faultTorn:
		_, _ = u.write(b[:half], off)
		die()
	case faultPower:
		_, _ = u.write(b, off)
		u.unsynced = append(u.unsynced, change{off, before, b})
		u.lose()
		die()
	case faultErrno:
		return 0, &os.PathError{Op: "write", Path: u.file.Name(), Err: u.errno}
	case faultPartly:
		_, _ = u.write(b[:half], off)
		return half, &os.PathError{Op: "write", Path: u.file.Name(), Err: u.errno}
	}
	n, err := u.write(b, off)
	u.unsynced = append(u.unsynced, change{off, before, append([]byte(nil), b...)})
	u.wrote()
	return n, err
}

// lose reverts some of the unsynced sectors.
func (u *underFile) lose() {
	for _, c := range u.unsynced {
		for at := 0; at < len(c.now); at += sector {
			if u.random.IntN(2) == 0 {
				end := min(at+sector, len(c.now))
				_, _ = u.write(c.before[at:end], c.off+int64(at))
			}
		}
	}
}
