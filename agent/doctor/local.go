package doctor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/wherry-dev/wherry/agent"
	"github.com/wherry-dev/wherry/agent/carry"
	"github.com/wherry-dev/wherry/agent/content"
	"github.com/wherry-dev/wherry/agent/control"
	"github.com/wherry-dev/wherry/agent/state"
	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/diagnosis"
	"github.com/wherry-dev/wherry/bundle/duration"
	"github.com/wherry-dev/wherry/bundle/oci"
	"github.com/wherry-dev/wherry/bundle/show"
)

// probeBytes is the size of the file that the state folder has to take, so that a full disk shows.
const probeBytes = 256 << 10

func checkState(ctx context.Context, e *examination) diagnosis.Finding {
	if !errors.Is(e.Mute, control.ErrSilent) {
		_, e.Mute = agent.NewClient(e.StateDir).Status(ctx)
	}
	if e.Mute != nil && !errors.Is(e.Mute, control.ErrSilent) && !errors.Is(e.Mute, control.ErrForbidden) { // an agent that has the file is running, and the file is good
		st, err := agent.ReadState(e.StateDir)
		switch {
		case errors.Is(err, state.ErrNoState):
		case errors.Is(err, state.ErrBusy):
			return diagnosis.Failf("end the process that has it, or name another folder with --state-dir", "%s is in use, and no agent answers there", e.StateDir)
		case errors.Is(err, state.ErrDamaged):
			return diagnosis.Failf("move agent.db away to begin anew: the next pass adopts what is applied, no older release is taken than the signed ones in store/, and the hub has to be given the new report key and uid, which \"status -o json\" shows", "%v", err)
		case errors.Is(err, state.ErrNewer):
			return diagnosis.Failf("use the agent that wrote it, or a newer one", "%v", err)
		case err != nil:
			return diagnosis.Failf("let this user read and write the folder, or name another with --state-dir", "%v", err)
		default:
			if s, err := st.Status(e.Now()); err == nil {
				e.know(s)
			}
			_ = st.Close() // it was only read
		}
	}
	if err := probe(e.StateDir); err != nil {
		return diagnosis.Failf("let this user write there, make room on the disk, or name another folder with --state-dir", "%s: %v", e.StateDir, err)
	}
	return diagnosis.Okf("%s can be written", e.StateDir)
}

// know keeps what other checks need of an agent's status.
func (e *examination) know(s agent.Status) {
	e.waiting, e.behind = &s.Queue, time.Duration(s.ClockBehindSeconds)*time.Second
	if s.Reason == agent.ReasonCredentialsWithheld {
		e.withheld = s.Message
	}
	e.carry, e.streams = s.Carry, s.Streams
	if s.Release.Running != nil {
		e.running = s.Release.Running.Digest
	}
}

// existing returns dir, or its nearest parent that exists.
func existing(dir string) (string, error) {
	for {
		info, err := os.Stat(dir)
		if err == nil && !info.IsDir() {
			return "", &fs.PathError{Op: "folder", Path: dir, Err: errors.New("not a folder")}
		}
		if !errors.Is(err, fs.ErrNotExist) || filepath.Dir(dir) == dir {
			return dir, err
		}
		dir = filepath.Dir(dir)
	}
}

// checkDirectory checks whether the folder of the adapter directory has room for a release of the present size. It
// writes nothing: other programs watch that folder.
func checkDirectory(_ context.Context, e *examination) diagnosis.Finding {
	if e.Adapters.DirectoryRoot == "" {
		return diagnosis.Finding{}
	}
	dir, err := existing(e.Adapters.DirectoryRoot)
	if err != nil {
		return diagnosis.Failf("let this user read and write the folder, or name another with --directory-root", "%s: %v", e.Adapters.DirectoryRoot, err)
	}
	need, why := int64(probeBytes), ""
	if e.offered != nil && e.offered.Release.Content.Size > need {
		need, why = e.offered.Release.Content.Size, ", and the release has as much"
	}
	free, known := oci.RoomIn(dir)
	switch {
	case !known:
		return diagnosis.Skipf("the file system of %s does not say how much room it has", e.Adapters.DirectoryRoot)
	case free < need:
		return diagnosis.Failf("make room on the disk, or name another folder with --directory-root", "%s has %s free, at least %s are needed%s", e.Adapters.DirectoryRoot, size(free), size(need), why)
	default:
		return diagnosis.Okf("%s has %s free", e.Adapters.DirectoryRoot, size(free))
	}
}

// probe writes a file in dir, or in its nearest parent that exists, and deletes it.
func probe(dir string) (err error) {
	if dir, err = existing(dir); err != nil {
		return err
	}
	f, err := os.CreateTemp(dir, ".doctor-")
	if err != nil {
		return err
	}
	_, err = f.Write(make([]byte, probeBytes))
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close(), os.Remove(f.Name()))
}

// checkStore lists what the agent has on its disk.
func checkStore(_ context.Context, e *examination) diagnosis.Finding {
	s, err := content.ReadStatus(e.StateDir)
	switch {
	case err != nil:
		return diagnosis.Skipf("the state folder cannot be read")
	case s.Damaged != nil:
		return diagnosis.Warnf("the agent makes it again with the next release", "its index is damaged: %v", s.Damaged)
	case len(s.Releases) == 0:
		return diagnosis.Okf("no release is in it yet%s", parts(s.Parts))
	}
	return diagnosis.Okf("%s, %s, and %s unpacked%s", strings.Join(s.Releases, ", "), size(s.Blobs), size(s.Trees), parts(s.Parts))
}

// checkCarry compares the budget of carried artifacts with what releases list.
func checkCarry(_ context.Context, e *examination) diagnosis.Finding {
	c := e.carry
	if c == nil {
		return diagnosis.Finding{}
	}
	var held []string
	for _, a := range c.Assignments {
		if a.Reason == carry.ReasonNoRoom {
			held = append(held, a.Assignment)
		}
	}
	switch {
	case len(held) > 0:
		return diagnosis.Failf("raise --carry-budget, make room on the disk, or carry less", "there is no room for the artifacts of %s: %s are missing, and the budget is %s",
			strings.Join(held, ", "), size(c.MissingBytes), size(c.BudgetBytes))
	case c.Missing > 0:
		most := ""
		if c.MissingAtMost {
			most = "at most "
		}
		return diagnosis.Warnf("status shows why for each assignment, and sync asks for them now; without a link a site package brings them", "%d of %d artifacts are missing, %s%s", c.Missing, c.Artifacts, most, size(c.MissingBytes))
	}
	return diagnosis.Okf("all %d artifacts are in the store, which has %s of them", c.Artifacts, size(c.StoredBytes))
}

// checkPackages looks at what site packages have brought: whether something of it is missing, and whether there is room for
// as much again, since a release goes only once the next one is whole.
func checkPackages(_ context.Context, e *examination) diagnosis.Finding {
	var arriving []string
	var bytes int64
	for _, s := range e.streams {
		if s.Arriving != "" {
			arriving = append(arriving, s.Environment+"/"+s.ClusterType+" "+s.Arriving)
		}
		bytes += s.Bytes
	}
	free, _, known := oci.SpaceIn(e.StateDir)
	switch {
	case len(e.streams) == 0:
		return diagnosis.Finding{}
	case len(arriving) > 0:
		return diagnosis.Warnf("import the same package again: it goes on", "a part of these releases may be here: %s", strings.Join(arriving, ", "))
	case known && free < bytes:
		return diagnosis.Warnf("make room on the disk", "site packages have brought %s, and %s are free: the next one may not fit if much of it is new", size(bytes), size(free))
	}
	return diagnosis.Okf("%d streams of site packages are in the store, %s", len(e.streams), size(bytes))
}

func parts(bytes int64) string {
	if bytes == 0 {
		return ""
	}
	return fmt.Sprintf("; %s have arrived of what is being fetched", size(bytes))
}

// size is a number of bytes as people read it.
func size(n int64) string {
	switch {
	case n >= 10<<20:
		return fmt.Sprintf("%d MiB", n>>20)
	case n >= 10<<10:
		return fmt.Sprintf("%d KiB", n>>10)
	}
	return fmt.Sprintf("%d bytes", n)
}

func checkAgent(ctx context.Context, e *examination) diagnosis.Finding {
	var s agent.Status
	err := e.Mute
	if !errors.Is(err, control.ErrSilent) {
		s, err = agent.NewClient(e.StateDir).Status(ctx)
	}
	switch {
	case errors.Is(err, control.ErrNotRunning):
		return diagnosis.Skipf("no agent is running with this state folder")
	case errors.Is(err, control.ErrForbidden):
		return diagnosis.Failf("use sudo, or run the command as that user", "%v", err)
	case errors.Is(err, control.ErrSilent):
		return diagnosis.Failf("its process is stopped, or hangs: restart it, such as with systemctl restart wherry-agent; it goes on where it was", "%v", err)
	case err != nil:
		return diagnosis.Failf("look at the agent's log; it may be restarted at any time", "%v", err)
	default:
		contact := "never"
		if s.LastContact != nil {
			contact = s.LastContact.Format(time.RFC3339)
		}
		e.live = true
		e.know(s)
		stands := string(s.State)
		if s.Reason != "" {
			stands += ", " + s.Reason // status has the message
		}
		if e.withheld != "" {
			return diagnosis.Failf(withheldRemedy+"; then restart the agent", "running; state %s: %s", stands, e.withheld)
		}
		return stated(s.State, fmt.Sprintf("running; state %s; last contact %s; %s queued", stands, contact, show.Count(s.Queue.Length, "report")))
	}
}

// stated is the finding about an agent in a state. A bad state is a warning: the machine is not at fault.
func stated(s bundle.State, text string) diagnosis.Finding {
	if s == bundle.Failed || s == bundle.Rejected {
		return diagnosis.Warnf("status shows what is wrong, and why", "%s", text)
	}
	return diagnosis.Okf("%s", text)
}

func checkClock(_ context.Context, e *examination) diagnosis.Finding {
	const remedy = "set this machine's clock, best by a time service such as chrony or systemd-timesyncd"
	now := e.Now()
	switch {
	case e.skew != nil && e.skew.Abs() > maxSkew:
		return diagnosis.Failf(remedy, "it is %s the registry's", distance(*e.skew))
	case e.behind > maxSkew:
		return diagnosis.Failf(remedy, "it is at least %s behind: a document that was verified here was issued later", duration.Text(e.behind))
	case e.issuedAt.After(now.Add(maxSkew)):
		return diagnosis.Failf(remedy, "it is %s, and the newest release was issued at %s", now.UTC().Format(time.RFC3339), e.issuedAt.Format(time.RFC3339))
	case e.skew != nil:
		return diagnosis.Okf("it agrees with the registry's: %s", now.UTC().Format(time.RFC3339))
	case !e.issuedAt.IsZero():
		return diagnosis.Okf("it is %s, later than the newest release was issued", now.UTC().Format(time.RFC3339))
	default:
		return diagnosis.Skipf("there is nothing to compare it with")
	}
}

func distance(skew time.Duration) string {
	if skew < 0 {
		return fmt.Sprintf("%s behind", duration.Text(skew.Abs()))
	}
	return fmt.Sprintf("%s ahead of", duration.Text(skew))
}
