package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/oci"
	"github.com/wherry-dev/wherry/cmd/internal/cli"
	"github.com/wherry-dev/wherry/publisher/trust"
)

const trustFlagUsage = "version 1 of the trust document, a `FILE`; later versions are followed at the location"

// trustFlags says by whose signatures something is judged: by a public key, or by trust documents.
type trustFlags struct {
	key, first string
}

func (f *trustFlags) add(cmd *cobra.Command, keyUsage string) {
	cmd.Flags().StringVar(&f.key, "key", "", keyUsage)
	cmd.Flags().StringVar(&f.first, "trust", "", trustFlagUsage)
	cmd.MarkFlagsMutuallyExclusive("key", "trust")
	cli.NotEmpty(cmd, "key", "trust")
}

// given says whether either is.
func (f *trustFlags) given() bool { return f.key != "" || f.first != "" }

// open reads the key, or follows the trust documents at loc.
func (f *trustFlags) open(cmd *cobra.Command, loc oci.Location, registry registryFlags) (trust.Signers, error) {
	if f.first != "" {
		return openTrust(cmd, f.first, loc, registry)
	}
	keys, err := f.readKey()
	return trust.Pinned(keys), err
}

func (f *trustFlags) readKey() (bundle.Keys, error) {
	keys, err := readPublicKeys(f.key)
	if err != nil {
		return nil, cli.Fail(cli.Usage, fmt.Errorf("--key: %w", err), `--key is the .pub file that "wherry keys generate" made`)
	}
	return keys, nil
}

// openFor is open for what ref names.
func (f *trustFlags) openFor(cmd *cobra.Command, ref oci.Reference, registry registryFlags) (trust trust.Signers, err error) {
	var loc oci.Location
	if f.first != "" {
		if loc, err = locationOf(ref); err != nil {
			return trust, err
		}
	}
	return f.open(cmd, loc, registry)
}

// openTrust follows the trust documents at loc from version 1 in the file first.
func openTrust(cmd *cobra.Command, first string, loc oci.Location, registry registryFlags) (trust.Signers, error) {
	chain, err := readTrustFlag(first)
	if err != nil {
		return trust.Signers{}, err
	}
	if chain, err = trust.Walk(cmd.Context(), loc, chain, registry.options()); err != nil {
		return trust.Signers{}, registryFailure(err, loc)
	}
	return trust.Of(chain), nil
}

// locationOf is where the repositories are that ref's is one of.
func locationOf(ref oci.Reference) (oci.Location, error) {
	parts := strings.Split(ref.Repository, "/")
	for _, kind := range []struct {
		name  string
		parts int
	}{{"bundles", 3}, {"environments", 2}} {
		if n := len(parts) - kind.parts; n >= 0 && parts[n] == kind.name {
			return oci.Location{Dir: ref.Location.Dir, Host: ref.Location.Host, Prefix: strings.Join(parts[:n], "/")}, nil
		}
	}
	if ref.Location.Dir != "" {
		return ref.Location, nil
	}
	return oci.Location{}, cli.Usagef("%s: --trust needs the location as well: write LOCATION/bundles/ENVIRONMENT/TYPE", ref)
}
