// Package kustomization builds kustomizations from a tree of files, without the machine around it.
//
// Begin with [Do] or [Build]. It reads the kustomization and all that it names from one fs.FS, such as the tree of a git commit, and
// has kustomize's own library build a copy in memory. The same tree and options give the same bytes.
//
// Nothing else is read: no file of the machine, no environment variable, no network, no plugin that runs a program or a
// container. A base of another repository is taken only where its commit is named and the caller fetches it. Files, folders
// and output are bounded; time and memory are those of the process, which publisher/sandbox bounds. What the build cannot take
// is a [finding.Error], which names the file and its entry.
package kustomization

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/api/resmap"
	"sigs.k8s.io/kustomize/api/types"
	"sigs.k8s.io/kustomize/kyaml/openapi"
	"sigs.k8s.io/kustomize/kyaml/openapi/kubernetesapi"

	"github.com/wherry-dev/wherry/bundle/lazyregexp"
	"github.com/wherry-dev/wherry/scheduler/finding"
)

// Options are the inputs of a build beside the tree, and its bounds. The zero value adds no input and has the default bounds.
type Options struct {
	// Overlay has the changes that an Application asks for, beside the kustomization.
	Overlay Overlay
	// Remote returns the tree of a commit of another repository; commit has 40 or 64 hexadecimal digits. Nil refuses every
	// remote base. The credentials are the caller's; url has none.
	Remote func(url, commit string) (fs.FS, error)

	// MaxFiles bounds the files and folders that the build reads; those that it reads twice count twice. Zero means 5,000.
	MaxFiles int
	// MaxReadBytes bounds the bytes of these files. Zero means 32 MiB.
	MaxReadBytes int
	// MaxBytes bounds the output. Zero means 16 MiB.
	MaxBytes int
	// MaxObjects bounds the objects of the output. Zero means 10,000.
	MaxObjects int
}

func (o Options) withDefaults() Options {
	o.MaxFiles, o.MaxReadBytes = positive(o.MaxFiles, 5_000), positive(o.MaxReadBytes, 32<<20)
	o.MaxBytes, o.MaxObjects = positive(o.MaxBytes, 16<<20), positive(o.MaxObjects, 10_000)
	return o
}

func positive(n, otherwise int) int {
	if n > 0 {
		return n
	}
	return otherwise
}

// Result is what a kustomization builds.
type Result struct {
	// YAML holds the objects, separated by lines of three dashes, in kustomize's order.
	YAML []byte
	// Objects is the number of them.
	Objects int
	// Read lists the files of the tree that were read, sorted.
	Read []string
}

// ErrTooLarge is wrapped where a build exceeds a bound on files, bytes or objects. The message of the error has the file.
var ErrTooLarge = errors.New("too large")

// Do builds the folder dir of source, with what the field kustomize of an Application, in JSON, asks for if argo is not empty. It
// returns the objects, and the files of source that were read. Remote is as in [Options].
func Do(source fs.FS, dir string, argo []byte, remote func(url, commit string) (fs.FS, error)) (yaml []byte, read []string, err error) {
	opts := Options{Remote: remote}
	if len(argo) > 0 {
		if opts.Overlay, err = ArgoOverlay(argo); err != nil {
			return nil, nil, err
		}
	}
	built, err := Build(source, dir, opts)
	if err != nil {
		return nil, nil, err
	}
	return built.YAML, built.Read, nil
}

// Build returns the objects that the kustomization in folder dir of source makes. The dir is a path as of package fs, "."
// for the root. Paths in kustomizations may lead anywhere within source, as Flux has it, and nowhere else. A
// folder without a kustomization is an error wrapping fs.ErrNotExist.
//
// A process does one build at a time: kustomize keeps the schemas of kinds in global variables, and is not safe for several
// goroutines (kubernetes-sigs/kustomize issue 3659).
func Build(source fs.FS, dir string, opts Options) (result *Result, err error) {
	opts = opts.withDefaults()
	defer func() {
		if r := recover(); r != nil { // kustomize panics on some malformed objects
			result, err = nil, finding.Errorf("", finding.Position{File: dir}, "", "kustomize panics: %v", r)
		}
	}()
	c := newCopier(source, opts)
	at, err := c.root(dir)
	if err != nil {
		return nil, err
	}
	objects, err := c.run(at)
	if err != nil {
		return nil, err
	}
	return c.result(at, objects)
}

// run has kustomize build the folder of the copy at.
func (c *copier) run(at place) (resmap.ResMap, error) {
	if c.schema || openapi.GetSchemaVersion() != kubernetesapi.DefaultOpenAPI { // kustomize keeps it for all builds that follow
		openapi.ResetOpenAPI()
		defer openapi.ResetOpenAPI()
	}
	options := krusty.MakeDefaultOptions()
	options.LoadRestrictions = types.LoadRestrictionsNone // the copy holds what may be read
	if c.sorts[at] {
		options.Reorder = krusty.ReorderOptionUnspecified // or kustomize writes a warning to stderr
	}
	objects, err := krusty.MakeKustomizer(options).Run(c.copy, at.path())
	if err != nil {
		return nil, finding.Errorf("", finding.Position{File: at.shown("")}, "", "kustomize: %s", c.plain(err))
	}
	return objects, nil
}

// tried matches the way to a folder in a message: kustomize says first why the folder is no file.
var tried = lazyregexp.New(`accumulating resources: accumulation err=.*?: recursed accumulation of path `)

// plain is the message of an error of kustomize with the paths of the tree, not of its copy, and without repetitions.
func (c *copier) plain(err error) string {
	message := strings.Join(strings.Fields(err.Error()), " ")
	message = strings.ReplaceAll(tried.ReplaceAllString(message, "in "), "accumulating resources: ", "")
	message = strings.ReplaceAll(message, sourceMount+"/", "")
	return strings.ReplaceAll(message, sourceMount, ".")
}

func (c *copier) result(at place, objects resmap.ResMap) (*Result, error) {
	if objects.Size() > c.opts.MaxObjects {
		return nil, tooLarge(at.shown(""), "the kustomization makes %d objects; at most %d are allowed", objects.Size(), c.opts.MaxObjects)
	}
	var all []byte
	for i, object := range objects.Resources() {
		data, err := object.AsYAML()
		if err != nil {
			return nil, fmt.Errorf("%s: %w", at.shown(""), err)
		}
		if i > 0 {
			all = append(all, "---\n"...)
		}
		if all = append(all, data...); len(all) > c.opts.MaxBytes {
			return nil, tooLarge(at.shown(""), "the kustomization makes more than %d bytes", c.opts.MaxBytes)
		}
	}
	slices.Sort(c.read)
	return &Result{YAML: all, Objects: objects.Size(), Read: slices.Compact(c.read)}, nil
}

func tooLarge(file, format string, args ...any) error {
	return &finding.Error{Position: finding.Position{File: file}, Message: finding.Sentence(format, args...), Err: ErrTooLarge}
}
