package ansible

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"
)

// event is one line of the output of plugin/wherry.py.
type event struct {
	Event   string               `json:"event"`
	Name    string               `json:"name"`
	Task    string               `json:"task"`
	Words   string               `json:"words"`
	Ignored bool                 `json:"ignored"`
	Facts   bool                 `json:"facts"`
	Hosts   map[string]hostStats `json:"hosts"`
}

// hostStats are Ansible's own figures of one host, over all playbooks so far.
type hostStats struct {
	OK          int `json:"ok"`
	Failures    int `json:"failures"`
	Unreachable int `json:"unreachable"`
	Changed     int `json:"changed"`
	Rescued     int `json:"rescued"`
	Ignored     int `json:"ignored"`
}

const (
	// maxNamed bounds the tasks that are remembered by name; a message has room for fewer.
	maxNamed = 20
	// maxEventBytes bounds one read of the events. The events of a play with a million tasks are not read to the
	// end, so it does not count as a success.
	maxEventBytes = 64 << 20
)

// story is the events of a run so far.
type story struct {
	path   string
	offset int64

	playbook string // the running file, and the names of its play and task
	play     string
	task     string
	tasks    int // begun in this playbook

	worked    int      // results other than gathered facts
	changed   []string // playbook and task, the first maxNamed
	failed    *event   // the last failure that was not ignored
	failedIn  string   // and its playbook
	tolerated string   // the first failure that was ignored
	noHosts   string   // playbook and play
	finished  int      // playbooks
	stats     map[string]hostStats
}

// read reads the events that were written since the last call. It leaves an unfinished last line for the next call.
func (s *story) read() error {
	f, err := os.Open(s.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // no event was written yet
	}
	if err != nil {
		return err
	}
	defer f.Close()
	data, err := io.ReadAll(io.NewSectionReader(f, s.offset, maxEventBytes))
	if err != nil {
		return err
	}
	for {
		line, rest, whole := bytes.Cut(data, []byte("\n"))
		if !whole {
			return nil
		}
		var e event
		if err := json.Unmarshal(line, &e); err != nil {
			return fmt.Errorf("%s: offset %d: %w", s.path, s.offset, err)
		}
		s.add(e)
		s.offset += int64(len(line)) + 1
		data = rest
	}
}

func (s *story) add(e event) {
	switch e.Event {
	case "playbook":
		s.playbook, s.play, s.task, s.tasks = e.Name, "", "", 0
	case "play":
		s.play, s.task = e.Name, ""
	case "task":
		s.task, s.tasks = e.Name, s.tasks+1
	case "ok":
		if !e.Facts {
			s.worked++
		}
	case "changed":
		s.worked++
		if name := s.in(e.Task); len(s.changed) < maxNamed && !slices.Contains(s.changed, name) {
			s.changed = append(s.changed, name)
		}
	case "failed", "unreachable":
		if e.Ignored {
			if s.tolerated == "" {
				s.tolerated = s.in(e.Task) + ": " + e.Words
			}
			return
		}
		s.failed, s.failedIn = &e, s.playbook
	case "noHosts":
		s.noHosts = fmt.Sprintf("%s: play %q", s.playbook, s.play)
	case "stats":
		s.finished, s.stats = s.finished+1, e.Hosts
	}
}

func (s *story) in(task string) string { return fmt.Sprintf("%s: task %q", s.playbook, task) }

// where returns the position of the run, as the end of a sentence that begins with the playbook.
func (s *story) where() string {
	switch {
	case s.task != "":
		return fmt.Sprintf("task %d, %q", s.tasks, s.task)
	case s.play != "":
		return fmt.Sprintf("play %q begins", s.play)
	}
	return "begins"
}

// total adds the hosts up. There is one, unless a playbook adds others.
func (s *story) total() (t hostStats) {
	for _, h := range s.stats {
		t.OK += h.OK
		t.Failures += h.Failures
		t.Unreachable += h.Unreachable
		t.Changed += h.Changed
		t.Rescued += h.Rescued
		t.Ignored += h.Ignored
	}
	return t
}

// changes lists the tasks that changed something, with how many more there are.
func (s *story) changes() string {
	list := strings.Join(s.changed, ", ")
	if more := s.total().Changed - len(s.changed); more > 0 {
		list += fmt.Sprintf(" and %d more", more)
	}
	return list
}
