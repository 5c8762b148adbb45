package delta

import (
	"math"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
)

// Available returns the number of bytes that this process can still allocate: the free memory of the machine or of its
// control groups, whichever is less. It returns false if neither can be read, as on systems other than Linux.
func Available() (int64, bool) { return availableIn("/") }

func availableIn(root string) (int64, bool) {
	least, known := int64(math.MaxInt64), false
	take := func(n int64) { least, known = min(least, max(n, 0)), true }
	if free, ok := field(filepath.Join(root, "proc/meminfo"), "MemAvailable:"); ok {
		take(free << 10)
	}
	groups, _ := os.ReadFile(filepath.Join(root, "proc/self/cgroup"))
	for line := range strings.Lines(string(groups)) {
		number, rest, _ := strings.Cut(strings.TrimSpace(line), ":")
		controllers, group, _ := strings.Cut(rest, ":")
		dir, limit, usage, cache := "sys/fs/cgroup", "memory.max", "memory.current", "inactive_file"
		switch {
		case number == "0" && controllers == "":
		case strings.Contains(","+controllers+",", ",memory,"):
			dir, limit, usage, cache = "sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"
		default:
			continue
		}
		for group = path.Clean("/" + group); ; group = path.Dir(group) { // a group's limit holds for all below it
			at := filepath.Join(root, dir, group)
			most, limited := number64(filepath.Join(at, limit))
			used, ok := number64(filepath.Join(at, usage))
			if limited && ok {
				reclaimable, _ := field(filepath.Join(at, "memory.stat"), cache)
				take(most - used + reclaimable)
			}
			if group == "/" {
				break
			}
		}
	}
	return least, known
}

// number64 reads a file with one number. It returns false for "max".
func number64(name string) (int64, bool) {
	data, err := os.ReadFile(name)
	if err != nil {
		return 0, false
	}
	n, err := strconv.ParseInt(strings.TrimSpace(string(data)), 10, 64)
	return n, err == nil
}

// field reads the number after a name at the start of a line.
func field(name, key string) (int64, bool) {
	data, _ := os.ReadFile(name)
	for line := range strings.Lines(string(data)) {
		if words := strings.Fields(line); len(words) > 1 && words[0] == key {
			n, err := strconv.ParseInt(words[1], 10, 64)
			return n, err == nil
		}
	}
	return 0, false
}
