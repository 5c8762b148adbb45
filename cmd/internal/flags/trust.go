package flags

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/diskfile"
	"github.com/wherry-dev/wherry/bundle/oci"
	"github.com/wherry-dev/wherry/cmd/internal/cli"
	"github.com/wherry-dev/wherry/cmd/internal/failure"
	"github.com/wherry-dev/wherry/published"
	"github.com/wherry-dev/wherry/publisher/settings"
	"github.com/wherry-dev/wherry/publisher/trust"
)

// TrustUsage is the usage of --trust in commands on a location.
const TrustUsage = "version 1 of the trust document, a `FILE`; later versions are followed at the location"

// Trust holds the flags for the trust in a bundle's signatures: a public key, or trust documents.
type Trust struct {
	Key, First string // files: a public key, and version 1 of a trust document

	keys    []settings.Value // files with public keys, in place of Key
	keyFlag string           // the name of the flag for Key; empty for key
}

// AddTo adds --key and --trust, which exclude each other.
func (f *Trust) AddTo(cmd *cobra.Command, keyUsage string) { f.add(cmd, "key", keyUsage) }

// AddReleaseKey adds --release-key and --trust, which exclude each other: for commands beside others that sign with --key.
func (f *Trust) AddReleaseKey(cmd *cobra.Command) {
	f.add(cmd, "release-key", "the public key `FILE` that releases are signed with, in place of a trust document")
}

func (f *Trust) add(cmd *cobra.Command, name, usage string) {
	f.keyFlag = name
	cmd.Flags().StringVar(&f.Key, name, "", usage)
	cmd.Flags().StringVar(&f.First, "trust", "", TrustUsage)
	cmd.MarkFlagsMutuallyExclusive(name, "trust")
	cli.NotEmpty(cmd, name, "trust")
}

// Given reports whether either flag is, or Default has found either.
func (f *Trust) Given() bool { return f.Key != "" || f.First != "" || len(f.keys) > 0 }

// Default takes the settings' trust document or keys if no flag gives any.
func (f *Trust) Default(s *settings.Settings) {
	if !f.Given() {
		f.First, f.keys = s.Trust.Text, s.Keys
	}
}

// Open reads the key, or follows the trust documents at loc.
func (f *Trust) Open(ctx context.Context, loc oci.Location, opts oci.Options) (published.Signers, error) {
	if f.First != "" {
		return OpenTrust(ctx, f.First, loc, opts)
	}
	keys, err := f.ReadKeys()
	return published.Pinned(keys), err
}

// OpenFor is Open for the bundle or record at ref.
func (f *Trust) OpenFor(ctx context.Context, ref oci.Reference, opts oci.Options) (trust published.Signers, err error) {
	var loc oci.Location
	if f.First != "" {
		if loc, err = LocationOf(ref); err != nil {
			return trust, err
		}
	}
	return f.Open(ctx, loc, opts)
}

// ReadKeys returns the keys in the file of --key, or in those of the settings.
func (f *Trust) ReadKeys() (bundle.Keys, error) {
	var all bundle.Keys
	for _, file := range f.keys {
		keys, err := readPublicKeys(file.Text)
		if err != nil {
			return nil, cli.Fail(cli.Usage, fmt.Errorf("%s: keys: %w", file.Origin, err), `keys are the .pub files that "wherry keys generate" made`)
		}
		all = append(all, keys...)
	}
	if len(all) > 0 {
		return all, nil
	}
	keys, err := readPublicKeys(f.Key)
	if err != nil {
		flag := "--" + cmp.Or(f.keyFlag, "key")
		return nil, cli.Fail(cli.Usage, fmt.Errorf("%s: %w", flag, err), flag+` is the .pub file that "wherry keys generate" made`)
	}
	return keys, nil
}

func readPublicKeys(name string) (bundle.Keys, error) {
	data, err := diskfile.Read(name, MaxKeyBytes)
	if err != nil {
		return nil, err
	}
	keys, err := bundle.ParsePublicKeys(data)
	if err != nil {
		err = fmt.Errorf("%s: %w", name, err)
	}
	return keys, err
}

// OpenTrust follows the trust documents at loc from version 1 in the file first.
func OpenTrust(ctx context.Context, first string, loc oci.Location, opts oci.Options) (published.Signers, error) {
	chain, err := BeginTrust(first)
	if err != nil {
		return published.Signers{}, err
	}
	if chain, err = published.FollowTrust(ctx, loc, chain, opts); err != nil {
		return published.Signers{}, failure.At(err, loc)
	}
	return published.Of(chain), nil
}

// BeginTrust reads version 1 of a document, the file of --trust.
func BeginTrust(file string) (bundle.TrustChain, error) {
	envelope, err := ReadTrust(file)
	if err != nil {
		return nil, err
	}
	chain, err := trust.Begin(envelope)
	if err != nil {
		if errors.As(err, new(*bundle.Refusal)) {
			return nil, cli.Fail(cli.Denied, fmt.Errorf("--trust %s: %w", file, err), "take version 1 as it was published, with all its signatures")
		}
		return nil, cli.Fail(cli.Usage, fmt.Errorf("--trust %s: %w", file, err), "")
	}
	return chain, nil
}

// ReadTrust returns the document in a file, in its envelope. Anything else in the file is an error.
func ReadTrust(name string) ([]byte, error) {
	f, err := diskfile.Open(name)
	if err != nil {
		return nil, cli.Fail(cli.Usage, err, `"wherry trust init" makes one`)
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, bundle.MaxTrustBytes+1))
	if err != nil {
		return nil, cli.Fail(cli.Usage, err, "")
	}
	data = []byte(strings.TrimSpace(string(data)))
	if _, _, err := bundle.OpenTrust(data); err != nil {
		return nil, cli.Fail(cli.Usage, fmt.Errorf("%s: %w", name, err), `a trust document is a file that "wherry trust" has made`)
	}
	return data, nil
}

// LocationOf returns the location below which ref's repository lies.
func LocationOf(ref oci.Reference) (oci.Location, error) {
	if own, ok := published.Split(ref); ok {
		return own.Location, nil
	}
	if ref.Location.Local() {
		return ref.Location, nil
	}
	return oci.Location{}, cli.Usagef("%s: --trust needs the location as well: write LOCATION/bundles/ENVIRONMENT/TYPE", ref)
}
