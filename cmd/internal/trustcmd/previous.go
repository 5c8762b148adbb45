package trustcmd

import (
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/cmd/internal/cli"
	"github.com/wherry-dev/wherry/cmd/internal/failure"
	"github.com/wherry-dev/wherry/cmd/internal/flags"
	"github.com/wherry-dev/wherry/published"
)

func addPrevious(cmd *cobra.Command, previous *string) {
	cmd.Flags().StringVar(previous, "previous", "", "the version before, as a file or the `LOCATION` where it is")
}

// isLocation reports whether an argument names a location, and not a file.
func isLocation(s string) bool {
	return strings.HasPrefix(s, "oci://") || strings.HasPrefix(s, "oci-layout:")
}

// readPrevious returns the version before the document in envelope, or nil if --previous is not given.
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
	chain, err := published.FollowTrust(cmd.Context(), loc, nil, registry.Options())
	if err != nil {
		return nil, failure.At(err, loc)
	}
	i := slices.IndexFunc(chain, func(l bundle.TrustLink) bool { return l.Document.Version == d.Version-1 })
	if i < 0 {
		return nil, cli.Usagef("--previous: %s has no version %d of the trust document", loc, d.Version-1)
	}
	return chain[i].Envelope, nil
}
