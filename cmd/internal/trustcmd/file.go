package trustcmd

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
	"github.com/wherry-dev/wherry/bundle/diskfile"
	"github.com/wherry-dev/wherry/bundle/oci"
	"github.com/wherry-dev/wherry/bundle/show"
	"github.com/wherry-dev/wherry/cmd/internal/cli"
	"github.com/wherry-dev/wherry/cmd/internal/failure"
	"github.com/wherry-dev/wherry/cmd/internal/flags"
	"github.com/wherry-dev/wherry/publisher/trust"
	"github.com/wherry-dev/wherry/publisher/usage"
)

// save writes a document to a file, which must not exist unless it is replaced, prints the file's name, and says who
// has signed the document, in relation to the version before if that is known.
func save(cmd *cobra.Command, file string, replace bool, envelope, previous []byte) error {
	if _, err := os.Lstat(file); err == nil && !replace {
		return cli.Fail(cli.Usage, &fs.PathError{Op: "create", Path: file, Err: fs.ErrExist},
			"name another file with -o, or name this one as FILE to go on with it")
	}
	err := diskfile.ReplaceBy(file, 0o644, func(w io.Writer) error {
		_, err := fmt.Fprintf(w, "%s\n", envelope)
		return err
	})
	if err != nil {
		return err
	}
	s, err := trust.StatusOf(envelope, previous)
	if err != nil {
		return err
	}
	cmd.PrintErrf("version %d, epoch %d, until %s, signed by %s\n", s.Version, s.Epoch, show.Time(s.ExpiresAt), signedText(s))
	_, err = fmt.Fprintln(cmd.OutOrStdout(), file)
	return err
}

// readKey reads [NAME=]FILE, the value of a flag. Without NAME, the key has the file's name without .pub.
func readKey(flag, value string) (bundle.TrustKey, error) {
	name, file, named := strings.Cut(value, "=")
	if !named {
		name, file = strings.TrimSuffix(filepath.Base(value), ".pub"), value
	}
	data, err := diskfile.Read(file, flags.MaxKeyBytes)
	if err == nil {
		var key bundle.TrustKey
		if key, err = trust.NewKey(name, data); err == nil {
			return key, nil
		}
		err = fmt.Errorf("%s: %w", file, err)
	}
	return bundle.TrustKey{}, cli.Fail(cli.Usage, fmt.Errorf("--%s: %w", flag, err), `expected the .pub file of "wherry keys generate"`)
}

// wrong gives an error about the document in file, or about the content of loc, its exit code and a hint.
func wrong(err error, file string, loc oci.Location) error {
	if errors.Is(err, trust.ErrNotYet) || errors.As(err, new(*usage.Error)) || errors.As(err, new(*bundle.Refusal)) {
		err = fmt.Errorf("%s: %w", file, err)
	}
	return failure.At(err, loc, cli.Is(trust.ErrNotYet, cli.NotYet, fmt.Sprintf("wherry trust sign %s --key FILE", file)),
		cli.As[*bundle.Refusal](cli.Denied, fmt.Sprintf("%q shows what is there", "wherry trust show "+loc.String())))
}

// wrongFile is wrong for an error that has to do with no location.
func wrongFile(err error, file string) error { return wrong(err, file, oci.Location{}) }

// signedText returns how many of the keys that are needed have signed.
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
