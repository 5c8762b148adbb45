package trustcmd

import (
	"time"

	"github.com/spf13/cobra"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/cmd/internal/cli"
	"github.com/wherry-dev/wherry/cmd/internal/flags"
	"github.com/wherry-dev/wherry/publisher/trust"
)

func newInitCommand() *cobra.Command {
	var platform, validFor, output string
	var rootKeys, releaseKeys []string
	var rootThreshold, releaseThreshold int
	var signer flags.Signers
	cmd := &cobra.Command{
		Use:   "init --platform NAME --root-key PUB… --root-threshold N --release-key PUB… --release-threshold M [-o FILE]",
		Short: "Create a trust document",
		Long: `Write version 1 of a platform's trust document, to be signed by as many of the root keys as --root-threshold
says, and then installed on agents. A key is [NAME=]FILE, a .pub file; the name is for people, and the file's
where none is given. A threshold need not be given for a single key.

With --key the document is signed at once; else "wherry trust sign" does.`,
		Example: `  wherry trust init --platform edge --root-key anna.pub --root-key bob.pub --root-key carol.pub --root-threshold 2 \
    --release-key anna.pub --release-key ci=build-server.pub --release-threshold 2`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			valid := trust.DefaultValidity
			var err error
			if validFor != "" {
				if valid, err = flags.ParseValidity("valid-for", validFor); err != nil {
					return err
				}
			}
			root, err := readRole(trust.RoleRoot, rootKeys, rootThreshold)
			if err != nil {
				return err
			}
			release, err := readRole(trust.RoleRelease, releaseKeys, releaseThreshold)
			if err != nil {
				return err
			}
			envelope, err := trust.New(platform, root, release, valid, time.Now())
			if err != nil {
				return cli.Fail(cli.Usage, err, "")
			}
			keys, err := signer.Open(cmd)
			if err != nil {
				return err
			}
			if envelope, err = trust.Sign(envelope, nil, keys); err != nil {
				return cli.Fail(cli.Usage, err, "")
			}
			return save(cmd, output, false, envelope, nil)
		},
	}
	f := cmd.Flags()
	f.StringVar(&platform, "platform", "", "the platform's `NAME`, as its releases have it (required)")
	f.StringArrayVar(&rootKeys, "root-key", nil, "the `[NAME=]PUB` of a key that may change who signs; may be repeated (required)")
	f.IntVar(&rootThreshold, "root-threshold", 0, "the `NUMBER` of root keys that have to sign the next version")
	f.StringArrayVar(&releaseKeys, "release-key", nil, "the `[NAME=]PUB` of a key that signs releases; may be repeated (required)")
	f.IntVar(&releaseThreshold, "release-threshold", 0, "the `NUMBER` of release keys that have to sign a release")
	f.StringVar(&validFor, "valid-for", "", "the `TIME` for which it lets new releases in (default 365d)")
	f.StringVarP(&output, "output", "o", "trust.v1.json", "the `FILE` to write")
	cli.NotEmpty(cmd, "output")
	signer.AddOptional(cmd)
	for _, name := range []string{"platform", "root-key", "release-key"} {
		_ = cmd.MarkFlagRequired(name)
	}
	return cmd
}

func readRole(name string, files []string, threshold int) (bundle.Role, error) {
	role := bundle.Role{Threshold: threshold}
	for _, f := range files {
		key, err := readKey(name+"-key", f)
		if err != nil {
			return role, err
		}
		role.Keys = append(role.Keys, key)
	}
	if threshold == 0 && len(files) == 1 {
		role.Threshold = 1
	}
	if role.Threshold == 0 {
		return role, cli.Usagef("missing --%s-threshold: how many of the %d %s keys must sign", name, len(files), name)
	}
	return role, nil
}
