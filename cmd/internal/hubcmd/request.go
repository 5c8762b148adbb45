package hubcmd

import (
	"bytes"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/diskfile"
	"github.com/wherry-dev/wherry/cmd/internal/cli"
	"github.com/wherry-dev/wherry/hub"
	"github.com/wherry-dev/wherry/hub/store"
)

// requestFlags are the flags for a request that came as a file.
type requestFlags struct {
	file, answer string
}

func (f *requestFlags) add(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.file, "request", "", "register what the request of \"wherry-agent enroll --request\" in this `FILE` asks for, or - for stdin")
	cmd.Flags().StringVar(&f.answer, "answer", "", "write the hub's signed answer for \"wherry-agent enroll --accept\" to this `FILE`, or - for stdout")
	for _, other := range []string{"from", "key", "uid", "reporting"} {
		cmd.MarkFlagsMutuallyExclusive("request", other)
	}
}

// register registers the cluster of a request, or replaces the key of one.
func (f *requestFlags) register(cmd *cobra.Command, a *administrator, flags *registration, args []string, replace bool) error {
	envelope, err := readInput(cmd, f.file)
	if err != nil {
		return err
	}
	r, c, err := hub.ReadRequest(envelope)
	if errors.Is(err, store.ErrInvalid) {
		return cli.Fail(cli.Usage, fmt.Errorf("%s: %w", f.file, err), `it must be a file of "wherry-agent enroll --request"`)
	}
	if err != nil {
		return cli.Fail(cli.Denied, err, "")
	}
	if err := writeRequest(cmd, f.file, r); err != nil {
		return err
	}
	return a.registrations(cmd, false, func(at registrar) error {
		if r.Former != "" {
			answer, err := at.Enroll(cmd.Context(), envelope)
			if err != nil {
				return err
			}
			cmd.PrintErrf("%s: cluster uid %s has a new key\n", a.name(), c.UID)
			return f.write(cmd, answer)
		}
		flags.override(&c, args)
		answer, err := a.addCluster(cmd, at, c, envelope, replace)
		if err != nil {
			return err
		}
		return f.write(cmd, answer)
	})
}

func (f *requestFlags) write(cmd *cobra.Command, answer []byte) error {
	answer = append(bytes.TrimSpace(answer), '\n')
	write := func(w io.Writer) error { _, err := w.Write(answer); return err }
	switch f.answer {
	case "":
		return nil
	case "-":
		return write(cmd.OutOrStdout())
	}
	if err := diskfile.ReplaceBy(f.answer, 0o644, write); err != nil {
		return cli.Fail(cli.Failed, fmt.Errorf("write the answer: %w", err), "run the same again")
	}
	return nil
}

// writeRequest prints the cluster and the keys of a request, to which the person is about to agree.
func writeRequest(cmd *cobra.Command, file string, r bundle.EnrollmentRequest) error {
	key, previous, err := r.Keys()
	if err != nil {
		return err
	}
	id, err := bundle.KeyID(key)
	if err != nil {
		return err
	}
	cmd.PrintErrf("%s: %s (uid %s), environment %s, cluster type %s, key %s\n", file, r.Cluster.Name, r.Cluster.UID, r.Cluster.Environment, r.Cluster.Type, id)
	if previous == nil {
		return nil
	}
	if id, err = bundle.KeyID(previous); err == nil {
		cmd.PrintErrf("%s: in the place of key %s\n", file, id)
	}
	return err
}
