package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/oci"
	"github.com/wherry-dev/wherry/bundle/show"
	"github.com/wherry-dev/wherry/cmd/internal/cli"
	"github.com/wherry-dev/wherry/cmd/internal/flags"
	"github.com/wherry-dev/wherry/publisher/trust"
)

// noLocation is for errors about files alone.
var noLocation oci.Location

func newTrustSignCommand() *cobra.Command {
	var signer flags.Signers
	var registry flags.Registry
	var merge []string
	var previous, output string
	cmd := &cobra.Command{
		Use:   "sign FILE (--key FILE | --merge FILE)…",
		Short: "Add a signature to a document, or those of copies of it",
		Long: `Add a signature per key to the document in FILE, where it is. Several people sign one after the other, or each
a copy on a machine of their own, whose signatures --merge brings together.

A key has to be a root key of this version or of the one before. For one that is of the version before alone,
because this version removes it, give that version with --previous, as a file or the location where it is.`,
		Example: `  wherry trust sign trust.v1.json --key anna.key
  wherry trust sign trust.v1.json --merge from-bob/trust.v1.json --merge from-carol/trust.v1.json`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			file := args[0]
			envelope, err := flags.ReadTrust(file)
			if err != nil {
				return err
			}
			before, err := readPrevious(cmd, previous, envelope, registry)
			if err != nil {
				return err
			}
			for _, name := range merge {
				other, err := flags.ReadTrust(name)
				if err != nil {
					return err
				}
				if envelope, err = trust.Join(envelope, other); err != nil {
					return trustEditFailure(err, "--merge "+name)
				}
			}
			keys, err := signer.Open(cmd)
			if err != nil {
				return err
			}
			if envelope, err = trust.Sign(envelope, before, keys); err != nil {
				return trustEditFailure(err, file)
			}
			if output == "" || output == file {
				output = file
				err = writeTrustFile(file, envelope)
			} else {
				err = createTrustFile(output, envelope)
			}
			if err != nil {
				return err
			}
			return reportTrustFile(cmd, output, envelope, before)
		},
	}
	f := cmd.Flags()
	signer.AddOptional(cmd)
	f.StringArrayVar(&merge, "merge", nil, "add the signatures of this copy of `FILE`; may be repeated")
	cmd.MarkFlagsOneRequired("key", "merge")
	f.StringVarP(&output, "output", "o", "", "write to this `FILE` in place of FILE")
	cli.NotEmpty(cmd, "output")
	addPrevious(cmd, &previous)
	registry.AddTo(cmd)
	return cmd
}

func addPrevious(cmd *cobra.Command, previous *string) {
	cmd.Flags().StringVar(previous, "previous", "", "the version before, as a file or the `LOCATION` where it is")
}

// isLocation says whether an argument names a location, and not a file.
func isLocation(s string) bool {
	return strings.HasPrefix(s, "oci://") || strings.HasPrefix(s, "oci-layout:")
}

// readPrevious returns the version before the document in envelope, or nil where nobody names it.
func readPrevious(cmd *cobra.Command, from string, envelope []byte, registry flags.Registry) ([]byte, error) {
	if from == "" {
		return nil, nil
	}
	if !isLocation(from) {
		return flags.ReadTrust(from)
	}
	d, _, err := bundle.OpenTrust(envelope)
	if err != nil {
		return nil, err
	}
	loc, err := flags.ParseLocation("previous", from)
	if err != nil {
		return nil, err
	}
	chain, err := trust.Walk(cmd.Context(), loc, nil, registry.Options())
	if err != nil {
		return nil, flags.RegistryFailure(err, loc)
	}
	i := slices.IndexFunc(chain, func(l bundle.TrustLink) bool { return l.Document.Version == d.Version-1 })
	if i < 0 {
		return nil, cli.Usagef("--previous: %s has no version %d of the trust document", loc, d.Version-1)
	}
	return chain[i].Envelope, nil
}

// reportTrustFile prints the file that was written, and says whose signatures it has.
func reportTrustFile(cmd *cobra.Command, file string, envelope, previous []byte) error {
	s, err := trust.StatusOf(envelope, previous)
	if err != nil {
		return err
	}
	cmd.PrintErrf("version %d, epoch %d, until %s, signed by %s\n", s.Version, s.Epoch, show.Time(s.ExpiresAt), signedText(s))
	_, err = fmt.Fprintln(cmd.OutOrStdout(), file)
	return err
}

// signedText says how many of those who have to have signed.
func signedText(s *trust.Status) string {
	text := fmt.Sprintf("%d of the %d root keys it needs", s.Own.Have, s.Own.Need)
	switch {
	case s.Previous != nil:
		text += fmt.Sprintf(", and %d of the %d that version %d asks for", s.Previous.Have, s.Previous.Need, s.Version-1)
	case s.Version > 1 && s.Own.Have > 0:
		text += fmt.Sprintf(" (--previous says how many of those that version %d asks for)", s.Version-1)
	}
	return text
}
