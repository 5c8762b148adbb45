package delta

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/child"
)

const (
	// overhead is the memory of a process that applies a delta, without the trees, in bytes.
	overhead = 32 << 20
	// tables is the additional memory of the compressor, in bytes, whatever the size of the trees.
	tables = 72 << 20
	// maxWords bounds the part of a child's error output that is kept.
	maxWords = 4 << 10
)

// Job makes or applies a delta from files to a file. Out is synced to disk when the job has succeeded, and does not exist
// when it has failed.
type Job struct {
	Base Tree `json:"base"`
	// Next is the tree to make a delta for. Without a path, the job applies Delta.
	Next  Tree           `json:"next,omitzero"`
	Delta string         `json:"delta,omitempty"`
	Want  bundle.Content `json:"want,omitzero"` // of Apply
	Out   string         `json:"out"`
}

// Tree is a tree in a file: a tar, or a bundle's full layer.
type Tree struct {
	Path string `json:"path"`
	Gzip bool   `json:"gzip,omitempty"`
	Size int64  `json:"size"` // of the tar, in bytes
}

// Memory returns an upper bound for the memory of the job's process, in bytes. For the largest trees, making a delta took
// 335 MiB when measured, and applying it 138 MiB. An agent with less memory fetches the full layer; see Available.
func (j Job) Memory() int64 {
	if j.Next.Path != "" {
		return 2*(j.Base.Size+j.Next.Size) + overhead + tables
	}
	return 2*(j.Base.Size+j.Want.Size) + overhead
}

// Command is the program, with its arguments, by which this program calls Child.
type Command []string

// Apply is Job.Start by this command.
func (c Command) Apply(ctx context.Context, j Job) error { return j.Start(ctx, c...) }

// Start runs the job in a process of its own and waits for it. Self is the program and the arguments that make this
// program call Child. The error is a *bundle.Refusal if the delta is at fault. The process ends when ctx does.
func (j Job) Start(ctx context.Context, self ...string) error {
	order, err := json.Marshal(j)
	if err != nil {
		return err
	}
	if err := os.Remove(j.Out); err != nil && !errors.Is(err, os.ErrNotExist) { // left by a killed job
		return err
	}
	var output bytes.Buffer
	cmd := child.Command(ctx, self, "GOGC=20")
	cmd.Stdin, cmd.Stdout = bytes.NewReader(order), &child.Head{W: &output, Left: maxWords}
	if err = cmd.Run(); err != nil {
		_ = os.Remove(j.Out)
		err = explain(ctx, err, output.Bytes())
	}
	return err
}

// explain returns an error with the exit status and the error output of a child.
func explain(ctx context.Context, err error, output []byte) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	var refusal bundle.Refusal
	if json.Unmarshal(output, &refusal) == nil && refusal.Message != "" {
		if refusal.Reason != "" {
			return &refusal
		}
		return fmt.Errorf("delta: %s", refusal.Message)
	}
	return fmt.Errorf("delta: the process for it has failed: %w", err) // for example killed for lack of memory
}

// Maker is the type of Make. Programs that only apply deltas pass nil, and save the quarter of a megabyte that the
// compressor takes in the binary.
type Maker func(base, next []byte) ([]byte, error)

// Child runs the job of Start, with the process's standard input and output, and returns the process's exit code. If maker
// is nil, it can only apply deltas.
func Child(stdin io.Reader, stdout io.Writer, maker Maker) (code int) {
	var j Job
	err := json.NewDecoder(stdin).Decode(&j)
	if err == nil {
		err = j.run(maker)
	}
	if err == nil {
		return 0
	}
	refusal := &bundle.Refusal{}
	if !errors.As(err, &refusal) {
		refusal.Message = err.Error()
	}
	_ = json.NewEncoder(stdout).Encode(refusal) // the exit code reports the refusal too
	return 3
}

// Apply applies the delta in this process, which takes Memory. The error is a *bundle.Refusal if the delta is at fault.
func (j Job) Apply() error {
	if j.Next.Path != "" {
		return errors.New("the job is to make a delta")
	}
	return j.run(nil)
}

// run does the job in this process.
func (j Job) run(maker Maker) (err error) {
	if j.Next.Path != "" && maker == nil {
		return errors.New("this program makes no deltas")
	}
	base, err := j.Base.read()
	if err != nil {
		return err
	}
	var out []byte
	if j.Next.Path != "" {
		var next []byte
		if next, err = j.Next.read(); err == nil {
			out, err = maker(base, next)
		}
	} else {
		var delta []byte
		if delta, err = readFile(j.Delta, MaxBytes); err == nil {
			out, err = Apply(base, delta, j.Want)
		}
	}
	if err != nil {
		return err
	}
	return writeFile(j.Out, out)
}

// read returns the tar. It allocates Size bytes, and returns an error if the tar has another size.
func (t Tree) read() ([]byte, error) {
	if err := check(t.Size, t.Size); err != nil {
		return nil, err
	}
	f, err := os.Open(t.Path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var in io.Reader = f
	if t.Gzip {
		if in, err = gzip.NewReader(f); err != nil {
			return nil, fmt.Errorf("%s: %w", t.Path, err)
		}
	}
	data := make([]byte, t.Size)
	if _, err := io.ReadFull(in, data); err != nil {
		return nil, fmt.Errorf("%s: %w", t.Path, err)
	}
	if n, err := io.ReadFull(in, make([]byte, 1)); n > 0 || !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("%s: %w", t.Path, errors.Join(fmt.Errorf("it is not of %d bytes", t.Size), err))
	}
	return data, nil
}

func readFile(path string, limit int64) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if info.Size() > limit {
		return nil, bundle.Refuse(bundle.TooLarge, "delta has %d bytes, at most %d are allowed", info.Size(), limit)
	}
	data := make([]byte, info.Size())
	_, err = io.ReadFull(f, data)
	return data, err
}

func writeFile(path string, data []byte) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		_ = os.Remove(path)
	}
	return err
}
