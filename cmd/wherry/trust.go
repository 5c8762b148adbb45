package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/oci"
	"github.com/wherry-dev/wherry/bundle/regularfile"
	"github.com/wherry-dev/wherry/cmd/internal/cli"
	"github.com/wherry-dev/wherry/cmd/internal/flags"
	"github.com/wherry-dev/wherry/publisher/trust"
	"github.com/wherry-dev/wherry/publisher/usage"
)

func newTrustCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "trust",
		Short: "Manage signing keys and thresholds",
		Long: `Make, sign and publish trust documents. One says which keys sign releases and how many of them have to (the
release keys), and which keys may change that (the root keys). Agents start from version 1, which is
installed on them, and believe a later version only if as many root keys of the version before, and of
its own, as each asks for have signed it.

A document is a file. While nobody has signed it, rotate, add-key and remove-key change it where it is. Once
it has its signatures they leave it alone and begin the next version, in the file that -o names. One that
some have signed, and not enough, is left alone too: somebody has agreed to it as it is.`,
	}
	cmd.AddCommand(newTrustAddKeyCommand(), newTrustInitCommand(), newTrustPublishCommand(), newTrustRemoveKeyCommand(),
		newTrustRotateCommand(), newTrustShowCommand(), newTrustSignCommand())
	return cmd
}

func newTrustPublishCommand() *cobra.Command {
	var to, format string
	var registry flags.Registry
	cmd := &cobra.Command{
		Use:   "publish FILE --to LOCATION",
		Short: "Put a signed version where agents look for it",
		Long: `Put a version at LOCATION, oci://HOST/PREFIX or oci-layout:DIR, in the repository trust under the tag v1,
v2 and so on. It has to be the next one there, and signed by as many root keys as it needs. What is there
is never replaced; publishing the same again changes nothing.

The exit code is 5 while signatures are missing, and 4 where another document has the version already.`,
		Example: "  wherry trust publish trust.v1.json --to oci://127.0.0.1:5000/edge",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			loc, err := flags.ParseLocation("to", to)
			if err != nil {
				return err
			}
			envelope, err := flags.ReadTrust(args[0])
			if err != nil {
				return err
			}
			done, err := trust.Publish(cmd.Context(), envelope, loc, registry.Options())
			if err != nil {
				return trustFailure(err, args[0], loc)
			}
			return cli.Print(cmd.OutOrStdout(), format, done, func(w io.Writer) {
				fmt.Fprintln(w, "VERSION\tRESULT\tREFERENCE\tDIGEST")
				fmt.Fprintf(w, "%d\t%s\t%s\t%s\n", done.Version, done.Result, done.Reference, done.Digest)
			})
		},
	}
	cmd.Flags().StringVar(&to, "to", "", "the `LOCATION` to publish to (required)")
	_ = cmd.MarkFlagRequired("to")
	registry.AddTo(cmd)
	cli.OutputFlag(cmd, &format)
	return cmd
}

// createTrustFile writes a document to a file that is not there yet.
func createTrustFile(name string, envelope []byte) error {
	if _, err := os.Lstat(name); err == nil {
		return cli.Fail(cli.Usage, &fs.PathError{Op: "create", Path: name, Err: fs.ErrExist},
			"name another file with -o, or name this one as FILE to go on with it")
	}
	return writeTrustFile(name, envelope)
}

func writeTrustFile(name string, envelope []byte) error {
	return cli.WriteFile(name, func(w io.Writer) error {
		_, err := fmt.Fprintf(w, "%s\n", envelope)
		return err
	})
}

// readTrustKey reads [NAME=]FILE. The name is the file's, without .pub, where none is given.
func readTrustKey(flag, value string) (bundle.TrustKey, error) {
	name, file, named := strings.Cut(value, "=")
	if !named {
		name, file = strings.TrimSuffix(filepath.Base(value), ".pub"), value
	}
	data, err := regularfile.Read(file, flags.MaxKeyBytes)
	if err == nil {
		var key bundle.TrustKey
		if key, err = trust.NewKey(name, data); err == nil {
			return key, nil
		}
		err = fmt.Errorf("%s: %w", file, err)
	}
	return bundle.TrustKey{}, cli.Fail(cli.Usage, fmt.Errorf("--%s: %w", flag, err), `it is the .pub file that "wherry keys generate" made`)
}

// trustFailure gives an error about the document in file its exit code and says what to do.
func trustFailure(err error, file string, loc oci.Location) error {
	var option *usage.Error
	var refusal *bundle.Refusal
	switch {
	case errors.Is(err, trust.ErrNotYet):
		return cli.Fail(cli.NotYet, fmt.Errorf("%s: %w", file, err), fmt.Sprintf("wherry trust sign %s --key FILE", file))
	case errors.As(err, &option):
		return cli.Fail(cli.Usage, fmt.Errorf("%s: %w", file, err), "")
	case errors.As(err, &refusal):
		return cli.Fail(cli.Denied, fmt.Errorf("%s: %w", file, err), fmt.Sprintf("%q shows what is there", "wherry trust show "+loc.String()))
	}
	return flags.RegistryFailure(err, loc)
}
