package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/wherry-dev/wherry/bundle/diskfile"
)

// ReadInput returns what a file holds, or stdin where path is "-"; it may be limit bytes.
func ReadInput(cmd *cobra.Command, path string, limit int64) ([]byte, error) {
	name, r, err := OpenInput(cmd, path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = r.Close() }()
	return diskfile.ReadAll(name, r, limit)
}

// OpenInput opens a file, or stdin where path is "-", and returns its name for errors. To close stdin does nothing.
func OpenInput(cmd *cobra.Command, path string) (name string, r io.ReadCloser, err error) {
	if path == "-" {
		return "stdin", io.NopCloser(Stdin(cmd)), nil
	}
	f, err := diskfile.Open(path)
	if errors.Is(err, diskfile.ErrNotRegular) {
		err = fmt.Errorf("%w; give - for stdin", err)
	}
	return path, f, err
}

// Stdin is the command's standard input. A read ends with the command's context, which the terminal or pipe would not
// notice.
func Stdin(cmd *cobra.Command) io.Reader {
	in, ctx := cmd.InOrStdin(), cmd.Context()
	return readerFunc(func(p []byte) (int, error) {
		type result struct {
			data []byte
			err  error
		}
		results := make(chan result, 1)
		go func() {
			data := make([]byte, len(p))
			n, err := in.Read(data)
			results <- result{data[:n], err}
		}()
		select {
		case r := <-results:
			return copy(p, r.data), r.err
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	})
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

// EndsWithin has cmd and its subcommands end no later than d after an interrupt, also at work that cannot be
// stopped: that goes on until the process ends. It is for commands that a kill does no harm to.
func EndsWithin(d time.Duration, cmd *cobra.Command) {
	for _, sub := range cmd.Commands() {
		EndsWithin(d, sub)
	}
	run := cmd.RunE
	if run == nil {
		return
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		ended := make(chan error, 1)
		go func() { ended <- run(cmd, args) }()
		return waitFor(cmd.Context(), ended, d)
	}
}

func waitFor(ctx context.Context, ended <-chan error, d time.Duration) error {
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	select {
	case err := <-ended:
		return err
	case <-time.After(d):
		return ctx.Err()
	}
}
