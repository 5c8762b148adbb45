// Package mountpoint waits for media with site packages at a mount point.
//
// Begin with Watch. It looks at the folder again and again: a file system that is mounted over a folder is not seen by those
// who watch the folder below. A medium is handed over once it has come to rest, so that a package that is being copied to it
// is not read; and each package is taken once, by its index. Nothing is kept open between two looks, so that the medium can
// be unmounted. A medium that cannot be read, or is pulled out, never ends the watch.
package mountpoint

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/wherry-dev/wherry/airgap/medium"
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
	// maxTaken bounds the packages that are remembered.
	maxTaken = 1000
)

// Outcome is what became of a medium.
type Outcome int

const (
	// Taken means that the package of the medium is not to be taken again.
	Taken Outcome = iota
	// Declined means that the medium is not to be handed over again before it has changed or comes once more.
	Declined
	// Failed means that the medium is to be handed over again after a while.
	Failed
)

// Options configures Watch. The zero value works.
type Options struct {
	// Every is the time between two looks. Zero means DefaultEvery.
	Every time.Duration
	// Retry is the time after which a medium that Failed is handed over again; it doubles up to an hour. Zero means
	// DefaultRetry.
	Retry time.Duration
	// Own are names of files that the caller itself writes to the medium, or patterns of filepath.Match for them: a change of
	// them is no change.
	Own []string
}

// Found is a medium that has come to rest.
type Found struct {
	// Content identifies the package by its index. It is empty if there is no package, or Err says why it cannot be opened.
	Content digest.Digest
	Err     error
	// Again is true if this package was Taken before.
	Again bool
	// Acks are the paths of files of acknowledgements.
	Acks []string
}

// Watch calls take for each medium that comes to rest in dir, with a package or acknowledgements on it, until ctx ends. The
// error is that of a folder that is not there at the beginning; it may come and go later.
func Watch(ctx context.Context, dir string, opts Options, take func(context.Context, Found) Outcome) error {
	info, err := os.Stat(dir)
	if err == nil && !info.IsDir() {
		err = &fs.PathError{Op: "watch", Path: dir, Err: errors.New("it is not a folder")}
	}
	if err != nil {
		return err
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
	opts Options
	take func(context.Context, Found) Outcome

	seen  state // by the last look
	still int   // looks since seen has changed
	// handled is what was handed over last, by names alone; empty after an empty folder.
	handled string
	taken   []digest.Digest

	// again is when a medium that failed is handed over once more; zero if it is not.
	again time.Time
	pause time.Duration
}

// state is how a folder looks. Both are empty for a folder without files.
type state struct {
	names   string // names, sizes and times of the files in it
	content string // sizes and times of the blobs of an unpacked layout
}

func (w *watch) look(ctx context.Context) {
	now := state{names: w.list(w.dir)}
	switch {
	case now.names == "":
		w.seen, w.still, w.handled, w.again, w.pause = state{}, 0, "", time.Time{}, 0
		return
	case now.names == w.handled && (w.again.IsZero() || time.Now().Before(w.again)):
		w.seen, w.still = now, 0
		return
	}
	now.content = w.list(filepath.Join(w.dir, ocispec.ImageBlobsDir, digest.SHA256.String()))
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
	if after := w.list(w.dir); after == now.names {
		w.handled = after
	}
}

// hand hands the medium over, unless it is of no interest, and notes what became of it.
func (w *watch) hand(ctx context.Context, found Found) {
	w.again = time.Time{}
	if found.Content == "" && found.Err == nil && len(found.Acks) == 0 {
		return
	}
	switch w.take(ctx, found) {
	case Taken:
		if found.Content != "" && !found.Again {
			w.taken = append(w.taken, found.Content)
			w.taken = w.taken[max(0, len(w.taken)-maxTaken):]
		}
		w.pause = 0
	case Failed:
		w.pause = min(maxRetry, max(2*w.pause, cmp.Or(w.opts.Retry, DefaultRetry)))
		w.again = time.Now().Add(w.pause)
	case Declined:
		w.pause = 0
	}
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
		own := slices.ContainsFunc(w.opts.Own, func(own string) bool {
			is, _ := filepath.Match(strings.ToLower(own), strings.ToLower(name))
			return is
		})
		if own || strings.HasPrefix(name, ".") || strings.HasSuffix(name, medium.PartialSuffix) {
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

// open looks at what the folder holds. Short reports whether the package has less bytes than its list of contents says.
func (w *watch) open() (found Found, short bool) {
	var several *archive.SeveralError
	src, err := medium.Open(medium.OS{}, nil, w.dir)
	if err == nil {
		found.Content, short, err = describe(src)
		err = errors.Join(err, src.Close())
	}
	if errors.Is(err, fs.ErrNotExist) && !errors.As(err, new(*archive.MissingPartsError)) && !errors.As(err, &several) {
		err = nil // no package
	}
	if found.Err = err; err != nil {
		found.Content = ""
	}
	found.Again = found.Content != "" && slices.Contains(w.taken, found.Content)
	found.Acks = Acks(w.dir)
	return found, short
}

// describe returns what identifies a package, and whether it is shorter than it says.
func describe(src *medium.Source) (id digest.Digest, short bool, err error) {
	r, err := src.Reader()
	if err != nil {
		return "", false, err
	}
	data, err := json.Marshal(r.Index())
	if err != nil {
		return "", false, err
	}
	short = r.Contents() != nil && src.Size() >= 0 && src.Size() < r.Contents().Bytes
	return digest.FromBytes(data), short, nil
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
