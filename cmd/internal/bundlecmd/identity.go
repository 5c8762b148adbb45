package bundlecmd

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/wherry-dev/wherry/bundle/diskfile"
	"github.com/wherry-dev/wherry/cmd/internal/cli"
	"github.com/wherry-dev/wherry/publisher/verify"
)

// identity holds the flags for the certificate that must have signed, in place of a key.
type identity struct {
	subject, issuer, root string
}

// addTo adds the flags, whose first two go together.
func (f *identity) addTo(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&f.subject, "certificate-identity", "", "the `SUBJECT`, an e-mail address or a URI, of the certificate that must have signed")
	flags.StringVar(&f.issuer, "certificate-oidc-issuer", "", "the `URL` of the OpenID Connect provider that vouched for it")
	flags.StringVar(&f.root, "trusted-root", "", "a trusted_root.json `FILE` (default that of Sigstore's public instance)")
	cmd.MarkFlagsRequiredTogether("certificate-identity", "certificate-oidc-issuer")
}

func (f *identity) trust() (*verify.Keyless, error) {
	var root []byte
	if f.root != "" {
		var err error
		root, err = diskfile.Read(f.root, verify.MaxTrustedRootBytes)
		if err != nil {
			return nil, cli.Fail(cli.Usage, fmt.Errorf("--trusted-root: %w", err), "")
		}
	}
	trust, err := verify.NewKeyless(f.subject, f.issuer, root)
	if err != nil {
		return nil, cli.Fail(cli.Usage, err, `"cosign trusted-root create" makes a trusted root`)
	}
	return trust, nil
}
