package program

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/wherry-dev/wherry/bundle/diskfile"
)

// identity tells a process from a later one with the same number.
type identity struct {
	PID int `json:"pid"` // and the number of its session and process group
	// Start is its start time, in the kernel's ticks since boot; see proc(5), /proc/[pid]/stat.
	Start uint64 `json:"start"`
	Boot  string `json:"boot"` // the kernel's random name for this boot
	// Mark is a random value in the environment of all processes that it has started, and of no others.
	Mark string `json:"mark"`
}

// record is on the disk while a program runs.
type record struct {
	identity
	Program string    `json:"program"`
	Begun   time.Time `json:"begun"` // for people
}

// save returns when rec would survive a power cut.
func save(folder string, rec record) error {
	data, err := json.Marshal(rec)
	if err != nil {
		return err
	}
	return diskfile.WriteFile(filepath.Join(folder, recordFile), data)
}

// load returns nil if there is no record. A record is written as a whole or not at all, so a damaged
// record is an error that a person has to resolve: its process may be running.
func load(folder string) (*record, error) {
	path := filepath.Join(folder, recordFile)
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var rec record
	if err := json.Unmarshal(data, &rec); err != nil || rec.PID <= 1 {
		return nil, fmt.Errorf("%s is damaged: end what it names, if anything, and delete it", path)
	}
	return &rec, nil
}

// forget needs no fsync: a record that comes back names a process that is gone.
func forget(folder string) error {
	err := os.Remove(filepath.Join(folder, recordFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// openLog empties the log of the earlier run. It stays the same file, and is no pipe, so that processes that
// outlive a run or the agent can go on writing.
func openLog(folder string) (*os.File, error) {
	return os.OpenFile(filepath.Join(folder, logFile), os.O_RDWR|os.O_CREATE|os.O_APPEND|os.O_TRUNC, 0o600)
}

// trim gives the space of a log that is longer than limit back to the disk, but for its last limit/2 bytes. The log keeps its
// length until its program has ended, so that no write meanwhile is lost: cut shortens it then.
func trim(log *os.File, limit int64) error {
	info, err := log.Stat()
	if err != nil || info.Size() <= limit {
		return err
	}
	err = free(log, info.Size()-limit/2)
	if errors.Is(err, errors.ErrUnsupported) { // by this file system: what is written during the cut may be lost
		return cut(log, limit/2)
	}
	return err
}

// cut shortens a log to its last limit bytes.
func cut(log *os.File, limit int64) error {
	info, err := log.Stat()
	if err != nil || info.Size() <= limit {
		return err
	}
	data, err := tail(log, info.Size(), limit)
	if err != nil {
		return err
	}
	if err := log.Truncate(0); err != nil {
		return err
	}
	_, err = log.Write(data)
	return err
}

// tail returns at most n bytes from the end of a log of size bytes, without what trim has freed.
func tail(log *os.File, size, n int64) ([]byte, error) {
	data, err := io.ReadAll(io.NewSectionReader(log, max(0, size-n), n))
	return bytes.TrimLeft(data, "\x00"), err
}

// LogTail returns at most n bytes from the end of the log of folder's newest run. Without a run it is
// empty.
func LogTail(folder string, n int64) (string, error) {
	f, err := os.Open(filepath.Join(folder, logFile))
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return "", err
	}
	data, err := tail(f, info.Size(), n)
	return string(data), err
}
