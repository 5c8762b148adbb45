package agentcmd

import (
	"bytes"
	"cmp"
	"context"
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

	"github.com/wherry-dev/wherry/agent/config"
	"github.com/wherry-dev/wherry/airgap"
	"github.com/wherry-dev/wherry/airgap/medium"
	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/diskfile"
	"github.com/wherry-dev/wherry/bundle/oci/archive"
	"github.com/wherry-dev/wherry/bundle/show"
	"github.com/wherry-dev/wherry/cmd/internal/cli"
)

// named is what a person has named to be imported.
type named struct {
	name  string    // of the package, or of the folder of several, for messages; empty if there is none
	paths []string  // absolute, or "-" for stdin
	stdin io.Reader // nil unless it is read
	acks  []string  // files of acknowledgements
	// packages are opened, the heads read; none for stdin.
	packages []medium.Package
	// skipped are the errors of packages that cannot be used, while others can.
	skipped []error
	// sites are those that the packages were made for.
	sites []string
	// holds names the releases in the package, and allowedExpired is why it carries one that had expired. Neither is signed.
	holds          string
	allowedExpired string
}

const exportHint = `"wherry airgap export" writes such a file`

// close closes the packages.
func (n named) close() {
	for _, p := range n.packages {
		_ = p.Close() // it was only read
	}
}

// files are the absolute paths of each package; nil if one of them is not in files.
func (n named) files() (all [][]string) {
	for _, p := range n.packages {
		var files []string
		for _, file := range p.Files() {
			file, err := filepath.Abs(file)
			if err != nil {
				return nil
			}
			files = append(files, file)
		}
		if len(files) == 0 {
			return nil
		}
		all = append(all, files)
	}
	return all
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
		n.acks = medium.Acks(args[0])
	}
	packages, skipped, err := medium.OpenEach(medium.OS{}, nil, args...)
	if errors.Is(err, archive.ErrDamaged) { // a part may be of another package
		err = cmp.Or(damagedParts(cmd.Context(), args), err)
	}
	if err != nil && len(n.acks) == 0 {
		return n, sourceError(err)
	}
	for _, item := range skipped {
		if why := n.skip(item); f.watch == "" { // else the line of the medium names it
			cmd.PrintErrf("note: %v\n", why)
		}
	}
	if err != nil { // acknowledgements are taken all the same
		if noPackage(err) {
			cmd.PrintErrf("note: %v\n", err)
		} else if len(skipped) == 0 {
			n.skipped = append(n.skipped, sourceError(err))
		}
		return n, nil
	}
	if n.packages, n.name = packages, packages[0].Name(); len(packages) > 1 {
		n.name = args[0]
	}
	if err := n.describe(); err != nil {
		n.close()
		return n, err
	}
	return n, nil
}

// damagedParts names the parts that are not as they were written; nil if none is, or the package is not in parts.
func damagedParts(ctx context.Context, args []string) error {
	src, err := medium.Open(medium.OS{}, nil, args...)
	if err != nil {
		return nil // which has been told
	}
	defer src.Close()
	return src.Damaged(ctx)
}

// skip notes that a file on the medium is not used, and returns why. One that may have been a package is an error in the end.
func (n *named) skip(item archive.Listed) error {
	why := item.Err
	if why == nil {
		why = errors.New(string(item.Kind))
	}
	err := fmt.Errorf("%s is passed over: %w", item.Name, why)
	if item.Err != nil && (errors.Is(why, archive.ErrDamaged) || !errors.Is(why, archive.ErrFormat)) {
		n.skipped = append(n.skipped, sourceError(err))
	}
	return err
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
	described := named{name: n.name, packages: []medium.Package{{Source: src, Head: r}}}
	err = described.describe()
	n.sites, n.holds, n.allowedExpired = described.sites, described.holds, described.allowedExpired
	return n, err
}

// noPackage reports whether err says that a folder holds no package at all.
func noPackage(err error) bool {
	return errors.Is(err, fs.ErrNotExist) && !errors.As(err, new(*archive.MissingPartsError))
}

// sourceError adds an exit code and a hint to the error of a medium.
func sourceError(err error) error {
	var missing *archive.MissingPartsError
	var none *archive.NoPackageError
	var path *fs.PathError
	_ = errors.As(err, &path)
	switch {
	case errors.As(err, &missing):
		return cli.Fail(cli.Usage, err, "bring them to the same folder, or name them as well")
	case errors.As(err, new(*archive.DamagedError)):
		return cli.Fail(cli.Failed, err, `"sha256sum -c", with the file NAME.sha256 beside the parts, compares all of them`)
	case errors.As(err, &none):
		if none.Others {
			return cli.Fail(cli.Usage, err, exportHint)
		}
		return cli.Fail(cli.Usage, err, "is it mounted? (findmnt "+none.Dir+")")
	case errors.Is(err, airgap.ErrOrder):
		return cli.Fail(cli.Usage, err, "")
	case errors.Is(err, archive.ErrDamaged):
		return cli.Fail(cli.Failed, err, cli.DamagedHint)
	case path != nil && errors.Is(err, fs.ErrNotExist):
		return cli.Fail(cli.Usage, err, absentHint(path.Path))
	case errors.Is(err, archive.ErrFormat), errors.Is(err, fs.ErrNotExist):
		return cli.Fail(cli.Usage, err, exportHint)
	case errors.Is(err, fs.ErrPermission):
		return cli.Fail(cli.Failed, err, "run the command as a user who may read it")
	case errors.Is(err, syscall.EIO), errors.Is(err, syscall.ENODEV), errors.Is(err, syscall.ENXIO):
		return cli.Fail(cli.Failed, err, "the medium cannot be read: put it in again, or export to another one")
	case path != nil:
		return err
	}
	return cli.Fail(cli.Usage, err, "") // such as parts of two files
}

// absentHint says what to do about a path that is not there: a folder, or a file such as site.tar in one.
func absentHint(path string) string {
	if filepath.Ext(path) != "" {
		path = filepath.Dir(path)
	}
	if path == "." {
		return exportHint
	}
	return "is the medium mounted? (findmnt " + path + ")"
}

// otherFiles says which command takes a file that is no package.
var otherFiles = map[archive.Kind]string{
	archive.KindReports: `"wherry hub import" takes it, where the hub is`,
	archive.KindAcks:    "reports ack takes it; import takes it as well, if its folder is named",
	archive.KindTrust:   "trust install takes it",
	archive.KindOther:   exportHint,
}

// describe takes from the heads of packages what people are told. It returns an error if the only one is no site package.
func (n *named) describe() error {
	var streams, platforms, sites []string
	for _, p := range n.packages {
		index := p.Head.Index()
		if hint, other := otherFiles[archive.KindOf(index)]; other {
			return cli.Fail(cli.Usage, fmt.Errorf("%s: %w: it holds no bundle, but %s", p.Name(), airgap.ErrFormat, archive.KindOf(index)), hint)
		}
		for _, d := range index.Manifests {
			parts := strings.Split(d.Annotations[ocispec.AnnotationRefName], "/")
			if len(parts) == 4 && parts[0] == "bundles" {
				streams = append(streams, bundle.OneLine(parts[1]+"/"+parts[2]))
			}
		}
		if c := p.Head.Contents(); c != nil {
			platforms = append(platforms, fmt.Sprintf("%q", bundle.OneLine(c.Platform)))
			if c.Site != "" {
				sites = append(sites, bundle.OneLine(c.Site))
			}
			n.allowedExpired = cmp.Or(n.allowedExpired, bundle.OneLine(c.AllowExpired))
		}
	}
	slices.Sort(streams)
	slices.Sort(platforms)
	n.holds = show.List(slices.Compact(streams), maxNamedStreams)
	if platforms = slices.Compact(platforms); len(platforms) > 0 {
		n.holds += " of the platform " + show.List(platforms, maxNamedStreams)
	}
	slices.Sort(sites)
	n.sites = slices.Compact(sites)
	return nil
}

// otherSite says that the packages were made for other sites than that of the agent's label; empty if they were not. It is a
// hint: what is taken is judged by signatures alone.
func (n *named) otherSite(c *config.Config) string {
	own := c.Cluster.Labels["site"]
	if own == "" || len(n.sites) == 0 || slices.Contains(n.sites, own) {
		return ""
	}
	return fmt.Sprintf("%s was made for the site %s, and the label site of this agent is %s", n.name, show.List(n.sites, maxNamedStreams), show.Line(own))
}

// maxNamedStreams is how many streams of a package a message names.
const maxNamedStreams = 8

func isReadOnly(err error) bool { return errors.Is(err, syscall.EROFS) }

// contentOf is a package as one stream, which the caller closes.
func contentOf(p medium.Package) io.ReadCloser {
	if !p.Folder() {
		return &concatenation{paths: p.Files()}
	}
	r, w := io.Pipe()
	go func() { w.CloseWithError(packed(w, p.Source)) }()
	return r
}

// packed writes an unpacked package as "wherry airgap export" does.
func packed(w io.Writer, src *medium.Source) error {
	from, err := src.Reader()
	if err != nil {
		return err
	}
	to := airgap.NewWriter(w)
	if err := to.Index(from.Index().Manifests); err != nil {
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
			f, err := diskfile.Open(c.paths[0])
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
