package agentcmd

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/wherry-dev/wherry/airgap"
	"github.com/wherry-dev/wherry/airgap/medium"
	"github.com/wherry-dev/wherry/airgap/mountpoint"
	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/oci/archive"
	"github.com/wherry-dev/wherry/bundle/regularfile"
	"github.com/wherry-dev/wherry/bundle/show"
	"github.com/wherry-dev/wherry/cmd/internal/cli"
)

// named is what a person has named to be imported.
type named struct {
	name  string    // of the package, for messages; empty if there is none
	paths []string  // absolute, or "-" for stdin
	stdin io.Reader // nil unless it is read
	files []string  // of the package, in order; none for an unpacked one and for stdin
	acks  []string  // files of acknowledgements
	// opened is the package, and head what describe has taken from it; nil for stdin.
	opened *medium.Source
	head   *airgap.Reader
	// holds names the releases in the package, and allowedExpired is why it carries one that had expired. Neither is signed.
	holds          string
	allowedExpired string
}

const exportHint = `"wherry airgap export" writes such a file`

// close closes the package.
func (n named) close() {
	if n.opened != nil {
		_ = n.opened.Close() // it was only read
	}
}

// open looks at what args name: what is no package is found out here, rather than in the running agent. The caller closes it
// unless there is an error.
func (f *importFlags) open(cmd *cobra.Command, args []string) (n named, err error) {
	if len(args) == 1 && args[0] == medium.Stdin {
		return openStdin(cmd)
	}
	for _, arg := range args {
		path := arg
		if arg != medium.Stdin {
			if path, err = filepath.Abs(arg); err != nil {
				return n, err
			}
		}
		n.paths = append(n.paths, path)
	}
	folder := false
	if len(args) == 1 {
		info, err := os.Stat(args[0])
		folder = err == nil && info.IsDir()
	}
	if folder {
		n.acks = mountpoint.Acks(args[0])
	}
	src, err := medium.Open(medium.OS{}, nil, args...)
	switch {
	case folder && len(n.acks) > 0 && noPackage(err):
		cmd.PrintErrf("note: %v\n", err)
		return n, nil
	case err != nil:
		return n, sourceError(err)
	}
	defer func() {
		if err != nil {
			n.close()
		}
	}()
	n.name, n.opened = src.Name(), src
	for _, file := range src.Files() {
		if file, err = filepath.Abs(file); err != nil {
			return n, err
		}
		n.files = append(n.files, file)
	}
	if n.head, err = src.Reader(); err != nil {
		return n, sourceError(err)
	}
	return n, n.describe(n.head)
}

// openStdin reads the head of the package from stdin, and gives it back.
func openStdin(cmd *cobra.Command) (n named, err error) {
	in := cmd.InOrStdin()
	if f, ok := in.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		return n, cli.Fail(cli.Usage, errors.New("standard input is a terminal"), "give it a package: import - <site.tar")
	}
	var head bytes.Buffer
	stdin := cli.Stdin(cmd)
	src, err := medium.Open(medium.OS{}, io.TeeReader(stdin, &head), medium.Stdin)
	if err != nil {
		return n, sourceError(err)
	}
	n.name, n.paths = src.Name(), []string{medium.Stdin}
	r, err := src.Reader()
	if err != nil {
		return n, sourceError(err)
	}
	n.stdin = io.MultiReader(&head, stdin)
	return n, n.describe(r)
}

// noPackage reports whether err says that a folder holds no package at all.
func noPackage(err error) bool {
	return errors.Is(err, fs.ErrNotExist) && !errors.As(err, new(*archive.MissingPartsError))
}

// sourceError adds an exit code and a hint to the error of a medium.
func sourceError(err error) error {
	var missing *archive.MissingPartsError
	var several *archive.SeveralError
	switch {
	case errors.As(err, &missing):
		return cli.Fail(cli.Usage, err, "bring them to the same folder, or name them as well")
	case errors.As(err, &several):
		return cli.Fail(cli.Usage, err, "name one of them")
	case errors.Is(err, airgap.ErrOrder):
		return cli.Fail(cli.Usage, err, "")
	case errors.Is(err, archive.ErrDamaged):
		return cli.Fail(cli.Failed, err, cli.DamagedHint)
	case errors.Is(err, archive.ErrFormat), errors.Is(err, fs.ErrNotExist):
		return cli.Fail(cli.Usage, err, exportHint)
	case errors.Is(err, fs.ErrPermission):
		return cli.Fail(cli.Failed, err, "run the command as a user who may read it")
	case errors.Is(err, syscall.EIO), errors.Is(err, syscall.ENODEV), errors.Is(err, syscall.ENXIO):
		return cli.Fail(cli.Failed, err, "the medium cannot be read: put it in again, or export to another one")
	case errors.As(err, new(*fs.PathError)):
		return err
	}
	return cli.Fail(cli.Usage, err, "") // such as parts of two files
}

// otherFiles says which command takes a file that is no package.
var otherFiles = map[archive.Kind]string{
	archive.KindReports: `"wherry hub import" takes it, where the hub is`,
	archive.KindAcks:    "reports ack takes it; import takes it as well, if its folder is named",
	archive.KindTrust:   "trust install takes it",
	archive.KindOther:   exportHint,
}

// describe takes from the head of a package what people are told. It returns an error if r is no site package.
func (n *named) describe(r *airgap.Reader) error {
	kind := archive.KindOf(r.Index())
	if hint, other := otherFiles[kind]; other {
		return cli.Fail(cli.Usage, fmt.Errorf("%s: %w: it holds no bundle, but %s", n.name, airgap.ErrFormat, kind), hint)
	}
	var streams []string
	for _, d := range r.Index().Manifests {
		parts := strings.Split(d.Annotations[ocispec.AnnotationRefName], "/")
		if len(parts) == 4 && parts[0] == "bundles" {
			streams = append(streams, oneLine(parts[1]+"/"+parts[2]))
		}
	}
	slices.Sort(streams)
	n.holds = show.List(slices.Compact(streams), maxNamedStreams)
	n.allowedExpired = oneLine(r.Index().Annotations[airgap.AnnotationAllowExpired])
	if c := r.Contents(); c != nil {
		n.holds += fmt.Sprintf(" of the platform %q", oneLine(c.Platform))
		n.allowedExpired = cmp.Or(oneLine(c.AllowExpired), n.allowedExpired)
	}
	return nil
}

// maxNamedStreams is how many streams of a package a message names.
const maxNamedStreams = 8

// oneLine returns text from a package as one line of bounded length.
func oneLine(s string) string { return bundle.Clip(strings.Join(strings.Fields(s), " ")) }

func isReadOnly(err error) bool { return errors.Is(err, syscall.EROFS) }

// content is the package as one stream, which the caller closes.
func (n named) content() io.ReadCloser {
	if !n.opened.Folder() {
		return &concatenation{paths: n.files}
	}
	r, w := io.Pipe()
	go func() { w.CloseWithError(packed(w, n.opened)) }()
	return r
}

// packed writes an unpacked package as "wherry airgap export" does.
func packed(w io.Writer, src *medium.Source) error {
	from, err := src.Reader()
	if err != nil {
		return err
	}
	to := airgap.NewWriter(w)
	if err := to.Index(from.Index().Manifests, from.Index().Annotations); err != nil {
		return err
	}
	for {
		e, err := from.Next()
		if errors.Is(err, io.EOF) {
			return to.Close()
		}
		if err == nil {
			err = to.Blob(ocispec.Descriptor{Digest: e.Digest, Size: e.Size}, func() (io.ReadCloser, error) { return io.NopCloser(e.Content), nil })
		}
		if err != nil {
			return err
		}
	}
}

// concatenation reads files one after the other, each opened when its turn comes. It may be read by one goroutine while
// another one closes it.
type concatenation struct {
	mu    sync.Mutex
	paths []string
	file  *os.File
}

func (c *concatenation) Read(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for {
		if c.file == nil {
			if len(c.paths) == 0 {
				return 0, io.EOF
			}
			f, err := regularfile.Open(c.paths[0])
			if err != nil {
				return 0, err
			}
			c.file, c.paths = f, c.paths[1:]
		}
		n, err := c.file.Read(p)
		if !errors.Is(err, io.EOF) {
			return n, err
		}
		if err := c.close(); err != nil || n > 0 {
			return n, err
		}
	}
}

// Close closes the file that is open; there is nothing more to read then.
func (c *concatenation) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.paths = nil
	return c.close()
}

func (c *concatenation) close() error {
	if c.file == nil {
		return nil
	}
	err := c.file.Close()
	c.file = nil
	return err
}
