package medium

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/wherry-dev/wherry/bundle/oci/archive"
)

// The defaults of Options, and the bounds of what is remembered.
const (
	DefaultEvery = 2 * time.Second
	DefaultRetry = time.Minute
	maxRetry     = time.Hour
	// patience is the number of looks for which a file that is shorter than its list of contents says may stand still before
	// it counts as cut short, in place of being copied.
	patience = 15
)

// Outcome is what became of a medium.
type Outcome int

const (
	// Ended means that the medium is not to be handed over again before it has changed or comes once more.
	Ended Outcome = iota
	// Failed means that the medium is to be handed over again after a while.
	Failed
)

// Options configures Watch. The zero value works.
type WatchOptions struct {
	// Every is the time between two looks. Zero means DefaultEvery.
	Every time.Duration
	// Retry is the time after which a medium that Failed is handed over again; it doubles up to an hour. Zero means
	// DefaultRetry.
	Retry time.Duration
	// Own are names of files that the caller itself writes to the medium, or patterns of filepath.Match for them: a change of
	// them is no change.
	Own []string
	// Mounted reports whether a file system is mounted at the folder, so that an empty one is a medium; nil asks the operating
	// system.
	Mounted func(dir string) bool
}

// Found is a medium that has come to rest.
type Found struct {
	// Packages is the number of packages that can be opened.
	Packages int
	// Skipped are the files that look like a package and cannot be used, with the reason.
	Skipped []archive.Listed
	// Err is why none of the files that may be packages can be opened; nil if there is no such file.
	Err error
	// Acks are the paths of files of acknowledgements.
	Acks []string
}

// Watch calls take for each medium that comes to rest in dir, until ctx ends. The error is that of a folder that is not there
// at the beginning; it may come and go later.
func Watch(ctx context.Context, dir string, opts WatchOptions, take func(context.Context, Found) Outcome) error {
	info, err := os.Stat(dir)
	if err == nil && !info.IsDir() {
		err = &fs.PathError{Op: "watch", Path: dir, Err: errors.New("not a folder")}
	}
	if err != nil {
		return err
	}
	if opts.Mounted == nil {
		opts.Mounted = mounted
	}
	w := watch{dir: dir, opts: opts, take: take}
	ticker := time.NewTicker(cmp.Or(opts.Every, DefaultEvery))
	defer ticker.Stop()
	for {
		w.look(ctx)
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

// watch is what Watch remembers from look to look.
type watch struct {
	dir  string
	opts WatchOptions
	take func(context.Context, Found) Outcome

	seen  seenState // by the last look
	still int       // looks since seen has changed
	// handled is what was handed over last, by names alone; empty without a medium.
	handled string

	// again is when a medium that failed is handed over once more; zero if it is not.
	again time.Time
	pause time.Duration
}

// empty is how an empty medium looks.
const empty = "empty"

// state is how a folder looks. Both are empty for a folder without files, which is no medium.
type seenState struct {
	names   string // names, sizes and times of the files in it
	content string // sizes and times of the blobs of an unpacked layout
}

func (w *watch) look(ctx context.Context) {
	now := seenState{names: w.names()}
	switch {
	case now.names == "":
		w.seen, w.still, w.handled, w.again, w.pause = seenState{}, 0, "", time.Time{}, 0
		return
	case now.names == w.handled && (w.again.IsZero() || time.Now().Before(w.again)):
		w.seen, w.still = now, 0
		return
	}
	now.content = w.list(filepath.Join(w.dir, ocispec.ImageBlobsDir, "sha256"))
	if now != w.seen {
		w.seen, w.still = now, 0
		return
	}
	w.still++
	found, short := w.open()
	if short && w.still < patience {
		return
	}
	w.hand(ctx, found)
	if after := w.names(); after == now.names {
		w.handled = after
	}
}

// hand hands the medium over, and notes when to do so again.
func (w *watch) hand(ctx context.Context, found Found) {
	if w.again = (time.Time{}); w.take(ctx, found) == Ended {
		w.pause = 0
		return
	}
	w.pause = min(maxRetry, max(2*w.pause, cmp.Or(w.opts.Retry, DefaultRetry)))
	w.again = time.Now().Add(w.pause)
}

// names describes the files at the mount point.
func (w *watch) names() string {
	names := w.list(w.dir)
	if names == "" && w.opts.Mounted(w.dir) {
		return empty
	}
	return names
}

// list describes the files of a folder, but for hidden and unfinished ones, and for those that the caller writes. A folder
// that cannot be read is one without files.
func (w *watch) list(dir string) string {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return ""
	}
	var b strings.Builder
	for _, e := range entries {
		name := e.Name()
		if w.isOwn(name) || strings.HasPrefix(name, ".") || strings.HasSuffix(name, PartialSuffix) {
			continue
		}
		info, err := e.Info()
		if err != nil {
			continue // it has gone
		}
		fmt.Fprintf(&b, "%q %d %d\n", name, info.Size(), info.ModTime().UnixNano())
	}
	return b.String()
}

// isOwn reports whether the caller writes a file of this name.
func (w *watch) isOwn(name string) bool {
	return slices.ContainsFunc(w.opts.Own, func(own string) bool {
		is, _ := filepath.Match(strings.ToLower(own), strings.ToLower(name))
		return is
	})
}

// open looks at what the folder holds. Short reports whether a package has less bytes than its list of contents says.
func (w *watch) open() (found Found, short bool) {
	packages, skipped, err := OpenEach(OS{}, nil, w.dir)
	for _, p := range packages {
		contents := p.Head.Contents()
		short = short || contents != nil && p.Size() >= 0 && p.Size() < contents.Bytes
		err = errors.Join(err, p.Close())
	}
	skipped = slices.DeleteFunc(skipped, func(item archive.Listed) bool { return w.isOwn(filepath.Base(item.Name)) })
	if errors.As(err, new(*archive.NoPackageError)) || len(skipped) == 0 && len(packages) == 0 && errors.Is(err, archive.ErrFormat) {
		err = nil // nor is a file of the caller's
	}
	found = Found{Packages: len(packages), Skipped: skipped, Err: err, Acks: Acks(w.dir)}
	return found, short
}

// Acks lists the paths of files of acknowledgements in dir, by their content. It is empty if dir cannot be read.
func Acks(dir string) (paths []string) {
	listed, err := archive.List(archive.OS{}, dir)
	if err != nil {
		return nil
	}
	for _, l := range listed {
		if l.Kind == archive.KindAcks {
			paths = append(paths, l.Name)
		}
	}
	return paths
}
